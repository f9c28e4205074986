"""The four kinds of figure: every text in sight and on no other, the same bytes each time, no warnings."""

import warnings
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from rag_notes.report.figures import LOOKS, PAGE, Look, bars, curves, forest, save, scatter
from rag_notes.types import InputError
from tests.made import drawn_texts

LONG = "DeepNote with one of its parts left out, number"


def table(marks: int, labels: int = 6, panels: int = 2) -> pd.DataFrame:
    """So many marks a label, with intervals, in so many panels."""
    random = np.random.default_rng(1)
    sizes = product(range(panels), range(labels), range(marks))
    rows = [(f"Score {panel} (%)", f"{LONG} {label}", mark, 200 + label) for panel, label, mark in sizes]
    means = random.uniform(20, 80, len(rows))
    kinds = random.choice(["better", "worse", "no significant difference"], len(rows))
    frame = pd.DataFrame(rows, columns=["panel", "label", "Setting", "n"])
    return frame.assign(mean=means, low=means - 8, high=means + 6, kind=kinds)


def own_kinds(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(kind=frame["label"].str[-1].map("family {}".format))


def close_marks() -> Figure:
    frame = pd.DataFrame({"label": [f"method {i}" for i in range(12)], "x": 1 + np.arange(12) / 100, "mean": 50.0})
    return scatter(frame.assign(low=45.0, high=55.0, kind="a", panel="F1 (%)"), "x", typical="typical 95 % interval")


def drawn_forest() -> Figure:
    frame = table(1, 28).assign(group=lambda rows: np.where(rows.index % 28 < 9, "Baseline", "Notes"))
    frame.loc[frame["label"] == f"{LONG} 0", "kind"] = "baseline"
    note = "Lines: 95 % intervals. Colours: paired test against the baseline, p < .05 after Holm. " * 2
    return forest(frame.assign(least=30, most=35), group="group", note=note)


KINDS: dict[str, Callable[[], Figure]] = {
    "forest": drawn_forest,
    "forest of one mark": lambda: forest(table(1, 1, 1), width=3.4),
    "curves": lambda: curves(table(5, 4, 1).replace({"label": {f"{LONG} 0": "Vanilla RAG"}}), "Setting", dodge=0.1),
    "curves in a band": lambda: curves(table(3, 3), "Setting", band=True, ylabel="F1 (%)", size=(14, 3)),
    "bars": lambda: bars(own_kinds(table(1, 9, 1)), looks={f"family {i}": look for i, look in enumerate(LOOKS[:6])}),
    "close marks": close_marks,
    "scatter": lambda: scatter(own_kinds(table(2, 6, 1)).assign(label=[f"method {i}" for i in range(12)]), "Setting"),
}


def hidden_texts(figure: Figure) -> list[str]:
    """Texts that are outside the figure, and pairs of them that overlap by more than a pixel."""
    boxes = [(text.get_text(), box.padded(-1)) for text, box in drawn_texts(figure)]
    width, height = figure.bbox.size
    outside = [text for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1]
    return outside + [f"{a} / {b}" for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_cut_off_or_covered(kind: str) -> None:
    assert hidden_texts(KINDS[kind]()) == []


def test_a_hidden_text_is_noticed() -> None:
    figure = forest(table(1, 3, 1))
    for x, text in ((0.99, "half outside"), (0.5, "one"), (0.5, "other")):
        figure.text(x, 0.5, text)
    assert hidden_texts(figure) == ["half outside", "one / other"]


def test_the_front_is_the_best_for_at_most_so_much() -> None:
    frame = pd.DataFrame({"label": list("abcd"), "x": [1, 2, 3, 4], "mean": [10.0, 5.0, 20.0, 20.0], "kind": "k"})
    axes: Any = scatter(frame.assign(low=0.0, high=30.0, panel="F1"), "x", front=True).axes[0]
    (steps,) = [line for line in axes.lines if len(line.get_xdata()) == 4]
    assert np.column_stack(steps.get_data()).tolist() == [[1, 10], [3, 10], [3, 20], [4, 20]]


def test_a_forest_has_its_marks_line_and_spans_where_the_frame_has_them() -> None:
    frame = table(1, 3, 1).assign(kind=["baseline", "better", "worse"], least=[np.nan, 30, 40], most=[np.nan, 35, 41])
    axes: Any = forest(frame).axes[0]
    marks = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    assert [mark.get_xdata()[0] for mark in marks] == frame["mean"].tolist()
    assert [mark.get_marker() for mark in marks] == ["s", "^", "v"]
    assert [line for line in axes.lines if set(line.get_xdata()) == {frame["mean"][0]} and len(line.get_xdata()) == 2]
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(30, 5), (40, 1)]


def test_bars_add_up_and_name_their_larger_parts() -> None:
    frame = pd.DataFrame({"label": ["a", "a", "b"], "kind": ["x", "y", "y"], "mean": [96.0, 4.0, 50.0], "panel": "%"})
    axes: Any = bars(frame, looks={"x": Look("#0072B2"), "y": Look("#E69F00", hatch="//")}).axes[0]
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 96), (0, 0), (96, 4), (0, 50)]
    assert [text.get_text() for text in axes.texts] == ["96", "", "", "50"]


def test_a_frame_without_rows_or_columns_is_named() -> None:
    with pytest.raises(InputError, match="no column 'panel'"):
        forest(table(1).drop(columns="panel"))
    with pytest.raises(InputError, match="nothing to draw"):
        curves(table(1)[:0], "Setting")


def test_files_have_the_same_bytes_whatever_was_shown_before(tmp_path: Path) -> None:
    frame = table(1).assign(label='=cell "a", 1')
    shown = forest(frame)
    content, size = shown._repr_png_()
    assert content.startswith(b"\x89PNG") and size == {"width": 130 * PAGE}
    for folder, figure in (("a", forest(frame)), ("b", shown)):
        save(figure, frame, "figure", tmp_path / folder)
    for name in ("figure.png", "figure.pdf", "figure.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert pd.read_csv(tmp_path / "a" / "figure.csv")["label"].unique().tolist() == ['=cell "a", 1']
    assert (tmp_path / "a" / "figure.csv").read_text().splitlines()[1].count(f"{frame['mean'][0]:.6g}") == 1


def test_chinese_letters_warn_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table(1, 2, 1).assign(label=["香草检索", "深度笔记"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(forest(frame), frame, "figure", tmp_path)
    assert capsys.readouterr().err == ""
