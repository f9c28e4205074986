"""Runs of four methods among faults and kills, beside a run that is left alone: `python -m tests.torture`.

The server fails at random, or the processes of the run are killed at random. A run is started again until it is
finished without an error. Its samples must be those of the run left alone, byte by byte, and no request may be answered
twice, which would be paid twice, but for those under way in a process at the moment when it was killed.
"""

import argparse
import asyncio
import multiprocessing
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import openai

from rag_notes.config import build_datasets, build_retriever, load_config
from rag_notes.llm import client
from rag_notes.llm.client import LLM, LLMError
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.amber import amber
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.flare import flare
from rag_notes.methods.vanilla import vanilla
from rag_notes.running.evaluate import Method, evaluate
from rag_notes.running.records import Run, load_run
from rag_notes.running.samples import Sample
from tests.loopback import FAULTS, Loopback

METHODS: dict[str, Method] = {"vanilla": vanilla, "deepnote": deepnote, "amber": amber, "flare": flare}
MAX_STARTS = 30
CONCURRENCY = 16  # requests that a process has under way at most
KILLS = 20  # of one run
ANSWERED = {"ok", "alias"}  # a model of another name answers, too


class Outcome(NamedTuple):
    """What a run took, and whether its samples are those of the run left alone."""

    starts: int
    kills: int
    faults: Counter[str]
    answered: int
    twice: int  # of the requests answered, without those that were under way at a kill
    lost: int  # requests answered twice that were
    same: bool


def start(folder: Path, base_url: str, store: Path, limit: int) -> Run:
    """Start or continue the run in `folder`."""
    config = load_config(["dataset=mini", f"limit={limit}"])
    (dataset,) = build_datasets(config)
    retriever = build_retriever(config, dataset.corpus)

    async def run() -> Run:
        settings = {"store": ResponseStore(store, lease=3.0), "timeout": 2.0, "max_retries": 4}
        async with LLM("tiny", base_url=base_url, concurrency=CONCURRENCY, **settings) as llm:  # type: ignore[arg-type]
            return await evaluate(METHODS, dataset, retriever, llm, folder=folder, progress=False)

    return asyncio.run(run())


def samples(folder: Path) -> list[Sample]:
    """The samples of a run without the time of their calls, which no two servers take alike."""
    return [replace(sample, seconds=None) for sample in load_run(folder).samples]


def finish(folder: Path, base_url: str, store: Path, limit: int, counted: "multiprocessing.SimpleQueue[int]") -> None:
    """Start a run again until it has no error, and put the number of starts into `counted`."""
    openai._base_client.INITIAL_RETRY_DELAY = client.PAUSE = 0.002  # type: ignore[attr-defined]
    starts, is_finished = 0, False
    while not is_finished and starts < MAX_STARTS:
        starts += 1
        with suppress(LLMError):
            is_finished = bool(start(folder, base_url, store, limit).frame()["error"].isna().all())
    counted.put(starts)


def torture(
    folder: Path, *, limit: int, rate: float = 0.0, seed: int = 0, processes: int = 1, kills: int = 0
) -> Outcome:
    """Run in several processes on one store, where a share `rate` of requests fails and processes are killed."""
    context, draw = multiprocessing.get_context("forkserver"), random.Random(seed)
    context.set_forkserver_preload(["tests.torture"])  # imported once, not in each process
    with Loopback(folder / "calm.log", logprobs=True) as calm:
        finish(folder / "calm", calm.base_url, folder / "calm.sqlite", limit, context.SimpleQueue())
        calls = len(calm.seen())
    expected = samples(folder / "calm")
    under_way, starts = set[str](), context.SimpleQueue()
    delay = 0.01 if processes > 1 or kills else 0.0
    with Loopback(folder / "rough.log", rate=rate, seed=seed, logprobs=True, delay=delay) as server:

        def begin(number: int) -> ForkServerProcess:
            arguments = (folder / f"{number}", server.base_url, folder / "rough.sqlite", limit, starts)
            process = context.Process(target=finish, args=arguments)
            process.start()
            return process

        running = [begin(number) for number in range(processes)]
        for done in range(kills):
            with server.when_seen(len(server.seen()) + draw.randint(1, max(1, calls // kills))) as reached:
                ready = wait([reached, *(process.sentinel for process in running)])
            if reached not in ready:  # a process is done
                kills = done
                break
            victim = draw.randrange(processes)
            running[victim].kill()
            running[victim].join()
            under_way |= {request.hash for request in server.seen()[-CONCURRENCY * processes :]}
            running[victim] = begin(victim)
        most_starts = max(starts.get() for _ in running)
        for process in running:
            process.join()
        seen = server.seen()
    answered = Counter(request.hash for request in seen if request.met in ANSWERED)
    twice = {request for request, times in answered.items() if times > 1}
    faults = Counter(request.met for request in seen if request.met in FAULTS)
    same = all(samples(folder / f"{number}") == expected for number in range(processes))
    return Outcome(most_starts, kills, faults, len(answered), len(twice - under_way), len(twice & under_way), same)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=10, help="questions of mini (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, help="runs for each rate (default: 3)")
    parser.add_argument("--kills", type=int, default=100, help="kills of one process and of two (default: 100)")
    options = parser.parse_args(arguments)
    print("| faults | processes | kills | starts | met a fault | requests answered | twice | twice, killed | same |")
    print("|---|---|---|---|---|---|---|---|---|")
    cases = [(rate, 1, 0) for rate in (0.3, 0.6) for _ in range(options.seeds)] + [(0.3, 2, 0), (0.3, 4, 0)]
    cases += [(0.0, processes, KILLS) for processes in (1, 2) for _ in range(max(1, options.kills // KILLS))]
    for seed, (rate, processes, kills) in enumerate(cases):
        with tempfile.TemporaryDirectory() as name:
            run = torture(Path(name), limit=options.limit, rate=rate, seed=seed, processes=processes, kills=kills)
        print(
            f"| {rate:.0%} | {processes} | {run.kills} | {run.starts} | {run.faults.total()} | {run.answered} "
            f"| {run.twice} | {run.lost} | {'yes' if run.same else 'NO'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
