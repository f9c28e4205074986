"""Multi-hop questions in their official formats: HotpotQA, 2WikiMultiHopQA, MuSiQue, IRCoT's release, StrategyQA."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from rag_notes.datasets.corpus import (
    DataError,
    Id,
    PassageRecord,
    Some,
    Text,
    read_corpus,
    read_json,
    read_records,
    unique,
)
from rag_notes.datasets.selection import Entry, Questions, build, select
from rag_notes.types import Dataset, Name, Passage, Question


class WikiContext(msgspec.Struct):
    """The paragraphs of a record of HotpotQA or 2WikiMultiHopQA: titles with their sentences."""

    context: list[tuple[Text, list[str]]]

    def paragraphs(self, separator: str) -> list[Passage]:
        """Return the paragraphs, also those without text, with their sentences joined."""
        return [Passage("", title, separator.join(sentences).strip()) for title, sentences in self.context]


class _WikiRecord(WikiContext, kw_only=True):
    id: Id = msgspec.field(name="_id")
    question: Text
    answer: Text
    type: Text
    supporting_facts: list[tuple[str, int]]


def hotpotqa(path: str, *, name: Name = "hotpotqa", questions: Questions = "all", corpus: str | None = None) -> Dataset:
    """Read HotpotQA's JSON (Yang et al., 2018); in its fullwiki setting a question may lack gold paragraphs."""
    entries = _wiki_entries(path, "")  # its sentences begin with their space
    return select(build(name, path, entries, corpus), questions, "hotpotqa", path)


def twowikimultihopqa(
    path: str, *, name: Name = "twowikimultihopqa", questions: Questions = "all", corpus: str | None = None
) -> Dataset:
    """Read 2WikiMultiHopQA's JSON (Ho et al., 2020); `type` is its kind of reasoning, such as bridge_comparison."""
    return select(build(name, path, _wiki_entries(path, " "), corpus), questions, "twowikimultihopqa", path)


def _wiki_entries(path: str, separator: str) -> Iterator[Entry]:
    for _, record in read_records(path, _WikiRecord):
        paragraphs = [paragraph for paragraph in record.paragraphs(separator) if paragraph.text]
        titles = unique(title for title, _ in record.supporting_facts)
        gold = [p for title in titles for p in dict.fromkeys(paragraphs) if p.title == title]
        if not set(titles) <= {paragraph.title for paragraph in gold}:
            gold = []
        question = Question(str(record.id), record.question, (record.answer,), (), titles, type=record.type)
        yield Entry(question, paragraphs, gold)


class Support(msgspec.Struct):
    """A paragraph of MuSiQue or IRCoT's release; in MuSiQue's test file it is not said whether it is gold."""

    title: str
    paragraph_text: str
    is_supporting: bool | None = None


def _entry(record_id: str, text: str, answers: tuple[str, ...], items: list[Support], kind: str | None) -> Entry:
    match = re.match(r"((\d)hop\d?)__", record_id)  # as MuSiQue's ids begin: with the type and the number of hops
    paragraphs = [Passage("", item.title, item.paragraph_text) for item in items]
    gold = dict.fromkeys(p for p, item in zip(paragraphs, items, strict=True) if item.is_supporting)
    kind, hops = kind or (match[1] if match else ""), int(match[2]) if match else 0
    return Entry(Question(record_id, text, answers, type=kind, hops=hops), paragraphs, list(gold))


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
        entries.append(_entry(record_id, record.question, answers, record.paragraphs, None))
    return select(build(name, path, entries, corpus), questions, "musique", path)


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
        entries.append(_entry(str(record.question_id), record.question_text, answers, record.contexts, record.type))
    return build(name, path, entries, corpus)


class _StrategyRecord(msgspec.Struct):
    qid: Text
    question: Text
    answer: bool
    evidence: list[list[list[str | list[str]]]] = []  # of annotators, their steps, and what each step rests on


def strategyqa(path: str, *, name: Name = "strategyqa", corpus: str | None = None) -> Dataset:
    """Read StrategyQA's JSON (Geva et al., 2021), whose answers become "yes" and "no".

    `gold_ids` are the paragraphs ("Title-number") that any annotator named, where `corpus` is the official paragraph
    file or the same as JSON Lines with `para_index`. Raises `DataError` on evidence that such a file does not hold.
    """
    passages: Sequence[Passage] | None = None
    ids: dict[str, str] = {}
    if corpus is not None and corpus.endswith(".json"):
        records = read_json(corpus, dict[str, PassageRecord], f"dataset.{name}.corpus")
        passages = [replace(record.passage(f"{corpus}, {key!r}"), id=key) for key, record in records.items()]
        ids = {key: key for key in records}
    elif corpus is not None:
        passages = read_corpus(corpus, f"dataset.{name}.corpus")
        lines = read_records(corpus, PassageRecord) if corpus.endswith(".jsonl") else ()
        ids = {f"{p.title}-{p.para_index}": str(p.id) for _, p in lines if p.para_index is not None}
    entries = []
    for location, record in read_records(path, _StrategyRecord):
        items = [item for steps in record.evidence for step in steps for item in step]
        names = [name for item in items for name in ([item] if isinstance(item, str) else item)]
        keys = unique(name for name in names if re.fullmatch(r".+-\d+", name))  # not "operation" or "no_evidence"
        if missing := [key for key in keys if ids and key not in ids]:
            raise DataError(f"{location}, `evidence`: expected paragraphs of {corpus}, found {missing[0]!r}")
        titles, gold_ids = unique(key.rpartition("-")[0] for key in keys), tuple(ids[key] for key in keys if ids)
        answers = ("yes" if record.answer else "no",)
        entries.append(Entry(Question(record.qid, record.question, answers, (), titles, gold_ids, task="yes_no")))
    return build(name, path, entries, passages)
