"""What studies share: samples that one run has and another one needs, and the calls that this saves."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rag_notes.records import Run, Sample, load_run, read_info, sample_key

SETTING = ("retriever", "llm")  # what of the settings two runs must have in common; their methods may differ


def made_elsewhere(runs: str | Path, info: Mapping[str, Any], folder: Path) -> Run:
    """Return what the run folders below `runs` have of the run that `info` describes, `folder` left aside: its own.

    Samples fit where questions, retriever, LLM and prompts are the same, and the method has the same function, source
    and settings, whatever its name. Failed ones are left out. Raises RecordError where a fitting folder is malformed.
    """
    wanted: dict[str, list[str]] = {}  # a method may stand in a run under two names
    for name, method in info["settings"]["methods"].items():
        wanted.setdefault(_identity(method), []).append(name)
    found: dict[tuple[str, str], Sample] = {}
    seconds: dict[str, dict[str, float]] = {}
    for file in sorted(Path(runs).glob("*/run.json")):
        if file.parent == folder:
            continue
        other = read_info(file.parent)
        names = {
            name: wanted[identity]
            for name, method in other["settings"].get("methods", {}).items()
            if (identity := _identity(method)) in wanted
        }
        if not names or _setting(other) != _setting(info):
            continue
        for sample in load_run(file.parent).samples:
            if sample["error"] is not None:
                continue
            took = other.get("seconds", {}).get(sample["method"], {}).get(sample["question_id"])
            for method in names.get(sample["method"], []):
                found.setdefault((method, sample["question_id"]), sample | {"method": method})
                if took is not None:
                    seconds.setdefault(method, {}).setdefault(sample["question_id"], took)
    return Run(dict(info) | {"seconds": seconds}, list(found.values()))


def shared_calls(runs: Iterable[Run], order: Sequence[str] = ()) -> pd.DataFrame:
    """Return a row for each study that took part in these runs: what it asked for and what it added.

    Columns: study, `methods` (variants are methods, and each counts once a data set), `answers`, `calls` that these
    answers consist of, and `new`, those that no study before it had asked: what had to be made and paid. An answer that
    two runs of a study have counts once. Studies are in this order, others behind by name; the last row sums up, its
    `new` are all distinct calls.
    """
    by_study: dict[str, dict[tuple[str, str, str], Sample]] = {}
    for run in runs:
        for study in run.info.get("studies", ["(no study)"]):
            answers = by_study.setdefault(study, {})
            answers |= {(run.dataset, *sample_key(sample)): sample for sample in run.samples}
    seen: set[str] = set()
    rows = []
    for study in sorted(by_study, key=lambda name: (order.index(name) if name in order else len(order), name)):
        keys = [event["key"] for sample in by_study[study].values() for event in sample["trace"] if "key" in event]
        new = set(keys) - seen
        seen |= new
        methods = {(dataset, method) for dataset, method, _ in by_study[study]}
        rows.append([study, len(methods), len(by_study[study]), len(keys), len(new)])
    table = pd.DataFrame(rows, columns=["study", "methods", "answers", "calls", "new"])
    total = pd.DataFrame([["all", *table.drop(columns="study").sum()]], columns=table.columns)
    return pd.concat([table, total], ignore_index=True)


def shared_table(table: pd.DataFrame) -> str:
    """Lay out what `shared_calls` gave as a table in Markdown, with the share of calls that were new."""
    lines = ["| study | methods | answers | calls asked for | of them new | share |", "|---" * 6 + "|"]
    for row in table.to_dict("records"):
        share = f"{100 * row['new'] / row['calls']:.0f} %" if row["calls"] else "–"
        cells = [str(row["study"]).replace("_", " "), row["methods"], row["answers"], row["calls"], row["new"], share]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _identity(method: Mapping[str, Any]) -> str:
    return repr([method["function"], method["source"], sorted(method["settings"].items())])


def _setting(info: Mapping[str, Any]) -> list[Any]:
    return [info["dataset"], info["prompts"], *(info["settings"].get(part) for part in SETTING)]
