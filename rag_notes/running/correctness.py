"""Whether an answer is right, in one word, by which reports filter and comparisons group."""

from collections.abc import Iterable, Mapping
from typing import Literal

from rag_notes.events import ParseFailure
from rag_notes.running.records import Sample

Correctness = Literal["right", "wrong", "parse failure", "error", "unscored"]

SIGNS: Mapping[Correctness, str] = {
    "right": "✓",
    "wrong": "✗",
    "parse failure": "?",
    "error": "⚠",
    "unscored": "·",
}
"""The values of `correctness` in their order, each with its sign."""

FLAGS: Mapping[str, str] = {
    "parse_failures": "a step could not be read",
    "truncated": "a response was cut",
    "empty_responses": "a response was empty",
}
"""What may have gone wrong on the way, by the name of its count, as a reader is told."""

_RIGHT: Mapping[str, str] = {  # the metric that decides, in order of precedence: what 1 means
    "reject": "an unanswerable question is declined",
    "yes_no_acc": "the yes or no read from the answer is the gold one",
    "str_hit": "a long answer contains a short answer of every reading of the question",
    "acc": "the normalised answer contains a gold answer",
}


def correctness(sample: Sample) -> Correctness:
    """Tell whether the answer of a sample is right.

    The metric of the question's task decides: `reject`, `yes_no_acc`, `str_hit` or `acc`, whichever the sample has
    first, and right is 1. An answer that is not right is a parse failure rather than wrong where it is blank, says
    neither yes nor no, or was to be read from a response that could not be read. `error` is a question that failed,
    `unscored` one without any of these metrics.
    """
    if sample.error is not None:
        return "error"
    deciding = _deciding(sample)
    if deciding is None:
        return "unscored"
    if sample.metrics[deciding] == 1:
        return "right"
    return "parse failure" if _unread(sample) else "wrong"


def flags(sample: Sample) -> list[str]:
    """Which of `FLAGS` hold for a sample, right or not."""
    return [name for name in FLAGS if getattr(sample.counts, name)]


def meanings(samples: Iterable[Sample]) -> dict[Correctness, str]:
    """What each value of `correctness` means for the tasks of these samples, to be printed beside them."""
    deciding = {_deciding(sample) for sample in samples if sample.error is None}
    right = [f"{meaning} ({metric} = 1)" for metric, meaning in _RIGHT.items() if metric in deciding]
    found: dict[Correctness, str] = {
        "right": "; ".join(right) or "no answer was scored",
        "wrong": "everything else that was scored",
        "parse failure": "not right, and blank, neither yes nor no, or without the marker that the answer is read by",
        "error": "the question failed; it has no answer",
    }
    if None in deciding:
        found["unscored"] = "the task has none of these metrics"
    return found


def _deciding(sample: Sample) -> str | None:
    return next((metric for metric in _RIGHT if metric in sample.metrics), None)


def _unread(sample: Sample) -> bool:
    """Whether the answer itself is what could not be read; a parse failure on the way is a flag."""
    if sample.metrics.get("empty") or sample.metrics.get("yes_no_unread"):
        return True
    return bool(sample.trace) and isinstance(sample.trace[-1], ParseFailure)
