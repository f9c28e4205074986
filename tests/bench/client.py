"""How close a run comes to the fastest possible one, and how fast it is replayed: `python -m tests.bench.client`.

A server on loopback answers after 200 ms, DeepNote asks it 11 calls a question, one after another, for 100 questions.
No client can be faster than the longest chain of calls, or than the connection with the most calls to make: one of the
`CONCURRENCY` connections has at least ceil(calls / CONCURRENCY) of them. The first figure is the time taken divided by
that bound, the second one the number of stored responses a second when the same run is made again from its store; of
each the median of `RUNS` runs, with the smallest and the largest.
"""

import asyncio
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from rag_notes.types import Dataset, Passage, Question
from tests.loopback import Loopback

QUESTIONS, PASSAGES, CONCURRENCY, DELAY, RUNS = 100, 1000, 64, 0.2, 5
SLOWEST_RATIO, SLOWEST_REPLAY = 1.15, 2000


def made_up() -> tuple[list[Question], list[Passage]]:
    """Questions of 12 words and passages of 80, so that prompts are as long as those of a real run."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(3000)]
    passages = [Passage(f"p{n}", f"Title {n}", " ".join(draw.choices(words, k=80))) for n in range(PASSAGES)]
    questions = [Question(f"q{n}", " ".join(draw.sample(words, 12)) + "?", (words[n],)) for n in range(QUESTIONS)]
    return questions, passages


def timed(
    questions: Sequence[Question], retriever: BM25, store: Path, folder: Path, base_url: str | None
) -> tuple[Run, float]:
    """A run in a new folder, and the seconds it took."""

    async def run() -> tuple[Run, float]:
        async with LLM("tiny", store=ResponseStore(store), base_url=base_url, concurrency=CONCURRENCY) as llm:
            start = time.perf_counter()
            methods, dataset = {"deepnote": deepnote}, Dataset("made", tuple(questions), ())
            finished = await evaluate(methods, dataset, retriever, llm, folder=folder, progress=False)
            return finished, time.perf_counter() - start

    return asyncio.run(run())


def main() -> None:
    """Print both figures and what they should be."""
    questions, passages = made_up()
    retriever = bm25(passages, cache=None)
    ratios, rates = [], []
    with tempfile.TemporaryDirectory() as name, Loopback(Path(name) / "log", delay=DELAY, judge="True") as server:
        for number in range(RUNS):
            folder = Path(name) / str(number)
            folder.mkdir()
            live, seconds = timed(questions, retriever, folder / "store.sqlite", folder / "live", server.base_url)
            replay, again = timed(questions, retriever, folder / "store.sqlite", folder / "replay", None)
            calls = live.frame()["calls"].tolist()
            if list(replay.samples) != list(live.samples) or live.frame()["error"].notna().any():
                raise SystemExit("the replay is not the run it repeats, or a question failed")
            ratios.append(seconds / (DELAY * max(*calls, math.ceil(sum(calls) / CONCURRENCY))))
            rates.append(sum(calls) / again)
    print(f"live:   {spread(ratios, '.3f')} of the bound (at most {SLOWEST_RATIO}); {sum(calls)} calls a run")
    print(f"replay: {spread(rates, '.0f')} responses a second (at least {SLOWEST_REPLAY})")


def spread(values: Sequence[float], style: str) -> str:
    """The median, with the smallest and largest value behind it."""
    return f"{statistics.median(values):{style}} [{min(values):{style}}, {max(values):{style}}]"


if __name__ == "__main__":
    main()
