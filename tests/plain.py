"""A data set of two questions of one's own and a recording of what is asked of it, for tests of commands."""

import json
from pathlib import Path
from typing import Any

from rag_notes.cli import main
from rag_notes.events import Ask
from rag_notes.llm.client import LLM
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.running.records import load_run

ANSWER = Response("Rouen", "stop", 10, 1, seconds=0.5)
QUESTIONS = [
    {"id": "one", "question": "Where was Géricault born?", "answers": ["Rouen"]},
    {"id": "two", "question": "Where did Bizet die?", "answers": ["Bougival"]},
]


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def record(path: Path, *prompts: str) -> Path:
    """A recording with an answer to each prompt, asked as llm=recorded asks with the settings below."""
    store = ResponseStore(":memory:")
    for prompt in prompts:
        store.put(LLM("tiny", store=store).request(prompt), ANSWER)
    store.export_jsonl(path)
    return path


def plain_options(folder: Path) -> list[str]:
    """The two questions with an empty recording; everything is written below `folder`."""
    lines(folder / "questions.jsonl", *QUESTIONS)
    lines(folder / "passages.jsonl", {"id": "p", "title": "Géricault", "text": "He was born in Rouen."})
    return [
        f"dataset.plain.path={folder / 'questions.jsonl'}",
        f"dataset.plain.corpus={folder / 'passages.jsonl'}",
        "retriever.cache=null",
        "llm.model=tiny",
        "llm.max_tokens=1280",
        "llm.cache=null",
        f"llm.recordings=[{record(folder / 'recording.jsonl')}]",
        f"runs={folder / 'runs'}",
        f"figures={folder / 'figures'}",
        "resamples=100",
    ]


def run_folder(folder: Path) -> Path:
    """The only run below `folder`."""
    (only,) = (folder / "runs").iterdir()
    return only


def record_what_was_asked(folder: Path) -> None:
    """Give the recording an answer to every prompt that the run below `folder` asked in vain."""
    events = [event for sample in load_run(run_folder(folder)).samples for event in sample.trace]
    record(folder / "recording.jsonl", *(event.prompt for event in events if isinstance(event, Ask)))


def finished_run(folder: Path) -> list[str]:
    """Make a run of the two questions by two methods, from a recording of what it asks; returns its options."""
    options = ["dataset=plain", *plain_options(folder), "method=[no_retrieval,vanilla]"]
    assert main(["run", *options]) == 1  # what is asked is not recorded yet
    record_what_was_asked(folder)
    assert main(["run", *options]) == 0
    return options
