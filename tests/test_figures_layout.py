"""The studies' figures at their limits: no text outside a figure or over another text."""

from collections.abc import Sequence

import pandas as pd
import pytest
from matplotlib.figure import Figure

from rag_notes.report.curves import curve_figure
from rag_notes.report.figures import main_figure
from rag_notes.report.tables import results
from rag_notes.running.records import Run
from rag_notes.studies.case_studies import cases_figure
from rag_notes.studies.cost import costs_and_scores, pareto_figure
from rag_notes.studies.main_results import families, leading
from tests.made import make_run
from tests.test_report import drawn_texts

LONG = [f"deepnote_with_a_part_left_out_{i}" for i in range(28)]
LIMITS = {
    "one method on one question": (["vanilla"], ["strategyqa"], 1),
    "two methods on one question": (["vanilla", "deepnote"], ["strategyqa"], 1),
    "thirty methods with long names": (["vanilla", "recomp_abstractive", *LONG], ["hotpotqa"], 20),
    "four data sets": (
        ["vanilla", "ircot", "self_rag", "deepnote"],
        ["hotpotqa", "twowikimultihopqa", "musique", "asqa"],
        20,
    ),
}


def runs_of(methods: Sequence[str], datasets: Sequence[str], questions: int) -> list[Run]:
    """Method i is right on every question whose number i + 1 divides."""
    return [
        make_run(name, {m: dict.fromkeys(("em", "f1", "acc"), right) for m, right in scores.items()})
        for name in datasets
        for scores in [
            {m: [float(q % (i + 1) == 0) for q in range(questions)] for i, m in enumerate(methods)},
        ]
    ]


def costs_of(table: pd.DataFrame) -> pd.DataFrame:
    """Costs made up for the methods of a table: some much alike, over four powers of ten."""
    of_f1 = table[table["metric"] == "f1"].reset_index(drop=True)
    kinds = {"cost": 1e-4, "calls": 1.0, "completion_tokens": 40.0}
    return pd.concat(
        of_f1.assign(metric=kind, mean=[least * (1.4**i) for i in range(len(of_f1))]).assign(
            low=lambda rows: rows["mean"] / 1.3, high=lambda rows: rows["mean"] * 1.3
        )
        for kind, least in kinds.items()
    )


@pytest.mark.parametrize("limits", LIMITS)
def test_text_stays_in_the_figure_and_apart(limits: str) -> None:
    runs = runs_of(*LIMITS[limits])
    table = results(runs, resamples=50)
    note = "Cost at the price of gpt-4o-mini on 2024-07-18 (its announcement) where a model has none of its own."
    points = costs_and_scores(table, costs_of(table), "f1")
    curve = table[table["metric"] == "f1"].assign(family="deepnote", top_k=range(len(table) // 4))
    figures: dict[str, Figure] = {
        "main": main_figure(leading(table), families=families(runs), differences=True),
        "cost": pareto_figure(points, "f1", note),
        "curve": curve_figure(curve, "top_k", "passages a search"),
        "cases": cases_figure(runs[0], ["q0"]),
    }
    for name, figure in figures.items():
        shown = drawn_texts(figure)
        for text, box in shown:
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            assert inside, (name, text)
        for i, (text, box) in enumerate(shown):
            for other, other_box in shown[i + 1 :]:
                assert not box.overlaps(other_box), (name, text, other)
