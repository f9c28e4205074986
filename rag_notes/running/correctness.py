"""Whether an answer is right, in one word, by which tables filter and comparisons group."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

Correctness = Literal["right", "wrong", "parse failure", "error", "unscored"]

SIGNS: Mapping[Correctness, str] = {
    "right": "✓",
    "wrong": "✗",
    "parse failure": "?",
    "error": "⚠",
    "unscored": "·",
}
"""The values of `correctness` in their order, each with its sign."""

DECIDING = ("reject", "yes_no_acc", "str_hit", "acc")
"""The metrics that decide whether an answer is right, in order of precedence: which 1 means right."""


class _Step(Protocol):
    @property
    def event(self) -> str: ...


class _Answer(Protocol):
    @property
    def error(self) -> object: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...
    @property
    def trace(self) -> Sequence[_Step]: ...


def correctness(sample: _Answer) -> Correctness:
    """Tell whether the answer of a sample is right.

    The metric of the question's task decides: `reject`, `yes_no_acc`, `str_hit` or `acc`, whichever the sample has
    first, and right is 1. An answer that is not right is a parse failure rather than wrong where it is blank, says
    neither yes nor no, or was to be read from a response that could not be read. `error` is a question that failed,
    `unscored` one without any of these metrics.
    """
    if sample.error is not None:
        return "error"
    deciding = next((metric for metric in DECIDING if metric in sample.metrics), None)
    if deciding is None:
        return "unscored"
    if sample.metrics[deciding] == 1:
        return "right"
    unread = sample.metrics.get("empty") or sample.metrics.get("yes_no_unread")
    # A parse failure on the way does not count: the answer itself has to be unreadable.
    if unread or (sample.trace and sample.trace[-1].event == "parse_failure"):
        return "parse failure"
    return "wrong"
