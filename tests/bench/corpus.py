"""A corpus of any size whose word frequencies and passage lengths follow real ones.

The figures were fitted to the 8,413 passages (691,362 words) that samples of the development sets of 2WikiMultiHopQA
(500 questions), HotpotQA (200) and MuSiQue (200) have. The share of the text that the 1, 3, 10, ..., 10,000 most
frequent words make up differs from theirs by at most 0.04, and the number of different words in their first 7,734 to
691,362 by at most 8 %. Lengths are log-normal: 64 words in the median, 82 in the mean.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_notes.datasets.corpus import passage_line
from rag_notes.retrieval.tokenize import STOP_WORDS_EN
from rag_notes.types import Passage

_WORDS = 5_000_000  # in the language; a corpus of a million passages has some 770,000 of them
# The frequency of the word of a rank is (rank + _OFFSET) ** -_EXPONENT up to _BEND, then falls with the power _STEEPER.
_OFFSET, _EXPONENT, _BEND, _STEEPER = 0.181, 0.944, 2656, 1.651
_LENGTH, _SPREAD, _SHORTEST, _LONGEST = 4.161, 0.713, 7, 800  # mean and deviation of the logarithm; words
_QUESTION = 14  # words, the mean of the three samples
_TITLE = 2  # words
_BLOCK = 10_000  # passages made together
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]


class _Language(dict[int, str]):
    """The words by rank, from 0: the stop words first, as in real text, then two or more syllables."""

    def __missing__(self, rank: int) -> str:
        number, word = rank, ""
        while number or len(word) < 4:
            number, syllable = divmod(number, len(_SYLLABLES))
            word += _SYLLABLES[syllable]
        self[rank] = word
        return word


def write_corpus(path: Path, passages: int, *, seed: int = 0) -> None:
    """Write a corpus file; a smaller one is the beginning of a larger one as long as both are whole blocks."""
    with path.open("w", encoding="utf-8") as file:
        for number, words in enumerate(_texts(passages, np.random.default_rng(seed))):
            title, text = " ".join(words[:_TITLE]), " ".join(words[_TITLE:])
            file.write(passage_line(Passage(f"p{number}", title, text)))


def questions(corpus: Path, count: int, *, seed: int = 1) -> list[str]:
    """Questions, each of words of one of the first passages, so that there is something to find."""
    draw = np.random.default_rng(seed)
    with corpus.open(encoding="utf-8") as file:
        texts = [line.split() for line, _ in zip(file, range(count), strict=False)]
    return [" ".join(draw.choice(words[1:-1], _QUESTION)) for words in texts]


def _texts(passages: int, draw: np.random.Generator) -> Iterator[list[str]]:
    language = _Language(enumerate(STOP_WORDS_EN))
    cumulated = np.cumsum(_frequencies())
    for start in range(0, passages, _BLOCK):
        lengths = np.exp(draw.normal(_LENGTH, _SPREAD, min(_BLOCK, passages - start)))
        ends = np.cumsum(lengths.clip(_SHORTEST, _LONGEST).astype(np.int64)).tolist()
        ranks = np.searchsorted(cumulated, draw.random(ends[-1])).tolist()
        begin = 0
        for end in ends:
            yield [language[rank] for rank in ranks[begin:end]]
            begin = end


def _frequencies() -> NDArray[np.float64]:
    ranks = np.arange(1, _WORDS + 1) + _OFFSET
    bend = _BEND + _OFFSET
    weights = np.where(ranks <= bend, ranks**-_EXPONENT, bend**-_EXPONENT * (ranks / bend) ** -_STEEPER)
    frequencies: NDArray[np.float64] = weights / weights.sum()
    return frequencies
