"""Dense retrieval: the passages whose vectors have the largest inner products with the query's."""

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm import tqdm

from rag_notes.datasets.corpus import check_ids
from rag_notes.extras import needed
from rag_notes.files import write_atomically
from rag_notes.llm.store import canonical_json
from rag_notes.retrieval import encoders
from rag_notes.retrieval.base import check_search, measure
from rag_notes.retrieval.cached import LARGE
from rag_notes.retrieval.encoders import Encoder, Vectors
from rag_notes.types import Hit, InputError, Passage, Positive

_CHUNK = 4096  # passages encoded between two writes: what a kill costs at most
_BLOCK = 65_536  # vectors compared at once, which bounds the memory of a search
_DECIMALS, _SLACK = 6, 1e-5  # of scores; what an inner product in single precision may be off, relative to the best one
_RECALL_AT, _RECALL_QUERIES = 10, 200  # neighbours of so many passages, evenly spread over the corpus, as queries


class DenseRetriever:
    """Ranks passages by the inner product of their vectors with the query's (Karpukhin et al., 2020, section 3).

    faiss finds candidates among all vectors, which stay on disk, or in an index of the kind that `index_factory` names
    ("IVF4096,Flat", "HNSW32", "SQ8") with `search_parameters` such as {"nprobe": 32} or {"efSearch": 128}. It is built
    once and may miss some of the best passages: the share that it finds, recall@10, is measured, printed and described.

    Candidates are scored again in double precision and scores rounded to six decimals, so that equal texts have equal
    scores and are ranked by id. Every passage has a score. The vectors lie in a folder below `cache` that is named by
    what determines them; an encoding that was killed goes on with the chunk that was under way.
    """

    name = "dense"

    def __init__(
        self,
        corpus: Sequence[Passage],
        *,
        encoder: Encoder,
        index_factory: str | None = None,
        search_parameters: dict[str, int] | None = None,
        dtype: Literal["float16", "float32"] = "float32",
        batch_size: Positive = 32,
        cache: str = ".cache/vectors",
    ) -> None:
        """Encode what is not on disk yet. Raises InputError for vectors, ids and settings that do not fit."""
        self._corpus = measure(corpus)._asdict()
        check_ids(corpus)
        self._faiss: Any = needed("faiss", "dense")
        self.passages, self._encoder = corpus, encoder
        order = sorted(range(len(corpus)), key=[passage.id for passage in corpus].__getitem__)
        self._id_ranks = np.argsort(order)
        self.slow = len(corpus) >= LARGE or isinstance(encoder, encoders.EndpointEncoder)
        content = [encoders.describe_passages(encoder), self._corpus, dtype, batch_size]
        self._settings: dict[str, Any] = {"dtype": dtype, "index_factory": index_factory}
        folder = Path(cache) / f"dense-{hashlib.sha256(canonical_json(content).encode()).hexdigest()[:32]}"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            path = folder / "vectors.npy"
            if not path.exists():
                self._encode_corpus(path, dtype, batch_size)
            self._vectors: NDArray[Any] = np.asarray(np.load(path, mmap_mode="r"))  # a view of the mapped pages
            self._nearest: Callable[[Vectors, int], tuple[Vectors, NDArray[np.int64]]] = self._compare
            if index_factory is not None:
                self._nearest = self._open_index(folder, index_factory, search_parameters or {}).search

    def _encode_corpus(self, path: Path, dtype: str, batch_size: int) -> None:
        part, log = path.with_suffix(".part"), path.with_suffix(".log")  # the log has a byte for each chunk written
        first = log.stat().st_size if part.exists() and log.exists() else 0
        vectors = np.load(part, mmap_mode="r+") if first else None
        done = min(first * _CHUNK, len(self.passages))
        with tqdm(total=len(self.passages), initial=done, unit=" passages", file=sys.stderr) as bar:
            for start in range(done, len(self.passages), _CHUNK):
                chunk = self.passages[start : start + _CHUNK]
                encoded = encoders.encode_in_batches(self._encoder, chunk, batch_size, dtype)
                if vectors is None:
                    log.unlink(missing_ok=True)
                    shape = len(self.passages), encoded.shape[1]
                    vectors = np.lib.format.open_memmap(part, "w+", encoded.dtype, shape)
                vectors[start : start + len(chunk)] = encoded
                vectors.flush()
                with log.open("ab") as file:
                    file.write(b"\n")
                bar.update(len(chunk))
        part.replace(path)

    def _open_index(self, folder: Path, factory: str, parameters: dict[str, int]) -> Any:
        """Open faiss's index, built where it is not on disk yet: the same vectors give the same index."""
        path = folder / f"{hashlib.sha256(factory.encode()).hexdigest()[:16]}.faiss"
        if not path.exists():
            count, dimensions = self._vectors.shape
            threads = self._faiss.omp_get_max_threads()
            self._faiss.omp_set_num_threads(1)  # with more, a graph depends on their race
            sample = np.linspace(0, count - 1, min(count, 1_000_000)).astype(np.int64)
            try:
                index = self._faiss.index_factory(dimensions, factory, self._faiss.METRIC_INNER_PRODUCT)
                index.train(self._vectors[sample].astype("float32"))
            except RuntimeError as error:
                raise InputError(f"retriever.index_factory={factory!r} cannot be built: {error}") from None
            for start in range(0, count, _BLOCK):
                index.add(self._vectors[start : start + _BLOCK].astype("float32"))
            self._faiss.omp_set_num_threads(threads)
            self._faiss.write_index(index, f"{path}.part")
            Path(f"{path}.part").replace(path)
        index = self._faiss.read_index(str(path), self._faiss.IO_FLAG_MMAP_IFC)
        try:
            for name, value in parameters.items():
                self._faiss.ParameterSpace().set_index_parameter(index, name, value)
        except RuntimeError as error:
            raise InputError(f"retriever.search_parameters={parameters}: {error}") from None
        recalls_path = path.with_suffix(".json")
        recalls = json.loads(recalls_path.read_text(encoding="utf-8")) if recalls_path.exists() else {}
        if (key := canonical_json(parameters)) not in recalls:
            recalls[key] = self._recall(index)
            write_atomically(recalls_path, json.dumps(recalls, indent=2) + "\n")
            print(f"{factory} {key}: recall@{_RECALL_AT} {recalls[key]:.4f} against exact search", file=sys.stderr)
        self._settings |= {"search_parameters": parameters, f"recall@{_RECALL_AT}": recalls[key]}
        return index

    def _recall(self, index: Any) -> float:
        """The share that an index finds of the exact neighbours of evenly spread passages."""
        count = len(self.passages)
        rows = np.unique(np.linspace(0, count - 1, min(count, _RECALL_QUERIES)).astype(np.int64))
        queries, k = self._vectors[rows].astype("float32"), min(_RECALL_AT + 1, count)
        pairs = zip(rows.tolist(), self._compare(queries, k)[1], index.search(queries, k)[1], strict=True)
        shares = [(len(set(exact) & set(near) - {row}), len(set(exact) - {row})) for row, exact, near in pairs]
        return round(sum(hits for hits, _ in shares) / max(1, sum(total for _, total in shares)), 4)

    def describe(self) -> dict[str, Any]:
        """Name, settings, encoder with its instructions, and size and checksum of the corpus."""
        return {"name": self.name, **self._settings, "encoder": self._encoder.describe(), "corpus": self._corpus}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes."""
        check_search(queries, top_k)
        if not queries:
            return []
        vectors = self._encoder.encode_queries(queries)
        shape = (len(queries), self._vectors.shape[1])
        if vectors.shape != shape or not np.isfinite(vectors).all():
            raise InputError(f"the encoder gives queries vectors of shape {vectors.shape}, not {shape} finite numbers")
        candidates = self._candidates(vectors, top_k)
        return [self._rank(vector, rows[rows >= 0], top_k) for vector, rows in zip(vectors, candidates, strict=True)]

    def _candidates(self, vectors: Vectors, top_k: int) -> NDArray[np.int64]:
        """Rows that hold the best `top_k` of each query and all that may tie with the last of them."""
        count = len(self.passages)
        k, last = min(2 * top_k + 16, count), min(top_k, count) - 1
        while True:
            scores, rows = self._nearest(vectors, k)
            slack = _SLACK * np.maximum(1, np.abs(scores[:, 0]))
            if k == count or (scores[:, -1] < scores[:, last] - slack).all():
                return rows
            k = min(2 * k, count)

    def _compare(self, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Scores and rows of the `k` nearest vectors of each query, among all."""
        heap = self._faiss.ResultHeap(len(queries), k, keep_max=True)
        for start in range(0, len(self._vectors), _BLOCK):
            block = self._vectors[start : start + _BLOCK].astype("float32", copy=False)
            scores, rows = self._faiss.knn(queries, block, min(k, len(block)), metric=self._faiss.METRIC_INNER_PRODUCT)
            heap.add_result(scores, rows + start)
        heap.finalize()
        return heap.D, heap.I

    def _rank(self, vector: Vectors, rows: NDArray[np.int64], top_k: int) -> list[Hit]:
        # Row by row, not as a matrix product, whose rounding changes with the number of rows.
        products = self._vectors[rows].astype(np.float64) * vector.astype(np.float64)
        scores = products.sum(axis=1).round(_DECIMALS) + 0.0  # without the sign of zero
        order = np.lexsort((self._id_ranks[rows], -scores))[:top_k]
        return [Hit(self.passages[row], score) for row, score in zip(rows[order], scores[order].tolist(), strict=True)]
