"""Runs that differ in their `repeat` alone, as one: every question's scores and counts are means over the repeats."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from rag_notes.events import Counts
from rag_notes.llm.store import canonical_json
from rag_notes.running.describe import identity
from rag_notes.running.records import RecordError, Run, Sample

K = TypeVar("K")


def pooled(runs: Mapping[K, Run]) -> dict[K, Run]:
    """Put the repeats among these runs together, under the name of the first; other runs stay as they are.

    A pooled run has its parts in `repeats`. Its samples are those that every repeat has: answer and trace are the first
    repeat's, metrics, counts and seconds the means over the repeats, of what all of them have; where one failed its
    error stands for all. Raises RecordError where code or prompts of the repeats differ.
    """
    groups: dict[tuple[str, int], dict[K, Run]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for name, run in runs.items():
        which = canonical_json(identity(replace(run.info, repeat=0)))
        groups.setdefault((which, seen[which, run.info.repeat]), {})[name] = run
        seen[which, run.info.repeat] += 1  # the same repeat a second time is no repeat of the first
    return {next(iter(group)): _pool(list(group.values())) for group in groups.values()}


def _pool(runs: Sequence[Run]) -> Run:
    first, *others = runs
    if not others:
        return first
    for other in others:
        shared = first.info.prompts.keys() & other.info.prompts.keys()
        codes = [{name: method.code for name, method in run.info.methods.items()} for run in (first, other)]
        if codes[0] != codes[1] or any(first.info.prompts[name] != other.info.prompts[name] for name in shared):
            raise RecordError(
                f"repeats {first.info.repeat} and {other.info.repeat} of {first.label!r} were made with other code or "
                "other prompts; run both again (stored responses are taken)"
            )
    by_key = [{sample.key: sample for sample in run.samples} for run in runs]
    keys = [key for key in by_key[0] if all(key in samples for samples in by_key)]
    seconds: dict[str, dict[str, float]] = {method: {} for method in first.methods}
    for method, question_id in keys:
        took = [run.info.seconds.get(method, {}).get(question_id, math.nan) for run in runs]
        if not math.isnan(total := math.fsum(took)):
            seconds[method][question_id] = total / len(runs)
    return replace(
        first,
        info=replace(first.info, seconds=seconds),
        samples=[_mean([samples[key] for samples in by_key]) for key in keys],
        repeats=tuple(runs),
    )


def _mean(samples: Sequence[Sample]) -> Sample:
    first = samples[0]
    error = next((sample.error for sample in samples if sample.error is not None), None)
    shared = [name for name in first.metrics if all(name in sample.metrics for sample in samples)]
    metrics = {name: math.fsum(sample.metrics[name] for sample in samples) / len(samples) for name in shared}
    counted = [asdict(sample.counts) for sample in samples]
    counts: dict[str, Any] = {name: sum(each[name] for each in counted) / len(counted) for name in counted[0]}
    return replace(first, error=error, metrics={} if error else metrics, counts=Counts(**counts))
