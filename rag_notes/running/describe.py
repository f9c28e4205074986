"""The settings that determine a run's answers, with the versions and the commit of the code."""

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

from rag_notes.llm.client import LLM
from rag_notes.llm.store import canonical_json
from rag_notes.methods.about import about_of, settings_of
from rag_notes.prompts.templates import Templates
from rag_notes.retrieval.base import Retriever
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, RunInfo
from rag_notes.types import Dataset

Method = Callable[..., Awaitable[str]]

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
    """Describe the settings that determine a run's answers, with the versions and the commit of the code."""
    questions = canonical_json([asdict(question) for question in dataset.questions]).encode()
    digest = hashlib.sha256(questions).hexdigest()
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
        versions={"python": platform.python_version()} | {name: _version(name) for name in packages},
        git=_git(),
    )


def describe_method(method: Method) -> MethodInfo:
    """Describe a method by its function, its settings (defaults included) and its label."""
    function = function_of(method)
    return MethodInfo(f"{function.__module__}.{function.__qualname__}", settings_of(method), about_of(method).label)


def function_of(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a method, without the settings that are bound to it."""
    return function_of(method.func) if isinstance(method, partial) else method


def _git() -> dict[str, Any]:
    """Commit and dirty flag of the code that runs; empty where it is not a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "status", "--porcelain=v2", "--branch"]
    with suppress(OSError, subprocess.SubprocessError):
        status = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
        return {"commit": status[0].split()[-1], "dirty": any(not line.startswith("#") for line in status)}
    return {}
