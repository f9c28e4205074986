"""BM25 over a corpus in memory or memory-mapped, with a cache of built indexes on disk."""

import hashlib
import json
import logging
import math
import mmap
import shutil
import uuid
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import bm25s
import numpy as np
import numpy.typing as npt

from rag_notes.datasets.corpus_file import CorpusFile, passage_line
from rag_notes.retrieval.base import corpus_checksum, id_ranks
from rag_notes.retrieval.tokenize import Tokenizer, detect_language
from rag_notes.retrieval.vocabulary import Vocabulary, write_vocabulary
from rag_notes.types import Hit, Passage

# bm25s sets its logger to DEBUG itself, so that every index built would be reported by whoever handles the root logger.
logging.getLogger("bm25s").setLevel(logging.WARNING)

_ANALYSIS_PACKAGES = ("bm25s", "PyStemmer", "jieba")
_META, _PASSAGES, _RANKS = "meta.json", "passages.jsonl", "ranks.npy"
_LAYOUT = 3  # of the files in a folder
# After a query its pages of a mapped index stay in the system's cache, but not in the process, which would only grow.
_GIVE_BACK: int | None = getattr(mmap, "MADV_DONTNEED", None)  # not on every system


class BM25:
    """BM25 with Lucene's formula over title and text, scored by bm25s.

    The score of a passage is the sum over the query's terms of ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 *
    (1 - b + b * length / mean length)), in single precision. It is Lucene's since version 8 but for the length, which
    Lucene keeps in one byte (source: Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009,
    section 3.4; Kamphuis et al., Which BM25 Do You Mean?, ECIR 2020, Table 1). Searching changes nothing in the
    object, so threads may share it. Make one with `build`, `load` or the cached `bm25`.
    """

    name = "bm25"

    def __init__(
        self,
        index: bm25s.BM25,
        passages: Sequence[Passage],
        tokenizer: Tokenizer,
        *,
        vocabulary: dict[str, int] | Vocabulary | None = None,
        ranks: npt.NDArray[np.integer] | None = None,
        checksum: str | None = None,
    ) -> None:
        """Join an index with its passages, in the order of indexing; raises `ValueError` if two share an id.

        `vocabulary` numbers the terms (None: that of the index), `ranks` are the places of the passages in the order of
        their ids, `checksum` that of the corpus, where known.
        """
        self.passages = passages
        self.tokenizer = tokenizer
        self._index = index
        self._id_rank = id_ranks(passages) if ranks is None else ranks
        self._checksum = checksum
        self._vocabulary = index.vocab_dict if vocabulary is None else vocabulary
        bases: list[Any] = [array.base for array in index.scores.values() if isinstance(array, np.memmap)]
        self._mapped = [base for base in bases if isinstance(base, mmap.mmap)]
        # Slicing a np.memmap costs several times what slicing a plain view of the same pages does.
        index.scores |= {name: np.asarray(index.scores[name]) for name in ("data", "indices", "indptr")}

    @classmethod
    def build(
        cls, passages: Sequence[Passage], *, k1: float = 1.2, b: float = 0.75, tokenizer: Tokenizer | None = None
    ) -> "BM25":
        """Index `passages` (title and text) in memory.

        Raises `ValueError` for an empty corpus, one without any word, repeated ids, or `k1` or `b` out of range.
        """
        tokenizer = tokenizer or Tokenizer()
        if not (0 <= k1 < math.inf and 0 <= b <= 1):
            raise ValueError(f"BM25 needs a finite k1 >= 0 and 0 <= b <= 1, got k1={k1} and b={b}")
        if not passages:
            raise ValueError("the corpus is empty, nothing can be retrieved: set dataset.<name>.corpus to its passages")
        # Ids in order of first appearance: bm25s would number the terms by hash order, another one in each process.
        vocabulary: dict[str, int] = {}
        ids = [
            [vocabulary.setdefault(term, len(vocabulary)) for term in tokenizer(f"{passage.title}\n{passage.text}")]
            for passage in passages
        ]
        if not vocabulary:
            raise ValueError(f"no passage of the corpus has a word that can be indexed with {tokenizer}")
        index = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy")
        index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        return cls(index, passages, tokenizer)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the corpus that decides the scores, as plain JSON values."""
        return _settings(self._index.k1, self._index.b, self.tokenizer)

    def describe(self) -> dict[str, Any]:
        """Name, settings, number of passages and checksum of the corpus."""
        checksum = self._checksum or corpus_checksum(self.passages)
        corpus = {"passages": len(self.passages), "sha256": checksum}
        return {"name": self.name, **self.settings, "corpus": corpus}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes; a query without a known word gets none."""
        if isinstance(queries, str):
            raise TypeError("queries is one string; pass a list of queries")
        if top_k < 1:
            raise ValueError(f"top_k is {top_k}; it must be at least 1")
        return [self._search_one(query, top_k) for query in queries]

    def _search_one(self, query: str, top_k: int) -> list[Hit]:
        found_terms = map(self._vocabulary.get, self.tokenizer(query))
        terms = [number for number in found_terms if number is not None]
        if not terms:
            return []
        scores = self._index.get_scores_from_ids(terms)
        if _GIVE_BACK is not None:
            for mapped in self._mapped:
                mapped.madvise(_GIVE_BACK)
        # Lucene's scores are positive for every passage with a query term, so zero means that none occurs.
        candidates = np.flatnonzero(scores)
        if len(candidates) > top_k:
            # Keep all that tie with the last place before sorting: a plain top-k selection would pick any of them.
            found = scores[candidates]
            candidates = candidates[found >= np.partition(found, -top_k)[-top_k]]
        order = np.lexsort((self._id_rank[candidates], -scores[candidates]))[:top_k]
        return [Hit(self.passages[i], float(scores[i])) for i in candidates[order].tolist()]

    def save(self, folder: str | Path) -> None:
        """Write the index, its passages and `meta.json` into the new folder `folder`, all or nothing.

        The same corpus and settings give the same bytes. Raises `FileExistsError` if `folder` holds something.
        """
        folder = Path(folder)
        unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
        unfinished.mkdir(parents=True)
        try:
            self._index.save(unfinished, show_progress=False)
            (unfinished / "vocab.index.json").unlink()
            write_vocabulary(unfinished, self._vocabulary.items())
            with (unfinished / _PASSAGES).open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(map(passage_line, self.passages))
            np.save(unfinished / _RANKS, self._id_rank)
            meta = {
                "corpus": _file_checksum(unfinished / _PASSAGES),
                "settings": self.settings,
                "files": {path.name: _file_checksum(path) for path in sorted(unfinished.iterdir())},
            }
            (unfinished / _META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
            try:
                unfinished.rename(folder)
            except OSError as error:
                if folder.exists():
                    raise FileExistsError(f"{folder} exists; remove it or save the index elsewhere") from error
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        passages: Sequence[Passage] | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        mmap: bool = True,
    ) -> "BM25":
        """Open an index written by `save`, memory-mapped unless `mmap` is false.

        With `passages`, the index must be of exactly these, in this order, and they are used as they are; without,
        each is read from the folder when it is found. With `settings`, the index must have been built with these.
        Raises `ValueError` naming both sides if passages, settings or the versions of the packages that analyse
        text differ, and naming the file if one is damaged; `FileNotFoundError` if one is missing.
        """
        folder = Path(folder)
        try:
            meta = json.loads((folder / _META).read_text(encoding="utf-8"))
            built, files = meta["settings"], dict(meta["files"])
            tokenizer = Tokenizer(**built["tokenizer"])
            expected = settings or _settings(built["k1"], built["b"], tokenizer)
            indexed = meta["corpus"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder / _META} is damaged: {error!r}") from error
        if built != expected:
            raise ValueError(f"{folder} was built with {built}, but {expected} is asked for; build it again")
        if passages is not None and (checksum := corpus_checksum(passages)) != indexed:
            raise ValueError(
                f"{folder} is the index of the corpus with checksum {indexed}, but the passages given have "
                f"{checksum}; build it again or give it its own passages"
            )
        for name, checksum in files.items():
            if (actual := _file_checksum(folder / name)) != checksum:
                raise ValueError(f"{folder / name} is damaged: checksum {actual}, written with {checksum}")
        if passages is None:
            passages = CorpusFile(str(folder / _PASSAGES), folder.name)
            passages[0]  # opens it, so that it can be read on where the folder is removed
        index = bm25s.BM25.load(folder, mmap=mmap, load_vocab=False, show_progress=False)
        ranks = np.load(folder / _RANKS, mmap_mode="r" if mmap else None)
        return cls(index, passages, tokenizer, vocabulary=Vocabulary(folder), ranks=ranks, checksum=indexed)


def bm25(
    corpus: Sequence[Passage],
    *,
    k1: float = 1.2,
    b: float = 0.75,
    language: Literal["auto", "en", "zh"] = "auto",
    stemming: bool = True,
    stop_words: bool = True,
    cache: str | None = ".cache/indexes",
) -> BM25:
    """Return BM25 over `corpus`, from the index in the folder `cache` if it is there, else built and put there.

    The index is kept in a folder named by a checksum of the corpus, the settings and the versions of the packages that
    analyse text, so a change of any makes another. One that is damaged is built again with a `RuntimeWarning`.
    Several processes may do this at once. `cache=None` builds in memory. `language="auto"` means Chinese if most
    letters of up to 200 passages, evenly spread over the corpus, are Han characters, else English. Raises
    `ValueError` as `BM25.build`.
    """
    tokenizer = Tokenizer(detect_language(corpus) if language == "auto" else language, stemming, stop_words)
    if cache is None or not corpus:
        return BM25.build(corpus, k1=k1, b=b, tokenizer=tokenizer)
    settings = _settings(k1, b, tokenizer)
    key = json.dumps({"corpus": corpus_checksum(corpus), "settings": settings, "layout": _LAYOUT}, sort_keys=True)
    folder = Path(cache) / f"bm25-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    if folder.exists():
        try:
            return BM25.load(folder, settings=settings)  # of this corpus, by its name
        except (OSError, ValueError) as error:
            warnings.warn(f"the cached index is damaged and is built again: {error}", RuntimeWarning, stacklevel=2)
            _discard(folder)
    retriever = BM25.build(corpus, k1=k1, b=b, tokenizer=tokenizer)
    with suppress(FileExistsError):  # another process may have built the same index meanwhile
        retriever.save(folder)
    return retriever


def _settings(k1: float, b: float, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "method": "lucene",
        "k1": float(k1),
        "b": float(b),
        "tokenizer": tokenizer.settings,
        "versions": {package: version(package) for package in _ANALYSIS_PACKAGES},
    }


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _discard(folder: Path) -> None:
    """Remove a folder that others may be reading: renamed first, so that nobody finds it half empty."""
    aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return  # another process found the damage too
    shutil.rmtree(aside, ignore_errors=True)
