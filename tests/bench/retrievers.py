"""What one process measures of one retriever over one corpus.

`python -m tests.bench.retrievers WHAT FOLDER [HOST or MODEL]` prints JSON. Each is a process of its own, which imports
only what it needs, so that the peak of its memory is that of the retriever alone.
"""
# ruff: noqa: PLC0415

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_notes.datasets.corpus import CorpusFile
from rag_notes.retrieval.base import Retriever
from tests.bench.corpus import questions

if TYPE_CHECKING:
    from rag_notes.retrieval.dense import DenseRetriever
    from rag_notes.retrieval.elastic import ElasticsearchBM25

TOP_K, WARM, ALONE, TOGETHER = 5, 20, 100, 200  # hits; queries to warm up, one by one, and in a batch
DIMENSIONS = 384  # of bge-small-en-v1.5
ENCODED, BATCH = 1024, 32  # passages

Measured = dict[str, float]


def bm25_index(folder: Path, corpus: CorpusFile) -> Measured:
    """Index into a folder."""
    from rag_notes.retrieval.bm25 import bm25

    with measured() as result:
        bm25(corpus, cache=str(folder / "bm25"))
    return result | {"rate": len(corpus) / result["seconds"], "bytes": size_of(folder / "bm25")}


def bm25_search(folder: Path, corpus: CorpusFile) -> Measured:
    """Open the index, and search it."""
    from rag_notes.retrieval.bm25 import bm25

    with measured() as result:
        start = time.perf_counter()
        retriever = bm25(corpus, cache=str(folder / "bm25"))
        opened = time.perf_counter() - start
        found = search(retriever, corpus)
    return result | found | {"opened": opened}


def elasticsearch_index(_: Path, corpus: CorpusFile, host: str) -> Measured:
    """Send the corpus to the server."""
    with measured() as result:
        _elasticsearch(corpus, host).build_index(progress=False)
    return result | {"rate": len(corpus) / result["seconds"]}


def elasticsearch_search(_: Path, corpus: CorpusFile, host: str) -> Measured:
    """Search there."""
    with measured() as result:
        found = search(_elasticsearch(corpus, host), corpus)
    return result | found


def dense_index(folder: Path, corpus: CorpusFile) -> Measured:
    """Write the vector file, with vectors drawn at random: what the pipeline takes beside the encoder."""
    with measured() as result:
        _dense(folder, corpus)
    return result | {"rate": len(corpus) / result["seconds"], "bytes": size_of(folder / "dense")}


def dense_search(folder: Path, corpus: CorpusFile) -> Measured:
    """Compare queries with every vector; encoding them is not in it."""
    with measured() as result:
        found = search(_dense(folder, corpus), corpus)
    return result | found


def encoding(_: Path, corpus: CorpusFile, model: str) -> Measured:
    """Encode passages with a model in ONNX on all cores."""
    from rag_notes.retrieval.encoders import OnnxEncoder, passage_text

    encoder, texts = OnnxEncoder(model), [passage_text(passage) for passage in corpus[:ENCODED]]
    texts.sort(key=len)
    encoder.encode_passages(texts[:BATCH])
    with measured() as result:
        for start in range(0, len(texts), BATCH):
            encoder.encode_passages(texts[start : start + BATCH])
    return result | {"rate": len(texts) / result["seconds"]}


def _elasticsearch(corpus: CorpusFile, host: str) -> "ElasticsearchBM25":
    from rag_notes.retrieval.elastic import ElasticsearchBM25

    return ElasticsearchBM25(corpus, hosts=[host], analyzer="standard", replicas=0)


def _dense(folder: Path, corpus: CorpusFile) -> "DenseRetriever":
    import numpy as np

    from rag_notes.retrieval.dense import DenseRetriever
    from rag_notes.retrieval.encoders import Vectors

    class Drawn:
        """Vectors of length 1, drawn at random."""

        def __init__(self) -> None:
            self._draw = np.random.default_rng(0)

        def encode_queries(self, queries: Sequence[str]) -> Vectors:
            vectors = self._draw.standard_normal((len(queries), DIMENSIONS), dtype=np.float32)
            return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

        def encode_passages(self, texts: Sequence[str]) -> Vectors:
            return self.encode_queries(texts)

        def describe(self) -> dict[str, Any]:
            return {"encoder": "drawn", "query_instruction": ""}

    return DenseRetriever(corpus, encoder=Drawn(), batch_size=1024, cache=str(folder / "dense"))


def search(retriever: Retriever, corpus: CorpusFile) -> Measured:
    """The times of single queries, in milliseconds, and how many a second a batch of them takes."""
    asked = questions(Path(corpus.path), WARM + ALONE + TOGETHER)
    retriever.search(asked[:WARM], TOP_K)
    times = []
    for query in asked[WARM : WARM + ALONE]:
        start = time.perf_counter()
        retriever.search([query], TOP_K)
        times.append(1000 * (time.perf_counter() - start))
    start = time.perf_counter()
    retriever.search(asked[-TOGETHER:], TOP_K)
    rate = TOGETHER / (time.perf_counter() - start)
    return {"median": statistics.median(times), "p95": statistics.quantiles(times, n=20)[-1], "throughput": rate}


@contextmanager
def measured() -> Iterator[Measured]:
    """Fill in the seconds that the block took and the peak of the process's memory in bytes.

    `own` is the peak without the pages of mapped files, which the system takes back when it needs them.
    """
    result: Measured = {"own": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            result["own"] = max(result["own"], memory("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        yield result
    finally:
        result["seconds"] = time.perf_counter() - start
        done.set()
        watcher.join()
    result |= {"peak": memory("VmHWM")}


def memory(name: str) -> int:
    """A figure of Linux about this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def size_of(folder: Path) -> int:
    """The bytes that the files of a folder take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


MEASURES: dict[str, Callable[..., Measured]] = {
    function.__name__: function
    for function in (
        *(bm25_index, bm25_search, elasticsearch_index, elasticsearch_search),
        *(dense_index, dense_search, encoding),
    )
}

if __name__ == "__main__":
    what, where, *arguments = sys.argv[1:]
    found = MEASURES[what](Path(where), CorpusFile(str(Path(where, "corpus.jsonl")), "bench"), *arguments)
    print(json.dumps(found))
