"""Retrieve-Read, Self-Refine, Self-Rerank, Self-RAG and RECOMP, branch by branch."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rag_notes.events import Decision, count
from rag_notes.methods.recomp import extract, recomp
from rag_notes.methods.retrieve_read import retrieve_read
from rag_notes.methods.self_rag import self_rag
from rag_notes.methods.self_refine import self_refine
from rag_notes.methods.self_rerank import self_rerank
from rag_notes.types import Passage, Question
from tests.scripted import Answer, Ask, Q, by_stage, play, shown, together

ZH = Question("q2", "建造者王明出生在哪里？", ("邓弗里斯",), language="zh")
YES, NO = '{"status": "True"}', '{"status": "False"}'
FORM = "the answer in as few words as possible, for example a name, a date or a number"


def graded(grades: dict[str, str], **others: Any) -> Callable[[Ask], str]:
    """Grades by the id of the passage that a prompt shows (any other: 0), and answers by stage."""
    other = by_stage(**others)

    def answer(ask: Ask) -> str:
        if ask.stage != "grade_passage":
            return other(ask)
        return grades.get(ask.fields["context"].split()[2], '{"result": "0"}')

    return answer


# Retrieve-Read


@pytest.mark.parametrize("found", ["abcdef", ""])
def test_retrieve_read_searches_once_and_reads_with_its_own_prompt(found: str) -> None:
    played = play(retrieve_read, by_stage(retrieve_read=[" Dumfries\n"]), lambda _: found, top_k=2)
    assert (played.answer, played.log, played.searches) == ("Dumfries", ["search", "retrieve_read"], [(Q.question, 2)])
    context = shown("a", "b") if found else "(none)"
    assert played.llm.asked("retrieve_read") == [{"context": context, "question": Q.question, "form": FORM}]


def test_retrieve_read_asks_for_the_form_of_the_task() -> None:
    question = Question("q", "天空是蓝色的吗？", ("是",), task="yes_no", language="zh")
    played = play(retrieve_read, lambda _: "是", lambda _: "", question=question)
    assert played.llm.asked("retrieve_read") == [{"context": "（无）", "question": question.question, "form": "是或否"}]


# Self-Refine


@pytest.mark.parametrize("found", ["abcdef", ""])
def test_self_refine_criticises_and_revises_the_vanilla_answer(found: str) -> None:
    script = by_stage(
        answer_short=["Ayr"],
        self_refine_critique=["[1] says Dumfries."],
        self_refine_revise=["Final answer: <Dumfries>"],
    )
    played = play(self_refine, script, lambda _: found, top_k=3)
    assert played.answer == "Dumfries"
    assert played.log == ["search", "answer_short", "self_refine_critique", "self_refine_revise"]
    assert played.searches == [(Q.question, 3)]
    fields = {"context": shown(*found[:3]) or "(none)", "question": Q.question}
    assert played.llm.asked("answer_short") == [fields]
    assert played.llm.asked("self_refine_critique") == [fields | {"answer": "Ayr"}]
    assert played.llm.asked("self_refine_revise") == [
        fields | {"answer": "Ayr", "critique": "[1] says Dumfries.", "form": FORM}
    ]
    assert played.parse_failures() == []


def test_self_refine_goes_on_from_the_revised_answer_and_counts_a_missing_marker() -> None:
    script = by_stage(
        answer_short="A0",
        self_refine_critique=["C1", "C2", "C3"],
        self_refine_revise=["Final answer: A1", "I keep it.\nA2", ""],
    )
    played = play(self_refine, script, rounds=3)
    assert played.log == ["search", "answer_short", *["self_refine_critique", "self_refine_revise"] * 3]
    assert [fields["answer"] for fields in played.llm.asked("self_refine_critique")] == ["A0", "A1", "A2"]
    revised = [(fields["answer"], fields["critique"]) for fields in played.llm.asked("self_refine_revise")]
    assert revised == [("A0", "C1"), ("A1", "C2"), ("A2", "C3")]
    assert played.answer == ""  # an empty revision stands, and is counted twice over
    assert played.parse_failures() == ["self_refine_revise"] * 2
    assert count(played.trace).empty_responses == 1


# Self-Rerank


def test_self_rerank_reads_the_relevant_passages_the_best_first_and_equals_by_rank() -> None:
    grades = {"a": '{"result": "1"}', "b": "2", "c": '{"result": "0"}', "d": '{"result": 3}', "e": '{"result": "2"}'}
    played = play(self_rerank, graded(grades | {"f": "1"}, answer_short=["Dumfries"]), top_k=6)
    assert (played.answer, played.searches) == ("Dumfries", [(Q.question, 6)])
    assert played.log == ["search", *["grade_passage"] * 6, "answer_short"]
    assert played.llm.asked("grade_passage") == [{"context": shown(name), "question": Q.question} for name in "abcdef"]
    assert played.llm.asked("answer_short") == [
        {"context": shown("d", "b", "e", "a", "f"), "question": Q.question}  # 3, 2 2, 1 1
    ]
    assert played.parse_failures() == []


@pytest.mark.parametrize(
    ("grades", "read", "bad"),
    [
        ({}, "(none)", 0),
        ({"a": "4", "b": "between 2 and 3", "c": "", "d": '{"result": "high"}', "e": "1"}, shown("e"), 4),
        ({"a": "?", "b": "?", "c": "?", "d": "?", "e": "?"}, "(none)", 5),
        ({"a": "2", "b": "2", "c": "2", "d": "2", "e": "2"}, shown("a", "b", "c", "d", "e"), 0),
    ],
)
def test_an_unreadable_grade_counts_as_0_and_nothing_relevant_is_an_empty_context(
    grades: dict[str, str], read: str, bad: int
) -> None:
    played = play(self_rerank, graded(grades, answer_short="Dumfries"))
    assert played.llm.asked("answer_short")[0]["context"] == read
    assert played.parse_failures() == ["grade_passage"] * bad


def test_self_rerank_that_finds_nothing_grades_nothing() -> None:
    played = play(self_rerank, by_stage(answer_short=["?"]), lambda _: "")
    assert (played.log, played.llm.asked("answer_short")[0]["context"]) == (["search", "answer_short"], "(none)")


def test_the_passages_are_graded_at_the_same_time() -> None:
    script = graded({"a": "1", "c": "2"}, answer_short="Dumfries")
    played = play(self_rerank, together(5, script, {"grade_passage"}))
    assert played.llm.asked("answer_short")[0]["context"] == shown("c", "a")


# Self-RAG

CHECKS = ["self_rag_supported", "self_rag_useful"]
TRY = ["search", "grade_passage", "answer_short", *CHECKS]


def test_self_rag_ends_with_the_first_answer_that_is_supported_and_useful() -> None:
    script = graded({"a": "1", "d": "3"}, answer_short=["Dumfries"], self_rag_supported=[YES], self_rag_useful=[YES])
    played = play(self_rag, script, top_k=4)
    assert played.answer == "Dumfries"
    assert played.log == ["search", *["grade_passage"] * 4, "answer_short", *CHECKS]
    assert (played.searches, played.stops()) == ([(Q.question, 4)], ["supported and useful"])
    fields = {"question": Q.question, "answer": "Dumfries"}
    assert played.llm.asked("answer_short") == [{"context": shown("d", "a"), "question": Q.question}]
    assert played.llm.asked("self_rag_supported") == [fields | {"context": shown("d", "a")}]
    assert played.llm.asked("self_rag_useful") == [fields]


def test_self_rag_tries_again_with_rewritten_queries_and_its_last_answer_stands() -> None:
    found = {Q.question: "a", "mill builder": "b", "mill architect": "c"}
    script = by_stage(
        grade_passage="2",
        answer_short=["A1", "A2", "A3"],
        self_rag_supported=[YES, NO, NO],
        self_rag_useful=[NO, YES, NO],
        rewrite_query=["mill builder\n", "mill architect"],
    )
    played = play(self_rag, script, found)
    assert played.answer == "A3"
    assert played.log == [*TRY, "rewrite_query", *TRY, "rewrite_query", *TRY]
    assert [query for query, _ in played.searches] == [Q.question, "mill builder", "mill architect"]
    assert played.llm.asked("grade_passage") == [{"context": shown(name), "question": Q.question} for name in "abc"]
    assert played.llm.asked("rewrite_query") == [
        {"question": Q.question, "queries": "(none)"},
        {"question": Q.question, "queries": "mill builder"},
    ]
    assert [fields["answer"] for fields in played.llm.asked("self_rag_supported")] == ["A1", "A2", "A3"]
    assert played.stops() == ["max_tries"]


def test_self_rag_skips_a_try_without_a_relevant_passage_and_an_empty_rewrite_is_the_question() -> None:
    found = {Q.question: "a", "mill builder": "z"}
    script = graded(
        {"a": "1"},
        answer_short=["A1", "A2"],
        self_rag_supported=[NO, YES],
        self_rag_useful=[YES, YES],
        rewrite_query=["mill builder", " "],
    )
    played = play(self_rag, script, found, max_tries=3)
    assert played.log == [*TRY, "rewrite_query", "search", "grade_passage", "rewrite_query", *TRY]
    assert [query for query, _ in played.searches] == [Q.question, "mill builder", Q.question]
    assert (played.answer, played.stops()) == ("A2", ["supported and useful"])
    assert count(played.trace).empty_responses == 1
    # The answer of an earlier try stands where the last one has nothing to read.
    script = graded(
        {"a": "1"}, answer_short=["A1"], self_rag_supported=NO, self_rag_useful=NO, rewrite_query=["mill builder"]
    )
    played = play(self_rag, script, found, max_tries=2)
    assert played.log == [*TRY, "rewrite_query", "search", "grade_passage"]
    assert (played.answer, played.stops()) == ("A1", ["max_tries"])


@pytest.mark.parametrize("max_tries", [1, 3])
@pytest.mark.parametrize("found", ["z", ""])
def test_self_rag_answers_from_what_it_knows_where_no_try_finds_a_relevant_passage(found: str, max_tries: int) -> None:
    script = graded({}, rewrite_query="mill", direct_short=["Ayr"])
    played = play(self_rag, script, lambda _: found, max_tries=max_tries)
    search = ["search", *["grade_passage"] * len(found)]
    assert played.log == [*search, *["rewrite_query", *search] * (max_tries - 1), "direct_short"]
    assert played.llm.asked("direct_short") == [{"question": Q.question}]
    assert [event.event for event in played.trace][-2:] == ["stop", "ask"]
    assert (played.answer, played.stops()) == ("Ayr", ["max_tries"])


def test_an_empty_answer_of_self_rag_is_an_answer() -> None:
    script = by_stage(grade_passage="1", answer_short="", self_rag_supported=NO, self_rag_useful=NO)
    played = play(self_rag, script, lambda _: "a", max_tries=1)
    assert (played.answer, played.log) == ("", TRY)


def test_an_unreadable_check_of_self_rag_counts_as_failed() -> None:
    script = by_stage(
        grade_passage="1", answer_short="A", self_rag_supported=["?", YES], self_rag_useful=[YES, ""], rewrite_query="m"
    )
    played = play(self_rag, script, lambda _: "a", max_tries=2)
    assert played.stops() == ["max_tries"]
    assert played.parse_failures() == ["self_rag_supported", "self_rag_useful"]


def test_the_two_checks_go_out_together_and_the_trace_is_the_same_whatever_comes_back_first() -> None:
    script = by_stage(grade_passage="1", answer_short="A", self_rag_supported="?", self_rag_useful="?")

    def last(stage: str) -> Answer:
        other_is_back = asyncio.Event()

        async def answer(ask: Ask) -> str:
            if ask.stage in CHECKS:
                if ask.stage == stage:
                    await other_is_back.wait()
                other_is_back.set()
            return script(ask)

        return answer

    orders = [script, together(2, script, {*CHECKS}), *(last(stage) for stage in CHECKS)]
    plays = [play(self_rag, order, lambda _: "ab", max_tries=1) for order in orders]
    assert [getattr(event, "stage", None) for event in plays[0].trace[-5:]] == [
        *("self_rag_supported", "self_rag_supported"),  # the ask, and that it could not be read
        *("self_rag_useful", "self_rag_useful"),
        None,
    ]
    assert all(played.trace == plays[0].trace for played in plays)


def test_every_unreadable_grade_is_recorded_behind_its_own_ask() -> None:
    script = graded({"a": "1", "b": "?", "c": "2", "d": "?", "e": "1"}, answer_short="A")
    at_once, held_back = play(self_rerank, script), play(self_rerank, together(5, script, {"grade_passage"}))
    kinds = [event.event for event in at_once.trace]
    assert kinds == ["search", "ask", "ask", "parse_failure", "ask", "ask", "parse_failure", "ask", "ask"]
    assert held_back.trace == at_once.trace  # answers from the store, and over the network


# RECOMP

MILL = Passage("m", "Mill", "The mill was built by Ellen Reid. It burnt down in 1904. A builder's house stands there.")
REID = Passage("r", "Ellen Reid", "Ellen Reid was born in Dumfries. She liked tea.")
BRIDGE = Passage("b", "石桥", "石桥建于1904年。今天天气很好。")
WANG = Passage("w", "", "王明出生在邓弗里斯！他喜欢茶。")


@pytest.mark.parametrize(
    ("question", "passages", "sentences", "summary"),
    [
        # "born" is in one sentence, "builder" in another that has no word twice; no other shares a word with it.
        (Q, [MILL, REID], 1, "Mill: A builder's house stands there."),
        (
            Q,
            [MILL, REID],
            3,  # only two are similar at all
            "Mill: A builder's house stands there.\nEllen Reid: Ellen Reid was born in Dumfries.",
        ),
        (Question("q", "Who is Ellen Reid?"), [MILL, REID], 1, "Ellen Reid: Ellen Reid was born in Dumfries."),
        (ZH, [BRIDGE, WANG], 2, "王明出生在邓弗里斯！"),  # a passage without a title
        (Question("q", "石桥建于哪一年？", language="zh"), [BRIDGE, WANG], 1, "石桥: 石桥建于1904年。"),
        (Question("q", "Which sea?"), [MILL, REID], 2, ""),
        (Question("q", "天空", language="zh"), [BRIDGE, WANG], 2, ""),
        (Question("q", "The?"), [MILL, REID], 2, ""),  # nothing but a stop word
        (Q, [Passage("p", "", "..."), Passage("s", "The", "")], 2, ""),  # passages without a term
        (Q, [], 2, ""),
    ],
)
def test_the_extract_has_the_sentences_most_similar_to_the_question(
    question: Question, passages: list[Passage], sentences: int, summary: str
) -> None:
    assert extract(question.question, passages, sentences, question.language) == summary


def test_equally_similar_sentences_are_taken_by_rank() -> None:
    twins = [Passage(name, "Twin", f"Born in {name}.") for name in ("Ayr", "Bath", "Cork")]
    assert extract("Where was he born?", twins, 2, "en") == "Twin: Born in Ayr.\nTwin: Born in Bath."


def test_recomp_answers_from_the_extract() -> None:
    question = Question("q", "What is the text of b?")
    played = play(recomp, by_stage(answer_short=["b"]), question=question, top_k=3, sentences=1)
    assert (played.answer, played.log, played.searches) == ("b", ["search", "answer_short"], [(question.question, 3)])
    assert played.llm.asked("answer_short") == [{"context": "Title b: Text of b.", "question": question.question}]
    assert played.trace[1] == Decision("summary", "Title b: Text of b.")


@pytest.mark.parametrize("question", [Q, ZH])
@pytest.mark.parametrize("found", ["abc", ""])
def test_recomp_answers_from_what_it_knows_where_no_sentence_is_similar(question: Question, found: str) -> None:
    played = play(recomp, by_stage(direct_short=["Ayr"]), lambda _: found, question=question)
    assert (played.answer, played.log) == ("Ayr", ["search", "direct_short"])
    assert played.trace[1] == Decision("summary", "(none)")
    assert played.llm.asked("direct_short") == [{"question": question.question}]


def test_recomp_answers_from_the_summary_that_the_llm_writes() -> None:
    script = by_stage(recomp_summary=["None of them but Ellen Reid built it."], answer_short=["Dumfries"])
    played = play(recomp, script, compressor="abstractive", top_k=2)
    assert (played.answer, played.log) == ("Dumfries", ["search", "recomp_summary", "answer_short"])
    assert played.llm.asked("recomp_summary") == [{"context": shown("a", "b"), "question": Q.question}]
    assert played.llm.asked("answer_short")[0]["context"] == "None of them but Ellen Reid built it."
    assert [e.outcome for e in played.trace if e.event == "decision"] == ["None of them but Ellen Reid built it."]


@pytest.mark.parametrize(("question", "nothing"), [(Q, "none"), (Q, " None.\n"), (Q, ""), (ZH, "无"), (ZH, "无。")])
def test_recomp_prepends_nothing_where_the_llm_says_that_nothing_helps(question: Question, nothing: str) -> None:
    script = by_stage(recomp_summary=[nothing], direct_short=["Ayr"])
    played = play(recomp, script, question=question, compressor="abstractive")
    assert (played.answer, played.log) == ("Ayr", ["search", "recomp_summary", "direct_short"])
    assert [e.outcome for e in played.trace if e.event == "decision"] == ["(none)"]
