"""Which table and figure of the papers a command here makes again, and how many of its numbers that can fill."""

import contextlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict

from rag_notes.config import build_methods, load_config
from rag_notes.files import SHIPPED
from rag_notes.papers.measures import UNSCALED
from rag_notes.papers.numbers import paper_cells, paper_claims
from rag_notes.papers.systems import NotRunError, System, is_system, is_trained_for, system_of
from rag_notes.papers.verification import MADE_OF
from rag_notes.report.cells import method_label
from rag_notes.report.markdown import markdown
from rag_notes.running.describe import describe_method
from rag_notes.running.records import MethodInfo

FILE = SHIPPED / "data" / "paper" / "coverage.yaml"

_METRICS = {  # of data sets whose answers are not short
    "asqa": {"str_em", "str_hit", "avg"},
    "strategyqa": {"yes_no_acc"},
    "crud": {"q_r", "t_p", "t_r", "t_f1"},
}
_SHORT = {"em", "f1", "acc", "avg", "reject"}
_DENSE = "dense"


class Item(BaseModel):
    """A table or figure: what it shows, the commands that make its counterpart, and what is missing and why.

    `measures` are numbers other than scores that the commands print (`recall`, `passages`, ...); `drawing` says that it
    holds no result, so that no command is wanted.
    """

    model_config = ConfigDict(extra="forbid")

    paper: str
    item: str
    shows: str
    commands: list[str] = []
    measures: list[str] = []
    missing: str = ""
    drawing: bool = False


class Coverage(BaseModel):
    """The items, in the order of the papers."""

    model_config = ConfigDict(extra="forbid")

    items: list[Item]


@dataclass(frozen=True, eq=False)
class _Offer:
    """What one command runs."""

    datasets: frozenset[str]
    methods: Mapping[str, MethodInfo]
    variants: frozenset[str]
    noise: frozenset[int]
    retriever: str
    news: bool  # the answers are put to RAGQuestEval
    trained_on: str | None

    def has(self, system: System, dataset: str, metric: str) -> bool:
        if not set(MADE_OF.get(dataset, (dataset,))) <= self.datasets:
            return False
        of_dataset = _METRICS.get(dataset, _SHORT) | set(UNSCALED)
        if metric not in of_dataset or (dataset == "crud" and not self.news and metric not in UNSCALED):
            return False
        if not is_trained_for(system, self.trained_on):
            return False
        if system.retrieval.get("retriever", self.retriever) != self.retriever:
            return False
        noise = system.retrieval.get("noise")
        if noise is not None and noise not in self.noise:
            return False
        asked = (each for name, each in self.methods.items() if noise is None or name not in self.variants)
        return any(is_system(system, each) for each in asked)


def load_coverage() -> Coverage:
    """What `data/paper/coverage.yaml` says."""
    return Coverage.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def coverage_table(coverage: Coverage | None = None) -> pd.DataFrame:
    """A row for each table and figure of the papers, in their order.

    Columns: paper, item, shows, commands, `cells` and `filled` (the numbers that the paper prints there, and how many
    the commands can fill with a model of one's own), `claims` and `measured` (those that rest on it), missing.
    """
    coverage = coverage or load_coverage()
    cells, claims = paper_cells(), paper_claims()
    rows = []
    for item in coverage.items:
        offers = [offer for command in item.commands if (offer := _offer(command))]
        printed = cells[(cells["paper"] == item.paper) & (cells["table"] == item.item.removeprefix("Table "))]
        rest = claims[(claims["paper"] == item.paper) & claims["source"].map(lambda source: _names(source, item.item))]  # noqa: B023 - used at once
        rows.append(
            item.model_dump(exclude={"drawing", "measures"})
            | {
                "cells": len(printed),
                "filled": sum(
                    _fills(cell, offers, item.measures if item.commands else []) for cell in printed.to_dict("records")
                ),
                "claims": len(rest),
                "measured": sum(_measures(claim, offers) for claim in rest.to_dict("records")),
            }
        )
    return pd.DataFrame(rows)


def unmeasured_claims(coverage: Coverage | None = None) -> pd.DataFrame:
    """The claims that no command of the coverage can measure."""
    coverage = coverage or load_coverage()
    offers = [offer for item in coverage.items for command in item.commands if (offer := _offer(command))]
    claims = paper_claims()
    return claims.loc[[not _measures(claim, offers) for claim in claims.to_dict("records")]]


def coverage_markdown() -> str:
    """The page: a table for each paper, then the claims that nothing here can measure, counted by reason."""
    table, lacking = coverage_table(), unmeasured_claims()
    parts = []
    for paper, rows in table.groupby("paper", sort=False):
        shown = [
            {
                "item": row["item"],
                "shows": row["shows"],
                "commands": "<br>".join(f"`rag-notes {command}`" for command in row["commands"]) or "–",
                "numbers": f"{row['filled']} of {row['cells']}" if row["cells"] else "–",
                "claims": f"{row['measured']} of {row['claims']}" if row["claims"] else "–",
                "missing": row["missing"] or "–",
            }
            for row in rows.to_dict("records")
        ]
        parts.append(f"## {method_label(str(paper))}\n\n{markdown(pd.DataFrame(shown))}")
    total = len(paper_claims())
    trained = sum(map(_is_of_trained, paper_claims().to_dict("records")))
    parts.append(
        f"## Claims\n\nOf {total} claims {total - len(lacking) - trained} can be measured by these commands with any "
        f"model, {trained} with a model that is trained first ([training.md](training.md)), {len(lacking)} cannot."
        + "".join(f"\n- {row['paper']}, {row['source']}: {row['statement']}" for row in lacking.to_dict("records"))
    )
    return "\n\n".join(parts)


@cache
def _offer(command: str) -> _Offer | None:
    """What a command runs with a model that is asked; None for one that runs no method."""
    name, *options = shlex.split(command)
    if name not in ("reproduce", "run", "quest-eval"):
        return None
    config = load_config([*options, "llm=openai"])
    return _Offer(
        frozenset(config.dataset),
        {name: describe_method(method) for name, method in build_methods(config).items()},
        frozenset(config.study.variants),
        frozenset(config.study.noise_percent),
        "bm25" if re.search(r"\.(bm25|elasticsearch)$", config.retriever["_target_"]) else _DENSE,
        config.study.name == "quest_eval" or name == "quest-eval",
        config.trained.data,
    )


def _fills(cell: Mapping[Any, Any], offers: Sequence[_Offer], measures: Iterable[str]) -> bool:
    if cell["metric"] in measures:
        return True
    setting, _, minus = cell["setting"].partition("minus=")
    sides = [cell["method"], *([minus] if minus else [])]
    return all(_offered(side, setting.rstrip(";"), cell["dataset"], cell["metric"], offers) for side in sides)


def _is_of_trained(claim: Mapping[Any, Any]) -> bool:
    sides = [(claim["method"], claim["setting"])] + [(claim["other"], claim["other_setting"])] * bool(claim["other"])
    with contextlib.suppress(NotRunError):
        return any(system_of(*side).trained_on for side in sides)
    return False


def _measures(claim: Mapping[Any, Any], offers: Sequence[_Offer]) -> bool:
    sides = [(claim["method"], claim["setting"])]
    if claim["kind"] == "order":
        sides.append((claim["other"], claim["other_setting"]))
    if "retriever=" in claim["setting"] or _is_of_trained(claim):  # a comparison of two runs
        return all(_offered(*side, claim["dataset"], claim["metric"], offers) for side in sides)
    return any(all(_offered(*side, claim["dataset"], claim["metric"], [offer]) for side in sides) for offer in offers)


def _offered(method: str, setting: str, dataset: str, metric: str, offers: Sequence[_Offer]) -> bool:
    try:
        system = system_of(method, setting, dataset)
    except NotRunError:
        return False
    return any(offer.has(system, dataset, metric) for offer in offers)


def _names(source: str, item: str) -> bool:
    return re.search(rf"\b{re.escape(item)}\b", source) is not None
