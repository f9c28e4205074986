"""Amber, branch by branch: its filters, its agents, its memory and why it ends."""

from collections.abc import Callable
from typing import Any

import pytest

from rag_notes.events import count
from rag_notes.methods.amber import amber
from rag_notes.methods.deepnote import deepnote
from rag_notes.types import Question
from tests.scripted import Ask, Q, by_stage, play, shown, together

ZH = Question("q2", "建造者出生在哪里？", ("邓弗里斯",), language="zh")
YES, NO = '{"status": "True"}', '{"status": "False"}'
USEFUL, USELESS = '{"result": "useful"}', '{"result": "useless"}'
AGENTS = ["amber_review", "amber_challenge", "amber_refine"]
OFF: dict[str, Any] = {"chunk_filter": False, "sentence_filter": False, "agents": False}
Q2, Q3 = "Who built the mill?", "Where was Ellen Reid born?"


def filtering(useful: str, **others: Any) -> Callable[[Ask], str]:
    """Finds the passages named in `useful` useful, copies a useful one whole, and answers the others by stage."""
    other = by_stage(**others)

    def answer(ask: Ask) -> str:
        if ask.stage in others or not ask.stage.endswith("_filter"):
            return other(ask)
        text = ask.fields["context"].split("\n")[1]
        return text if ask.stage == "amber_sentence_filter" else USEFUL if text.split()[2][0] in useful else USELESS

    return answer


def test_amber_filters_updates_and_stops_once_the_memory_suffices() -> None:
    script = filtering(
        "bd",
        note_init=["draft"],
        amber_review=["review"],
        amber_challenge=["suggestions"],
        amber_refine=["M1"],
        amber_sufficient=[YES],
        answer_short=["Dumfries"],
    )
    played = play(amber, script)
    filters = ["amber_chunk_filter"] * 5 + ["amber_sentence_filter"] * 2
    assert played.answer == "Dumfries"
    assert played.log == ["search", *filters, "note_init", *AGENTS, "amber_sufficient", "answer_short"]
    assert (played.searches, played.stops()) == ([(Q.question, 5)], ["sufficient"])
    q = {"question": Q.question}
    assert played.llm.asked("amber_chunk_filter") == [q | {"context": shown(name)} for name in "abcde"]
    assert played.llm.asked("amber_sentence_filter") == [q | {"context": shown(name)} for name in "bd"]
    read = q | {"context": shown("b", "d")}
    assert played.llm.asked("note_init") == [read]
    assert played.llm.asked("amber_review") == [read | {"note": "draft"}]
    assert played.llm.asked("amber_challenge") == [read | {"note": "draft", "review": "review"}]
    assert played.llm.asked("amber_refine") == [
        read | {"note": "draft", "review": "review", "suggestions": "suggestions"}
    ]
    assert played.llm.asked("amber_sufficient") == [q | {"note": "M1"}]
    assert played.llm.asked("answer_short") == [q | {"context": "M1"}]
    assert (played.notes(), played.parse_failures()) == ([("M1", True)], [])


def test_amber_goes_on_with_new_questions_and_keeps_the_better_memory() -> None:
    found = {Q.question: "ax", Q2: "bx", Q3: "cx"}
    script = filtering(
        "abc",
        note_init=["D1"],
        note_update=["D2", "D3"],
        amber_review=["R1", "R2", "R3"],
        amber_challenge=["S1", "S2", "S3"],
        amber_refine=["M1", "M2", "M3"],
        note_judge=[NO, YES],
        amber_sufficient=[NO, NO, NO],
        amber_query=[f"New question: {Q2}", f"It is missing.\n**New question:** <{Q3}>"],
        answer_short=["Dumfries"],
    )
    played = play(amber, script, found, top_k=2)
    filters = ["amber_chunk_filter"] * 2 + ["amber_sentence_filter"]
    assert played.log == [
        *("search", *filters, "note_init", *AGENTS, "amber_sufficient", "amber_query"),
        *("search", *filters, "note_update", *AGENTS, "note_judge", "amber_sufficient", "amber_query"),
        *("search", *filters, "note_update", *AGENTS, "note_judge", "amber_sufficient"),  # no question for nothing
        "answer_short",
    ]
    assert played.searches == [(Q.question, 2), (Q2, 2), (Q3, 2)]
    assert played.notes() == [("M1", True), ("M2", False), ("M3", True)]
    assert played.stops() == ["max_iterations"]
    # The filters see the current query, all else the original question.
    assert [fields["question"] for fields in played.llm.asked("amber_chunk_filter")] == [Q.question] * 2 + [
        *([Q2] * 2),
        *([Q3] * 2),
    ]
    assert [fields["question"] for fields in played.llm.asked("amber_sentence_filter")] == [Q.question, Q2, Q3]
    q = {"question": Q.question}
    assert played.llm.asked("note_update") == [
        q | {"context": shown("b"), "note": "M1"},
        q | {"context": shown("c"), "note": "M1"},
    ]
    assert [fields["note"] for fields in played.llm.asked("amber_review")] == ["D1", "D2", "D3"]
    assert played.llm.asked("note_judge") == [
        q | {"best_note": "M1", "new_note": "M2"},
        q | {"best_note": "M1", "new_note": "M3"},
    ]
    assert [fields["note"] for fields in played.llm.asked("amber_sufficient")] == ["M1", "M1", "M3"]
    assert played.llm.asked("amber_query") == [
        q | {"note": "M1", "queries": "(none)"},
        q | {"note": "M1", "queries": Q2},
    ]
    assert played.llm.asked("answer_short") == [q | {"context": "M3"}]
    counts = count(played.trace)
    assert (counts.steps, counts.searches, counts.distinct_passages) == (2, 3, 4)


@pytest.mark.parametrize(
    ("switches", "asks"),
    [
        ({"chunk_filter": False}, [*["amber_sentence_filter"] * 5, "note_init", *AGENTS]),
        ({"sentence_filter": False}, [*["amber_chunk_filter"] * 5, "note_init", *AGENTS]),
        ({"agents": False}, [*["amber_chunk_filter"] * 5, *["amber_sentence_filter"] * 2, "note_init"]),
        ({"chunk_filter": False, "sentence_filter": False}, ["note_init", *AGENTS]),
        (OFF, ["note_init"]),
    ],
)
def test_each_part_of_amber_can_be_taken_out(switches: dict[str, Any], asks: list[str]) -> None:
    script = filtering(
        "bd",
        note_init=["M"],
        amber_review="R",
        amber_challenge="S",
        amber_refine="M",
        amber_sufficient=[YES],
        answer_short=["Dumfries"],
    )
    played = play(amber, script, **switches)
    assert played.log == ["search", *asks, "amber_sufficient", "answer_short"]
    read = shown("b", "d") if "amber_chunk_filter" in asks else shown(*"abcde")
    assert played.llm.asked("note_init")[0]["context"] == read
    assert (played.notes(), played.stops()) == ([("M", True)], ["sufficient"])


def test_amber_without_its_parts_first_asks_what_deepnote_asks() -> None:
    script = by_stage(note_init="N0", amber_sufficient=YES, answer_short="A")
    ours, theirs = play(amber, script, **OFF), play(deepnote, script, max_step=0)
    asked = [next(event for event in played.trace if event.event == "ask") for played in (ours, theirs)]
    assert asked[0].stage == "note_init"
    assert asked[0] == asked[1]  # with the key in the store: asked for once
    assert ours.llm.asks[-1] == theirs.llm.asks[-1]


@pytest.mark.parametrize("max_iterations", [1, 2, 3])
def test_amber_ends_at_max_iterations(max_iterations: int) -> None:
    script = by_stage(
        note_init=["M1"],
        note_update=["M2", "M3"],
        note_judge=YES,
        amber_sufficient=NO,
        amber_query=f"New question: {Q2}",
        answer_short=["A"],
    )
    played = play(amber, script, max_iterations=max_iterations, **OFF)
    again = ["amber_query", "search", "note_update", "note_judge", "amber_sufficient"]
    assert played.log == [
        *("search", "note_init", "amber_sufficient"),
        *again * (max_iterations - 1),
        "answer_short",
    ]
    assert played.stops() == ["max_iterations"]
    assert played.llm.asked("answer_short")[0]["context"] == f"M{max_iterations}"


@pytest.mark.parametrize(("question", "none"), [(Q, "(none)"), (ZH, "（无）")])
@pytest.mark.parametrize("found", ["xy", ""])
def test_where_nothing_is_found_or_nothing_is_left_the_memory_stays_empty(
    question: Question, none: str, found: str
) -> None:
    script = filtering("", amber_query=["New question: A?", "新问题：B？"], answer_short=["?"])
    played = play(amber, script, lambda _: found, question=question)
    search = ["search", *["amber_chunk_filter"] * len(found)]
    assert played.log == [*search, "amber_query", *search, "amber_query", *search, "answer_short"]
    assert [query for query, _ in played.searches] == [question.question, "A?", "B？"]
    assert played.llm.asked("amber_query")[1] == {"question": question.question, "note": none, "queries": "A?"}
    assert played.llm.asked("answer_short")[0]["context"] == none
    assert (played.notes(), played.stops(), played.parse_failures()) == ([], ["max_iterations"], [])


def test_an_iteration_in_which_everything_is_filtered_out_counts_and_leaves_the_memory() -> None:
    found = {Q.question: "a", Q2: "xy", Q3: "b"}
    script = filtering(
        "ab",
        note_init=["M1"],
        note_update=["M2"],
        note_judge=[YES],
        amber_sufficient=[NO, NO, YES],
        amber_query=[f"New question: {Q2}", f"New question: {Q3}"],
        answer_short=["A"],
    )
    played = play(amber, script, found, agents=False)
    assert played.log == [
        *("search", "amber_chunk_filter", "amber_sentence_filter", "note_init", "amber_sufficient", "amber_query"),
        *("search", "amber_chunk_filter", "amber_chunk_filter", "amber_sufficient", "amber_query"),
        *("search", "amber_chunk_filter", "amber_sentence_filter", "note_update", "note_judge", "amber_sufficient"),
        "answer_short",
    ]
    assert [fields["note"] for fields in played.llm.asked("amber_sufficient")] == ["M1", "M1", "M2"]
    assert (played.notes(), played.stops()) == ([("M1", True), ("M2", True)], ["sufficient"])


def test_a_first_memory_that_comes_back_empty_is_recorded_and_the_next_is_written_anew() -> None:
    script = by_stage(
        note_init=[" ", "M2"], amber_query=[f"New question: {Q2}"], amber_sufficient=[YES], answer_short=["A"]
    )
    played = play(amber, script, **OFF)
    assert played.log == [
        "search",
        "note_init",
        "amber_query",
        "search",
        "note_init",
        "amber_sufficient",
        "answer_short",
    ]
    assert played.notes() == [("", True), ("M2", True)]
    assert count(played.trace).empty_responses == 1


@pytest.mark.parametrize("verdict", ["", "maybe", '{"result": "both"}', "useful or useless"])
def test_an_unreadable_chunk_filter_counts_as_useless(verdict: str) -> None:
    script = by_stage(amber_chunk_filter=[verdict, USEFUL], note_init=["M"], amber_sufficient=[YES], answer_short=["A"])
    played = play(amber, script, lambda _: "ab", sentence_filter=False, agents=False)
    assert played.llm.asked("note_init")[0]["context"] == shown("b")
    assert played.parse_failures() == ["amber_chunk_filter"]
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


def test_unreadable_verdicts_on_the_memory_count_as_no() -> None:
    script = by_stage(
        note_init=["M1"],
        note_update=["M2"],
        note_judge=["Both are fine."],
        amber_sufficient=["perhaps", ""],
        amber_query=[f"New question: {Q2}"],
        answer_short=["A"],
    )
    played = play(amber, script, max_iterations=2, **OFF)
    assert played.notes() == [("M1", True), ("M2", False)]
    assert played.parse_failures() == ["amber_sufficient", "note_judge", "amber_sufficient"]
    assert (played.stops(), played.llm.asked("answer_short")[0]["context"]) == (["max_iterations"], "M1")


@pytest.mark.parametrize(
    ("question", "response", "query"),
    [
        (Q, f"New question: {Q2}", Q2),
        (Q, f"I lack a name.\nNEW QUESTION: <{Q2}>", Q2),
        (Q, Q2, None),
        (Q, "New question:", None),
        (Q, "", None),
        (ZH, "新问题：<谁建造了石桥？>", "谁建造了石桥？"),
        (ZH, "谁建造了石桥？", None),
    ],
)
def test_a_new_question_without_its_marker_is_counted_and_the_original_is_searched_again(
    question: Question, response: str, query: str | None
) -> None:
    script = by_stage(
        note_init=["M1"],
        note_update="M2",
        note_judge=NO,
        amber_sufficient=NO,
        amber_query=[response, response],
        answer_short=["A"],
    )
    played = play(amber, script, question=question, **OFF)
    searched = query or question.question
    assert [asked for asked, _ in played.searches] == [question.question, searched, searched]
    assert played.llm.asked("amber_query")[1]["queries"] == searched
    assert played.parse_failures() == ([] if query else ["amber_query"] * 2)


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
