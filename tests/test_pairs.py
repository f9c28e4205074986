"""Every two methods of a run, against hand-worked cases and scipy's noncentral t."""

import numpy as np
import pytest
import scipy.stats

from rag_notes.report.pairs import method_pairs, pairs_table, told_apart
from rag_notes.running.records import Run
from tests.made import make_run


def right(of: int, **methods: int) -> Run:
    """A run in which each method answers the first so many questions right."""
    return make_run("world", {name: {"acc": [1.0] * n + [0.0] * (of - n)} for name, n in methods.items()})


def test_pairs_differ_are_equivalent_or_undecided() -> None:
    table = method_pairs(right(200, vanilla=100, deepnote=140, amber=141), resamples=500)
    assert table["verdict"].tolist() == ["differ", "differ", "equivalent"]
    assert table["mean"].tolist() == pytest.approx([0.2, 0.205, 0.005])
    assert method_pairs(right(10, vanilla=5, deepnote=6), resamples=500)["verdict"].tolist() == ["undecided"]


def test_pairs_are_shown_in_points() -> None:
    (row,) = pairs_table(method_pairs(right(200, vanilla=100, deepnote=140), resamples=500)).to_dict("records")
    assert (row["A"], row["B"], row["n"]) == ("Vanilla RAG", "DeepNote", 200)
    assert (row["A right (%)"], row["B right (%)"], row["verdict"]) == ("50.0", "70.0", "differ")
    assert row["B - A"].startswith("20.0 [")
    assert row["B - A"].endswith("]*")


def test_a_method_is_told_apart_from_the_others_in_one_row() -> None:
    table = told_apart(method_pairs(right(200, vanilla=100, deepnote=140, amber=141), resamples=500))
    assert table[
        ["method", "right (%)", "better than", "worse than", "equivalent to", "undecided"]
    ].values.tolist() == [
        ["Amber", "70.5", "Vanilla RAG", "–", "DeepNote", 0],
        ["DeepNote", "70.0", "Vanilla RAG", "–", "Amber", 0],
        ["Vanilla RAG", "50.0", "–", "DeepNote, Amber", "–", 0],
    ]
    five = method_pairs(right(200, vanilla=20, deepnote=140, amber=141, ircot=142, rat=143), resamples=500)
    assert told_apart(five)["worse than"].tolist() == ["–"] * 4 + ["4 methods"]
    few = told_apart(method_pairs(right(10, vanilla=5, deepnote=6), resamples=500))
    assert few[["better than", "worse than", "undecided"]].values.tolist() == [["–", "–", 1]] * 2


def test_the_smallest_detectable_difference_has_the_power_that_it_is_said_to_have() -> None:
    (least,) = method_pairs(right(200, vanilla=100, deepnote=120), resamples=500)["smallest_detectable"]
    spread = np.array([0.0] * 180 + [1.0] * 20).std(ddof=1)
    power = scipy.stats.nct.sf(scipy.stats.t.isf(0.025, 199), 199, least / spread * np.sqrt(200))
    assert power == pytest.approx(0.8, abs=1e-6)


def test_methods_without_a_question_that_differs_show_no_smallest_difference() -> None:
    table = method_pairs(right(100, vanilla=50, deepnote=50), resamples=500)
    (row,) = pairs_table(table).to_dict("records")
    assert (row["B - A"], row["smallest detectable"], row["verdict"]) == ("0.0 [0.0, 0.0]", "–", "equivalent")
    assert told_apart(table)["smallest detectable"].tolist() == ["–", "–"]


def test_failed_and_unscored_questions_are_left_out_and_every_pair_has_its_row() -> None:
    run = make_run(
        "world",
        {"vanilla": {"acc": [1, None, 0, 1]}, "deepnote": {"acc": [0, 1, 0, 1]}, "amber": {"acc": [1, 1, 1, 1]}},
    )
    table = method_pairs(run, resamples=200)
    assert table[["method_a", "method_b", "n"]].values.tolist() == [
        ["vanilla", "deepnote", 3],
        ["vanilla", "amber", 3],
        ["deepnote", "amber", 4],
    ]
    unscored = method_pairs(make_run("world", {"vanilla": {"seconds": [1.0]}, "deepnote": {"seconds": [1.0]}}))
    assert unscored.empty
    assert told_apart(unscored).empty
    assert pairs_table(unscored).empty
