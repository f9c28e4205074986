"""Comparisons of two runs or methods, and of retrievers, by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rag_notes.report.compare import Comparison, compare_runs
from rag_notes.report.retrieval import retrieval_run, retrieval_table
from rag_notes.report.tables import results
from rag_notes.running.records import Condition, Run
from rag_notes.running.samples import RecordError
from rag_notes.types import Dataset, Question
from tests.made import changed, make_run, row_of
from tests.scripted import ScriptedRetriever, passage


def compared(scores_a: Sequence[float | None], scores_b: Sequence[float | None]) -> Comparison:
    """Two runs of one method with these scores."""
    return compare_runs(make_run("toy", {"m": {"acc": scores_a}}), make_run("toy", {"m": {"acc": scores_b}}))


def test_a_comparison_by_hand() -> None:
    comparison = compared([0, 0, 1, 1, 0], [1, 1, 1, 0, 1])
    row = row_of(comparison.table, metric="acc")
    assert (row["n"], row["mean_a"], row["mean_b"], row["difference"]) == (5, 0.4, 0.8, pytest.approx(0.4))
    assert (row["wins"], row["ties"], row["losses"]) == (3, 1, 1)
    # Differences 1, 1, 0, -1, 1: of the 16 sign patterns those with a sum of at least 2 or at most -2: 2 * (1 + 4)
    assert row["p"] == row["p_holm"] == 10 / 16
    assert row["low"] < 0.4 < row["high"] and not row["significant"]
    # sd sqrt(0.8); five pairs need 1.682 sd for 80 % power
    assert row["smallest_detectable"] == pytest.approx(1.682 * math.sqrt(0.8), abs=1e-3)
    assert comparison.questions["change"].value_counts().to_dict() == {"won": 3, "lost": 1, "": 1}
    back = row_of(compared([1, 1, 1, 0, 1], [0, 0, 1, 1, 0]).table, metric="acc")
    assert back["difference"] == -row["difference"] and back["p"] == row["p"] and back["wins"] == row["losses"]


def test_two_methods_of_a_run_differ_as_in_the_table_of_results(toy: Run) -> None:
    comparison = compare_runs(toy, toy, method_a="vanilla", method_b="deepnote")
    names = {"low": "difference_low", "high": "difference_high", "n": "n_paired"}
    for metric in ("em", "f1", "all_gold_first"):
        ours = row_of(comparison.table, metric=metric, method_b="deepnote")
        theirs = row_of(results([toy]), metric=metric, method="deepnote")
        for name in ("difference", "low", "high", "p", "wins", "ties", "losses", "n"):
            assert ours[name] == theirs[names.get(name, name)]
    assert comparison.names == ("Vanilla RAG", "DeepNote")
    assert comparison.left_out[["question_id", "reason"]].values.tolist() == [["q4", "failed in B"]]


def test_p_is_corrected_for_the_methods_compared_by_one_metric() -> None:
    zeros, ones = [0.0] * 10, [1.0] * 10
    a = make_run("toy", {"x": {"acc": zeros}, "y": {"acc": zeros}, "only_a": {"acc": ones}})
    b = make_run("toy", {"y": {"acc": ones}, "x": {"acc": zeros}, "only_b": {"acc": ones}})
    comparison = compare_runs(a, b)
    assert list(comparison.table["method_a"].unique()) == ["x", "y"]  # those that both have, in the order of A
    row = row_of(comparison.table, metric="acc", method_a="y")
    assert row["p"] == 2 / 2**10 and row["p_holm"] == 4 / 2**10 and row["significant"]
    cells = [line.split() for line in repr(comparison).splitlines()]
    assert ["y", "Acc.", "10", "0.0", "100.0", "100.0", "[100.0,", "100.0]*"] in cells


def test_questions_that_do_not_match_are_left_out_with_the_reason() -> None:
    a = make_run("toy", {"m": {"acc": [1, 1, 0, None, 1]}})
    b = make_run("toy", {"m": {"acc": [0, 1, 1, 1, None, 1]}})
    b = changed(b, 0, question=Question("q0", "Another?", ("gold",)))
    b = changed(b, 1, question=replace(list(b.samples)[1].question, answers=("other",)))
    comparison = compare_runs(a, b)
    assert comparison.left_out.set_index("question_id")["reason"].to_dict() == {
        "q0": "another question under the same id",
        "q1": "other gold answers",
        "q3": "failed in A",
        "q4": "failed in B",
        "q5": "only in B",
    }
    assert comparison.questions["question_id"].tolist() == ["q2"]
    with pytest.raises(RecordError, match="no question was answered by both"):
        compared([None], [1])


def test_settings_that_differ_are_listed() -> None:
    a, b = (make_run("toy", {"m": {"acc": [1, 0]}}, llm={"model": name, "seed": 1}) for name in ("small", "large"))
    settings = compare_runs(a, b, names=("before", "after")).settings()
    assert settings.to_dict("index") == {"llm model": {"before": "small", "after": "large"}}


def test_a_comparison_shows_itself() -> None:
    evil = "<script>"
    a, b = make_run("toy", {"m": {"acc": [0] * 12 + [1]}}), make_run("toy", {"m": {"acc": [1] * 12 + [0]}})
    text = repr(compare_runs(changed(a, 0, answer=evil), b))
    assert "right only in B: 12 questions, the first 10" in text and "right only in A: 1 questions" in text
    page = compare_runs(changed(a, 0, answer=evil), b)._repr_html_()
    assert evil not in page and "&lt;script&gt;" in page and "questions left out" not in page


def test_what_cannot_be_compared_is_named(toy: Run) -> None:
    other = make_run("toy", {"m": {"acc": [1]}})
    cases: list[tuple[tuple[Run, Run], dict[str, str], str]] = [
        ((toy, make_run("toy", {"m": {"acc": [1]}}, condition=Condition(20))), {}, "not 'toy' and 'toy-noise20'"),
        ((toy, toy), {}, "with itself; name two of its methods"),
        ((toy, toy), {"method_a": "vanilla"}, "compared with itself"),
        ((toy, other), {}, "no method in common"),
        ((toy, other), {"method_a": "vanilla", "method_b": "n"}, "no method 'n' to compare; there is .* and m"),
    ]
    for runs, methods, message in cases:
        with pytest.raises(RecordError, match=message):
            compare_runs(*runs, **methods)  # type: ignore[arg-type]


def test_retrievers_are_compared_by_the_evidence_that_they_find() -> None:
    questions = (
        Question("q1", "what waits", (passage("p1").text,), gold_ids=("p1",)),
        Question("q2", "what drops", (passage("p2").text,), gold_ids=("p2", "p3")),
        Question("q3", "how hot", (passage("p3").text,), gold_titles=(passage("p3").title,)),
        Question("q4", "unanswerable"),
    )
    rankings = {"what waits": ["p1", "p2"], "what drops": ["p2", "p1"], "how hot": ["p2", "p3"], "unanswerable": ["p1"]}
    good, dataset = ScriptedRetriever(rankings), Dataset("birds", questions, ())
    scores: Any = retrieval_run(dataset, {"good": good}, 2).frame()["all_gold_seen"].tolist()
    assert scores[:3] == [1.0, 0.0, 1.0] and math.isnan(scores[3])
    assert retrieval_run(dataset, {"good": good}, 1).frame()["answer_in_passages_seen"].tolist()[:3] == [1.0, 1.0, 0.0]
    table = retrieval_table([(dataset, {"good": good, "bad_1": ScriptedRetriever(lambda _: ["p2"])})], 2)
    wide: Any = table.wide
    # Wilson's interval of 2 of 3 is 20.8 to 93.9 %; the two differ on two questions, both for the first: p = 2 / 4
    assert wide.loc["good"].tolist() == ["66.7 [20.8, 93.9]", "100.0 [43.9, 100.0]"]
    assert wide.loc["bad_1"].tolist() == ["0.0 [0.0, 56.1]", "33.3 [6.1, 79.2]"]
    assert row_of(table.results, method="bad_1", metric="all_gold_seen")["p"] == 0.5
    assert "* differs from good" in table.caption and "first 2 passages" in table.caption
    assert retrieval_table([(Dataset("birds", questions[3:], ()), {"good": good})]).results.empty
