"""Runs and claims made up for tests of the verification."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from rag_notes.papers.systems import system_of
from rag_notes.papers.verification import usable, verify_claims
from rag_notes.running.records import DatasetInfo, MethodInfo, Run
from rag_notes.running.run_files import write_info, write_samples
from tests.made import Scores, make_run


def run_of(
    dataset: str, methods: Mapping[str, tuple[str, str, Scores]], *, model: str = "GPT-4o-mini", **info: Any
) -> Run:
    """A run whose methods are these, each by its name there: method and setting of a claim, and scores."""
    described = {}
    for name, (method, setting, _) in methods.items():
        system = system_of(method, setting)
        described[name] = MethodInfo(system.function, dict(system.settings), "0")
    run = make_run(dataset, {name: scores for name, (_, _, scores) in methods.items()})
    fields = {"methods": described, "llm": {"model": model}, "git": {"commit": "c0ffee" * 7, "dirty": False}}
    return changed(run, **({"dataset": DatasetInfo(dataset, 9, "0")} | fields | info))


def changed(run: Run, **info: Any) -> Run:
    """The same run with another description."""
    return replace(run, info=replace(run.info, **info))


def claim(**fields: Any) -> dict[str, Any]:
    base = {
        **{"id": "a-claim", "paper": "deepnote", "source": "Table 1", "kind": "order", "method": "deepnote"},
        **{"setting": "", "other": "vanilla", "other_setting": "", "dataset": "hotpotqa", "model": "GPT-4o-mini"},
        **{"metric": "acc", "value": 20.0, "tolerance": 5.0, "statement": "It is so", "decimals": 1},
    }
    if fields.get("kind") == "value":
        base |= {"other": ""}
    return base | fields


def verdict(runs: Mapping[str, Run], **fields: Any) -> dict[Any, Any]:
    (row,) = verify_claims(usable(runs)[0], pd.DataFrame([claim(**fields)])).to_dict("records")
    return row


def save(run: Run, folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_info(folder, run.info)
    write_samples(folder / "samples.jsonl", run.samples)
    return folder


def two(method: Sequence[float | None], other: Sequence[float | None], **fields: Any) -> dict[str, Run]:
    """One run of HotpotQA with these accuracies of DeepNote and of vanilla RAG."""
    methods = {"deepnote": ("deepnote", "", {"acc": method}), "vanilla": ("vanilla", "", {"acc": other})}
    return {"a-run": run_of("hotpotqa", methods, **fields)}


def own() -> dict[str, Run]:
    def made(model: str, scores: Sequence[float]) -> Run:
        above: Scores = {"acc": scores}
        below: Scores = {"acc": [0] * len(scores)}
        methods = {"deepnote": ("deepnote", "", above), "vanilla": ("vanilla", "", below)}
        return run_of("world", methods, model=model)

    return {"world-a": made("a", [1] * 8), "world-b": made("b", [1, 0])}
