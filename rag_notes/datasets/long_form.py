"""Long-form answers: ASQA with its pairs of questions and short answers, and CRUD's questions on Chinese news."""

from collections.abc import Iterator
from typing import Literal

from rag_notes.datasets._build import Entry, Paragraph, build, paragraph_of
from rag_notes.datasets._read import Record, read_json_list, read_json_object
from rag_notes.types import Dataset, Name, QAPair, Question

_CRUD_DOCUMENTS = {"questanswer_1doc": 1, "questanswer_2docs": 2, "questanswer_3docs": 3}


def asqa(path: str, *, name: Name = "asqa", corpus: str | None = None) -> Dataset:
    """Read ASQA (Stelmakh et al., 2022) as ALCE (Gao et al., 2023) lays it out: one JSON list.

    `answers` stay empty, since `qa_pairs` mark the answer. ALCE's `docs` (`id`, `title`, `text`), where a record has
    them, are its paragraphs. A question is named by `id` or `sample_id`, else by its position from "asqa-1" on.
    """
    return build(name, path, _asqa_entries(path, name), corpus)


def _asqa_entries(path: str, name: str) -> Iterator[Entry]:
    for index, record in enumerate(read_json_list(path, f"dataset.{name}.path"), start=1):
        id_field = record.first_of("id", "sample_id")
        pairs = tuple(QAPair(pair.text("question"), pair.texts("short_answers")) for pair in record.objects("qa_pairs"))
        if not pairs:
            raise record.error("qa_pairs", "expected at least one pair of a question and its short answers")
        question = Question(
            id=record.identifier(id_field) if record.has(id_field) else f"{name}-{index}",
            question=record.text("question"),
            qa_pairs=pairs,
            task="long_form",
        )
        yield Entry(record.place, question, [paragraph_of(doc) for doc in record.objects_if_any("docs")])


def crud(
    path: str,
    *,
    name: Name = "crud",
    split: Literal["questanswer_1doc", "questanswer_2docs", "questanswer_3docs", "all"] = "all",
    corpus: str | None = None,
) -> Dataset:
    """Read the question-answering tasks of CRUD-RAG (Lyu et al., 2024) from its split_merged.json.

    `split` is one of the three tasks, or all of them in this order; it is the `type` of a question, and its number of
    documents precedes the id ("2docs-..."), because the tasks share ids. The news that a question was made from are
    its gold passages, without titles. The pool holds the news of all three tasks; `corpus` takes CRUD's folder of
    80,000 news, one a line.
    """
    file = read_json_object(path, f"dataset.{name}.path")
    entries = [_crud_entry(record, task) for task in _CRUD_DOCUMENTS for record in file.objects(task)]
    chosen = [entry for entry in entries if split in ("all", entry.question.type)]
    return build(name, path, chosen, corpus, (news for entry in entries for news in entry.support))


def _crud_entry(record: Record, task: str) -> Entry:
    news = [Paragraph("", record.text(f"news{number}").strip()) for number in range(1, _CRUD_DOCUMENTS[task] + 1)]
    question = Question(
        id=f"{task.removeprefix('questanswer_')}-{record.identifier('ID')}",
        question=record.text("questions"),
        answers=(record.text("answers"),),
        task="news",
        type=task,
        language="zh",
    )
    return Entry(f"{record.place}, {record.prefix.removesuffix('.')}", question, support=list(dict.fromkeys(news)))
