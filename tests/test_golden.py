"""The numbers of every study, from recordings, as they were when these files were written (6 digits)."""

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rag_notes.papers.verification import verify
from rag_notes.running.publish import published_runs
from rag_notes.studies.base import study
from rag_notes.studies.case_studies import CaseStudies
from rag_notes.studies.cost import COSTS, Cost, on_front

GOLDEN = Path(__file__).with_name("golden")
SCORES = ["dataset", "method", "metric"]
Studies = Callable[[str], Any]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Studies:
    """Each study as the recordings give it, run once."""
    runs = tmp_path_factory.mktemp("runs")
    return cache(lambda name: asyncio.run(study(name, f"runs={runs}", progress=False)))


def equal(table: pd.DataFrame, name: str, keys: list[str]) -> None:
    """The rows of the file `name`, known by their `keys`, have the same numbers in the table."""
    golden = pd.read_csv(GOLDEN / f"{name}.csv", keep_default_na=False, na_values=[""])
    paired = golden.merge(table, how="left", on=keys, suffixes=("", " now"), indicator="in table")
    assert set(paired["in table"]) == {"both"}
    assert len(paired) == len(golden)
    columns = [column for column in golden if f"{column} now" in paired]
    assert {*golden} == {*keys, *columns}
    for column in columns:
        then, now = paired[column], paired[f"{column} now"]
        if pd.api.types.is_numeric_dtype(then):
            np.testing.assert_allclose(now.astype(float), then.astype(float), rtol=6e-6, atol=1e-9, err_msg=column)
        else:
            assert now.fillna("").astype(str).tolist() == then.fillna("").astype(str).tolist(), column


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("main_results", SCORES),
        ("top_k", [*SCORES, "top_k", "retriever"]),
        ("quest_eval", SCORES),
        ("robustness", [*SCORES, "noise_percent"]),
        ("knowledge_density", ["dataset", "method", "quantity"]),
    ],
)
def test_the_table_of_a_study(recorded: Studies, name: str, keys: list[str]) -> None:
    table = recorded(name).table()
    equal(table.assign(family=table["function"]), name, keys)
    if name != "top_k":
        assert len(table) == len(pd.read_csv(GOLDEN / f"{name}.csv"))


@pytest.mark.parametrize("whole", ["deepnote", "adaptive_note", "amber"])
def test_ablation(recorded: Studies, whole: str) -> None:
    equal(recorded("ablation").table().query("whole == @whole"), f"ablation-{whole}", SCORES)


def test_thresholds(recorded: Studies) -> None:
    thresholds = recorded("thresholds")
    later = thresholds.counts().query("metric == 'searches'").assign(metric="later_searches")
    later[["mean", "low", "high"]] -= 1
    table = pd.concat([thresholds.table(), later])
    equal(table.assign(family=table["function"]), "thresholds", [*SCORES, "setting"])


def test_fair_top_k(recorded: Studies) -> None:
    table = recorded("fair_top_k").table()
    equal(table.assign(family=table["function"]), "fair_top_k", SCORES)


def test_cost(recorded: Studies) -> None:
    cost: Cost = recorded("cost")
    scores = cost.table().set_index("method")
    table = cost.costs().rename(
        columns={"metric": "cost_metric", "mean": "cost", "low": "cost_low", "high": "cost_high"}
    )
    for column, name in {"score": "mean", "score_low": "low", "score_high": "high"}.items():
        table[column] = table["method"].map(scores[name]) / 100
    table["n"] = table["method"].map(scores["n"])
    fronts = [on_front(rows["cost"], rows["score"]) for _, rows in table.groupby("cost_metric")]
    equal(table.assign(front=pd.concat(fronts)), "cost", ["dataset", "method", "cost_metric"])
    unit, factor = COSTS["cost"]
    dollars = table.query("cost_metric == 'cost'").set_index("method")["cost"] * factor
    np.testing.assert_allclose(scores[unit], dollars[scores.index])


def test_chain_of_facts(recorded: Studies) -> None:
    equal(recorded("chain_of_facts").outcomes(), "chain_of_facts", ["dataset", "method", "outcome"])


def test_prompts(recorded: Studies) -> None:
    equal(recorded("prompts").table(), "prompts", ["dataset", "method_a", "metric"])


def test_case_studies(recorded: Studies) -> None:
    cases: CaseStudies = recorded("case_studies")
    equal(cases.answers().reset_index(), "case_studies", ["id"])


def test_verification(recorded: Studies) -> None:
    names = ("main_results", "ablation", "thresholds", "top_k", "robustness")
    runs = [run for name in names for run in recorded(name).runs]
    table = verify([*runs, *published_runs()], extra_datasets=["world"])
    systems = ["method", "setting", "other", "other_setting"]
    table[systems] = table[systems].where(table[systems] != "", None)
    equal(table, "verification", ["paper", "dataset", "metric", *systems])
