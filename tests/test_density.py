"""Evidence: what an answer was made from, which of its sentences the model copies, and the runs that ask for it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_config
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.methods.vanilla import vanilla
from rag_notes.prompts.templates import Templates
from rag_notes.running.annotate import follow_up
from rag_notes.running.records import Run
from rag_notes.running.run import run_study
from rag_notes.studies.evidence import mark_evidence, reference_of, reference_texts, run_evidence
from rag_notes.types import Question
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
    return answer, llm, [event["stage"] for event in rag.trace if event["event"] == "unreadable"]


@pytest.mark.parametrize(
    ("response", "evidence", "unreadable"),
    [
        ("It has a bridge.\nBurns was born near Ayr.", "It has a bridge.\nBurns was born near Ayr.", 0),
        ('1. "Burns was born near Ayr." That is all.', "Burns was born near Ayr.", 0),
        ("There is a bridge in Ayr.", "", 1),  # not word for word
        ("none", "", 0),
        ("None.", "", 0),
        ("", "", 1),
    ],
)
def test_sentences_that_are_copied_are_evidence(response: str, evidence: str, unreadable: int) -> None:
    marked, llm, unread = mark(PASSAGES, response)
    assert (marked, unread) == (evidence, ["evidence"] * unreadable)
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


def sample(method: str, trace: list[dict[str, Any]]) -> dict[str, Any]:
    return {"method": method, "question_id": "q1", "trace": trace}


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
    searched = [event for event in played.trace if event["event"] == "search"]
    with pytest.raises(ValueError, match="react made 2 searches and no note for q1"):
        reference_of(sample("react", searched * 2))
    with pytest.raises(ValueError, match="no_retrieval made 0 searches"):
        reference_of(sample("no_retrieval", []))


def test_passages_that_were_not_read_are_no_reference() -> None:
    played = play(vanilla, by_stage(answer_short="A"), lambda _: "ab")
    played.trace[0]["hits"][0]["unread"] = True
    assert reference_of(sample("vanilla", played.trace)) == [{"id": "b", "title": "Title b", "text": "Text of b."}]


def test_follow_ups_are_runs_of_their_own_that_are_continued(tmp_path: Path) -> None:
    options = ["dataset=mini", "limit=2", "method=[vanilla]", f"runs={tmp_path}", "retriever.cache=null"]
    config = load_config(options)
    assert shown("a").startswith("[1]")

    async def count(about: Any, rag: Rag, question: Question, *, sha256: str) -> str:
        asked.append(question.id)
        return str(len(about[question.id]))

    asked: list[str] = []

    async def work() -> tuple[list[Run], list[Run]]:
        runs = await run_study(config, options, progress=False)
        return runs, await follow_up(
            config, runs, "length", count, lambda sample: sample["answer"], given=options, progress=False
        )

    runs, (made,) = asyncio.run(work())
    assert (made.dataset, made.methods) == ("mini-length", ["length_of_vanilla"])
    assert [sample["answer"] for sample in made.samples] == [str(len(sample["answer"])) for sample in runs[0].samples]
    assert [sample["metrics"] for sample in made.samples] == [{"empty": 0.0}] * 2  # not marked against the gold answer
    assert asked == ["bridge-01", "bridge-02"]
    _, (again,) = asyncio.run(work())
    assert (asked, again.samples) == (["bridge-01", "bridge-02"], made.samples)

    changed = Run(runs[0].info, [runs[0].samples[0] | {"answer": "longer than before"}, runs[0].samples[1]])
    (other,) = asyncio.run(
        follow_up(config, [changed], "length", count, lambda sample: sample["answer"], progress=False)
    )
    assert other.samples[0]["answer"] == "18"
    assert asked == ["bridge-01", "bridge-02"] * 2


def test_a_failed_answer_is_not_asked_about_and_shown_as_failed(tmp_path: Path) -> None:
    options = ["dataset=mini", "limit=2", "method=[vanilla]", f"runs={tmp_path}", "retriever.cache=null"]
    config = load_config([*options, "llm.max_tokens=1"])  # nothing is recorded for this
    runs = asyncio.run(run_study(config, progress=False))
    (evidence,) = asyncio.run(run_evidence(config, runs, progress=False))
    assert [sample["error"] for sample in evidence.samples] == [
        f"ValueError: the run has no answer to bridge-0{number}; run it again with retry_errors=true"
        for number in (1, 2)
    ]
