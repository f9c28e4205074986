"""Analysis of text for lexical retrieval: the index and the queries must go through the same `Tokenizer`."""

import re
import threading
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice

import jieba
import Stemmer
from stopwords import stopwords

from rag_notes.types import Language, Passage

# Han characters with the iteration mark and the ideographic zero, as the inside of a character class.
_CJK = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
CJK_LETTER = re.compile(f"[{_CJK}]")

# Word characters, with what joins letters (don't, e.g) and digits (3.5, 1,794): rules WB6, WB7, WB11 and WB12 of
# Unicode Standard Annex 29, by which Lucene's standard tokenizer cuts.
_WORD = re.compile(r"\w+(?:(?:(?<=[^\W\d_])['’‘.:·‧](?=[^\W\d_])|(?<=\d)['’‘.,;](?=\d))\w+)*")
_RUN = re.compile(rf"(?P<cjk>[{_CJK}]+)|[^{_CJK}]+")
STOP_WORDS_EN = dict.fromkeys(re.findall(r"\w+", """
    a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to
    was will with"""))  # fmt: skip
_STOP_WORDS_ZH = frozenset(stopwords("baidu"))


class _Stemmer(threading.local):  # PyStemmer's objects have inner state and must not be shared
    def __init__(self) -> None:
        self.stem = Stemmer.Stemmer("porter", 0).stemWords  # its cache is slower than stemming


_STEMMER = _Stemmer()


@cache
def _segmenter() -> jieba.Tokenizer:
    """Make a jieba segmenter without its `initialize`, which logs to stderr and writes a cache file."""
    segmenter = jieba.Tokenizer()
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Turns a text into the list of its index terms, in order and with repetitions.

    Text is NFKC-normalised and put in lower case; accents stay. For `language="en"` terms are the words of Unicode
    Standard Annex 29 without the possessive 's and without Lucene's 33 English stop words, stemmed by Porter's stemmer
    (Porter, An Algorithm for Suffix Stripping, 1980): what Elasticsearch's `english` analyser does. For `language="zh"`
    runs of Han characters are cut by jieba in search mode, which adds the known shorter words inside a long one,
    without Baidu's stop words, and are never stemmed; everything between them takes the English route.
    """

    language: Language = "en"
    stemming: bool = True
    stop_words: bool = True

    def __call__(self, text: str) -> list[str]:
        """Return the terms of `text`."""
        text = unicodedata.normalize("NFKC", text).lower()
        return self._english(text) if self.language == "en" else self._chinese(text)

    def _english(self, text: str) -> list[str]:
        words = [word[:-2] if word.endswith(("'s", "’s")) else word for word in _WORD.findall(text)]
        if self.stop_words:
            words = [word for word in words if word not in STOP_WORDS_EN]
        return _STEMMER.stem(words) if self.stemming else words

    def _chinese(self, text: str) -> list[str]:
        terms: list[str] = []
        for run in _RUN.finditer(text):
            if run["cjk"] is None:
                terms += self._english(run[0])
                continue
            words = _segmenter().lcut_for_search(run[0])
            terms += [word for word in words if word not in _STOP_WORDS_ZH] if self.stop_words else words
        return terms


def detect_language(corpus: Iterable[Passage]) -> Language:
    """Return "zh" if most letters of the first 200 passages of `corpus` are Han characters, else "en"."""
    sample = "".join(passage.title + passage.text for passage in islice(corpus, 200))
    letters = sum(map(str.isalpha, sample))
    return "zh" if 2 * len(CJK_LETTER.findall(sample)) > letters else "en"
