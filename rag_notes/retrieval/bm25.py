"""BM25 by tantivy, over a corpus in memory or in a file of any size, with a cache of built indexes on disk."""

import hashlib
import heapq
import itertools
import json
import math
import shutil
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import tantivy
from filelock import FileLock
from pydantic import Field
from tqdm import tqdm

from rag_notes.datasets.corpus import CorpusFile, check_ids
from rag_notes.files import replacing
from rag_notes.retrieval.base import Corpus, Counted, corpus_checksum
from rag_notes.retrieval.tokenize import Tokenizer, detect_language
from rag_notes.types import Hit, InputError, Passage

_K1, _B = 1.2, 0.75  # constants of tantivy, Lucene's defaults
_TERMS, _LENGTH, _PLACE = "terms", "length", "place"
_SCHEMA = (
    tantivy.SchemaBuilder()
    .add_text_field(_TERMS, tokenizer_name="whitespace", index_option="freq")
    .add_unsigned_field(_LENGTH, fast=True)  # in terms
    .add_unsigned_field(_PLACE, fast=True)  # of the passage in its corpus: its index or, in a file, its offset
    .build()
)
_ANALYSIS_PACKAGES = ("PyStemmer", "jieba", "stopwords-zh", "tantivy")
_META, _INDEX = "meta.json", "index"
_LAYOUT = 4  # of the files in a folder
_COMMIT = 200_000  # passages between two commits: what a kill costs at most
_THREADS = 1  # of tantivy's: the analysis in Python is slower
_REMEMBERED = 2000  # passages with their terms: the methods of a study find the same ones again and again
_SLACK = 1 - 1e-5  # tantivy adds up scores in single precision, in an order that depends on its segments


class BM25:
    """BM25 with Lucene's formula over title and text, searched by tantivy.

    The score of a passage is the sum over the query's terms, each as often as it occurs there, of ln(1 + (N - df + 0.5)
    / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length)) with k1 = 1.2 and b = 0.75: Lucene's since
    version 8, which keeps a length above 39 terms in one byte, to four significant bits (source: Robertson and
    Zaragoza, The Probabilistic Relevance Framework, 2009, section 3.4; Kamphuis et al., Which BM25 Do You Mean?, ECIR
    2020, Table 1). Tantivy finds the candidates, with all that may tie with the last place; their scores are then
    computed from the passages in double precision, so that neither scores nor order depend on how the index came to be.
    Threads may share the object. Make one with `bm25`.
    """

    name = "bm25"

    def __init__(
        self,
        index: tantivy.Index,
        passage_at: Callable[[int], Passage],
        tokenizer: Tokenizer,
        corpus: Corpus,
        done: str,
    ) -> None:
        """Join an index with the corpus it is of, of which `passage_at` gives the passage of a place.

        `done` says how the index came to be. Raises `ValueError` where no passage has a term.
        """
        self.tokenizer = tokenizer
        self._done = done
        self._corpus = corpus
        self._found = lru_cache(_REMEMBERED)(partial(_found, passage_at, tokenizer))
        self._searcher = index.searcher()
        words = self._searcher.aggregate(tantivy.Query.all_query(), {"sum": {"sum": {"field": _LENGTH}}})
        self._mean_length = words["sum"]["value"] / corpus.passages
        if not self._mean_length:
            raise InputError(f"no passage of the corpus has a word that can be indexed with {tokenizer}")

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the corpus that decides the scores, as plain JSON values."""
        return _settings(self.tokenizer)

    def describe(self) -> dict[str, Any]:
        """Name, settings, number of passages and checksum of the corpus."""
        return {"name": self.name, **self.settings, "corpus": self._corpus._asdict()}

    def build_index(self, *, progress: bool = True) -> str:
        """Say what `bm25` has done, which indexes a corpus on first use; `progress` is of other retrievers."""
        return self._done

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes; a query without a known word gets none."""
        if isinstance(queries, str):
            raise TypeError("queries is one string; pass a list of queries")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        return [self._search_one(query, top_k) for query in queries]

    def _search_one(self, query: str, top_k: int) -> list[Hit]:
        counts = Counter(self.tokenizer(query))
        known = {term: found for term in counts if (found := self._searcher.doc_freq(_TERMS, term))}
        if not known:
            return []
        terms = [
            (tantivy.Occur.Should, tantivy.Query.term_query(_SCHEMA, _TERMS, term, index_option="freq"))
            for term in known
            for _ in range(counts[term])
        ]
        weights = {term: counts[term] * self._idf(found) for term, found in known.items()}
        candidates = self._candidates(tantivy.Query.boolean_query(terms), top_k)
        places: list[Any] = self._searcher.fast_field_values(_PLACE, candidates)
        hits = (Hit(passage, self._score(weights, counts)) for passage, counts in map(self._found, places))
        return heapq.nsmallest(top_k, hits, key=lambda hit: (-hit.score, hit.passage.id))

    def _candidates(self, query: tantivy.Query, top_k: int) -> list[tantivy.DocAddress]:
        """The best by tantivy's score, with all that differ from the last place by no more than rounding does."""
        most = self._corpus.passages + 1
        wanted = min(2 * top_k, most)
        while True:
            found = self._searcher.search(query, wanted, count=False).hits
            lowest = found[min(top_k, len(found)) - 1][0] * _SLACK
            if len(found) < wanted or found[-1][0] < lowest:
                return [address for score, address in found if score >= lowest]
            wanted = min(4 * wanted, most)

    def _idf(self, found: int) -> float:
        return math.log(1 + (self._corpus.passages - found + 0.5) / (found + 0.5))

    def _score(self, weights: dict[str, float], counts: Counter[str]) -> float:
        norm = _K1 * (1 - _B + _B * _kept(counts.total()) / self._mean_length)
        return float(sum(weight * counts[term] / (counts[term] + norm) for term, weight in weights.items()))


def bm25(
    corpus: Sequence[Passage],
    *,
    language: Literal["auto", "en", "zh"] = "auto",
    stemming: bool = True,
    stop_words: bool = True,
    memory_mb: Annotated[int, Field(ge=15, le=4000)] = 256,
    cache: str | None = ".cache/indexes",
) -> BM25:
    """Return BM25 over `corpus`, from the index in the folder `cache` if it is there, else built and put there.

    The index is kept in a folder named by a checksum of the corpus (of the file's bytes, for a `CorpusFile`), the
    settings and the versions of what analyses text, so a change of any makes another. Passages are not copied into it.
    Indexing holds at most `memory_mb` MB of the index; where it was killed, the next call goes on. A damaged index is
    built again with a `RuntimeWarning`. Several processes may do this at once: one indexes, the others wait.
    `cache=None` builds in memory. `language="auto"` means Chinese if most letters of the first 200 passages are Han
    characters, else English. Raises `ValueError` for an empty corpus, one without any word, repeated ids, and a corpus
    file that changes meanwhile.
    """
    if next(iter(corpus), None) is None:
        raise InputError("the corpus is empty, nothing can be retrieved: set dataset.<name>.corpus to its passages")
    tokenizer = Tokenizer(detect_language(corpus) if language == "auto" else language, stemming, stop_words)
    passage_at = corpus.at if isinstance(corpus, CorpusFile) else corpus.__getitem__
    if cache is None:
        index = tantivy.Index(_SCHEMA)
        seen = _fill(index, corpus, tokenizer, memory_mb)
        return BM25(index, passage_at, tokenizer, seen, f"{seen.passages} passages, indexed in memory")
    decisive = [_identity(corpus), _settings(tokenizer), unicodedata.unidata_version, _LAYOUT]
    key = json.dumps(decisive, sort_keys=True)
    folder = Path(cache) / f"bm25-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if (found := _open(folder)) is not None:
            return BM25(found[0], passage_at, tokenizer, found[1], f"{folder}: {found[1].passages} passages, all there")
        index, there, seen = _build(folder, corpus, tokenizer, memory_mb)
    done = f"{folder}: {seen.passages} passages, {seen.passages - there} of them indexed now"
    return BM25(index, passage_at, tokenizer, seen, done)


def _identity(corpus: Sequence[Passage]) -> list[str]:
    """What tells a corpus from others, with how its passages are looked up: the places in an index depend on that."""
    if not isinstance(corpus, CorpusFile):
        return ["passages", corpus_checksum(corpus)]
    return [f"file{Path(corpus.path).suffix}", _file_checksum(Path(corpus.path))]


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    versions = {package: version(package) for package in _ANALYSIS_PACKAGES}
    return {"k1": _K1, "b": _B, "tokenizer": tokenizer.settings, "versions": versions}


def _open(folder: Path) -> tuple[tantivy.Index, Corpus] | None:
    """The index in `folder` with what it is of; None, and nothing of it left, where it is damaged, with a warning."""
    if not (folder / _META).exists():
        return None
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        corpus, files = Corpus(**meta["corpus"]), _checksums(folder)
        if wrong := sorted(name for name, _ in files.items() ^ meta["files"].items()):
            raise InputError(f"not as it was written: {wrong[0]}")
        return _searchable(tantivy.Index.open(str(folder / _INDEX))), corpus
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        _discard(folder, f"is damaged and is built again: {error!r}")
        return None


def _build(
    folder: Path, corpus: Sequence[Passage], tokenizer: Tokenizer, memory_mb: int
) -> tuple[tantivy.Index, int, Corpus]:
    """Index what is missing; returns the index, how many passages were there, and what it is of now."""
    identity, path = _identity(corpus), folder / _INDEX
    try:
        path.mkdir(exist_ok=True)
        index = _searchable(tantivy.Index(_SCHEMA, str(path)))
    except ValueError as error:
        _discard(folder, f"is damaged, unfinished as it is, and is begun again: {error}")
        path.mkdir()
        index = _searchable(tantivy.Index(_SCHEMA, str(path)))
    there = index.searcher().num_docs
    seen = _fill(index, corpus, tokenizer, memory_mb, there=there)
    if _identity(corpus) != identity:
        shutil.rmtree(path)
        raise InputError("the corpus changed while it was indexed; index it again")
    meta = {"corpus": seen._asdict(), "files": _checksums(folder)}
    with replacing(folder / _META) as file:  # last: without it nothing looks whole
        file.write(json.dumps(meta, indent=2).encode())
    return index, there, seen


def _fill(
    index: tantivy.Index, corpus: Sequence[Passage], tokenizer: Tokenizer, memory_mb: int, *, there: int = 0
) -> Corpus:
    """Add the passages behind the first `there`, which the index has; returns what it is of then."""
    counted, total = Counted(corpus), check_ids(corpus)
    places = corpus.offsets() if isinstance(corpus, CorpusFile) else itertools.count()
    located = itertools.islice(zip(places, counted, strict=False), there, None)
    bar = tqdm(located, total=total, initial=there, unit=" passages", delay=1, file=sys.stderr)
    with index.writer(memory_mb * 10**6, _THREADS) as writer:  # which commits and waits for merges at the end
        for number, (place, passage) in enumerate(bar, there + 1):
            terms = tokenizer(_text(passage))
            document = tantivy.Document()
            document.add_text(_TERMS, " ".join(terms))
            document.add_unsigned(_LENGTH, len(terms))
            document.add_unsigned(_PLACE, place)
            writer.add_document(document)
            if number % _COMMIT == 0:
                writer.commit()
    _searchable(index)
    return counted.seen()


def _searchable(index: tantivy.Index) -> tantivy.Index:
    """Have the index read once: by default it would look for changes twice a second."""
    index.config_reader("manual")
    index.reload()
    return index


def _found(passage_at: Callable[[int], Passage], tokenizer: Tokenizer, place: int) -> tuple[Passage, Counter[str]]:
    """The passage of a place, and how often it has each term."""
    passage = passage_at(place)
    return passage, Counter(tokenizer(_text(passage)))


def _text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


def _kept(length: int) -> int:
    """What Lucene's and tantivy's byte keeps of a length: above 39 what four significant bits beyond 24 tell."""
    dropped = max(0, (length - 24).bit_length() - 4)
    return length if length < 40 else 24 + ((length - 24) >> dropped << dropped)


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in (folder / _INDEX).iterdir() if path.suffix != ".lock")
    return {path.name: _file_checksum(path) for path in files}


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _discard(folder: Path, why: str) -> None:
    warnings.warn(f"the index in {folder} {why}", RuntimeWarning, stacklevel=4)
    (folder / _META).unlink(missing_ok=True)
    aside = folder / "discarded"
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(FileNotFoundError):
        (folder / _INDEX).rename(aside)  # so that a kill leaves none that is half removed
    shutil.rmtree(aside, ignore_errors=True)
