"""Tables and figures of single studies, from hand-made runs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_notes.events import Ask, Event, Found, Note, ParseFailure, Search, count
from rag_notes.metrics.stats import wilson
from rag_notes.report.figures import save_figure
from rag_notes.running.records import Condition, DatasetInfo, Run, Sample, SampleError
from rag_notes.studies.knowledge_density import density_figure, density_results, density_table, knowledge_density
from rag_notes.studies.robustness import (
    noise_figure,
    noise_losses,
    noise_passages,
    noise_results,
    noise_table,
    paper_noise,
)
from rag_notes.types import Question
from tests.made import make_info

QUESTIONS = tuple(
    Question(f"q{number}", f"Who is {number}?", ("Ann",), gold_ids=("g", "h"), type="bridge") for number in range(1, 5)
)
CHINESE = Question("z", "谁？", ("王明",), language="zh")
BY_ID = {question.id: question for question in (*QUESTIONS, CHINESE)}


def search(*names: str) -> Search:
    return Search("?", 5, [Found(name, name.upper(), f"Text of {name}.", 1.0) for name in names])


def ask(stage: str, response: str) -> Ask:
    return Ask(stage, "?", response, "stop", 1, 1, f"{stage}{response}")


def sample(
    method: str,
    question_id: str,
    metrics: dict[str, float],
    trace: Sequence[Event],
    *,
    answer: str = "Ann",
    error: str | None = None,
) -> Sample:
    failure = None if error is None else SampleError("LLMError", error)
    return Sample(method, BY_ID[question_id], answer, failure, metrics, count(trace), list(trace))


def run(methods: list[str], samples: list[Sample], questions: int = 4, **condition: Any) -> Run:
    info = make_info("made", methods, condition=Condition(**condition))
    return Run(replace(info, dataset=DatasetInfo("made", questions, "")), samples)


def noisy(percent: int, scores: dict[str, list[float | None]], names: str) -> Run:
    """A run in which each method has these F1 scores on the four questions (None: failed) and read these passages."""
    samples = [
        sample(
            method,
            question.id,
            {} if score is None else {"f1": score, "all_gold_first": float({"g", "h"} <= set(names))},
            [search(*names)],
            error="gone" if score is None else None,
        )
        for method, of_method in scores.items()
        for question, score in zip(QUESTIONS, of_method, strict=True)
    ]
    return run(list(scores), samples, noise_percent=percent)


CLEAN = noisy(0, {"vanilla": [1, 1, 1, 1], "chain_of_note": [1, 1, 1, None]}, "gh")
NOISY = noisy(100, {"vanilla": [0, 0, 0, 1], "chain_of_note": [1, 1, 0, 0]}, "xy")
LOST = noisy(50, {"vanilla": [None] * 4, "chain_of_note": [None] * 4}, "gx")
PLAIN = run(["vanilla"], [], questions=5)


def test_results_by_noise_have_the_data_sets_own_name() -> None:
    table: Any = noise_results([CLEAN, NOISY], resamples=100)
    f1: Any = table[table["metric"] == "f1"].set_index(["noise_percent", "method"])
    assert set(table["dataset"]) == {"made"}
    assert f1["mean"].to_dict() == {
        (0, "vanilla"): 1.0,
        (0, "chain_of_note"): 1.0,
        (100, "vanilla"): 0.25,
        (100, "chain_of_note"): 0.5,
    }
    assert f1["n"].tolist() == [4, 3, 4, 4]
    shown: Any = noise_table(table)
    assert shown.columns.tolist() == ["0 % noise", "100 % noise"]
    low, high, _ = wilson(1, 4)
    assert shown.loc[("made", "F1", "Vanilla RAG"), "100 % noise"] == f"25.0 [{100 * low:.1f}, {100 * high:.1f}]"


def test_what_was_read_is_counted_for_the_questions_that_were_answered() -> None:
    table: Any = noise_passages([CLEAN, NOISY, LOST, PLAIN]).set_index(["noise_percent", "method"])
    assert table.loc[(0, "vanilla"), ["questions", "left_out", "answered", "gold", "noise", "all_gold"]].tolist() == [
        *(4, 1, 4),
        *(2.0, 0.0, 1.0),
    ]
    assert table.loc[(0, "chain_of_note"), "answered"] == 3
    assert table.loc[(100, "vanilla"), ["gold", "noise", "all_gold"]].tolist() == [0.0, 2.0, 0.0]
    assert table.loc[(50, "vanilla"), "answered"] == 0
    assert math.isnan(table.loc[(50, "vanilla"), "gold"])
    assert noise_passages([CLEAN])["left_out"].isna().all()  # nothing says how many there are


def test_passages_of_a_question_without_annotation_are_gold_where_they_hold_its_answer() -> None:
    question = Question("q", "Which?", ("Text of g",))
    read = [replace(sample("vanilla", "q1", {}, [search("g", "x")]), question=question)]
    (row,) = noise_passages([run(["vanilla"], read, noise_percent=40)]).to_dict("records")
    assert (row["gold"], row["noise"]) == (1, 1)


def test_a_loss_is_paired_by_question_and_stands_beside_the_papers() -> None:
    table: Any = noise_losses([NOISY, CLEAN], resamples=100).set_index(["method", "metric"])
    assert table.loc[("vanilla", "f1"), ["change", "n"]].tolist() == [-0.75, 4]
    assert table.loc[("chain_of_note", "f1"), ["change", "n"]].tolist() == [pytest.approx(-1 / 3), 3]
    assert table.loc[("vanilla", "f1"), "p"] == 0.25  # 2 of the 8 sign patterns of three losses
    # Table 3 of Chain-of-Note: its average F1 is 77.06 without noise and 57.55 with nothing else; it has no vanilla.
    assert table.loc[("chain_of_note", "f1"), "paper"] == pytest.approx((57.55 - 77.06) / 100)
    assert np.isnan(table.loc[("vanilla", "f1"), "paper"])
    assert noise_losses([CLEAN, LOST], resamples=100)["n"].tolist() == [0, 0]


def test_the_papers_slope_has_both_methods_at_six_ratios() -> None:
    table: Any = paper_noise()
    assert table.groupby(["metric", "method"]).size().tolist() == [6, 6, 6, 6]
    assert sorted(set(table["noise_percent"])) == [0, 20, 40, 60, 80, 100]
    assert set(table["model"]) == {"LLaMa-2-7B"}


def test_a_figure_of_noise_is_drawn_whatever_is_missing(tmp_path: Path) -> None:
    full: Any = noise_results([CLEAN, NOISY, LOST], resamples=100)
    none: Any = noise_results([LOST], resamples=100)
    assert none.empty
    for table, titles in ((full, {"made, F1, n = 3 to 4"}), (none, {"(no answers), F1, n = 0"})):
        figure = noise_figure(table, metrics=("f1",))
        shown = {axes.get_title(loc="left") for axes in figure.axes}
        assert shown == {*titles, "paper, F1"}
        first, again = (save_figure(noise_figure(table), table, tmp_path / name, "noise")[0] for name in "ab")
        assert first.read_bytes() == again.read_bytes()
    lines = {line.get_label(): line for line in noise_figure(full, metrics=("f1",)).axes[0].get_lines()}
    assert [list(np.asarray(line.get_ydata())) for line in lines.values()] == [[100.0, 25.0], [100.0, 50.0]]


NOTE = "- Ann built the bridge in 1904.\n- It is long."


def densities() -> tuple[Run, Run]:
    methods = ["vanilla", "deepnote"]
    note = Note(NOTE, kept=True)
    samples = [
        sample("vanilla", "q1", {"em": 1.0, "f1": 0.5, "empty": 0.0}, [search("g", "h")]),
        sample("vanilla", "q2", {"em": 0.0, "f1": 0.0}, [search("g")]),
        sample("vanilla", "q3", {}, [search("g")], error="gone"),
        sample("deepnote", "q1", {"em": 1.0, "f1": 1.0}, [search("g"), note]),
        sample("deepnote", "q2", {"em": 1.0, "f1": 1.0}, [search("g"), Note("-", kept=True)]),
        sample("deepnote", "q3", {"em": 0.0, "f1": 0.0}, [search("g"), note]),
    ]
    failed: list[Event] = [ask("evidence", "Hm"), ParseFailure("evidence")]
    marked = [
        sample("vanilla", "q1", {}, [ask("evidence", "Text of h.")], answer="Text of h."),
        sample("vanilla", "q2", {}, failed, answer=""),
        sample("vanilla", "q3", {}, [], answer="", error="no answer"),
        sample("deepnote", "q1", {}, [ask("evidence", "x")], answer="Ann built the bridge in 1904."),
        sample("deepnote", "q2", {}, [], answer=""),
        sample("deepnote", "q3", {}, [ask("evidence", "none")], answer=""),
    ]
    return run(methods, samples), run(methods, marked, annotates="evidence")


def test_density_is_the_share_of_the_references_tokens_that_are_evidence() -> None:
    answers, evidence = densities()
    rows: Any = knowledge_density([answers], [evidence]).set_index(["method", "question_id"])
    assert len(rows) == 5  # the failed answer has no reference
    tokens: Any = rows[["reference_tokens", "evidence_tokens"]]
    assert tokens.loc[("vanilla", "q1")].tolist() == [6, 3]  # "Text of g." and "Text of h.", no titles
    assert tokens.loc[("vanilla", "q2")].tolist() == [3, 0]
    assert tokens.loc[("deepnote", "q1")].tolist() == [9, 6]  # no bullets
    assert tokens.loc[("deepnote", "q2")].tolist() == [0, 0]
    assert rows["density"].tolist() == [0.5, 0.0, pytest.approx(6 / 9), pytest.approx(math.nan, nan_ok=True), 0.0]
    assert rows["density_parsed"].isna().tolist() == [False, True, False, True, False]
    assert rows["parse_failure"].tolist() == [False, True, False, False, False]
    assert rows["none"].tolist() == [False, False, False, False, True]
    assert rows["performance"].tolist() == [0.75, 0.0, 1.0, 1.0, 0.0]


def test_the_table_of_densities_counts_what_it_covers() -> None:
    answers, evidence = densities()
    rows: Any = knowledge_density([answers], [evidence])
    table: Any = density_results(rows, resamples=100)
    means: Any = table.set_index(["method", "quantity"])["mean"]
    assert means["vanilla", "reference_tokens"] == 4.5
    assert means["vanilla", "density"] == 0.25
    assert means["vanilla", "density_parsed"] == 0.5
    assert means["deepnote", "density"] == pytest.approx(1 / 3)
    shown: Any = density_table(rows, table).set_index("method")
    counts = ["answers", "asked", "empty", "none", "parse failures"]
    assert shown[counts].loc["vanilla"].tolist() == [2, 2, 0, 0, 1]
    assert shown[counts].loc["deepnote"].tolist() == [3, 3, 1, 1, 0]
    assert shown.loc["vanilla", "density parsed"] == "50.0"  # of a single answer: no interval


def test_chinese_tokens_are_words() -> None:
    answer = sample("deepnote", "z", {"em": 1.0}, [Note("他喜欢茶。", kept=True)])
    marked = sample("deepnote", "z", {}, [], answer="他喜欢茶。")
    rows: Any = knowledge_density([run(["deepnote"], [answer])], [run(["deepnote"], [marked], annotates="evidence")])
    assert rows[["reference_tokens", "evidence_tokens"]].values.tolist() == [[3, 3]]


def test_a_figure_of_densities_is_drawn_whatever_is_missing(tmp_path: Path) -> None:
    answers, evidence = densities()
    unasked = run(evidence.methods, [], annotates="evidence")
    for marked, labels in ((evidence, "n = 2"), (unasked, "n = 0")):
        table: Any = density_results(knowledge_density([answers], [marked]), resamples=100)
        figure = density_figure(table)
        assert figure.axes[1].get_xlabel() == f"Knowledge density (%)\n{labels}"
        first, again = (save_figure(density_figure(table), table, tmp_path / name, "d")[0] for name in "ab")
        assert first.read_bytes() == again.read_bytes()
    empty = knowledge_density([run([], [])], [run([], [], annotates="evidence")])
    nothing = density_results(empty)
    assert density_figure(nothing).axes[0].get_title(loc="left").startswith("(no answers)")
    assert density_table(empty, nothing).empty
