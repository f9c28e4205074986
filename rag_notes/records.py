"""A run on disk: `run.json` (what was run, with what) and `samples.jsonl` (a line for each question and method)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rag_notes.llm.store import canonical_json

Sample = dict[str, Any]
Key = tuple[str, str]  # method, question id

COUNTS = (
    "searches",
    "distinct_passages",
    "steps",
    "calls",
    "prompt_tokens",
    "completion_tokens",
    "unreadable",
    "empty_responses",
    "truncated",
)


class RecordError(ValueError):
    """A run folder that cannot be read or does not belong to this run."""


def sample_key(sample: Sample) -> Key:
    """What identifies a sample in its run."""
    return sample["method"], sample["question_id"]


def count_events(trace: list[dict[str, Any]]) -> dict[str, int]:
    """What a trace cost and where it went wrong, by the names in COUNTS.

    `distinct_passages` are those read, `steps` the notes written after the first; `truncated` are responses cut at
    the token limit.
    """
    asks = [event for event in trace if event["event"] == "ask" and "response" in event]
    searches = [event for event in trace if event["event"] == "search"]
    return {
        "searches": len(searches),
        "distinct_passages": len({hit["id"] for event in searches for hit in event["hits"] if not hit.get("unread")}),
        "steps": max(0, sum(event["event"] == "note" for event in trace) - 1),
        "calls": len(asks),
        "prompt_tokens": sum(event["prompt_tokens"] for event in asks),
        "completion_tokens": sum(event["completion_tokens"] for event in asks),
        "unreadable": sum(event["event"] == "unreadable" for event in trace),
        "empty_responses": sum(not event["response"].strip() for event in asks),
        "truncated": sum(event["finish_reason"] == "length" for event in asks),
    }


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its two files hold it. `info` is run.json, `samples` the lines of samples.jsonl in their order."""

    info: dict[str, Any]
    samples: list[Sample] = field(default_factory=list)

    @property
    def dataset(self) -> str:
        """The data set's name."""
        return str(self.info["dataset"]["name"])

    @property
    def methods(self) -> list[str]:
        """The methods' names, in the order they were given."""
        return list(self.info["settings"]["methods"])

    def only(self, methods: Iterable[str]) -> "Run":
        """The part of this run that these methods made. Raises KeyError for one that it does not have."""
        wanted = {name: self.info["settings"]["methods"][name] for name in methods}
        info = self.info | {"settings": self.info["settings"] | {"methods": wanted}}
        return Run(info, [sample for sample in self.samples if sample["method"] in wanted])

    def frame(self) -> pd.DataFrame:
        """A row for each sample: method, question_id, type, error, every metric and every count (missing: NaN)."""
        seconds = self.info.get("seconds", {})
        return pd.DataFrame(
            [
                {
                    "method": sample["method"],
                    "question_id": sample["question_id"],
                    "type": sample["type"],
                    "error": sample["error"],
                    **sample["metrics"],
                    **sample["counts"],
                    "seconds": seconds.get(sample["method"], {}).get(sample["question_id"]),
                }
                for sample in self.samples
            ]
        )

    def sample(self, method: str, question_id: str) -> Sample:
        """The sample of one method on one question. Raises KeyError where the run has none."""
        for sample in self.samples:
            if sample_key(sample) == (method, question_id):
                return sample
        raise KeyError(f"no sample of {method!r} on {question_id!r} in this run of {self.methods}")


def load_run(folder: str | Path) -> Run:
    """Read a run folder. Raises RecordError naming file and line where it is missing or malformed."""
    samples, _ = read_samples(Path(folder) / "samples.jsonl")
    return Run(read_info(folder), samples)


def load_runs(folders: Iterable[str | Path]) -> dict[str, Run]:
    """Read run folders, by the folders' names. Raises RecordError as `load_run`, and where two have the same name."""
    runs: dict[str, Run] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in runs:
            raise RecordError(f"{folder}: a run named {name} was given before; name it once, or rename one of the two")
        runs[name] = load_run(folder)
    return runs


def read_info(folder: str | Path) -> dict[str, Any]:
    """Read the run.json of a run folder. Raises RecordError where it is missing or malformed."""
    path = Path(folder) / "run.json"
    try:
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = {"dataset", "settings", "prompts"} - set(info)
    except FileNotFoundError:
        raise RecordError(f"{path}: no such run; make one with `rag-notes run`") from None
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path}: not JSON ({error}); move the folder away to run anew") from None
    if missing:
        raise RecordError(f"{path}: lacks {', '.join(sorted(missing))}; move the folder away to run anew")
    return info


def read_samples(path: Path) -> tuple[list[Sample], int]:
    """The samples of a file and how many half-written last lines were left out (0 or 1: a killed run's).

    Raises RecordError naming the line where any other line is malformed.
    """
    samples: list[Sample] = []
    if not path.exists():
        return samples, 0
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            sample = json.loads(line)
            sample_key(sample)
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{path}, line {number}: not a sample ({error!r}); delete the line to run it again"
            ) from None
        samples.append(sample)
    return samples, int(bool(lines[-1]))


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write all samples at once, canonical JSON lines, atomically."""
    write_atomically(path, "".join(f"{canonical_json(sample)}\n" for sample in samples))


def sort_samples(path: Path, written: Sequence[Key], order: Sequence[Key]) -> None:
    """Put the lines of a file of samples, which are those of `written`, in the order of `order`, atomically."""
    lines = dict(zip(written, path.read_bytes().splitlines(keepends=True), strict=True))
    part = path.with_name(path.name + ".part")
    part.write_bytes(b"".join(lines[key] for key in order if key in lines))
    part.replace(path)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text`, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
