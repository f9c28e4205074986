"""The studies' figures at their limits: no text outside a figure or over another text."""

from collections.abc import Sequence

import pandas as pd
import pytest
from matplotlib.figure import Figure

from rag_notes.papers.forest import forest_figure
from rag_notes.papers.verdicts import AGREES, CONTRADICTED, INCONCLUSIVE
from rag_notes.report.cells import method_label
from rag_notes.report.curves import curve_figure
from rag_notes.report.figures import main_figure
from rag_notes.report.tables import results
from rag_notes.running.records import Run
from rag_notes.studies.case_studies import cases_figure
from rag_notes.studies.chain_of_facts import OUTCOMES, chain_figure
from rag_notes.studies.content_filter import confusion_figure
from rag_notes.studies.cost import costs_and_scores, pareto_figure
from rag_notes.studies.knowledge_density import QUANTITIES, density_figure
from rag_notes.studies.main_results import families, leading
from rag_notes.studies.robustness import noise_figure
from rag_notes.studies.training import curves_figure
from tests.made import drawn_texts, make_run

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
    kinds = {"cost": 1e-4, "calls": 1.0, "tokens": 400.0, "computing": 0.5}
    return pd.concat(
        of_f1.assign(metric=kind, mean=[least * (1.4**i) for i in range(len(of_f1))]).assign(
            low=lambda rows: rows["mean"] / 1.3, high=lambda rows: rows["mean"] * 1.3
        )
        for kind, least in kinds.items()
    )


def densities_of(of_f1: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(of_f1.assign(quantity=quantity) for quantity in QUANTITIES)


def chains_of(of_f1: pd.DataFrame) -> pd.DataFrame:
    """Questions of a method end in all ways, equally often."""
    return pd.concat(of_f1.assign(outcome=outcome, share=1 / len(OUTCOMES)) for outcome in OUTCOMES)


def verdicts_of(of_f1: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(
        of_f1[["dataset", "method"]].assign(gold=gold, useful=useful)
        for gold in (True, False)
        for useful in (True, False)
    )


def orders_of(of_f1: pd.DataFrame) -> pd.DataFrame:
    """A comparison of two papers for each method, with the longest settings that there are."""
    settings = {"setting": "without=adaptive_retrieval", "other_setting": "without=adaptive_retrieval+init_note"}
    one = of_f1.assign(our_model="Qwen2.5-Coder-1.5B-Instruct", other=of_f1["method"], **settings)
    one = one.assign(ours=100 * one["mean"], low=100 * one["low"], high=100 * one["high"], least=1.0, most=40.0)
    verdicts = {"deepnote": AGREES, "adaptive_note": INCONCLUSIVE, "amber": CONTRADICTED}
    return pd.concat(one.assign(paper=paper, verdict=verdict) for paper, verdict in verdicts.items())


@pytest.mark.parametrize("limits", LIMITS)
def test_text_stays_in_the_figure_and_apart(limits: str) -> None:
    runs = runs_of(*LIMITS[limits])
    trainings, measures = LIMITS[limits][1], ("loss", "rewards/accuracies", "rewards/margins")
    curves = pd.DataFrame(
        {"training": f"dnalign of {name} with a long name", "measure": measure, "step": step, "value": 1 / (step + 1)}
        for name in trainings
        for measure in measures
        for step in range(0, 2000, 100)
    )
    table = results(runs, resamples=50)
    note = (
        "Cost at the price of gpt-4o-mini on 2024-07-18 (its announcement) where a model has none of its own. "
        "Computing is the tokens' time without any queue, at the speed of a model with a long name, on a server."
    )
    points = costs_and_scores(table, costs_of(table), "f1")
    curve = table[table["metric"] == "f1"].assign(family="deepnote", top_k=range(len(table) // 4))
    of_f1 = table[table["metric"] == "f1"]
    noises = pd.concat(table.assign(noise_percent=percent) for percent in (0, 40, 80))
    figures: dict[str, Figure] = {
        "main": main_figure(leading(table), families=families(runs), differences=True),
        "cost": pareto_figure(points, "f1", note),
        "curve": curve_figure(curve, "top_k", "passages a search"),
        "methods": curve_figure(
            of_f1.assign(family="one", method=of_f1["method"].map(method_label)), "method", "method"
        ),
        "cases": cases_figure(runs[0], ["q0"]),
        "density": density_figure(densities_of(of_f1)),
        "chain": chain_figure(chains_of(of_f1)),
        "confusion": confusion_figure(verdicts_of(of_f1)),
        "noise": noise_figure(noises),
        "training": curves_figure(curves),
        "forest": forest_figure(orders_of(of_f1)),
    }
    for name, figure in figures.items():
        shown = drawn_texts(figure)
        for text, box in shown:
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            assert inside, (name, text)
        for i, (text, box) in enumerate(shown):
            for other, other_box in shown[i + 1 :]:
                assert not box.overlaps(other_box), (name, text, other)
