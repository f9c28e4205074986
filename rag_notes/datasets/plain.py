"""A data set of one's own: JSON Lines whose keys are the fields of `Question` and `Passage`."""

import difflib
from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar, get_args

from rag_notes.datasets._build import Entry, build
from rag_notes.datasets._read import Record, read_jsonl
from rag_notes.datasets.corpus_file import CorpusFile
from rag_notes.types import Dataset, Language, Name, Passage, QAPair, Question, Task

_QUESTION_FIELDS = tuple(field.name for field in fields(Question))
_PASSAGE_FIELDS = tuple(field.name for field in fields(Passage))
_PAIR_FIELDS = tuple(field.name for field in fields(QAPair))
_TASKS: tuple[Task, ...] = get_args(Task)
_LANGUAGES: tuple[Language, ...] = get_args(Language)

Option = TypeVar("Option", bound=str)


def plain(path: str, *, name: Name = "plain", corpus: str | None = None) -> Dataset:
    """Read one's own questions and passages.

    A line of the questions file needs `id` and `question`, any other field of `Question` is optional; a line of the
    corpus file needs `id` and `text`, `title` is optional. Without a corpus file the corpus is empty. Raises
    `DataError` on a key that is not a field, and on gold ids or titles that the corpus does not hold.
    """
    records = [(record, _question(record)) for record in read_jsonl(path, f"dataset.{name}.path")]
    passages = None if corpus is None else _passages(corpus, name, records)
    return build(name, path, (Entry(record.place, question) for record, question in records), passages)


def _passages(corpus: str, name: str, records: Sequence[tuple[Record, Question]]) -> Sequence[Passage]:
    """The passages of a corpus that has all gold ids and titles of the questions."""
    ids = {name for _, question in records for name in question.gold_ids}
    titles = {title for _, question in records for title in question.gold_titles}
    known_ids, known_titles = set(), set()
    for record in read_jsonl(corpus, f"dataset.{name}.corpus"):
        _check_keys(record, _PASSAGE_FIELDS)
        known_ids |= ids & {record.text("id")}
        known_titles |= titles & {record.title("title") if record.has("title") else ""}
    file = CorpusFile(corpus, f"dataset.{name}.corpus").checked()
    for record, question in records:
        _check_known(record, "gold_ids", question.gold_ids, known_ids, corpus)
        _check_known(record, "gold_titles", question.gold_titles, known_titles, corpus)
    return tuple(file) if corpus.endswith((".gz", ".bz2")) else file  # only a plain file can be read at any place


def _question(record: Record) -> Question:
    _check_keys(record, _QUESTION_FIELDS)
    pairs = record.objects_if_any("qa_pairs")
    for pair in pairs:
        _check_keys(pair, _PAIR_FIELDS)
    return Question(
        id=record.text("id"),
        question=record.text("question"),
        answers=_optional_texts(record, "answers"),
        qa_pairs=tuple(QAPair(pair.text("question"), pair.texts("answers")) for pair in pairs),
        gold_titles=_optional_texts(record, "gold_titles"),
        gold_ids=_optional_texts(record, "gold_ids"),
        task=_one_of(record, "task", _TASKS),
        type=record.title("type") if record.has("type") else "",
        hops=record.integer("hops") if record.has("hops") else 0,
        language=_one_of(record, "language", _LANGUAGES),
    )


def _optional_texts(record: Record, field: str) -> tuple[str, ...]:
    return record.texts(field, at_least=0) if record.has(field) else ()


def _one_of(record: Record, field: str, options: tuple[Option, ...]) -> Option:
    """Return the option that the field names, the first one where the record does not have the field."""
    if not record.has(field):
        return options[0]
    for option in options:
        if record.text(field) == option:
            return option
    raise record.error(field, f"expected one of {', '.join(options)}, found {record.text(field)!r}")


def _check_keys(record: Record, known: tuple[str, ...]) -> None:
    for key in record.values:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise record.error(key, f"is not a known field, did you mean '{nearest}'? (known: {', '.join(known)})")


def _check_known(record: Record, field: str, values: tuple[str, ...], known: set[str], corpus: str) -> None:
    for value in values:
        if value not in known:
            raise record.error(field, f"expected passages of {corpus}, found {value!r}")
