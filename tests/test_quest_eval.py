"""RAGQuestEval: lists of answers, scores by hand, who is asked what, and the study."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_study
from rag_notes.events import Counts, ParseFailure, count
from rag_notes.files import SHIPPED
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.metrics.quest_eval import CANNOT_INFER, can_infer, parse_answers, quest_scores
from rag_notes.prompts.templates import Templates
from rag_notes.running.annotate import Subjects, quest_texts
from rag_notes.running.records import Condition, Run
from rag_notes.studies.base import study
from rag_notes.studies.quest_eval import QuestEval, quest_eval
from rag_notes.types import Question
from tests.made import make_info, make_run, make_sample
from tests.samples import samples
from tests.scripted import Q, ScriptedLLM, ScriptedRetriever, by_stage

NO, NO_ZH = CANNOT_INFER["en"], CANNOT_INFER["zh"]
NONE = {"q_gold": 1.0, "q_r": 0.0, "t_p": 0.0, "t_r": 0.0, "t_f1": 0.0}


@pytest.mark.parametrize(
    ("text", "answers", "complete"),
    [
        ("1. Ann\n2. 1904\n3. Ayr", ["Ann", "1904", "Ayr"], True),
        ("Ann\n\n1904\nAyr", ["Ann", "1904", "Ayr"], True),
        ("1) Ann\n(3) Ayr", ["Ann", NO, "Ayr"], False),  # too short: the missing one is not dropped
        ("Ann\n1904", ["Ann", "1904", NO], False),
        ("1. Ann\n2.\n3. Ayr", ["Ann", NO, "Ayr"], False),
        ("Here they are:\n1. Ann\n2. 1904\n3. Ayr", ["Ann", "1904", "Ayr"], True),
        ("1. Ann\n2. 1904\n3. Ayr\n4. more", ["Ann", "1904", "Ayr"], False),
        ("3.5 million\n10:30\nAyr", ["3.5 million", "10:30", "Ayr"], True),  # no numbers of questions
        ("1、王明\n2．一九〇四\n3：艾尔", ["王明", "一九〇四", "艾尔"], True),
        ("", [NO] * 3, False),
    ],
)
def test_lists_of_answers(text: str, answers: list[str], complete: bool) -> None:
    assert parse_answers(text, 3) == (answers, complete)


@pytest.mark.parametrize(
    ("answer", "language", "expected"),
    [
        ("Ann", "en", True),
        ("It cannot be inferred.", "en", False),
        ("CANNOT BE INFERRED", "en", False),
        ("", "en", False),
        ("。", "zh", False),
        ("无法推断。", "zh", False),
        ("王明", "zh", True),
    ],
)
def test_the_fixed_phrase_is_no_answer(answer: str, language: Any, expected: bool) -> None:
    assert can_infer(answer, language) is expected


def test_scores_by_hand() -> None:
    gold = ["Ann Lee", "in 1904", NO, "Ayr"]
    generated = ["Ann", "1904 in spring", "Bob", NO]
    scores = quest_scores(gold, generated)
    # The third is no question: the gold answer lacks its answer. The text answers two of the other three: precision
    # 1/1 and 2/3, recall 1/2 and 2/2, F1 2/3 and 4/5.
    assert scores == {
        "q_gold": 0.75,
        "q_r": pytest.approx(2 / 3),
        "t_p": pytest.approx((1 + 2 / 3) / 2),
        "t_r": pytest.approx((1 / 2 + 1) / 2),
        "t_f1": pytest.approx((2 / 3 + 4 / 5) / 2),
    }


def test_scores_where_little_is_known() -> None:
    assert quest_scores([], []) == {}
    assert quest_scores(["Ann"], [NO]) == NONE
    assert quest_scores([NO], ["Ann"]) == {"q_gold": 0.0}  # no question is left
    assert quest_scores(["Ann"], ["Bob"]) == NONE | {"q_r": 1.0}  # answered, without a token in common
    with pytest.raises(ValueError, match="gold has 1, generated 2"):
        quest_scores(["a"], ["a", "b"])


def test_chinese_answers_overlap_in_words() -> None:
    # Answers stay as they stand: the full stop is a token of its own, which one of the two lacks.
    scores = quest_scores(["北京大学。"], ["北京大学"], "zh")
    assert scores == {"q_gold": 1.0, "q_r": 1.0, "t_p": 1.0, "t_r": 0.5, "t_f1": pytest.approx(2 / 3)}
    assert quest_scores(["他喜欢茶"], ["他喜欢酒"], "zh")["t_f1"] == pytest.approx(2 / 3)


def annotate(answer: str, question: Question = Q, **script: Any) -> tuple[dict[str, Any], ScriptedLLM, Rag]:
    llm = ScriptedLLM(by_stage(**script))
    searcher = Searcher(ScriptedRetriever({}))
    rag = Rag(question, method="quest_eval", llm=llm, searcher=searcher, templates=Templates())
    about = {question.id: {"gold": "Ann built it in 1904.", "generated": answer}}
    return json.loads(asyncio.run(quest_eval(about, rag, question, sha256=""))), llm, rag


def test_the_model_asks_about_the_gold_answer_and_answers_from_both() -> None:
    made, llm, rag = annotate(
        "Ann did.",
        quest_questions="1. Who built it?\n2. When?",
        quest_answers=["1. Ann\n2. 1904", f"1. Ann\n2. {NO}"],
    )
    assert made == {
        "questions": ["Who built it?", "When?"],
        "gold": ["Ann", "1904"],
        "generated": ["Ann", NO],
        "scores": {"q_gold": 1.0, "q_r": 0.5, "t_p": 1.0, "t_r": 1.0, "t_f1": 1.0},
    }
    assert llm.asked("quest_questions") == [{"context": "Ann built it in 1904."}]
    questions = {"questions": "1. Who built it?\n2. When?", "unknown": NO}
    assert llm.asked("quest_answers") == [
        {"context": "Ann built it in 1904.", **questions},
        {"context": "Ann did.", **questions},
    ]
    assert count(rag.trace).parse_failures == 0


def test_a_list_that_is_too_short_is_counted_and_cannot_be_inferred() -> None:
    made, _, rag = annotate("Ann did.", quest_questions="Who?\nWhen?", quest_answers=["Ann\n1904", "Ann"])
    assert (made["generated"], made["scores"]["q_r"]) == (["Ann", NO], 0.5)
    assert [event.stage for event in rag.trace if isinstance(event, ParseFailure)] == ["quest_answers"]


def test_without_questions_there_are_no_scores_and_a_blank_text_answers_none() -> None:
    made, llm, rag = annotate("Ann did.", quest_questions=" ")
    assert (made["scores"], llm.log, count(rag.trace).parse_failures) == ({}, ["quest_questions"], 1)
    made, llm, _ = annotate("", quest_questions="Who?", quest_answers=["Ann"])
    assert (made["generated"], made["scores"], len(llm.log)) == ([NO], NONE, 2)


def test_chinese_questions_are_asked_in_chinese() -> None:
    made, llm, _ = annotate(
        "王明。",
        Question("z", "谁？", language="zh"),
        quest_questions="谁建的？",
        quest_answers=["1. 王明", "无法推断"],
    )
    assert (made["generated"], {ask.language for ask in llm.asks}) == ([NO_ZH], {"zh"})
    assert llm.asked("quest_answers")[0]["unknown"] == NO_ZH


def test_means_are_of_the_answers_that_have_the_metric() -> None:
    scores: dict[str, list[dict[str, float] | None]] = {
        "vanilla": [
            {"q_r": 1.0, "q_gold": 1.0, "t_p": 0.5, "t_r": 1.0, "t_f1": 0.5},
            {"q_r": 0.0, "q_gold": 1.0},
            {},
            None,  # could not be put to it
        ],
        "deepnote": [{"q_r": 1.0, "q_gold": 1.0}] * 4,
    }
    answers = make_run("crud", {method: {"em": [0.0] * 4} for method in scores})
    about = {method: {"sha256": Subjects(answers.of(method), quest_texts).sha256} for method in scores}
    annotations = [
        make_sample(
            *(method, f"q{i}", {}),
            answer=json.dumps({"scores": of}),
            error=None if of is not None else "gone",
            counts=Counts(parse_failures=1),
        )
        for method, of_method in scores.items()
        for i, of in enumerate(of_method)
    ]
    annotation = Run(make_info("crud", about, condition=Condition(annotates="quest_eval")), annotations)
    results = QuestEval(load_study("quest_eval", ["resamples=200"]), [answers, annotation])
    table: Any = results.table().set_index(["method", "metric"])
    assert table["n"].loc["vanilla"].to_dict() == {"q_r": 2, "t_p": 1, "t_r": 1, "t_f1": 1, "q_gold": 2}
    assert (table.loc[("vanilla", "q_r"), "mean"], table.loc[("vanilla", "t_p"), "mean"]) == (0.5, 0.5)
    compared = table.loc[("deepnote", "q_r")]
    assert (compared["difference"], compared["n_paired"]) == (0.5, 2)  # of the answers that both have a score
    failures = results.diagnostics()["parse failures"]  # RAGQuestEval's own stand beside those of the answers
    assert failures.tolist() == ["0", "0", "4", "4"]


def test_every_answer_is_put_to_it_and_missing_answers_are_counted(tmp_path: Path) -> None:
    options = [
        f"llm.recordings=[{SHIPPED / 'data' / 'recordings' / 'mini.jsonl.xz'}]",
        *("~study.variants.vanilla_k3", "method=[vanilla]", f"runs={tmp_path}", "retriever.cache=null"),
    ]
    results = asyncio.run(study("quest_eval", *options, dataset="mini_zh", limit=1, progress=False))
    assert results.table().empty  # the answer alone is recorded
    annotations = results.runs[1]
    assert list(results.overview()["missing"]) == [0, 1]
    assert "stage quest_questions of vanilla on" in annotations.frame()["error"][0]
    assert {path.name.split("-Qwen")[0] for path in tmp_path.iterdir()} == {"mini_zh", "mini_zh-quest_eval"}


@pytest.mark.parametrize("documents", ["1Doc", "2Docs", "3Docs"])
def test_the_official_answers_are_scored(documents: str) -> None:
    path = samples(f"crud/QuestAnswer{documents}_quest_gt.sample60.json")
    records = list(json.loads(path.read_text(encoding="utf-8")).values())
    assert len(records) == 60
    for record in records:
        answers = record["answers"][: len(record["question"])]
        answers += [NO_ZH] * (len(record["question"]) - len(answers))
        known = [answer for answer in answers if answer.strip(" 。") not in ("无法推断", "")]
        scores = quest_scores(answers, answers, "zh")
        assert scores["q_gold"] == pytest.approx(len(known) / len(answers))
        if known:
            assert scores["q_r"] == scores["t_p"] == scores["t_r"] == scores["t_f1"] == 1.0
