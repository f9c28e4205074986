"""What a study will take before anything is spent: calls, tokens, money and time, and how much is stored already."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.config import (
    PROJECT,
    Config,
    build_datasets,
    build_llm,
    build_methods,
    build_retriever,
    load_config,
)
from rag_notes.llm.client import LLM, RecordingMissError
from rag_notes.llm.store import canonical_json
from rag_notes.methods.rag import Event, Rag, Searcher
from rag_notes.prompts.templates import Templates
from rag_notes.retrieval.base import Retriever
from rag_notes.running.evaluate import Method, describe_method
from rag_notes.studies.noise import noise_changes
from rag_notes.running.run import Change
from rag_notes.types import Dataset, Question

Settings = Mapping[str, Any]
Played = tuple[bool, list[Event]]

AT_MOST: Mapping[str, Callable[[Settings], int]] = {
    "no_retrieval": lambda _: 1,
    "vanilla": lambda _: 1,
    "retrieve_read": lambda _: 1,
    "chain_of_thought": lambda _: 1,
    "chain_of_note": lambda _: 1,
    "self_refine": lambda s: 1 + 2 * s["rounds"],
    "self_rerank": lambda s: s["top_k"] + 1,
    "recomp": lambda s: 1 + (s["compressor"] == "abstractive"),
    "react": lambda s: s["max_searches"] + 2,
    "self_rag": lambda s: s["max_tries"] * (s["top_k"] + 4) - 1,
    "flare": lambda s: s["max_sentences"] * (3 if s["queries"] == "asked" else 2) + 1,
    "adaptive_rag": lambda s: (s["classifier"] == "prompted") + s["max_steps"] + 1,
    "rat": lambda s: s["max_steps"] + 2,
    "ircot": lambda s: s["max_steps"] + 1,
    "adaptive_note": lambda s: 2 + (3 if s["reviewer"] else 2) * s["collector_iterations"],
    "deepnote": lambda s: 2 + 3 * s["max_step"],
    "amber": lambda s: (
        s["max_iterations"] * (s["top_k"] * (s["chunk_filter"] + s["sentence_filter"]) + 3 * s["agents"] + 4) - 1
    ),
}
"""Calls a question at most, by a method's function and its settings. A method that is not here has no known bound."""

FURTHER: Mapping[str, tuple[str, Callable[[Config], int]]] = {
    # Half-way to the fair number of passages, that number and two beyond, of each data set on all of them.
    "fair_top_k": ("vanilla with as many passages as the adaptive method reads", lambda c: 3 * len(c.dataset)),
    "knowledge_density": ("the evidence in what each answer is made from", lambda c: len(c.method)),
}
"""What a study asks besides its methods, and how many calls a question at most."""

COLUMNS = (
    *("dataset", "method", "questions", "complete", "at_most", "expected", "stored", "to_make"),
    *("prompt_tokens", "completion_tokens", "cost", "seconds"),
)


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
    no bound, no response of this model to time by. Methods that share calls count them each.
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    keys: list[str] = []
    further: dict[str, int] = {}
    for config in configs:
        templates = Templates(None if config.prompts is None else PROJECT / config.prompts)
        methods = build_methods(config)
        async with build_llm(config) as llm:
            searched = [(dataset, build_retriever(config, dataset.corpus)) for dataset in build_datasets(config)]
            for (chosen, usual), change in itertools.product(searched, (None, *noise_changes(config))):
                dataset, retriever = _changed(chosen, usual, change)
                for name, method in methods.items():
                    once = dataset.name, name, canonical_json(describe_method(method))
                    if once in rows:
                        continue
                    played = await play(method, name, dataset.questions, retriever, llm, templates=templates)
                    like = [calls for complete, calls in played if complete] or await _recorded(method, name, change)
                    keys += [call["key"] for calls in like for call in calls]
                    row = {"dataset": dataset.name, "method": name, "questions": len(played)}
                    rows[once] = row | _expected(played, like, _bound(method), llm)
                if change is None and config.study.name in FURTHER:
                    purpose, calls = FURTHER[config.study.name]
                    further[purpose] = further.get(purpose, 0) + len(dataset.questions) * calls(config)
    table = pd.DataFrame(list(rows.values()), columns=list(COLUMNS))
    return Plan(table, len(set(keys)) / len(keys) if keys else math.nan, further)


def plan_table(planned: Plan) -> str:
    """Lay out what `plan` gave as a table in Markdown, with a last row of sums."""
    table = planned.table
    sums: dict[str, Any] = {"dataset": "all", "method": ""}
    for column in COLUMNS[2:]:
        sums[column] = table[column].sum(min_count=len(table))  # unknown where one of them is
    lines = [f"| {' | '.join(column.replace('_', ' ') for column in COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    rows: list[Mapping[Any, Any]] = [*table.to_dict("records"), sums]
    for row in rows:
        lines.append("| " + " | ".join(_cell(column, row[column]) for column in COLUMNS) + " |")
    if planned.distinct < 1:
        share = f"{100 * planned.distinct:.0f} %"
        lines += [
            "",
            f"These methods share calls, which are made once: of the calls known of them, {share} are distinct.",
        ]
    for purpose, calls in planned.further.items():
        lines += ["", f"Further calls depend on what these give: at most {calls}, for {purpose}."]
    return "\n".join(lines)


async def play(
    method: Method,
    name: str,
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    *,
    templates: Templates,
) -> list[Played]:
    """Play a method from stored responses; for each question whether they reach to the end, and the calls answered."""
    searcher = Searcher(retriever)
    offline = _offline(llm)
    offline.stages = {stage: _offline(other) for stage, other in llm.stages.items()}
    played = []
    for question in questions:
        rag = Rag(question, method=name, llm=offline, searcher=searcher, templates=templates)
        try:
            await method(rag, question)
            complete = True
        except RecordingMissError:
            complete = False
        answered = [event | {"seconds": _seconds(offline, event)} for event in rag.trace if "response" in event]
        played.append((complete, answered))
    return played


def _offline(llm: LLM) -> LLM:
    """An LLM that answers what this one has stored, and nothing else."""
    offline = LLM(llm.model, store=llm.store)
    offline.sampling = llm.sampling
    return offline


def _seconds(llm: LLM, event: Event) -> float:
    response = llm.of(event["stage"]).store.get(event["key"])
    return math.nan if response is None else response.seconds


def _expected(played: Sequence[Played], like: Sequence[list[Event]], bound: float, llm: LLM) -> dict[str, Any]:
    whole = sum(complete for complete, _ in played)
    stored = sum(len(calls) for _, calls in played)
    calls_of_one = _mean([len(calls) for calls in like]) if like else bound
    in_whole = sum(len(calls) for complete, calls in played if complete)
    missing = len(played) - whole
    # A question that is not complete lacks at least one call, however many it has already.
    expected = max(in_whole + missing * calls_of_one, stored + missing) if missing else stored
    to_make = expected - stored
    flat = [call for calls in like for call in calls]
    tokens, seconds = {}, 0.0
    for field in ("prompt_tokens", "completion_tokens"):
        tokens[field] = to_make * _mean([call[field] for call in flat]) if to_make else 0.0
    if to_make:  # only responses of this very model's store say how fast it is
        seconds = to_make * _mean([call["seconds"] for call in flat]) / llm.concurrency if whole else math.nan
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
    described = describe_method(method)
    return AT_MOST.get(described["function"].rpartition(".")[2], lambda _: math.nan)(described["settings"])


def _changed(dataset: Dataset, retriever: Retriever, change: Change | None) -> tuple[Dataset, Retriever]:
    return (dataset, retriever) if change is None else change(dataset, retriever)


async def _recorded(method: Method, name: str, change: Change | None) -> list[list[Event]]:
    """The calls of this method on those questions of `mini` that the recordings hold in full."""
    default = load_config(["dataset=mini", "llm=recorded"])
    (mini,) = build_datasets(default)
    dataset, retriever = _changed(mini, build_retriever(default, mini.corpus), change)
    async with build_llm(default) as llm:
        played = await play(method, name, dataset.questions, retriever, llm, templates=Templates())
    return [calls for complete, calls in played if complete]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _cell(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value.replace("_", " ")
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if column == "cost" else f"{value:.0f}"
