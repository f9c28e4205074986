"""Every method, branch by branch: what it asks and searches, in which order, with what, and why it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from rag_notes.config import build_methods, load_config
from rag_notes.events import ParseFailure, Stop, answered, count
from rag_notes.methods.adaptive_note import adaptive_note
from rag_notes.methods.chain_of_note import chain_of_note
from rag_notes.methods.chain_of_thought import chain_of_thought
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.no_retrieval import no_retrieval
from rag_notes.methods.rag import Rag
from rag_notes.methods.retrieve_read import retrieve_read
from rag_notes.methods.vanilla import vanilla
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Progress
from rag_notes.types import QAPair, Question, Task
from tests.scripted import Answer, Ask, Played, Q, ScriptedLLM, ScriptedRetriever, by_stage, play, shown

ZH = Question("q2", "建造者出生在哪里？", ("邓弗里斯",), language="zh")
STEP = ["note_query", "search", "note_update", "note_judge"]
YES, NO = '{"status": "True"}', '{"status": "False"}'
TASKS: tuple[Task, ...] = ("short", "yes_no", "long_form", "news")
# Stages whose response must have a form that no nonsense has.
NEVER_NONSENSE = {
    *("note_judge", "chain_of_note", "chain_of_thought", "self_rerank", "grade_passage", "complexity", "react"),
    *("self_rag_supported", "self_rag_useful", "amber_chunk_filter", "amber_sentence_filter", "amber_sufficient"),
}
EVERY_METHOD = build_methods(load_config())


def notes_script(verdicts: Sequence[str]) -> Answer:
    """Initial note N0, updates N1, N2, ..., questions A1 B1, A2 B2, ..., these verdicts, and an answer."""
    steps = range(1, len(verdicts) + 1)
    return by_stage(
        note_init=["N0"],
        note_query=[f"A{n}?\nB{n}?" for n in steps],
        note_update=[f"N{n}" for n in steps],
        note_judge=verdicts,
        answer_short=["Dumfries"],
    )


# DeepNote


def test_deepnote_grows_the_note_until_max_step() -> None:
    played = play(deepnote, notes_script([YES, YES, YES]))
    assert played.answer == "Dumfries"
    assert played.log == ["search", "note_init", *STEP, *STEP, *STEP, "answer_short"]
    assert played.searches == [
        (Q.question, 5),
        (f"A1? B1? {Q.question}", 5),
        (f"A2? B2? {Q.question}", 5),
        (f"A3? B3? {Q.question}", 5),
    ]
    assert played.notes() == [("N0", True), ("N1", True), ("N2", True), ("N3", True)]
    assert played.stops() == ["max_step"]
    assert played.llm.asked("answer_short") == [{"context": "N3", "question": Q.question}]


def test_deepnote_keeps_the_best_note_and_counts_failures_in_total() -> None:
    found = {
        Q.question: ["a", "b"],
        f"A1? B1? {Q.question}": ["c"],
        f"A2? B2? {Q.question}": [],
        f"A3? B3? {Q.question}": ["b", "d"],
    }
    played = play(deepnote, notes_script([NO, YES, NO]), found, max_step=9, max_failure=2)
    q = {"question": Q.question}
    assert played.stops() == ["max_failure"]  # two failures with a success between them
    assert played.notes() == [("N0", True), ("N1", False), ("N2", True), ("N3", False)]
    assert played.llm.asked("note_init") == [q | {"context": shown("a", "b")}]
    assert played.llm.asked("note_query") == [
        q | {"note": "N0", "queries": "(none)"},
        q | {"note": "N0", "queries": "A1?\nB1?"},
        q | {"note": "N2", "queries": "A1?\nB1?\nA2?\nB2?"},
    ]
    assert played.llm.asked("note_update") == [
        q | {"note": "N0", "context": shown("c")},
        q | {"note": "N0", "context": "(none)"},
        q | {"note": "N2", "context": shown("b", "d")},  # b again: steps are not filtered against each other
    ]
    assert played.llm.asked("note_judge") == [
        q | {"best_note": "N0", "new_note": "N1"},
        q | {"best_note": "N0", "new_note": "N2"},
        q | {"best_note": "N2", "new_note": "N3"},
    ]
    assert played.llm.asked("answer_short") == [q | {"context": "N2"}]


@pytest.mark.parametrize(
    ("max_step", "max_failure", "verdicts", "reason"),
    [
        (0, 2, [], "max_step"),
        (1, 1, [YES], "max_step"),
        (1, 1, [NO], "max_failure"),
        (3, 1, [YES, NO], "max_failure"),
        (2, 2, [NO, NO], "max_failure"),
        (3, 2, [NO, YES, YES], "max_step"),
        (3, 3, [NO, NO, NO], "max_failure"),
    ],
)
def test_deepnote_makes_two_calls_and_three_a_step_and_searches_once_more_than_it_steps(
    max_step: int, max_failure: int, verdicts: list[str], reason: str
) -> None:
    steps = len(verdicts)
    played = play(deepnote, notes_script(verdicts), max_step=max_step, max_failure=max_failure)
    assert played.log == ["search", "note_init", *STEP * steps, "answer_short"]
    assert played.stops() == [reason]
    counts = count(played.trace)
    assert (counts.steps, counts.calls, counts.searches) == (steps, 2 + 3 * steps, 1 + steps)
    assert played.trace[-2] == Stop(reason)
    events = ["ask", "search", "ask", "ask", "note"]  # the note comes after its judge
    assert [event.event for event in played.trace] == ["search", "ask", "note", *events * steps, "stop", "ask"]


@pytest.mark.parametrize("method", [deepnote, adaptive_note])
def test_the_joined_query_is_the_new_questions_and_then_the_original_cut_at_500_characters(
    method: Callable[..., Awaitable[str]],
) -> None:
    first, second = "x" * 300 + "?", "y" * 300 + "?"
    script = by_stage(
        note_init="N0", note_query=f"1. {first}\n2. {second}", note_update="N1", note_judge=NO, answer_short="A"
    )
    query = play(method, script).searches[1][0]
    assert query == first + " " + "y" * 198  # 301 + 1 + 198
    script = by_stage(note_init="N0", note_query="\n", note_update="N1", note_judge=NO, answer_short="A")
    assert play(method, script).searches[1][0] == Q.question  # no new question: the original alone


@pytest.mark.parametrize("method", [deepnote, adaptive_note])
def test_separate_queries_are_searched_at_once_and_merged_by_rank_without_duplicates(
    method: Callable[..., Awaitable[str]],
) -> None:
    found = {Q.question: ["z"], "A1?": ["a", "b", "c", "f"], "B1?": ["b", "d", "a"]}
    played = play(method, notes_script([YES]), found, queries="separate", top_k=3, **one_step(method))
    assert played.searches == [(Q.question, 3), ("A1?", 3), ("B1?", 3)]
    assert played.batches == [1, 2]
    assert played.llm.asked("note_update")[0]["context"] == shown("a", "b", "d")  # ranks: a b | b d | c a
    assert [event.query for event in played.trace if event.event == "search"] == [Q.question, "A1?", "B1?"]
    script = by_stage(note_init="N0", note_query=" ", note_update="N1", note_judge=YES, answer_short="A")
    again = play(method, script, found, queries="separate", **one_step(method))
    assert again.searches == [(Q.question, 5)] * 2


def one_step(method: Callable[..., Awaitable[str]]) -> dict[str, Any]:
    return {"max_step": 1} if method is deepnote else {"collector_iterations": 1}


# Adaptive-Note


def test_adaptive_note_stops_at_the_collector_iterations() -> None:
    played = play(adaptive_note, notes_script([YES, YES, YES]))
    assert played.log == ["search", "note_init", *STEP * 3, "answer_short"]
    assert played.stops() == ["collector_iterations"]
    assert played.llm.asked("answer_short")[0]["context"] == "N3"
    none = play(adaptive_note, notes_script([]), collector_iterations=0)
    assert (none.log, none.stops()) == (["search", "note_init", "answer_short"], ["collector_iterations"])


def test_adaptive_note_stops_at_the_first_invalid_update_and_answers_from_the_memory_before_it() -> None:
    played = play(adaptive_note, notes_script([YES, NO]))
    assert played.log == ["search", "note_init", *STEP * 2, "answer_short"]
    assert played.stops() == ["invalid_updates"]
    assert played.llm.asked("answer_short")[0]["context"] == "N1"


def test_adaptive_note_counts_invalid_updates_in_total() -> None:
    played = play(adaptive_note, notes_script([NO, YES, NO]), collector_iterations=9, invalid_updates=2)
    assert played.stops() == ["invalid_updates"]
    assert [fields["note"] for fields in played.llm.asked("note_query")] == ["N0", "N0", "N2"]
    assert played.llm.asked("note_query")[2]["queries"] == "A1?\nB1?\nA2?\nB2?"
    assert played.llm.asked("answer_short")[0]["context"] == "N2"


@pytest.mark.parametrize("method", [adaptive_note, deepnote])
@pytest.mark.parametrize(
    ("limit", "second", "kept", "steps"),
    [
        (8, "fgh", "fgh", 1),  # reaches the limit
        (8, "afbgh", "fgh", 1),  # five passages could cross it: unseen ones only
        (7, "afbgh", "fg", 1),  # and only up to the limit
        (9, "abcde", "", 2),  # nothing unseen: the update has no passages, and the loop goes on
        (9, "abfgc", "fg", 2),
        (10, "abfgc", "abfgc", 2),  # five passages cannot cross it: those seen before stay
    ],
)
def test_a_search_that_could_go_past_the_limit_of_passages_gives_unseen_ones_up_to_it(
    method: Callable[..., Awaitable[str]], limit: int, second: str, kept: str, steps: int
) -> None:
    found = {Q.question: "abcde", f"A1? B1? {Q.question}": second, f"A2? B2? {Q.question}": "vwxyz"}
    name = "max_passages" if method is deepnote else "retrieved_passages"
    settings: dict[str, Any] = {name: limit}
    played = play(method, notes_script([YES] * steps), found, **settings)
    assert played.log == ["search", "note_init", *STEP * steps, "answer_short"]
    assert played.stops() == [name]
    updates = played.llm.asked("note_update")
    assert updates[0]["context"] == (shown(*kept) or "(none)")
    if steps == 2:
        assert updates[1]["context"] == shown(*"vwxyz"[: limit - len({*"abcde", *kept})])
    assert played.llm.asked("answer_short")[0]["context"] == f"N{steps}"  # the last update counts
    assert count(played.trace).distinct_passages == limit


def test_deepnote_has_no_limit_of_passages_unless_one_is_set() -> None:
    found = {Q.question: "abcde", f"A1? B1? {Q.question}": "fghij", f"A2? B2? {Q.question}": "klmno"}
    found |= {f"A3? B3? {Q.question}": "pqrst"}
    played = play(deepnote, notes_script([YES, YES, YES]), found)
    assert played.stops() == ["max_step"]
    assert count(played.trace).distinct_passages == 20
    assert play(deepnote, notes_script([YES, YES]), found, max_passages=15).stops() == ["max_passages"]


def test_adaptive_note_does_not_start_past_the_retrieved_passages() -> None:
    played = play(adaptive_note, notes_script([]), retrieved_passages=3)
    assert played.llm.asked("note_init")[0]["context"] == shown("a", "b", "c")
    assert (played.log, played.stops()) == (["search", "note_init", "answer_short"], ["retrieved_passages"])


def test_adaptive_note_without_reviewer_keeps_every_update_and_stops_at_the_collector_iterations_alone() -> None:
    found = {Q.question: "abcde", f"A1? B1? {Q.question}": "fghij", f"A2? B2? {Q.question}": "klmno"}
    script = notes_script([YES, YES])
    played = play(adaptive_note, script, found, collector_iterations=2, retrieved_passages=7, reviewer=False)
    unjudged = [stage for stage in STEP if stage != "note_judge"]
    assert played.log == ["search", "note_init", *unjudged * 2, "answer_short"]
    assert (played.notes(), played.stops()) == ([("N0", True), ("N1", True), ("N2", True)], ["collector_iterations"])
    assert [fields["note"] for fields in played.llm.asked("note_update")] == ["N0", "N1"]
    assert played.llm.asked("note_update")[1]["context"] == shown(*"klmno")


# One search or none


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_task_has_its_answer_prompt_in_each_language(task: Task, language: Any) -> None:
    question = Question("q", "Q?", ("A",), task=task, language=language)
    without = play(no_retrieval, lambda _: " A \n", question=question)
    assert (without.answer, without.log, without.searches) == ("A", [f"direct_{task}"], [])
    plain = play(vanilla, lambda _: "A", question=question, top_k=2)
    assert (plain.answer, plain.log, plain.searches) == ("A", ["search", f"answer_{task}"], [("Q?", 2)])
    assert plain.llm.asked(f"answer_{task}") == [{"context": shown("a", "b"), "question": "Q?"}]
    assert {without.llm.asks[0].language, plain.llm.asks[0].language} == {language}


def test_a_chinese_question_gets_chinese_prompts_throughout() -> None:
    played = play(deepnote, notes_script([YES, NO, NO]), lambda _: [], question=ZH)
    assert {ask.language for ask in played.llm.asks} == {"zh"}
    assert played.llm.asked("note_query")[0]["queries"] == "（无）"


@pytest.mark.parametrize("method", [chain_of_thought, chain_of_note])
@pytest.mark.parametrize(
    ("response", "answer", "unreadable"),
    [
        ("Passage 1: nothing.\nFinal answer: <Dumfries>", "Dumfries", 0),
        ("Passage 1: nothing.\nHe was born in Dumfries.\n", "He was born in Dumfries.", 1),
        ("", "", 1),
    ],
)
def test_the_answer_is_read_from_its_marker_and_a_missing_marker_is_counted(
    method: Callable[..., Awaitable[str]], response: str, answer: str, unreadable: int
) -> None:
    played = play(method, by_stage(**{method.__name__: [response]}), top_k=2)
    assert (played.answer, played.log, played.searches) == (answer, ["search", method.__name__], [(Q.question, 2)])
    (fields,) = played.llm.asked(method.__name__)
    assert (fields["context"], fields["question"]) == (shown("a", "b"), Q.question)
    assert fields["form"] == "the answer alone, without any other words"
    assert [e for e in played.trace if e.event == "parse_failure"] == [ParseFailure(method.__name__)] * unreadable


@pytest.mark.parametrize("method", [chain_of_thought, chain_of_note])
def test_a_reasoned_answer_has_the_form_of_its_task(method: Callable[..., Awaitable[str]]) -> None:
    question = Question("q", "天空是蓝色的吗？", ("是",), task="yes_no", language="zh")
    played = play(method, lambda _: "最终答案：是", question=question)
    assert (played.answer, played.llm.asked(method.__name__)[0]["form"]) == ("是", "是或否，不带任何其他文字")


@pytest.mark.parametrize("method", [vanilla, retrieve_read, chain_of_thought, chain_of_note])
@pytest.mark.parametrize(
    ("question", "clause"),
    [
        (Q, "If neither the passages nor your own knowledge tell the answer, the answer is: unknown"),
        (ZH, "如果段落和你自己的知识都不能给出答案，答案就是：未知"),
    ],
)
def test_the_same_clause_offers_unknown_to_every_method_that_is_compared_by_it(
    method: Callable[..., Awaitable[str]], question: Question, clause: str
) -> None:
    offered, not_offered = (play(method, lambda _: "A", question=question, unknown=value) for value in (True, False))
    with_it, without = offered.llm.asks[0], not_offered.llm.asks[0]
    assert with_it.fields == without.fields | {"question": f"{question.question}\n{clause}"}
    assert clause not in without.prompt


# What models do wrong


def test_an_unreadable_judge_counts_as_false_and_is_in_the_trace() -> None:
    played = play(deepnote, notes_script(["Both are fine.", YES, ""]), max_failure=2)
    assert played.notes() == [("N0", True), ("N1", False), ("N2", True), ("N3", False)]
    assert played.stops() == ["max_failure"]
    kinds = [event.event for event in played.trace]
    assert kinds.count("parse_failure") == 2
    assert kinds[kinds.index("parse_failure") - 1 :][:3] == ["ask", "parse_failure", "note"]


@pytest.mark.parametrize("text", ["", " \n ", "{}", "@@ {question} </s> \x00 ]", "True and False\n" * 50])
@pytest.mark.parametrize("passages", ["", "abcdef"])
def test_nonsense_ends_every_method_with_a_record(text: str, passages: str) -> None:
    questions = [
        Question(f"{task}-{language}", "Q?", ("yes",), (QAPair("Q?", ("yes",)),), task=task, language=language)
        for task in TASKS
        for language in ("en", "zh")
    ]

    async def run() -> Any:
        async with ScriptedLLM(lambda _: text) as llm:
            retriever = ScriptedRetriever(lambda _: passages)
            return await evaluate(EVERY_METHOD, questions, retriever, llm, progress=False)

    run_ = asyncio.run(run())
    done = 8 * len(EVERY_METHOD)
    assert run_.info.samples == Progress(done, done, 0)
    for sample in run_.samples:
        counts = sample.counts
        assert sample.error is None
        assert counts.empty_responses == (0 if text.strip() else counts.calls)
        assert all(event.response == text for event in sample.trace if event.event == "ask")
        asked = [event.stage for event in sample.trace if event.event == "ask"]
        assert len(asked) <= 60
        unreadable = [event.stage for event in sample.trace if event.event == "parse_failure"]
        assert all(asked.count(stage) == unreadable.count(stage) for stage in set(asked) & NEVER_NONSENSE)
        judged = asked.count("note_judge")
        if sample.method in {"deepnote", "adaptive_note"}:
            assert judged == {"deepnote": 2, "adaptive_note": 1}[sample.method]
            assert [e.kept for e in sample.trace if e.event == "note"] == [True] + [False] * judged


def test_the_trace_is_in_the_order_of_asking_whatever_comes_back_first() -> None:
    async def three_at_once(rag: Rag, question: Question) -> str:
        asks = (rag.ask_text("part", f"part {number}") for number in range(3))
        return " ".join(await asyncio.gather(*asks, rag.ask("direct_short", question=question.question)))

    def run(order: Sequence[int]) -> Played:
        done = [asyncio.Event() for _ in range(4)]
        turns: dict[int, int | None] = dict(zip(order, [*order[1:], None], strict=True))

        async def answer(ask: Ask) -> str:
            number = 3 if ask.stage else int(ask.prompt[-1])
            if number != order[0]:
                await done[number].wait()
            if (following := turns[number]) is not None:
                done[following].set()
            return f"answer {number}"

        return play(three_at_once, answer)

    plays = [run(order) for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1])]
    assert [ask.stage for ask in answered(plays[0].trace)] == ["part", "part", "part", "direct_short"]
    assert [ask.response for ask in answered(plays[0].trace)] == [f"answer {number}" for number in range(4)]
    assert plays[0].trace == plays[1].trace == plays[2].trace
    assert plays[0].answer == plays[2].answer == "answer 0 answer 1 answer 2 answer 3"


def test_a_repetition_is_asked_for_in_every_call() -> None:
    async def run() -> list[int]:
        async with ScriptedLLM(lambda _: YES) as llm:
            await evaluate([deepnote], [Q], ScriptedRetriever(lambda _: "ab"), llm, repeat=3, progress=False)
            return [ask.repeat for ask in llm.asks]

    assert asyncio.run(run()) == [3] * 11


def test_a_gold_answer_that_cannot_be_scored_ends_the_run_with_its_question() -> None:
    async def run() -> None:
        async with ScriptedLLM(lambda _: "yes") as llm:
            questions = [Question("q9", "Is it blue?", ("blue",), task="yes_no")]
            await evaluate([no_retrieval], questions, ScriptedRetriever({}), llm, progress=False)

    with pytest.raises(ValueError, match=r"'q9'.*'blue' is neither yes nor no"):
        asyncio.run(run())
