"""What run.json says of a run before it starts, and which runs are the same one."""

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from rag_notes.llm.client import LLM
from rag_notes.llm.errors import encodable
from rag_notes.llm.store import canonical_json
from rag_notes.methods.about import about_of, settings_of
from rag_notes.metrics.score import score
from rag_notes.prompts.templates import Templates
from rag_notes.retrieval.base import Retriever
from rag_notes.running.identity import code_hash, unwrapped
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, RecordError, RunInfo
from rag_notes.types import Dataset, InputError, Question

Method = Callable[..., Awaitable[str]]

RECORDED = "recorded"  # the endpoint of a run that was made from stored responses alone
_VERSIONS = ("rag-notes", "openai", "tantivy", "numpy", "scipy")
_version = cache(importlib.metadata.version)  # which reads files


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
    """Say of a run what determines its samples, with the versions and the commit that make them.

    Raises InputError naming a question that holds half a surrogate pair, which no file can hold.
    """
    digest = hashlib.sha256(_json_of(dataset.questions)).hexdigest()
    stages = {name: {"model": other.model, **other.sampling} for name, other in sorted(llm.stages.items())}
    return RunInfo(
        dataset=DatasetInfo(
            dataset.name, len(dataset.questions), digest, selection=dataset.selection, corpus=dataset.corpus_kind
        ),
        condition=condition,
        methods={name: describe_method(method) for name, method in methods.items()},
        retriever=retriever.describe(),
        llm={"model": llm.model, **llm.sampling, **llm.trained} | ({"stages": stages} if stages else {}),
        prompt_set=templates.name,
        prompts=templates.hashes(),
        scoring=code_hash(score),
        repeat=repeat,
        endpoint=llm.base_url or RECORDED,
        versions={"python": platform.python_version()} | {name: _version(name) for name in _VERSIONS},
        git=_git(),
    )


def describe_method(method: Method) -> MethodInfo:
    """Describe a method by its function, its settings (defaults included) and the code that it is made of."""
    function = unwrapped(method)
    return MethodInfo(
        function=f"{function.__module__}.{function.__qualname__}",
        settings=settings_of(method),
        code=code_hash(function),
        label=about_of(method).label,
    )


def identity(info: RunInfo) -> dict[str, Any]:
    """What makes two runs the same one: data, condition, settings. Code and prompts are compared sample by sample."""
    return {
        "dataset": asdict(info.dataset),
        "condition": asdict(info.condition),
        "methods": {name: [method.function, method.settings] for name, method in info.methods.items()},
        "retriever": info.retriever,
        "llm": info.llm,
        "prompt_set": info.prompt_set,
        "repeat": info.repeat,
    }


def fingerprint(info: RunInfo) -> str:
    """A hash of the identity of a run, which its folder is named by."""
    return hashlib.sha256(canonical_json(identity(info)).encode()).hexdigest()


def check_same_run(path: Path, before: RunInfo, now: RunInfo) -> None:
    """Raise RecordError, naming what differs, where a folder holds another run."""
    was, is_now = (canonical_json_of(identity(info)) for info in (before, now))
    if changed := sorted(key for key in is_now if was[key] != is_now[key]):
        raise RecordError(
            f"{path}: holds a run with other {', '.join(changed)}; name another folder or move this one away"
        )


def canonical_json_of(parts: Mapping[str, Any]) -> dict[str, str]:
    """Each part as canonical JSON, in which a tuple equals the list that it is read back as."""
    return {key: canonical_json(value) for key, value in parts.items()}


def _json_of(questions: Sequence[Question]) -> bytes:
    try:
        return canonical_json([asdict(question) for question in questions]).encode()
    except UnicodeEncodeError:
        bad = next(each for each in questions if encodable(text := canonical_json(asdict(each))) != text)
        raise InputError(
            f"question {encodable(bad.id)!r}: expected valid Unicode, found half of a surrogate pair; mend its text"
        ) from None


def _git() -> dict[str, Any]:
    """Commit and dirty flag of the code that runs; empty where it is not a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=v2", "--branch"]
    try:
        status = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        commit, *changes = status.splitlines()
        return {"commit": commit.split()[-1], "dirty": any(not line.startswith("#") for line in changes)}
    except (OSError, subprocess.SubprocessError):
        return {}
