"""Evidence in a reference: what is asked, what counts as copied, what an answer was made from; annotations as runs."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_config, load_study
from rag_notes.events import Event, Found, Note, ParseFailure, Search, count, searches
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.methods.vanilla import vanilla
from rag_notes.prompts.templates import Templates
from rag_notes.running.annotate import annotate
from rag_notes.running.records import Condition, Run
from rag_notes.running.run import run_methods
from rag_notes.running.samples import Sample
from rag_notes.studies.base import study
from rag_notes.studies.knowledge_density import KnowledgeDensity, mark_evidence, reference_of, reference_texts
from rag_notes.types import Question
from tests.made import ask, make_info, make_sample
from tests.scripted import Q, ScriptedLLM, ScriptedRetriever, by_stage, play

PASSAGES = [
    {"id": "a", "title": "Ayr", "text": "Ayr is a town. It has a bridge."},
    {"id": "b", "title": "Burns", "text": "Burns was born near Ayr."},
]
NOTE = "- Ayr has a bridge.\n2. **Burns wrote of it.**"


def mark(reference: Any, response: str, question: Question = Q) -> tuple[str, ScriptedLLM, list[str]]:
    llm = ScriptedLLM(by_stage(evidence=response))
    searcher = Searcher(ScriptedRetriever({}))
    rag = Rag(question, method="evidence", llm=llm, searcher=searcher, templates=Templates())
    answer = asyncio.run(mark_evidence({question.id: reference}, rag, question, sha256=""))
    return answer, llm, [event.stage for event in rag.trace if isinstance(event, ParseFailure)]


@pytest.mark.parametrize(
    ("response", "evidence", "failures"),
    [
        ("It has a bridge.\nBurns was born near Ayr.", "It has a bridge.\nBurns was born near Ayr.", 0),
        ('1. "Burns was born near Ayr." That is all.', "Burns was born near Ayr.", 0),
        ("There is a bridge in Ayr.", "", 1),  # not word for word
        ("none", "", 0),
        ("None.", "", 0),
        ("", "", 1),
    ],
)
def test_sentences_that_are_copied_are_evidence(response: str, evidence: str, failures: int) -> None:
    marked, llm, unread = mark(PASSAGES, response)
    assert (marked, unread) == (evidence, ["evidence"] * failures)
    (fields,) = llm.asked("evidence")
    assert fields == {
        "context": "[1] Ayr\nAyr is a town. It has a bridge.\n\n[2] Burns\nBurns was born near Ayr.",
        "question": Q.question,
    }


def test_a_note_is_shown_as_it_is_and_its_lines_are_found_without_their_bullets() -> None:
    marked, llm, unread = mark(NOTE, "Burns wrote of it.")
    assert (marked, unread) == ("Burns wrote of it.", [])
    assert llm.asked("evidence")[0]["context"] == NOTE
    assert reference_texts(NOTE) == ["Ayr has a bridge.\nBurns wrote of it."]


def test_an_empty_note_is_not_asked_about() -> None:
    marked, llm, unread = mark("-", "never")
    assert (marked, llm.log, unread) == ("", [], [])


def test_chinese_sentences_and_a_chinese_none() -> None:
    question = Question("z", "谁建了桥？", language="zh")
    note = "建造者是王明。他喜欢茶。"
    assert mark(note, "他喜欢茶。", question)[::2] == ("他喜欢茶。", [])
    assert mark(note, "无。", question)[::2] == ("", [])
    assert mark(note, "没有", question)[::2] == ("", ["evidence"])


def sample(
    method: str, trace: Sequence[Event], question_id: str = "q1", metrics: dict[str, float] | None = None, **fields: Any
) -> Sample:
    return replace(make_sample(method, question_id, metrics or {}, trace=trace, **fields), counts=count(trace))


def test_the_reference_is_the_best_note_or_the_passages_of_the_one_search() -> None:
    played = play(vanilla, by_stage(answer_short="A"), lambda _: "ab")
    assert reference_of(sample("vanilla", played.trace)) == [
        {"id": name, "title": f"Title {name}", "text": f"Text of {name}."} for name in "ab"
    ]
    script = by_stage(
        note_init="N0", note_query="Who?", note_update=["N1", "N2"], note_judge=["True", "False"], answer_short="A"
    )
    played = play(deepnote, script, lambda _: "ab", max_step=2)
    assert reference_of(sample("deepnote", played.trace)) == "N1"
    assert played.llm.asked("answer_short")[0]["context"] == "N1"
    played = play(deepnote, by_stage(note_init="N0", answer_short="A"), lambda _: "ab", max_step=0)
    assert reference_of(sample("deepnote", played.trace)) == "N0"
    searched = searches(played.trace)
    with pytest.raises(ValueError, match="react made 2 searches and no note for q1"):
        reference_of(sample("react", searched * 2))
    with pytest.raises(ValueError, match="no_retrieval made 0 searches"):
        reference_of(sample("no_retrieval", []))


def test_passages_that_were_not_read_are_no_reference() -> None:
    played = play(vanilla, by_stage(answer_short="A"), lambda _: "ab")
    searches(played.trace)[0].hits[0].unread = True
    assert reference_of(sample("vanilla", played.trace)) == [{"id": "b", "title": "Title b", "text": "Text of b."}]


def densities(answers: Sequence[Sample], marked: Sequence[Sample]) -> KnowledgeDensity:
    methods = ["vanilla", "deepnote"]
    evidence = Run(make_info("made", methods, condition=Condition(annotates="evidence")), marked)
    config = load_study("knowledge_density", ["resamples=100"])
    return KnowledgeDensity(config, [Run(make_info("made", methods), answers), evidence])


def test_density_is_the_share_of_the_references_tokens_that_are_evidence() -> None:
    def read(*names: str) -> Search:
        return Search("?", 5, [Found(name, name.upper(), f"Text of {name}.", 1.0) for name in names])

    note = Note("- Ann built the bridge in 1904.\n- It is long.", kept=True)
    answers = [
        sample("vanilla", [read("g", "h")], "q1", {"em": 1.0, "f1": 0.5, "empty": 0.0}),
        sample("vanilla", [read("g")], "q2", {"em": 0.0, "f1": 0.0}),
        sample("vanilla", [read("g")], "q3", error="gone"),
        sample("deepnote", [read("g"), note], "q1", {"em": 1.0, "f1": 1.0}),
        sample("deepnote", [read("g"), Note("-", kept=True)], "q2", {"em": 1.0, "f1": 1.0}),
        sample("deepnote", [read("g"), note], "q3", {"em": 0.0, "f1": 0.0}),
    ]
    marked = [
        sample("vanilla", [ask("evidence", "Text of h.")], "q1", answer="Text of h."),
        sample("vanilla", [ask("evidence", "Hm"), ParseFailure("evidence")], "q2", answer=""),
        sample("vanilla", [], "q3", answer="", error="no answer"),
        sample("deepnote", [ask("evidence", "the bridge")], "q1", answer="Ann built the bridge in 1904."),
        sample("deepnote", [], "q2", answer=""),
        sample("deepnote", [ask("evidence", "none")], "q3", answer=""),
    ]
    study = densities(answers, marked)
    rows = study.answers()
    assert rows[["method", "question_id"]].agg(" ".join, axis=1).tolist() == [  # the failed answer has no reference
        *("vanilla q1", "vanilla q2", "deepnote q1", "deepnote q2", "deepnote q3")
    ]
    assert rows["reference_tokens"].tolist() == [6, 3, 9, 0, 9]  # no titles, no bullets
    assert rows["evidence_tokens"].tolist() == [3, 0, 6, 0, 0]
    assert rows["density"].tolist() == pytest.approx([0.5, 0.0, 6 / 9, math.nan, 0.0], nan_ok=True)
    assert rows["density_marked"].tolist() == pytest.approx([0.5, 0.0, 2 / 9, math.nan, 0.0], nan_ok=True)
    assert rows["density_parsed"].isna().tolist() == [False, True, False, True, False]
    assert rows["parse_failure"].tolist() == [False, True, False, False, False]
    assert rows["no_evidence"].tolist() == [False, False, False, False, True]
    assert rows["performance"].tolist() == [0.75, 0.0, 1.0, 1.0, 0.0]
    means: Any = study.table().set_index(["method", "quantity"])
    assert means["mean"]["vanilla", "density"] == 0.25
    assert means["mean"]["deepnote", "density"] == pytest.approx(1 / 3)
    assert means.loc[("vanilla", "density_parsed"), ["mean", "n"]].tolist() == [0.5, 1]


def test_chinese_tokens_are_words() -> None:
    question = Question("z", "谁？", ("王明",), language="zh")
    answer = replace(sample("deepnote", [Note("他喜欢茶。", kept=True)]), question=question)
    marked = replace(sample("deepnote", [], answer="他喜欢茶。"), question=question)
    rows = densities([answer], [marked]).answers()
    assert rows[["reference_tokens", "evidence_tokens"]].values.tolist() == [[3, 3]]


def test_a_failed_answer_is_not_asked_about_and_shown_as_failed(tmp_path: Path) -> None:
    options = ["method=[vanilla]", f"runs={tmp_path}", "llm.max_tokens=1"]  # nothing is recorded for this
    results = asyncio.run(study("knowledge_density", *options, dataset="mini", limit=2, progress=False))
    assert [run.info.condition.annotates for run in results.runs] == [None, "evidence"]
    assert [run.frame()["error"].notna().sum() for run in results.runs] == [2, 2]
    assert list(results.overview()["missing"]) == [2, 2]
    assert results.answers().empty


def test_annotations_are_runs_of_their_own_and_asked_anew_where_an_answer_changed(tmp_path: Path) -> None:
    config = load_config(["dataset=mini", "limit=2", "method=[vanilla]", f"runs={tmp_path}", "retriever.cache=null"])

    async def length(answers: Any, rag: Rag, question: Question, *, sha256: str) -> str:
        return str(len(answers[question.id]))

    async def annotated(runs: Sequence[Run]) -> Run:
        (annotation,) = await annotate(config, runs, "evidence", length, lambda one: one.answer, progress=False)
        return annotation

    runs = asyncio.run(run_methods(config, progress=False))
    annotation = asyncio.run(annotated(runs))
    assert (annotation.label, annotation.methods) == ("mini-evidence", ["vanilla"])
    assert annotation.frame()["answer"].tolist() == [str(len(answer)) for answer in runs[0].frame()["answer"]]
    assert not {"em", "f1", "acc"} & set(annotation.frame())  # it is not scored against the gold answer
    first, second = runs[0].samples
    changed = replace(runs[0], samples=[replace(first, answer="longer than before"), second])
    assert asyncio.run(annotated([changed])).frame()["answer"].tolist()[0] == "18"
