"""What a method's file says of it is true whichever way the model answers, and nonsense ends it with a record."""

import asyncio
import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import pytest
import yaml

from rag_notes.config import build_llm, build_methods, load_config
from rag_notes.events import count
from rag_notes.files import SHIPPED
from rag_notes.methods.about import ANSWER_FORMAT, About, Family, about_of, label_of, settings_of
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag
from rag_notes.methods.recomp import extract, recomp
from rag_notes.options import CONF, choices
from rag_notes.prompts.templates import SETS, Templates
from rag_notes.running.evaluate import evaluate
from rag_notes.types import Dataset, Language, QAPair, Question, Task
from tests.scripted import NO, YES, Ask, ScriptedLLM, ScriptedRetriever, play

METHODS = build_methods(load_config([f"method=[{','.join(choices('method'))}]"]))
FUNCTIONS = {method.func.__name__: method.func for method in METHODS.values()}  # type: ignore[attr-defined]

# Models that keep every loop going to its end, that end each at once, and that take the way between.
MODELS: dict[str, dict[str, str]] = {
    "goes on": {
        **{"note_judge": YES, "amber_chunk_filter": "useful", "amber_sufficient": NO, "grade_passage": "3"},
        **{"amber_query": "New question: And {n}?", "self_rag_supported": NO, "self_rag_useful": NO, "complexity": "C"},
        **{"react": "Action: search[{n}]", "rat_draft": "\n".join(f"Step {number}." for number in range(6))},
        **{"flare_draft": "Unsure@0.1 {n}.", "flare_sentence": "Unsure@0.1 {n}."},
    },
    "gives up": {
        **{"note_judge": NO, "amber_chunk_filter": "useless", "amber_sufficient": YES, "grade_passage": "0"},
        **{"complexity": "A", "react": "Action: finish[A]", "recomp_summary": "none", "rat_draft": ""},
        **{"flare_draft": "Final answer: A", "ircot_thought": "Final answer: A"},
    },
    "halts": {
        **{"note_judge": NO, "amber_chunk_filter": "useful", "amber_sufficient": YES, "grade_passage": "1"},
        **{"self_rag_supported": YES, "self_rag_useful": YES, "complexity": "B"},
    },
}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "flare": [{}, {"queries": "asked"}, {"draft_with_passages": True}],
    "recomp": [{}, {"compressor": "abstractive"}],
    "adaptive_note": [{}, {"reviewer": False}],
    "amber": [{}, {"reviewer_memory": True}, {"agents": False}, {"chunk_filter": False, "sentence_filter": False}],
}


def answering(model: dict[str, str]) -> Callable[[Ask], str]:
    """What a model says at each stage, numbered where it should not say the same twice."""
    numbers = itertools.count(1)
    return lambda ask: model.get(ask.stage, "Sentence {n}.").replace("{n}", str(next(numbers)))


@pytest.mark.parametrize("prompts", SETS)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_method_asks_with_the_prompts_that_it_names_and_no_more_often_than_it_says(name: str, prompts: str) -> None:
    method = FUNCTIONS[name]
    about, stages = about_of(method), set[str]()
    assert about.calls and about.prompts
    for settings in SETTINGS.get(name, [{}]):
        calls = []
        for model, task in itertools.product(MODELS.values(), get_args(Task)):
            question = Question("q", "Who built it?", task=task)
            played = play(method, answering(model), question=question, prompts=prompts, **settings)
            stages |= {ask.stage for ask in played.llm.asks}
            calls.append(count(played.trace).calls)
        assert max(calls) == about.calls(settings_of(method) | settings)  # the bound is reached
    assert stages == set(about.prompts) - {*ANSWER_FORMAT, "unknown_clause"}


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_says_of_itself_fits_its_settings_and_the_prompts_there_are(name: str) -> None:
    about, settings = about_of(METHODS[name]), settings_of(METHODS[name])
    assert about.label and about.source and about.family in get_args(Family)
    assert set(about.limits) <= set(settings)
    for part in about.parts.values():
        others = settings_of(METHODS[part["method"]]) if "method" in part else settings
        assert set() < set(part) <= {"method", *others}
    prompts = about.prompts or ()
    assert len(set(prompts)) == len(prompts) > 0
    takes_form = any("{form}" in Templates().text(prompt) for prompt in prompts)
    assert takes_form == (set(ANSWER_FORMAT) <= set(prompts))


async def one_note(rag: Rag, question: Question, *, top_k: int = 5) -> str:
    return ""


def test_labels_and_settings_are_those_of_the_function_and_of_what_is_bound_to_it() -> None:
    assert set(load_config(["llm=openai"]).method) == set(choices("method"))
    labels = [about_of(method).label for method in METHODS.values()]
    assert len(set(labels)) == len(labels)
    assert about_of(recomp).label == "RECOMP (TF-IDF)"
    assert about_of(partial(partial(recomp, compressor="abstractive"), top_k=3)).label == "RECOMP (abstractive)"
    settings = settings_of(partial(deepnote, max_step=1))
    assert (settings["max_step"], settings["max_failure"]) == (1, 2)
    assert about_of(one_note) == about_of(partial(one_note, top_k=3)) == About(label="one note")
    assert about_of(extract).label == "extract"  # not the method of its file


def test_a_name_is_shown_as_its_methods_label_with_what_it_adds() -> None:
    labels = {"vanilla": "Vanilla RAG", "deepnote_2_1": "DeepNote (2-1)", "amber_without_cf": "Amber (without cf)"}
    labels |= {"recomp": "RECOMP", "recomp_abstractive": "RECOMP (abstractive)"}  # the settings say which, not the name
    labels |= {"rag_parse": "rag parse", "a.b": "a.b", "": ""}  # files of no method
    assert {name: label_of(name) for name in labels} == labels


def test_presets_and_studies_set_what_the_papers_say() -> None:
    config = load_config(["preset=crud"])  # Adaptive-Note, Retriever & Corpus
    corpus = yaml.safe_load((CONF / "corpus" / "crud.yaml").read_text(encoding="utf-8"))
    assert [settings["corpus"] for settings in config.dataset.values()] == [corpus["out"]]
    assert corpus["chunk_size"] == 512
    assert {settings["top_k"] for name, settings in config.method.items() if name != "no_retrieval"} == {2}
    llm = build_llm(load_config(["preset=greedy"]))  # Chain-of-Note, Appendix A.4
    greedy = {name: llm.of(name).sampling["temperature"] for name in ("chain_of_note", "retrieve_read", "answer_short")}
    assert greedy == {"chain_of_note": 0.0, "retrieve_read": 0.0, "answer_short": 0.1}
    config = load_config(["study=robustness", "method=[vanilla,retrieve_read,chain_of_note]"])
    unknown = [name for name, settings in config.method.items() if settings.get("unknown")]
    assert unknown == ["vanilla_unknown", "retrieve_read_unknown", "chain_of_note_unknown"]


def test_the_page_of_deviations_names_settings_as_they_are_by_default() -> None:
    named = set(re.findall(r"`(\w+: \w+)`", (SHIPPED / "docs" / "papers.md").read_text(encoding="utf-8")))
    defaults = [settings_of(method).items() for method in METHODS.values()]
    assert named >= {"queries: joined", "max_passages: null", "filter_query: question", "reviewer_memory: false"}
    assert named <= {f"{name}: {yaml.safe_dump(value).split()[0]}" for items in defaults for name, value in items}


# Stages whose response must have a form that no nonsense has.
NEVER_NONSENSE = {
    *("note_judge", "chain_of_note", "chain_of_thought", "self_rerank", "grade_passage", "complexity", "react"),
    *("self_rag_supported", "self_rag_useful", "amber_chunk_filter", "amber_sentence_filter", "amber_sufficient"),
}


@pytest.mark.parametrize("text", ["", " \n ", "{}", "@@ {question} </s> \x00 ]", "True and False\n" * 50])
@pytest.mark.parametrize("passages", ["", "abcdef"])
def test_nonsense_ends_every_method_with_a_record(text: str, passages: str) -> None:
    pairs, questions = (QAPair("Q?", ("yes",)),), []
    for task, language in itertools.product(get_args(Task), get_args(Language)):
        questions.append(Question(f"{task}-{language}", "Q?", ("yes",), pairs, task=task, language=language))
    llm, retriever = ScriptedLLM(lambda _: text), ScriptedRetriever(lambda _: passages)
    dataset = Dataset("nonsense", tuple(questions), ())
    run = asyncio.run(evaluate(build_methods(load_config()), dataset, retriever, llm, progress=False))
    for sample in run.samples:
        assert sample.error is None
        assert sample.counts.empty_responses == (0 if text.strip() else sample.counts.calls)
        assert all(event.response == text for event in sample.trace if event.event == "ask")
        stages = [event.stage for event in sample.trace if event.event == "ask"]
        assert len(stages) <= 60
        unread = [event.stage for event in sample.trace if event.event == "parse_failure"]
        assert all(stages.count(stage) == unread.count(stage) for stage in set(stages) & NEVER_NONSENSE)
