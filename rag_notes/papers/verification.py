"""The papers' claims beside what our runs give: a verdict for each, and their orders on our own data set."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd

from rag_notes.metrics.stats import holm, mean_interval, paired_difference
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.systems import (
    Cell,
    NotRunError,
    comparable,
    find_cells,
    model_of,
    same_model,
    system_of,
    unmeasured,
)
from rag_notes.report.compare import Pair, match
from rag_notes.running.records import Run, Sample

AGREES, WITHIN, DIFFERS, NOT_RUN = "agrees", "within interval", "differs", "not run"
VERDICTS = (AGREES, WITHIN, DIFFERS, NOT_RUN)
"""The verdicts, in the order of every table."""

OWN = "mini"
"""Our own data set, which no paper has."""

AVERAGED = ("em", "f1", "acc")
"""The metrics whose mean is the papers' `avg` on the data sets of the claims about it."""

UNSCALED = ("cost", "seconds")
"""What is no score: US dollars and seconds a question. All other metrics are in %."""

_ALPHA = 0.05
_TOLERATED = 1e-9  # printed decimals are off by less in binary
_OURS = [
    *("ours", "low", "high", "p", "n", "failed", "our_model", "same_model"),
    *("run", "our_method", "other_run", "our_other", "retriever", "commit", "fitting", "verdict", "reason"),
]
_ORDER = ["paper", "method", "setting", "other", "other_setting", "metric"]
_COUNTS = {"n": "Int64", "failed": "Int64", "fitting": "Int64"}

_T = TypeVar("_T")


def verify_claims(
    runs: Mapping[str, Run], claims: pd.DataFrame | None = None, *, resamples: int = 10_000
) -> pd.DataFrame:
    """Return the papers' claims, a row a claim, each beside what the runs (by folder name) give and with a verdict.

    Kind `value`: `ours` is the mean score of the method over the `n` questions of the paper's data set that it
    answered, with the interval of `mean_interval`. Kind `order`: the mean of method - other over the questions that
    both answered, with interval and `p` of `paired_difference`. All in % (`cost`: dollars, `seconds`), intervals 95 %.
    `failed` counts the questions left out because an answer failed.

    - agrees. value: ours is within the paper's tolerance; order: ours is above 0, our interval excludes 0 and p < .05
      (both, as the bootstrap's interval of few questions is too narrow).
    - within interval. value: ours is farther off, but our interval contains the paper's; order: ours is above 0, but
      these questions cannot tell it from 0.
    - differs: everything else that was run. `open` marks the orders among them that are 0 or below, but not
      so that these questions could tell it from 0: they do not refute the paper.
    - not run: no run has data set, method and setting; `reason` says what is lacking.

    With another model (not `same_model`) a `value` claim compares the numbers of two models; an order may carry over.
    `size` is the verdict on the size of an order by the rule of values, where the paper prints one. `supported` is
    False where the paper's own cells do not have the order that its text claims.

    A method of a run fits a claim if it is that method with the settings that the claim names, otherwise those of
    `conf/method`; the retriever is any where the claim names none. How many questions the paper asked
    (`questions=50`) asks nothing of ours. The sides of an order must have the same model and sampling, prompts
    and, unless the claim is about it, retriever. Where several fit (`fitting` counts them), it is one with the
    paper's model, with both sides in one run, with the most questions, the first by name: in this order.
    """
    claims = paper_claims() if claims is None else claims
    evidence = _Evidence(runs, resamples)
    rows = []
    for claim, supported in zip(claims.to_dict("records"), _supported(claims), strict=True):
        row = claim | evidence.of(claim, claim["dataset"], claim["model"]) | {"supported": supported}
        rows.append(row | {"size": _size(row), "open": _open(row)})
    columns = [*claims.columns, *_OURS, "open", "size", "supported"]
    return pd.DataFrame(rows, columns=columns).astype(_COUNTS)


def verify_orders(
    runs: Mapping[str, Run], claims: pd.DataFrame | None = None, *, dataset: str = OWN, resamples: int = 10_000
) -> pd.DataFrame:
    """Return the papers' orders tested on a data set of our own, a row for each order, metric and model of ours.

    The claims of a paper about the same two systems and metric are one row: `claimed` counts them, `datasets` and
    `models` are the paper's, `about` says what the metric measures (answers, or cost and time), `least` and `most` are
    the smallest and the largest difference that it prints, `unsupported` says how many of the claims its own cells do
    not have. Ours and the verdict are as in `verify_claims`, on questions that no paper has: whether the order holds
    here, not whether the paper is right. `p_holm` is p corrected for all rows of a model. Without a run of the data set
    all rows are `not run`. Of a data set that the papers have, only the claims about it are tested.
    """
    claims = paper_claims() if claims is None else claims
    if dataset in set(claims["dataset"]):
        claims = claims[claims["dataset"] == dataset]
    orders = claims.assign(
        setting=[unmeasured(setting) for setting in claims["setting"]],
        other_setting=[unmeasured(setting) for setting in claims["other_setting"]],
        supported=_supported(claims),
    )[claims["kind"] == "order"]
    groups = [
        dict(zip(_ORDER, key, strict=True))
        | {
            "kind": "order",
            "source": "; ".join(dict.fromkeys(group["source"])),
            "claimed": len(group),
            "datasets": ", ".join(dict.fromkeys(name for name in group["dataset"] if name)),
            "models": ", ".join(dict.fromkeys(group["model"])),
            "least": group["value"].min(),
            "most": group["value"].max(),
            "unsupported": int((~group["supported"]).sum()),
            "about": "cost and time" if group["metric"].iloc[0] in UNSCALED else "answers",
            "dataset": dataset,
        }
        for key, group in orders.groupby(_ORDER, sort=False)
    ]
    rows: list[dict[str, Any]] = []
    for model in sorted({model_of(run) for run in runs.values() if run.dataset == dataset}) or [""]:
        evidence = _Evidence({name: run for name, run in runs.items() if model_of(run) == model}, resamples)
        of_model = [group | evidence.of(group, dataset, model) | {"our_model": model} for group in groups]
        for row, p_holm in zip(of_model, holm([row["p"] for row in of_model]), strict=True):
            rows.append(row | {"open": _open(row), "p_holm": p_holm})
    columns = [
        *(*_ORDER, "source", "claimed", "datasets", "models", "least", "most", "unsupported", "about", "dataset"),
        *(name for name in _OURS if name != "same_model"),
        *("open", "p_holm"),
    ]
    return pd.DataFrame(rows, columns=columns).astype(_COUNTS)


def count_verdicts(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return how many rows have which verdict, a row for each value of the columns `by` and one for all of them.

    Columns: `by`, rows, the verdicts, `open` (those of `differs` that these questions cannot tell from 0) and, where
    the table has `same_model`, `other_model` (those run with another model than the paper's).
    """
    rows = [dict(zip(by, key, strict=True)) | _counted(group) for key, group in table.groupby(list(by), sort=False)]
    return pd.DataFrame([*rows, dict.fromkeys(by, "") | {by[0]: "all"} | _counted(table)])


def value_verdict(ours: float, low: float, high: float, theirs: float, tolerance: float) -> str:
    """The verdict on a number, as `verify_claims` says."""
    if abs(ours - theirs) <= tolerance + _TOLERATED:
        return AGREES
    return WITHIN if low - _TOLERATED <= theirs <= high + _TOLERATED else DIFFERS


def order_verdict(difference: float, low: float, high: float, p: float) -> str:
    """The verdict on an order, as `verify_claims` says; a single question has no interval (NaN) and tells nothing."""
    if difference > 0:
        return AGREES if _told_from_zero(low, high, p) else WITHIN
    return DIFFERS


def _told_from_zero(low: float, high: float, p: float) -> bool:
    return (low > 0 or high < 0) and p < _ALPHA


class _Evidence:
    """Runs by folder name, with what was measured of them: many claims ask for the same cells."""

    def __init__(self, runs: Mapping[str, Run], resamples: int) -> None:
        self.runs = dict(sorted(runs.items()))
        self.resamples = resamples
        self._pairs: dict[tuple[str, ...], Pair] = {}
        self._measured: dict[tuple[str, ...], dict[str, Any]] = {}

    def of(self, claim: Mapping[Any, Any], dataset: str, model: str) -> dict[str, Any]:
        """Our number for a claim on this data set, if possible with this model, where it is from, and the verdict."""
        row: dict[str, Any] = dict.fromkeys(_OURS, "") | dict.fromkeys(("ours", "low", "high", "p"), math.nan)
        row |= {"n": pd.NA, "failed": pd.NA, "fitting": 0, "same_model": False, "verdict": NOT_RUN}
        is_order = claim["kind"] == "order"
        try:
            row |= (self._order if is_order else self._value)(claim, dataset, model)
        except NotRunError as lacking:
            return row | {"reason": str(lacking)}
        if is_order:
            return row | {"verdict": order_verdict(row["ours"], row["low"], row["high"], row["p"])}
        return row | {"verdict": _value_verdict(row | dict(claim))}

    def _value(self, claim: Mapping[Any, Any], dataset: str, model: str) -> dict[str, Any]:
        metric = claim["metric"]
        cells = find_cells(self.runs, dataset, system_of(claim["method"], claim["setting"]))
        scores = {
            (cell.folder, cell.method): (cell, values)
            for cell in _preferred(cells, lambda cell: same_model(cell.run, model))
            if (values := _scores(cell, metric))
        }
        if not scores:
            raise NotRunError(f"the runs of {dataset} do not have {metric}")
        key, (cell, values) = max(scores.items(), key=lambda item: len(item[1][1]))
        if (*key, metric) not in self._measured:
            interval = mean_interval(values, resamples=self.resamples)
            ours = {"ours": math.fsum(values) / len(values), "low": interval.low, "high": interval.high}
            failed = sum(s["method"] == cell.method and s["error"] is not None for s in cell.run.samples)
            self._measured[*key, metric] = _scaled(ours, metric) | {"n": len(values), "failed": failed}
        return self._measured[*key, metric] | _provenance(cell, model, fitting=len(cells))

    def _order(self, claim: Mapping[Any, Any], dataset: str, model: str) -> dict[str, Any]:
        metric = claim["metric"]
        system = system_of(claim["method"], claim["setting"])
        other = system_of(claim["other"], claim["other_setting"])
        named = bool(system.retrieval or other.retrieval)
        others = find_cells(self.runs, dataset, other)
        fitting = [
            (cell, beside)
            for cell in find_cells(self.runs, dataset, system)
            for beside in others
            if comparable(cell, beside, retriever=not named)
        ]
        if not fitting:
            raise NotRunError("no two runs with the same model, prompts and retriever have the two systems")
        pairs = _preferred(fitting, lambda pair: same_model(pair[0].run, model))
        pairs = _preferred(pairs, lambda pair: pair[0].folder == pair[1].folder)
        scores = [(cell, beside, both) for cell, beside in pairs if (both := self._paired(cell, beside, metric))]
        if not scores:
            raise NotRunError(f"the runs of {dataset} do not have {metric} of both systems on the same questions")
        cell, beside, both = max(scores, key=lambda found: len(found[2]))
        key = (cell.folder, cell.method, beside.folder, beside.method, metric)
        if key not in self._measured:
            result = paired_difference(*zip(*both, strict=True), resamples=self.resamples)
            left_out = self._match(cell, beside).left_out.items()
            failed = sum(len(ids) for reason, ids in left_out if reason.startswith("failed"))
            ours = {"ours": result.mean, "low": result.low, "high": result.high}
            self._measured[key] = _scaled(ours, metric) | {"p": result.p, "n": result.n, "failed": failed}
        return self._measured[key] | _provenance(cell, model, beside, fitting=len(fitting))

    def _match(self, cell: Cell, beside: Cell) -> Pair:
        key = (cell.folder, cell.method, beside.folder, beside.method)
        if key not in self._pairs:
            self._pairs[key] = match(cell.run, beside.run, cell.method, beside.method)
        return self._pairs[key]

    def _paired(self, cell: Cell, beside: Cell, metric: str) -> list[tuple[float, float]]:
        both = [
            (_score(cell.run, question.a, metric), _score(beside.run, question.b, metric))
            for question in self._match(cell, beside).matched
        ]
        return [(a, b) for a, b in both if a is not None and b is not None]


def _preferred(found: Sequence[_T], preferred: Callable[[_T], bool]) -> Sequence[_T]:
    return [each for each in found if preferred(each)] or found


def _scores(cell: Cell, metric: str) -> list[float]:
    samples = (s for s in cell.run.samples if s["method"] == cell.method and s["error"] is None)
    return [score for sample in samples if (score := _score(cell.run, sample, metric)) is not None]


def _score(run: Run, sample: Sample, metric: str) -> float | None:
    """A metric of an answer; None where it has none."""
    if metric == "seconds":
        seconds: float | None = run.info.get("seconds", {}).get(sample["method"], {}).get(sample["question_id"])
        return seconds
    if metric == "avg":
        scores = [sample["metrics"].get(name) for name in AVERAGED]
        return None if None in scores else math.fsum(scores) / len(scores)
    score: float | None = sample["metrics"].get(metric)
    return score


def _scaled(numbers: Mapping[str, float], metric: str) -> dict[str, Any]:
    return {name: value * (1 if metric in UNSCALED else 100) for name, value in numbers.items()}


def _provenance(cell: Cell, model: str, beside: Cell | None = None, *, fitting: int) -> dict[str, Any]:
    """Which runs a number is from; `other_run` is empty where both sides are of one run."""
    git = cell.run.info.get("git", {})
    return {
        "our_model": model_of(cell.run),
        "same_model": same_model(cell.run, model),
        "run": cell.folder,
        "our_method": cell.method,
        "other_run": "" if beside is None or beside.folder == cell.folder else beside.folder,
        "our_other": "" if beside is None else beside.method,
        "retriever": cell.run.info["settings"].get("retriever", {}).get("name", ""),
        "commit": git.get("commit", "")[:12] + ("+" if git.get("dirty") else ""),
        "fitting": fitting,
    }


def _value_verdict(row: Mapping[Any, Any]) -> str:
    return value_verdict(row["ours"], row["low"], row["high"], row["value"], row["tolerance"])


def _size(row: Mapping[Any, Any]) -> str:
    if row["kind"] != "order" or row["verdict"] == NOT_RUN or math.isnan(row["value"]):
        return ""
    return _value_verdict(row)


def _open(row: Mapping[Any, Any]) -> bool:
    told = _told_from_zero(row["low"], row["high"], row["p"])
    return bool(row["kind"] == "order" and row["verdict"] == DIFFERS and not told)


def _supported(claims: pd.DataFrame) -> pd.Series:
    """Whether the paper's cells have what it claims; where nothing is printed (`value` is empty) they do not."""
    return claims["value"].notna() | claims["metric"].isin(UNSCALED)


def _counted(table: pd.DataFrame) -> dict[str, int]:
    counts = {"rows": len(table)} | {verdict: int((table["verdict"] == verdict).sum()) for verdict in VERDICTS}
    counts["open"] = int(table["open"].sum())
    if "same_model" in table:
        counts["other_model"] = int(((table["verdict"] != NOT_RUN) & ~table["same_model"].astype(bool)).sum())
    return counts
