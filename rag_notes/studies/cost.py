"""What methods cost against what they score (DeepNote, Table 9; Chain-of-Note, Table 5)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from rag_notes.config import Config
from rag_notes.llm.completion import Price
from rag_notes.metrics.stats import holm, paired_difference
from rag_notes.parts import ConfigError
from rag_notes.rates import PRICED, load_prices, load_speeds
from rag_notes.report.rows import score_rows
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
    speed at that of `model_timed` in conf/speeds.yaml. Raises ConfigError where one of them is not there.
    """
    prices, speeds = load_prices(), load_speeds()
    if model_priced not in prices:
        raise ConfigError(f"model_priced: {model_priced!r} is not in conf/prices.yaml, which has {list(prices)}")
    if model_timed not in speeds:
        raise ConfigError(f"model_timed: {model_timed!r} is not in conf/speeds.yaml, which has {list(speeds)}")
    price, speed = prices[model_priced], speeds.get(config.llm["model"], speeds[model_timed])
    runs = await run_methods(config, progress=progress)
    return Cost(config, [replace(run, table=with_costs(run.frame(), price, speed)) for run in runs], metric)


@dataclass(frozen=True, eq=False, repr=False)
class Cost(Study):
    """Money, calls, tokens and computing time of every method against its score."""

    metric: str

    def table(self) -> pd.DataFrame:
        """Return a row for each method: its score in % with the interval, and its mean costs, the cheapest first.

        `front` tells whether no other method of the data set scores as much for less money.
        """
        means = self.means([*COSTS]).pivot(index=["dataset", "method"], columns="metric", values="mean")
        costs = pd.DataFrame({unit: factor * means[name] for name, (unit, factor) in COSTS.items()})
        dollars, table = COSTS["cost"][0], score_rows(super().table(), self.metric)
        table = table.join(costs, on=["dataset", "method"]).sort_values(["dataset", dollars, "method"], kind="stable")
        fronts = [on_front(rows[dollars], rows["mean"]) for _, rows in table.groupby("dataset", sort=False)]
        return table.assign(front=pd.concat(fronts)).reset_index(drop=True)

    def equal_tokens(self) -> pd.DataFrame:
        """Compare each method with the largest vote of vanilla answers that takes no more tokens.

        `vote` is vanilla RAG with the most samples among those that take at most the method's mean tokens a question; a
        cheaper method has no row. `difference` is the method's score minus the vote's on the `n` questions that both
        answered, with interval and p of the paired test; `p_holm` is corrected for the rows of a data set.
        """
        methods = {name: method for run in self.runs for name, method in run.info.methods.items()}
        votes = {name: info.settings.get("samples", 1) for name, info in methods.items() if info.family == "vanilla"}
        frame = self.frame()
        answered = frame[frame["error"].isna() & frame[self.metric].notna()]
        tokens = answered.groupby(["dataset", "method"], sort=False)["tokens"].mean()
        keys = ["dataset", "question_id", "cluster"]
        scores = answered.pivot_table(index=keys, columns="method", values=self.metric, sort=False)
        rows = []
        for dataset, method in tokens.index:
            affordable = [name for name in votes if tokens.get((dataset, name), math.inf) <= tokens[dataset, method]]
            if method not in votes and affordable:
                vote = max(affordable, key=votes.__getitem__)
                pairs = scores.loc[[dataset], [method, vote]].dropna()
                clusters = [*pairs.index.get_level_values("cluster")] if self.config.clusters else None
                test = paired_difference([*pairs[method]], [*pairs[vote]], clusters=clusters, **self.intervals)
                sizes = (tokens[dataset, method], vote, votes[vote], tokens[dataset, vote])
                rows.append((dataset, method, *sizes, test.n, test.mean, test.low, test.high, test.p))
        names = ["dataset", "method", "tokens", "vote", "samples", "vote_tokens", "n", "difference", "low", "high", "p"]
        table = pd.DataFrame(rows, columns=names)
        return table.assign(p_holm=table.groupby("dataset")["p"].transform(lambda p: holm(p.tolist())))


def with_costs(frame: pd.DataFrame, price: Price, speed: Price) -> pd.DataFrame:
    """Return a run's frame with `cost` where it has none, in US dollars, and `computing`, the seconds of the tokens.

    Computing is with one call at a time: the seconds of a recorded call contain its waiting at the server.
    """
    tokens: Any = frame["prompt_tokens"], frame["completion_tokens"]
    cost = frame["cost"] if "cost" in frame else pd.Series(float("nan"), frame.index)
    return frame.assign(cost=cost.fillna(price.of(*tokens)), computing=speed.of(*tokens))


def on_front(costs: pd.Series, scores: pd.Series) -> pd.Series:
    """Tell which methods no other beats: none scores as much for less, or more for as little."""
    best = [scores[costs <= cost].max() for cost in costs]
    cheapest = [costs[scores >= score].min() for score in scores]
    return (scores == best) & (costs == cheapest)
