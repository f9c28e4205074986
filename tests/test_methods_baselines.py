"""The baselines, branch by branch: what they ask and search, in which order, with what, and why they end."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from rag_notes.events import count
from rag_notes.methods.adaptive_rag import adaptive_rag
from rag_notes.methods.chain_of_note import chain_of_note
from rag_notes.methods.chain_of_thought import chain_of_thought
from rag_notes.methods.flare import flare
from rag_notes.methods.ircot import ircot
from rag_notes.methods.no_retrieval import no_retrieval
from rag_notes.methods.rat import rat
from rag_notes.methods.react import react
from rag_notes.methods.recomp import extract, recomp
from rag_notes.methods.retrieve_read import retrieve_read
from rag_notes.methods.self_rag import self_rag
from rag_notes.methods.self_refine import self_refine
from rag_notes.methods.self_rerank import self_rerank
from rag_notes.methods.vanilla import vanilla
from rag_notes.types import InputError, Language, Passage, Question, Task
from tests.scripted import FORM, NO, YES, ZH, Answer, Ask, Method, Played, Q, by_stage, play, shown, together

FIELDS = {"question": Q.question}
REACHED, NOTHING = "answer reached", "nothing new written"  # why FLARE and IRCoT stop

# One search or none


@pytest.mark.parametrize("task", get_args(Task))
@pytest.mark.parametrize("language", get_args(Language))
def test_each_task_has_its_answer_prompt_in_each_language(task: Task, language: Language) -> None:
    question = Question("q", "Q?", ("A",), task=task, language=language)
    without = play(no_retrieval, lambda _: " A \n", question=question)
    assert (without.answer, without.log, without.searches) == ("A", [f"direct_{task}"], [])
    plain = play(vanilla, lambda _: "A", question=question, top_k=2)
    assert (plain.answer, plain.log, plain.searches) == ("A", ["search", f"answer_{task}"], [("Q?", 2)])
    assert plain.llm.asked(f"answer_{task}") == [{"context": shown("a", "b"), "question": "Q?"}]
    assert without.languages() == plain.languages() == {language}


@pytest.mark.parametrize("method", [retrieve_read, chain_of_thought, chain_of_note])
@pytest.mark.parametrize(
    ("response", "answer", "ids"),
    [
        ("Passage 1: nothing.\nFinal answer: <Dumfries>", "Dumfries", "abc"),
        ("Passage 1: nothing.\nHe was born in Dumfries.\n", "He was born in Dumfries.", "abc"),
        ("", "", ""),
    ],
)
def test_one_prompt_reads_the_passages_and_a_missing_marker_of_the_answer_is_counted(
    method: Method, response: str, answer: str, ids: str
) -> None:
    stage, marks = method.__name__, method is not retrieve_read
    played = play(method, by_stage(**{stage: [response]}), lambda _: ids, top_k=2)
    assert played.answer == (answer if marks else response.strip())
    assert (played.log, played.searches) == (["search", stage], [(Q.question, 2)])
    assert played.llm.asked(stage)[0].items() >= (FIELDS | {"context": shown(*ids[:2]), "form": FORM}).items()
    assert played.parse_failures() == [stage] * (marks and answer != "Dumfries")


CLAUSE = "If neither the passages nor your own knowledge tell the answer, the answer is: unknown"
CLAUSE_ZH = "如果段落和你自己的知识都不能给出答案，答案就是：未知"


@pytest.mark.parametrize("method", [vanilla, retrieve_read, chain_of_thought, chain_of_note])
def test_an_answer_has_the_form_of_its_task_and_the_same_clause_offers_unknown_to_all(method: Method) -> None:
    sky = Question("q", "天空是蓝色的吗？", ("是",), task="yes_no", language="zh")
    (ask,) = play(method, lambda _: "最终答案：是", lambda _: "", question=sky).llm.asks
    assert ask.fields["context"] == "（无）" and "是或否，不带任何其他文字" in ask.fields.get("form", ask.prompt)
    for question, clause in ((Q, CLAUSE), (ZH, CLAUSE_ZH)):
        with_it, without = (play(method, lambda _: "A", question=question, unknown=value) for value in (True, False))
        fields = without.llm.asks[0].fields
        assert with_it.llm.asks[0].fields == fields | {"question": f"{question.question}\n{clause}"}


@pytest.mark.parametrize(("ids", "summary"), [("abc", "It is Dumfries."), ("", " ")])
def test_self_refine_answers_from_what_it_extracts_and_sums_up(ids: str, summary: str) -> None:
    played = play(self_refine, by_stage(self_refine=[summary], answer_short=["A"]), lambda _: ids, top_k=3)
    assert (played.log, played.searches) == (["search", "self_refine", "answer_short"], [(Q.question, 3)])
    assert played.llm.asked("self_refine") == [FIELDS | {"context": shown(*ids)}]
    assert played.llm.asked("answer_short") == [FIELDS | {"context": summary.strip() or "(none)"}]


@pytest.mark.parametrize(
    ("response", "read", "unread"),
    [
        ("1. useful, irrelevant\n2. useless, relevant\n3. useful, relevant", "3, 1", False),
        ("1. useless, relevant\n2. useless, irrelevant\nPassage 3: useless and irrelevant", "(none)", False),
        ("1. useless, relevant\n2. useful, relevant", "2, 3", True),  # what has no label stays, behind the others
        ("", "1, 2, 3", True),
        ("1. 无用，相关\n2. 有用，无关\n3. 有用、相关", "3, 2", False),
    ],
)
def test_self_rerank_reads_the_useful_passages_relevant_first(response: str, read: str, unread: bool) -> None:
    question = ZH if "有用" in response else Q
    played = play(self_rerank, by_stage(self_rerank=[response], answer_short="A"), lambda _: "abc", question=question)
    assert played.log == ["search", "self_rerank", "answer_short"]
    assert played.asked("self_rerank", "context") == [shown(*"abc")]
    numbers = [] if read == "(none)" else map(int, read.split(", "))
    assert played.asked("answer_short", "context") == [shown(*(" abc"[number] for number in numbers))]
    assert (played.decisions(), played.parse_failures()) == ([("useful passages", read)], ["self_rerank"] * unread)
    nothing = play(self_rerank, by_stage(answer_short=["?"]), lambda _: "")  # labels nothing
    assert (nothing.log, nothing.asked("answer_short", "context")) == (["search", "answer_short"], ["(none)"])


# Self-RAG

CHECKS = ["self_rag_supported", "self_rag_useful"]
TRY = ["search", "grade_passage", "answer_short", *CHECKS]


def graded(grades: dict[str, str], **others: Any) -> Callable[[Ask], str]:
    """Grades by the id of the passage that a prompt shows (any other: 0), and answers by stage."""
    other = by_stage(**others)

    def answer(ask: Ask) -> str:
        if ask.stage != "grade_passage":
            return other(ask)
        return grades.get(ask.fields["context"].split()[2], '{"result": "0"}')

    return answer


def test_self_rag_tries_again_with_rewritten_queries_until_an_answer_is_supported_and_useful() -> None:
    checks = {"self_rag_supported": ["?", YES, YES], "self_rag_useful": [YES, "", YES]}
    rewrites = ["mill builder\n", "mill architect"]
    script = by_stage(grade_passage="2", answer_short=["A1", "A2", "A3"], rewrite_query=rewrites, **checks)
    played = play(self_rag, script, {Q.question: "a", "mill builder": "b", "mill architect": "c"})
    assert (played.answer, played.stops()) == ("A3", ["supported and useful"])
    assert played.log == [*TRY, "rewrite_query", *TRY, "rewrite_query", *TRY]
    assert played.searches == [(query, 5) for query in (Q.question, "mill builder", "mill architect")]
    read = [FIELDS | {"context": shown(name)} for name in "abc"]
    assert played.llm.asked("grade_passage") == played.llm.asked("answer_short") == read
    assert played.asked("rewrite_query", "queries") == ["(none)", "mill builder"]
    assert played.llm.asked("self_rag_supported")[2] == read[2] | {"answer": "A3"}
    assert played.llm.asked("self_rag_useful")[2] == FIELDS | {"answer": "A3"}
    assert played.parse_failures() == CHECKS  # what cannot be read counts as failed


def test_self_rag_skips_a_try_without_a_relevant_passage_and_an_empty_rewrite_is_the_question() -> None:
    ids, asks = {Q.question: "a", "mill builder": "z"}, {"answer_short": ["A1", ""], "self_rag_useful": YES}
    script = graded({"a": "1"}, self_rag_supported=[NO, YES], rewrite_query=["mill builder", " "], **asks)
    played = play(self_rag, script, ids)
    assert played.log == [*TRY, "rewrite_query", "search", "grade_passage", "rewrite_query", *TRY]
    assert played.queries() == [Q.question, "mill builder", Q.question]
    assert (played.answer, played.stops()) == ("", ["supported and useful"])  # an empty answer is one
    script = graded({"a": "1"}, self_rag_supported=NO, rewrite_query=["mill builder"], **asks)
    played = play(self_rag, script, ids, max_tries=2)
    assert (played.answer, played.stops()) == ("A1", ["max_tries"])  # stands where the last try has nothing to read


@pytest.mark.parametrize("max_tries", [1, 3])
@pytest.mark.parametrize("ids", ["z", ""])
def test_self_rag_answers_from_what_it_knows_where_no_try_finds_a_relevant_passage(ids: str, max_tries: int) -> None:
    played = play(self_rag, graded({}, rewrite_query="m", direct_short=["A"]), lambda _: ids, max_tries=max_tries)
    search = ["search", *["grade_passage"] * len(ids)]
    assert played.log == [*search, *["rewrite_query", *search] * (max_tries - 1), "direct_short"]
    assert (played.answer, played.stops()) == ("A", ["max_tries"])


def test_grades_and_checks_go_out_together_and_the_trace_is_the_same_whatever_comes_back_first() -> None:
    grades = {"a": "1", "b": "?", "c": "2", "d": "4", "e": "1"}
    script = graded(grades, answer_short="A", self_rag_supported="?", self_rag_useful="?")

    def last(stage: str) -> Answer:
        other_is_back = asyncio.Event()

        async def answer(ask: Ask) -> str:
            if ask.stage == stage:
                await other_is_back.wait()
            elif ask.stage in CHECKS:
                other_is_back.set()
            return script(ask)

        return answer

    held_back = (together(5, script, {"grade_passage"}), together(2, script, {*CHECKS}))
    plays = [play(self_rag, order, max_tries=1) for order in (script, *held_back, *map(last, CHECKS))]
    assert plays[0].asked("answer_short", "context") == [shown("c", "a", "e")]  # the best first, equals by rank
    kinds = [(event.event, getattr(event, "stage", "")) for event in plays[0].trace]
    failures = [number for number, (kind, _) in enumerate(kinds) if kind == "parse_failure"]
    assert [kinds[number - 1][1] for number in failures] == ["grade_passage", "grade_passage", *CHECKS]
    assert all(played.trace == plays[0].trace for played in plays)


# RECOMP

MILL = Passage("m", "Mill", "The mill was built by Ellen Reid. It burnt down in 1904. A builder's house stands there.")
REID = Passage("r", "Ellen Reid", "Ellen Reid was born in Dumfries. She liked tea.")
BRIDGE = Passage("b", "石桥", "石桥建于1904年。今天天气很好。")
WANG = Passage("w", "", "王明出生在邓弗里斯！他喜欢茶。")
TWINS = [Passage(name, "Twin", f"Born in {name}.") for name in ("Ayr", "Bath", "Cork")]
BUILDER, BORN = "Mill: A builder's house stands there.", "Ellen Reid: Ellen Reid was born in Dumfries."


@pytest.mark.parametrize(
    ("question", "passages", "sentences", "summary"),
    [
        # "born" is in one sentence, "builder" in another that has no word twice; no other shares a word with it.
        (Q.question, [MILL, REID], 1, BUILDER),
        (Q.question, [MILL, REID], 3, f"{BUILDER}\n{BORN}"),  # only two are similar at all
        (ZH.question, [BRIDGE, WANG], 2, "王明出生在邓弗里斯！"),  # a passage without a title
        ("石桥建于哪一年？", [BRIDGE, WANG], 1, "石桥: 石桥建于1904年。"),
        ("Where was he born?", TWINS, 2, "Twin: Born in Ayr.\nTwin: Born in Bath."),  # equals by rank
        ("Which sea?", [MILL, REID], 2, ""),
        ("The?", [MILL, REID], 2, ""),  # nothing but a stop word
        (Q.question, [Passage("p", "", "..."), Passage("s", "The", "")], 2, ""),  # passages without a term
    ],
)
def test_the_extract_has_the_sentences_most_similar_to_the_question(
    question: str, passages: list[Passage], sentences: int, summary: str
) -> None:
    assert extract(question, passages, sentences, "en" if question.isascii() else "zh") == summary


@pytest.mark.parametrize(
    ("question", "ids", "response", "summary"),
    [
        (Question("q", "What is the text of b?"), "abc", None, "Title b: Text of b."),
        (Q, "abc", None, ""),
        (ZH, "", None, ""),
        (Q, "ab", "None of them but Ellen Reid built it.", "None of them but Ellen Reid built it."),
        (Q, "ab", " None.\n", ""),
        (Q, "ab", "", ""),
        (ZH, "ab", "无。", ""),
    ],
)
def test_recomp_answers_from_the_summary_and_from_what_it_knows_where_that_is_empty(
    question: Question, ids: str, response: str | None, summary: str
) -> None:
    script = by_stage(recomp_summary=[response or ""], answer_short=["A"], direct_short=["A"])
    compressor = "extractive" if response is None else "abstractive"
    played = play(recomp, script, lambda _: ids, question=question, top_k=3, sentences=1, compressor=compressor)
    reading = ["answer_short"] if summary else ["direct_short"]
    assert played.log == ["search", *["recomp_summary"] * (response is not None), *reading]
    assert (played.searches, played.decisions()) == ([(question.question, 3)], [("summary", summary or "(none)")])
    assert played.asked("answer_short", "context") == [summary] * bool(summary)


# ReAct


def test_react_shows_each_observation_in_the_next_turn_and_returns_what_it_finishes_with() -> None:
    turns = [
        "Thought: I need the builder.\nAction: search[who built it]\nObservation: made up\nAction: finish[wrong]",
        " I need his birthplace.\nAction: search['Telford birthplace']",
        "It says so.\nAction: finish[ Dumfries ]",
    ]
    ids = {"who built it": "ab", "Telford birthplace": "bc"}
    played = play(react, by_stage(react=turns), ids, top_k=2, max_searches=2)  # it may finish after its last search
    assert (played.answer, played.log) == ("Dumfries", ["react", "search", "react", "search", "react"])
    assert played.searches == [(query, 2) for query in ids]
    assert (played.stops(), played.parse_failures()) == (["finish"], [])
    first, second = (turn.removesuffix("\nObservation: made up\nAction: finish[wrong]").strip() for turn in turns[:2])
    first, second = f"{first}\nObservation:\n{shown('a', 'b')}\n\n", f"{second}\nObservation:\n{shown('b', 'c')}\n\n"
    assert played.asked("react", "transcript") == ["", first, f"{first}Thought: {second}"]
    assert set(played.asked("react", "form")) == {FORM}
    assert count(played.trace).distinct_passages == 3
    assert {request["stop"][0] for _, request, _ in played.llm.store.rows()} == {"\nObservation"}


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_react_that_does_not_finish_answers_from_all_passages_after_max_searches(limit: int) -> None:
    turns = [f"Thought: more.\nAction: search[{turn}]" for turn in range(limit + 1)]
    ids = {str(turn): ["a", f"p{turn}"] for turn in range(limit)}
    played = play(react, by_stage(react=turns, answer_short=["Dumfries"]), ids, max_searches=limit)
    assert played.log == ["react", "search"] * limit + ["react", "answer_short"]
    assert (played.answer, played.stops(), played.parse_failures()) == ("Dumfries", ["max_searches"], [])
    context = shown(*(["a"] if limit else []), *(f"p{turn}" for turn in range(limit)))
    assert played.asked("answer_short", "context") == [context]


@pytest.mark.parametrize("text", ["", "I think it is a bridge.", "research[1] says so", "Action: search"])
def test_react_counts_a_turn_without_an_action_and_it_uses_up_a_search(text: str) -> None:
    turns = [text, "Action: search[bridge]", text]
    played = play(react, by_stage(react=turns, answer_short="A"), max_searches=2, top_k=1)
    assert played.log == ["react", "react", "search", "react", "answer_short"]
    assert (played.stops(), played.parse_failures()) == (["max_searches"], ["react", "react"])
    first = f"Thought: {text}\nObservation:\n(none)\n\n"
    second = f"Thought: Action: search[bridge]\nObservation:\n{shown('a')}\n\n"
    assert played.asked("react", "transcript")[1:] == [first, first + second]
    assert count(played.trace).empty_responses == (0 if text else 2)


@pytest.mark.parametrize(
    ("action", "argument"),
    [
        ("**Action:** Search [<the builder>]", "the builder"),
        ('Action: search: "the builder"', "the builder"),
        ("action: search the builder", "the builder"),
        ("Action: search[the builder", "the builder"),  # cut at the token limit
        ("我需要search[建造者]", "建造者"),
        ("Action: search[]", ""),
        ("Action: Finish [<Dumfries>]", "Dumfries"),
        ('Action: finish["Yesterday"]', '"Yesterday"'),
        ("所以finish[邓弗里斯]", "邓弗里斯"),
        ("Action: finish[A], not search[B]", "A"),
    ],
)
def test_react_reads_actions_as_models_write_them(action: str, argument: str) -> None:
    searches = "search" in action.lower() and "finish" not in action
    question = Q if argument.isascii() else ZH
    played = play(react, by_stage(react=[action, "Action: finish[A]"]), lambda _: [], question=question)
    assert (played.queries(), played.answer) == (([argument], "A") if searches else ([], argument))
    assert (played.stops(), played.parse_failures()) == (["finish"], [])
    assert played.languages() == {question.language}
    none = {"en": "(none)", "zh": "（无）"}[question.language]  # nothing found
    assert played.asked("react", "transcript")[1:] == [f"Thought: {action}\nObservation:\n{none}\n\n"] * searches


# RAT


def test_rat_revises_all_that_stands_so_far_with_each_step() -> None:
    """RAT, section 2.2: the next drafted step behind the revised ones; query, search and revision by all of that."""
    revised = ["Telford built it.", "- Thomas Telford built it.\n- He was born in Dumfries.", " \n"]
    draft = "1. Smith built it.\n2. He was born in Perth.\n3. So it is Perth.\n4. Or not."
    script = by_stage(rat_draft=[draft], rat_revise=revised, answer_short=["Dumfries"])
    texts = ["Smith built it.", "Telford built it.\nHe was born in Perth."]
    texts.append("Thomas Telford built it.\nHe was born in Dumfries.\nSo it is Perth.")
    ids = dict(zip([f"{Q.question} {text}".replace("\n", " ") for text in texts], ["ab", "", "c"], strict=True))
    played = play(rat, script, ids, top_k=2, max_steps=3)
    assert played.log == ["rat_draft", *["search", "rat_revise"] * 3, "answer_short"]
    assert played.searches == [(query, 2) for query in ids]
    assert played.asked("rat_revise", "context") == [shown("a", "b"), "(none)", shown("c")]
    assert played.asked("rat_revise", "text") == texts
    assert played.asked("answer_short", "context") == texts[2:]  # an empty revision leaves what stands
    assert (played.answer, played.stops(), played.parse_failures()) == ("Dumfries", ["max_steps"], ["rat_revise"])


@pytest.mark.parametrize(("draft", "steps"), [("1、他在珀斯。\n2、桥。", ["他在珀斯。", "桥。"]), ("\n", [])])
def test_rat_ends_with_its_draft_and_without_one_searches_nothing(draft: str, steps: list[str]) -> None:
    script = by_stage(rat_draft=draft, rat_revise=["甲。", "乙。"], answer_short="A")
    played = play(rat, script, question=ZH, max_steps=2)
    assert played.log == ["rat_draft", *["search", "rat_revise"] * len(steps), "answer_short"]
    assert played.queries() == [f"{ZH.question} {text}" for text in ("他在珀斯。", "甲。 桥。")][: len(steps)]
    assert played.stops() == []
    assert played.asked("answer_short", "context") == (["乙。"] if steps else ["（无）"])


# Adaptive-RAG

STRATEGIES = {"direct_short": "by heart", "answer_short": "read", "ircot_thought": "One."}
STRATEGY_LOGS = {"A": ["direct_short"], "B": ["search", "answer_short"]}
STRATEGY_LOGS |= {"C": ["search", "ircot_thought", "search", "answer_short"]}
LABELS = {'{"result": "A"}': "A", "判断A": "A", '{"result": "B"}': "B", "C.": "C", "It takes a lookup.": "B", "": "B"}


@pytest.mark.parametrize(("response", "label"), LABELS.items())
def test_adaptive_rag_takes_the_strategy_that_the_model_names(response: str, label: str) -> None:
    question, unread = ZH if "判断" in response else Q, response in ("It takes a lookup.", "")
    script = by_stage(complexity=[response], **STRATEGIES)
    played = play(adaptive_rag, script, question=question, top_k=2, max_passages=9, max_steps=1)
    assert played.log == ["complexity", *STRATEGY_LOGS[label]]
    assert (played.decisions(), played.parse_failures()) == ([("complexity", label)], ["complexity"] * unread)
    assert played.llm.asked("complexity") == [{"question": question.question}]
    assert {top_k for _, top_k in played.searches} <= {2}
    assert (played.answer, played.languages()) == ("by heart" if label == "A" else "read", {question.language})
    assert played.stops() == (["max_steps"] if label == "C" else [])
    played = play(adaptive_rag, by_stage(complexity="C", **STRATEGIES), max_passages=3)
    assert (played.searches, played.stops()) == ([(Q.question, 3)], ["max_passages"])


def test_adaptive_rag_takes_the_strategy_that_a_trained_classifier_names(tmp_path: Path) -> None:
    rows = ["What is the colour of grass?,A", "What is the colour of milk?,A", "Who wrote it?,B", "Who wrote this?,B"]
    labels = tmp_path / "labels.csv"
    settings: dict[str, Any] = {"classifier": "trained", "labels": str(labels)}
    with pytest.raises(InputError, match=r"labels\.csv: no such file; make one as docs/training.md shows"):
        play(adaptive_rag, by_stage(), **settings)
    labels.write_text("\n".join(["question,label", *rows, ""]), encoding="utf-8")
    for text, label in (("What is the colour of snow?", "A"), ("Who wrote the opera?", "B")):
        played = play(adaptive_rag, by_stage(**STRATEGIES), question=Question("q", text), **settings)
        assert (played.log, played.decisions()) == (STRATEGY_LOGS[label], [("complexity", label)])
    for others, message in (
        ("Who?,D", "row 1: expected a question and a label, one of A, B, C"),
        (f"Who?,A\n{Q.question},B", "fewer than two labels occur beside 'Where was its builder born"),
    ):
        labels.write_text(f"question,label\n{others}\n", encoding="utf-8")
        with pytest.raises(InputError, match=message):
            play(adaptive_rag, by_stage(), **settings)


# FLARE: the words of a scripted response are its tokens, certain unless a probability is written behind them


def play_flare(sentences: list[str], *ids: Any, **settings: Any) -> Played:
    """FLARE whose drafts see the passages of the last search, so that every sentence is written by the same prompt."""
    script = by_stage(flare_sentence=sentences, answer_short="A", flare_query=settings.pop("query", ""))
    return play(flare, script, *ids, draft_with_passages=True, **settings)


def test_flare_searches_with_the_sure_words_of_an_unsure_sentence_and_writes_it_anew() -> None:
    sentences = [
        "Telford built it. He lived@0.1 long.",  # what follows the first sentence does not count
        "He was@0.5 born@0.9 in@0.4 Perth@0.39 then.",
        "He was@0.1 born in Dumfries. <|end|>",  # unsure again: it is written anew once only
        "Final answer: Dumfries <|end|>",
    ]
    played = play_flare(sentences, {Q.question: "a", "He was born in then.": "b"}, top_k=3)
    assert played.answer == "Dumfries"
    assert played.log == ["search", "flare_sentence", "flare_sentence", "search", "flare_sentence", "flare_sentence"]
    assert played.searches == [(Q.question, 3), ("He was born in then.", 3)]
    assert played.stops() == [REACHED]
    assert played.asked("flare_sentence", "context") == [shown(name) for name in "aabb"]
    first = "Telford built it."
    assert played.asked("flare_sentence", "text") == ["(none)", first, first, f"{first}\nHe was born in Dumfries."]
    assert played.llm.asked("flare_sentence")[0].items() >= {"form": FORM, **FIELDS}.items()
    assert all(request["logprobs"] for _, request, _ in played.llm.store.rows())
    asks = [event for event in played.trace if event.event == "ask"]
    assert (asks[1].logprobs or [])[:2] == [("He ", 0.0), ("was ", -0.6931)]


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        ({}, "sure doubtful end."),
        ({"theta": 0.2}, None),  # the least sure word has just this probability
        ({"beta": 0.2}, "sure doubtful unsure end."),
        ({"theta": 1.0, "beta": 1.0}, "sure end."),
        ({"queries": "asked", "query": " Where is Perth? \n"}, "Where is Perth?"),
        ({"queries": "asked"}, Q.question),  # an empty response
    ],
)
def test_flare_theta_decides_whether_and_beta_with_which_words_it_searches(
    settings: dict[str, Any], query: str | None
) -> None:
    written = "sure doubtful unsure end."
    sentences = ["One.", "sure doubtful@0.7 unsure@0.2 end.", *["Anew."] * bool(query), "Final answer: A"]
    played = play_flare(sentences, **settings)
    assert played.queries() == [Q.question, *filter(None, [query])]
    assert played.asked("flare_sentence", "text")[-1] == f"One.\n{'Anew.' if query else written}"
    asks = [FIELDS | {"text": "One.", "sentence": written}] if "queries" in settings else []
    assert played.llm.asked("flare_query") == asks


@pytest.mark.parametrize(
    ("sentences", "queries", "text", "reason"),
    [
        (["One.", "Two."], [], "One. Two.", "max_sentences"),
        (["One.", "One. Two."], [], "One.", NOTHING),  # a repetition
        ([" \n"], [], "(none)", NOTHING),
        (["Unsure@0.1 here.", ""], ["here."], "(none)", NOTHING),  # nothing when written anew
        (["All@0.1 unsure.@0.1", "One.", "One."], [Q.question], "One.", NOTHING),
        (["Final answer: <Dumfries>"], [], "Dumfries", REACHED),
        (["Final answer: He. Or@0.1 she.", "Final answer: I.\nYes."], ["Final answer: He. she."], "I.\nYes.", REACHED),
        (["桥由特尔福德建造。 他还活着@0.1 。", "最终答案：邓弗里斯"], [], "邓弗里斯", REACHED),
    ],
)
def test_flare_returns_an_answer_whole_and_without_one_answers_from_its_text(
    sentences: list[str], queries: list[str], text: str, reason: str
) -> None:
    question = Q if text.isascii() else ZH
    played = play_flare(sentences, lambda _: [], question=question, max_sentences=2)
    assert (played.stops(), played.queries()[1:], played.languages()) == ([reason], queries, {question.language})
    contexts = [] if reason == REACHED else [text]
    assert (played.asked("answer_short", "context"), played.answer) == (contexts, "A" if contexts else text)


def test_flare_drafts_without_passages_and_searches_only_where_a_draft_is_unsure() -> None:
    """FLARE, section 3.2: draft, and where a token is under theta, query, search and write anew from the passages."""
    drafts = ["Telford built it. He lived long.", "He was born@0.9 in@0.4 Perth@0.39 then.", "Final answer: Dumfries"]
    script = by_stage(flare_draft=drafts, flare_sentence=["He was born in Dumfries. So."])
    played = play(flare, script, {"He was born in then.": "ab"}, top_k=2)
    assert played.log == ["flare_draft", "flare_draft", "search", "flare_sentence", "flare_draft"]
    assert (played.answer, played.stops()) == ("Dumfries", [REACHED])
    first = "Telford built it."
    assert played.asked("flare_draft", "text") == ["(none)", first, f"{first}\nHe was born in Dumfries."]
    fields = FIELDS | {"form": FORM, "context": shown("a", "b"), "text": first}
    assert played.llm.asked("flare_sentence") == [fields]


# IRCoT


def test_ircot_searches_with_each_thought_and_the_reader_gets_the_passages_alone() -> None:
    thoughts = ["Telford built it. He was a Scot.", "Where was Telford born?\nI wonder.", "Final answer: Perth"]
    ids = {Q.question: "ab", "Telford built it.": "bc", "Where was Telford born?": "da"}
    played = play(ircot, by_stage(ircot_thought=thoughts, answer_short=["Dumfries"]), ids, top_k=2)
    assert played.log == [*["search", "ircot_thought"] * 3, "answer_short"]
    assert played.searches == [(query, 2) for query in ids]
    assert (played.answer, played.stops(), played.parse_failures()) == ("Dumfries", [REACHED], [])
    first, second = [*ids][1:]
    assert played.asked("ircot_thought", "context") == [shown(*names) for names in ("ab", "abc", "abcd")]
    assert played.asked("ircot_thought", "thoughts") == ["(none)", first, f"{first}\n{second}"]
    assert played.asked("ircot_thought", "form") == [FORM] * 3
    assert played.llm.asked("answer_short") == [FIELDS | {"context": shown(*"abcd")}]


@pytest.mark.parametrize(
    ("thoughts", "settings", "searches", "reason"),
    [
        (["Final answer:\nDumfries"], {}, 1, REACHED),
        (["So the final answer is: Perth."], {}, 1, REACHED),
        (["桥是谁建的？他是苏格兰人。", "最终答案：邓弗里斯"], {"question": ZH}, 2, REACHED),
        ([], {"max_steps": 0}, 1, "max_steps"),
        ([f"Thought {step}." for step in range(8)], {"max_passages": 99}, 9, "max_steps"),  # eight by default
        ([""], {}, 1, NOTHING),
        (["One.", "One. Two."], {}, 2, NOTHING),
    ],
)
def test_ircot_stops(thoughts: list[str], settings: dict[str, Any], searches: int, reason: str) -> None:
    script = by_stage(ircot_thought=thoughts, answer_short="A")
    played = play(ircot, script, lambda query: [query], **settings)
    assert (played.stops(), len(played.searches), played.answer) == ([reason], searches, "A")
    assert played.asked("answer_short", "context") == [shown(*played.queries())]


@pytest.mark.parametrize(
    ("limit", "second", "ids", "unread"),
    [
        (3, "cd", "abc", ["d"]),  # would go past it
        (4, "cd", "abcd", []),  # reaches it exactly
        (3, "bcd", "abc", ["d"]),  # what is known takes no place
        (2, None, "ab", []),  # starts with it: there is nothing to think about
    ],
)
def test_ircot_never_goes_past_max_passages(limit: int, second: str | None, ids: str, unread: list[str]) -> None:
    script = by_stage(ircot_thought=["One."], answer_short="A")
    played = play(ircot, script, {Q.question: "ab", "One.": second or ""}, max_passages=limit)
    assert played.log == ["search", *["ircot_thought", "search"] * bool(second), "answer_short"]
    assert (played.stops(), played.asked("answer_short", "context")) == (["max_passages"], [shown(*ids)])
    hits = [hit for event in played.trace if event.event == "search" for hit in event.hits]
    assert [hit.id for hit in hits if hit.unread] == unread
    assert count(played.trace).distinct_passages == limit
