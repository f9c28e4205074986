"""FLARE and IRCoT, branch by branch: what they ask and search for each sentence they write, and why they end."""

from typing import Any

import pytest

from rag_notes.events import count
from rag_notes.methods.flare import flare
from rag_notes.methods.ircot import ircot
from rag_notes.types import Question
from tests.scripted import Played, Q, by_stage, play, shown

ZH = Question("q2", "建造者出生在哪里？", ("邓弗里斯",), language="zh")
LONG = Question("q3", "Who built it?", ("Telford",), task="news")
SHORT_FORM = "the answer alone, without any other words"


def play_flare(*script: Any, **settings: Any) -> Played:
    """FLARE whose drafts see the passages of the last search, so that every sentence is written by the same prompt."""
    return play(flare, *script, draft_with_passages=True, **settings)


# FLARE: the words of a scripted response are its tokens, certain unless a probability is written behind them


def test_flare_searches_with_the_sure_words_of_an_unsure_sentence_and_writes_it_anew() -> None:
    sentences = [
        "Telford built it. He lived long.",
        "He was@0.5 born@0.9 in@0.4 Perth@0.39 then.",
        "He was@0.1 born in Dumfries.",  # unsure again: it is written anew once only
        "Final answer: Dumfries",
    ]
    found = {Q.question: ["a"], "He was born in then.": ["b"]}
    played = play_flare(by_stage(flare_sentence=sentences), found, top_k=3)
    assert played.answer == "Dumfries"
    assert played.log == ["search", "flare_sentence", "flare_sentence", "search", "flare_sentence", "flare_sentence"]
    assert played.searches == [(Q.question, 3), ("He was born in then.", 3)]
    assert (played.stops(), played.parse_failures()) == (["answer reached"], [])
    asked = played.llm.asked("flare_sentence")
    assert [(fields["context"], fields["text"]) for fields in asked] == [
        (shown("a"), "(none)"),
        (shown("a"), "Telford built it."),
        (shown("b"), "Telford built it."),
        (shown("b"), "Telford built it.\nHe was born in Dumfries."),
    ]
    assert {(fields["question"], fields["form"]) for fields in asked} == {(Q.question, SHORT_FORM)}
    assert all(request["logprobs"] for _, request, _ in played.llm.store.rows())
    events = [event for event in played.trace if event.event == "ask"]
    assert (events[1].logprobs or [])[:2] == [("He ", 0.0), ("was ", -0.6931)]


def test_flare_leaves_out_the_token_that_ends_a_response() -> None:
    sentences = ["It@0.5 stands <|end|>", "It stands <|end|>", "Final answer: Dumfries <|end|>"]
    played = play_flare(by_stage(flare_sentence=sentences))
    assert played.searches[1][0] == "It stands"
    assert played.llm.asked("flare_sentence")[-1]["text"] == "It stands"
    assert played.answer == "Dumfries"


def test_flare_does_not_mind_unsure_words_after_the_first_sentence() -> None:
    sentences = ["Telford built it. Perhaps@0.1 so.\nOr@0.1 not.", "Final answer: Dumfries"]
    played = play_flare(by_stage(flare_sentence=sentences))
    assert (played.log, played.answer) == (["search", "flare_sentence", "flare_sentence"], "Dumfries")


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        ({}, "sure doubtful end."),
        ({"theta": 0.5}, "sure doubtful end."),
        ({"theta": 0.2}, None),  # the least sure word has just this probability
        ({"theta": 0.0}, None),
        ({"beta": 0.0}, "sure doubtful unsure end."),
        ({"beta": 0.2}, "sure doubtful unsure end."),
        ({"beta": 0.71}, "sure end."),
        ({"theta": 1.0, "beta": 1.0}, "sure end."),
    ],
)
def test_flare_theta_decides_whether_and_beta_with_which_words_it_searches(
    settings: dict[str, Any], query: str | None
) -> None:
    first = "sure doubtful@0.7 unsure@0.2 end."
    sentences = [first, *(["Anew."] if query else []), "Final answer: A"]
    played = play_flare(by_stage(flare_sentence=sentences), **settings)
    assert played.queries() == [Q.question, *([query] if query else [])]
    assert played.llm.asked("flare_sentence")[-1]["text"] == ("Anew." if query else "sure doubtful unsure end.")


def test_flare_falls_back_on_the_question_where_no_word_is_sure_enough() -> None:
    sentences = ["All@0.1 unsure.@0.1", "Sure.", "Final answer: A"]
    assert play_flare(by_stage(flare_sentence=sentences)).queries() == [Q.question] * 2


@pytest.mark.parametrize(("response", "query"), [(" Where is Perth? \n", "Where is Perth?"), ("", Q.question)])
def test_flare_can_ask_for_its_query(response: str, query: str) -> None:
    sentences = [
        "Telford built it.",
        "He came from Perth@0.2 then.",
        "He came from Dumfries.",
        "Final answer: Dumfries",
    ]
    script = by_stage(flare_sentence=sentences, flare_query=[response])
    played = play_flare(script, queries="asked")
    assert played.log == ["search", *["flare_sentence"] * 2, "flare_query", "search", *["flare_sentence"] * 2]
    assert played.queries() == [Q.question, query]
    assert played.llm.asked("flare_query") == [
        {"question": Q.question, "text": "Telford built it.", "sentence": "He came from Perth then."}
    ]


def test_flare_stops_at_max_sentences_and_answers_from_its_text() -> None:
    script = by_stage(flare_sentence=["One.", "Two."], answer_short=["Dumfries"])
    played = play_flare(script, max_sentences=2)
    assert played.log == ["search", "flare_sentence", "flare_sentence", "answer_short"]
    assert (played.answer, played.stops()) == ("Dumfries", ["max_sentences"])
    assert played.llm.asked("answer_short") == [{"context": "One. Two.", "question": Q.question}]


@pytest.mark.parametrize(
    ("sentences", "searches", "text"),
    [
        (["One.", "One. Two."], 1, "One."),  # a repetition
        (["One.", ""], 1, "One."),
        (["One.", " \n"], 1, "One."),
        ([""], 1, "(none)"),
        (["Unsure@0.1 here.", ""], 2, "(none)"),  # nothing when written anew
        (["One.", "One@0.1 more.", "One."], 2, "One."),
    ],
)
def test_flare_stops_where_nothing_new_is_written(sentences: list[str], searches: int, text: str) -> None:
    played = play_flare(by_stage(flare_sentence=sentences, answer_short="A"), lambda _: [])
    assert (played.stops(), len(played.searches), played.answer) == (["nothing new written"], searches, "A")
    assert played.log[-1] == "answer_short"
    assert played.llm.asked("answer_short")[0]["context"] == text
    assert played.llm.asked("flare_sentence")[0]["context"] == "(none)"


def test_flare_answers_in_its_first_sentence_and_checks_an_unsure_answer() -> None:
    sure = play_flare(by_stage(flare_sentence=["Final answer: <Dumfries>"]))
    assert (sure.answer, sure.log) == ("Dumfries", ["search", "flare_sentence"])
    script = by_stage(flare_sentence=["Final answer: Perth@0.3", "Final answer: Dumfries"])
    unsure = play_flare(script)
    assert (unsure.answer, unsure.queries()) == ("Dumfries", [Q.question, "Final answer:"])


def test_flare_returns_an_answer_of_several_sentences_whole() -> None:
    text = "Final answer: Telford built it. He was a Scot.\nIt still stands."
    played = play_flare(by_stage(flare_sentence=[text]), question=LONG)
    assert (played.answer, played.stops()) == (text.removeprefix("Final answer: "), ["answer reached"])
    script = by_stage(flare_sentence=["Final answer: Telford. Perhaps@0.1 not.", "Final answer: Telford."])
    assert play_flare(script, question=LONG).queries()[1] == "Final answer: Telford. not."


def test_flare_cuts_chinese_sentences_and_asks_in_chinese() -> None:
    script = by_stage(flare_sentence=["桥由特尔福德建造。 他还活着@0.1 。", "最终答案：邓弗里斯"])
    played = play_flare(script, question=ZH)
    assert (played.answer, played.stops(), len(played.searches)) == ("邓弗里斯", ["answer reached"], 1)
    assert played.llm.asked("flare_sentence")[1]["text"] == "桥由特尔福德建造。"
    assert {ask.language for ask in played.llm.asks} == {"zh"}


def test_flare_drafts_without_passages_and_searches_only_where_a_draft_is_unsure() -> None:
    """FLARE, section 3.2: draft, and where a token is under theta, query, search and write anew from the passages."""
    drafts = ["Telford built it. He lived long.", "He was born@0.9 in@0.4 Perth@0.39 then.", "Final answer: Dumfries"]
    script = by_stage(flare_draft=drafts, flare_sentence=["He was born in Dumfries. So."])
    played = play(flare, script, {"He was born in then.": "ab"}, top_k=2)
    assert played.log == ["flare_draft", "flare_draft", "search", "flare_sentence", "flare_draft"]
    assert played.searches == [("He was born in then.", 2)]
    assert (played.answer, played.stops()) == ("Dumfries", ["answer reached"])
    q = {"question": Q.question, "form": SHORT_FORM}
    assert played.llm.asked("flare_draft") == [
        q | {"text": "(none)"},
        q | {"text": "Telford built it."},
        q | {"text": "Telford built it.\nHe was born in Dumfries."},
    ]
    assert played.llm.asked("flare_sentence") == [q | {"context": shown("a", "b"), "text": "Telford built it."}]


def test_flare_that_is_sure_throughout_searches_nothing() -> None:
    played = play(flare, by_stage(flare_draft=["One.", "Final answer: <Dumfries>"]), {})
    assert (played.answer, played.log, played.searches) == ("Dumfries", ["flare_draft"] * 2, [])


@pytest.mark.parametrize(("draft", "again"), [("", None), ("Unsure@0.1 here.", "")])
def test_flare_that_writes_nothing_answers_from_nothing(draft: str, again: str | None) -> None:
    script = by_stage(flare_draft=[draft], flare_sentence=[again or ""], answer_short=["A"])
    played = play(flare, script, lambda _: "a")
    assert played.stops() == ["nothing new written"]
    assert played.log == ["flare_draft", *([] if again is None else ["search", "flare_sentence"]), "answer_short"]
    assert played.llm.asked("answer_short")[0]["context"] == "(none)"


# IRCoT


def test_ircot_searches_with_each_thought_and_the_reader_gets_the_passages_alone() -> None:
    thoughts = ["Telford built it. He was a Scot.", "Where was Telford born?\nI wonder.", "Final answer: Perth"]
    found = {Q.question: "ab", "Telford built it.": "bc", "Where was Telford born?": "da"}
    played = play(ircot, by_stage(ircot_thought=thoughts, answer_short=["Dumfries"]), found, top_k=2)
    assert played.log == [
        "search",
        "ircot_thought",
        "search",
        "ircot_thought",
        "search",
        "ircot_thought",
        "answer_short",
    ]
    assert played.searches == [(query, 2) for query in found]
    assert (played.answer, played.stops(), played.parse_failures()) == ("Dumfries", ["answer reached"], [])
    assert [(fields["context"], fields["thoughts"]) for fields in played.llm.asked("ircot_thought")] == [
        (shown("a", "b"), "(none)"),
        (shown("a", "b", "c"), "Telford built it."),
        (shown("a", "b", "c", "d"), "Telford built it.\nWhere was Telford born?"),
    ]
    assert {fields["form"] for fields in played.llm.asked("ircot_thought")} == {SHORT_FORM}
    assert played.llm.asked("answer_short") == [{"context": shown(*"abcd"), "question": Q.question}]


@pytest.mark.parametrize(
    "answer", ["Final answer: Dumfries", "Final answer:\nDumfries", "So the final answer is: Perth."]
)
def test_ircot_that_has_its_answer_at_once_reads_the_first_passages(answer: str) -> None:
    played = play(ircot, by_stage(ircot_thought=[answer], answer_short="A"), top_k=1)
    assert (played.log, played.stops()) == (["search", "ircot_thought", "answer_short"], ["answer reached"])
    assert played.llm.asked("answer_short")[0]["context"] == shown("a")


@pytest.mark.parametrize("steps", [0, 1, 3, 8])
def test_ircot_stops_at_max_steps_which_are_eight_by_default(steps: int) -> None:
    thoughts = [f"Thought {step}." for step in range(steps)]
    limit: dict[str, Any] = {} if steps == 8 else {"max_steps": steps}
    played = play(ircot, by_stage(ircot_thought=thoughts, answer_short="A"), lambda query: [query], **limit)
    assert played.log == ["search", *["ircot_thought", "search"] * steps, "answer_short"]
    assert played.stops() == ["max_steps"]
    assert played.llm.asked("answer_short")[0]["context"] == shown(Q.question, *thoughts)


@pytest.mark.parametrize(
    ("limit", "second", "kept", "unread"),
    [
        (3, "cd", "abc", ["d"]),  # would go past it
        (4, "cd", "abcd", []),  # reaches it exactly
        (3, "bcd", "abc", ["d"]),  # what is known takes no place
    ],
)
def test_ircot_never_goes_past_max_passages(limit: int, second: str, kept: str, unread: list[str]) -> None:
    found = {Q.question: "ab", "One.": second}
    played = play(ircot, by_stage(ircot_thought=["One."], answer_short="A"), found, max_passages=limit)
    assert (played.log, played.stops()) == (["search", "ircot_thought", "search", "answer_short"], ["max_passages"])
    assert played.llm.asked("answer_short")[0]["context"] == shown(*kept)
    searches = [event for event in played.trace if event.event == "search"]
    assert [hit.id for event in searches for hit in event.hits if hit.unread] == unread
    assert count(played.trace).distinct_passages == limit


def test_ircot_that_starts_with_max_passages_does_not_think() -> None:
    played = play(ircot, by_stage(answer_short="A"), max_passages=2)
    assert (played.searches, played.stops()) == ([(Q.question, 2)], ["max_passages"])
    assert played.llm.asked("answer_short")[0]["context"] == shown("a", "b")


@pytest.mark.parametrize(("thoughts", "searches"), [([""], 1), (["One.", "One. Two."], 2), (["One.", " \n"], 2)])
def test_ircot_stops_where_nothing_new_is_written(thoughts: list[str], searches: int) -> None:
    played = play(ircot, by_stage(ircot_thought=thoughts, answer_short="A"), lambda _: [])
    assert (played.stops(), len(played.searches)) == (["nothing new written"], searches)
    assert played.llm.asked("answer_short")[0]["context"] == "(none)"  # nothing found


def test_ircot_thinks_in_chinese() -> None:
    played = play(
        ircot,
        by_stage(ircot_thought=["桥是谁建的？他是苏格兰人。", "最终答案：邓弗里斯"], answer_short="A"),
        question=ZH,
    )
    assert played.queries() == [ZH.question, "桥是谁建的？"]
    assert ({ask.language for ask in played.llm.asks}, played.stops()) == ({"zh"}, ["answer reached"])
