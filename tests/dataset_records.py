"""The smallest records that the data sets' files may have, and how a broken file is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_notes.datasets import DataError
from rag_notes.types import Dataset

Loader = Callable[..., Dataset]

HOTPOT = {
    "_id": "h1",
    "question": "q",
    "answer": "a",
    "type": "bridge",
    "supporting_facts": [["T", 0]],
    "context": [["T", ["text"]]],
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "q",
    "answer": "a",
    "answer_aliases": [],
    "answerable": True,
    "paragraphs": [{"title": "T", "paragraph_text": "x", "is_supporting": True}],
}
STRATEGY = {"qid": "s", "question": "q", "answer": True, "evidence": [[[["T-1"]]]]}
ASQA = {"id": "a", "question": "q", "qa_pairs": [{"question": "p", "short_answers": ["s"]}]}
SIMPLE = {"id": "1", "question": "q", "answers": ["a"]}
REALTIME = {"question_id": "w_0", "question_sentence": "q", "choices": ["x", "y"], "answer": ["1"]}
IRCOT = {
    "question_id": "i",
    "question_text": "q",
    "answers_objects": [{"spans": ["a"]}],
    "contexts": [{"title": "T", "paragraph_text": "x", "is_supporting": True}],
}
FLASHRAG = {"id": "f", "question": "q", "golden_answers": ["a"], "metadata": {}}
PLAIN = {"id": "1", "question": "q"}
MISSING = object()


def changed(record: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (record | changes).items() if value is not MISSING}


def as_list(path: Path, *records: Any) -> str:
    path.write_text("[\n" + ",\n\n".join(map(json.dumps, records)) + "]", encoding="utf-8")
    return str(path)


def as_lines(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def refused(message: str, loader: Loader, path: str, **options: Any) -> None:
    with pytest.raises(DataError) as error:
        loader(path, **options)
    assert str(error.value).replace(str(Path(path).parent) + "/", "") == message
