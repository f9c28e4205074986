"""From the questions of a file to a `Dataset`: gold ids, the papers' own questions, offset and limit."""

import hashlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from rag_notes.datasets.corpus import DataError, pool, read_corpus, unique
from rag_notes.files import SHIPPED
from rag_notes.types import Dataset, NonNegative, Passage, Positive, Question

Questions = Literal["all", "papers", "cases"]  # of a file: all, those of the papers, those of the papers' case studies

Corpus = str | Sequence[Passage] | None  # the path of a corpus, or one that is read already


class Entry(NamedTuple):
    """A question with the paragraphs that its file gives it, and those of them that support the answer."""

    question: Question
    paragraphs: Collection[Passage] = ()
    gold: Collection[Passage] = ()


def build(
    name: str, path: str, entries: Iterable[Entry], corpus: Corpus, pooled: Iterable[Passage] | None = None
) -> Dataset:
    """Return the questions of the file `path` with a corpus, or where there is none with a pool of their paragraphs.

    `gold_ids` are set where the corpus holds all gold paragraphs of a question: a part of them would make recall look
    better than it is. Raises `DataError` on an id that occurs twice or no question.
    """
    entries = list(entries)
    if not entries:
        raise DataError(f"{path}: holds no questions; put the data set's file there or set dataset.{name}.path=PATH")
    question_id, count = Counter(entry.question.id for entry in entries).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path}: the question id {question_id!r} is used {count} times")
    if corpus is None:
        passages: Sequence[Passage] = pool(pooled or (p for entry in entries for p in entry.paragraphs), path)
    else:
        passages = read_corpus(corpus, f"dataset.{name}.corpus") if isinstance(corpus, str) else corpus
    gold = {(paragraph.title, paragraph.text) for entry in entries for paragraph in entry.gold}
    ids = {(p.title, p.text): p.id for p in passages if (p.title, p.text) in gold} if gold else {}
    questions = tuple(_with_gold(entry, ids) if entry.gold else entry.question for entry in entries)
    return Dataset(name, questions, passages, corpus_kind="pooled" if corpus is None else "given")


def _with_gold(entry: Entry, ids: dict[tuple[str, str], str]) -> Question:
    titles = entry.question.gold_titles or unique(paragraph.title for paragraph in entry.gold if paragraph.title)
    gold_ids = unique(ids.get((paragraph.title, paragraph.text), "") for paragraph in entry.gold)
    return replace(entry.question, gold_titles=titles, gold_ids=gold_ids if all(gold_ids) else ())


def select(dataset: Dataset, questions: Questions, listed: str, path: str) -> Dataset:
    """Return the data set with all questions, or with those of the papers (data/paper/questions) in the papers' order.

    How many of them the file `path` holds is said on stderr. Raises `DataError` where it holds none.
    """
    if questions == "all":
        return dataset
    file = SHIPPED / "data/paper/questions" / f"{listed if questions == 'papers' else questions}.sha256.txt"
    digests = file.read_text(encoding="ascii").split()
    by_digest: dict[str, Question] = {}
    for question in sorted(dataset.questions, key=lambda question: not question.answers):  # MuSiQue's twins come last
        by_digest.setdefault(hashlib.sha256(question.question.strip().encode()).hexdigest(), question)
    selected = tuple(by_digest[digest] for digest in digests if digest in by_digest)
    option = f"dataset.{dataset.name}.questions={questions}"
    if not selected:
        hint = f"expected the official development set, which `rag-notes download dataset={listed}` gets"
        raise DataError(f"{path}: holds none of the papers' {len(digests)} questions ({option}); {hint}")
    total = f" of the papers' {len(digests)}" if questions == "papers" else ""  # the cases are of several data sets
    print(f"{option}: {len(selected)}{total} questions are in {path}", file=sys.stderr)
    return replace(dataset, questions=selected, selection=questions)


def cut(dataset: Dataset, *, offset: NonNegative = 0, limit: Positive | None = None) -> Dataset:
    """Return the data set with `limit` of its questions (None: all) from `offset` on, and its whole corpus."""
    questions = dataset.questions[offset : None if limit is None else offset + limit]
    if not questions:
        total = len(dataset.questions)
        raise DataError(f"dataset.{dataset.name}: offset={offset}, limit={limit} leave none of its {total} questions")
    return (
        dataset if questions == dataset.questions else replace(dataset, questions=questions, selection="offset/limit")
    )
