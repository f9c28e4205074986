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
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from rag_notes.config import build_datasets, build_retriever, load_config
from rag_notes.llm import faults
from rag_notes.llm.client import LLM, LLMError
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.amber import amber
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.flare import flare
from rag_notes.methods.vanilla import vanilla
from rag_notes.running.describe import Method
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from tests.loopback import FAULTS, Loopback

METHODS: dict[str, Method] = {"vanilla": vanilla, "deepnote": deepnote, "amber": amber, "flare": flare}
MOST_STARTS = 30
CONCURRENCY = 16  # requests that a process has under way at most
KILLS = 20  # of one run
ANSWERED = {"ok", "alias"}  # a model of another name answers, too


@dataclass(frozen=True)
class Outcome:
    """What a run among faults took: requests and those that met a fault, starts, requests answered twice."""

    answers: int
    requests: int
    faults: Counter[str]
    starts: int
    failed: int
    twice: int
    same: bool
    seconds: float


def start(folder: Path, base_url: str, store: str, limit: int, timeout: float = 5.0) -> Run:
    """Start or continue the run in `folder`."""
    config = load_config(["dataset=mini", f"limit={limit}"])
    (dataset,) = build_datasets(config)
    retriever = build_retriever(config, dataset.corpus)

    async def run() -> Run:
        async with LLM(
            "tiny",
            store=ResponseStore(store),
            base_url=base_url,
            timeout=timeout,
            max_retries=4,
            concurrency=CONCURRENCY,
        ) as llm:
            return await evaluate(
                METHODS, dataset.questions, retriever, llm, folder=folder, retry_errors=True, progress=False
            )

    return asyncio.run(run())


def torture(folder: Path, rate: float, seed: int, limit: int, timeout: float = 5.0) -> Outcome:
    """Run to the end against a server where the share `rate` of requests meets a fault; see the head of this file."""
    with Loopback(folder / "calm.log", logprobs=True) as calm:
        start(folder / "calm", calm.base_url, str(folder / "calm.sqlite"), limit)
    began = time.perf_counter()
    with Loopback(folder / "rough.log", rate=rate, seed=seed, logprobs=True) as server:
        starts, failed, store = 0, 0, str(folder / "rough.sqlite")
        while starts < MOST_STARTS:
            starts += 1
            try:
                run = start(folder / "rough", server.base_url, store, limit, timeout)
            except LLMError:
                continue
            if not (errors := run.info.samples.errors):
                break
            failed += errors
        seen = server.seen()
    calm_samples, samples = ((folder / name / "samples.jsonl").read_bytes() for name in ("calm", "rough"))
    answered = Counter(request.hash for request in seen if request.met in ANSWERED)
    return Outcome(
        answers=samples.count(b"\n"),
        requests=len(seen),
        faults=Counter(request.met for request in seen if request.met in FAULTS),
        starts=starts,
        failed=failed,
        twice=sum(count > 1 for count in answered.values()),
        same=samples == calm_samples,
        seconds=time.perf_counter() - began,
    )


def together(folder: Path, limit: int, rate: float, processes: int) -> tuple[int, int, bool]:
    """Start one run in several processes on one store: distinct requests, those answered twice, samples equal."""
    context = _forkserver()
    with Loopback(folder / "calm.log", logprobs=True) as calm:
        start(folder / "calm", calm.base_url, str(folder / "calm.sqlite"), limit)
    with Loopback(folder / "shared.log", rate=rate, seed=1, logprobs=True, delay=0.01) as server:
        arguments = [(folder / f"{n}", server.base_url, str(folder / "shared.sqlite"), limit) for n in range(processes)]
        started = [context.Process(target=_patiently, args=given) for given in arguments]
        for process in started:
            process.start()
        for process in started:
            process.join()
        answered = Counter(request.hash for request in server.seen() if request.met in ANSWERED)
    wanted = (folder / "calm" / "samples.jsonl").read_bytes()
    same = all((folder / f"{number}" / "samples.jsonl").read_bytes() == wanted for number in range(processes))
    return len(answered), sum(count > 1 for count in answered.values()), same


@dataclass(frozen=True)
class Killed:
    """What a run took whose processes were killed: `lost` requests were answered twice, under way at a kill or not."""

    kills: int
    answered: int
    lost: int
    lost_otherwise: int
    same: bool


def killed(folder: Path, limit: int, processes: int, seed: int) -> Killed:
    """Run in several processes on one store and kill one of them, drawn by `seed`, again and again."""
    context, drawn = _forkserver(), random.Random(seed)
    with Loopback(folder / "calm.log", logprobs=True) as calm:
        start(folder / "calm", calm.base_url, str(folder / "calm.sqlite"), limit)
        needed = len(calm.seen())
    under_way: set[str] = set()
    with Loopback(folder / "killed.log", logprobs=True, delay=0.01) as server:

        def begin(number: int) -> ForkServerProcess:
            arguments = (folder / f"{number}", server.base_url, str(folder / "killed.sqlite"), limit)
            process = context.Process(target=_patiently, args=arguments)
            process.start()
            return process

        started, kills = [begin(number) for number in range(processes)], 0
        while kills < KILLS:
            with server.when_seen(len(server.seen()) + drawn.randint(1, max(1, needed // KILLS))) as reached:
                ready = wait([reached, *(process.sentinel for process in started)])
            if reached not in ready:  # a process is done
                break
            victim = drawn.randrange(processes)
            started[victim].kill()
            started[victim].join()
            kills += 1
            under_way |= {request.hash for request in server.seen()[-CONCURRENCY * processes :]}
            started[victim] = begin(victim)
        for process in started:
            process.join()
        answered = Counter(request.hash for request in server.seen())
    wanted = (folder / "calm" / "samples.jsonl").read_bytes()
    twice = {request for request, times in answered.items() if times > 1}
    same = all((folder / f"{number}" / "samples.jsonl").read_bytes() == wanted for number in range(processes))
    return Killed(kills, len(answered), len(twice & under_way), len(twice - under_way), same)


def _forkserver() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torture"])  # imported once, not in each process
    return context


def _patiently(folder: Path, base_url: str, store: str, limit: int) -> None:
    faults.PAUSES = (0.005, 0.05)
    for _ in range(MOST_STARTS):
        try:
            if not start(folder, base_url, store, limit).info.samples.errors:
                return
        except LLMError:
            continue


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of runs, as docs/reliability.md has it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=10, help="questions of mini (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, help="runs for each rate (default: 3)")
    parser.add_argument("--kills", type=int, default=200, help="kills in all, of one process and of two (default: 200)")
    chosen = parser.parse_args(arguments)
    faults.PAUSES = (0.005, 0.05)  # pauses of seconds would show nothing more
    print("| faults | seed | answers | requests | met a fault | starts | errors on the way | twice | same | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    kinds: Counter[str] = Counter()
    for rate in (0.3, 0.6):
        for seed in range(chosen.seeds):
            with tempfile.TemporaryDirectory() as folder:
                made = torture(Path(folder), rate, seed, chosen.limit)
            kinds += made.faults
            print(
                f"| {rate:.0%} | {seed} | {made.answers} | {made.requests} | {made.faults.total()} | {made.starts} "
                f"| {made.failed} | {made.twice} | {'yes' if made.same else 'no'} | {made.seconds:.0f} |",
                flush=True,
            )
    print(f"\nFaults met: {', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))}\n")
    print("| processes on one store | faults | requests answered | twice | same |\n|---|---|---|---|---|")
    for processes, rate in ((2, 0.0), (2, 0.3), (4, 0.3)):
        with tempfile.TemporaryDirectory() as folder:
            answered, twice, same = together(Path(folder), chosen.limit, rate, processes)
        print(f"| {processes} | {rate:.0%} | {answered} | {twice} | {'yes' if same else 'no'} |", flush=True)
    print("\n| processes | kills | requests answered | twice, under way at a kill | twice otherwise | same |")
    print("|---|---|---|---|---|---|")
    for processes in (1, 2):
        runs: list[Killed] = []
        while sum(run.kills for run in runs) < chosen.kills / 2:
            with tempfile.TemporaryDirectory() as folder:
                runs.append(killed(Path(folder), chosen.limit, processes, seed=len(runs)))
        kills, answered, lost, otherwise = (
            sum(getattr(run, name) for run in runs) for name in ("kills", "answered", "lost", "lost_otherwise")
        )
        same = all(run.same for run in runs)
        print(f"| {processes} | {kills} | {answered} | {lost} | {otherwise} | {'yes' if same else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
