"""Formats that hold many data sets: the release of IRCoT and FlashRAG's collection."""

from collections.abc import Iterator

from rag_notes.datasets._build import Entry, build
from rag_notes.datasets._read import read_jsonl
from rag_notes.datasets.multihop import hops_of, supported_paragraphs
from rag_notes.types import Dataset, Name, Question, Task


def ircot(path: str, *, name: Name = "ircot", corpus: str | None = None) -> Dataset:
    """Read a data set of the IRCoT release (Trivedi et al., 2023), JSON Lines.

    `answers` are the spans of all `answers_objects`; `contexts` are the paragraphs, whose `is_supporting` makes gold
    passages. `type` is the record's own where it has one; MuSiQue's ids give type and hops.
    """
    return build(name, path, _ircot_entries(path, name), corpus)


def _ircot_entries(path: str, name: str) -> Iterator[Entry]:
    for record in read_jsonl(path, f"dataset.{name}.path"):
        answers = dict.fromkeys(span for item in record.objects("answers_objects") for span in item.texts("spans"))
        if not answers:
            raise record.error("answers_objects", "expected at least one object with spans")
        question_id = record.identifier("question_id")
        kind, hops = hops_of(question_id)
        question = Question(
            id=question_id,
            question=record.text("question_text"),
            answers=tuple(answers),
            type=record.text("type") if record.has("type") else kind,
            hops=hops,
        )
        paragraphs, support = supported_paragraphs(record, "contexts")
        yield Entry(record.place, question, paragraphs, support)


def flashrag(
    path: str,
    *,
    name: Name = "flashrag",
    task: Task = "short",
    corpus: str | None = None,
) -> Dataset:
    """Read a data set of FlashRAG's collection (Jin et al., 2024), JSON Lines with `id`, `question`, `golden_answers`.

    `metadata.type` and `metadata.supporting_facts.title`, where a record has them, are `type` and `gold_titles`.
    The passages are in a file of their own (`corpus`): without it the corpus is empty.
    """
    return build(name, path, _flashrag_entries(path, name, task), corpus)


def _flashrag_entries(path: str, name: str, task: Task) -> Iterator[Entry]:
    for record in read_jsonl(path, f"dataset.{name}.path"):
        kind = ""
        titles: tuple[str, ...] = ()
        if record.has("metadata"):
            metadata = record.object("metadata")
            kind = metadata.text("type") if metadata.has("type") else ""
            if metadata.has("supporting_facts"):
                titles = metadata.object("supporting_facts").texts("title", at_least=0)
        question = Question(
            id=record.identifier("id"),
            question=record.text("question"),
            answers=record.texts("golden_answers"),
            gold_titles=titles,
            task=task,
            type=kind,
        )
        yield Entry(record.place, question)
