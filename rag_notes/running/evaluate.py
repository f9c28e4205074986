"""Run methods on questions: concurrently, resumably, each response paid once; writes the run as it goes."""

import asyncio
import contextlib
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

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
    require_text,
)
from rag_notes.running.run_files import (
    SAMPLES,
    load_run,
    read_info,
    read_samples,
    recordable,
    sample_line,
    sort_samples,
    write_info,
    write_samples,
)
from rag_notes.terminal import progress_bar, tell
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
        start = partial(Rag, llm=llm, searcher=Searcher(retriever), templates=templates, repeat=repeat)
        by_id = {question.id: question for question in questions}

        async def make(key: Key) -> bool:
            method, question = key[0], by_id[key[1]]
            rag = start(question, method=method)
            made = await _answer(rag, method, named[method], llm, scored=scored)
            place.add(made, rag.taken)
            return made.error is not None

        earlier = getattr(retriever, "retries", 0)  # by indexing, or in other runs
        told = " · ".join(part for part in (study, Run(info).label) if part)
        stop = await _work_off(order, place, make, llm, len(named), told=told, progress=progress)
        samples = place.sorted((name, question.id) for name in named for question in questions)
        status = f"stopped: {stop}" if stop else "finished"
        retries = getattr(retriever, "retries", 0) - earlier
        info = replace(_account(place, samples, len(order), llm), status=status, search_retries=retries)
        if folder is not None:
            write_info(Path(folder), info)
    if stop and not isinstance(stop, SpendingLimitError):
        raise stop
    return Run(info, samples, None if folder is None else Path(folder))


async def _work_off(
    order: Sequence[Key],
    place: "_Place",
    make: Callable[[Key], Awaitable[bool]],
    llm: LLM,
    methods: int,
    *,
    told: str,
    progress: bool,
) -> FatalLLMError | RetrieverError | None:
    """Make the samples of `order` that are not there yet, many at once; returns what ended it early, if anything."""
    there = set(place.written)
    missing = [key for key in order if key not in there]
    waiting = iter(missing)
    bar = progress_bar(told, len(order), initial=len(order) - len(missing), unit="answer", disable=not progress)
    stop: list[FatalLLMError | RetrieverError] = []
    errors = place.errors

    async def work() -> None:
        nonlocal errors
        for key in waiting:  # one iterator for all workers: each takes the next sample
            if stop:
                return
            try:
                errors += await make(key)
            except (FatalLLMError, RetrieverError) as fatal:
                if not stop:  # the others under way mostly meet the same
                    tell(bar, f"{told}: stopping once the answers under way are done: {fatal}")
                stop.append(fatal)
                return
            bar.set_postfix_str(_progress(llm, errors), refresh=False)
            bar.update()

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
    folder, and where the run is of version 0.1, whose records lack what the metrics need of a question; InputError
    where it was published without its text.
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
        require_text(run)
        if not run.info.scoring:
            raise RecordError(
                f"{path}: is of version 0.1, which kept too little of the questions to mark answers by; run it again "
                "(responses that are stored are taken)"
            )
        write_samples(path / SAMPLES, map(rescore, run.samples))
        write_info(path, replace(run.info, scoring=code_hash(score)))
        marked, _ = read_samples(path / SAMPLES)
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


def _account(place: "_Place", samples: Sequence[Sample], of: int, llm: LLM) -> RunInfo:
    """What run.json says in the end: samples, seconds of model time, what the distinct calls took, prompts used.

    Time and retries are those of the stored responses, whoever made them; the time of a sample that the store does not
    have is what run.json said of it before.
    """
    info = place.info
    seconds: dict[str, dict[str, float]] = {name: {} for name in info.methods}
    counted, used, errors = set[str](), set[str](), 0
    calls = prompt_tokens = completion_tokens = retries = 0
    cost = _cost([], llm)
    for sample in samples:
        errors += sample.error is not None
        used |= _prompts_of(sample)
        asks = answered(sample.trace)
        took, retried = place.took.get(sample.key), place.retried
        if took is None:  # by another process
            responses = {ask.key: llm.of(ask.stage).store.get(ask.key) for ask in asks}
            taken = {key: (stored.seconds, stored.retries) for key, stored in responses.items() if stored}
            took = _seconds(asks, taken)
            retried = {key: again for key, (_, again) in taken.items()}
        if took is None:
            took = info.seconds.get(sample.method, {}).get(sample.question.id)
        if took is not None:
            seconds[sample.method][sample.question.id] = took
        for ask in asks:
            if ask.key in counted:
                continue
            counted.add(ask.key)
            prompt_tokens += ask.prompt_tokens
            completion_tokens += ask.completion_tokens
            retries += retried.get(ask.key, 0)
            of_call = _cost([ask], llm)
            cost = of_call if not calls else None if cost is None or of_call is None else cost + of_call
            calls += 1
    prompts = {name: digest for name, digest in info.prompts.items() if name in used}
    usage = Usage(calls, prompt_tokens, completion_tokens, retries, cost)
    return replace(info, samples=Progress(len(samples), of, errors), seconds=seconds, usage=usage, prompts=prompts)


def _seconds(asks: Sequence[Ask], taken: Mapping[str, tuple[float, int]]) -> float | None:
    """The seconds of model time of the calls of a sample; None where one of them is not known."""
    if not all(ask.key in taken for ask in asks):
        return None
    return round(sum(taken[ask.key][0] for ask in asks), 3)


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


class _Place:
    """Where the samples of a run are kept while it is made: in its folder, line by line, or in memory without one.

    Of those that were made here, `took` has the seconds of model time, and `retried` the retries by key, if there were.
    """

    def __init__(self, info: RunInfo, file: Path | None = None, written: Sequence[Key] = (), errors: int = 0) -> None:
        self.info, self.errors = info, errors
        self.written = list(written)  # in the order of the lines
        self.took: dict[Key, float | None] = {}
        self.retried: dict[str, int] = {}
        self._file = file
        self._out = None if file is None else file.open("a", encoding="utf-8")
        self._held: dict[Key, Sample] = {}

    def add(self, sample: Sample, taken: Mapping[str, tuple[float, int]]) -> None:
        sample, line = recordable(sample)
        self.took[sample.key] = _seconds(answered(sample.trace), taken)
        self.retried |= {key: again for key, (_, again) in taken.items() if again}
        self.written.append(sample.key)
        if self._out is None:
            self._held[sample.key] = sample
        else:
            self._out.write(line)
            self._out.flush()

    def sorted(self, order: Iterable[Key]) -> Sequence[Sample]:
        """Those of `order` that there are, in that order; the folder is left with them."""
        if self._file is None:
            return [self._held[key] for key in order if key in self._held]
        return sort_samples(self._file, self.written, order)

    def close(self) -> None:
        if self._out is not None:
            self._out.close()


@contextlib.asynccontextmanager
async def _opened(folder: str | Path | None, info: RunInfo, *, retry_errors: bool) -> AsyncIterator[_Place]:
    if folder is None:
        yield _Place(info)
        return
    path = Path(folder)
    lock = await _acquire(path)
    try:
        with contextlib.closing(_take_up(path, info, retry_errors=retry_errors)) as place:
            yield place
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


def _take_up(path: Path, info: RunInfo, *, retry_errors: bool) -> _Place:
    """A folder with the samples that still stand, by today's metrics; others are put aside, failed ones if asked."""
    before = read_info(path) if (path / "run.json").exists() else None
    samples, half_written = read_samples(path / SAMPLES)
    scored_anew = False
    if before is not None:
        check_same_run(path, before, info)
        scored_anew = before.scoring != info.scoring and info.condition.annotates is None
        info = replace(info, studies=sorted({*before.studies, *info.studies}), seconds=before.seconds)
        if info.endpoint == RECORDED:
            info = replace(info, endpoint=before.endpoint)
    errors = 0

    def standing() -> Iterator[Sample]:
        nonlocal errors
        for sample in samples:
            if before is not None and _is_outdated(sample, before, info):
                with (path / "superseded.jsonl").open("a", encoding="utf-8") as aside:
                    aside.write(sample_line(sample))
            elif sample.error is None or not (retry_errors or _is_unreached(sample.error)):
                errors += sample.error is not None
                yield rescore(sample) if scored_anew else sample

    written = write_samples(path / SAMPLES, standing())
    info = replace(info, half_written=half_written)
    write_info(path, info)
    return _Place(info, path / SAMPLES, written, errors)


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
