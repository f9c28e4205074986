"""The note methods, branch by branch: DeepNote, Adaptive-Note and Amber, their thresholds, filters and agents."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rag_notes.events import count
from rag_notes.methods.adaptive_note import adaptive_note
from rag_notes.methods.amber import amber
from rag_notes.methods.deepnote import deepnote
from rag_notes.types import Question
from tests.scripted import NO, YES, ZH, Answer, Ask, Method, Q, by_stage, play, shown, together

STEP = ["note_query", "search", "note_update", "note_judge"]
START, FIELDS = ["search", "note_init"], {"question": Q.question}


def notes_script(verdicts: Sequence[str]) -> Answer:
    """Initial note N0, updates N1, N2, ..., questions A1 B1, A2 B2, ..., these verdicts, and an answer."""
    steps = range(1, len(verdicts) + 1)
    asks = {"note_query": [f"A{n}?\nB{n}?" for n in steps], "note_update": [f"N{n}" for n in steps]}
    return by_stage(note_init=["N0"], note_judge=verdicts, answer_short=["Dumfries"], **asks)


def joined(number: int) -> str:
    return f"A{number}? B{number}? {Q.question}"


# DeepNote and Adaptive-Note


def test_deepnote_keeps_the_best_note_and_counts_failures_in_total() -> None:
    ids = {Q.question: "ab", joined(1): "c", joined(2): "", joined(3): "bd"}
    played = play(deepnote, notes_script([NO, YES, NO]), ids, max_step=9, max_failure=2)
    assert played.stops() == ["max_failure"]  # two failures with a success between them
    assert played.notes() == [("N0", True), ("N1", False), ("N2", True), ("N3", False)]
    assert played.llm.asked("note_init") == [FIELDS | {"context": shown("a", "b")}]
    queries, contexts = ["(none)", "A1?\nB1?", "A1?\nB1?\nA2?\nB2?"], [shown("c"), shown(), shown("b", "d")]
    assert (played.asked("note_query", "note"), played.asked("note_query", "queries")) == (["N0", "N0", "N2"], queries)
    assert played.asked("note_update", "note") == played.asked("note_judge", "best_note") == ["N0", "N0", "N2"]
    assert played.asked("note_update", "context") == contexts  # b again: steps are not filtered against each other
    assert played.asked("note_judge", "new_note") == ["N1", "N2", "N3"]
    assert played.asked("answer_short", "context") == ["N2"]


@pytest.mark.parametrize(
    ("method", "settings", "verdicts", "reason", "best"),
    [
        (deepnote, {"max_step": 0}, [], "max_step", "N0"),
        (deepnote, {}, [YES, YES, YES], "max_step", "N3"),
        (deepnote, {"max_step": 1, "max_failure": 1}, [YES], "max_step", "N1"),
        (deepnote, {"max_failure": 1}, [YES, NO], "max_failure", "N1"),
        (deepnote, {}, [NO, YES, NO], "max_failure", "N2"),
        (adaptive_note, {}, [YES, YES, YES], "collector_iterations", "N3"),
        (adaptive_note, {"collector_iterations": 0}, [], "collector_iterations", "N0"),
        (adaptive_note, {}, [YES, NO], "invalid_updates", "N1"),  # from the memory before it
        (adaptive_note, {"collector_iterations": 9, "invalid_updates": 2}, [NO, YES, NO], "invalid_updates", "N2"),
    ],
)
def test_a_note_takes_two_calls_and_three_a_step_until_a_threshold_is_met(
    method: Method, settings: dict[str, Any], verdicts: list[str], reason: str, best: str
) -> None:
    steps = len(verdicts)
    played = play(method, notes_script(verdicts), **settings)
    assert (played.answer, played.log) == ("Dumfries", [*START, *STEP * steps, "answer_short"])
    assert played.searches == [(query, 5) for query in (Q.question, *map(joined, range(1, steps + 1)))]
    assert (played.asked("answer_short", "context"), played.stops()) == ([best], [reason])
    assert count(played.trace).steps == steps
    events = ["ask", "search", "ask", "ask", "note"]  # the note comes after its judge
    assert [event.event for event in played.trace] == ["search", "ask", "note", *events * steps, "stop", "ask"]


@pytest.mark.parametrize("method", [deepnote, adaptive_note])
def test_the_joined_query_is_the_new_questions_and_then_the_original_cut_at_500_characters(method: Method) -> None:
    first, second = "x" * 300 + "?", "y" * 300 + "?"
    for response, query in ((f"1. {first}\n2. {second}", f"{first} {'y' * 198}"), ("\n", Q.question)):
        script = by_stage(note_init="N0", note_query=response, note_update="N1", note_judge=NO, answer_short="A")
        assert play(method, script).queries()[1] == query  # 301 + 1 + 198; without a new question the original alone


@pytest.mark.parametrize(("method", "limit"), [(deepnote, "max_step"), (adaptive_note, "collector_iterations")])
def test_separate_queries_are_searched_at_once_and_merged_by_rank(method: Method, limit: str) -> None:
    ids = {Q.question: "z", "A1?": "abcf", "B1?": "bda"}
    settings: dict[str, Any] = {"queries": "separate", limit: 1}
    played = play(method, notes_script([YES]), ids, top_k=3, **settings)
    assert (played.searches, played.batches) == ([(Q.question, 3), ("A1?", 3), ("B1?", 3)], [1, 2])
    assert played.asked("note_update", "context") == [shown("a", "b", "d")]  # ranks: a b | b d | c a
    script = by_stage(note_init="N0", note_query=" ", note_update="N1", note_judge=YES, answer_short="A")
    assert play(method, script, ids, **settings).searches == [(Q.question, 5)] * 2


@pytest.mark.parametrize(("method", "name"), [(adaptive_note, "retrieved_passages"), (deepnote, "max_passages")])
@pytest.mark.parametrize(
    ("limit", "second", "new", "steps"),
    [
        (8, "fgh", "fgh", 1),  # reaches the limit
        (8, "afbgh", "fgh", 1),  # five passages could cross it: unseen ones only
        (7, "afbgh", "fg", 1),  # and only up to the limit
        (9, "abcde", "", 2),  # nothing unseen: the update has no passages, and the loop goes on
        (10, "abfgc", "abfgc", 2),  # five passages cannot cross it: those seen before stay
        (3, None, "", 0),  # the first search is cut, too
    ],
)
def test_a_search_that_could_go_past_the_limit_of_passages_gives_unseen_ones_up_to_it(
    method: Method, name: str, limit: int, second: str | None, new: str, steps: int
) -> None:
    ids = {Q.question: "abcde", joined(1): second or "", joined(2): "vwxyz"}
    settings: dict[str, Any] = {name: limit}
    played = play(method, notes_script([YES] * steps), ids, **settings)
    assert played.log == [*START, *STEP * steps, "answer_short"]
    contexts = [shown(*new), shown(*"vwxyz"[: limit - len({*"abcde", *new})])]
    assert played.asked("note_update", "context") == contexts[:steps]
    assert played.asked("note_init", "context") == [shown(*"abcde"[:limit])]
    assert (played.stops(), played.asked("answer_short", "context")) == ([name], [f"N{steps}"])
    assert count(played.trace).distinct_passages == limit


def test_without_the_reviewer_every_update_is_kept_and_without_a_limit_deepnote_reads_all() -> None:
    ids = {Q.question: "abcde", joined(1): "fghij", joined(2): "klmno", joined(3): "pqrst"}
    settings: dict[str, Any] = {"collector_iterations": 2, "retrieved_passages": 7, "reviewer": False}
    played = play(adaptive_note, notes_script([YES, YES]), ids, **settings)
    assert played.log == [*START, *STEP[:3] * 2, "answer_short"]
    assert (played.notes(), played.stops()) == ([("N0", True), ("N1", True), ("N2", True)], ["collector_iterations"])
    assert played.asked("note_update", "note") == ["N0", "N1"]
    assert played.asked("note_update", "context")[1] == shown(*"klmno")
    played = play(deepnote, notes_script([YES, YES, YES]), ids)
    assert (played.stops(), count(played.trace).distinct_passages) == (["max_step"], 20)


# Amber

USEFUL, USELESS = '{"result": "useful"}', '{"result": "useless"}'
CHUNK, SENTENCE, SUFFICIENT = "amber_chunk_filter", "amber_sentence_filter", "amber_sufficient"
AGENTS = ["amber_review", "amber_challenge", "amber_refine"]
UNFILTERED: dict[str, Any] = {"chunk_filter": False, "sentence_filter": False}
OFF: dict[str, Any] = UNFILTERED | {"agents": False}
Q2, Q3 = "Who built the mill?", "Where was Ellen Reid born?"
AGREEING: dict[str, Any] = {"amber_review": "R", "amber_challenge": "S", "amber_refine": "M1"}
ONCE: dict[str, Any] = {"note_init": ["M"], SUFFICIENT: [YES], "answer_short": ["A"]}


def filtering(useful: str, **others: Any) -> Callable[[Ask], str]:
    """Finds the passages named in `useful` useful, copies a useful one whole, and answers the others by stage."""
    other = by_stage(**others)

    def answer(ask: Ask) -> str:
        if ask.stage in others or not ask.stage.endswith("_filter"):
            return other(ask)
        text = ask.fields["context"].split("\n")[1]
        return text if ask.stage == SENTENCE else USEFUL if text.split()[2][0] in useful else USELESS

    return answer


@pytest.mark.parametrize("variant", [False, True])
def test_amber_goes_on_with_new_questions_keeps_the_better_memory_and_ends_at_max_iterations(variant: bool) -> None:
    settings: dict[str, Any] = {"reviewer_memory": True, "filter_query": "query"} if variant else {}
    stage = "amber_review_memory" if variant else "amber_review"
    asks = {
        **{
            "note_init": ["D1"],
            "note_update": ["D2", "D3"],
            "note_judge": [YES, NO, YES],
            "answer_short": ["Dumfries"],
        },
        **{stage: ["R1", "R2", "R3"], "amber_challenge": ["S1", "S2", "S3"], "amber_refine": ["M1", "M2", "M3"]},
        "amber_query": [f"New question: {Q2}", f"It is missing.\n**New question:** <{Q3}>"],
    }
    script, ids = filtering("abc", amber_sufficient=[NO] * 3, **asks), {Q.question: "ax", Q2: "bx", Q3: "cx"}
    played = play(amber, script, ids, top_k=2, **settings)
    filters, review = ["search", CHUNK, CHUNK, SENTENCE], [stage, *AGENTS[1:], "note_judge", SUFFICIENT]
    assert played.log == [
        *(*filters, "note_init", *review, "amber_query"),
        *(*filters, "note_update", *review, "amber_query"),
        *(*filters, "note_update", *review, "answer_short"),  # no question for nothing
    ]
    assert played.searches == [(Q.question, 2), (Q2, 2), (Q3, 2)]
    assert played.notes() == [("D1", True), ("M1", True), ("M2", False), ("M3", True)]
    assert (played.stops(), played.parse_failures()) == (["max_iterations"], [])
    about = [Q.question, Q2, Q3] if variant else [Q.question] * 3  # equation 1: the filters see the question
    assert played.asked(CHUNK, "question")[::2] == played.asked(SENTENCE, "question") == about
    assert played.asked(CHUNK, "context") == [shown(name) for name in "axbxcx"]
    assert played.asked(SENTENCE, "context") == [shown(name) for name in "abc"]
    assert played.llm.asked("note_update") == [FIELDS | {"context": shown(name), "note": "M1"} for name in "bc"]
    assert played.asked(stage, "note") == ["D1", "D2", "D3"]
    if variant:  # the memory is empty before the first update (section 3.4)
        assert played.asked(stage, "memory") == ["(none)", "M1", "M1"]
    read = FIELDS | {"context": shown("a"), "note": "D1", "review": "R1"}
    assert played.llm.asked("amber_challenge")[0] == read
    assert played.llm.asked("amber_refine")[0] == read | {"suggestions": "S1"}
    pairs = [("D1", "M1"), ("M1", "M2"), ("M1", "M3")]  # the first as Appendix D says
    assert played.llm.asked("note_judge") == [FIELDS | {"best_note": best, "new_note": new} for best, new in pairs]
    assert played.asked(SUFFICIENT, "note") == ["M1", "M1", "M3"]
    assert played.llm.asked("amber_query") == [FIELDS | {"note": "M1", "queries": past} for past in ("(none)", Q2)]
    assert played.llm.asked("answer_short") == [FIELDS | {"context": "M3"}]
    assert count(played.trace).steps == 3


@pytest.mark.parametrize(
    ("chunk_filter", "sentence_filter", "agents"), list(itertools.product([True, False], repeat=3))
)
def test_amber_stops_once_the_memory_suffices_and_each_part_can_be_taken_out(
    chunk_filter: bool, sentence_filter: bool, agents: bool
) -> None:
    script, read = filtering("bd", note_judge=YES, **AGREEING, **ONCE), "bd" if chunk_filter else "abcde"
    parts: dict[str, Any] = {"chunk_filter": chunk_filter, "sentence_filter": sentence_filter, "agents": agents}
    played = play(amber, script, **parts)
    filters = [CHUNK] * 5 * chunk_filter + [SENTENCE] * len(read) * sentence_filter
    review = [*AGENTS, "note_judge"] * agents
    assert played.log == ["search", *filters, "note_init", *review, SUFFICIENT, "answer_short"]
    assert played.asked("note_init", "context") == [shown(*read)]
    assert played.notes() == [("M", True), *[("M1", True)] * agents]
    assert (played.stops(), played.answer) == (["sufficient"], "A")


@pytest.mark.parametrize("draft", ["draft", ""])  # an empty memory is not compared with what it is refined to
def test_the_initial_memory_stays_where_what_it_is_refined_to_is_not_better(draft: str) -> None:
    script = by_stage(note_judge=[NO] if draft else [], **AGREEING, **ONCE | {"note_init": [draft]})
    played = play(amber, script, **UNFILTERED)
    assert played.notes() == [(draft, True), ("M1", not draft)]
    assert played.asked(SUFFICIENT, "note") == played.asked("answer_short", "context") == [draft or "M1"]


@pytest.mark.parametrize(("question", "none"), [(Q, "(none)"), (ZH, "（无）")])
@pytest.mark.parametrize("ids", ["xy", ""])
def test_where_nothing_is_found_or_nothing_is_left_the_memory_stays_empty(
    question: Question, none: str, ids: str
) -> None:
    script = filtering("", amber_query=["New question: A?", "新问题：B？"], answer_short=["?"])
    played = play(amber, script, lambda _: ids, question=question)
    search = ["search", *[CHUNK] * len(ids)]
    assert played.log == [*[*search, "amber_query"] * 2, *search, "answer_short"]
    assert played.queries() == [question.question, "A?", "B？"]
    assert played.llm.asked("amber_query")[1] == {"question": question.question, "note": none, "queries": "A?"}
    assert played.asked("answer_short", "context") == [none]
    assert (played.notes(), played.stops(), played.parse_failures()) == ([], ["max_iterations"], [])


def test_an_iteration_in_which_everything_is_filtered_out_counts_and_leaves_the_memory() -> None:
    asks = {"note_init": ["M1"], "note_update": ["M2"], "note_judge": [YES], "amber_sufficient": [NO, NO, YES]}
    queries = [f"New question: {Q2}", f"New question: {Q3}"]
    script = filtering("ab", amber_query=queries, answer_short=["A"], **asks)
    played = play(amber, script, {Q.question: "a", Q2: "xy", Q3: "b"}, agents=False)
    assert played.log == [
        *("search", CHUNK, SENTENCE, "note_init", SUFFICIENT, "amber_query"),
        *("search", CHUNK, CHUNK, SUFFICIENT, "amber_query"),
        *("search", CHUNK, SENTENCE, "note_update", "note_judge", SUFFICIENT, "answer_short"),
    ]
    assert played.asked(SUFFICIENT, "note") == ["M1", "M1", "M2"]
    assert (played.notes(), played.stops()) == ([("M1", True), ("M2", True)], ["sufficient"])


def test_an_empty_first_memory_is_written_anew_and_unreadable_verdicts_count_as_no() -> None:
    asks: dict[str, Any] = {"amber_query": [f"New question: {Q2}"], "answer_short": ["A"]}
    played = play(amber, by_stage(note_init=[" ", "M2"], amber_sufficient=[YES], **asks), **OFF)
    assert played.log == [*START, "amber_query", *START, SUFFICIENT, "answer_short"]
    assert (played.notes(), count(played.trace).empty_responses) == ([("", True), ("M2", True)], 1)
    verdicts = {"note_judge": ["Both are fine."], SUFFICIENT: ["perhaps", ""]}
    script = by_stage(note_init=["M1"], note_update=["M2"], **verdicts, **asks)
    played = play(amber, script, max_iterations=2, **OFF)
    assert played.notes() == [("M1", True), ("M2", False)]
    assert played.parse_failures() == [SUFFICIENT, "note_judge", SUFFICIENT]
    assert (played.stops(), played.asked("answer_short", "context")) == (["max_iterations"], ["M1"])


@pytest.mark.parametrize(
    ("response", "query"),
    [(f"I lack a name.\nNEW QUESTION: <{Q2}>", Q2), (Q2, ""), ("", ""), ("新问题：<谁造了石桥？>", "谁造了石桥？")],
)
def test_a_new_question_without_its_marker_is_counted_and_the_original_is_searched_again(
    response: str, query: str
) -> None:
    question = Q if response.isascii() else ZH
    asks: dict[str, Any] = {"note_init": ["M1"], "note_update": "M2", "note_judge": NO, SUFFICIENT: NO}
    played = play(amber, by_stage(amber_query=[response] * 2, answer_short=["A"], **asks), question=question, **OFF)
    second = query or question.question
    assert played.queries() == [question.question, second, second]
    assert played.asked("amber_query", "queries")[1] == second
    assert played.parse_failures() == ["amber_query"] * (0 if query else 2)


@pytest.mark.parametrize("verdict", ["", "maybe", "useful or useless"])
@pytest.mark.parametrize("threshold", [None, 0.2])
def test_an_unreadable_chunk_filter_counts_as_useless(verdict: str, threshold: float | None) -> None:
    script = by_stage(amber_chunk_filter=[verdict, "useful"], **ONCE)
    played = play(amber, script, lambda _: "ab", sentence_filter=False, agents=False, chunk_threshold=threshold)
    assert played.asked("note_init", "context") == [shown("b")]
    assert played.parse_failures() == [CHUNK]
    assert [event.event for event in played.trace][:4] == ["search", "ask", "parse_failure", "ask"]


@pytest.mark.parametrize(
    ("threshold", "read"), [(0.0, "abcd"), (0.3, "abc"), (0.31, "ab"), (0.6, "ab"), (0.61, "a"), (1.0, "a")]
)
def test_a_threshold_keeps_what_is_useful_with_that_probability(threshold: float, read: str) -> None:
    verdicts = ['{"result": useful }', "It is useful@0.6", "useless@0.7 <|end|>", "useless"]
    script = by_stage(amber_chunk_filter=verdicts, **ONCE)
    played = play(amber, script, lambda _: "abcd", sentence_filter=False, agents=False, chunk_threshold=threshold)
    assert played.asked("note_init", "context") == [shown(*read)]
    assert played.decisions() == [(CHUNK, "useful" if one in read else "useless") for one in "abcd"]


LONG = "Ayr. She liked tea. It burnt"  # the id of a passage with three sentences
TEXT, STONE_BRIDGE = f"Text of {LONG}.", "石桥。他喜欢茶。建造者是王明。今天下雨"


@pytest.mark.parametrize(
    ("response", "no_sentence", "read"),
    [
        ("Text of Ayr.\nIt burnt.", "keep", "Text of Ayr. It burnt."),
        ('- "It burnt."\n- "Text of Ayr."', "keep", "Text of Ayr. It burnt."),  # in the order of the passage
        (TEXT, "drop", TEXT),
        ("She liked tea. She was born in Ayr.", "keep", "She liked tea."),  # nothing that the passage does not say
        ("She was fond of tea.", "keep", None),  # a paraphrase: the passage stays whole
        ("", "keep", None),
        ("None of the sentences help.", "drop", None),
    ],
)
def test_the_sentence_filter_keeps_what_is_copied_and_where_nothing_is_all_or_nothing(
    response: str, no_sentence: str, read: str | None
) -> None:
    script = by_stage(amber_sentence_filter=[response, "Text of b."], **ONCE)
    played = play(amber, script, lambda _: [LONG, "b"], chunk_filter=False, agents=False, no_sentence=no_sentence)
    expected = shown("b") if read is None and no_sentence == "drop" else shown(LONG, "b").replace(TEXT, read or TEXT)
    assert played.asked("note_init", "context") == [expected]
    assert played.parse_failures() == [SENTENCE] * (read is None)
    script = by_stage(amber_sentence_filter=["他喜欢茶。\n建造者是王明。"], **ONCE)  # put together without spaces
    played = play(amber, script, lambda _: [STONE_BRIDGE], question=ZH, chunk_filter=False, agents=False)
    assert played.asked("note_init", "context") == [f"[1] Title {STONE_BRIDGE}\n他喜欢茶。建造者是王明。"]


@pytest.mark.parametrize("stage", [CHUNK, SENTENCE])
def test_the_passages_are_filtered_at_the_same_time(stage: str) -> None:
    script = filtering("abcde", note_init="M", amber_sufficient=YES, answer_short="A", **{stage: "?"})
    only: dict[str, Any] = {"chunk_filter": stage == CHUNK, "sentence_filter": stage == SENTENCE}
    waited = play(amber, together(5, script, {stage}), agents=False, max_iterations=1, **only)
    assert (waited.log[:6], waited.parse_failures()) == (["search", *[stage] * 5], [stage] * 5)
    assert waited.trace == play(amber, script, agents=False, max_iterations=1, **only).trace
