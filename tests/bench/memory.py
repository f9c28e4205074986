"""What memory a run takes as it grows: `python -m tests.bench.memory [ANSWERS ...]`.

For each number of answers, three processes: one makes the run with a model that answers at once, one makes it again
from its store, one reads it and works out its results and diagnostics. Prints the peak of the resident memory of each,
and its seconds. An answer has a trace of about 6 kB.
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_notes.files import SHIPPED
from rag_notes.llm.client import LLM
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.methods.vanilla import vanilla
from rag_notes.report.tables import diagnostics, results
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import load_run
from rag_notes.types import Hit, Passage, Question

SIZES = (1_000, 10_000, 100_000)
STEPS = {"make": "made", "replay": "made again from its store", "read": "read, with its tables"}


class Model(LLM):
    """Answers every request at once, and stores the answer."""

    async def _obtain(self, request: dict[str, Any], key: str) -> Response:
        return self.store.put(request, Response("An answer.", "stop", 500, 3, seconds=0.0))


class Searcher:
    """Finds five passages of 500 letters."""

    name = "made"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        return [[Hit(Passage(f"p{i}", f"Title {i}", f"{query} " * 10), 1.0) for i in range(5)] for query in queries]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def main(sizes: Sequence[int] = SIZES) -> None:
    """Measure each size and print a table."""
    print("| answers | samples.jsonl, MB | " + " | ".join(f"{name}, MB | s" for name in STEPS.values()) + " |")
    print("|---" * (2 + 2 * len(STEPS)) + "|")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="rag-notes-bench-") as folder:
            cells = []
            for step in STEPS:
                command = [sys.executable, "-m", "tests.bench.memory", step, folder, str(size)]
                found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=SHIPPED).stdout)
                cells += [f"{found['peak'] / 1e6:,.0f}", f"{found['seconds']:,.0f}"]
            written = (Path(folder) / "run" / "samples.jsonl").stat().st_size
        print(f"| {size:,} | {written / 1e6:,.0f} | " + " | ".join(cells) + " |", flush=True)


def child(step: str, folder: Path, size: int) -> None:
    """Take one step in this process and print what it took."""
    start = time.perf_counter()
    if step == "read":
        run = load_run(folder / "run")
        table, took = results([run]), diagnostics([run])
        assert (table["n"] == size).all() and took["questions"].tolist() == [size]
    else:
        asyncio.run(made(folder, size))
        if step == "replay":
            assert load_run(folder / "run").info.samples.done == size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "seconds": time.perf_counter() - start}))


async def made(folder: Path, size: int) -> None:
    """Make the run; one that is there is made anew."""
    (folder / "run" / "samples.jsonl").unlink(missing_ok=True)
    questions = [
        Question(f"q{i}", f"Which town has the bridge of the number {i}?", ("An answer",)) for i in range(size)
    ]
    async with Model("made", store=ResponseStore(folder / "store.sqlite")) as llm:
        await evaluate([vanilla], questions, Searcher(), llm, folder=folder / "run", progress=False)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in STEPS:
        child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main([int(size) for size in sys.argv[1:]] or SIZES)
