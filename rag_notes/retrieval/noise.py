"""Gold and noise passages in a fixed ratio, to study noise robustness (Chain-of-Note, sections 3.1.1 and 3.3)."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rag_notes.events import Found
from rag_notes.metrics.answer import normalize_answer
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.retrieval.base import Retriever
from rag_notes.types import Dataset, Hit, InputError, Passage, Question

NoiseFrom = Literal["annotated", "retrieved"]
"""Where gold passages are taken from: the annotated ones, or those of the retrieved list."""

DEPTH = 100
"""How much of the retrieved list is gone through; Chain-of-Note does not say."""

Split = tuple[list[Passage], list[Passage]]
"""Passages that are gold, and others."""

_YES_NO = frozenset({"yes", "no", "是", "不是", "否"})  # "no" occurs in "known": no passage holds such an answer


class ControlledNoise:
    """Another retriever, made to return `noise_percent` % noise for the questions of a data set.

    Of `top_k` passages `round(top_k * noise_percent / 100)` are noise: the best-ranked that are no gold passage and
    hold no gold answer (a yes or no is not looked for). The others are gold, those that hold a gold answer first.
    Neither is padded with the other, so that fewer passages are returned where a question has less gold than there is
    room for. Their order, and their score, is a hash of question and passage, which does not give the gold away.

    Raises ValueError for a percentage outside 0 to 100, and for a question without gold passages in the corpus or with
    the text of another one: `controllable` leaves both out.
    """

    def __init__(self, retriever: Retriever, dataset: Dataset, noise_percent: int) -> None:
        if not 0 <= noise_percent <= 100:
            raise InputError(f"noise_percent is {noise_percent}; it must lie between 0 and 100")
        if unusable := set(dataset.questions) - set(controllable(dataset)):
            raise InputError(
                f"noise cannot be controlled for question {min(question.id for question in unusable)!r}: it has no "
                "gold passage in the corpus, or the text of another question; leave it out"
            )
        self.name = f"{retriever.name} with {noise_percent} % noise"
        self.retriever = retriever
        self.noise_percent = noise_percent
        self._questions = {question.question: question for question in dataset.questions}
        self._passages = {passage.id: passage for passage in dataset.corpus}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Gold and noise for each query, which must be a question of the data set.

        Raises ValueError for another query (the study is of methods that search once, by the question itself) and for
        `top_k` below 1.
        """
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        return [self._search_one(query, top_k) for query in queries]

    def describe(self) -> dict[str, Any]:
        """What the wrapped retriever says of itself, and the noise."""
        return {"name": self.name, "noise_percent": self.noise_percent, "retriever": self.retriever.describe()}

    def _search_one(self, query: str, top_k: int) -> list[Hit]:
        if (question := self._questions.get(query)) is None:
            raise InputError(
                f"{query!r} is no question of the data set, and noise can be controlled for those only; choose methods "
                "that search once, by the question itself, for example method=[vanilla,chain_of_note]"
            )
        chosen = self._choose(question, top_k, round(top_k * self.noise_percent / 100))
        hits = [Hit(passage, _draw(question, passage)) for passage in chosen]
        return sorted(hits, key=lambda hit: -hit.score)

    def _choose(self, question: Question, top_k: int, noise: int) -> list[Passage]:
        gold = [self._passages[name] for name in dict.fromkeys(question.gold_ids)]
        gold.sort(key=lambda passage: not _answers(question, passage))
        return [*gold[: top_k - noise], *self._noise(question, noise)]

    def _noise(self, question: Question, wanted: int) -> list[Passage]:
        depth = 4 * wanted
        while wanted:
            ranked = [hit.passage for hit in self.retriever.search([question.question], depth)[0]]
            noise = [p for p in ranked if p.id not in question.gold_ids and not _answers(question, p)][:wanted]
            if len(noise) == wanted or len(ranked) < depth:
                return noise
            depth *= 4
        return []


class RetrievedNoise(ControlledNoise):
    """As `ControlledNoise`, but gold and noise are both from the first `DEPTH` retrieved passages, as in section 3.1.1.

    Which of them are gold says `is_gold`. The list is gone through from the top until there is enough of both kinds.
    `top_k` passages are always returned: what one kind lacks, the next ones of the other fill, and `noise_passages` of
    the study counts what was read. `lists` are those that `retrieved` gives.
    """

    def __init__(self, retriever: Retriever, lists: Mapping[Question, Split], noise_percent: int) -> None:
        self.name = f"{retriever.name} with {noise_percent} % noise of the retrieved"
        self.retriever = retriever
        self.noise_percent = noise_percent
        self._questions = {question.question: question for question in lists}
        self._lists = lists

    def describe(self) -> dict[str, Any]:
        """As that of `ControlledNoise`, with where gold is from and the length of the list."""
        return super().describe() | {"noise_from": "retrieved", "depth": DEPTH}

    def _choose(self, question: Question, top_k: int, noise: int) -> list[Passage]:
        gold, others = self._lists[question]
        taken = min(len(gold), max(top_k - noise, top_k - len(others)))
        return [*gold[:taken], *others[: top_k - taken]]


def retrieved(dataset: Dataset, retriever: Retriever) -> dict[Question, Split]:
    """The first `DEPTH` retrieved passages of each question that has gold among them: the gold and the others, by rank.

    Questions with the text of another one are left out.
    """
    texts = Counter(question.question for question in dataset.questions)
    asked = [question for question in dataset.questions if texts[question.question] == 1]
    lists: dict[Question, Split] = {}
    for question, hits in zip(asked, retriever.search([q.question for q in asked], DEPTH), strict=True):
        split: Split = ([], [])
        for hit in hits:
            split[not is_gold(question, hit.passage)].append(hit.passage)
        if split[0]:
            lists[question] = split
    return lists


def is_gold(question: Question, passage: Passage | Found) -> bool:
    """Whether a passage is annotated as gold or, for a question without annotated passages, holds a gold answer."""
    return passage.id in question.gold_ids if question.gold_ids else _answers(question, passage)


def controllable(dataset: Dataset) -> list[Question]:
    """The questions whose gold passages are known and all in the corpus, and whose text is no other question's."""
    known = {passage.id for passage in dataset.corpus}
    texts = Counter(question.question for question in dataset.questions)
    return [q for q in dataset.questions if q.gold_ids and known.issuperset(q.gold_ids) and texts[q.question] == 1]


def _answers(question: Question, passage: Passage | Found) -> bool:
    golds = [*question.answers, *(answer for pair in question.qa_pairs for answer in pair.answers)]
    named = [gold for gold in golds if normalize_answer(gold, question.language) not in _YES_NO]
    return bool(answer_in_passages([passage.title, passage.text], named, question.language))


def _draw(question: Question, passage: Passage) -> float:
    """A number between 0 and 1 that question and passage determine."""
    digest = hashlib.sha256(f"{question.id}\n{passage.id}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
