"""The methods of our runs that are a claim's systems, and what they score on the questions that both answered."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.metrics.stats import MARGIN, equivalence, mean_interval, paired_difference, smallest_detectable
from rag_notes.papers.numbers import corpus_sizes
from rag_notes.papers.systems import SIDES, NotRunError, System, system_label, system_of
from rag_notes.rates import PRICED, load_prices, load_speeds
from rag_notes.running.annotate import with_quest_scores
from rag_notes.running.records import Run, RunInfo

COSTS = ("cost", "seconds")
"""The metrics in US dollars and seconds a question, of which the papers claim that they are larger; others are in %."""

MEASURED = [
    *("mean", "low", "high", "n", "p", "p_equivalent", "detectable", "score", "other_score", "cut", "our_model"),
    *("same_model", "theirs", "tolerance", "prompts", "retriever", "corpus", "selection", "run", "our_method"),
    *("other_run", "our_other", "remark", "reason"),
]
"""The columns that `Evidence.measure` fills."""

_MEANS = {"average": ("nq_open", "triviaqa", "webquestions"), "": ("nq_open",)}  # Chain-of-Note; "": it names none
_TRAINED = {"chain_of_note": "chain_of_note", "amber": "content_filter"}  # each paper's own method: its training data
_UNTRAINED = {"GPT-4-1106"}  # the model that Chain-of-Note prompts


@dataclass(frozen=True, eq=False)
class _Cell:
    """One method of a run: its answers without error by question, and how many answers the run has of it."""

    run: str
    method: str
    info: RunInfo
    answers: pd.DataFrame
    total: int

    @property
    def model(self) -> str:
        """The run's model, with those of single stages."""
        stages = [f"{stage}: {llm['model']}" for stage, llm in self.info.llm.get("stages", {}).items()]
        return self.info.model + (f" ({', '.join(stages)})" if stages else "")

    def is_any(self, models: Iterable[str]) -> bool:
        """Whether its model, of a trained one its base, is one of the paper's, by letters and digits alone."""
        ours, *others = (
            "".join(filter(str.isalnum, name)).casefold() for name in (self.info.llm.get("base") or self.model, *models)
        )
        return ours in others

    @property
    def retriever(self) -> dict[str, Any]:
        """The retriever without its corpus, which each data set has of its own."""
        return {name: value for name, value in self.info.retriever.items() if name != "corpus"}

    def setup(self, trained: bool) -> tuple[Any, ...]:
        """What two systems have in common; with `trained` the model before it was trained."""
        llm = dict(self.info.llm)
        if trained and "trained_on" in llm:
            llm["model"] = llm.get("base") or llm["model"]
            llm = {name: llm[name] for name in llm if name not in ("trained_on", "base", "system", "stages")}
        return llm, self.info.repeat, self.info.prompt_set

    def corpus(self) -> str:
        """Where the passages are from: pooled, given, `part` of the papers' (less than half of it), or none."""
        if not self.answers.get("searches", pd.Series(dtype=float)).sum():
            return "none"
        size = corpus_sizes().set_index("dataset")["passages"].get(self.info.dataset.name, 0)
        passages = self.info.retriever.get("corpus", {}).get("passages", size)
        is_part = self.info.dataset.corpus == "given" and passages < 0.5 * size
        return "part" if is_part else self.info.dataset.corpus


class _Match(NamedTuple):
    """The cells of a row's systems on one data set, with a column of scores each, and which match is preferred."""

    cells: Sequence[_Cell]
    scores: pd.DataFrame
    rank: tuple[int, int, int, int]


class Evidence:
    """Every method of every run, and what was measured by them already."""

    def __init__(self, runs: Iterable[Run], resamples: int) -> None:
        self.resamples = resamples
        self.cells: dict[str, list[_Cell]] = {}
        self._scores: dict[Hashable, pd.Series] = {}
        self._measured: dict[Hashable, dict[str, Any]] = {}
        names: list[str] = []
        for run in with_quest_scores([*runs]):
            name = run.folder.name if run.folder is not None else f"{run.label}-{run.info.model}"
            names.append(name if name not in names else f"{name} ({len(names)})")
            for method, samples in run.frame().groupby("method", sort=False):
                answers = samples[samples["error"].isna()].set_index("question_id")
                cell = _Cell(names[-1], str(method), run.info, answers, len(samples))
                self.cells.setdefault(run.dataset, []).append(cell)

    def measure(self, row: Mapping[Any, Any]) -> dict[str, Any]:
        """Return our numbers for a row of `comparisons`, or the reason why there are none."""
        try:
            parts = self._match(row)
        except NotRunError as missing:
            return {"reason": str(missing)}
        sides = list(zip(*(part.cells for part in parts), strict=True))
        key = (*((cell.run, cell.method) for side in sides for cell in side), row["metric"])
        if key not in self._measured:
            self._measured[key] = _measure([part.scores for part in parts], str(row["metric"]), self.resamples)
        cells = [cell for side in sides for cell in side]
        names = [(_joined(cell.run for cell in side), _joined(cell.method for cell in side)) for side in sides]
        run, method, other_run, other = (*names[0], *(names[1] if len(names) > 1 else ("", "")))
        cut = [100 * (cell.answers["truncated"] > 0).mean() for cell in cells if "truncated" in cell.answers]
        return self._measured[key] | {
            **{"cut": max(cut, default=float("nan")), "our_model": _joined(cell.model for cell in sides[0])},
            **dict(zip(("same_model", "theirs", "tolerance"), _claimed(row, cells[0]), strict=True)),
            **{"prompts": cells[0].info.prompt_set, "retriever": cells[0].info.retriever.get("name", "")},
            **{"corpus": next((c for cell in cells if (c := cell.corpus()) != "none"), "none")},
            **{"selection": _joined(cell.info.dataset.selection for cell in sides[0]), "run": run},
            **{"our_method": method, "other_run": "" if other_run == run else other_run, "our_other": other},
            **{"remark": _remark(row, cells), "reason": ""},
        }

    def _match(self, row: Mapping[Any, Any]) -> list[_Match]:
        """The best match of a row on each of its data sets, all with one model, set of prompts and retriever."""
        datasets = _MEANS.get(str(row["dataset"]), (str(row["dataset"]),))
        groups: dict[str, dict[str, _Match]] = {}
        for dataset in datasets:
            for match in self._matches(row, dataset):
                cell = match.cells[0]
                group = groups.setdefault(json.dumps([cell.setup(trained=False), cell.retriever], sort_keys=True), {})
                group[dataset] = min(group.get(dataset, match), match, key=lambda match: match.rank)
        whole = [list(group.values()) for group in groups.values() if len(group) == len(datasets)]
        if not whole:
            raise NotRunError(f"no one model, set of prompts and retriever has runs of {', '.join(datasets)}")
        return min(whole, key=lambda group: tuple(map(sum, zip(*(match.rank for match in group), strict=True))))

    def _matches(self, row: Mapping[Any, Any], dataset: str) -> list[_Match]:
        """All cells, or pairs of comparable cells, of one data set that have a row's systems and metric."""
        sides = [side for side in SIDES if row[side[0]]]
        systems = [system_of(row[name], row[setting], dataset, row["metric"]) for name, setting in sides]
        varies_retriever = any(system.retriever or system.noise is not None for system in systems)
        trained = any(system.trained_on for system in systems)
        candidates = []
        for side, system in zip(sides, systems, strict=True):
            cells = [cell for cell in self.cells.get(dataset, ()) if cell.info.condition.noise_percent == system.noise]
            if not cells:
                noise = "" if system.noise is None else f" with {system.noise} % noise"
                raise NotRunError(f"no run of {dataset}{noise}")
            candidates.append([cell for cell in cells if _is_system(cell, system)])
            if not candidates[-1]:
                raise NotRunError(f"no run of {dataset} has {system_label(row, *side)}")
        fitting = [list(cells) for cells in product(*candidates) if _comparable(cells, varies_retriever, trained)]
        if not fitting:
            raise NotRunError("no two runs with the same model, prompts and retriever have the two systems")
        matches = []
        for chosen in fitting:
            raw = all(_has_raw_acc(cell) for cell in chosen)
            scores = pd.concat([self._score(cell, row["metric"], raw) for cell in chosen], axis=1, join="inner")
            is_model, is_one_run = chosen[0].is_any(row["models"]), chosen[0].run == chosen[-1].run
            rank = (-is_model, -is_one_run, -len(scores), sum(cell.total for cell in chosen))
            matches += [_Match(chosen, scores, rank)] if len(scores) else []
        if not matches:
            raise NotRunError(f"the runs of {dataset} do not have {row['metric']} of the same questions")
        return matches

    def _score(self, cell: _Cell, metric: str, raw: bool) -> pd.Series:
        """The score of each question, from 0 to 1, its cost or its seconds, where the run has it.

        The papers' accuracy is containment of strings that are not normalised, `acc_raw`. Without a price, tokens cost
        what they cost with gpt-4o-mini; with a known speed, seconds are those of computing.
        """
        key = (id(cell), metric, raw)
        if key not in self._scores:
            answers = cell.answers
            names = {"avg": ["em", "f1", "acc"], "reject": ["rejected"]}.get(metric, [metric])
            columns = answers.reindex(columns=["acc_raw" if raw and name == "acc" else name for name in names])
            scores = columns.astype(float).mean(axis=1, skipna=False)
            rate = load_speeds().get(cell.info.model) if metric == "seconds" else None
            if metric == "cost" and scores.isna().all() and "calls" in answers:
                answers, rate = answers[answers["calls"] > 0], load_prices()[PRICED]
            if rate is not None:
                scores = rate.of(answers["prompt_tokens"], answers["completion_tokens"])  # type: ignore[arg-type,assignment]
            self._scores[key] = scores.dropna()
        return self._scores[key]


def _measure(parts: Sequence[pd.DataFrame], metric: str, resamples: int) -> dict[str, Any]:
    """Our numbers of one or two columns of scores; each of several data sets counts alike."""
    n = sum(map(len, parts))
    first, *others = pd.concat([part * (n / len(parts) / len(part)) for part in parts]).to_numpy().T.tolist()
    unit = 1 if metric in COSTS else 100
    measured: dict[str, Any] = {"score": unit * sum(first) / n}
    if not others:
        interval = mean_interval(first, resamples=resamples)
        return measured | {"n": n, "mean": measured["score"], "low": unit * interval.low, "high": unit * interval.high}
    differences = [a - b for a, b in zip(first, others[0], strict=True)]
    test = paired_difference(first, others[0], resamples=resamples)
    if metric not in COSTS:
        measured["p_equivalent"] = equivalence(differences, MARGIN)
    numbers = {"mean": test.mean, "low": test.low, "high": test.high, "detectable": smallest_detectable(differences)}
    scaled = {name: unit * value for name, value in numbers.items()}
    return measured | {"n": n, "other_score": unit * sum(others[0]) / n, "p": test.p} | scaled


def _is_system(cell: _Cell, system: System) -> bool:
    kind = "bm25" if cell.info.retriever.get("name") in ("bm25", "elasticsearch") else "dense"
    is_method = system.is_method(cell.info.methods[cell.method]) and system.allows(cell.info.llm.get("trained_on"))
    return is_method and system.retriever in (None, kind)


def _comparable(cells: Sequence[_Cell], varies_retriever: bool, trained: bool) -> bool:
    """Whether two systems differ in nothing but what the claim is about; the prompts that both used are the same."""
    first, second = cells[0], cells[-1]
    prompts = all(second.info.prompts.get(name, text) == text for name, text in first.info.prompts.items())
    retriever = varies_retriever or first.info.retriever == second.info.retriever
    return first.setup(trained) == second.setup(trained) and prompts and retriever


def _has_raw_acc(cell: _Cell) -> bool:
    has = cell.answers.reindex(columns=["acc", "acc_raw"]).notna()
    return bool((has["acc_raw"] | ~has["acc"]).all())


def _remark(row: Mapping[Any, Any], cells: Sequence[_Cell]) -> str:
    """How our systems differ from the paper's."""
    data = _TRAINED.get(str(row["paper"]), "")
    claims_training = row["paper"] in (row["method"], row["other"]) and not _UNTRAINED.issuperset(row["models"])
    is_trained = any(cell.info.llm.get("trained_on") == data for cell in cells)
    remarks = {"prompted, not trained": data and claims_training and not is_trained}
    remarks["of our implementations"] = row["metric"] in COSTS
    return "; ".join(remark for remark, applies in remarks.items() if applies)


def _claimed(row: Mapping[Any, Any], cell: _Cell) -> tuple[bool, float, float]:
    """Whether our model is one of the paper's, and what the paper prints for it, with the tolerance."""
    for model, value, tolerance in zip(row["models"], row["values"], row["tolerances"], strict=True):
        if cell.is_any([model]):
            return True, value, tolerance
    return False, float("nan"), float("nan")


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
