"""Gold and noise passages in a fixed ratio, to study noise robustness (Chain-of-Note, sections 3.1.1 and 3.3)."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from rag_notes.events import Found
from rag_notes.metrics.answer import normalize_answer
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.retrieval.base import Retriever, check_search
from rag_notes.types import Dataset, Hit, InputError, Passage, Question

NoiseFrom = Literal["annotated", "retrieved"]  # where gold passages are taken from
DEPTH = 100  # of the retrieved passages that are looked at; Chain-of-Note does not say
Split = tuple[list[Passage], list[Passage]]  # gold passages, and others
_YES_NO = frozenset({"yes", "no", "是", "不是", "否"})  # "no" occurs in "known": no passage holds such an answer


class ControlledNoise:
    """Returns gold passages and noise of another retriever for the questions of a data set.

    Of `top_k` passages `round(top_k * noise_percent / 100)` are noise: the best-ranked that are no gold passage and
    hold no gold answer (a yes or no is not looked for). The others are gold, those that hold a gold answer first. One
    kind never fills up for the other, so that fewer passages are returned where a question has too little gold. Their
    order, and their score, is a hash of question and passage, which does not give the gold away. The questions of the
    data set must be `controllable`.
    """

    def __init__(self, retriever: Retriever, dataset: Dataset, noise_percent: int) -> None:
        self.name = f"{retriever.name} with {noise_percent} % noise"
        self.retriever, self.noise_percent = retriever, noise_percent
        self._questions = {question.question: question for question in dataset.questions}
        self._passages = {passage.id: passage for passage in dataset.corpus}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Return gold and noise for each query. Raises InputError for one that is no question of the data set."""
        check_search(queries, top_k)
        return [self._search_one(query, top_k) for query in queries]

    def describe(self) -> dict[str, Any]:
        """The description of the retriever, and the noise."""
        return {"name": self.name, "noise_percent": self.noise_percent, "retriever": self.retriever.describe()}

    def _search_one(self, query: str, top_k: int) -> list[Hit]:
        if (question := self._questions.get(query)) is None:
            advice = "choose methods that search once, by the question itself: method=[vanilla,chain_of_note]"
            raise InputError(f"{query!r} is no question of the data set, to which noise can be added; {advice}")
        passages = self._choose(question, top_k, round(top_k * self.noise_percent / 100))
        texts = [f"{question.id}\n{passage.id}".encode() for passage in passages]
        scores = [int.from_bytes(hashlib.sha256(text).digest()[:6]) / 2**48 for text in texts]
        return sorted(map(Hit, passages, scores), key=lambda hit: -hit.score)

    def _choose(self, question: Question, top_k: int, noise: int) -> list[Passage]:
        gold = [self._passages[passage_id] for passage_id in dict.fromkeys(question.gold_ids)]
        gold.sort(key=lambda passage: not _holds_answer(question, passage))
        return [*gold[: top_k - noise], *self._noise(question, noise)]

    def _noise(self, question: Question, count: int) -> list[Passage]:
        depth = 4 * count
        while count:
            ranking = [hit.passage for hit in self.retriever.search([question.question], depth)[0]]
            noise = [p for p in ranking if p.id not in question.gold_ids and not _holds_answer(question, p)][:count]
            if len(noise) == count or len(ranking) < depth:
                return noise
            depth *= 4
        return []


class RetrievedNoise(ControlledNoise):
    """As `ControlledNoise`, but gold and noise are both from the first `DEPTH` retrieved passages, as in section 3.1.1.

    `is_gold` says which of them are gold. The best-ranked of both kinds are taken. `top_k` passages are always
    returned: where there are too few of one kind, the next ones of the other fill up. `lists` are those of `retrieved`.
    """

    def __init__(self, retriever: Retriever, lists: Mapping[Question, Split], noise_percent: int) -> None:
        self.name = f"{retriever.name} with {noise_percent} % noise of the retrieved"
        self.retriever, self.noise_percent, self._lists = retriever, noise_percent, lists
        self._questions = {question.question: question for question in lists}

    def describe(self) -> dict[str, Any]:
        """As that of `ControlledNoise`, with where gold is from and the length of the list."""
        return super().describe() | {"noise_from": "retrieved", "depth": DEPTH}

    def _choose(self, question: Question, top_k: int, noise: int) -> list[Passage]:
        gold, others = self._lists[question]
        count = min(len(gold), max(top_k - noise, top_k - len(others)))
        return [*gold[:count], *others[: top_k - count]]


def with_noise(
    dataset: Dataset, retriever: Retriever, noise_percent: int, source: NoiseFrom = "annotated"
) -> tuple[Dataset, ControlledNoise]:
    """Return the questions of a data set for which noise can be controlled, and a retriever that returns so much of it.

    Raises InputError where no question has gold passages in the corpus or, of source "retrieved", among those found.
    """
    lists = retrieved(dataset, retriever) if source == "retrieved" else {}
    noisy = replace(dataset, questions=tuple(lists if source == "retrieved" else controllable(dataset)))
    if not noisy.questions:
        problem = "in the corpus; choose study.noise_from=retrieved, or another data set"
        if source == "retrieved":
            problem = "or answer among the retrieved passages; choose another data set"
        raise InputError(f"dataset {dataset.name}: no question has gold passages {problem}")
    if source == "retrieved":
        return noisy, RetrievedNoise(retriever, lists, noise_percent)
    return noisy, ControlledNoise(retriever, noisy, noise_percent)


def retrieved(dataset: Dataset, retriever: Retriever) -> dict[Question, Split]:
    """Split the first `DEPTH` retrieved passages of each question into gold and others, both by rank.

    Questions without gold among them, or with the text of another one, are left out.
    """
    texts = Counter(question.question for question in dataset.questions)
    questions = [question for question in dataset.questions if texts[question.question] == 1]
    lists: dict[Question, Split] = {}
    for question, hits in zip(questions, retriever.search([q.question for q in questions], DEPTH), strict=True):
        split: Split = ([], [])
        for hit in hits:
            split[not is_gold(question, hit.passage)].append(hit.passage)
        if split[0]:
            lists[question] = split
    return lists


def is_gold(question: Question, passage: Passage | Found) -> bool:
    """Whether a passage is annotated as gold or, for a question without annotated passages, holds a gold answer."""
    return passage.id in question.gold_ids if question.gold_ids else _holds_answer(question, passage)


def controllable(dataset: Dataset) -> list[Question]:
    """Return the questions with annotated gold passages, all in the corpus, and a text of their own."""
    ids = {passage.id for passage in dataset.corpus}
    texts = Counter(question.question for question in dataset.questions)
    return [q for q in dataset.questions if q.gold_ids and ids.issuperset(q.gold_ids) and texts[q.question] == 1]


def _holds_answer(question: Question, passage: Passage | Found) -> bool:
    golds = [*question.answers, *(answer for pair in question.qa_pairs for answer in pair.answers)]
    golds = [gold for gold in golds if normalize_answer(gold, question.language) not in _YES_NO]
    return bool(answer_in_passages([passage.title, passage.text], golds, question.language))
