"""Run methods on questions: concurrently, resumably, each response paid once; writes the run as it goes."""

import asyncio
import contextlib
import hashlib
import importlib.metadata
import inspect
import json
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from filelock import FileLock, Timeout
from tqdm import tqdm

from rag_notes.llm.client import LLM, FatalLLMError, LLMError, SpendingLimitError
from rag_notes.llm.store import canonical_json
from rag_notes.metrics.answer import score_answer
from rag_notes.rag import Event, Rag, Searcher
from rag_notes.records import (
    Key,
    RecordError,
    Run,
    Sample,
    count_events,
    read_info,
    read_samples,
    sample_key,
    sort_samples,
    write_atomically,
    write_samples,
)
from rag_notes.retrieval.base import Retriever, RetrieverError
from rag_notes.retrieval.metrics import all_gold_at_k, answer_in_passages, any_gold_at_k
from rag_notes.templates import TemplateError, Templates
from rag_notes.types import Passage, Question

Method = Callable[..., Awaitable[str]]
QUESTIONS_PER_SLOT = 4  # under way for each concurrent call, so that every slot stays busy


async def evaluate(
    methods: Mapping[str, Method] | Sequence[Method],
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    *,
    folder: str | Path | None = None,
    dataset: str = "questions",
    templates: Templates | None = None,
    repeat: int = 0,
    retry_errors: bool = False,
    made: Run | None = None,
    study: str | None = None,
    given: Sequence[str] = (),
    progress: bool = True,
) -> Run:
    """Answer every question with every method and score the answers.

    `methods` are async functions `(rag, question)`, by name or named by themselves. With `folder` the run is written
    there as it goes, and what the folder already holds of the same run is not done again; `retry_errors` does again
    what had failed. A question that fails is recorded with its error. `made` is what other runs already have of this
    one (`rag_notes.sharing.made_elsewhere`); it is taken over. `study` is what it is made for and `given` are the
    options as the user gave them, both kept in run.json. `llm` must be entered (`async with`).

    Raises RecordError where the folder holds another run or another process works in it, FatalLLMError where no
    call can succeed, RetrieverError where no search can. A spending limit that is reached ends the run with that status
    and is not raised.
    """
    named = dict(methods) if isinstance(methods, Mapping) else {_name(method): method for method in methods}
    templates = templates or Templates()
    info = describe(named, questions, retriever, llm, templates, dataset=dataset, repeat=repeat) | {
        "given": list(given),
        "studies": [] if study is None else [study],
    }
    order = [(name, question.id) for question in questions for name in named]
    if len(set(order)) < len(order):
        raise ValueError("two questions have the same id, or two methods the same name; each must have its own")

    with _open_folder(folder, info, made, retry_errors=retry_errors) as (done, out):
        searcher = Searcher(retriever)
        written = list(done)  # in the order of the lines of samples.jsonl
        samples = {key: sample for key, sample in done.items() if key in set(order)}
        seconds = {key: _seconds(sample, llm, made) for key, sample in samples.items()}
        by_id = {question.id: question for question in questions}
        waiting = iter([key for key in order if key not in samples])
        bar = tqdm(total=len(order), initial=len(samples), disable=not progress, unit="answer", file=sys.stderr)
        stop: list[FatalLLMError | RetrieverError] = []

        errors = sum(sample["error"] is not None for sample in samples.values())

        async def work() -> None:
            nonlocal errors
            for name, question_id in waiting:  # one iterator for all workers: each takes the next sample
                if stop:
                    return
                rag = Rag(
                    by_id[question_id], method=name, llm=llm, searcher=searcher, templates=templates, repeat=repeat
                )
                try:
                    sample = await _sample(rag, name, named[name], llm)
                except (FatalLLMError, RetrieverError) as fatal:
                    stop.append(fatal)
                    return
                samples[name, question_id] = sample
                seconds[name, question_id] = round(rag.seconds, 3)
                written.append((name, question_id))
                if out is not None:
                    out.write(canonical_json(sample) + "\n")
                    out.flush()
                bar.update()
                errors += sample["error"] is not None
                bar.set_postfix_str(_progress(llm, errors), refresh=False)

        # Of each question all methods at once: they often wait for the same call.
        workers = min(len(order), QUESTIONS_PER_SLOT * llm.concurrency * len(named))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work())
        except* ValueError as failures:  # a template that does not fit, a gold answer that cannot be scored
            raise failures.exceptions[0] from None
        finally:
            bar.close()

        ordered = [samples[name, q.id] for name in named for q in questions if (name, q.id) in samples]
        info |= {
            "status": "finished" if not stop else f"stopped: {stop[0]}",
            "samples": {"done": len(ordered), "of": len(order), "errors": errors},
            "usage": asdict(llm.usage),
            "search_retries": getattr(retriever, "retries", 0),
            "seconds": {
                name: {q.id: seconds[name, q.id] for q in questions if (name, q.id) in samples} for name in named
            },
        }
        if folder is not None:
            sort_samples(Path(folder) / "samples.jsonl", written, [sample_key(sample) for sample in ordered])
            write_atomically(Path(folder) / "run.json", json.dumps(info, indent=1, ensure_ascii=False))
    if stop and not isinstance(stop[0], SpendingLimitError):
        raise stop[0]
    return Run(info, ordered)


async def _sample(rag: Rag, name: str, method: Method, llm: LLM) -> Sample:
    """Answer one question and score the answer; what goes wrong with this question alone is recorded, not raised."""
    question, answer, error = rag.question, "", None
    try:
        answer = await method(rag, question)
    except (FatalLLMError, RetrieverError, TemplateError):
        raise  # every other question would meet it too
    except Exception as failure:  # one failing question must not end the run
        kind = "" if isinstance(failure, LLMError) else f"{type(failure).__name__}: "
        error = f"{kind}{failure}"
    counts = count_events(rag.trace)
    metrics: dict[str, float] = {}
    if error is None:
        metrics = score_answer(question, answer) | _retrieval(question, rag.trace)
        if (cost := _cost(rag.trace, llm)) is not None:
            metrics["cost"] = cost
    return {
        "method": name,
        "question_id": question.id,
        "question": question.question,
        "gold": list(question.answers) or [pair.answers[0] for pair in question.qa_pairs],
        "type": question.type,
        "answer": answer,
        "error": error,
        "metrics": metrics,
        "counts": counts,
        "trace": rag.trace,
    }


def _cost(trace: list[Event], llm: LLM) -> float | None:
    """Dollars that the answer costs without a store; None where a price is missing."""
    answered = [event for event in trace if event["event"] == "ask" and "response" in event]
    prices = [(llm.of(event["stage"]).price, event) for event in answered] or [(llm.price, {})]
    if any(price is None for price, _ in prices):
        return None
    return sum(
        price.of(event["prompt_tokens"], event["completion_tokens"]) for price, event in prices if price and event
    )


def _retrieval(question: Question, trace: list[Event]) -> dict[str, float]:
    """Retrieval metrics of the first search (`_first`) and of all passages the method read (`_seen`)."""
    rankings = [
        [Passage(hit["id"], hit["title"], hit["text"]) for hit in event["hits"] if not hit.get("unread")]
        for event in trace
        if event["event"] == "search"
    ]
    if not rankings:
        return {}
    metrics: dict[str, float] = {}
    seen = list({passage.id: passage for ranking in rankings for passage in ranking}.values())
    for suffix, passages in (("first", rankings[0]), ("seen", seen)):
        values = {
            "all_gold": all_gold_at_k(passages, question.gold_ids),
            "any_gold": any_gold_at_k(passages, question.gold_ids),
            "answer_in_passages": answer_in_passages(passages, question.answers, question.language),
        }
        metrics |= {f"{name}_{suffix}": value for name, value in values.items() if value is not None}
    return metrics


def _seconds(sample: Sample, llm: LLM, made: Run | None) -> float:
    """Seconds of model time of a sample made earlier: what its run says, else what the store knows of its calls."""
    of_run = {} if made is None else made.info["seconds"].get(sample["method"], {})
    if sample["question_id"] in of_run:
        return float(of_run[sample["question_id"]])
    asks = [event for event in sample["trace"] if "key" in event]
    stored = [llm.of(event["stage"]).store.get(event["key"]) for event in asks]
    return round(sum(response.seconds for response in stored if response), 3)


def _progress(llm: LLM, errors: int) -> str:
    usage = llm.usage
    parts = [f"{usage.sent} calls", f"{usage.stored} stored", f"{usage.prompt_tokens + usage.completion_tokens} tokens"]
    if llm.price is not None:
        parts.append(f"${usage.cost:.4f}")
    if errors:
        parts.append(f"{errors} errors")
    return ", ".join(parts)


@contextlib.contextmanager
def _open_folder(
    folder: str | Path | None, info: dict[str, Any], made: Run | None, *, retry_errors: bool
) -> Iterator[tuple[dict[Key, Sample], TextIO | None]]:
    """What there is of this run already, in its folder or taken from others, and its samples file opened for more.

    The folder is locked meanwhile.
    """
    taken = {} if made is None else {sample_key(sample): sample for sample in made.samples}
    if folder is None:
        yield taken, None
        return
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(path / ".lock", timeout=0).acquire()
    except Timeout:
        raise RecordError(f"{path}: another process is running in this folder") from None
    with held:
        run_file, samples_file = path / "run.json", path / "samples.jsonl"
        if run_file.exists():
            before = read_info(path)
            _check_same_run(path, before, info)
            info["studies"] = sorted({*before.get("studies", []), *info["studies"]})
        samples, info["half_written"] = read_samples(samples_file)
        kept = [sample for sample in samples if not (retry_errors and sample["error"] is not None)]
        own = {sample_key(sample) for sample in kept}
        kept += [sample for key, sample in taken.items() if key not in own]
        info["taken_over"] = len(kept) - len(own)
        write_samples(samples_file, kept)
        write_atomically(run_file, json.dumps(info, indent=1, ensure_ascii=False))
        with samples_file.open("a", encoding="utf-8") as out:
            yield {sample_key(sample): sample for sample in kept}, out


def _check_same_run(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    if fingerprint(before) == fingerprint(now):
        return
    old, new = before["settings"], now["settings"]
    parts = {f"settings.{key}": (old.get(key), new[key]) for key in new} | {
        key: (before[key], now[key]) for key in ("dataset", "prompts")
    }
    changed = sorted(key for key, (was, is_now) in parts.items() if was != is_now)
    raise RecordError(f"{path}: holds a run with other {', '.join(changed)}; name another folder or move this one away")


def fingerprint(info: dict[str, Any]) -> str:
    """A hash of what determines the samples of a run: questions, settings and prompts."""
    return hashlib.sha256(canonical_json([info["dataset"], info["settings"], info["prompts"]]).encode()).hexdigest()


def _name(method: Method) -> str:
    function = method.func if isinstance(method, partial) else method
    return str(function.__name__)


def describe_method(method: Method) -> dict[str, Any]:
    """A method's function, its settings (defaults included) and a hash of its source."""
    function = method.func if isinstance(method, partial) else method
    settings = {
        name: parameter.default
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    source = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    return {"function": f"{function.__module__}.{function.__qualname__}", "settings": settings, "source": source}


def describe(
    methods: Mapping[str, Method],
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
    *,
    dataset: str,
    repeat: int = 0,
) -> dict[str, Any]:
    """What run.json says of a run before it starts: data set, settings, prompts, versions, git."""
    digest = hashlib.sha256(canonical_json([asdict(question) for question in questions]).encode()).hexdigest()
    return {
        "status": "running",
        "dataset": {"name": dataset, "questions": len(questions), "sha256": digest},
        "settings": {
            "methods": {name: describe_method(method) for name, method in methods.items()},
            "retriever": retriever.describe(),
            "llm": {"model": llm.model, **llm.sampling, "repeat": repeat}
            | {f"stage {stage}": {"model": other.model, **other.sampling} for stage, other in llm.stages.items()},
        },
        "prompts": templates.hashes(),
        "endpoint": llm.base_url or "recorded",
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("rag-notes", "openai", "tantivy", "numpy", "scipy")},
        },
        "git": _git(),
    }


def _git() -> dict[str, Any]:
    """Commit and dirty flag of the code that runs; empty where it is not a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=v2", "--branch"]
    try:
        status = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        commit, *changes = status.splitlines()
        return {"commit": commit.split()[-1], "dirty": any(not line.startswith("#") for line in changes)}
    except (OSError, subprocess.SubprocessError):
        return {}
