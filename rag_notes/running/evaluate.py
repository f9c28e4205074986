"""Run methods on questions: many at once, each response paid once, the answers written as they come."""

import asyncio
import hashlib
import importlib.metadata
import math
import platform
import subprocess
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rag_notes.events import answered, count
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, Price, SpendingLimitError
from rag_notes.llm.errors import encodable
from rag_notes.llm.store import canonical_json
from rag_notes.methods.about import about_of, settings_of
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.metrics.score import score
from rag_notes.prompts.templates import TemplateError, Templates
from rag_notes.retrieval.base import Retriever, RetrieverError
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, Progress, Run, RunInfo, Usage
from rag_notes.running.samples import Sample, SampleError
from rag_notes.running.write import SampleWriter, check_folder, write_run
from rag_notes.terminal import progress_bar, tell
from rag_notes.types import Dataset, InputError, Question

Method = Callable[..., Awaitable[str]]

QUESTIONS_PER_SLOT = 4
"""Questions under way for each concurrent call, so that every slot stays busy."""

_VERSIONS = ("rag-notes", "openai", "tantivy", "numpy", "scipy")
_version = cache(importlib.metadata.version)  # which reads files


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
    limit, as its status says; the same call goes on from the stored responses. A question that fails is recorded with
    its error and is asked again by the next call. `study` is what the run is made for; `info` is what `describe` gives,
    where the caller has it.

    Raises RecordError where the folder holds another run, and, after what was answered is written, FatalLLMError where
    no call can succeed, RetrieverError where no search can, TemplateError for a prompt that does not fit.
    """
    if not isinstance(methods, Mapping):
        methods = {function_of(method).__name__: method for method in methods}
    if not isinstance(dataset, Dataset):
        dataset = Dataset("questions", tuple(dataset), ())
    templates = templates or Templates()
    if info is None:
        condition = condition or Condition()
        info = describe(methods, dataset, retriever, llm, templates, condition=condition, repeat=repeat)
    info = replace(info, studies=[] if study is None else [study])
    lines = {key: number for number, key in enumerate((name, q.id) for name in methods for q in dataset.questions)}
    if len(lines) < len(methods) * len(dataset.questions):
        raise InputError("two questions have the same id, or two methods the same name; each must have its own")

    if folder is not None:
        check_folder(Path(folder), info)

    start = partial(Rag, llm=llm, searcher=Searcher(retriever), templates=templates, repeat=info.repeat)
    scored = info.condition.annotates is None
    waiting = iter([(name, question) for question in dataset.questions for name in methods])
    account = _Account(llm)
    title = " · ".join(part for part in (study, Run(info).label) if part)
    bar = progress_bar(title, len(lines), unit="answer", disable=not progress)
    failures: list[Exception] = []

    async def work(writer: SampleWriter) -> None:
        for name, question in waiting:  # one iterator for all workers: each takes the next sample
            if failures:
                return
            rag = start(question, method=name)
            try:
                sample = await _answer(rag, name, methods[name], llm, scored=scored)
                writer.add(lines[name, question.id], sample)
            except (FatalLLMError, RetrieverError, ValueError, OSError) as failure:
                if not failures:  # the others under way mostly meet the same
                    tell(bar, f"{title}: stopping once the answers under way are done: {failure}")
                failures.append(failure)
                return
            account.add(sample, rag.taken)
            bar.set_postfix_str(_progress(llm, account.errors), refresh=False)
            bar.update()

    with SampleWriter(len(lines), folder) as writer, bar:
        status = "stopped: interrupted"
        try:
            async with asyncio.TaskGroup() as group:
                # Of each question all methods at once: they often wait for the same call.
                for _ in range(min(len(lines), QUESTIONS_PER_SLOT * llm.concurrency * len(methods))):
                    group.create_task(work(writer))
            status = f"stopped: {failures[0]}" if failures else "finished"
        finally:
            run = write_run(account.add_to(replace(info, status=status), len(lines)), writer)
    if failures and not isinstance(failures[0], SpendingLimitError):
        raise failures[0]
    return run


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
        lines = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
        error = SampleError(type(failure).__name__, str(failure), lines)
    asks = answered(rag.trace)
    metrics: dict[str, float] = {}
    if error is None:
        metrics = score(question, answer, rag.trace) if scored else {}
        prices = [(llm.of(ask.stage).price, ask) for ask in asks]
        if llm.price is not None and all(price is not None for price, _ in prices):
            metrics["cost"] = sum(price.of(ask.prompt_tokens, ask.completion_tokens) for price, ask in prices if price)
    seconds = round(sum(rag.taken[ask.key][0] for ask in asks), 3)
    return Sample(name, question, answer, error, metrics, count(rag.trace), rag.trace, seconds)


class _Account:
    """Adds up what the answers of a run cost, each distinct call once, and which prompts they used."""

    def __init__(self, llm: LLM) -> None:
        self.done = self.errors = 0
        self._llm = llm
        self._calls = set[bytes]()
        self._retries = 0
        self._tokens: dict[Price | None, list[int]] = {}  # of prompts and completions
        self._prompts = set[str]()

    def add(self, sample: Sample, taken: Mapping[str, tuple[float, int]]) -> None:
        self.done += 1
        self.errors += sample.error is not None
        asks = answered(sample.trace)
        stages = {ask.stage for ask in asks} | {f"form_{sample.question.task}", "unknown_clause"}  # parts of others
        self._prompts |= {f"{sample.question.language}/{stage}" for stage in stages}
        for ask in asks:
            if (call := bytes.fromhex(ask.key)) not in self._calls:
                self._calls.add(call)
                self._retries += taken[ask.key][1]
                tokens = self._tokens.setdefault(self._llm.of(ask.stage).price, [0, 0])
                tokens[0] += ask.prompt_tokens
                tokens[1] += ask.completion_tokens

    def add_to(self, info: RunInfo, samples: int) -> RunInfo:
        """The description of a run with what it cost."""
        prompt_tokens, completion_tokens = (sum(tokens[part] for tokens in self._tokens.values()) for part in (0, 1))
        cost = None
        if self._llm.price is not None and None not in self._tokens:
            cost = math.fsum(price.of(*tokens) for price, tokens in self._tokens.items() if price)
        return replace(
            info,
            samples=Progress(self.done, samples, self.errors),
            usage=Usage(len(self._calls), prompt_tokens, completion_tokens, self._retries, cost),
            prompts={name: digest for name, digest in info.prompts.items() if name in self._prompts},
        )


def _progress(llm: LLM, errors: int) -> str:
    usage = llm.usage
    parts = [f"{usage.sent} calls", f"{usage.stored} stored", f"{usage.prompt_tokens + usage.completion_tokens} tokens"]
    if llm.price is not None:
        parts.append(f"${usage.cost:.4f}")
    if errors:
        parts.append(f"{errors} errors")
    return ", ".join(parts)


def describe(
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
    *,
    condition: Condition,
    repeat: int = 0,
) -> RunInfo:
    """Describe the settings that determine a run's samples, with the versions and the commit of the code.

    Raises InputError naming a question that holds half a surrogate pair, which no file can hold.
    """
    questions = [(question.id, canonical_json(asdict(question))) for question in dataset.questions]
    if broken := [name for name, text in questions if encodable(text) != text]:
        raise InputError(
            f"question {encodable(broken[0])!r}: expected valid Unicode, found half of a surrogate pair; mend its text"
        )
    stages = {name: {"model": other.model, **other.sampling} for name, other in sorted(llm.stages.items())}
    return RunInfo(
        dataset=DatasetInfo(
            dataset.name,
            len(dataset.questions),
            hashlib.sha256(f"[{','.join(text for _, text in questions)}]".encode()).hexdigest(),
            selection=dataset.selection,
            corpus=dataset.corpus_kind,
        ),
        condition=condition,
        methods={name: describe_method(method) for name, method in methods.items()},
        retriever=retriever.describe(),
        llm={"model": llm.model, **llm.sampling, **llm.trained} | ({"stages": stages} if stages else {}),
        prompt_set=templates.name,
        prompts=templates.hashes(),
        repeat=repeat,
        endpoint=llm.base_url or "recorded",
        versions={"python": platform.python_version()} | {name: _version(name) for name in _VERSIONS},
        git=_git(),
    )


def describe_method(method: Method) -> MethodInfo:
    """Describe a method by its function, its settings (defaults included) and its label."""
    function = function_of(method)
    return MethodInfo(f"{function.__module__}.{function.__qualname__}", settings_of(method), about_of(method).label)


def function_of(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself of a method that has some of its settings bound."""
    return function_of(method.func) if isinstance(method, partial) else method


def _git() -> dict[str, Any]:
    """Commit and dirty flag of the code that runs; empty where it is not a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=v2", "--branch"]
    try:
        status = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        commit, *changes = status.splitlines()
        return {"commit": commit.split()[-1], "dirty": any(not line.startswith("#") for line in changes)}
    except (OSError, subprocess.SubprocessError):
        return {}
