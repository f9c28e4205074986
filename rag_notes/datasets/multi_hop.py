"""Multi-hop questions in their official formats: HotpotQA, 2WikiMultiHopQA, MuSiQue, IRCoT's release, StrategyQA."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from rag_notes.datasets import corpus as files
from rag_notes.datasets.corpus import Entry, Id, PassageRecord, Questions, Some, Text, build, read_records, unique
from rag_notes.types import Dataset, Name, Passage, Question


class _WikiRecord(msgspec.Struct):
    id: Id = msgspec.field(name="_id")
    question: Text
    answer: Text
    type: Text
    context: list[tuple[Text, list[str]]]
    supporting_facts: list[tuple[str, int]]


def hotpotqa(path: str, *, name: Name = "hotpotqa", questions: Questions = "all", corpus: str | None = None) -> Dataset:
    """Read HotpotQA's JSON (Yang et al., 2018); in its fullwiki setting a question may lack gold paragraphs."""
    return files.select(build(name, path, _wiki_entries(path, ""), corpus), questions, "hotpotqa", path)


def twowikimultihopqa(
    path: str, *, name: Name = "twowikimultihopqa", questions: Questions = "all", corpus: str | None = None
) -> Dataset:
    """Read 2WikiMultiHopQA's JSON (Ho et al., 2020); `type` is its kind of reasoning, such as bridge_comparison."""
    return files.select(build(name, path, _wiki_entries(path, " "), corpus), questions, "twowikimultihopqa", path)


def _wiki_entries(path: str, separator: str) -> Iterator[Entry]:  # HotpotQA's sentences begin with their space
    for _, record in read_records(path, _WikiRecord):
        paragraphs = [paragraph for paragraph in wiki_paragraphs(record.context, separator) if paragraph.text]
        titles = unique(title for title, _ in record.supporting_facts)
        gold = [p for title in titles for p in dict.fromkeys(paragraphs) if p.title == title]
        complete = set(titles) <= {paragraph.title for paragraph in gold}
        question = Question(str(record.id), record.question, (record.answer,), (), titles, type=record.type)
        yield Entry(question, paragraphs, gold if complete else [])


def wiki_paragraphs(context: list[tuple[str, list[str]]], separator: str) -> list[Passage]:
    """Return the paragraphs, titles with their sentences, of HotpotQA or 2WikiMultiHopQA, also those without text."""
    return [Passage("", title, separator.join(sentences).strip()) for title, sentences in context]


class Support(msgspec.Struct):
    """A paragraph of MuSiQue or IRCoT's release; in MuSiQue's test file it is not said whether it is gold."""

    title: str
    paragraph_text: str
    is_supporting: bool | None = None


class _MusiqueRecord(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(pattern=r"^\dhop\d?__")]
    question: Text
    answer: Text
    answerable: bool
    paragraphs: list[Support]
    answer_aliases: list[Text] = []


def musique(path: str, *, name: Name = "musique", questions: Questions = "all", corpus: str | None = None) -> Dataset:
    """Read MuSiQue's JSON Lines (Trivedi et al., 2022); an unanswerable twin's id gets the ending "_unanswerable"."""
    entries = []
    for _, record in read_records(path, _MusiqueRecord):
        answers = unique([record.answer, *record.answer_aliases] if record.answerable else [])
        record_id = record.id if record.answerable else f"{record.id}_unanswerable"
        entries.append(_supported(Question(record_id, record.question, answers), record.paragraphs))
    return files.select(build(name, path, entries, corpus), questions, "musique", path)


class _Spans(msgspec.Struct):
    spans: Some[Text]


class _IrcotRecord(msgspec.Struct):
    question_id: Id
    question_text: Text
    answers_objects: Some[_Spans]
    contexts: list[Support]
    type: str | None = None


def ircot(path: str, *, name: Name = "ircot", corpus: str | None = None) -> Dataset:
    """Read a data set of IRCoT's release (Trivedi et al., 2023), JSON Lines; MuSiQue's ids give `type` and `hops`."""
    entries = []
    for _, record in read_records(path, _IrcotRecord):
        answers = unique(span for item in record.answers_objects for span in item.spans)
        question = Question(str(record.question_id), record.question_text, answers, type=record.type or "")
        entries.append(_supported(question, record.contexts))
    return build(name, path, entries, corpus)


def _supported(question: Question, items: list[Support]) -> Entry:
    if match := re.match(r"((\d)hop\d?)__", question.id):  # as MuSiQue's ids begin: with the type and the hops
        question = replace(question, type=question.type or match[1], hops=int(match[2]))
    paragraphs = [Passage("", item.title, item.paragraph_text) for item in items]
    gold = dict.fromkeys(p for p, item in zip(paragraphs, items, strict=True) if item.is_supporting)
    return Entry(question, paragraphs, list(gold))


class _StrategyRecord(msgspec.Struct):
    qid: Text
    question: Text
    answer: bool
    evidence: list[list[list[str | list[str]]]] = []  # of annotators, their steps, and what each step rests on


def strategyqa(path: str, *, name: Name = "strategyqa", corpus: str | None = None) -> Dataset:
    """Read StrategyQA's JSON (Geva et al., 2021), whose answers become "yes" and "no".

    `gold_ids` are the paragraphs ("Title-number") that any annotator named, where `corpus` holds them all: the official
    paragraph file, or the same as JSON Lines with `para_index`.
    """
    passages: Sequence[Passage] | None = None
    ids: dict[str, str] = {}
    if corpus is not None and corpus.endswith(".json"):
        records = files.read_json(corpus, dict[str, PassageRecord], f"dataset.{name}.corpus")
        passages = [replace(record.passage(f"{corpus}, {key!r}"), id=key) for key, record in records.items()]
        ids = {key: key for key in records}
    elif corpus is not None:
        passages = files.read_corpus(corpus, f"dataset.{name}.corpus")
        lines = read_records(corpus, PassageRecord) if corpus.endswith(".jsonl") else ()
        ids = {f"{p.title}-{p.para_index}": str(p.id) for _, p in lines if p.para_index is not None}
    entries = []
    for _, record in read_records(path, _StrategyRecord):
        items = [item for steps in record.evidence for step in steps for item in step]
        names = [name for item in items for name in ([item] if isinstance(item, str) else item)]
        keys = unique(name for name in names if re.fullmatch(r".+-\d+", name))  # not "operation" or "no_evidence"
        titles = unique(key.rpartition("-")[0] for key in keys)
        gold_ids = tuple(ids[key] for key in keys) if ids.keys() >= set(keys) else ()
        answers = ("yes" if record.answer else "no",)
        entries.append(Entry(Question(record.qid, record.question, answers, (), titles, gold_ids, "yes_no")))
    return build(name, path, entries, passages)
