"""The questions of a region, each with the facts that its answer follows from."""

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from language import RELATIONS, Relation
from names import Draw
from region import Entity, Region, Value

from rag_notes.types import Fact, QAPair, Question

SCHEDULE = (
    *("two_hop", "comparison", "one_hop", "three_hop", "yes_no"),
    *("two_hop", "ambiguous", "one_hop", "two_hop", "unanswerable"),
)
"""The types of the questions of a region, in their order."""

_EARLIER = {  # comparisons; the answer is the year, because one of two names could be guessed
    "born_year": "In which year was the older of {a} and {b} born?",
    "settled": "In which year was the earlier of the towns {a} and {b} settled?",
    "began": "In which year did the earlier of the companies {a} and {b} begin work?",
    "published": "In which year was the earlier of the books {a} and {b} published?",
    "cinemas": "In which year did the earlier of the films {a} and {b} come to cinemas?",
    "opened": "In which year was the earlier of {a} and {b} opened?",
}
_SAME = {  # yes/no questions on two entities
    "born_in": "Do {a} and {b} have the same birthplace?",
    "lives_in": "Do {a} and {b} reside in the same town?",
    "employer": "Do {a} and {b} have the same employer?",
    "teacher": "Did {a} and {b} have the same teacher?",
    "directed_by": "Do {a} and {b} have the same director?",
    "written_by": "Do {a} and {b} have the same author?",
}
_LITTLE_WORDS = frozenset(
    ("a", "an", "and", "as", "at", "by", "did", "do", "does", "from", "had", "has", "have", "in", "into", "is", "it",
     "its", "of", "on", "or", "the", "to", "was", "what", "when", "where", "which", "who", "with")
)  # fmt: skip


class FactQuestion(NamedTuple):
    """A question and the facts that its answer follows from, in the order of its hops; none if it is unanswerable."""

    question: Question
    facts: tuple[Fact, ...]


class _Draft(NamedTuple):
    """A question before it is checked: `starts` are the entities that it names."""

    text: str
    answer: Value
    facts: tuple[Fact, ...]
    starts: tuple[Entity, ...]
    pairs: tuple[QAPair, ...] = ()
    hops: int = 1


def region_questions(seed: int, number: int, region: Region) -> Iterator[FactQuestion]:
    """The questions of the region `number`, of the types of `SCHEDULE`; one that its facts do not allow is left out.

    No entity is where two questions of a region start. The passages behind the first of a question of two or three hops
    share no word with it but little ones, nor with a yes/no question that leads to them but the value it asks about.
    """
    draw = Draw(seed, "questions", number)
    world = _Facts(region)
    used: set[str] = set()
    for slot, kind in enumerate(SCHEDULE):
        drafts = _DRAFTS[kind](world, draw)
        draft = next((draft for draft in drafts if used.isdisjoint(start.id for start in draft.starts)), None)
        if draft is not None:
            used.update(start.id for start in draft.starts)
            yield FactQuestion(_question(f"r{number}-q{slot:02}", kind, draft), draft.facts)


def _question(name: str, kind: str, draft: _Draft) -> Question:
    aliases = (draft.answer,) if isinstance(draft.answer, str) else (draft.answer.name, draft.answer.mention)
    answered = kind not in ("ambiguous", "unanswerable")
    return Question(
        id=name,
        question=draft.text,
        answers=tuple(dict.fromkeys(aliases)) if answered else (),
        qa_pairs=draft.pairs,
        gold_ids=tuple(dict.fromkeys(fact.passage_id for fact in draft.facts)),
        task="yes_no" if kind == "yes_no" else "long_form" if kind == "ambiguous" else "short",
        type=kind,
        hops=draft.hops,
    )


class _Facts:
    """The facts of a region as a graph of its entities."""

    def __init__(self, region: Region) -> None:
        self.entities = region.entities
        self._values = dict(zip((entity.id for entity in region.entities), region.values, strict=True))
        self._facts = dict(zip((entity.id for entity in region.entities), region.facts, strict=True))
        self._missing = dict(zip((entity.id for entity in region.entities), region.missing, strict=True))
        self._words = {passage.id: content_words(f"{passage.title} {passage.text}") for passage in region.passages}
        self._texts = {passage.id: passage.text for passage in region.passages}

    def statements(self, entity: Entity) -> list[tuple[Relation, Value, Fact]]:
        """What is stated of an entity."""
        facts = self._facts[entity.id]
        return [(RELATIONS[name], value, facts[name]) for name, value in self._values[entity.id].items()]

    def value(self, entity: Entity, relation: str) -> Value | None:
        """The value of a relation, if it is stated."""
        return self._values[entity.id].get(relation)

    def fact(self, entity: Entity, relation: str) -> Fact:
        """A fact that is stated."""
        return self._facts[entity.id][relation]

    def missing(self, entity: Entity) -> Relation:
        """What nothing states of an entity."""
        return RELATIONS[self._missing[entity.id]]

    def mentioned(self, entity: Entity, kind: str) -> bool:
        """Whether the passage of an entity of this kind mentions the entity, from which a fact might be guessed.

        Who manages a company may be thought to work for it, and a capital lies in its own province.
        """
        return any(other.kind == kind and entity in self._values[other.id].values() for other in self.entities)

    def paths(self, hops: int, draw: Draw) -> Iterator[tuple[str, Entity, Entity, tuple[Fact, ...]]]:
        """Ways of so many hops, in random order: how the last entity is described, the first and the last, the facts.

        With no hops an entity stands for itself.
        """
        for start in draw.shuffled(self.entities):
            if hops == 0:
                yield start.description, start, start, ()
                continue
            ways: list[tuple[str, tuple[Entity, ...], tuple[Fact, ...]]] = [(start.description, (start,), ())]
            for _ in range(hops):
                ways = [
                    (relation.phrase.format(e=text), (*path, value), (*facts, fact))
                    for text, path, facts in ways
                    for relation, value, fact in self.statements(path[-1])
                    if relation.phrase
                    and isinstance(value, Entity)
                    and value.kind not in [entity.kind for entity in path]
                ]
            if ways:
                text, path, facts = draw.pick(ways)
                yield text, start, path[-1], facts

    def hidden(self, question: str, facts: tuple[Fact, ...], answer: str) -> bool:
        """Whether a search for the question cannot know the later passages, nor the earlier ones the answer."""
        words = content_words(question)
        first, *later = dict.fromkeys(fact.passage_id for fact in facts)
        return all(words.isdisjoint(self._words[name]) for name in later) and not any(
            answer in self._texts[name] for name in [first, *later][: len(later)]
        )


def content_words(text: str) -> set[str]:
    """The words of a text in lower case, without the little ones."""
    return set(re.findall(r"\w+", text.lower())) - _LITTLE_WORDS


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else value.name


def _chain(hops: int) -> Callable[[_Facts, Draw], Iterator[_Draft]]:
    def drafts(world: _Facts, draw: Draw) -> Iterator[_Draft]:
        for text, start, end, facts in world.paths(hops - 1, draw):
            for relation, value, fact in draw.shuffled(world.statements(end)):
                question, chain = relation.question.format(e=text), (*facts, fact)
                if isinstance(value, Entity) and value.kind == start.kind and hops > 1:
                    continue
                if _plain(value) not in question and (hops == 1 or world.hidden(question, chain, _plain(value))):
                    yield _Draft(question, value, chain, (start,), hops=hops)
                    break

    return drafts


def _comparison(world: _Facts, draw: Draw) -> Iterator[_Draft]:
    """The earlier of the years of two entities of one kind."""
    for first, second in draw.shuffled(list(combinations(draw.shuffled(world.entities), 2))):
        for relation, text in _EARLIER.items():
            years = [world.value(first, relation), world.value(second, relation)]
            if None in years or years[0] == years[1]:
                continue
            facts = (world.fact(first, relation), world.fact(second, relation))
            earlier = min(facts, key=lambda fact: int(fact.value))
            yield _Draft(
                text.format(a=first.description, b=second.description), earlier.value, facts, (first, second), hops=2
            )


def _yes_no(world: _Facts, draw: Draw) -> Iterator[_Draft]:
    """Half of two entities that are named, half of one that a relation leads to."""
    answer = draw.pick(("yes", "no"))
    if draw.chance(0.5):
        for first, second in draw.shuffled(list(combinations(world.entities, 2))):
            for relation, value, fact in draw.shuffled(world.statements(first)):
                other = world.value(second, relation.name)
                if relation.name in _SAME and other is not None and (value == other) == (answer == "yes"):
                    text = _SAME[relation.name].format(a=first.description, b=second.description)
                    yield _Draft(text, answer, (fact, world.fact(second, relation.name)), (first, second), hops=2)
        return
    for text, start, end, facts in world.paths(1, draw):
        for relation, value, fact in draw.shuffled(world.statements(end)):
            if not relation.phrase or not isinstance(value, Entity) or value.kind == "province":
                continue
            wrong = [other for other in world.entities if other.kind == value.kind and other not in (value, start, end)]
            if answer == "no" and not wrong:
                continue
            claimed = value if answer == "yes" else draw.pick(wrong)
            question = f"is {claimed.description} {relation.phrase.format(e=text)}?"
            if world.hidden(relation.phrase.format(e=text), (*facts, fact), value.name):
                yield _Draft(question[0].upper() + question[1:], answer, (*facts, fact), (start,), hops=2)
                break


def _ambiguous(world: _Facts, draw: Draw) -> Iterator[_Draft]:
    """What namesakes have in common as a relation, with another value each."""
    for first, second in draw.shuffled(list(combinations(world.entities, 2))):
        if first.name != second.name:
            continue
        for relation, value, fact in draw.shuffled(world.statements(first)):
            other = world.value(second, relation.name)
            if other is not None and _plain(other) != _plain(value):
                pairs = tuple(
                    QAPair(relation.question.format(e=entity.description), (_plain(answer),))
                    for entity, answer in ((first, value), (second, other))
                )
                text = relation.question.format(e=f"each {first.kind} called {first.name}")
                yield _Draft(text, "", (fact, world.fact(second, relation.name)), (first, second), pairs)


def _unanswerable(world: _Facts, draw: Draw) -> Iterator[_Draft]:
    hops = 1 + draw.below(2)
    for text, start, end, _ in world.paths(hops - 1, draw):
        missing = world.missing(end)
        if not world.mentioned(end, missing.value):
            yield _Draft(missing.question.format(e=text), "", (), (start,), hops=hops)


_DRAFTS = {
    "one_hop": _chain(1),
    "two_hop": _chain(2),
    "three_hop": _chain(3),
    "comparison": _comparison,
    "yes_no": _yes_no,
    "ambiguous": _ambiguous,
    "unanswerable": _unanswerable,
}
