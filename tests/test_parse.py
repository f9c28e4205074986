"""Reading what models really write, one hand-made case a habit."""

import pytest

from rag_notes.methods.parse import (
    parse_choice,
    parse_final_answer,
    parse_labels,
    parse_lines,
    parse_new_question,
    parse_next_sentence,
    parse_sentences,
    parse_status,
)
from rag_notes.types import Language


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"status": "True"}', True),
        ('{"status": "False"}', False),
        ('```json\n{"status": "False"}\n```', False),
        ('```\n{\n  "status": "True"\n}\n```', True),
        ("{'status': 'True'}", True),
        ('{"status": true}', True),
        ('{"status": False}', False),
        ("{status: True}", True),
        ('{"STATUS": "TRUE"}', True),
        ('{"status": " false "}', False),
        ('{"status": "True.",}', True),
        ('{"status": "True",}', True),
        ('{"status": "True"', True),
        ('[{"status": "False"}]', False),
        ("True", True),
        ("false.", False),
        ("**TRUE**", True),
        ("True\nTrue", True),
        ("The new note is clearly better, so the status is True because it names the town.", True),
        ('Here is my verdict: {"status": "True"}. It is not False.', True),
        ('{"status": "True", "reason": "what the old one says is not false"}', True),
        ('{"reason": "it is true that both name the town", "status": "False"}', False),
        ('{"reason": {"old": 1, "new": 1}, "status": "False"}', False),
        ('{"reason": "the set {a, b} is true", "status": "False"}', False),
        ('The note says {x} is true. {"status": "False"}', False),
        ("状态：True", True),
        ("判断False，因为新笔记更短", False),
        ("{“status”：“True”}", True),
        ('新笔记没有更好：{"status": "False"}。', False),
        ("", None),
        ("  \n", None),
        ("{}", None),
        ('{"status": ""}', None),
        ('{"status": null}', None),
        ('{"status": "True or False"}', None),
        ("True or False?", None),
        ('Old: {"status": "False"}\nNew: {"status": "True"}', None),
        ("The claim is untrue; falsehood abounds.", None),
        ("I cannot decide which note is better.", None),
        ("两份笔记一样好。", None),
    ],
)
def test_a_verdict_is_read_leniently_and_never_guessed(text: str, verdict: bool | None) -> None:
    assert parse_status(text) is verdict


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Who built it?\nWhere was he born?", ["Who built it?", "Where was he born?"]),
        ("1. Who?\n2. Where?", ["Who?", "Where?"]),
        ("1) Who?\n(2) Where?", ["Who?", "Where?"]),
        ("1: Who?\n10.Where?", ["Who?", "Where?"]),
        ("- Who?\n* Where?\n• When?", ["Who?", "Where?", "When?"]),
        ("  - indented?  \n\n\n", ["indented?"]),
        ("**1. Who?**\n**Where?**", ["Who?", "Where?"]),
        ('"Who?"\n- "Where?"', ["Who?", "Where?"]),
        ("1、谁写的？\n2. “在哪里？”", ["谁写的？", "在哪里？"]),
        ('Who sang "Yesterday"?', ['Who sang "Yesterday"?']),
        ('"Carmen" was written by whom?', ['"Carmen" was written by whom?']),
        ("**Who** built it?", ["**Who** built it?"]),
        ("1.5 million people live where?", ["1.5 million people live where?"]),
        ("1984 was written by whom?", ["1984 was written by whom?"]),
        ("12 Angry Men was directed by whom?", ["12 Angry Men was directed by whom?"]),
        ("-5 degrees were measured where?", ["-5 degrees were measured where?"]),
        ("", []),
        (" \n\t\n", []),
    ],
)
def test_lines_lose_their_bullets_and_nothing_of_their_text(text: str, lines: list[str]) -> None:
    assert parse_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final answer: Paris", "Paris"),
        ("The notes say so.\nfinal answer: <Paris>", "Paris"),
        ("FINAL ANSWER : Paris", "Paris"),
        ("**Final answer:** Paris", "Paris"),
        ("**Final answer**: Paris", "Paris"),
        ("Final Answer: **Paris**", "Paris"),
        ("Final answer: ** <Paris> **", "Paris"),
        ("__Final answer:__ `Paris`", "Paris"),
        ("### Final answer\nParis", "Paris"),
        ("## **Final Answer**\n\n**Paris**", "Paris"),
        ("Therefore, the final answer is: Paris", "Paris"),
        ("Final answer: <Paris>.", "Paris"),
        ("Final answer: <Paris> (passage 1)", "Paris"),
        ("Final answer: 3 < 5", "3 < 5"),
        ("Final answer: 10:30", "10:30"),
        ("最终答案：巴黎", "巴黎"),
        ("最终答案:<巴黎>", "巴黎"),
        ("**最终答案：**巴黎", "巴黎"),
        ("所以最终答案是：巴黎", "巴黎"),
        ("Final answer: Rome\nWait, no.\nFinal answer: Paris", "Paris"),
        (
            "Final answer: The first.\nThe second, of 1902.\n\nThe third.",
            "The first.\nThe second, of 1902.\n\nThe third.",
        ),
        ("Final answer:\nThe first.\nThe second.", "The first.\nThe second."),
        ("Final answer: <The first.\nThe second.>", "The first.\nThe second."),
        ("Final answer: Paris\nFinal answer:", None),
        ("Final answer:", None),
        ("Final answer: <>", None),
        ("Final answer: **  **", None),
        ("Paris", None),
        ("My final answer would need more passages.", None),
        ("", None),
    ],
)
def test_the_final_answer_is_what_follows_the_last_marker(text: str, answer: str | None) -> None:
    assert parse_final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"result": "A"}', "A"),
        ('{"result": "b"}', "B"),
        ("```json\n{'result': 'C'}\n```", "C"),
        ("{result: C}", "C"),
        ('{"result": "A: everybody knows it"}', "A"),
        ('{"reason": "B was close", "result": "C"}', "C"),
        ('{"reason": {"facts": 2}, "result": "C"}', "C"),
        ("A", "A"),
        ("a", "A"),
        ("(B)", "B"),
        ("C.", "C"),
        ("B: one fact", "B"),
        ("Label: C", "C"),
        ("**B**", "B"),
        ("判断B，因为只要查一个事实", "B"),
        ("A is right.", "A"),
        ("The answer is A because everybody knows it.", "A"),
        ("It takes one fact about a town, so B.", "B"),
        ("It takes a lookup of one fact.", None),  # an article
        ("A lookup is needed.", None),
        ("Hard to say. A Chinese town is meant.", None),
        ("A and B", None),
        ("A or C?", None),
        ('{"result": "A"}\n{"result": "C"}', None),
        ('{"result": "A or B"}', None),
        ('{"result": "D"}', None),
        ('{"label": null}', None),
        ("A-levels, vitamin-C and B2", None),
        ("", None),
    ],
)
def test_a_choice_is_read_leniently_and_never_guessed(text: str, choice: str | None) -> None:
    assert parse_choice(text, ("A", "B", "C")) == choice


def test_a_choice_comes_back_as_it_was_offered_and_from_its_own_field() -> None:
    assert parse_choice("USELESS", ("useful", "Useless")) == "Useless"
    assert parse_choice('{"grade": 2, "result": 0}', ("0", "1", "2"), field="grade") == "2"
    assert parse_choice('{"grade": 1.0}', ("0", "1")) is None
    assert parse_choice("useful, not useless", ("useful", "useless")) is None
    assert parse_choice("partly", ("partly", "partly [sic]")) == "partly"


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("A was built. It fell.", "en", ["A was built.", "It fell."]),
        ("Dr. Smith paid $3.5 million. He left.", "en", ["Dr. Smith paid $3.5 million.", "He left."]),
        ("J. R. R. Tolkien wrote it.", "en", ["J. R. R. Tolkien wrote it."]),
        ("no full stop\n\n  and a line of its own  ", "en", ["no full stop", "and a line of its own"]),
        ("建造者是谁？他出生在邓弗里斯。好", "zh", ["建造者是谁？", "他出生在邓弗里斯。", "好"]),
        (" \n\t\n", "en", []),
        ("", "zh", []),
    ],
)
def test_sentences_end_at_full_stops_and_line_breaks(text: str, language: Language, sentences: list[str]) -> None:
    assert parse_sentences(text, language) == sentences


@pytest.mark.parametrize(
    ("text", "language", "sentence"),
    [
        ("  It was built by Telford. He was a Scot.", "en", "It was built by Telford."),
        ("他是苏格兰人。他建了桥。", "zh", "他是苏格兰人。"),
        ("It was Telford.\nFinal answer: Telford", "en", "It was Telford."),
        ("Final answer: Telford built it. He was a Scot.\n", "en", "Final answer: Telford built it. He was a Scot."),
        ("Final answer:\nTelford", "en", "Final answer:\nTelford"),
        ("最终答案：他建了桥。他是苏格兰人。", "zh", "最终答案：他建了桥。他是苏格兰人。"),
        (" \n", "en", ""),
    ],
)
def test_the_next_sentence_is_the_first_one_or_a_whole_final_answer(
    text: str, language: Language, sentence: str
) -> None:
    assert parse_next_sentence(text, language) == sentence


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Telford is known. What is missing is his town.\nNew question: Where was he born?", "Where was he born?"),
        ("**New question:** Where?\nThat is what is missing.", "Where?"),
        ("new question : <Where?>", "Where?"),
        ("New question:\n1. Where?\n2. When?", "Where?"),
        ("New question: Who?\nBetter:\nNew question: Where?", "Where?"),
        ('New question: "Where?"', "Where?"),
        ("新问题：他出生在哪里？", "他出生在哪里？"),
        ("New question:", None),
        ("A new question would be where he was born.", None),
        ("", None),
    ],
)
def test_the_new_question_is_the_line_behind_the_last_marker(text: str, question: str | None) -> None:
    assert parse_new_question(text) == question


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1. useful, relevant, it names him", {1: (True, True)}),
        ("1. Useless, Irrelevant", {1: (False, False)}),
        ("1) <useful><irrelevant>\n2) <useless><relevant>", {1: (True, False), 2: (False, True)}),
        ("[1] **useful**, **relevant**: it is not useless, irrelevant at first sight", {1: (True, True)}),
        ("Passage 12: useful and relevant", {12: (True, True)}),
        ("1. passage: On Ayr.\nlabel: useless, relevant\nreason: no date", {1: (False, True)}),
        ("1. useful or useless, relevant or irrelevant", {}),
        ("1. useful", {}),
        ("1904 was the year. useful, relevant", {}),
        ("useful, relevant", {}),
        ("1. 有用，相关，说到了建造者\n段落2：无用、不相关", {1: (True, True), 2: (False, False)}),
        ("1. 没有用，无关", {}),
        ("1. 有用或无用，相关或无关", {}),
        ("", {}),
    ],
)
def test_the_two_tags_of_each_passage_are_read(text: str, labels: dict[int, tuple[bool, bool]]) -> None:
    assert parse_labels(text) == labels
