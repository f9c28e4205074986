"""Comparisons: by hand, against the results table, and as text, page and CSV."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rag_notes.report.compare import CHANGES, compare_runs
from rag_notes.report.compare_page import LISTED, as_text, differing_questions, find_links, write_comparison
from rag_notes.report.site import write_report
from rag_notes.report.tables import results
from rag_notes.running.records import Condition, RecordError, Run
from tests.made import changed, make_run, make_sample, row_of
from tests.pages import EVIL, browse, check_links, check_nothing_runs, evil_run, needs_chromium, read, short
from tests.test_site import toy_run


def pair_of(scores_a: Sequence[float], scores_b: Sequence[float]) -> tuple[Run, Run]:
    """Two runs of one method with these scores."""
    return make_run("toy", {"m": {"acc": scores_a}}), make_run("toy", {"m": {"acc": scores_b}})


def test_a_comparison_by_hand() -> None:
    comparison = compare_runs(*pair_of([0, 0, 1, 1, 0], [1, 1, 1, 0, 1]))
    row = row_of(comparison.table, metric="acc")
    assert (row["n"], row["mean_a"], row["mean_b"], row["difference"]) == (5, 0.4, 0.8, pytest.approx(0.4))
    assert (row["wins"], row["ties"], row["losses"]) == (3, 1, 1)
    # Differences 1, 1, 0, -1, 1: of the 16 sign patterns those with a sum of at least 2 or at most -2: 2 * (1 + 4)
    assert row["p"] == row["p_holm"] == 10 / 16
    assert row["low"] < 0.4 < row["high"] and not row["significant"]
    # sd sqrt(0.8); five pairs need 1.682 sd for 80 % power
    assert row["smallest_detectable"] == pytest.approx(1.682 * math.sqrt(0.8), abs=1e-3)
    assert [len(comparison.pairs[0].differing(change)) for change in CHANGES] == [3, 1, 0]


def test_two_methods_of_a_run_differ_as_in_the_table_of_results() -> None:
    run = toy_run()
    table = results([run], baseline="vanilla")
    comparison = compare_runs(run, run, method_a="vanilla", method_b="deepnote")
    for metric in ("em", "f1", "acc"):
        ours, theirs = row_of(comparison.table, metric=metric), row_of(table, method="deepnote", metric=metric)
        assert [ours[name] for name in ("difference", "low", "high", "p", "wins", "ties", "losses", "n")] == [
            theirs[name]
            for name in ("difference", "difference_low", "difference_high", "p", "wins", "ties", "losses", "n_paired")
        ]
        assert (ours["mean_a"], ours["mean_b"]) == (0.5, 0.75)
    cost = row_of(comparison.table, metric="prompt_tokens")
    assert cost["kind"] == "cost" and (cost["mean_a"], cost["mean_b"]) == (100, (3 * 200 + 5000) / 4)


def test_swapping_the_sides_swaps_everything() -> None:
    a, b = pair_of([0, 0, 1, 0.5], [1, 0, 0.25, 0.5])
    forth, back = (row_of(compare_runs(*runs).table, metric="acc") for runs in ((a, b), (b, a)))
    assert forth["difference"] == -back["difference"] and forth["p"] == back["p"]
    assert (forth["wins"], forth["ties"], forth["losses"]) == (back["losses"], back["ties"], back["wins"])
    assert forth["smallest_detectable"] == back["smallest_detectable"]


def test_p_is_corrected_for_the_methods_compared_by_one_metric() -> None:
    zeros, ones = [0.0] * 10, [1.0] * 10
    a = make_run("toy", {"x": {"acc": zeros}, "y": {"acc": zeros}, "only_a": {"acc": ones}})
    b = make_run("toy", {"y": {"acc": ones}, "x": {"acc": zeros}, "only_b": {"acc": ones}})
    comparison = compare_runs(a, b)
    assert [pair.name for pair in comparison.pairs] == ["x", "y"]  # what both have, in the order of A
    row = row_of(comparison.table, metric="acc", method_a="y")
    assert row["p"] == 2 / 2**10 and row["p_holm"] == 4 / 2**10 and row["significant"]
    assert comparison.all_equal(comparison.pairs[0]) and not comparison.all_equal(comparison.pairs[1])


@pytest.mark.parametrize(
    ("scores", "said"), [(([0, 0], [1, 1]), "no spread"), (([0], [1]), "n = 1"), (([0, 0], [0, 1]), "> 100")]
)
def test_what_cannot_be_detected_is_said(scores: tuple[list[float], list[float]], said: str) -> None:
    comparison = compare_runs(*pair_of(*scores))
    smallest = row_of(comparison.table, metric="acc")["smallest_detectable"]
    assert smallest > 1 if said == "> 100" else math.isnan(smallest)
    (line,) = [line for line in as_text(comparison).splitlines() if line.strip().startswith("Acc.")]
    assert line.endswith(said)


def uneven() -> tuple[Run, Run]:
    """Two runs that share the questions q0 and q1 and have six that cannot be compared."""
    a, b = (
        make_run("toy", {"m": {"acc": [0, 1, 0, 0, 0, None, 1]}}),
        make_run("toy", {"m": {"acc": [1, 1, 1, 1, 1, 1, None]}}),
    )
    a = changed(a, 2, question=replace(a.samples[2].question, id="a only"))
    b = changed(b, 2, question=replace(b.samples[2].question, id="b only"))
    b = changed(b, 3, question=replace(b.samples[3].question, question="Another question?"))
    b = changed(b, 4, question=replace(b.samples[4].question, answers=("other gold",)))
    return a, b


def test_questions_that_do_not_match_are_left_out_and_listed() -> None:
    comparison = compare_runs(*uneven())
    (pair,) = comparison.pairs
    assert [both.id for both in pair.matched] == ["q0", "q1"]
    assert pair.left_out == {
        "only in A": ["a only"],
        "another question under the same id": ["q3"],
        "other gold answers": ["q4"],
        "failed in A": ["q5"],
        "failed in B": ["q6"],
        "only in B": ["b only"],
    }
    row = row_of(comparison.table, metric="acc")
    assert (row["n"], row["mean_a"], row["mean_b"]) == (2, 0.5, 1.0)
    text = as_text(comparison)
    assert "m: 2 questions compared; 1 left out: only in A; 1 left out: another question under the same id" in text


def test_questions_failed_on_both_sides_are_counted_once() -> None:
    a, b = make_run("toy", {"m": {"acc": [0, None]}}), make_run("toy", {"m": {"acc": [1, None]}})
    assert compare_runs(a, b).pairs[0].left_out == {"failed in A and B": ["q1"]}


def test_a_metric_of_one_side_only_is_named() -> None:
    run = make_run("toy", {"closed": {"acc": [0, 1]}, "open": {"acc": [1, 1], "all_gold_first": [1, 0]}})
    comparison = compare_runs(run, run, method_a="closed", method_b="open")
    assert "all_gold_first" not in set(comparison.table["metric"])
    assert "2 questions compared; only B has All gold, first search" in as_text(comparison)


def test_what_differs_in_score_is_sorted_by_who_is_right() -> None:
    metrics: list[tuple[dict[str, float], dict[str, float], str | None]] = [
        ({"acc": 0.0, "f1": 0.2}, {"acc": 1.0, "f1": 0.4}, "won"),
        ({"acc": 1.0, "f1": 0.4}, {"acc": 0.0, "f1": 0.4}, "lost"),
        ({"acc": 0.0, "f1": 0.2}, {"acc": 0.0, "f1": 0.4}, "other"),
        ({"acc": 0.0, "f1": 0.2, "empty": 1.0}, {"acc": 0.0, "f1": 0.2}, "other"),  # blank, then merely wrong
        ({"acc": 1.0, "f1": 0.2, "acc_raw": 1.0}, {"acc": 1.0, "f1": 0.2, "acc_raw": 0.0}, None),
    ]
    base = make_run("toy", {"m": {}})
    a = Run(base.info, [make_sample("m", f"q{i}", of_a) for i, (of_a, _, _) in enumerate(metrics)])
    b = Run(base.info, [make_sample("m", f"q{i}", of_b) for i, (_, of_b, _) in enumerate(metrics)])
    (pair,) = compare_runs(a, b).pairs
    assert [both.change for both in pair.matched] == [change for *_, change in metrics]
    assert [both.id for both in pair.differing()] == ["q0", "q1", "q2", "q3"]


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        (("toy", "m"), ("other", "m"), {}, "A is of data set 'toy' and B of 'other': only runs of the same data set"),
        (("toy", "m"), ("toy", "n"), {}, "A has m and B n: no method in common; name one of each with --method-a"),
        (("toy", "m"), ("toy", "n"), {"method_a": "m", "method_b": "k"}, "B has no method 'k'; it has n"),
        (("toy", "m"), ("toy", "n"), {"method_a": "m"}, "B has no method 'm'; it has n"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    a: tuple[str, str], b: tuple[str, str], options: dict[str, str], message: str
) -> None:
    runs = [make_run(dataset, {method: {"acc": [0, 1]}}) for dataset, method in (a, b)]
    with pytest.raises(RecordError, match=re.escape(message)):
        compare_runs(*runs, **options)  # type: ignore[arg-type] # mypy takes the options for the names, too


def test_runs_of_different_conditions_are_not_compared() -> None:
    a, b = (make_run("toy", {"m": {"acc": [0, 1]}}, condition=Condition(percent)) for percent in (None, 20))
    with pytest.raises(RecordError, match="A is of data set 'toy' and B of 'toy-noise20'"):
        compare_runs(a, b)


def test_a_difference_whose_interval_and_test_disagree_is_marked() -> None:
    comparison = compare_runs(*pair_of([0] * 48, [1] * 4 + [0] * 44))
    (line,) = [line for line in as_text(comparison).splitlines() if line.strip().startswith("Acc.")]
    assert "]†" in line and "0.125" in line and "the test decides" in as_text(comparison)


def test_a_run_is_not_compared_with_itself() -> None:
    run = toy_run()
    with pytest.raises(RecordError, match="A would be compared with itself; name two of its methods with --method-a"):
        compare_runs(run, run)
    with pytest.raises(RecordError, match="vanilla of A would be compared with itself"):
        compare_runs(run, run, method_b="vanilla")
    assert compare_runs(run, toy_run()).all_equal(compare_runs(run, toy_run()).pairs[0])  # made twice: a fair question


def test_no_question_in_common_is_an_error_that_says_why() -> None:
    a, b = make_run("toy", {"m": {"acc": [0, None]}}), make_run("toy", {"m": {"acc": [1, 1]}})
    b = changed(b, 0, question=replace(b.samples[0].question, id="elsewhere"))
    with pytest.raises(
        RecordError,
        match=re.escape("by both m of A (A) and m of B (B): 1 only in A, 1 failed in A, 1 only in B"),
    ):
        compare_runs(a, b)


def test_settings_that_differ_are_named() -> None:
    a = make_run("toy", {"m": {"acc": [0]}}, prompts={"en/x": "0" * 64, "en/y": "1" * 64})
    b = make_run("toy", {"m": {"acc": [1]}}, prompts={"en/x": "0" * 64, "en/y": "2" * 64})
    a.info.methods["m"].settings.update(top_k=5)
    b.info.methods["m"].settings.update(top_k=5, max_step=2)
    a.info.llm["model"], b.info.llm["model"] = "small", "large"
    assert compare_runs(a, b).settings() == [
        ("llm model", "small", "large"),
        ("prompt en/y", "1" * 12, "2" * 12),
        ("method m max_step", "–", "2"),
    ]


def test_the_text_lists_so_many_and_says_what_it_leaves_out() -> None:
    text = as_text(compare_runs(*pair_of([0] * (LISTED + 3), [1] * (LISTED + 3))))
    assert text.count("wrong -> right: an answer -> an answer") == LISTED
    assert text.endswith("and 3 more: --out FILE.html or --out FILE.csv has all")


def test_the_text_does_nothing_to_a_terminal() -> None:
    a, b = pair_of([0], [1])
    b = changed(b, 0, answer="\x1b[31mred\u202e\u2028\nline")
    text = as_text(compare_runs(a, b))
    assert "q0, wrong -> right: an answer -> [31mred line" in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_page_stands_alone_and_has_both_traces(tmp_path: Path) -> None:
    run = toy_run()
    comparison = compare_runs(run, run, method_a="vanilla", method_b="deepnote", names=("toy-run", "toy-run"))
    (path,) = write_comparison(comparison, tmp_path / "new" / "c.html")
    page = read(path)
    check_nothing_runs(page)
    assert not page.all("link") and not page.all("img") and "default-src 'none'" in path.read_text("utf-8")
    (both,) = page.text("details", class_="both")  # only city-1 differs
    assert both.count("The Seine valley: Rouen.") == 2 and "Where was Géricault born?" in both
    assert page.text("div", class_="side")[0].lstrip().startswith("A · Vanilla RAG ✗ wrong")
    assert page.text("h4")[0] == "1 right only in B"
    again = write_comparison(comparison, tmp_path / "c.html")[0]
    assert again.read_bytes() == path.read_bytes()
    assert [each.name for each in tmp_path.glob("**/*") if each.is_file()].count("c.html") == 2


def test_the_page_shows_what_was_left_out_and_the_numbers_of_the_text(tmp_path: Path) -> None:
    comparison = compare_runs(*uneven())
    page = read(write_comparison(comparison, tmp_path / "c.html")[0])
    folds = [text.strip() for text in page.text("details")]
    assert "1 left out: other gold answersq4" in folds and "1 left out: failed in Aq5" in folds
    (text,) = [line for line in as_text(comparison).splitlines() if line.strip().startswith("Acc.")]
    words = "".join(text.split())
    assert words in {"".join(row.split()) for row in page.text("tr")}


def test_links_lead_to_both_traces_in_the_report(tmp_path: Path) -> None:
    run = toy_run()
    other = changed(run, 0, answer="Seine", metrics=run.samples[4].metrics)
    write_report({"one": run, "two": other}, tmp_path / "my report")
    comparison = compare_runs(run, other, names=("one", "two"))
    links = find_links(comparison, tmp_path / "my report")
    (page,) = write_comparison(comparison, tmp_path / "c.html", links)
    assert [link.attributes["href"] for link in read(page).all("a") if link.attributes["href"].startswith("my")] == [
        "my%20report/runs/1-one/0001-river-1.html#1-no_retrieval",
        "my%20report/runs/2-two/0001-river-1.html#1-no_retrieval",
    ]
    assert check_links(tmp_path) > 0
    assert not read(page).all("section", class_="trace") and "Seine valley" not in page.read_text("utf-8")
    assert f"   {tmp_path}/my report/runs/2-two/0001-river-1.html#1-no_retrieval\n" in as_text(comparison, links) + "\n"
    moved = compare_runs(run, other, names=("one", "three"))
    with pytest.raises(RecordError, match="a report of one, two, not of three"):
        find_links(moved, tmp_path / "my report")


def test_csv_has_the_table_and_the_questions(tmp_path: Path) -> None:
    run = toy_run()
    comparison = compare_runs(run, run, method_a="no_retrieval", method_b="deepnote")
    paths = write_comparison(comparison, tmp_path / "c.csv")
    assert [path.name for path in paths] == ["c.csv", "c.questions.csv"]
    pd.testing.assert_frame_equal(pd.read_csv(paths[0]), comparison.table, rtol=1e-5, check_dtype=False)
    questions = pd.read_csv(paths[1], keep_default_na=False)
    assert list(questions["question_id"]) == ["river-1"] == list(differing_questions(comparison)["question_id"])
    (row,) = questions[["correctness_a", "correctness_b", "answer_a", "answer_b"]].to_numpy().tolist()
    assert row == ["wrong", "right", "Paris", "Seine"]
    with pytest.raises(ValueError, match=r"c\.txt: a comparison is written as \.html or \.csv"):
        write_comparison(comparison, tmp_path / "c.txt")


def test_no_difference_is_said(tmp_path: Path) -> None:
    comparison = compare_runs(*pair_of([0, 1], [0, 1]), names=("x", "y"))
    text = as_text(comparison)
    assert "equal in every value of every question: m" in text and text.endswith("0 answers differ in score")
    page = read(write_comparison(comparison, tmp_path / "c.html")[0])
    assert "None." in page.text("p") and "No setting differs." in page.text("p")


def evil_pair() -> tuple[Run, Run]:
    a, b = evil_run(), evil_run()
    b = changed(b, 0, answer=f"no {EVIL}", metrics=short("m", "q", 0.0).metrics)
    b.info.llm["model"] = f"other {EVIL}"
    return a, b


def test_all_text_of_the_page_is_text(tmp_path: Path) -> None:
    comparison = compare_runs(*evil_pair(), names=(f"a {EVIL}", f"b {EVIL}"))
    page = read(write_comparison(comparison, tmp_path / "c.html")[0])
    check_nothing_runs(page)
    shown = page.text("html")[0]
    for text in ("a ", "b ", "model ", "other ", "Who? ", "answer ", "no ", "query ", "passage ", "note ", "../"):
        assert f"{text}{EVIL}" in shown


@needs_chromium
def test_a_link_into_the_page_opens_the_question(tmp_path: Path) -> None:
    a, b = evil_pair()
    path = write_comparison(compare_runs(a, b, names=("one", "two")), tmp_path / "c.html")[0]
    (line,) = [
        line for line in as_text(compare_runs(a, b), page=path).splitlines() if line.startswith("   ") and "#" in line
    ]
    place = line.partition("#")[2]
    for fragment, opened in (("", 0), (f"#{place}", 1)):
        found = browse(path, fragment, tmp_path / f"profile{opened}")
        assert found.console == []
        assert sum("open" in each.attributes for each in found.page.all("details", class_="both")) == opened
    check_nothing_runs(found.page)
