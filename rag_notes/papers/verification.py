"""The papers' claims beside what our runs give: a verdict for each, and their comparisons on our own data set."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from rag_notes.llm.store import canonical_json
from rag_notes.metrics.stats import MARGIN, equivalence, holm, mean_interval, paired_difference, smallest_detectable
from rag_notes.papers.measures import UNSCALED, names_of, reason_of, scaled, score_of, scores_of
from rag_notes.papers.numbers import corpus_sizes, paper_claims
from rag_notes.papers.systems import (
    Cell,
    NotRunError,
    comparable,
    find_cells,
    model_of,
    same_model,
    system_of,
    without_count,
)
from rag_notes.papers.verdicts import NOT_RUN, OTHER_CORPUS, order_verdict, value_verdict
from rag_notes.report.compare import Pair, match
from rag_notes.running.quest_scores import with_quest_scores
from rag_notes.running.records import Run, Sample

OWN = "world"
"""Our own data set, generated, which no paper has."""

MADE_OF = {"average": ("nq_open", "triviaqa", "webquestions"), "": ("nq_open",)}
"""The data sets behind `average`, the mean of their means, and behind Chain-of-Note's times, which name none."""

_NUMBERS = ("ours", "low", "high", "p", "p_equivalent", "detectable")
_OURS = [
    *(*_NUMBERS, "n", "failed", "selection", "corpus", "our_model", "same_model"),
    *("run", "our_method", "other_run", "our_other", "retriever", "commit", "fitting", "verdict", "reason"),
]
_ORDER = ["paper", "method", "setting", "other", "other_setting", "metric"]
_COUNTS = {"n": "Int64", "failed": "Int64", "fitting": "Int64"}

NOT_THEIRS = ("pooled", "part")
"""The kinds of corpus that no paper searched: their systems had corpora that came as a whole."""

_PART = 0.5  # a corpus that was given and has a smaller share of the passages of the papers' is a part of it

_T = TypeVar("_T")


def usable(runs: Mapping[str, Run], min_questions: int = 1) -> tuple[dict[str, Run], dict[str, str]]:
    """The runs that claims can be verified by, and of the others why not, by name.

    Answers have the scores of RAGQuestEval that an annotation gives them. Left aside are
    annotations themselves, and runs that answered fewer than `min_questions` questions without error.
    """
    used, aside = {}, {}
    for name, run in sorted(with_quest_scores(runs).items()):
        answered = len({sample.question.id for sample in run.samples if sample.error is None})
        if run.info.condition.annotates is not None:
            aside[name] = f"annotates the answers of another run ({run.info.condition.annotates})"
        elif answered < max(1, min_questions):
            failed = sum(sample.error is not None for sample in run.samples)
            aside[name] = f"{answered} questions answered, {min_questions} wanted; {failed} answers failed"
        else:
            used[name] = run
    return used, aside


def verify_claims(
    runs: Mapping[str, Run], claims: pd.DataFrame | None = None, *, resamples: int = 10_000
) -> pd.DataFrame:
    """The papers' claims, a row a claim, each beside what these runs give, with a verdict.

    `runs` are by folder name, those that `usable` gives.

    Kind `value`: `ours` is the mean score of the method over the `n` questions of the paper's data set that it
    answered, with the interval of `mean_interval`. Kind `order`, a comparison: the mean of method - other over the
    questions that both answered, with interval and `p` of `paired_difference`, `p_equivalent` of `equivalence` within
    `MARGIN` and the `smallest_detectable` difference. All in % (`cost`: dollars, `seconds`), intervals 95 %,
    as `rag_notes.papers.measures` has them; what it takes in place of what a record lacks, `reason` says.
    `failed` counts the questions left out because an answer failed. `selection` says which questions the run had,
    `corpus` where its passages are from: pooled, given or a part (a given one of less than half the passages that
    the papers' has, where that is known), or none where nothing was searched.

    `rag_notes.papers.verdicts.RULES` says what a verdict means; `reason` says what a claim that was not run lacks. With
    another model (not `same_model`) a `value` claim compares the numbers of two models; a comparison may carry over.
    `size` is the verdict on the size of a difference by the rule of values, where the paper prints one. `supported` is
    False where the paper's own cells do not have the order that its text claims.

    A method of a run fits a claim if it is that method with the settings that the claim names, otherwise those of
    `conf/method`; the retriever is any where the claim names none. How many questions the paper asked
    (`questions=50`) asks nothing of ours. The sides of a comparison must have the same model and sampling, prompts
    and, unless the claim is about it, retriever. Where several fit (`fitting` counts them), it is one with the
    paper's model, with both sides in one run, with the most questions in common, with the fewest others, the first by
    name: in this order.
    """
    claims = paper_claims() if claims is None else claims
    evidence = _Evidence(runs, resamples)
    rows = []
    for claim, supported in zip(claims.to_dict("records"), _supported(claims), strict=True):
        row = claim | evidence.of(claim, claim["dataset"], claim["model"]) | {"supported": supported}
        rows.append(row | {"size": _size(row)})
    columns = [*claims.columns, *_OURS, "size", "supported"]
    return pd.DataFrame(rows, columns=columns).astype(_COUNTS)


def verify_orders(
    runs: Mapping[str, Run],
    claims: pd.DataFrame | None = None,
    *,
    dataset: str = OWN,
    resamples: int = 10_000,
) -> pd.DataFrame:
    """The papers' comparisons tested on a data set of our own, a row for each pair, metric and model of ours.

    `runs` are as in `verify_claims`. The claims of a paper about the same two systems and metric are one row: `claimed`
    counts them, `datasets` and `models` are the paper's, `about` says what the metric measures (answers, or cost and
    time), `least` and `most` are the smallest and the largest difference that it prints, `unsupported` says how many of
    the claims its own cells do not have. Ours and the verdict are as in `verify_claims`, on questions that no paper
    has: whether the order holds here, not whether the paper is right. `p_holm` is p corrected for all rows of a model.
    Without a run of the data set all rows are `not run`. Of a data set that the papers have, only the claims about it
    are tested.
    """
    claims = paper_claims() if claims is None else claims
    if dataset in set(claims["dataset"]):
        claims = claims[claims["dataset"] == dataset]
    orders = claims.assign(
        setting=[without_count(setting) for setting in claims["setting"]],
        other_setting=[without_count(setting) for setting in claims["other_setting"]],
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
            rows.append(row | {"p_holm": p_holm})
    columns = [
        *(*_ORDER, "source", "claimed", "datasets", "models", "least", "most", "unsupported", "about", "dataset"),
        *(name for name in _OURS if name != "same_model"),
        "p_holm",
    ]
    return pd.DataFrame(rows, columns=columns).astype(_COUNTS)


class _Sides(NamedTuple):
    """The two sides of a comparison, their scores question by question, and how many pairs of runs fit."""

    cell: Cell
    beside: Cell
    both: list[tuple[float, float]]
    fitting: int


class _Evidence:
    """Runs by folder name, with what was measured of them: many claims ask for the same cells."""

    def __init__(self, runs: Mapping[str, Run], resamples: int) -> None:
        self.runs = runs
        self.resamples = resamples
        self._pairs: dict[tuple[str, ...], Pair] = {}
        self._measured: dict[tuple[str, ...], dict[str, Any]] = {}

    def of(self, claim: Mapping[Any, Any], dataset: str, model: str) -> dict[str, Any]:
        """Our number for a claim on this data set, if possible with this model, where it is from, and the verdict."""
        row: dict[str, Any] = dict.fromkeys(_OURS, "") | dict.fromkeys(_NUMBERS, math.nan)
        row |= {"n": pd.NA, "failed": pd.NA, "fitting": 0, "same_model": False, "verdict": NOT_RUN}
        is_order = claim["kind"] == "order"
        try:
            row |= (self._order if is_order else self._value)(claim, dataset, model)
        except NotRunError as lacking:
            return row | {"reason": str(lacking)}
        if is_order:
            return row | {"verdict": order_verdict(*(row[name] for name in _NUMBERS[:5]))}
        return row | {"verdict": _value_verdict(row | dict(claim))}

    def _value(self, claim: Mapping[Any, Any], dataset: str, model: str) -> dict[str, Any]:
        metric = claim["metric"]
        cells = find_cells(self.runs, dataset, system_of(claim["method"], claim["setting"], dataset))
        scores = [
            (cell, values)
            for cell in _preferred(cells, lambda cell: same_model(cell.run, model))
            if (values := scores_of(cell.run, _answered(cell), metric))
        ]
        if not scores:
            raise NotRunError(f"the runs of {dataset} do not have {metric}")
        cell, values = max(scores, key=lambda found: len(found[1]))
        key = (cell.folder, cell.method, metric)
        if key not in self._measured:
            interval = mean_interval(values, resamples=self.resamples)
            ours = {"ours": math.fsum(values) / len(values), "low": interval.low, "high": interval.high}
            failed = len(cell.run.of(cell.method)) - len(_answered(cell))
            reason = reason_of(_answered(cell), metric)
            self._measured[key] = scaled(ours, metric) | {"n": len(values), "failed": failed, "reason": reason}
        return self._measured[key] | _provenance(cell, model, fitting=len(cells))

    def _order(self, claim: Mapping[Any, Any], dataset: str, model: str) -> dict[str, Any]:
        metric = claim["metric"]
        datasets = MADE_OF.get(dataset, (dataset,))
        parts = _alike([self._sides(claim, name, model) for name in datasets], datasets)
        sides = [side for part in parts for side in (part.cell, part.beside)]
        key = (*(name for side in sides for name in (side.folder, side.method)), metric)
        if key not in self._measured:
            # Each data set counts alike in a mean over several, however many questions it has.
            n = sum(len(part.both) for part in parts)
            both = [[n / len(parts) / len(part.both) * x for x in pair] for part in parts for pair in part.both]
            result = paired_difference(*zip(*both, strict=True), resamples=self.resamples)
            pairs = [self._match(part.cell, part.beside) for part in parts]
            left_out = [(reason, ids) for pair in pairs for reason, ids in pair.left_out.items()]
            differences = [a - b for a, b in both]
            ours = {"ours": result.mean, "low": result.low, "high": result.high}
            ours["detectable"] = smallest_detectable(differences)
            matched = [sample for pair in pairs for each in pair.matched for sample in (each.a, each.b)]
            self._measured[key] = scaled(ours, metric) | {
                "p": result.p,
                "p_equivalent": math.nan if metric in UNSCALED else equivalence(differences, MARGIN),
                "n": result.n,
                "failed": sum(len(ids) for reason, ids in left_out if reason.startswith("failed")),
                "reason": reason_of(matched, metric),
            }
        told = [_provenance(part.cell, model, part.beside, fitting=part.fitting) for part in parts]
        return self._measured[key] | {name: _joined([one[name] for one in told]) for name in told[0]}

    def _sides(self, claim: Mapping[Any, Any], dataset: str, model: str) -> list[_Sides]:
        """The two systems of a comparison in the runs of one data set, with their scores on the same questions."""
        metric = claim["metric"]
        system = system_of(claim["method"], claim["setting"], dataset)
        other = system_of(claim["other"], claim["other_setting"], dataset)
        named = bool(system.retrieval or other.retrieval)
        trained = bool(system.trained_on or other.trained_on)
        others = find_cells(self.runs, dataset, other)
        fitting = [
            (cell, beside)
            for cell in find_cells(self.runs, dataset, system)
            for beside in others
            if comparable(cell, beside, retriever=not named, trained=trained)
        ]
        if not fitting:
            raise NotRunError("no two runs with the same model, prompts and retriever have the two systems")
        pairs = _preferred(fitting, lambda pair: same_model(pair[0].run, model))
        pairs = _preferred(pairs, lambda pair: pair[0].folder == pair[1].folder)
        sides = [
            _Sides(cell, beside, both, len(fitting))
            for cell, beside in pairs
            if (both := self._paired(cell, beside, metric))
        ]
        if not sides:
            raise NotRunError(f"the runs of {dataset} do not have {metric} of both systems on the same questions")
        return sides

    def _match(self, cell: Cell, beside: Cell) -> Pair:
        key = (cell.folder, cell.method, beside.folder, beside.method)
        if key not in self._pairs:
            self._pairs[key] = match(cell.run, beside.run, cell.method, beside.method)
        return self._pairs[key]

    def _paired(self, cell: Cell, beside: Cell, metric: str) -> list[tuple[float, float]]:
        matched = self._match(cell, beside).matched
        names = names_of([sample for both in matched for sample in (both.a, both.b)], metric)
        both = [(score_of(cell.run, pair.a, names), score_of(beside.run, pair.b, names)) for pair in matched]
        return [(a, b) for a, b in both if a is not None and b is not None]


def _alike(found: Sequence[Sequence[_Sides]], datasets: Sequence[str]) -> list[_Sides]:
    """A comparison of each data set, all by the same model, prompts and retriever: those with the most questions."""
    groups: dict[str, dict[int, _Sides]] = {}
    for place, of_dataset in enumerate(found):
        for sides in of_dataset:
            info = sides.cell.run.info
            ranking = {name: value for name, value in info.retriever.items() if name != "corpus"}
            group = groups.setdefault(canonical_json([info.llm, info.repeat, info.prompt_set, ranking]), {})
            group[place] = max(group.get(place, sides), sides, key=_shared)
    whole = [group for group in groups.values() if len(group) == len(found)]
    if not whole:
        raise NotRunError(f"no one model, set of prompts and retriever has runs of {', '.join(datasets)}")
    best = max(whole, key=lambda group: sum(len(sides.both) for sides in group.values()))
    return [best[place] for place in range(len(found))]


def _shared(sides: _Sides) -> tuple[int, int]:
    """How many questions both sides have, and fewer is better, how many answers their runs have.

    Of as many questions, runs of these alone come before a longer one, which is another recording: a model asked again
    may answer otherwise, and that would count as a difference between the methods.
    """
    return len(sides.both), -sum(len(cell.run.of(cell.method)) for cell in (sides.cell, sides.beside))


def _joined(values: Sequence[Any]) -> Any:
    """What several runs say in one cell: the one value, or all that differ; of corpora a pooled one counts."""
    different = list(dict.fromkeys(values))
    if len(different) == 1:
        return different[0]
    if all(isinstance(value, str) for value in different):
        return "pooled" if "pooled" in different else ", ".join(filter(None, different))
    return min(different)  # of numbers that fit, and of whether the model is the paper's


def _preferred(found: Sequence[_T], preferred: Callable[[_T], bool]) -> Sequence[_T]:
    return [each for each in found if preferred(each)] or found


def _answered(cell: Cell) -> list[Sample]:
    return [sample for sample in cell.run.of(cell.method) if sample.error is None]


def _provenance(cell: Cell, model: str, beside: Cell | None = None, *, fitting: int) -> dict[str, Any]:
    """Which runs a number is from; `other_run` is empty where both sides are of one run."""
    info = cell.run.info
    searched = any(sample.counts.searches for each in (cell, beside or cell) for sample in _answered(each))
    return {
        "selection": info.dataset.selection,
        "corpus": _corpus(cell.run) if searched else "none",
        "our_model": model_of(cell.run),
        "same_model": same_model(cell.run, model),
        "run": cell.folder,
        "our_method": cell.method,
        "other_run": "" if beside is None or beside.folder == cell.folder else beside.folder,
        "our_other": "" if beside is None else beside.method,
        "retriever": info.retriever.get("name", ""),
        "commit": info.git.get("commit", "")[:12] + ("+" if info.git.get("dirty") else ""),
        "fitting": fitting,
    }


def _corpus(run: Run) -> str:
    whole = _corpus_sizes().get(run.dataset, 0)
    passages = run.info.retriever.get("corpus", {}).get("passages", whole)
    return "part" if run.info.dataset.corpus == "given" and passages < _PART * whole else run.info.dataset.corpus


@cache
def _corpus_sizes() -> dict[str, int]:
    sizes = corpus_sizes()
    return dict(zip(sizes["dataset"], map(int, sizes["passages"]), strict=True))


def _value_verdict(row: Mapping[Any, Any]) -> str:
    if row["corpus"] in NOT_THEIRS:
        return OTHER_CORPUS
    return value_verdict(row["ours"], row["low"], row["high"], row["value"], row["tolerance"])


def _size(row: Mapping[Any, Any]) -> str:
    if row["kind"] != "order" or row["verdict"] == NOT_RUN or math.isnan(row["value"]):
        return ""
    return _value_verdict(row)


def _supported(claims: pd.DataFrame) -> pd.Series:
    """Whether the paper's cells have what it claims; where nothing is printed (`value` is empty) they do not."""
    return claims["value"].notna() | claims["metric"].isin(UNSCALED)
