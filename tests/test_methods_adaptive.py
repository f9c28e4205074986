"""ReAct, RAT and Adaptive-RAG, branch by branch: what they ask and search, in which order, and why."""

from pathlib import Path
from typing import Any

import pytest

from rag_notes.events import count
from rag_notes.methods.adaptive_rag import adaptive_rag
from rag_notes.methods.rat import rat
from rag_notes.methods.react import react
from rag_notes.types import Question
from tests.scripted import Played, Q, by_stage, play, shown

ZH = Question("q2", "建造者出生在哪里？", ("邓弗里斯",), language="zh")
SHORT_FORM = "the answer alone, without any other words"


def decisions(played: Played) -> list[tuple[str, str]]:
    return [(event.what, event.outcome) for event in played.trace if event.event == "decision"]


def transcripts(played: Played, question: Question = Q) -> list[str]:
    """What a prompt of ReAct has between the question and the next thought."""
    turns = [ask.prompt.split(f"{question.question}\n\n", 1)[1] for ask in played.llm.asks if ask.stage == "react"]
    return [turn.removesuffix("Thought:") for turn in turns]


# ReAct


def test_react_shows_each_observation_in_the_next_turn_and_returns_what_it_finishes_with() -> None:
    turns = [
        "Thought: I need the builder.\nAction: search[who built it]\nObservation: made up\nAction: finish[wrong]",
        " I need his birthplace.\nAction: search['Telford birthplace']",
        "It says so.\nAction: finish[ Dumfries ]",
    ]
    found = {"who built it": ["a", "b"], "Telford birthplace": ["b", "c"]}
    played = play(react, by_stage(react=turns), found, top_k=2)
    assert played.answer == "Dumfries"
    assert played.log == ["react", "search", "react", "search", "react"]
    assert played.searches == [("who built it", 2), ("Telford birthplace", 2)]
    assert (played.stops(), played.parse_failures()) == (["finish"], [])
    first = f"Thought: I need the builder.\nAction: search[who built it]\nObservation:\n{shown('a', 'b')}\n\n"
    second = (
        f"Thought: I need his birthplace.\nAction: search['Telford birthplace']\nObservation:\n{shown('b', 'c')}\n\n"
    )
    assert transcripts(played) == ["", first, first + second]
    assert {fields["form"] for fields in played.llm.asked("react")} == {SHORT_FORM}
    assert count(played.trace).distinct_passages == 3
    keys = {request["stop"][0] for _, request, _ in played.llm.store.rows()}
    assert keys == {"\nObservation"}


def test_react_finishes_at_once_without_a_search() -> None:
    played = play(react, by_stage(react=["Action: finish[Dumfries]"]), {})
    assert (played.answer, played.log, played.stops()) == ("Dumfries", ["react"], ["finish"])


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_react_that_does_not_finish_answers_from_all_passages_after_max_searches(limit: int) -> None:
    turns = [f"Thought: more.\nAction: search[query {turn}]" for turn in range(limit + 1)]
    found = {f"query {turn}": ["a", f"p{turn}"] for turn in range(limit)}
    script = by_stage(react=turns, answer_short=["Dumfries"])
    played = play(react, script, found, max_searches=limit)
    assert played.log == ["react", "search"] * limit + ["react", "answer_short"]
    assert (played.answer, played.stops(), played.parse_failures()) == ("Dumfries", ["max_searches"], [])
    names = ["a", *(f"p{turn}" for turn in range(limit))] if limit else []
    context = shown(*names) if names else "(none)"
    assert played.llm.asked("answer_short") == [{"context": context, "question": Q.question}]


def test_react_may_still_finish_after_its_last_search() -> None:
    turns = ["Action: search[builder]", "Action: finish[Dumfries]"]
    played = play(react, by_stage(react=turns), max_searches=1)
    assert (played.answer, played.log, played.stops()) == ("Dumfries", ["react", "search", "react"], ["finish"])


@pytest.mark.parametrize(
    "text", ["", "I think it is a bridge.", "research[1] says so", "Action: search", "search bridge"]
)
def test_react_counts_a_turn_without_an_action_and_it_uses_up_a_search(text: str) -> None:
    turns = [text, "Action: search[bridge]", text]
    played = play(react, by_stage(react=turns, answer_short="A"), max_searches=2, top_k=1)
    assert played.log == ["react", "react", "search", "react", "answer_short"]
    assert (played.stops(), played.parse_failures()) == (["max_searches"], ["react", "react"])
    first = f"Thought: {text}\nObservation:\n(none)\n\n"
    assert transcripts(played)[1] == first
    assert transcripts(played)[2] == first + f"Thought: Action: search[bridge]\nObservation:\n{shown('a')}\n\n"
    assert played.llm.asked("answer_short")[0]["context"] == shown("a")
    assert count(played.trace).empty_responses == (0 if text else 2)


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("Action: search[the builder]", "the builder"),
        ("Action: Search [the builder]", "the builder"),
        ("**Action:** search[<the builder>]", "the builder"),
        ('Action: search: "the builder"', "the builder"),
        ("action: search the builder", "the builder"),
        ("Action: search[the builder", "the builder"),  # cut at the token limit
        ("我需要search[建造者]", "建造者"),
        ("Action: search[]", ""),
    ],
)
def test_react_reads_a_search_as_models_write_it(action: str, query: str) -> None:
    script = by_stage(react=[f"Thought: look.\n{action}", "Action: finish[A]"])
    played = play(react, script, lambda _: [])
    assert (played.searches, played.parse_failures()) == ([(query, 5)], [])
    assert transcripts(played)[1].endswith("\nObservation:\n(none)\n\n")  # nothing found


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("Action: finish[<Dumfries>]", "Dumfries"),
        ('Action: finish["Yesterday"]', '"Yesterday"'),
        ("Action: finish: Dumfries", "Dumfries"),
        ("Action: Finish [Dumfries]", "Dumfries"),
        ("所以finish[邓弗里斯]", "邓弗里斯"),
        ("Action: finish[]", ""),
        ("Action: finish[A], not search[B]", "A"),
    ],
)
def test_react_reads_an_answer_as_models_write_it(action: str, answer: str) -> None:
    played = play(react, by_stage(react=[action]))
    assert (played.answer, played.stops(), played.searches) == (answer, ["finish"], [])


def test_react_asks_in_chinese() -> None:
    played = play(
        react, by_stage(react=["Action: search[建造者]", "Action: finish[邓弗里斯]"]), lambda _: [], question=ZH
    )
    assert (played.answer, {ask.language for ask in played.llm.asks}) == ("邓弗里斯", {"zh"})
    assert transcripts(played, ZH)[1].endswith("Observation:\n（无）\n\n")


# RAT


def test_rat_revises_all_that_stands_so_far_with_each_step() -> None:
    """RAT, section 2.2: the next drafted step behind the revised ones; query, search and revision by all of that."""
    script = by_stage(
        rat_draft=["1. Smith built it.\n2. He was born in Perth.\n3. So it is Perth."],
        rat_revise=["Telford built it.", "- Thomas Telford built it.\n- He was born in Dumfries.", "Dumfries it is."],
        answer_short=["Dumfries"],
    )
    first = f"{Q.question} Smith built it."
    second = f"{Q.question} Telford built it. He was born in Perth."
    third = f"{Q.question} Thomas Telford built it. He was born in Dumfries. So it is Perth."
    played = play(rat, script, {first: "ab", second: [], third: "c"}, top_k=2)
    assert played.log == ["rat_draft", *["search", "rat_revise"] * 3, "answer_short"]
    assert played.searches == [(first, 2), (second, 2), (third, 2)]
    q = {"question": Q.question}
    assert played.llm.asked("rat_draft") == [q]
    assert played.llm.asked("rat_revise") == [
        q | {"context": shown("a", "b"), "text": "Smith built it."},
        q | {"context": "(none)", "text": "Telford built it.\nHe was born in Perth."},
        q | {"context": shown("c"), "text": "Thomas Telford built it.\nHe was born in Dumfries.\nSo it is Perth."},
    ]
    assert played.llm.asked("answer_short") == [q | {"context": "Dumfries it is."}]
    assert (played.answer, played.stops(), played.parse_failures()) == ("Dumfries", [], [])


def test_rat_keeps_what_stands_where_a_revision_is_empty_and_counts_it() -> None:
    script = by_stage(rat_draft=["One.\nTwo."], rat_revise=[" \n", "First.\nSecond."], answer_short="A")
    played = play(rat, script)
    assert played.queries() == [f"{Q.question} One.", f"{Q.question} One. Two."]
    assert played.parse_failures() == ["rat_revise"]
    assert played.llm.asked("answer_short")[0]["context"] == "First.\nSecond."
    assert count(played.trace).empty_responses == 1


@pytest.mark.parametrize(("limit", "stops"), [(1, ["max_steps"]), (2, ["max_steps"]), (3, []), (4, [])])
def test_rat_takes_up_no_more_than_max_steps(limit: int, stops: list[str]) -> None:
    steps = min(limit, 3)
    revised = ["1", "1\n2", "1\n2\n3"][:steps]
    script = by_stage(rat_draft="One.\nTwo.\nThree.", rat_revise=revised, answer_short="A")
    played = play(rat, script, max_steps=limit)
    assert played.log == ["rat_draft", *["search", "rat_revise"] * steps, "answer_short"]
    assert played.stops() == stops
    assert played.llm.asked("answer_short")[0]["context"] == revised[-1]


def test_rat_without_a_draft_searches_nothing_and_says_so_to_the_reader() -> None:
    played = play(rat, by_stage(rat_draft="\n", answer_short="A"))
    assert (played.log, played.answer) == (["rat_draft", "answer_short"], "A")
    assert played.llm.asked("answer_short")[0]["context"] == "(none)"
    assert count(played.trace).empty_responses == 1


def test_rat_drafts_in_chinese() -> None:
    played = play(rat, by_stage(rat_draft="1、他在珀斯。", rat_revise="他在邓弗里斯。", answer_short="A"), question=ZH)
    assert played.queries() == [f"{ZH.question} 他在珀斯。"]
    assert {ask.language for ask in played.llm.asks} == {"zh"}


# Adaptive-RAG

STRATEGY_LOGS = {
    "A": ["direct_short"],
    "B": ["search", "answer_short"],
    "C": ["search", "ircot_thought", "search", "answer_short"],
}
STRATEGIES = {"direct_short": "by heart", "answer_short": "read", "ircot_thought": "One."}


@pytest.mark.parametrize(
    ("response", "label", "unread"),
    [
        ('{"result": "A"}', "A", []),
        ('{"result": "B"}', "B", []),
        ("C.", "C", []),
        ("It takes a lookup.", "B", ["complexity"]),
        ("", "B", ["complexity"]),
        ('{"result": "D"}', "B", ["complexity"]),
    ],
)
def test_adaptive_rag_takes_the_strategy_that_the_model_names(response: str, label: str, unread: list[str]) -> None:
    played = play(adaptive_rag, by_stage(complexity=[response], **STRATEGIES), top_k=2, max_passages=9, max_steps=1)
    assert played.log == ["complexity", *STRATEGY_LOGS[label]]
    assert (decisions(played), played.parse_failures()) == ([("complexity", label)], unread)
    assert played.llm.asked("complexity") == [{"question": Q.question}]
    assert {top_k for _, top_k in played.searches} <= {2}
    assert played.answer == ("by heart" if label == "A" else "read")
    assert played.stops() == (["max_steps"] if label == "C" else [])


def test_adaptive_rag_hands_its_bounds_to_ircot() -> None:
    script = by_stage(complexity="C", **STRATEGIES)
    played = play(adaptive_rag, script, max_passages=3)
    assert (played.searches, played.stops()) == ([(Q.question, 3)], ["max_passages"])
    assert play(adaptive_rag, script, max_steps=0).stops() == ["max_steps"]


def test_adaptive_rag_asks_for_the_complexity_in_chinese() -> None:
    played = play(adaptive_rag, by_stage(complexity="判断A", **STRATEGIES), question=ZH)
    assert ([ask.language for ask in played.llm.asks], decisions(played)) == (["zh", "zh"], [("complexity", "A")])


@pytest.mark.parametrize(("text", "label"), [("What is the colour of snow?", "A"), ("Who wrote the opera?", "B")])
def test_adaptive_rag_takes_the_strategy_that_a_trained_classifier_names(text: str, label: str, tmp_path: Path) -> None:
    rows = [
        "What is the colour of grass?,A",
        "What is the colour of milk?,A",
        "Who wrote the book?,B",
        "Who wrote it?,B",
    ]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["question,label", *rows, ""]), encoding="utf-8")
    settings: dict[str, Any] = {"classifier": "trained", "labels": str(labels)}
    played = play(adaptive_rag, by_stage(**STRATEGIES), question=Question("q", text), **settings)
    assert (played.log, decisions(played)) == (STRATEGY_LOGS[label], [("complexity", label)])


def test_adaptive_rag_without_its_file_of_labels_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file; make one as docs/training.md shows"):
        play(adaptive_rag, by_stage(), classifier="trained")
    with pytest.raises(ValueError, match=r"none\.csv: no such file"):
        play(adaptive_rag, by_stage(), classifier="trained", labels=str(tmp_path / "none.csv"))
