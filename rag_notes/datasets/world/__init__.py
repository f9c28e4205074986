"""A generated benchmark of any size: an invented world, of which no model knows anything, and all of it is known."""

from collections.abc import Iterator
from itertools import chain, count, islice

from rag_notes.datasets._build import Entry, build
from rag_notes.datasets._read import DataError
from rag_notes.datasets.world.questions import SCHEDULE, Asked, region_questions
from rag_notes.datasets.world.region import PASSAGES, REGIONS, region
from rag_notes.types import Dataset, Fact, Name, NonNegative, Passage, Positive


def world(
    *,
    name: Name = "world",
    questions: Positive = 300,
    seed: NonNegative = 7,
    distractors: NonNegative = 0,
) -> Dataset:
    """Generate questions on invented people, places, works, companies and events, with the passages that answer them.

    The world of a `seed` is a row of regions of 36 passages each that never mention one another; `questions` asks so
    many questions of the first regions, whose passages are the corpus, and `distractors` adds so many passages of the
    regions behind them. So a question and a passage stay the same whatever the size. Everything is made from the seed
    alone. Raises `DataError` on an option out of range and where a world of that size would run out of names.
    """
    asked, used = _asked(seed, questions)
    _check(name, "distractors", distractors, 0)
    passages = used * PASSAGES + distractors
    entries = [Entry(f"question {number}", one.question) for number, one in enumerate(asked, 1)]
    return build(name, "the generated world", entries, tuple(world_passages(seed, passages)))


def world_chains(seed: int, questions: int) -> dict[str, tuple[Fact, ...]]:
    """For each question of `world` by its id, the facts that its answer follows from, in the order of its hops.

    An unanswerable question has none; of a comparison and an ambiguous question the facts stand side by side, for each
    entity that the question names. The subject of a later hop's fact is the value of one before it.
    """
    return {one.question.id: one.facts for one in _asked(seed, questions)[0]}


def world_passages(seed: int, passages: int) -> Iterator[Passage]:
    """So many passages of the world of a seed, one region in memory at a time.

    Raises `DataError` where the world has fewer.
    """
    _check("world", "seed", seed, 0)
    if not 0 <= passages <= REGIONS * PASSAGES:
        raise DataError(f"a world has up to {REGIONS * PASSAGES} passages, {passages} were asked for")
    regions = (region(seed, number) for number in count())
    return islice(chain.from_iterable(made.passages for made in regions), passages)


def _asked(seed: int, questions: int) -> tuple[list[Asked], int]:
    """The first questions of a world, and how many regions they are on."""
    _check("world", "seed", seed, 0)
    _check("world", "questions", questions, 1)
    asked: list[Asked] = []
    for number in range(min(REGIONS, questions)):
        asked += region_questions(seed, number, region(seed, number))
        if len(asked) >= questions:
            return asked[:questions], number + 1
    raise DataError(f"a world has about {REGIONS * len(SCHEDULE)} questions, {questions} were asked for")


def _check(name: str, option: str, value: int, least: int) -> None:
    if value < least:
        raise DataError(f"dataset.{name}.{option}: expected {least} or more, found {value}")
