"""Run methods on questions: concurrently, resumably, each response paid once; writes the run as it goes."""

import asyncio
import contextlib
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout
from tqdm import tqdm

from rag_notes.events import Ask, answered, count
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, SpendingLimitError
from rag_notes.llm.errors import UnreachedError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.metrics.score import score
from rag_notes.prompts.templates import TemplateError, Templates
from rag_notes.retrieval.base import Retriever, RetrieverError
from rag_notes.running.describe import RECORDED, Method, check_same_run, describe
from rag_notes.running.identity import code_hash, unwrapped
from rag_notes.running.records import (
    Condition,
    Key,
    Progress,
    RecordError,
    Run,
    RunInfo,
    Sample,
    SampleError,
    Usage,
    load_run,
    read_info,
    read_samples,
    recordable,
    sample_line,
    sort_samples,
    write_info,
    write_samples,
)
from rag_notes.types import Dataset, InputError, Question

QUESTIONS_PER_SLOT = 4  # under way for each concurrent call, so that every slot stays busy
_PATIENCE = 0.2  # seconds between two looks at a folder that another process works in


async def evaluate(
    methods: Mapping[str, Method] | Sequence[Method],
    dataset: Dataset | Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    *,
    folder: str | Path | None = None,
    condition: Condition | None = None,
    templates: Templates | None = None,
    repeat: int = 0,
    retry_errors: bool = False,
    study: str | None = None,
    overrides: Sequence[str] = (),
    progress: bool = True,
) -> Run:
    """Answer every question of a data set, or those given, with every method and score the answers.

    `methods` are async functions `(rag, question)`, by name or named by themselves. With `folder` the run is written
    there as it goes, and what the folder already holds of the same run is not done again, unless a method's code or a
    prompt that it used has changed since; samples that this replaces go to superseded.jsonl. `retry_errors` does again
    what had failed; what failed because no model was heard is always done again. A question that fails is recorded with
    its error. `study` is what the run is made for and `overrides` are the options as the user gave them, both kept in
    run.json. `llm` must be entered (`async with`). Where another process works in the folder, this waits for it.

    Raises RecordError where the folder holds another run, FatalLLMError where no call can succeed, RetrieverError where
    no search can. A spending limit that is reached ends the run with that status and is not raised.
    """
    named = dict(methods) if isinstance(methods, Mapping) else {unwrapped(m).__name__: m for m in methods}
    templates = templates or Templates()
    condition = condition or Condition()
    data = dataset if isinstance(dataset, Dataset) else Dataset("questions", tuple(dataset), ())
    questions = data.questions
    described = describe(named, data, retriever, llm, templates, condition=condition, repeat=repeat)
    scored = condition.annotates is None
    info = replace(described, overrides=list(overrides), studies=[] if study is None else [study])
    order = [(name, question.id) for question in questions for name in named]
    if len(set(order)) < len(order):
        raise InputError("two questions have the same id, or two methods the same name; each must have its own")

    async with _opened(folder, info, retry_errors=retry_errors) as place:
        info = place.info
        samples = {sample.key: sample for sample in place.samples if sample.key in set(order)}
        written = [sample.key for sample in place.samples]  # in the order of the lines of samples.jsonl
        start = partial(Rag, llm=llm, searcher=Searcher(retriever), templates=templates, repeat=repeat)
        by_id = {question.id: question for question in questions}

        async def make(key: Key) -> Sample:
            method, question = key[0], by_id[key[1]]
            made = await _answer(start(question, method=method), method, named[method], llm, scored=scored)
            made, line = recordable(made)
            written.append(key)
            if place.out is not None:
                place.out.write(line)
                place.out.flush()
            return made

        stop = await _work_off(order, samples, make, llm, len(named), progress=progress)
        ordered = [samples[name, q.id] for name in named for q in questions if (name, q.id) in samples]
        status = f"stopped: {stop}" if stop else "finished"
        done = Progress(len(ordered), len(order), sum(sample.error is not None for sample in ordered))
        retries = getattr(retriever, "retries", 0)
        info = replace(_account(info, ordered, llm), status=status, samples=done, search_retries=retries)
        if folder is not None:
            sort_samples(Path(folder) / "samples.jsonl", written, [sample.key for sample in ordered])
            write_info(Path(folder), info)
    if stop and not isinstance(stop, SpendingLimitError):
        raise stop
    return Run(info, ordered, None if folder is None else Path(folder))


async def _work_off(
    order: Sequence[Key],
    samples: dict[Key, Sample],
    make: Callable[[Key], Awaitable[Sample]],
    llm: LLM,
    methods: int,
    *,
    progress: bool,
) -> FatalLLMError | RetrieverError | None:
    """Make the samples of `order` that are not there yet, many at once; returns what ended it early, if anything."""
    waiting = iter([key for key in order if key not in samples])
    bar = tqdm(total=len(order), initial=len(samples), disable=not progress, unit="answer", file=sys.stderr)
    stop: list[FatalLLMError | RetrieverError] = []
    errors = sum(sample.error is not None for sample in samples.values())

    async def work() -> None:
        nonlocal errors
        for key in waiting:  # one iterator for all workers: each takes the next sample
            if stop:
                return
            try:
                samples[key] = await make(key)
            except (FatalLLMError, RetrieverError) as fatal:
                stop.append(fatal)
                return
            bar.update()
            errors += samples[key].error is not None
            bar.set_postfix_str(_progress(llm, errors), refresh=False)

    try:
        async with asyncio.TaskGroup() as group:
            # Of each question all methods at once: they often wait for the same call.
            for _ in range(min(len(order), QUESTIONS_PER_SLOT * llm.concurrency * methods)):
                group.create_task(work())
    except* ValueError as failures:  # a template that does not fit, a gold answer that cannot be scored
        raise failures.exceptions[0] from None
    finally:
        bar.close()
    return stop[0] if stop else None


def rescore(sample: Sample) -> Sample:
    """Mark an existing answer anew, by the metrics as they are now; what it cost stays."""
    cost = {name: value for name, value in sample.metrics.items() if name == "cost"}
    metrics = {} if sample.error is not None else score(sample.question, sample.answer, sample.trace) | cost
    return replace(sample, metrics=metrics, counts=count(sample.trace))


def rescore_run(folder: str | Path) -> tuple[int, int] | None:
    """Mark the answers of a run's folder anew; returns how many there are, and how many got other marks.

    None where the run annotates other answers and has no marks. Raises RecordError where another process works in the
    folder, and where the run is of version 0.1, whose records lack what the metrics need of a question.
    """
    path = Path(folder)
    if read_info(path).condition.annotates is not None:
        return None
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RecordError(f"{path}: another process works in this run; mark it when that has ended") from None
    try:
        run = load_run(path)
        if not run.info.scoring:
            raise RecordError(
                f"{path}: is of version 0.1, which kept too little of the questions to mark answers by; run it again "
                "(responses that are stored are taken)"
            )
        marked = [rescore(sample) for sample in run.samples]
        write_samples(path / "samples.jsonl", marked)
        write_info(path, replace(run.info, scoring=code_hash(score)))
    finally:
        lock.release()
    return len(marked), sum(new.metrics != old.metrics for new, old in zip(marked, run.samples, strict=True))


async def _answer(rag: Rag, name: str, method: Method, llm: LLM, *, scored: bool) -> Sample:
    """Answer one question and score the answer; what goes wrong with this question alone is recorded, not raised."""
    question, answer, error = rag.question, "", None
    try:
        answer = await method(rag, question)
    except (FatalLLMError, RetrieverError, TemplateError):
        raise  # every other question would meet it too
    except LLMError as failure:
        error = SampleError(type(failure).__name__, str(failure))
    except Exception as failure:  # one failing question must not end the run
        frames = traceback.extract_tb(failure.__traceback__)
        where = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
        error = SampleError(type(failure).__name__, str(failure), where)
    metrics: dict[str, float] = {}
    if error is None:
        metrics = score(question, answer, rag.trace) if scored else {}
        if (cost := _cost(answered(rag.trace), llm)) is not None:
            metrics["cost"] = cost
    return Sample(name, question, answer, error, metrics, count(rag.trace), rag.trace)


def _cost(asks: Sequence[Ask], llm: LLM) -> float | None:
    """Dollars that calls cost without a store; None where a price is missing."""
    prices = [(llm.of(ask.stage).price, ask) for ask in asks]
    if any(price is None for price, _ in prices) or (not prices and llm.price is None):
        return None
    return sum(price.of(ask.prompt_tokens, ask.completion_tokens) for price, ask in prices if price)


def _account(info: RunInfo, samples: Sequence[Sample], llm: LLM) -> RunInfo:
    """Add seconds of model time by method and question, what all distinct calls took, and which prompts were used.

    Time and retries are those of the stored responses, whoever made them; the time of a sample that the store does not
    have is what run.json said of it before.
    """
    calls = {ask.key: ask for sample in samples for ask in answered(sample.trace)}
    stored = {key: llm.of(ask.stage).store.get(key) for key, ask in calls.items()}
    seconds: dict[str, dict[str, float]] = {name: {} for name in info.methods}
    for sample in samples:
        took = [stored[ask.key] for ask in answered(sample.trace)]
        before = info.seconds.get(sample.method, {}).get(sample.question.id)
        if None not in took:
            seconds[sample.method][sample.question.id] = round(sum(one.seconds for one in took if one), 3)
        elif before is not None:
            seconds[sample.method][sample.question.id] = before
    usage = Usage(
        calls=len(calls),
        prompt_tokens=sum(ask.prompt_tokens for ask in calls.values()),
        completion_tokens=sum(ask.completion_tokens for ask in calls.values()),
        retries=sum(response.retries for response in stored.values() if response),
        cost=_cost(list(calls.values()), llm),
    )
    used = {name for sample in samples for name in _prompts_of(sample)}
    prompts = {name: digest for name, digest in info.prompts.items() if name in used}
    return replace(info, seconds=seconds, usage=usage, prompts=prompts)


def _prompts_of(sample: Sample) -> set[str]:
    """The prompts that a sample was made with, and those that may stand inside them."""
    language = sample.question.language
    stages = {ask.stage for ask in answered(sample.trace)} | {f"form_{sample.question.task}", "unknown_clause"}
    return {f"{language}/{stage}" for stage in stages}


def _progress(llm: LLM, errors: int) -> str:
    usage = llm.usage
    parts = [f"{usage.sent} calls", f"{usage.stored} stored", f"{usage.prompt_tokens + usage.completion_tokens} tokens"]
    if llm.price is not None:
        parts.append(f"${usage.cost:.4f}")
    if errors:
        parts.append(f"{errors} errors")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class _Place:
    """A run's folder while it is worked in: what it holds of the run already, and its samples file opened for more."""

    info: RunInfo
    samples: list[Sample]
    out: TextIO | None


@contextlib.asynccontextmanager
async def _opened(folder: str | Path | None, info: RunInfo, *, retry_errors: bool) -> AsyncIterator[_Place]:
    if folder is None:
        yield _Place(info, [], None)
        return
    path = Path(folder)
    lock = await _acquire(path)
    try:
        kept, info = _take_up(path, info, retry_errors=retry_errors)
        write_info(path, info)
        with (path / "samples.jsonl").open("a", encoding="utf-8") as out:
            yield _Place(info, kept, out)
    finally:
        lock.release()


async def _acquire(path: Path) -> FileLock:
    """The lock of a folder, once no other process holds it."""
    path.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - before anything is under way
    lock, told = FileLock(path / ".lock"), False
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not told:
                print(f"{path}: another process is making this run; waiting for it", file=sys.stderr)
                told = True
            await asyncio.sleep(_PATIENCE)
        else:
            return lock


def _take_up(path: Path, info: RunInfo, *, retry_errors: bool) -> tuple[list[Sample], RunInfo]:
    """The samples of a folder that still stand, by today's metrics; the others are put aside, failed ones if asked."""
    file = path / "samples.jsonl"
    before = read_info(path) if (path / "run.json").exists() else None
    samples, half_written = read_samples(file)
    if before is None:
        kept, outdated = samples, []
    else:
        check_same_run(path, before, info)
        outdated = [sample for sample in samples if _is_outdated(sample, before, info)]
        kept = [sample for sample in samples if sample not in outdated] if outdated else samples
        info = replace(info, studies=sorted({*before.studies, *info.studies}), seconds=before.seconds)
        if info.endpoint == RECORDED:
            info = replace(info, endpoint=before.endpoint)
        if before.scoring != info.scoring and info.condition.annotates is None:
            kept = [rescore(sample) for sample in kept]
    if outdated:
        with (path / "superseded.jsonl").open("a", encoding="utf-8") as aside:
            aside.writelines(map(sample_line, outdated))
    kept = [sample for sample in kept if sample.error is None or not (retry_errors or _is_unreached(sample.error))]
    write_samples(file, kept)
    return kept, replace(info, half_written=half_written)


def _is_unreached(error: SampleError) -> bool:
    """Whether no model was heard, so that there is nothing to keep."""
    return error.kind == UnreachedError.__name__


def _is_outdated(sample: Sample, before: RunInfo, now: RunInfo) -> bool:
    """Whether code or a prompt that made a sample has changed; the prompts of a killed run are those of its start."""
    if sample.method not in before.methods or sample.method not in now.methods:
        return False
    if before.methods[sample.method].code != now.methods[sample.method].code:
        return True
    return any(before.prompts.get(name) != now.prompts.get(name) for name in _prompts_of(sample))
