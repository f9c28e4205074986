"""BM25 by tantivy, over a corpus in memory or in a file of any size, with a cache of built indexes on disk."""

import hashlib
import heapq
import itertools
import json
import math
import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tantivy
from filelock import FileLock
from pydantic import Field
from tqdm import tqdm

from rag_notes.datasets.corpus import CorpusFile, check_ids
from rag_notes.files import checksum_of, write_atomically
from rag_notes.retrieval.base import CorpusSize, check_search, measure
from rag_notes.retrieval.cached import LARGE
from rag_notes.retrieval.tokenize import Tokenizer, detect_language
from rag_notes.types import Hit, InputError, Passage

_K1, _B = 1.2, 0.75  # constants of tantivy, Lucene's defaults
_TERMS, _LENGTH, _POSITION = "terms", "length", "place"
_SCHEMA = (
    tantivy.SchemaBuilder()
    .add_text_field(_TERMS, tokenizer_name="whitespace", index_option="freq")
    .add_unsigned_field(_LENGTH, fast=True)  # in terms
    .add_unsigned_field(_POSITION, fast=True)  # of the passage in its corpus: its index or, in a file, its offset
    .build()
)
_LAYOUT = 4  # of the files in a folder
_COMMIT = 200_000  # passages between two commits: what a kill costs at most
_THREADS = 1  # of tantivy's: the analysis in Python is slower
_REMEMBERED = 2000  # passages with their terms: the methods of a study find the same ones again and again
_SLACK = 1 - 1e-5  # tantivy adds up scores in single precision, in an order that depends on its segments


@dataclass(eq=False)
class BM25:
    """BM25 with Lucene's formula over title and text, searched by tantivy. Make one with `bm25`.

    The score of a passage is the sum over the query's terms, each as often as it occurs there, of ln(1 + (N - df + 0.5)
    / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length)) with k1 = 1.2 and b = 0.75: Lucene's since
    version 8, which keeps a length above 39 terms in one byte, to four significant bits (source: Robertson and
    Zaragoza, The Probabilistic Relevance Framework, 2009, section 3.4; Kamphuis et al., Which BM25 Do You Mean?, ECIR
    2020, Table 1). Tantivy finds the candidates; their scores are then computed from the passages, in double precision,
    so that neither scores nor order depend on how the index was built. Threads may share the object. `passage_at`
    returns the passage at a position of the corpus.
    """

    index: tantivy.Index
    passage_at: Callable[[int], Passage]
    tokenizer: Tokenizer
    corpus: CorpusSize
    summary: str
    name: ClassVar = "bm25"

    def __post_init__(self) -> None:
        self.slow, self._searcher = self.corpus.passages >= LARGE, self.index.searcher()
        self._counted = lru_cache(_REMEMBERED)(self._count_terms)
        lengths = self._searcher.aggregate(tantivy.Query.all_query(), {"sum": {"sum": {"field": _LENGTH}}})
        self._mean_length = lengths["sum"]["value"] / self.corpus.passages
        if not self._mean_length:
            raise InputError(f"no passage of the corpus has a word that can be indexed with {self.tokenizer}")

    def describe(self) -> dict[str, Any]:
        """Name, settings, number of passages and checksum of the corpus."""
        return {"name": self.name, **_settings(self.tokenizer), "corpus": self.corpus._asdict()}

    def build_index(self, *, progress: bool = True) -> str:
        """Return what `bm25` has done, which indexes a corpus on first use; `progress` is of other retrievers."""
        return self.summary

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes; a query without a known word gets none."""
        check_search(queries, top_k)
        return [self._search_one(query, top_k) for query in queries]

    def _search_one(self, query: str, top_k: int) -> list[Hit]:
        counts = Counter(self.tokenizer(query))
        frequencies = {term: df for term in counts if (df := self._searcher.doc_freq(_TERMS, term))}
        if not frequencies:
            return []
        terms = [
            (tantivy.Occur.Should, tantivy.Query.term_query(_SCHEMA, _TERMS, term, index_option="freq"))
            for term in frequencies
            for _ in range(counts[term])
        ]
        size = self.corpus.passages
        weights = {t: counts[t] * math.log(1 + (size - df + 0.5) / (df + 0.5)) for t, df in frequencies.items()}
        candidates = self._candidates(tantivy.Query.boolean_query(terms), top_k)
        positions: list[Any] = self._searcher.fast_field_values(_POSITION, candidates)
        hits = (Hit(passage, self._score(weights, counts)) for passage, counts in map(self._counted, positions))
        return heapq.nsmallest(top_k, hits, key=lambda hit: (-hit.score, hit.passage.id))

    def _candidates(self, query: tantivy.Query, top_k: int) -> list[tantivy.DocAddress]:
        """The best by tantivy's score, with all that differ from the last place by no more than rounding does."""
        limit = self.corpus.passages + 1
        depth = min(2 * top_k, limit)
        while True:
            hits = self._searcher.search(query, depth, count=False).hits
            lowest = hits[min(top_k, len(hits)) - 1][0] * _SLACK
            if len(hits) < depth or hits[-1][0] < lowest:
                return [address for score, address in hits if score >= lowest]
            depth = min(4 * depth, limit)

    def _count_terms(self, position: int) -> tuple[Passage, Counter[str]]:
        passage = self.passage_at(position)
        return passage, Counter(_terms(passage, self.tokenizer))

    def _score(self, weights: dict[str, float], counts: Counter[str]) -> float:
        norm = _K1 * (1 - _B + _B * lucene_length(counts.total()) / self._mean_length)
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
    """Return BM25 over `corpus`, from the index in the folder `cache` if there is one, else built and stored there.

    The index lies in a folder named by a checksum of the corpus (of the file's bytes, for a `CorpusFile`), the settings
    and the versions of what analyses text, so a change of any makes another. Passages are not copied into it. Indexing
    holds at most `memory_mb` MB of the index; where it was killed, the next call goes on. Of several processes one
    indexes and the others wait. `cache=None` builds in memory. `language="auto"` means Chinese if most letters of the
    first 200 passages are Han characters, else English. Raises InputError for an empty corpus, one without any word,
    repeated ids, a damaged index, and a corpus file that changes meanwhile.
    """
    tokenizer = Tokenizer(detect_language(corpus) if language == "auto" else language, stemming, stop_words)
    passage_at = corpus.at if isinstance(corpus, CorpusFile) else corpus.__getitem__
    if cache is None:
        index = tantivy.Index(_SCHEMA)
        whole = _fill(index, corpus, tokenizer, memory_mb)
        return BM25(index, passage_at, tokenizer, whole, f"{whole.passages} passages, indexed in memory")
    identity = _identity(corpus)
    key = json.dumps([identity, _settings(tokenizer), unicodedata.unidata_version, _LAYOUT], sort_keys=True)
    folder = Path(cache) / f"bm25-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    (folder / "index").mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        meta = folder / "meta.json"
        try:
            index = _searchable(tantivy.Index(_SCHEMA, str(folder / "index")))  # new, or of a process that was killed
            present = index.searcher().num_docs
            size = CorpusSize(**json.loads(meta.read_text(encoding="utf-8"))["corpus"]) if meta.exists() else None
            if size is not None and size.passages != present:
                raise InputError(f"{present} of {size.passages} passages")
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{folder}: the index is damaged ({error}); delete this folder to index again") from None
        summary = "all there"
        if size is None:
            size = _fill(index, corpus, tokenizer, memory_mb, present)
            if _identity(corpus) != identity:
                shutil.rmtree(folder / "index")
                raise InputError("the corpus changed while it was indexed; index it again")
            write_atomically(meta, json.dumps({"corpus": size._asdict()}, indent=2))  # last: now the index is whole
            summary = f"{size.passages - present} of them indexed now"
    return BM25(index, passage_at, tokenizer, size, f"{folder}: {size.passages} passages, {summary}")


def lucene_length(length: int) -> int:
    """Return what Lucene's byte keeps of a length: above 39, four significant bits of what exceeds 24."""
    dropped = max(0, (length - 24).bit_length() - 4)
    return length if length < 40 else 24 + ((length - 24) >> dropped << dropped)


def _identity(corpus: Sequence[Passage]) -> list[str]:
    """What tells a corpus from others, and how its passages are looked up, on which positions depend."""
    if not isinstance(corpus, CorpusFile):
        return ["passages", measure(corpus).sha256]
    return [f"file{Path(corpus.path).suffix}", checksum_of(Path(corpus.path))]


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    versions = {package: version(package) for package in ("PyStemmer", "jieba", "stopwords-zh", "tantivy")}
    return {"k1": _K1, "b": _B, "tokenizer": asdict(tokenizer), "versions": versions}


def _terms(passage: Passage, tokenizer: Tokenizer) -> list[str]:
    return tokenizer(f"{passage.title}\n{passage.text}")


def _fill(
    index: tantivy.Index, corpus: Sequence[Passage], tokenizer: Tokenizer, memory_mb: int, present: int = 0
) -> CorpusSize:
    """Add all but the first `present` passages, and return the size of the whole corpus."""
    check_ids(corpus)
    size = measure(corpus)
    positions = corpus.offsets() if isinstance(corpus, CorpusFile) else itertools.count()
    missing = itertools.islice(zip(positions, corpus, strict=False), present, None)
    bar = tqdm(missing, total=size.passages, initial=present, unit=" passages", delay=1, file=sys.stderr)
    with index.writer(memory_mb * 10**6, _THREADS) as writer:  # which commits and waits for merges at the end
        for number, (position, passage) in enumerate(bar, present + 1):
            terms = _terms(passage, tokenizer)
            document = tantivy.Document()
            document.add_text(_TERMS, " ".join(terms))
            document.add_unsigned(_LENGTH, len(terms))
            document.add_unsigned(_POSITION, position)
            writer.add_document(document)
            if number % _COMMIT == 0:
                writer.commit()
    _searchable(index)
    return size


def _searchable(index: tantivy.Index) -> tantivy.Index:
    index.config_reader("manual")  # by default it would look for changes twice a second
    index.reload()
    return index
