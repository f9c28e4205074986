"""Draws that are the same everywhere, and invented names of which no two are alike in a world."""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

Item = TypeVar("Item")

_ONSETS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "gr", "kr", "tr")
_VOWELS = "aeiou"
_CODAS = ("k", "lm", "nd", "rn", "sk", "th", "v", "x", "z", "rd", "sh", "lt")
_SYLLABLES = tuple(onset + vowel for onset in _ONSETS for vowel in _VOWELS)

WORDS = len(_SYLLABLES) ** 3 * len(_CODAS)
"""How many different words `word` knows."""


class Draw:
    """A source of chance whose draws a seed fixes on every version of Python.

    Only `random.Random.random` promises the same sequence for ever, so everything else is made from it.
    """

    def __init__(self, *seed: int | str) -> None:
        self._random = random.Random(":".join(map(str, seed)))

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        return int(self._random.random() * end)

    def chance(self, share: float) -> bool:
        """True in that share of all draws."""
        return self._random.random() < share

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """All items in a random order."""
        keys = [self._random.random() for _ in items]
        return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]


def word(seed: int, index: int) -> str:
    """The word number `index` of this seed, three syllables with a capital; another index always gives another word.

    A word is read as onset and vowel three times and a coda, in one way only, and the numbers of the words are
    permuted by a multiplication that has an inverse modulo `WORDS`, so two numbers never meet. Raises `ValueError`
    outside 0 to `WORDS` - 1.
    """
    if not 0 <= index < WORDS:
        raise ValueError(f"a world has {WORDS} words, there is no number {index}")
    factor, shift = _permutation(seed)
    number, coda = divmod((index * factor + shift) % WORDS, len(_CODAS))
    number, third = divmod(number, len(_SYLLABLES))
    first, second = divmod(number, len(_SYLLABLES))
    return (_SYLLABLES[first] + _SYLLABLES[second] + _SYLLABLES[third] + _CODAS[coda]).capitalize()


@lru_cache(maxsize=8)
def _permutation(seed: int) -> tuple[int, int]:
    draw = Draw(seed, "words")
    factor = draw.below(WORDS)
    while math.gcd(factor, WORDS) > 1:
        factor += 1
    return factor, draw.below(WORDS)


def first_name(draw: Draw) -> str:
    """A first name: two syllables, which a word of a world never is."""
    return (draw.pick(_SYLLABLES) + draw.pick(_SYLLABLES)).capitalize()
