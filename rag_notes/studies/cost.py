"""What methods cost against what they score (DeepNote, Table 9; Chain-of-Note, Table 5)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from rag_notes.config import Config, ConfigError
from rag_notes.llm.client import Price
from rag_notes.metrics.stats import holm, paired_difference
from rag_notes.rates import PRICED, load_prices, load_speeds
from rag_notes.report.rows import score_rows
from rag_notes.report.tables import counts
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study

COSTS: Mapping[str, tuple[str, float]] = {
    "cost": ("US dollars for 1,000 questions", 1000),
    "calls": ("Calls a question", 1),
    "tokens": ("Thousand tokens a question", 0.001),
    "computing": ("Seconds of computing a question", 1),
}
"""The costs of an answer: the column of its mean in tables, in which unit, and the factor to it."""


async def run(
    config: Config,
    *,
    metric: str = "acc",
    model_priced: str = PRICED,
    model_timed: str = "Qwen2.5-Coder-1.5B-Instruct",
    progress: bool = True,
) -> "Cost":
    """Run every chosen method and set `metric` against what it costs.

    A model without a price of its own is counted at that of `model_priced` in conf/prices.yaml, one without a measured
    speed at that of `model_timed` in conf/speeds.yaml. Raises ConfigError where one of them is not there, otherwise as
    `rag_notes.running.run.run_methods`.
    """
    prices, speeds, model = load_prices(), load_speeds(), config.llm["model"]
    for name, value, file, rates in (
        ("model_priced", model_priced, "prices.yaml", prices),
        ("model_timed", model_timed, "speeds.yaml", speeds),
    ):
        if value not in rates:
            raise ConfigError(f"{name}: {value!r} is not in conf/{file}, which has {list(rates)}")
    price, speed = prices[model_priced], speeds.get(model, speeds[model_timed])
    runs = await run_methods(config, progress=progress)
    return Cost(config, [replace(run, table=with_costs(run.frame(), price, speed)) for run in runs], metric)


@dataclass(frozen=True, eq=False, repr=False)
class Cost(Study):
    """Money, calls, tokens and computing time of every method against its score."""

    metric: str

    def costs(self) -> pd.DataFrame:
        """Return the mean costs a question with their intervals, a row for each method and `metric` of `COSTS`."""
        return counts(self.runs, [*COSTS], **self.tests)

    def table(self) -> pd.DataFrame:
        """Return a row for each method: its score in % with the interval, and its mean costs, the cheapest first.

        `front` tells whether no other method of the data set scores as much for less money.
        """
        costs = self.costs().pivot(index=["dataset", "method"], columns="metric", values="mean")
        costs = pd.DataFrame({unit: factor * costs[name] for name, (unit, factor) in COSTS.items()})
        dollars = COSTS["cost"][0]
        table = score_rows(super().table(), self.metric).join(costs, on=["dataset", "method"])
        table = table.sort_values(["dataset", dollars, "method"], kind="stable", ignore_index=True)
        fronts = [on_front(rows[dollars], rows["mean"]) for _, rows in table.groupby("dataset", sort=False)]
        return table.assign(front=pd.concat(fronts))

    def equal_tokens(self) -> pd.DataFrame:
        """Compare each method with the largest vote of vanilla answers that takes no more tokens.

        `vote` is vanilla RAG with the most samples among those that take at most the method's mean tokens a question; a
        cheaper method has no row. `difference` is the method's score minus the vote's on the `n` questions that both
        answered, with interval and p of the paired test; `p_holm` is corrected for the rows of a data set.
        """
        methods = {name: method for run in self.runs for name, method in run.info.methods.items()}
        votes = {name: info.settings.get("samples", 1) for name, info in methods.items() if info.family == "vanilla"}
        frame, tables = self.frame(), []
        for dataset, answers in frame[frame["error"].isna() & frame[self.metric].notna()].groupby(
            "dataset", sort=False
        ):
            tokens = answers.groupby("method", sort=False)["tokens"].mean()
            scores = answers.pivot_table(index="question_id", columns="method", values=self.metric, sort=False)
            cluster = answers.drop_duplicates("question_id").set_index("question_id")["cluster"]
            rows = []
            for method in (name for name in tokens.index if name not in votes):
                affordable = [name for name in votes if name in tokens and tokens[name] <= tokens[method]]
                pairs = scores[[method, max(affordable, key=votes.__getitem__)]].dropna() if affordable else scores[:0]
                if len(pairs):
                    vote, clusters = pairs.columns[1], cluster[pairs.index].tolist() if self.config.clusters else None
                    test = paired_difference(
                        *(pairs[name].tolist() for name in pairs), clusters=clusters, **self.intervals
                    )
                    row = {"dataset": dataset, "method": method, "tokens": tokens[method], "vote": vote}
                    row |= {"samples": votes[vote], "vote_tokens": tokens[vote], "n": test.n, "difference": test.mean}
                    rows.append(row | {"low": test.low, "high": test.high, "p": test.p})
            tables.append(pd.DataFrame(rows).assign(p_holm=holm([row["p"] for row in rows])))
        return pd.concat(tables, ignore_index=True)


def with_costs(frame: pd.DataFrame, price: Price, speed: Price) -> pd.DataFrame:
    """Return a run's frame with `cost` where it has none, in US dollars, and `computing`, the seconds of the tokens.

    Computing is with one call at a time: the seconds of a recorded call contain its waiting at the server.
    """
    tokens: Any = frame["prompt_tokens"], frame["completion_tokens"]
    cost = frame["cost"] if "cost" in frame else pd.Series(float("nan"), frame.index)
    return frame.assign(cost=cost.fillna(price.of(*tokens)), computing=speed.of(*tokens))


def on_front(costs: pd.Series, scores: pd.Series) -> pd.Series:
    """Tell which methods no other beats: none scores as much for less, or more for as little."""
    beaten = [
        ((costs <= cost) & (scores >= score) & ((costs < cost) | (scores > score))).any()
        for cost, score in zip(costs, scores, strict=True)
    ]
    return ~pd.Series(beaten, costs.index)
