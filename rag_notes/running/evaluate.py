"""Run methods on questions: many at once, each response paid once, the answers written as they come."""

import asyncio
import hashlib
import importlib.metadata
import platform
import subprocess
import tempfile
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from rag_notes.events import answered, count
from rag_notes.files import saying_full, slug
from rag_notes.llm.client import LLM
from rag_notes.llm.errors import FatalLLMError, LLMError, SpendingLimitError
from rag_notes.llm.store import canonical_json
from rag_notes.methods.about import about_of, settings_of
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.metrics.score import score
from rag_notes.prompts.templates import TemplateError, Templates
from rag_notes.retrieval.base import Retriever, RetrieverError
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, Run, RunInfo, load_run, read_info, save_run
from rag_notes.running.samples import RecordError, Sample, SampleError, decode, encode
from rag_notes.terminal import progress_bar, tell
from rag_notes.types import Dataset, InputError

Method = Callable[..., Awaitable[str]]

QUESTIONS_PER_SLOT = 4
"""Questions under way for each concurrent call, so that every slot stays busy."""


def describe(
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
    condition: Condition = Condition(),
    repeat: int = 0,
) -> RunInfo:
    """Describe the settings that determine a run's answers, with the versions and the commit of the code."""
    questions = canonical_json([asdict(question) for question in dataset.questions])
    digest = hashlib.sha256(questions.encode()).hexdigest()
    stages = {name: {"model": other.model, **other.sampling} for name, other in sorted(llm.stages.items())}
    packages = ("rag-notes", "openai", "tantivy", "numpy", "scipy")
    return RunInfo(
        DatasetInfo(dataset.name, len(dataset.questions), digest, dataset.selection, dataset.corpus_kind),
        condition,
        methods={name: describe_method(method) for name, method in methods.items()},
        retriever=retriever.describe(),
        llm={"model": llm.model, **llm.sampling, **llm.trained} | ({"stages": stages} if stages else {}),
        prompt_set=templates.name,
        prompts=templates.hashes(),
        repeat=repeat,
        versions={"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages},
        git=_commit(),
    )


def describe_method(method: Method) -> MethodInfo:
    """Describe a method by its function, its settings (defaults included) and its label."""
    function: Callable[..., Any] = method
    while isinstance(function, partial):
        function = function.func
    return MethodInfo(f"{function.__module__}.{function.__qualname__}", settings_of(method), about_of(method).label)


def _commit() -> dict[str, Any]:
    """Return the commit of the code that runs, and whether it has changes; nothing where it is no git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=v2", "--branch"]
    with suppress(OSError, subprocess.CalledProcessError):
        status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return {"commit": status[0].split()[-1], "dirty": any(not line.startswith("#") for line in status)}
    return {}


async def evaluate(
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    *,
    folder: Path | None = None,
    runs: Path | None = None,
    condition: Condition = Condition(),
    templates: Templates | None = None,
    repeat: int = 0,
    study: str | None = None,
    progress: bool = True,
) -> Run:
    """Answer every question of a data set with every method and score the answers.

    `methods` are async functions `(rag, question)` by name; `llm` must be entered (`async with`). The run is written at
    its end to `folder`, or in `runs` to one named by data set, model and a hash of the settings. It is also written
    where it is interrupted or stops at a spending limit, as its status says: the same call then plays the stored
    responses and asks for the rest. A question that fails is recorded with its error.

    Raises RecordError where the folder holds another run, and, once what was answered is written, FatalLLMError where
    no call can succeed, RetrieverError where no search can, TemplateError for a prompt that does not fit.
    """
    templates = templates or Templates()
    info = describe(methods, dataset, retriever, llm, templates, condition, repeat)
    if runs is not None:
        folder = runs / f"{slug(f'{Run(info).label}-{info.model}')}-{info.fingerprint}"
    start = partial(Rag, llm=llm, searcher=Searcher(retriever), templates=templates, repeat=repeat)
    # Of each question all methods at once: they often wait for the same call.
    waiting = deque((question, name) for question in dataset.questions for name in methods)
    title = " · ".join(filter(None, [study, Run(info).label]))
    failures: list[Exception] = []
    writer = _Writer(replace(info, studies=[study] if study else []), dataset, folder)
    with writer.file, progress_bar(title, len(waiting), unit="answer", disable=not progress) as bar:

        async def work() -> None:
            while waiting:
                question, name = waiting.popleft()
                try:
                    rag = start(question, method=name)
                    writer.add(await _answer(rag, name, methods[name], llm, scored=not condition.annotates))
                    bar.set_postfix_str(_spending(llm, writer.errors), refresh=False)
                    bar.update()
                except (FatalLLMError, RetrieverError, ValueError, OSError) as failure:
                    if not failures:  # the others under way mostly meet the same
                        tell(bar, f"{title}: stopping once the answers under way are done: {failure}")
                    failures.append(failure)
                    waiting.clear()

        status = "stopped: interrupted"
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(waiting), QUESTIONS_PER_SLOT * llm.concurrency * len(methods))):
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
    except Exception as failure:  # one failing question must not end the run
        frames = [] if isinstance(failure, LLMError) else traceback.extract_tb(failure.__traceback__)
        lines = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
        error = SampleError(type(failure).__name__, str(failure), lines)
    metrics = score(rag.question, answer, rag.trace) if scored and error is None else {}
    asks = answered(rag.trace)
    prices = [price for ask in asks if (price := llm.of(ask.stage).price)]
    if error is None and len(prices) == len(asks) and (asks or llm.price):
        pairs = zip(prices, asks, strict=True)
        metrics["cost"] = sum(price.of(ask.prompt_tokens, ask.completion_tokens) for price, ask in pairs)
    seconds = round(sum(rag.taken[ask.key][0] for ask in asks), 3)
    return Sample(name, rag.question, answer, error, metrics, count(rag.trace), rag.trace, seconds)


def _spending(llm: LLM, errors: int) -> str:
    usage = llm.usage
    text = f"{usage.sent} calls, {usage.stored} stored, {usage.prompt_tokens + usage.completion_tokens} tokens"
    text += "" if llm.price is None else f", ${usage.cost:.4f}"
    return text + (f", {errors} errors" if errors else "")


class _Writer:
    """Takes the samples of a run as they come, and in the end writes them in their order to its folder.

    Until then they are in a file without a name, so that nothing of a killed process is left and several processes can
    make the same run.
    """

    def __init__(self, info: RunInfo, dataset: Dataset, folder: Path | None) -> None:
        keys = [(name, question.id) for name in info.methods for question in dataset.questions]
        self._spans: dict[tuple[str, str], tuple[int, int] | None] = dict.fromkeys(keys)
        if len(self._spans) < len(keys):
            raise InputError("two questions have the same id; each must have its own")
        self._info, self._folder, self._prompts, self.errors = info, folder, set[str](), 0
        if folder is not None:
            if (earlier := _earlier(folder)) and earlier.fingerprint != info.fingerprint:
                raise RecordError(f"{folder}: holds a run with other settings; name another folder or move it away")
            folder.parent.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder and folder.parent)  # noqa: SIM115 - closed by the caller

    def add(self, sample: Sample) -> None:
        """Take a sample."""
        with saying_full(self._folder or Path()):
            self._spans[sample.method, sample.question.id] = self.file.seek(0, 2), self.file.write(encode(sample))
        self.errors += sample.error is not None
        # The last two are parts of others.
        stages = [*(ask.stage for ask in answered(sample.trace)), f"form_{sample.question.task}", "unknown_clause"]
        self._prompts.update(f"{sample.question.language}/{stage}" for stage in stages)

    def finish(self, status: str) -> Run:
        """Write the run; a finished one is not replaced by one that was stopped."""
        prompts = {name: digest for name, digest in self._info.prompts.items() if name in self._prompts}
        info = replace(self._info, status=status, prompts=prompts)
        lines = (self._line(*span) for span in self._spans.values() if span is not None)
        if self._folder is None:
            return Run(info, [decode(line) for line in lines])
        if (earlier := _earlier(self._folder)) is not None:
            if earlier.finished and not info.finished:
                return replace(load_run(self._folder), info=replace(earlier, status=status))
            info = replace(info, studies=sorted({*earlier.studies, *info.studies}))
        return save_run(self._folder, info, lines)

    def _line(self, start: int, size: int) -> bytes:
        self.file.seek(start)
        return self.file.read(size)


def _earlier(folder: Path) -> RunInfo | None:
    with suppress(RecordError):  # there is nothing, or what an earlier version wrote: it is replaced
        return read_info(folder)
    return None
