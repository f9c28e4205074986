"""How the retrievers grow with the corpus: `python -m tests.bench.scale [SIZE ...]`.

For each size a corpus is generated, indexed and searched by BM25 and by exact dense search (vectors of 384 dimensions
drawn at random: encoding a million passages would take hours). Prints a table, and the limits of BM25's memory.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rag_notes.files import SHIPPED
from tests.bench.corpus import write_corpus

SIZES = (10_000, 100_000, 1_000_000)
RETRIEVERS = {"bm25": "BM25", "dense": "exact dense"}
COLUMNS = {  # in the measurements: the factor to what is printed, and its name
    "index_rate": (1, "indexed, passages a second"),
    "index_bytes": (1e-6, "on disk, MB"),
    "index_peak": (1e-6, "peak memory indexing, MB"),
    "index_unmapped": (1e-6, "of it not mapped files, MB"),
    "search_peak": (1e-6, "peak memory searching, MB"),
    "search_unmapped": (1e-6, "of it not mapped files, MB"),
    "search_median": (1, "a query alone, ms"),
    "search_p95": (1, "95th percentile, ms"),
    "search_throughput": (1, "in a batch, queries a second"),
}
LIMITS = {"index_unmapped": 500e6, "search_unmapped": 200e6}  # bytes, of BM25 at the largest size


def main(sizes: Sequence[int] = SIZES) -> None:
    """Measure and print; ends the process with an error where a limit is broken."""
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="rag-notes-bench-") as folder:
            write_corpus(Path(folder, "corpus.jsonl"), size)
            rows += [{"retriever": name, "passages": size, **measure(name, folder)} for name in RETRIEVERS]
    results = pd.DataFrame(rows)
    print(table(results))
    largest = results[results["retriever"] == "bm25"].iloc[-1]
    for column, limit in LIMITS.items():
        step, megabytes = column.partition("_")[0], largest[column] / 1e6
        print(f"BM25, {step}, at {largest['passages']:,}: {megabytes:.0f} MB not mapped (at most {limit / 1e6:.0f})")
        if largest[column] > limit:
            raise SystemExit("that is too much")


def measure(retriever: str, folder: str) -> dict[str, float]:
    """Index and search, each in a process of its own."""
    values: dict[str, float] = {}
    for step in ("index", "search"):
        command = [sys.executable, "-m", "tests.bench.retrievers", retriever, step, folder]
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=SHIPPED).stdout
        values |= {f"{step}_{name}": value for name, value in json.loads(output).items()}
    return values


def table(results: pd.DataFrame) -> str:
    """The measurements in Markdown."""
    names = ["retriever", "passages", *(name for _, name in COLUMNS.values())]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for row in results.to_dict("records"):
        values = [short(factor * row[column]) for column, (factor, _) in COLUMNS.items()]
        lines.append(f"| {RETRIEVERS[row['retriever']]} | {row['passages']:,} | {' | '.join(values)} |")
    return "\n".join(lines)


def short(value: float) -> str:
    """Two digits or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or SIZES)
