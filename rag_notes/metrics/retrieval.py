"""What share of the evidence a list of retrieved passages holds, for one question.

Every function takes the retrieved list as hits, passages or plain strings, and returns `None` for a question without
gold, which a mean must leave out rather than count as 0.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rag_notes.metrics.answer import normalize_answer
from rag_notes.types import Hit, Language, Passage, Question

Passages = Sequence[Hit | Passage | str]

_normalized = lru_cache(maxsize=4096)(normalize_answer)  # many methods read the same passages


def all_gold(hits: Passages, gold_ids: Sequence[str]) -> float | None:
    """Return 1.0 if every gold passage is among the hits, else 0.0.

    Where a data set names its gold by title, pass the titles of both sides as strings.
    """
    return float(set(gold_ids) <= _ids(hits)) if gold_ids else None


def any_gold(hits: Passages, gold_ids: Sequence[str]) -> float | None:
    """Return 1.0 if at least one gold passage is among the hits, else 0.0."""
    return float(not _ids(hits).isdisjoint(gold_ids)) if gold_ids else None


def answer_in_passages(hits: Passages, answers: Sequence[str], language: Language = "en") -> float | None:
    """Return 1.0 if a gold answer occurs in the title or text of a passage, else 0.0; strings are taken as texts.

    Both are normalised and compared by characters, as in `accuracy`. An answer of which nothing is left is no gold.
    """
    normal_answers = [normal for answer in answers if (normal := normalize_answer(answer, language))]
    if not normal_answers:
        return None
    texts = (_normalized(field, language) for hit in hits for field in _fields(hit))
    return float(any(answer in text for text in texts for answer in normal_answers))


def gold_clusters(questions: Iterable[Question]) -> dict[str, str]:
    """Return the cluster of each question, by ids: the first of the questions that it shares gold passages with.

    Sharing carries over: where a question has one passage in common with each of two, all three are one cluster. A
    question without gold is a cluster of its own.
    """
    ordered = list(questions)
    earlier = list(range(len(ordered)))  # of each question one of its cluster that comes before it, or itself
    owner: dict[str, int] = {}  # of each gold passage, the first question that has it

    def first(index: int) -> int:
        while earlier[index] != index:
            earlier[index] = index = earlier[earlier[index]]
        return index

    for index, question in enumerate(ordered):
        for passage in question.gold_ids or question.gold_titles:
            low, high = sorted((first(owner.setdefault(passage, index)), first(index)))
            earlier[high] = low
    return {question.id: ordered[first(index)].id for index, question in enumerate(ordered)}


def _ids(hits: Passages) -> set[str]:
    passages = (hit.passage if isinstance(hit, Hit) else hit for hit in hits)
    return {passage.id if isinstance(passage, Passage) else passage for passage in passages}


def _fields(hit: Hit | Passage | str) -> tuple[str, ...]:
    passage = hit.passage if isinstance(hit, Hit) else hit
    return (passage.title, passage.text) if isinstance(passage, Passage) else (passage,)
