"""What the papers compare, tested by our runs: a row for each data set, system, other system and metric."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from rag_notes.metrics.stats import MARGIN, holm
from rag_notes.papers.evidence import COSTS, MEASURED, Evidence
from rag_notes.papers.numbers import paper_cells, paper_claims
from rag_notes.papers.systems import SIDES, comparison_label
from rag_notes.running.records import Run

VERDICTS: Mapping[str, str] = {
    "agrees": "Our difference has the sign that the paper claims: its 95 % interval excludes 0, and the paired "
    "permutation test gives p < .05 after Holm's correction over all rows of the paper. A single number agrees within "
    "the paper's tolerance.",
    "contradicted": "It has the other sign, by the same rule. A single number is outside the tolerance, and the "
    "paper's is outside our 95 % interval.",
    "equivalent": f"The difference is less than {100 * MARGIN:g} points either way (two one-sided paired t tests, each "
    f"p < .05, not corrected), and at least one system scores {200 * MARGIN:g} % or more.",
    "undecided": "These questions cannot tell.",
    "unsupported": "The paper's own cells do not have what its text claims, so that there is nothing to test.",
    "other model": "A single number, or a claim about what a model knows by itself, measured with another model than "
    "the paper's, or the latter on questions of ours: neither confirmed nor refuted.",
    "other corpus": "A single number measured on other passages than the paper's: neither confirmed nor refuted.",
    "not run": "No runs have both systems on this data set; `reason` says what is missing.",
}
"""The verdicts in the order of every table, and the rule for each. A comparison may carry over to another model."""

_KEY = ["dataset", "method", "setting", "other", "other_setting", "metric"]
_ALPHA = 0.05
_ROUNDING = 1e-9  # printed decimals differ by less in binary


def comparisons(claims: pd.DataFrame | None = None, *, dataset: str = "") -> pd.DataFrame:
    """Return the papers' claims (all by default) as rows, one for each paper, data set, two systems and metric.

    Rows of single numbers have no `other`. `printed` has what the paper prints for each of its models, a difference of
    two cells where the claim is of two systems; `least` and `most` are the ends of its range, in % (cost: US dollars,
    seconds). `claims` counts the claims, `supported` those that the paper's own cells have; `models`, `values` and
    `tolerances` have an entry for each. With `dataset`, such as `world`, comparisons are to be tested on that one.
    """
    claims = paper_claims() if claims is None else claims
    cells = paper_cells().query("table != 'text'").drop_duplicates(["paper", *_KEY[:3], "model", "metric"])
    values = cells.set_index(["paper", "dataset", "model", "metric", "method", "setting"])["value"]
    first, second = (
        values.reindex(pd.MultiIndex.from_frame(claims[[*values.index.names[:4], *side]])).to_numpy() for side in SIDES
    )
    is_order, difference = claims["kind"] == "order", pd.Series(first - second, claims.index)
    claims = claims.assign(
        value=claims["value"].fillna(difference),
        supported=~is_order | (difference.fillna(claims["value"]) > 0),
        **{name: claims[name].str.replace(r";?questions=\d+", "", regex=True) for _, name in SIDES},
    )
    claims["printed"] = claims["model"] + ": " + claims["value"].map("{:.4g}".format)
    if dataset:
        claims = claims[is_order].assign(printed=claims["dataset"] + " " + claims["printed"], dataset=dataset)
    rows = claims.groupby(["paper", *_KEY], sort=False).agg(
        printed=("printed", lambda printed: "; ".join(printed.str.strip())), least=("value", "min"),
        most=("value", "max"), claims=("value", "size"), supported=("supported", "sum"),
        models=("model", tuple), values=("value", tuple), tolerances=("tolerance", tuple),
        source=("source", lambda sources: "; ".join(sources.unique())),
    ).reset_index()  # fmt: skip
    return rows.assign(
        about=["cost and time" if metric in COSTS else "answers" for metric in rows["metric"]],
        label=[comparison_label(row) for row in rows.to_dict("records")],
    )


def verify(
    runs: Iterable[Run],
    claims: pd.DataFrame | None = None,
    *,
    extra_datasets: Sequence[str] = (),
    resamples: int = 10_000,
) -> pd.DataFrame:
    """Return the rows of `comparisons` with what these runs give, and a verdict for each.

    `mean` is our mean paired difference, of a single number our mean, with the 95 % interval `low` to `high` over
    `n` questions; it is in % (cost: US dollars, seconds). `p` is the paired permutation test's and `p_holm` its
    correction over all rows of a paper; `p_equivalent` is that of the test of equivalence and `detectable` the
    smallest difference that so many questions show with 80 % power. `score` and `other_score` are the two means.
    `theirs` is what the paper prints for our model, with its `tolerance`, where that is one of the paper's
    (`same_model`). `cut` is the share of questions with a response that was cut off at the limit of new tokens, in
    %, of the system that has more. `our_model`, `prompts`, `retriever`, `corpus` (pooled, given, part or none) and
    `selection` say what was measured, `run` and `other_run` where. `remark` says how our system differs from the
    paper's.

    Both systems have the same model, sampling, prompts and, unless the claim is about it, retriever. Of several
    runs it is one with the paper's model, then one with both systems, then those with most common questions, then
    those with fewest other answers. A mean over data sets weighs them alike. `claims` are the papers' by default.
    On each of the `extra_datasets`, which no paper has, all comparisons of the papers are tested as well; they come
    first (`extra`), and their p values are corrected by themselves.
    """
    rows = pd.concat([comparisons(claims, dataset=name) for name in (*extra_datasets, "")], ignore_index=True)
    evidence = Evidence(runs, resamples)
    measured = pd.DataFrame([evidence.measure(row) for row in rows.to_dict("records")], rows.index)
    table = rows.join(measured.reindex(columns=MEASURED)).astype({"n": "Int64"})
    table["extra"] = table["dataset"].isin(extra_datasets)
    family = [table["paper"], table["dataset"].where(table["extra"], "")]
    table["p_holm"] = table.groupby(family)["p"].transform(lambda p: holm(p.tolist()))
    table["verdict"] = [verdict(row) for row in table.to_dict("records")]
    return table.drop(columns=["models", "values", "tolerances"])


def verdict(row: Mapping[Any, Any]) -> str:
    """Return the verdict on a row of `verify` by the rules of `VERDICTS`."""
    if not row["supported"]:
        return "unsupported"
    if pd.isna(row["mean"]):
        return "not run"
    if not row["other"] and row["corpus"] in ("pooled", "part"):
        return "other corpus"
    is_knowledge = row["method"] == "no_retrieval" and row["metric"] not in COSTS
    if (not row["other"] or is_knowledge) and (row["extra"] or not row["same_model"]):
        return "other model"
    if not row["other"]:
        if abs(row["mean"] - row["theirs"]) <= row["tolerance"] + _ROUNDING:
            return "agrees"
        return "undecided" if row["low"] <= row["theirs"] <= row["high"] else "contradicted"
    if (row["low"] > 0 or row["high"] < 0) and row["p_holm"] < _ALPHA:
        return "agrees" if row["mean"] > 0 else "contradicted"
    is_floor = max(row["score"], row["other_score"]) < 200 * MARGIN
    return "equivalent" if row["p_equivalent"] < _ALPHA and not is_floor else "undecided"


def counts(table: pd.DataFrame, by: Sequence[str] = ("paper", "about")) -> pd.DataFrame:
    """Return how many rows of `verify` have which verdict, a row for each group and one for all."""
    crossed = pd.crosstab([table[name] for name in by], table["verdict"], margins=True, margins_name="all")
    return crossed.reindex(columns=[*(name for name in VERDICTS if name in crossed), "all"])
