"""Which questions of a data set are asked: a part of them, or those on which the papers' authors evaluated."""

import hashlib
import sys
from dataclasses import replace
from typing import Literal

from rag_notes.datasets._read import DataError, read_lines
from rag_notes.files import SHIPPED
from rag_notes.types import Dataset, NonNegative, Positive, Question

Asked = Literal["all", "papers", "cases"]

_LISTS = SHIPPED / "data" / "paper" / "questions"


def cut(dataset: Dataset, *, offset: NonNegative = 0, limit: Positive | None = None) -> Dataset:
    """Return the data set with `limit` of its questions (None: all) from `offset` on, and its whole corpus.

    Raises `DataError` on a cut that leaves no question.
    """
    option, total = f"dataset.{dataset.name}", len(dataset.questions)
    if limit is not None and limit < 1:
        raise DataError(f"{option}.limit: expected 1 or more, or null for all, found {limit}")
    if not 0 <= offset < total:
        raise DataError(f"{option}.offset: expected 0 to {total - 1}, found {offset}: there are {total} questions")
    questions = dataset.questions[offset : None if limit is None else offset + limit]
    if len(questions) == total:
        return dataset
    return replace(dataset, questions=questions, selection="offset/limit")


def asked(dataset: Dataset, questions: Asked, listed: str, path: str) -> Dataset:
    """Return the data set of the file `path` with all questions, or with those of the papers in the papers' order.

    The papers' are known by the SHA-256 of their text (data/paper/questions/`listed`.sha256.txt, of their case studies
    cases.sha256.txt); how many of them the file holds is said on stderr. Raises `DataError` where it holds none.
    """
    if questions == "all":
        return dataset
    file = _LISTS / f"{listed if questions == 'papers' else questions}.sha256.txt"
    digests = [line.strip() for _, line in read_lines(str(file), "data/paper/questions")]
    known: dict[str, Question] = {}
    for question in sorted(dataset.questions, key=lambda question: not question.answers):  # MuSiQue's twins come last
        known.setdefault(hashlib.sha256(question.question.strip().encode()).hexdigest(), question)
    found = tuple(known[digest] for digest in digests if digest in known)
    option = f"dataset.{dataset.name}.questions={questions}"
    if not found:
        raise DataError(
            f"{path}: holds none of the papers' {len(digests)} questions ({option}); expected the official development "
            f"set, which `rag-notes download dataset={listed}` gets"
        )
    of = f" of the papers' {len(digests)}" if questions == "papers" else ""  # the cases are of several data sets
    print(f"{option}: {len(found)}{of} questions are in {path}", file=sys.stderr)
    return replace(dataset, questions=found, selection=questions)
