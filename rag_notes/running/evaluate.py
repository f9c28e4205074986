"""Run methods on questions: many at once, each response paid once, the answers written as they come."""

import asyncio
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from rag_notes.events import Ask, answered, count
from rag_notes.files import saying_full
from rag_notes.llm.client import LLM
from rag_notes.llm.errors import FatalLLMError, LLMError, SpendingLimitError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.metrics.score import score
from rag_notes.prompts.templates import TemplateError, Templates
from rag_notes.retrieval.base import Retriever, RetrieverError
from rag_notes.running.describe import Method, describe, function_of
from rag_notes.running.records import SAMPLES, Condition, Progress, Run, RunInfo, Usage, load_run, read_info, save_run
from rag_notes.running.samples import RecordError, Sample, SampleError, encode
from rag_notes.terminal import progress_bar, tell
from rag_notes.types import Dataset, InputError, Question

__all__ = ["Method", "evaluate"]

QUESTIONS_PER_SLOT = 4
"""Questions under way for each concurrent call, so that every slot stays busy."""

_COST_UNIT = 1e12  # costs are added as whole numbers, so that their order does not matter


async def evaluate(
    methods: Mapping[str, Method] | Sequence[Method],
    dataset: Dataset | Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    *,
    folder: str | Path | None = None,
    info: RunInfo | None = None,
    condition: Condition | None = None,
    templates: Templates | None = None,
    repeat: int = 0,
    study: str | None = None,
    progress: bool = True,
) -> Run:
    """Answer every question of a data set, or of a list, with every method and score the answers.

    `methods` are async functions `(rag, question)`, by name or named by themselves; `llm` must be entered (`async
    with`). With `folder` the run is written there at its end, also where it is interrupted or stops at a spending
    limit, as its status says: the same call then plays the stored responses and asks for the rest. A question that
    fails is recorded with its error. `study` is the study that the run is made for; `info` is what `describe` gives,
    where the caller has it.

    Raises RecordError where the folder holds another run, and, once what was answered is written, FatalLLMError where
    no call can succeed, RetrieverError where no search can, TemplateError for a prompt that does not fit.
    """
    if not isinstance(methods, Mapping):
        methods = {function_of(method).__name__: method for method in methods}
    if not isinstance(dataset, Dataset):
        dataset = Dataset("questions", tuple(dataset), ())
    templates, condition = templates or Templates(), condition or Condition()
    info = info or describe(methods, dataset, retriever, llm, templates, condition=condition, repeat=repeat)
    start = partial(Rag, llm=llm, searcher=Searcher(retriever), templates=templates, repeat=info.repeat)
    waiting = iter([(name, question) for question in dataset.questions for name in methods])
    title = " · ".join(part for part in (study, Run(info).label) if part)
    failures: list[Exception] = []
    with _Writer(replace(info, studies=[study] if study else []), dataset, llm, folder) as writer:
        total = len(methods) * len(dataset.questions)
        bar = writer.enter_context(progress_bar(title, total, unit="answer", disable=not progress))

        async def work() -> None:
            for name, question in waiting:  # one iterator for all workers: each takes the next question
                if failures:
                    return
                rag = start(question, method=name)
                try:
                    writer.add(await _answer(rag, name, methods[name], llm, scored=not info.condition.annotates))
                except (FatalLLMError, RetrieverError, ValueError, OSError) as failure:
                    if not failures:  # the others under way mostly meet the same
                        tell(bar, f"{title}: stopping once the answers under way are done: {failure}")
                    failures.append(failure)
                    return
                bar.set_postfix_str(writer.progress(), refresh=False)
                bar.update()

        status = "stopped: interrupted"
        try:
            async with asyncio.TaskGroup() as group:
                # Of each question all methods at once: they often wait for the same call.
                for _ in range(min(total, QUESTIONS_PER_SLOT * llm.concurrency * len(methods))):
                    group.create_task(work())
            status = f"stopped: {failures[0]}" if failures else "finished"
        finally:
            run = writer.finish(status)
    if failures and not isinstance(failures[0], SpendingLimitError):
        raise failures[0]
    return run


async def _answer(rag: Rag, name: str, method: Method, llm: LLM, *, scored: bool) -> Sample:
    """Answer one question and score the answer; what goes wrong with this question alone is recorded, not raised."""
    answer, error = "", None
    try:
        answer = await method(rag, rag.question)
    except (FatalLLMError, RetrieverError, TemplateError):
        raise  # every other question would meet it too
    except LLMError as failure:
        error = SampleError(type(failure).__name__, str(failure))
    except Exception as failure:  # one failing question must not end the run
        frames = traceback.extract_tb(failure.__traceback__)
        lines = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
        error = SampleError(type(failure).__name__, str(failure), lines)
    metrics = score(rag.question, answer, rag.trace) if scored and error is None else {}
    asks = answered(rag.trace)
    costs = [_cost(ask, llm) for ask in asks]
    if error is None and None not in costs and (costs or llm.price is not None):
        metrics["cost"] = sum(cost for cost in costs if cost is not None)
    seconds = round(sum(rag.taken[ask.key][0] for ask in asks), 3)
    return Sample(name, rag.question, answer, error, metrics, count(rag.trace), rag.trace, seconds)


def _cost(ask: Ask, llm: LLM) -> float | None:
    """What a call costs without a store, in US dollars."""
    price = llm.of(ask.stage).price
    return None if price is None else price.of(ask.prompt_tokens, ask.completion_tokens)


class _Writer(ExitStack):
    """Takes the samples of a run as they come, and in the end writes them in their order to its folder.

    Until then they are in a file without a name, so that nothing of a killed process is left and several processes can
    make the same run; without a folder they stay in memory.
    """

    def __init__(self, info: RunInfo, dataset: Dataset, llm: LLM, folder: str | Path | None) -> None:
        super().__init__()
        self._info, self._llm, self._folder = info, llm, None if folder is None else Path(folder)
        keys = [(name, question.id) for name in info.methods for question in dataset.questions]
        self._samples: dict[tuple[str, str], Sample | tuple[int, int] | None] = dict.fromkeys(keys)
        if len(self._samples) < len(keys):
            raise InputError("two questions have the same id, or two methods the same name; each must have its own")
        if self._folder is not None:
            if (earlier := _read(self._folder)) and earlier.fingerprint != info.fingerprint:
                raise RecordError(f"{folder}: holds a run with other settings; name another folder or move it away")
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._folder.parent)  # noqa: SIM115 - closed with this
            self._file: IO[bytes] = self.enter_context(file)
        self._calls, self._prompts = set[str](), set[str]()
        self._errors = self._prompt_tokens = self._completion_tokens = self._cost = 0
        self._priced = True

    def add(self, sample: Sample) -> None:
        """Take a sample, and add up what its calls cost that no other sample has made."""
        key = sample.method, sample.question.id
        if self._folder is None:
            self._samples[key] = sample
        else:
            with saying_full(self._folder / SAMPLES):
                self._samples[key] = self._file.seek(0, 2), self._file.write(encode(sample))
        self._errors += sample.error is not None
        asks = answered(sample.trace)
        stages = {ask.stage for ask in asks} | {f"form_{sample.question.task}", "unknown_clause"}  # parts of others
        self._prompts |= {f"{sample.question.language}/{stage}" for stage in stages}
        for ask in asks:
            if ask.key not in self._calls:
                self._calls.add(ask.key)
                self._prompt_tokens += ask.prompt_tokens
                self._completion_tokens += ask.completion_tokens
                cost = _cost(ask, self._llm)
                self._priced &= cost is not None
                self._cost += round((cost or 0) * _COST_UNIT)

    def progress(self) -> str:
        """What the calls of this process took so far."""
        usage = self._llm.usage
        parts = [f"{usage.sent} calls", f"{usage.stored} stored"]
        parts.append(f"{usage.prompt_tokens + usage.completion_tokens} tokens")
        parts += [f"${usage.cost:.4f}"] if self._llm.price is not None else []
        return ", ".join(parts + [f"{self._errors} errors"] * bool(self._errors))

    def finish(self, status: str) -> Run:
        """Write the run; a finished one is not replaced by one that was stopped."""
        priced = self._priced and (self._calls or self._llm.price is not None)
        cost = self._cost / _COST_UNIT if priced else None
        usage = Usage(len(self._calls), self._prompt_tokens, self._completion_tokens, cost)
        prompts = {name: digest for name, digest in self._info.prompts.items() if name in self._prompts}
        done = sum(sample is not None for sample in self._samples.values())
        progress = Progress(done, len(self._samples), self._errors)
        info = replace(self._info, status=status, samples=progress, usage=usage, prompts=prompts)
        if self._folder is None:
            return Run(info, [sample for sample in self._samples.values() if isinstance(sample, Sample)])
        if (earlier := _read(self._folder)) is not None:
            if earlier.finished and not info.finished:
                return replace(load_run(self._folder), info=replace(earlier, status=status))
            info = replace(info, studies=sorted({*earlier.studies, *info.studies}))
        return save_run(self._folder, info, self._lines())

    def _lines(self) -> Iterator[bytes]:
        for span in self._samples.values():
            if isinstance(span, tuple):
                self._file.seek(span[0])
                yield self._file.read(span[1])


def _read(folder: Path) -> RunInfo | None:
    with suppress(RecordError):  # there is nothing, or what an earlier version wrote: it is replaced
        return read_info(folder)
    return None
