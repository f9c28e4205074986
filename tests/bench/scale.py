"""How the retrievers grow with the corpus: `python -m tests.bench.scale [SIZE ...]`.

For each size a corpus is generated, indexed and searched by BM25 in tantivy, by Elasticsearch (one node on
loopback) and by exact dense search (vectors of 384 dimensions drawn at random: encoding a million passages would take
hours). Prints a table and the limits, writes figures/scale.png, .pdf and .csv. Where RAG_NOTES_BENCH_ENCODER names a
folder with model.onnx and tokenizer.json, it says how many passages a second that encoder takes.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.ticker import LogFormatter

from rag_notes.files import SHIPPED
from rag_notes.report.drawing import STYLE
from rag_notes.report.figures import LOOKS, NotebookFigure, save
from tests.bench.corpus import write_corpus
from tests.elastic import Node, UnavailableError, free_port, installation

SIZES = (10_000, 100_000, 1_000_000)
RETRIEVERS = {"bm25": "BM25 (tantivy)", "elasticsearch": "Elasticsearch", "dense": "exact dense"}
COLUMNS = {  # in the measurements: the factor to what is shown, and its name
    "index_rate": (1, "indexed, passages a second"),
    "index_bytes": (1e-6, "on disk, MB"),
    "index_peak": (1e-6, "peak memory indexing, MB"),
    "index_own": (1e-6, "of it not mapped files, MB"),
    "search_peak": (1e-6, "peak memory searching, MB"),
    "search_own": (1e-6, "of it not mapped files, MB"),
    "search_median": (1, "a query alone, ms"),
    "search_p95": (1, "95th percentile, ms"),
    "search_throughput": (1, "in a batch, queries a second"),
}
PANELS = ("index_rate", "index_bytes", "index_peak", "search_peak", "search_median", "search_throughput")
LIMITS = {  # bytes, at the largest size
    ("elasticsearch", "index_peak"): 300e6,
    ("bm25", "index_own"): 500e6,
    ("bm25", "search_own"): 200e6,
}


def main(sizes: Sequence[int] = SIZES) -> None:
    """Measure, print and draw; ends the process with an error where a limit is broken."""
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="rag-notes-bench-") as name, server() as host:
            folder = Path(name)
            write_corpus(folder / "corpus.jsonl", size)
            for retriever, label in RETRIEVERS.items():
                if retriever != "elasticsearch" or host:
                    found = measure(retriever, folder, host if retriever == "elasticsearch" else None)
                    rows.append({"retriever": label, "passages": size, **found})
            if size == sizes[0] and (model := os.environ.get("RAG_NOTES_BENCH_ENCODER")):
                encoded = child("encoding", folder, str(Path(model).absolute()))
                print(f"{Path(model).name} encodes {encoded['rate']:.0f} passages a second")
    results = pd.DataFrame(rows)
    print(table(results))
    save(picture(results), results, "scale", SHIPPED / "figures")
    print("drawn in figures/scale.png")
    for (retriever, column), limit in LIMITS.items():
        largest = results[results["retriever"] == RETRIEVERS[retriever]].tail(1)
        for peak, size in zip(largest[column], largest["passages"], strict=True):
            what = f"{RETRIEVERS[retriever]}, {COLUMNS[column][1]}"
            print(f"{what} at {size:,} passages: {peak / 1e6:.0f} (at most {limit / 1e6:.0f})")
            if peak > limit:
                raise SystemExit("that is too much")


def measure(retriever: str, folder: Path, host: str | None) -> dict[str, float]:
    """Index and search, each in a process of its own."""
    found: dict[str, float] = {}
    for step in ("index", "search"):
        done = child(f"{retriever}_{step}", folder, *([host] if host else []))
        found |= {f"{step}_{name}": value for name, value in done.items()}
        if host and step == "index":
            found["index_bytes"] = stored(host)
    return found


def child(what: str, folder: Path, *arguments: str) -> dict[str, float]:
    """What a process of its own measures."""
    command = [sys.executable, "-m", "tests.bench.retrievers", what, str(folder), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=SHIPPED)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


@contextlib.contextmanager
def server() -> Iterator[str | None]:
    """A new server's address, or None where none can be had, which is said."""
    os.environ["RAG_NOTES_REQUIRE_ELASTICSEARCH"] = "1"  # that it is fetched
    try:
        with installation() as installed:
            settings = {
                "discovery.type": "single-node",
                "transport.port": free_port(),
                "xpack.security.enabled": False,
            }
            node = Node(installed, "bench", settings, java_options="-Xms1g -Xmx1g")
            host = f"http://127.0.0.1:{node.port}"
            node.start()
            try:
                node.wait(lambda: ask(f"{host}/_cluster/health?wait_for_status=yellow&timeout=60s"))
                yield host
            finally:
                node.stop()
    except UnavailableError as error:
        print(f"Elasticsearch is not measured: {error}")
        yield None


def stored(host: str) -> float:
    """The bytes that the server keeps on disk of all indexes."""
    ask(f"{host}/_flush", method="POST")
    return float(ask(f"{host}/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"])


def ask(url: str, method: str = "GET") -> Any:
    """The answer of the server."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=120) as answer:
        return json.load(answer)


def table(results: pd.DataFrame) -> str:
    """The measurements in Markdown."""
    names = ["retriever", "passages", *(name for _, name in COLUMNS.values())]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for row in results.to_dict("records"):
        values = [short(factor * row[column]) for column, (factor, _) in COLUMNS.items()]
        lines.append(f"| {row['retriever']} | {row['passages']:,} | {' | '.join(values)} |")
    return "\n".join(lines)


def short(value: float) -> str:
    """Two digits or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


class PlainLabels(LogFormatter):
    """Numbers in full, where matplotlib would have a label."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,.10g}" if super().__call__(x, pos) else ""


def picture(results: pd.DataFrame) -> NotebookFigure:
    """A panel for each quantity: a line for each retriever over the number of passages, both axes logarithmic."""
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(7.2, 4.4), layout="constrained")
        grid = figure.subplots(2, 3, sharex=True)
        for axes, column in zip(grid.flat, PANELS, strict=True):
            factor, name = COLUMNS[column]
            for look, (label, part) in zip(LOOKS, results.groupby("retriever", sort=False), strict=False):
                axes.plot(part["passages"], factor * part[column], label=label, color=look.colour, marker=look.marker)
            axes.set(xscale="log", yscale="log", title=name)
            axes.yaxis.set_major_formatter(PlainLabels())
            axes.yaxis.set_minor_formatter(PlainLabels())
            axes.xaxis.set_major_formatter(PlainLabels())
            axes.grid(visible=True)
        for axes in grid[1]:
            axes.set_xlabel("passages")
        figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or SIZES)
