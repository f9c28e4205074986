"""Evidence in a reference: what is asked, what counts as copied, what an answer was made from; annotations as runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_config
from rag_notes.events import Event, ParseFailure, searches
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.methods.vanilla import vanilla
from rag_notes.prompts.templates import Templates
from rag_notes.running.annotate import annotate
from rag_notes.running.records import Run, Sample
from rag_notes.running.run import run_methods
from rag_notes.studies import knowledge_density
from rag_notes.studies.knowledge_density import mark_evidence, reference_of, reference_texts
from rag_notes.types import Question
from tests.made import make_sample
from tests.scripted import Q, ScriptedLLM, ScriptedRetriever, by_stage, play, shown

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


def sample(method: str, trace: Sequence[Event]) -> Sample:
    return make_sample(method, "q1", {}, trace=trace)


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


def test_annotations_are_runs_of_their_own_that_are_continued(tmp_path: Path) -> None:
    options = ["dataset=mini", "limit=2", "method=[vanilla]", f"runs={tmp_path}", "retriever.cache=null"]
    config = load_config(options)
    assert shown("a").startswith("[1]")

    async def length(about: Any, rag: Rag, question: Question, *, sha256: str) -> str:
        asked.append(question.id)
        return str(len(about[question.id]))

    asked: list[str] = []

    async def work(runs: Sequence[Run] | None = None) -> tuple[list[Run], list[Run]]:
        made = await run_methods(config, options, progress=False) if runs is None else list(runs)
        about = annotate(config, made, "evidence", length, lambda sample: sample.answer, options, progress=False)
        return made, await about

    runs, (made,) = asyncio.run(work())
    assert (made.dataset, made.label, made.methods) == ("mini", "mini-evidence", ["vanilla"])
    assert made.info.condition.annotates == "evidence"
    assert [sample.answer for sample in made.samples] == [str(len(sample.answer)) for sample in runs[0].samples]
    assert [sample.metrics for sample in made.samples] == [{}] * 2  # not scored against the gold answer
    assert asked == ["bridge-01", "bridge-02"]
    _, (again,) = asyncio.run(work())
    assert (asked, again.samples) == (["bridge-01", "bridge-02"], made.samples)

    first, second = runs[0].samples
    changed = replace(runs[0], samples=[replace(first, answer="longer than before"), second])
    _, (other,) = asyncio.run(work([changed]))
    assert other.samples[0].answer == "18"
    assert asked == ["bridge-01", "bridge-02"] * 2


def test_a_failed_answer_is_not_asked_about_and_shown_as_failed(tmp_path: Path) -> None:
    options = ["dataset=mini", "limit=2", "method=[vanilla]", f"runs={tmp_path}", "retriever.cache=null"]
    options.append("llm.max_tokens=1")  # nothing is recorded for this
    study = asyncio.run(knowledge_density.run(options, progress=False))
    assert [(run.info.condition.annotates, run.info.samples.errors) for run in study.runs] == [
        (None, 2),
        ("evidence", 2),
    ]
    assert [str(sample.error) for sample in study.runs[1].samples] == [
        f"InputError: the run has no answer to bridge-0{number}; run it again with retry_errors=true"
        for number in (1, 2)
    ]
    assert (study.lacking, study.answers().empty) == (4, True)
