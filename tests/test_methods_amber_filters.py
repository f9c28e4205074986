"""Amber's content filter, branch by branch: what it sees, what it keeps, and what it cannot read."""

from typing import Any

import pytest

from rag_notes.methods.amber import amber
from tests.scripted import Q, by_stage, play, shown, together
from tests.test_methods_amber import NO, Q2, USEFUL, YES, ZH, filtering


@pytest.mark.parametrize(
    ("setting", "shown_to_filters"), [("question", [Q.question, Q.question]), ("query", [Q.question, Q2])]
)
def test_the_filters_see_the_question_or_the_current_query(setting: str, shown_to_filters: list[str]) -> None:
    script = filtering(
        "ab",
        note_init=["M1"],
        note_update=["M2"],
        note_judge=[YES],
        amber_sufficient=[NO, YES],
        amber_query=[f"New question: {Q2}"],
        answer_short=["A"],
    )
    found = {Q.question: "a", Q2: "b"}
    played = play(amber, script, found, agents=False, filter_query=setting)
    for stage in ("amber_chunk_filter", "amber_sentence_filter"):
        assert [fields["question"] for fields in played.llm.asked(stage)] == shown_to_filters
    assert {fields["question"] for fields in played.llm.asked("note_update")} == {Q.question}


@pytest.mark.parametrize(("no_sentence", "read"), [("keep", shown("a", "b")), ("drop", shown("b"))])
def test_a_passage_without_a_copied_sentence_is_kept_whole_or_dropped(no_sentence: str, read: str) -> None:
    script = by_stage(
        amber_sentence_filter=["Nothing helps.", "Text of b."],
        note_init=["M"],
        amber_sufficient=[YES],
        answer_short=["A"],
    )
    played = play(amber, script, lambda _: "ab", chunk_filter=False, agents=False, no_sentence=no_sentence)
    assert played.llm.asked("note_init")[0]["context"] == read
    assert played.parse_failures() == ["amber_sentence_filter"]


@pytest.mark.parametrize("verdict", ["", "maybe", '{"result": "both"}', "useful or useless"])
def test_an_unreadable_chunk_filter_counts_as_useless(verdict: str) -> None:
    script = by_stage(amber_chunk_filter=[verdict, USEFUL], note_init=["M"], amber_sufficient=[YES], answer_short=["A"])
    played = play(amber, script, lambda _: "ab", sentence_filter=False, agents=False)
    assert played.llm.asked("note_init")[0]["context"] == shown("b")
    assert played.parse_failures() == ["amber_chunk_filter"]
    assert [event.event for event in played.trace][:4] == ["search", "ask", "parse_failure", "ask"]


@pytest.mark.parametrize(
    ("threshold", "read"), [(0.0, "abcd"), (0.3, "abc"), (0.31, "ab"), (0.6, "ab"), (0.61, "a"), (1.0, "a")]
)
def test_a_threshold_keeps_what_is_useful_with_that_probability(threshold: float, read: str) -> None:
    verdicts = ['{"result": useful }', "It is useful@0.6", "useless@0.7 <|end|>", "useless"]
    script = by_stage(amber_chunk_filter=verdicts, note_init=["M"], amber_sufficient=[YES], answer_short=["A"])
    played = play(amber, script, lambda _: "abcd", sentence_filter=False, agents=False, chunk_threshold=threshold)
    assert played.llm.asked("note_init")[0]["context"] == shown(*read)
    decided = [event.outcome for event in played.trace if event.event == "decision"]
    assert decided == [("useful" if one in read else "useless") for one in "abcd"]


def test_what_a_threshold_cannot_read_is_useless_and_counted() -> None:
    script = by_stage(
        amber_chunk_filter=["maybe", "useful"], note_init=["M"], amber_sufficient=[YES], answer_short=["A"]
    )
    played = play(amber, script, lambda _: "ab", sentence_filter=False, agents=False, chunk_threshold=0.2)
    assert played.llm.asked("note_init")[0]["context"] == shown("b")
    assert [event.event for event in played.trace][:4] == ["search", "ask", "parse_failure", "ask"]


LONG = "Ayr. She liked tea. It burnt"  # the id of a passage with three sentences


@pytest.mark.parametrize(
    ("response", "read", "bad"),
    [
        ("Text of Ayr.\nIt burnt.", "Text of Ayr. It burnt.", 0),
        ('- "It burnt."\n- "Text of Ayr."', "Text of Ayr. It burnt.", 0),  # in the order of the passage
        ("Text of Ayr. She liked tea. It burnt.", "Text of Ayr. She liked tea. It burnt.", 0),
        ("She liked tea. She was born in Ayr.", "She liked tea.", 0),  # nothing that the passage does not say
        ("She was fond of tea.", None, 1),  # a paraphrase
        ("None of the sentences help.", None, 1),
        ("", None, 1),
    ],
)
def test_the_sentence_filter_keeps_what_is_copied_and_the_whole_passage_where_nothing_is(
    response: str, read: str | None, bad: int
) -> None:
    script = by_stage(
        amber_sentence_filter=[response, "Text of b."], note_init=["M"], amber_sufficient=[YES], answer_short=["A"]
    )
    played = play(amber, script, lambda _: [LONG, "b"], chunk_filter=False, agents=False)
    whole = shown(LONG, "b")
    expected = whole if read is None else whole.replace("Text of Ayr. She liked tea. It burnt.", read)
    assert played.llm.asked("note_init")[0]["context"] == expected
    assert played.parse_failures() == ["amber_sentence_filter"] * bad


def test_chinese_sentences_are_put_together_without_spaces() -> None:
    name = "石桥。他喜欢茶。建造者是王明。今天下雨"
    script = by_stage(
        amber_sentence_filter=["他喜欢茶。\n建造者是王明。"],
        note_init=["M"],
        amber_sufficient=[YES],
        answer_short=["A"],
    )
    played = play(amber, script, lambda _: [name], question=ZH, chunk_filter=False, agents=False)
    assert played.llm.asked("note_init")[0]["context"] == f"[1] Title {name}\n他喜欢茶。建造者是王明。"
    assert {ask.language for ask in played.llm.asks} == {"zh"}


@pytest.mark.parametrize("stage", ["amber_chunk_filter", "amber_sentence_filter"])
def test_the_passages_are_filtered_at_the_same_time(stage: str) -> None:
    script = filtering("abcde", note_init="M", amber_sufficient=YES, answer_short="A", **{stage: "?"})

    only: dict[str, Any] = {
        "agents": False,
        "chunk_filter": stage == "amber_chunk_filter",
        "sentence_filter": stage == "amber_sentence_filter",
        "max_iterations": 1,
    }
    waited, at_once = play(amber, together(5, script, {stage}), **only), play(amber, script, **only)
    assert waited.log == at_once.log
    assert waited.log[:6] == ["search", *[stage] * 5]
    assert waited.parse_failures() == [stage] * 5
    assert waited.trace == at_once.trace
