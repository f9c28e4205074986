"""What a study will take before anything is spent: calls, tokens, money and time, and how much is stored already."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.config import (
    Config,
    build_datasets,
    build_llm,
    build_methods,
    build_retriever,
    build_templates,
    load_config,
)
from rag_notes.llm.client import LLM
from rag_notes.methods.about import about_of, settings_of
from rag_notes.report.cells import method_label
from rag_notes.report.markdown import markdown
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.noise import NoiseFrom
from rag_notes.running.describe import Method, describe_method
from rag_notes.running.records import Condition
from rag_notes.running.replay import Replayed, replay
from rag_notes.running.run import with_noise
from rag_notes.types import Dataset

FURTHER: Mapping[str, tuple[str, Callable[[Config], int]]] = {
    # Half-way to the fair number of passages, that number and two beyond, of each data set on all of them.
    "fair_top_k": ("vanilla with as many passages as the adaptive method reads", lambda c: 3 * len(c.dataset)),
    "knowledge_density": ("the evidence in what each answer is made from", lambda c: len(c.method)),
}
"""What a study asks besides its methods, and how many calls a question at most."""

COLUMNS = (
    *("dataset", "method", "questions", "complete", "at_most", "expected", "stored", "to_make"),
    *("prompt_tokens", "completion_tokens", "cost", "seconds", "expected_from"),
)

_SOURCES = {
    "store": "store: what is expected of a question is the mean of the method's answers that are stored to the end.",
    "mini": "mini: it is the mean of the recordings on mini, of another model and of other texts: a rough guess.",
    "bound": "bound: nothing like it is stored or recorded; it is the most that can be, and its tokens are unknown.",
}


class Plan(NamedTuple):
    """What a study takes: a `table` with a row for each data set and method, and how much of it is asked only once.

    `distinct` is the share, from 0 to 1, of the calls known of all these methods that differ from one another: methods
    share calls, and each is made once. NaN where nothing is known. `further` are calls that depend on what these give,
    by what they are for, each with the most that there can be.
    """

    table: pd.DataFrame
    distinct: float
    further: Mapping[str, int]


async def plan(*configs: Config) -> Plan:
    """Say what the chosen methods on the chosen data sets take, without asking anything; noise ratios are data sets.

    What several configurations have in common counts once. Every question is played from stored responses as far as
    they reach. `complete` questions are stored to the end. `at_most` is the bound of all questions together; `expected`
    are their calls: those of the complete ones, and for each other one the mean of the complete ones (where there are
    none, of the recordings on `mini` with the same settings; where there are none either, the bound). `stored` are
    calls that have an answer in the store, `to_make` the others; `prompt_tokens`, `completion_tokens`, `cost` in US
    dollars and `seconds` of waiting at the configured concurrency are of those. NaN where nothing is known: no price,
    no bound, no response of this model to time by. `expected_from` says which of the three it was (store, mini, bound).
    Methods that share calls count them each.
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    keys: list[str] = []
    further: dict[str, int] = {}
    for config in configs:
        templates, methods = build_templates(config), build_methods(config)
        async with build_llm(config, offline=True) as llm:
            for dataset in build_datasets(config):
                retriever = build_retriever(config, dataset.corpus)
                for percent in (None, *dict.fromkeys(config.study.noise_percent)):
                    asked, searched = _noisy(dataset, retriever, percent, config.study.noise_from)
                    name = "-".join(part for part in (dataset.name, str(Condition(percent))) if part)
                    for method_name, method in methods.items():
                        if percent is not None and method_name in config.study.variants:
                            continue  # as the study of robustness does
                        once = name, method_name, repr(describe_method(method))
                        if once in rows:
                            continue
                        played = [each async for each in replay(method, asked.questions, searched, llm, templates)]
                        like, source = [each for each in played if each.complete], "store"
                        if not like:
                            like = await _recorded(method, percent)
                            source = "mini" if like else "bound"
                        keys += [call.key for each in like for call in each.calls]
                        row = {"dataset": name, "method": method_name, "questions": len(played)}
                        row["expected_from"] = source
                        rows[once] = row | _expected(played, like, _bound(method), llm)
                if config.study.name in FURTHER:
                    purpose, calls = FURTHER[config.study.name]
                    further[purpose] = further.get(purpose, 0) + len(dataset.questions) * calls(config)
    table = pd.DataFrame(list(rows.values()), columns=list(COLUMNS))
    return Plan(table, len(set(keys)) / len(keys) if keys else math.nan, further)


def plan_table(planned: Plan) -> str:
    """Lay out what `plan` gave as a table in Markdown, with a last row of sums."""
    table = planned.table
    sums: dict[str, Any] = {"dataset": "all", "method": "", "expected_from": ""}
    for column in COLUMNS[2:-1]:
        sums[column] = table[column].sum(min_count=len(table))  # unknown where one of them is
    shown = pd.DataFrame([*table.to_dict("records"), sums], columns=list(COLUMNS))
    cells = pd.DataFrame({name.replace("_", " "): [_cell(name, value) for value in shown[name]] for name in COLUMNS})
    lines = [markdown(cells), *(_SOURCES[name] for name in dict.fromkeys(table["expected_from"]))]
    if planned.distinct < 1:
        share = f"{100 * planned.distinct:.0f} %"
        lines.append(f"These methods share calls, made once: of the calls known of them, {share} are distinct.")
    for purpose, calls in planned.further.items():
        lines.append(f"Further calls depend on what these give: at most {calls}, for {purpose}.")
    return "\n\n".join(lines)


def _noisy(
    dataset: Dataset, retriever: Retriever, percent: int | None, source: NoiseFrom = "annotated"
) -> tuple[Dataset, Retriever]:
    return (dataset, retriever) if percent is None else with_noise(dataset, retriever, percent, source)


def _expected(played: Sequence[Replayed], like: Sequence[Replayed], bound: float, llm: LLM) -> dict[str, Any]:
    whole = sum(each.complete for each in played)
    stored = sum(len(each.calls) for each in played)
    calls_of_one = _mean([len(each.calls) for each in like]) if like else bound
    in_whole = sum(len(each.calls) for each in played if each.complete)
    missing = len(played) - whole
    # A question that is not complete lacks at least one call, however many it has already.
    expected = max(in_whole + missing * calls_of_one, stored + missing) if missing else stored
    to_make = expected - stored
    flat = [call for each in like for call in each.calls]
    tokens, seconds = {}, 0.0
    for field in ("prompt_tokens", "completion_tokens"):
        tokens[field] = to_make * _mean([getattr(call, field) for call in flat]) if to_make else 0.0
    if to_make:  # only responses of this very model's store say how fast it is
        responses = (llm.of(call.stage).store.get(call.key) for call in flat)
        times = [response.seconds for response in responses if response is not None]
        seconds = to_make * _mean(times) / llm.concurrency if whole else math.nan
    return {
        "complete": whole,
        "at_most": bound * len(played),
        "expected": expected,
        "stored": stored,
        "to_make": to_make,
        **tokens,
        "cost": math.nan if llm.price is None else llm.price.of(*(round(value) for value in tokens.values())),
        "seconds": seconds,
    }


def _bound(method: Method) -> float:
    calls = about_of(method).calls
    return math.nan if calls is None else calls(settings_of(method))


async def _recorded(method: Method, noise_percent: int | None) -> list[Replayed]:
    """Replay this method on those questions of `mini` that the recordings hold in full."""
    default = load_config(["dataset=mini", "llm=recorded"])
    (mini,) = build_datasets(default)
    dataset, retriever = _noisy(mini, build_retriever(default, mini.corpus), noise_percent)
    async with build_llm(default) as llm:
        played = [each async for each in replay(method, dataset.questions, retriever, llm, build_templates(default))]
    return [each for each in played if each.complete]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _cell(column: str, value: Any) -> str:
    if isinstance(value, str):
        return method_label(value) if column == "method" else value
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if column == "cost" else f"{value:.0f}"
