"""Single-hop question answering: SQuAD, NQ-open, TriviaQA, WebQuestions and RealTimeQA."""

import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import unquote

from rag_notes.datasets._build import Entry, Paragraph, build, paragraph_of
from rag_notes.datasets._read import DataError, Record, read_json_object, read_jsonl
from rag_notes.datasets.selection import asked
from rag_notes.types import Dataset, Name, Question

_DOCUMENT = re.compile(r"Document \d+ ?\(Title: (.*?)\): (.*)", re.DOTALL)


def squad(path: str, *, name: Name = "squad", corpus: str | None = None) -> Dataset:
    """Read SQuAD 1.1's JSON (Rajpurkar et al., 2016); a question's gold passage is its paragraph.

    Titles are written as in a text ("Super Bowl 50"), not as in an address ("Super_Bowl_50").
    """
    entries, paragraphs = [], []
    for article in read_json_object(path, f"dataset.{name}.path").objects("data"):
        title = unquote(article.text("title")).replace("_", " ")
        for item in article.objects("paragraphs"):
            paragraph = Paragraph(title, item.text("context"))
            paragraphs.append(paragraph)
            for record in item.objects("qas"):
                answers = dict.fromkeys(answer.text("text") for answer in record.objects("answers"))
                if not answers:
                    raise record.error("answers", "expected at least one answer (version 1.1 has no unanswerable one)")
                question = Question(record.identifier("id"), record.text("question"), tuple(answers))
                entries.append(Entry(f"{path}, {record.prefix.removesuffix('.')}", question, support=[paragraph]))
    # A paragraph without questions belongs to the pool too.
    return build(name, path, entries, corpus, paragraphs)


def nq_open(
    path: str, *, name: Name = "nq_open", questions: Literal["all", "cases"] = "all", corpus: str | None = None
) -> Dataset:
    """Read NQ-open's JSON Lines (Kwiatkowski et al., 2019; Lee et al., 2019), with `ctxs` where it has passages.

    A record has `question`, `answers` (`answer` in the original release) and, where passages were added (Liu et al.,
    2023), `ctxs` of `title`, `text`, optional `id` and optional `isgold`. Without an id of its own a question is
    named after its position, from "nq_open-1" on. `questions` are all, or those of Chain-of-Note's Table 6.
    """
    return asked(build(name, path, _nq_entries(path, name), corpus), questions, "nq_open", path)


def _nq_entries(path: str, name: str) -> Iterator[Entry]:
    for index, record in enumerate(read_jsonl(path, f"dataset.{name}.path"), start=1):
        paragraphs, support = [], []
        for item in record.objects_if_any("ctxs"):
            paragraph = paragraph_of(item)
            paragraphs.append(paragraph)
            if item.has("isgold") and item.boolean("isgold"):
                support.append(paragraph)
        yield Entry(record.place, _question(record, name, index), paragraphs, support)


def triviaqa(path: str, *, name: Name = "triviaqa", corpus: str | None = None) -> Dataset:
    """Read TriviaQA (Joshi et al., 2017) as JSON Lines with retrieved passages as texts.

    A record has `question`, `answers` and optional `passages`, each "Document n (Title: ...): text". Without an id of
    its own a question is named after its position, from "triviaqa-1" on.
    """
    return build(name, path, _triviaqa_entries(path, name), corpus)


def _triviaqa_entries(path: str, name: str) -> Iterator[Entry]:
    for index, record in enumerate(read_jsonl(path, f"dataset.{name}.path"), start=1):
        paragraphs = []
        for number, passage in enumerate(record.texts("passages", at_least=0) if record.has("passages") else ()):
            match = _DOCUMENT.fullmatch(passage)
            if match is None or not match[2].strip():
                raise record.error(f"passages[{number}]", "expected 'Document n (Title: title): text'")
            paragraphs.append(Paragraph(match[1], match[2]))
        yield Entry(record.place, _question(record, name, index), paragraphs)


def webquestions(path: str, *, name: Name = "webquestions", corpus: str | None = None) -> Dataset:
    """Read WebQuestions (Berant et al., 2013) as JSON Lines with `question`, `answers` (or `answer`) and optional `id`.

    It has no passages: without a corpus file the corpus is empty.
    """
    records = enumerate(read_jsonl(path, f"dataset.{name}.path"), start=1)
    return build(name, path, (Entry(record.place, _question(record, name, i)) for i, record in records), corpus)


def _question(record: Record, name: str, index: int) -> Question:
    return Question(
        id=record.identifier("id") if record.has("id") else f"{name}-{index}",
        question=record.text("question"),
        answers=record.texts(record.first_of("answers", "answer")),
    )


def realtimeqa(
    path: str,
    *,
    name: Name = "realtimeqa",
    search_results: str | None = None,
    corpus: str | None = None,
) -> Dataset:
    """Read a week of RealTimeQA (Kasai et al., 2023); `answers` are the choices that the answer's indices name.

    `search_results` is the week's file of articles that a search engine found; articles without text are left out.
    Raises `DataError` where it belongs to other questions, or where it and `corpus` are both given.
    """
    if search_results is not None and corpus is not None:
        raise DataError(f"dataset.{name}: set either search_results or corpus, not both")
    found: dict[str, list[Paragraph]] = {}
    places: dict[str, str] = {}
    for record in read_jsonl(search_results, f"dataset.{name}.search_results") if search_results is not None else ():
        question_id = record.text("question_id")
        places[question_id] = record.place
        found.setdefault(question_id, []).extend(
            Paragraph(article.title("title"), text)
            for article in record.objects("search_result")
            if (text := article.title("text"))
        )
    entries = []
    for record in read_jsonl(path, f"dataset.{name}.path"):
        question_id = record.text("question_id")
        question = Question(question_id, record.text("question_sentence"), _chosen(record))
        entries.append(Entry(record.place, question, found.pop(question_id, [])))
    for question_id in found:
        raise DataError(f"{places[question_id]}, field 'question_id': {question_id!r} is not a question of {path}")
    return build(name, path, entries, corpus)


def _chosen(record: Record) -> tuple[str, ...]:
    choices = record.items("choices")
    record.texts("choices")
    indices = record.texts("answer")
    for index in indices:
        if index not in map(str, range(len(choices))):
            raise record.error(
                "answer", f"expected indices of 'choices' from '0' to '{len(choices) - 1}', found {index!r}"
            )
    return tuple(dict.fromkeys(choices[int(index)] for index in indices))
