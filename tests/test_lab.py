"""`import rag_notes as rn`: what a notebook or a script does with it."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rag_notes as rn
from rag_notes.datasets.corpus import DataError
from rag_notes.files import SHIPPED
from rag_notes.parts import ConfigError
from rag_notes.running.records import Run
from tests.plain import plain_options

QUESTIONS = [
    {"id": "one", "question": "Where was Géricault born?", "answers": ["Rouen"], "gold_ids": ["p"]},
    {"question": "Where did Bizet die?", "answers": ["Bougival"]},
]
PASSAGES = [{"id": "p", "title": "Géricault", "text": "He was born in Rouen."}, {"text": "Bizet died in Bougival."}]


async def parrot(rag: rn.Rag, question: rn.Question, *, word: str = "Rouen") -> str:
    return rag.note(word, kept=True)


@pytest.fixture
def lab(tmp_path: Path) -> rn.Lab:
    return rn.open("plain", *plain_options(tmp_path))


def run(lab: rn.Lab, *arguments: Any) -> Run:
    return asyncio.run(lab.run(*arguments, progress=False))


def test_a_lab_says_what_is_in_it_and_shows_what_it_finds(tmp_path: Path) -> None:
    lab = rn.open(questions=QUESTIONS, passages=PASSAGES)
    assert repr(lab) == "Lab('own': 2 questions, 2 passages, bm25, Qwen2.5-Coder-1.5B-Instruct)"
    assert lab.question("1").question == "Where did Bizet die?"
    hits = lab.search("Where was Géricault born?")
    assert (hits["id"].tolist()[0], hits["gold"].tolist()[0]) == ("p", True)
    assert not lab.search("Where did Bizet die?")["gold"].any()


def test_questions_and_passages_of_ones_own_are_lists_or_frames() -> None:
    lists = rn.open(questions=QUESTIONS, passages=PASSAGES, limit=1)
    frames = rn.open(questions=pd.DataFrame(QUESTIONS), passages=pd.DataFrame(PASSAGES), limit=1)
    assert lists.dataset == frames.dataset
    assert [question.id for question in lists.dataset.questions] == ["one"]
    assert lists.dataset.corpus[1] == rn.Passage("1", "", "Bizet died in Bougival.")


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        (
            [{"question": "Q?", "anwsers": ["x"]}],
            "questions, row 0: `anwsers` is not a field, did you mean `answers`",
        ),
        ([{"question": "Q?"}, {"id": "x"}], "questions, row 1: Object missing required field `question`"),
        ([{"question": "Q?", "task": "long"}], "questions, row 0: Invalid enum value 'long' - at `$.task`"),
    ],
)
def test_a_row_that_does_not_fit_is_named(questions: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError) as error:
        rn.open(questions=questions)
    assert message in str(error.value)


def test_a_method_is_a_name_a_function_a_partial_or_a_mapping(lab: rn.Lab) -> None:
    first = run(lab, [parrot], 1)
    assert [(sample.method, sample.answer) for sample in first.samples] == [("parrot", "Rouen")]
    named = run(lab, {"polly": partial(parrot, word="Bougival")}, ["two"])
    assert [(sample.method, sample.question.id, sample.answer) for sample in named.samples] == [
        ("polly", "two", "Bougival")
    ]
    variants = run(lab, ["vanilla", {"method": "vanilla", "top_k": 1}])
    assert variants.methods == ["vanilla", "vanilla_top_k_1"]
    assert variants.info.methods["vanilla_top_k_1"].settings["top_k"] == 1


def test_a_run_is_a_frame_and_is_read_again(lab: rn.Lab) -> None:
    made = run(lab, [parrot])
    assert made.folder is not None
    again = rn.load(made.folder)
    pd.testing.assert_frame_equal(again.frame(), made.frame())
    assert again.frame()["em"].tolist() == [1, 0]


def test_what_there_is_not_is_named_with_what_there_is(lab: rn.Lab, tmp_path: Path) -> None:
    for methods, message in (
        (["deepnot"], "method=deepnot: no such method; there is deepnote"),
        ([{"method": "deepnote", "max_stp": 1}], "method.deepnote.max_stp: no such option; did you mean max_step"),
        ([{"method": "deepnote", "max_step": "x"}], "method.deepnote.max_step: Input should be a valid integer"),
    ):
        with pytest.raises(ConfigError) as error:
            run(lab, methods)
        assert message in str(error.value)
    with pytest.raises(ConfigError, match="plain has no question 'twoo'; did you mean two"):
        run(lab, [parrot], ["one", "twoo"])
    with pytest.raises(ConfigError, match="dataset=hotpot: no such dataset; there is hotpotqa"):
        rn.open("hotpot")
    with pytest.raises(ConfigError, match="a lab has one data set"):
        rn.open("[plain,mini]", *plain_options(tmp_path))
    with pytest.raises(AttributeError, match="rag_notes has no 'tabel'; did you mean table"):
        rn.tabel  # noqa: B018


def test_a_question_of_ones_own_is_asked_and_its_trace_shown(lab: rn.Lab) -> None:
    trace = asyncio.run(lab.ask("Who was born in Rouen?", parrot))
    assert "Who was born in Rouen?" in repr(trace)
    assert "Rouen" in trace._repr_html_()


def test_a_run_is_shown_as_table_trace_and_comparison(lab: rn.Lab) -> None:
    made = run(lab, {"vanilla": parrot, "other": parrot})
    assert "Vanilla RAG" in rn.table(made)._repr_html_()
    assert "50.0" in repr(rn.table(made, metrics=["em"]))
    assert "Where did Bizet die?" in rn.trace(made, "other", "two")._repr_html_()
    comparison = rn.compare(made, "vanilla", "other")
    (em,) = comparison.table[comparison.table["metric"] == "em"].to_dict("records")
    assert em["difference"] == 0


def test_missing_answers_are_said_in_the_caption(lab: rn.Lab) -> None:
    assert '2 of 2 answers of vanilla are missing: not recorded; use llm="openai"' in repr(
        rn.table(run(lab, ["vanilla"]))
    )


def test_what_there_is_is_listed() -> None:
    assert {"deepnote", "vanilla"} <= set(rn.methods()["method"])
    assert {"mini", "world", "hotpotqa"} <= set(rn.datasets()["dataset"])
    assert {"main_results", "cost"} <= set(rn.studies()["study"])
    assert not rn.studies()["about"].str.len().eq(0).any()


def test_completion_shows_the_public_names_and_nothing_else() -> None:
    assert [name for name in dir(rn) if not name.startswith("_")] == sorted(rn.__all__)
    for name in rn.__all__:
        assert getattr(rn, name) is not None


def test_importing_loads_neither_tables_nor_figures() -> None:
    slow = "{'pandas', 'matplotlib', 'scipy', 'sklearn', 'torch', 'openai', 'tantivy', 'hydra'}"
    code = f"import sys, rag_notes; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SHIPPED)
    assert done.stdout == "set()\n"
