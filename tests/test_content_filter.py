"""Amber's content filter against the gold passages, from traces of scripted runs worked by hand."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.config import load_study
from rag_notes.methods.amber import amber
from rag_notes.metrics.stats import wilson
from rag_notes.running.evaluate import evaluate
from rag_notes.running.publish import without_text
from rag_notes.running.records import Run
from rag_notes.studies import content_filter
from rag_notes.studies.content_filter import chunk_verdicts, filter_rates, sentence_filter
from rag_notes.types import Dataset, Question
from tests.scripted import Ask, ScriptedLLM, ScriptedRetriever

QUESTIONS = (
    Question("q1", "Who built a?", ("Text of",), gold_ids=("a", "b"), type="bridge"),
    Question("q2", "Who built c?", ("of c",), gold_ids=("c",), type="single"),
    Question("q3", "Who is nobody?"),
    Question("q4", "Who failed?", ("x",), gold_ids=("a",)),
)
USEFUL = {"Who built a?": "ac", "Who built c?": "cd"}  # a gold, b dropped, c and d wrongly kept


def answer(ask: Ask) -> str:
    match ask.stage:
        case "amber_chunk_filter":
            if ask.fields["question"] == "Who failed?":
                raise RuntimeError("gone")
            name = ask.fields["context"].split()[2]
            if name == "e":
                return "hard to say"
            return '{"result": "useful"}' if name in USEFUL.get(ask.fields["question"], "") else '{"result": "useless"}'
        case "amber_sentence_filter":
            return "nothing" if "Text of d." in ask.fields["context"] else ask.fields["context"]
        case "amber_sufficient":
            return '{"status": "False"}'
        case "amber_query":
            return "New question: And then?"
        case _:
            return "a note"


def run(**settings: Any) -> Run:
    async def filtered(rag: Any, question: Question) -> str:
        return await amber(rag, question, top_k=5, max_iterations=2, agents=False, **settings)

    retriever = ScriptedRetriever(lambda query: "abcde" if query != "And then?" else "fghij")
    dataset, llm = Dataset("made", QUESTIONS, ()), ScriptedLLM(answer)
    return asyncio.run(evaluate({"amber": filtered}, dataset, retriever, llm, progress=False))


RUN = run()
VERDICTS: Any = chunk_verdicts([RUN])


def test_verdicts_are_those_of_the_first_iteration() -> None:
    assert "".join(VERDICTS["passage_id"]) == "abcde" * 2
    first = VERDICTS[VERDICTS["question_id"] == "q1"]
    assert "".join(first.loc[first["useful"], "passage_id"]) == "ac"
    assert "".join(first.loc[first["gold"], "passage_id"]) == "ab"
    assert VERDICTS["parse_failure"].tolist() == ([False] * 4 + [True]) * 2


def test_a_published_run_has_the_same_verdicts_and_no_sentences() -> None:
    published = without_text(RUN)
    same: Any = chunk_verdicts([published])
    assert same.drop(columns="passage_id").equals(VERDICTS.drop(columns="passage_id"))
    assert "".join(name[0] for name in same["passage_id"]) == "ggooo" + "oogoo"
    assert sentence_filter([published]).empty and not sentence_filter([RUN]).empty


def test_rates_by_hand() -> None:
    rates: Any = filter_rates(VERDICTS, resamples=200).set_index("rate")
    by_hand = {"accuracy": (7, 10), "precision": (2, 4), "recall (gold kept)": (2, 3)}
    for rate, (count, total) in (by_hand | {"specificity (other dropped)": (5, 7)}).items():
        low, high, _ = wilson(count, total)
        assert rates.loc[rate, ["value", "low", "high"]].tolist() == [count / total, low, high]
        assert rates.loc[rate, ["count", "of"]].tolist() == [count, total]
    assert rates.loc["F1", "value"] == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))
    # Resampling two questions draws the first twice (F1 1/2), both (4/7) or the second twice (2/3).
    assert rates.loc["F1", ["low", "high"]].tolist() == [pytest.approx(1 / 2), pytest.approx(2 / 3)]
    # Amber, section 5.2: over 90 % of the useful passages kept, over 40 % of the useless ones dropped.
    assert rates["paper"].dropna().to_dict() == {"recall (gold kept)": 0.9, "specificity (other dropped)": 0.4}
    by_type: Any = filter_rates(VERDICTS, by="type", resamples=100).set_index(["type", "rate"])
    assert by_type.loc[("single", "recall (gold kept)"), "value"] == 1.0


def test_rates_of_nothing_are_missing() -> None:
    rates: Any = filter_rates(VERDICTS[VERDICTS["gold"]], resamples=100).set_index("rate")
    assert math.isnan(rates.loc["specificity (other dropped)", "value"])
    assert rates.loc["specificity (other dropped)", "of"] == 0
    dropped: Any = filter_rates(VERDICTS[~VERDICTS["useful"] & ~VERDICTS["gold"]], resamples=100).set_index("rate")
    assert dropped.loc["F1", ["value", "low"]].isna().all()
    assert filter_rates(VERDICTS[:0]).empty


def test_the_sentence_filter_is_measured_on_what_it_saw() -> None:
    table: Any = sentence_filter([RUN]).set_index("what")
    # Copied: a and c of the first question, c of the second; not d.
    words = {"words kept": (12, 12), "words kept of those cut": (9, 9)}
    counts = {"passages cut": (3, 4), **words, "answers kept": (3, 3)}
    assert dict(zip(table.index, zip(table["count"], table["of"], strict=True), strict=True)) == counts
    assert table["low"].isna().to_dict() == {name: name in words for name in counts}


@pytest.mark.parametrize("part", ["chunk_filter", "sentence_filter"])
def test_a_filter_that_is_off_has_no_rows(part: str) -> None:
    without = run(**{part: False})
    verdicts, sentences = chunk_verdicts([without]), sentence_filter([without])
    assert (verdicts.empty, sentences.empty) == (part == "chunk_filter", part == "sentence_filter")
    if part == "chunk_filter":  # every passage reaches the sentence filter, those of the failing question too
        assert sentences.set_index("what").loc["passages cut", "of"] == 15


def test_the_recorded_verdicts_are_as_they_were(tmp_path: Path) -> None:
    study = asyncio.run(content_filter.run(load_study("content_filter", [f"runs={tmp_path}"]), progress=False))
    golden = pd.read_csv(Path(__file__).with_name("golden") / "content_filter.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(chunk_verdicts(study.runs), golden, check_dtype=False)
