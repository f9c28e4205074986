"""Search among the vectors of a corpus with faiss: exact, or approximate with its recall measured."""

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm import trange

from rag_notes.retrieval.encoders import Vectors, file_checksum
from rag_notes.retrieval.vectors import VectorFile, write_json
from rag_notes.types import InputError, NonNegative, Positive

BLOCK = 65_536  # vectors looked at together: bounds the memory of exact search, and the copy of float16 in float32
RECALL_AT, RECALL_QUERIES = 10, 200  # neighbours of so many passages, evenly spread over the corpus, as queries


class Nearest(NamedTuple):
    """Inner products and row numbers, each of shape (queries, k), best first; -1 where fewer were found."""

    scores: Vectors
    rows: NDArray[np.int64]


class Index(Protocol):
    """Something that finds the rows of a vector file with the largest inner products."""

    def search(self, queries: Vectors, k: int) -> Nearest:
        """The `k` nearest rows of each query of shape (queries, dimensions)."""
        ...

    def describe(self) -> dict[str, Any]:
        """What kind of search it is, with its settings and, where it is approximate, its recall."""
        ...


class Exact:
    """Every vector is compared with the query: faiss's IndexFlatIP, without its copy of the vectors in memory."""

    def __init__(self, file: VectorFile) -> None:
        self._vectors = np.asarray(file.vectors)  # a plain view of the mapped pages: slicing a np.memmap is slow
        self._faiss = faiss()

    def search(self, queries: Vectors, k: int) -> Nearest:
        """As `Index.search`."""
        best = Nearest(np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64))
        for start in range(0, len(self._vectors), BLOCK):
            block = np.ascontiguousarray(self._vectors[start : start + BLOCK], dtype=np.float32)
            scores, rows = self._faiss.knn(queries, block, min(k, len(block)), metric=self._faiss.METRIC_INNER_PRODUCT)
            scores, rows = np.hstack([best.scores, scores]), np.hstack([best.rows, rows + start])
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            best = Nearest(np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1))
        return best

    def describe(self) -> dict[str, Any]:
        """As `Index.describe`."""
        return {"kind": "exact"}


class Approximate:
    """A faiss index in memory, kept beside the vectors: made by `ivf` or `hnsw`."""

    def __init__(self, index: Any, description: dict[str, Any]) -> None:
        self._index = index
        self._description = description

    def search(self, queries: Vectors, k: int) -> Nearest:
        """As `Index.search`, but some of the nearest may be missing."""
        return Nearest(*self._index.search(queries, k))

    def describe(self) -> dict[str, Any]:
        """As `Index.describe`; recall@10 is the share found of the ten nearest neighbours of up to 200 passages."""
        return dict(self._description)


def exact(file: VectorFile) -> Exact:
    """Return the exact search over a vector file."""
    return Exact(file)


def ivf(
    file: VectorFile,
    *,
    lists: Positive | None = None,
    probes: Positive = 32,
    seed: NonNegative = 0,
    threads: Positive = 1,
) -> Approximate:
    """Return a search of the `probes` lists nearest to the query, of `lists` lists of vectors (null: 4 sqrt(n)).

    The lists are those of k-means with a seed, in faiss's IndexIVFFlat (source: Jégou et al., Product Quantization for
    Nearest Neighbor Search, 2011, section IV). It is kept, measured and reproducible as that of `hnsw`.
    Raises ValueError where there are more lists than passages, and where a kept index is damaged.
    """
    package, (count, dimensions) = faiss(), file.vectors.shape
    lists = lists or round(4 * count**0.5)
    if lists > count:
        raise InputError(f"retriever.index.lists={lists}, but the corpus has {count} passages; give fewer lists")
    kept = _Kept(file, {"kind": "ivf", "lists": lists, "seed": seed})
    with FileLock(kept.lock):
        if (index := kept.load()) is None:
            index = package.IndexIVFFlat(
                package.IndexFlatIP(dimensions), dimensions, lists, package.METRIC_INNER_PRODUCT
            )
            index.cp.seed = seed
            index.cp.min_points_per_centroid = 1  # faiss would warn below 39; the recall says what that costs
            sample = np.linspace(0, count - 1, min(count, 256 * lists)).astype(np.int64)  # faiss trains on no more
            with _threads(threads):
                index.train(np.ascontiguousarray(file.vectors[sample], dtype=np.float32))
                kept.fill_and_save(index)
        index.nprobe = probes
        return kept.measure(index, {"probes": probes})


def hnsw(
    file: VectorFile,
    *,
    links: Positive = 32,
    ef_construction: Positive = 200,
    ef_search: Positive = 128,
    threads: Positive = 1,
) -> Approximate:
    """Return a search along a graph with `links` neighbours a vector, in faiss's IndexHNSWFlat.

    `ef_construction` and `ef_search` are the candidates kept while building and searching (source: Malkov and Yashunin,
    Efficient and Robust Approximate Nearest Neighbor Search Using HNSW Graphs, 2020, algorithms 1 to 5). The index is
    built once, kept in the folder of the vectors and held in memory in float32; its recall against exact search is
    printed when it is measured, once for each setting. With one thread the same vectors give the same index; more are
    faster and give others. Raises ValueError where a kept index is damaged.
    """
    package = faiss()
    kept = _Kept(file, {"kind": "hnsw", "links": links, "ef_construction": ef_construction})
    with FileLock(kept.lock):
        if (index := kept.load()) is None:
            index = package.IndexHNSWFlat(file.vectors.shape[1], links, package.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = ef_construction
            with _threads(threads):
                kept.fill_and_save(index)
        index.hnsw.efSearch = ef_search
        return kept.measure(index, {"ef_search": ef_search})


class _Kept:
    """An approximate index in the folder of its vectors: the index in one file, its checksum and recall in another."""

    def __init__(self, file: VectorFile, settings: dict[str, Any]) -> None:
        self.file, self.settings = file, settings
        key = json.dumps({**settings, "vectors": file.meta["sha256"]}, sort_keys=True)
        self.path = file.folder / f"{settings['kind']}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.faiss"
        self.meta, self.lock = self.path.with_suffix(".json"), self.path.with_suffix(".lock")

    def load(self) -> Any:
        """The index, or None where none is finished."""
        if not self.meta.exists():
            return None
        try:
            written = json.loads(self.meta.read_text(encoding="utf-8"))["sha256"]
            if (actual := file_checksum(self.path)) != written:
                raise InputError(f"checksum {actual}, written with {written}")
        except (OSError, ValueError, TypeError, KeyError) as error:
            advice = f"delete it and {self.meta.name} to build it again"
            raise InputError(f"{self.path} is damaged ({error}); {advice}") from None
        return faiss().read_index(str(self.path))

    def fill_and_save(self, index: Any) -> None:
        count = len(self.file.vectors)
        for start in trange(0, count, BLOCK, desc=self.settings["kind"], unit_scale=BLOCK, file=sys.stderr):
            index.add(np.ascontiguousarray(self.file.vectors[start : start + BLOCK], dtype=np.float32))
        part = self.path.with_suffix(".part")
        faiss().write_index(index, str(part))
        part.replace(self.path)
        write_json(self.meta, {"settings": self.settings, "sha256": file_checksum(self.path), "recall": {}})

    def measure(self, index: Any, tuned: dict[str, int]) -> Approximate:
        """The search with its recall: measured and printed the first time that it is tuned like this."""
        meta = json.loads(self.meta.read_text(encoding="utf-8"))
        name = json.dumps(tuned)
        if name not in meta["recall"]:
            meta["recall"][name] = _recall(self.file, index)
            write_json(self.meta, meta)
            shown = ", ".join(f"{setting}={value}" for setting, value in (self.settings | tuned).items())
            print(f"{shown}: recall@{RECALL_AT} {meta['recall'][name]:.4f} against exact search", file=sys.stderr)
        found = {f"recall@{RECALL_AT}": meta["recall"][name], "sha256": meta["sha256"]}
        return Approximate(index, {**self.settings, **tuned, **found})


def _recall(file: VectorFile, index: Any) -> float:
    """The share found of the exact neighbours of evenly spread passages, the passage itself left out."""
    count = len(file.vectors)
    rows = np.unique(np.linspace(0, count - 1, min(count, RECALL_QUERIES)).astype(np.int64))
    queries = np.ascontiguousarray(file.vectors[rows], dtype=np.float32)
    k = min(RECALL_AT + 1, count)
    wanted, found = Exact(file).search(queries, k).rows.tolist(), index.search(queries, k)[1].tolist()
    pairs = [(set(a) - {row}, set(b)) for row, a, b in zip(rows.tolist(), wanted, found, strict=True)]
    total = sum(len(a) for a, _ in pairs)
    return round(sum(len(a & b) for a, b in pairs) / total, 4) if total else 1.0


@contextmanager
def _threads(number: int) -> Iterator[None]:
    package = faiss()
    before = package.omp_get_max_threads()
    package.omp_set_num_threads(number)
    try:
        yield
    finally:
        package.omp_set_num_threads(before)


def faiss() -> Any:
    """The package. Raises ImportError with the line that installs it."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        line = 'pip install "rag-notes[dense]" (or: pip install onnxruntime tokenizers faiss-cpu)'
        raise ImportError(f"dense retrieval needs the package faiss: {line}") from error
