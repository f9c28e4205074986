"""What one process measures of one retriever over one corpus: `python -m tests.bench.retrievers RETRIEVER STEP FOLDER`.

It prints JSON. Each step is a process of its own, so that the peak of its memory is that of the retriever alone.
"""
# ruff: noqa: PLC0415 - a process imports its own retriever only

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rag_notes.datasets.corpus import CorpusFile
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.encoders import Vectors
from tests.bench.corpus import questions

TOP_K, WARM, ALONE, TOGETHER = 5, 20, 100, 200  # hits; queries to warm up, one by one, and in a batch
DIMENSIONS = 384  # of bge-small-en-v1.5


class RandomEncoder:
    """Vectors of length 1, drawn at random: what is measured is dense retrieval without the encoder."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(0)

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        vectors = self._draw.standard_normal((len(queries), DIMENSIONS), dtype=np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        return self.encode_queries(texts)

    def describe(self) -> dict[str, Any]:
        return {"encoder": "random", "query_instruction": ""}


def build(retriever: str, corpus: CorpusFile, cache: Path) -> Retriever:
    """Index the corpus into a folder, or open the index that lies there."""
    if retriever == "bm25":
        from rag_notes.retrieval.bm25 import bm25

        return bm25(corpus, cache=str(cache))
    from rag_notes.retrieval.dense import DenseRetriever

    return DenseRetriever(corpus, encoder=RandomEncoder(), batch_size=1024, cache=str(cache))


def index(retriever: str, corpus: CorpusFile, cache: Path) -> dict[str, float]:
    """Passages indexed a second, and the bytes on disk."""
    with measured() as result:
        build(retriever, corpus, cache)
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return result | {"rate": len(corpus) / result["seconds"], "bytes": size}


def search(retriever: str, corpus: CorpusFile, cache: Path) -> dict[str, float]:
    """The times of single queries, in milliseconds, and how many a second a batch of them takes."""
    queries, times = questions(Path(corpus.path), WARM + ALONE + TOGETHER), []
    with measured() as result:
        searcher = build(retriever, corpus, cache)
        searcher.search(queries[:WARM], TOP_K)
        for query in queries[WARM : WARM + ALONE]:
            start = time.perf_counter()
            searcher.search([query], TOP_K)
            times.append(1000 * (time.perf_counter() - start))
        start = time.perf_counter()
        searcher.search(queries[-TOGETHER:], TOP_K)
        rate = TOGETHER / (time.perf_counter() - start)
    p95 = statistics.quantiles(times, n=20)[-1]
    return result | {"median": statistics.median(times), "p95": p95, "throughput": rate}


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Fill in the seconds that the block took and the peak of the process's memory in bytes.

    `unmapped` is the peak without the pages of mapped files, which the system takes back when it needs them.
    """
    result: dict[str, float] = {"unmapped": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            result["unmapped"] = max(result["unmapped"], memory("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        yield result
    finally:
        result["seconds"] = time.perf_counter() - start
        done.set()
        watcher.join()
    result["peak"] = memory("VmHWM")


def memory(name: str) -> int:
    """A figure of Linux about this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    retriever, step, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    measure = {"index": index, "search": search}[step]
    print(json.dumps(measure(retriever, CorpusFile(str(folder / "corpus.jsonl"), "bench"), folder / retriever)))
