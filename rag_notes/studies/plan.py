"""What a study takes before anything is spent: calls, tokens, money and time, and how much is stored already."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from rag_notes.config import Config, build_datasets, build_llm, build_methods, load_config
from rag_notes.llm.client import LLM
from rag_notes.methods.about import about_of, label_of, settings_of
from rag_notes.running.evaluate import Method, describe_method
from rag_notes.running.run import run_methods

FURTHER: Mapping[str, tuple[str, Callable[[Config], int]]] = {
    # Half-way to the fair number of passages, that number and two beyond, of each data set on all of them.
    "fair_top_k": ("vanilla with as many passages as the adaptive method reads", lambda one: 3 * len(one.dataset)),
    "knowledge_density": ("the evidence in what each answer is made from", lambda one: len(one.method)),
}
"""What a study asks besides its methods, and how many calls a question at most."""

_MISS = "RecordingMissError"
_SOURCES = (
    "expected from: store, the mean of the method's answers that are stored to the end; mini, that of the recordings "
    "on mini, of another model and other texts, a rough guess; bound, the most that can be: nothing alike is known."
)


@dataclass(frozen=True)
class Plan:
    """What a study takes: a `table` with a row for each data set and method, and the `further` calls by their purpose.

    `complete` questions are stored to the end. `at_most` is the bound of all questions, `expected` are their calls:
    those of the complete ones, and for each other one the mean of what `expected_from` names. `stored` calls have a
    response, `to_make` the others; tokens, `cost` (US dollars) and `seconds` at the configured concurrency are of
    these. NaN where nothing is known. Calls that methods share are made once, and counted for each.
    """

    table: pd.DataFrame
    further: Mapping[str, int]

    def __str__(self) -> str:
        numbers = self.table.columns[2:-1]
        sums = {name: self.table[name].sum(min_count=len(self.table)) for name in numbers}
        rows = pd.concat([self.table, pd.DataFrame([{"dataset": "all"} | sums])], ignore_index=True)
        rows = rows.rename(columns=lambda name: name.replace("_", " "))
        formats = dict.fromkeys(rows.columns[2:-1], "{:.0f}".format) | {"cost": "{:.4f}".format}
        lines = [rows.to_string(index=False, na_rep="–", formatters=formats), _SOURCES]
        lines += [f"Further calls depend on these: at most {n}, for {purpose}." for purpose, n in self.further.items()]
        return "\n\n".join(lines)


async def plan(config: Config) -> Plan:
    """Plan the methods of a study on the chosen data sets and noise ratios; nothing is asked that is not stored."""
    configs = [config]
    if config.study.name == "verification":
        from rag_notes.studies.verification import parts  # noqa: PLC0415 - loads the papers' claims

        configs = parts(config)
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    further = Counter[str]()
    for part in configs:
        llm, methods = build_llm(part, offline=True), build_methods(part)
        plain = {name: method for name, method in methods.items() if name not in part.study.variants}
        for percent in (None, *dict.fromkeys(part.study.noise_percent)):
            for frame in await _replay(part, methods if percent is None else plain, percent):
                for name in frame["method"].unique():
                    answers = frame[frame["method"] == name]
                    key = answers["dataset"].iloc[0], name, repr(describe_method(methods[name]))
                    if key not in rows:
                        rows[key] = {"dataset": key[0], "method": label_of(name)}
                        rows[key] |= await _row(answers, methods[name], percent, llm)
        if part.study.name in FURTHER:
            purpose, calls = FURTHER[part.study.name]
            further[purpose] += sum(len(dataset.questions) for dataset in build_datasets(part)) * calls(part)
    return Plan(pd.DataFrame(list(rows.values())), further)


async def _replay(config: Config, methods: Mapping[str, Method], percent: int | None) -> list[pd.DataFrame]:
    with TemporaryDirectory() as folder:
        part = config.model_copy(update={"runs": folder, "repeat": config.repeat[:1]})
        runs = await run_methods(part, methods=methods, noise_percent=percent, progress=False, offline=True)
        return [run.frame() for run in runs]


async def _row(answers: pd.DataFrame, method: Method, percent: int | None, llm: LLM) -> dict[str, Any]:
    calls = about_of(method).calls
    bound = nan if calls is None else float(calls(settings_of(method)))
    complete = alike = answers[answers["error_kind"] != _MISS]
    if complete.empty:
        (frame,) = await _replay(load_config(["dataset=mini", "llm=recorded"]), {"method": method}, percent)
        alike = frame[frame["error_kind"] != _MISS]
    stored, missing = int(answers["calls"].sum()), len(answers) - len(complete)
    expected = complete["calls"].sum() + missing * (bound if alike.empty else alike["calls"].mean())
    # A question that is not complete lacks at least one call, however many it has already.
    to_make = max(expected - stored, missing) if missing else 0
    share = to_make / alike["calls"].sum() if len(alike) else nan
    prompt_tokens, completion_tokens = (share * alike[name].sum() for name in ("prompt_tokens", "completion_tokens"))
    row = {"questions": len(answers), "complete": len(complete), "at_most": bound * len(answers)}
    row |= {"expected": stored + to_make, "stored": stored, "to_make": to_make}
    row |= {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return row | {
        "cost": llm.price.of(round(prompt_tokens), round(completion_tokens)) if llm.price and share >= 0 else nan,
        # Only responses of this very model say how fast it is.
        "seconds": nan if complete.empty else share * complete["seconds"].sum() / llm.concurrency,
        "expected_from": "bound" if alike.empty else "mini" if complete.empty else "store",
    }
