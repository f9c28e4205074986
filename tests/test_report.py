import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.lines import Line2D

from rag_notes.events import Counts
from rag_notes.papers.numbers import beside_paper
from rag_notes.report.csv_file import write_csv
from rag_notes.report.figures import main_figure, save_figure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.tables import RETRIEVAL_METRICS, diagnostics, results
from rag_notes.running.records import Condition, Run, SampleError
from tests.made import Scores, drawn_texts, make_info, make_run, make_sample, row_of, shown_cell


def test_results_by_hand(toy: Run) -> None:
    row = row_of(results([toy]), method="deepnote", metric="em")
    assert row["dataset"] == "toy"
    assert (row["n"], row["mean"]) == (4, 0.75)
    # Wilson, 3 of 4, z = 1.96: (0.75 + 0.4802 -+ 1.96 * sqrt(0.0469 + 0.0600)) / 1.9604
    assert (row["low"], row["high"]) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert row["interval"] == "wilson"
    # On q0 to q3 the differences are 0, 1, 1, 0: two of the four sign patterns are as far from 0.
    assert (row["difference"], row["p"], row["n_paired"]) == (0.5, 0.5, 4)
    assert (row["wins"], row["ties"], row["losses"]) == (2, 2, 0)
    # Two methods are compared: 2 * 0.5 = 1, and no_retrieval's p is 1.
    assert (row["p_holm"], row["significant"]) == (1.0, False)
    worse = row_of(results([toy]), method="no_retrieval", metric="em")
    assert (worse["difference"], worse["wins"], worse["ties"], worse["losses"]) == (-0.2, 0, 4, 1)


def test_results_order_average_and_retrieval(toy: Run) -> None:
    table = results([toy])
    assert list(dict.fromkeys(table["metric"])) == ["em", "f1", "avg", "all_gold_first"]
    assert list(table[table["metric"] == "em"]["method"]) == toy.methods
    assert list(table[table["metric"] == "all_gold_first"]["method"]) == ["vanilla", "deepnote"]
    average = row_of(table, method="deepnote", metric="avg")
    assert average["mean"] == pytest.approx((0.75 + 3.2 / 4) / 2)
    assert math.isnan(average["low"]) and math.isnan(average["p"]) and average["n"] == 4
    baseline = row_of(table, method="vanilla", metric="f1")
    assert math.isnan(baseline["p_holm"]) and not baseline["significant"] and pd.isna(baseline["wins"])


def test_results_pair_by_question_not_by_place(toy: Run) -> None:
    mixed = Run(toy.info, [*toy.samples[:5], *toy.samples[5:10][::-1], *toy.samples[10:]])
    columns = ["difference", "p", "wins", "ties", "losses", "n_paired"]
    pd.testing.assert_frame_equal(results([mixed])[columns], results([toy])[columns])


def test_results_correct_for_the_methods_compared_on_one_data_set_and_metric() -> None:
    zeros: Scores = {"em": [0.0] * 10}
    ones: Scores = {"em": [1.0] * 10}
    runs = [
        make_run("one", {"vanilla": zeros, "deepnote": ones}),
        make_run("three", {"vanilla": zeros, "deepnote": ones, "react": zeros, "flare": ones}),
    ]
    table = results(runs)
    p = 2 / 2**10  # all ten differences are 1: only the patterns of one sign are as far from 0
    assert row_of(table, dataset="one", method="deepnote")["p_holm"] == pytest.approx(p)
    three = table[table["dataset"] == "three"].set_index("method")["p_holm"]
    assert list(three[["deepnote", "react", "flare"]]) == pytest.approx([3 * p, 1.0, 3 * p])
    assert list(table["significant"]) == [False, True, False, True, False, True]
    assert not results(runs, confidence=0.995)["significant"].iloc[3]  # 3p = 0.0059 is not below 0.005


def test_results_keep_a_method_of_which_every_question_failed() -> None:
    run = make_run("toy", {"vanilla": {"em": [1, 0]}, "deepnote": {"em": [None, None]}})
    row = row_of(results([run]), method="deepnote")
    assert (row["n"], row["n_paired"], row["significant"]) == (0, 0, False)
    assert math.isnan(row["mean"]) and math.isnan(row["p"])
    assert shown_cell(results([run]), "deepnote", ("toy", "EM")) == "–"


def test_results_of_nothing_answered() -> None:
    table = results([make_run("toy", {"vanilla": {"em": [None]}})])
    assert table.empty and "No question was answered without error." in ScoresTable(table).to_html()


def test_results_leave_reject_out_of_the_average() -> None:
    run = make_run("toy", {"vanilla": {"em": [1.0, 0.0], "f1": [1.0, 0.5]}})
    run = replace(run, samples=[*run.samples, make_sample("vanilla", "unanswerable", {"reject": 0.0})])
    assert row_of(results([run]), metric="avg")["mean"] == pytest.approx((0.5 + 0.75) / 2)
    assert row_of(results([run]), metric="reject")["n"] == 1


def test_results_without_a_baseline_or_with_a_wrong_one(toy: Run) -> None:
    table = results([toy], baseline=None)
    assert table["p"].isna().all() and not table["significant"].any()
    with pytest.raises(ValueError, match="baseline 'bm25' is not in the run of 'toy'"):
        results([toy], baseline="bm25")
    with pytest.raises(ValueError, match="two runs of 'toy'"):
        results([toy, toy])


def test_a_difference_whose_interval_and_test_disagree_is_marked() -> None:
    ones: Scores = {"em": [1.0] * 4 + [0.0] * 44}
    table = results([make_run("toy", {"vanilla": {"em": [0.0] * 48}, "deepnote": ones, "amber": {"em": [0.0] * 48}})])
    row = row_of(table, method="deepnote")
    assert row["difference_low"] > 0 and row["p"] == 2 / 2**4  # four questions differ, all in one direction
    assert shown_cell(table, "deepnote", ("toy", "EM")).endswith("]†")
    assert shown_cell(table, "amber", ("toy", "EM")).endswith("]")
    assert "the test decides" in ScoresTable(table).to_html()
    assert "†" not in ScoresTable(table[table["method"] != "deepnote"]).to_html()


def test_the_papers_own_accuracy_stands_behind_ours_and_is_not_averaged() -> None:
    table = results([make_run("toy", {"vanilla": {"acc_raw": [0, 0], "em": [1, 0], "acc": [1, 1]}})])
    assert list(table["metric"]) == ["em", "acc", "acc_raw", "avg"]
    assert row_of(table, metric="avg")["mean"] == 0.75
    assert len(main_figure(table).axes) == 2


def test_a_condition_makes_another_data_set_of_a_table() -> None:
    runs = [make_run("toy", {"vanilla": {"em": [1]}}, condition=Condition(percent)) for percent in (None, 0, 40)]
    assert list(results(runs)["dataset"]) == ["toy", "toy-noise0", "toy-noise40"]
    with pytest.raises(ValueError, match="two runs of 'toy-noise40'"):
        results([*runs, runs[2]])


def test_diagnostics_by_hand() -> None:
    miss = SampleError("RecordingMissError", "no recorded response")
    samples = [
        make_sample("m", "a", {"em": 1.0, "cost": 0.25}, counts=Counts(searches=1, calls=2, parse_failures=1)),
        make_sample("m", "b", {"em": 0.0, "cost": 0.5}, counts=Counts(searches=4, calls=4), answer=" "),
        make_sample("m", "c", {}, counts=Counts(searches=9, parse_failures=2), answer="", error=miss),
        make_sample("m", "d", {}, answer="", error="refused"),
        make_sample("free", "a", {"em": 1.0}),
    ]
    info = make_info("toy", ["m", "free"], seconds={"m": {"a": 1, "b": 2}})
    table = diagnostics([Run(info, samples)])
    row = row_of(table, method="m")
    assert (row["questions"], row["errors"], row["not_recorded"]) == (4, 2, 1)
    assert (row["empty"], row["parse_failures"]) == (1, 3)
    assert (row["searches"], row["calls"], row["cost"], row["seconds"]) == (2.5, 3.0, 0.75, 1.5)
    free = row_of(table, method="free")
    assert math.isnan(free["cost"]) and math.isnan(free["seconds"])


def test_csv_is_the_same_bytes(toy: Run, tmp_path: Path) -> None:
    first = write_csv(results([toy]), tmp_path / "a.csv").read_bytes()
    assert first == write_csv(results([toy]), tmp_path / "b.csv").read_bytes()
    assert b"\r" not in first and b"toy,deepnote,em,0.75,0.300642,0.954413,wilson,4,0.5," in first


# --- figures


def many(methods: Sequence[str], datasets: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Results of made-up scores: method i is right on i + 1 of 20 questions."""
    runs = [
        make_run(name, {m: {k: [1.0] * (i + 1) + [0.0] * (19 - i) for k in metrics} for i, m in enumerate(methods)})
        for name, metrics in datasets.items()
    ]
    return results(runs, resamples=50)


FIFTEEN = [
    *("no_retrieval", "vanilla", "chain_of_thought", "chain_of_note", "adaptive_note", "deepnote", "react", "self_rag"),
    *("flare", "rat", "self_refine", "self_rerank", "adaptive_rag", "ircot", "recomp"),
]
LAYOUTS: dict[str, tuple[list[str], dict[str, Sequence[str]]]] = {
    "one": (FIFTEEN[:2], {"strategyqa": ["yes_no_acc"]}),
    "several": (FIFTEEN[:6], {"hotpotqa": ["em", "f1", "acc"], "asqa": ["str_em", "str_hit"]}),
    "wide": (FIFTEEN, {"hotpotqa": ["em", "f1", "acc", *RETRIEVAL_METRICS]}),
    "most": (
        FIFTEEN,
        {
            **dict.fromkeys(("hotpotqa", "twowikimultihopqa", "musique"), ("em", "f1", "acc")),
            "strategyqa": ["yes_no_acc"],
        },
    ),
}


def x_of(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


@pytest.mark.parametrize("with_paper", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_figure_layout(layout: str, with_paper: bool) -> None:
    methods, datasets = LAYOUTS[layout]
    metrics = list(dict.fromkeys(metric for of_dataset in datasets.values() for metric in of_dataset))
    table = many(methods, datasets)
    figure = main_figure(table, paper=beside_paper(table) if with_paper else None, metrics=metrics)
    assert len(figure.axes) == sum(
        len(of_dataset) for of_dataset in datasets.values()
    )  # a panel a metric that the data set has
    shown = drawn_texts(figure)
    for text, box in shown:
        assert float(text.get_fontsize()) >= 8
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    for i, (text, box) in enumerate(shown):
        for other, other_box in shown[i + 1 :]:
            assert not box.overlaps(other_box), (text, other)


def test_figure_shows_the_numbers() -> None:
    table = many(["vanilla", "deepnote"], {"hotpotqa": ["em", "f1"]})
    table.loc[table["method"] == "deepnote", "significant"] = True
    figure = main_figure(table, paper=beside_paper(table, "GPT-4o-mini"))
    em = figure.axes[0]
    assert [label.get_text() for label in em.get_yticklabels()] == ["DeepNote", "Vanilla RAG"]  # the best on top
    assert em.get_xlabel() == "EM (%)\nn = 20" and em.get_title("left") == "HotpotQA"
    drawn = {line.get_marker(): x_of(line) for line in em.lines if line.get_markerfacecolor() != "none"}
    assert drawn["s"] == [5.0] and drawn["^"] == [10.0]  # 1 and 2 of 20; the baseline, and a better one
    hollow = [x_of(line) for line in em.lines if line.get_markerfacecolor() == "none"]
    assert sorted(hollow) == [[40.0], [50.2]]
    vertical = [line for line in em.lines if len(set(x_of(line))) < len(x_of(line)) == 2]
    assert [x_of(line)[0] for line in vertical] == [5.0]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "significantly better",
        "baseline",
        "GPT-4o-mini (deepnote paper)",
    ]
    assert legend.get_title().get_text() == "Mean with 95 % interval; test against Vanilla RAG, p < 0.05 after Holm"


def test_figure_has_a_shape_for_every_model_of_the_papers() -> None:
    table = many(["vanilla", "no_retrieval"], {"hotpotqa": ["f1"], "triviaqa": ["f1", "acc"]})
    (legend,) = main_figure(table, paper=beside_paper(table)).legends
    shapes = [line.get_marker() for line in legend.get_lines() if line.get_markerfacecolor() == "none"]
    assert len(shapes) == len(set(shapes)) == 12  # four models in DeepNote, three in Adaptive-Note and Amber, two


def test_figure_orders_methods_by_result_within_their_family() -> None:
    table = many(["vanilla", "no_retrieval", "deepnote", "amber"], {"toy": ["em"]})
    families = {"vanilla": "plain", "deepnote": "notes", "amber": "notes", "no_retrieval": "plain"}
    for given, order in (
        (None, ["Amber", "DeepNote", "No retrieval", "Vanilla RAG"]),
        (families, ["No retrieval", "Vanilla RAG", "Amber", "DeepNote"]),
    ):
        labels = main_figure(table, families=given).axes[0].get_yticklabels()
        assert [label.get_text() for label in labels] == order


def test_figure_is_as_wide_as_a_column_or_page_of_a_paper() -> None:
    table = many(["vanilla", "deepnote"], {"hotpotqa": ["em", "f1", "acc"]})
    assert main_figure(table).get_figwidth() == 3.4
    assert main_figure(table, paper=beside_paper(table)).get_figwidth() == 7.0


def test_figure_without_its_metrics() -> None:
    table = many(["vanilla"], {"toy": ["em"]})
    assert len(main_figure(table, paper=beside_paper(table)).axes) == 1  # no paper has this data set
    with pytest.raises(ValueError, match="none of the metrics"):
        main_figure(table, metrics=["str_em"])


def test_saved_figures_are_the_same_bytes(toy: Run, tmp_path: Path) -> None:
    table = results([toy])
    first = save_figure(main_figure(table), table, tmp_path / "a", "main")
    again = main_figure(table)
    assert again._repr_png_()[0] == first[0].read_bytes()
    second = save_figure(again, table, tmp_path / "b", "main")
    assert [path.name for path in first] == ["main.png", "main.pdf", "main.csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"CreationDate" not in first[1].read_bytes() and b"tEXt" not in first[0].read_bytes()


def test_figure_shows_in_a_notebook(toy: Run) -> None:
    data, _ = DisplayFormatter().format(main_figure(results([toy])))  # type: ignore[no-untyped-call]
    assert data["image/png"].startswith(b"\x89PNG")
