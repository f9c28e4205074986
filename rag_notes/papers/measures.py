"""What an answer of ours scores by a metric of the papers' claims."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rag_notes.rates import PRICED, load_prices, load_speeds
from rag_notes.running.records import Run, Sample

AVERAGED = ("em", "f1", "acc")
"""The metrics whose mean is the papers' `avg` on the data sets of the claims about it."""

UNSCALED = ("cost", "seconds")
"""What is no score: US dollars and seconds a question. All other metrics are in %."""


def names_of(samples: Sequence[Sample], metric: str) -> list[str]:
    """The metrics of a sample that a claim's metric is the mean of.

    The papers' acc is raw containment: ours is `acc_raw`, or `acc` where one of the samples has no other.
    """
    if metric == "reject":
        return ["rejected"]  # the share declined of all questions, also of those that have an answer
    names = list(AVERAGED if metric == "avg" else (metric,))
    raw = all("acc_raw" in sample.metrics for sample in samples if "acc" in sample.metrics)
    return ["acc_raw" if raw and name == "acc" else name for name in names]


def reason_of(samples: Sequence[Sample], metric: str) -> str:
    """What was taken in place of what the samples lack, if anything."""
    if metric == "cost" and any("cost" not in sample.metrics for sample in samples):
        return f"our model has no price: its tokens at that of {PRICED}"
    return "acc is normalised: not every record has acc_raw" if "acc" in names_of(samples, metric) else ""


def score_of(run: Run, sample: Sample, names: Sequence[str]) -> float | None:
    """The mean of some metrics of an answer; None where it lacks one.

    Seconds are computed from the tokens where the model's speed is known, and dollars where it has no price; an answer
    that was read from another program's file has no tokens.
    """
    took = sample.counts
    if list(names) == ["cost"] and "cost" not in sample.metrics and took.calls:
        return load_prices()[PRICED].of(took.prompt_tokens, took.completion_tokens)
    if list(names) == ["seconds"]:
        speed = load_speeds().get(run.info.model)
        return run.seconds(sample) if speed is None else speed.of(took.prompt_tokens, took.completion_tokens)
    scores = [sample.metrics[name] for name in names if name in sample.metrics]
    return math.fsum(scores) / len(scores) if len(scores) == len(names) else None


def scores_of(run: Run, samples: Sequence[Sample], metric: str) -> list[float]:
    """What those of the samples score that have the metric."""
    names = names_of(samples, metric)
    return [score for sample in samples if (score := score_of(run, sample, names)) is not None]


def scaled(numbers: Mapping[str, float], metric: str) -> dict[str, Any]:
    """Numbers of a metric as tables have them: in %, but for those of `UNSCALED`."""
    return {name: value * (1 if metric in UNSCALED else 100) for name, value in numbers.items()}
