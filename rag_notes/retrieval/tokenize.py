"""Analysis of text for lexical retrieval: the index and the queries must go through the same `Tokenizer`."""

import re
import threading
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

import jieba
import Stemmer
from bm25s.stopwords import STOPWORDS_CHINESE, STOPWORDS_EN

from rag_notes.types import Language, Passage

# Han characters with the iteration mark and the ideographic zero, as the inside of a character class.
_CJK = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
CJK_LETTER = re.compile(f"[{_CJK}]")

_WORD = re.compile(r"\w+")
_RUN = re.compile(rf"(?P<cjk>[{_CJK}]+)|[^\W{_CJK}]+")
_LANGUAGE_SAMPLE = 200
_STOP_WORDS_EN = frozenset(STOPWORDS_EN)
_STOP_WORDS_ZH = frozenset(STOPWORDS_CHINESE)


class _ThreadLocal(threading.local):
    """A stemmer for each thread: PyStemmer's objects have inner state and must not be shared."""

    def __init__(self) -> None:
        self.stem = Stemmer.Stemmer("english").stemWords


_LOCAL = _ThreadLocal()


@cache
def _segmenter() -> jieba.Tokenizer:
    """Return a jieba segmenter made without its `initialize`, which logs to stderr and writes a cache file."""
    segmenter = jieba.Tokenizer()
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Turns a text into the list of its index terms, in order and with repetitions.

    Text is NFKC-normalised and put in lower case; accents stay. For `language="en"` terms are runs of Unicode word
    characters without Lucene's 33 English stop words, stemmed by Snowball's English (Porter 2) stemmer: what
    Elasticsearch's `english` analyser does. For `language="zh"` runs of Han characters are cut by jieba in search
    mode, which adds the known shorter words inside a long one, and are never stemmed; everything between them
    takes the English route.
    """

    language: Language = "en"
    stemming: bool = True
    stop_words: bool = True

    def __post_init__(self) -> None:
        if self.language not in ("en", "zh"):
            raise ValueError(f"language is {self.language!r}; it must be 'en' or 'zh'")

    @property
    def settings(self) -> dict[str, str | bool]:
        """The settings as plain JSON values, always in the same order."""
        return asdict(self)

    def __call__(self, text: str) -> list[str]:
        """Return the terms of `text`; the list is empty when it has none."""
        text = unicodedata.normalize("NFKC", text).lower()
        return self._english(_WORD.findall(text)) if self.language == "en" else self._chinese(text)

    def _english(self, words: list[str]) -> list[str]:
        if self.stop_words:
            words = [word for word in words if word not in _STOP_WORDS_EN]
        return _LOCAL.stem(words) if self.stemming else words

    def _chinese(self, text: str) -> list[str]:
        terms: list[str] = []
        for run in _RUN.finditer(text):
            if run["cjk"] is None:
                terms += self._english([run[0]])
                continue
            words = _segmenter().lcut_for_search(run[0])
            terms += [word for word in words if word not in _STOP_WORDS_ZH] if self.stop_words else words
        return terms


def detect_language(corpus: Sequence[Passage]) -> Language:
    """Return "zh" if most letters of up to 200 passages, evenly spread over `corpus`, are Han characters, else "en"."""
    step = -(-len(corpus) // _LANGUAGE_SAMPLE) or 1
    sample = "".join(passage.title + passage.text for passage in corpus[::step])
    letters = sum(map(str.isalpha, sample))
    return "zh" if 2 * len(CJK_LETTER.findall(sample)) > letters else "en"
