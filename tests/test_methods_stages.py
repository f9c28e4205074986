"""What a method's file says of its prompts and calls is what it does, whichever way the model answers."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from rag_notes.config import build_methods, load_config
from rag_notes.events import count
from rag_notes.methods.about import ANSWER_FORMAT, about_of, settings_of
from rag_notes.prompts.templates import SETS
from rag_notes.types import Question, Task
from tests.scripted import Ask, play

METHODS = {name: method.func for name, method in build_methods(load_config()).items()}  # type: ignore[attr-defined]
YES, NO = '{"status": "True"}', '{"status": "False"}'
SIX_LINES = "\n".join(f"Step {number}." for number in range(6))

# Models that keep every loop going to its end, that end each at once, and that take the way between.
MODELS: dict[str, dict[str, str]] = {
    "goes on": {
        "note_judge": YES,
        "amber_chunk_filter": '{"result": "useful"}',
        "amber_sufficient": NO,
        "amber_query": "New question: And {n}?",
        "grade_passage": "3",
        "self_rag_supported": NO,
        "self_rag_useful": NO,
        "complexity": "C",
        "react": "Action: search[{n}]",
        "rat_draft": SIX_LINES,
        "flare_draft": "Unsure@0.1 {n}.",
        "flare_sentence": "Unsure@0.1 {n}.",
    },
    "gives up": {
        "note_judge": NO,
        "amber_chunk_filter": '{"result": "useless"}',
        "amber_sufficient": YES,
        "grade_passage": "0",
        "complexity": "A",
        "react": "Action: finish[A]",
        "recomp_summary": "none",
        "rat_draft": "",
        "flare_draft": "Final answer: A",
        "ircot_thought": "Final answer: A",
    },
    "halts": {
        "note_judge": NO,
        "amber_chunk_filter": "useful",
        "amber_sufficient": YES,
        "grade_passage": "1",
        "self_rag_supported": YES,
        "self_rag_useful": YES,
        "complexity": "B",
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


def plays(method: Any, prompts: str) -> Iterator[tuple[dict[str, Any], list[str], int]]:
    """All plays of a method: its settings, the stages asked, and the number of calls."""
    tasks = [Question("q", "Who built it?", task=task) for task in get_args(Task)]
    for settings in SETTINGS.get(method.__name__, [{}]):
        for model, question in itertools.product(MODELS.values(), tasks):
            played = play(method, answering(model), question=question, prompts=prompts, **settings)
            stages = [event.stage for event in played.trace if event.event == "ask"]
            yield settings, stages, count(played.trace).calls


@pytest.mark.parametrize("prompts", SETS)
@pytest.mark.parametrize("name", sorted({method.__name__ for method in METHODS.values()}))
def test_a_method_asks_with_the_prompts_that_it_names_and_no_more_often_than_it_says(name: str, prompts: str) -> None:
    method = METHODS[name]
    about = about_of(method)
    assert about.prompts is not None
    assert about.calls is not None
    asked: set[str] = set()
    most: dict[str, int] = {}
    for settings, stages, calls in plays(method, prompts):
        assert calls <= about.calls(settings_of(method) | settings)
        asked |= set(stages)
        most[str(settings)] = max(most.get(str(settings), 0), calls)
    assert asked == set(about.prompts) - {*ANSWER_FORMAT, "unknown_clause"}
    bounds = {str(settings): about.calls(settings_of(method) | settings) for settings in SETTINGS.get(name, [{}])}
    assert most == bounds  # each bound is reached
