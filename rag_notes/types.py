"""The records that everything else is about, a question and a passage, and the types of settings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

Task = Literal["short", "yes_no", "long_form", "news"]
Language = Literal["en", "zh"]

# Types of settings, which pydantic checks.
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
Repeats = Annotated[list[NonNegative], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
"""One index of a repetition, or a list of them."""


class InputError(ValueError):
    """Something given to the program that does not fit: the message names it and says what to do."""


def _fit_for_files(name: str) -> str:
    if not re.fullmatch(r"\w[\w.+ -]*", name):
        rule = "a letter, digit or '_', then also '.', '+', '-' and spaces"
        raise ValueError(f"expected a name that file names can hold: {rule}; found {name!r}")
    return name


Name = Annotated[str, AfterValidator(_fit_for_files)]
"""A setting that becomes a part of file names: it cannot lead out of a folder."""

Selection = Literal["all", "papers", "cases", "offset/limit"]
"""Which questions of a file are asked: all, exactly those on which the papers' authors evaluated, or a part of them."""


@dataclass(frozen=True, slots=True)
class QAPair:
    """One reading of an ambiguous question, with the short answers that settle it (ASQA, section 3)."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a data set with what is needed to ask it and to mark the answer.

    `answers` are the gold answers: the first is the canonical one, the others its aliases; it is empty for an
    unanswerable question and for one that is marked by `qa_pairs` alone. `task` selects the answer prompt and the
    metrics. `gold_titles` and `gold_ids` name the supporting passages by title or by passage id, whichever the data
    set gives. `type` and `hops` are the data set's own labels (`""` and 0 where it has none).
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    qa_pairs: tuple[QAPair, ...] = ()
    gold_titles: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()
    task: Task = "short"
    type: str = ""
    hops: int = 0
    language: Language = "en"


@dataclass(frozen=True, slots=True)
class Passage:
    """A unit of retrieval: unique `id`, `title` (may be empty) and `text`."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage as a retriever ranked it; a higher `score` is better."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions with the corpus they are asked of, which may be a file of any size that is not held in memory."""

    name: str
    questions: tuple[Question, ...]
    corpus: Sequence[Passage]
    selection: Selection = "all"
    corpus_kind: Literal["given", "pooled"] = "given"  # pooled: of the paragraphs of the questions' own file


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that a question needs: `relation` of `subject` is `value`, as `sentence` of a passage states it.

    `names` are the ways to write the subject that can mean nobody else in the corpus; `subject` is its title.
    """

    subject: str
    relation: str
    value: str
    passage_id: str
    sentence: str
    names: tuple[str, ...]
