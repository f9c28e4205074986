"""What training the papers' models did: their examples, the curves, and the methods before and after.

DNAlign: DeepNote, sections 3.4 and 3.5; the content filter: Amber, section 3.5, Figure 2; Chain-of-Note: section 2.3.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import matplotlib as mpl
import pandas as pd

from rag_notes.config import load_study
from rag_notes.events import Ask, ParseFailure
from rag_notes.files import here
from rag_notes.metrics.stats import wilson
from rag_notes.report.cells import dataset_label, interval_text, interval_texts, method_label
from rag_notes.report.compare import compare_runs, differences, match
from rag_notes.report.figures import STYLE, NotebookFigure
from rag_notes.running.records import Run, RunInfo
from rag_notes.running.run_files import load_runs, run_folders
from rag_notes.running.trainings import Training, card_rows, load_training, published_trainings
from rag_notes.studies.base import Study, once
from rag_notes.studies.content_filter import chunk_verdicts, confusion_figure, filter_rates

_DATA = ["training", "stage", "examples", "dropped"]
_DECLINED = ["data set", "trained on", "method", "n", "declined before (%)", "declined after (%)"]
_PARSED = ["data set", "trained on", "method", "stage", "responses before", "responses after"]
_PARSED += ["parse failures before (%)", "parse failures after (%)"]
_DROPPED = ["training", "stage", "reason", "samples"]
_HELD_OUT = ["training", "measure", "n", "before", "after"]
_MODEL = ("model", "trained_on", "base", "system", "stages")  # may differ; a system message may have been learned
_CURVES = {"loss": "loss", "rewards/accuracies": "reward accuracy", "rewards/margins": "reward margin"}
_TITLE = 26  # letters of a training's name beside each other above a panel


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "TrainingStudy":
    """Read trainings, and the finished runs of trained models with those of the models that they were trained from.

    Nothing is run. With `dataset=...` runs of these data sets alone are read, with `method=...` those that have one of
    these methods. Raises RecordError where a folder of `study.trainings` holds no finished training, or a run cannot be
    read.
    """
    del progress  # there is none: reading takes a moment
    config = load_study("training", options)
    folders = config.study.trainings or published_trainings()
    runs = list(load_runs(run_folders(here() / config.runs, published=True)).values())
    if any(option.startswith("dataset=") for option in options):
        runs = [run for run in runs if run.dataset in config.dataset]
    if any(option.startswith("method=") for option in options):
        runs = [run for run in runs if set(run.methods) & set(config.method)]
    pairs = before_and_after(runs)
    shown = list({id(run): run for pair in pairs for run in (pair.before, pair.after)}.values())
    return TrainingStudy(config, options, shown, [load_training(folder) for folder in folders], pairs)


@dataclass(frozen=True)
class BeforeAfter:
    """A run, and the same with a model that was trained on `data` in all or in some stages."""

    data: str
    before: Run
    after: Run
    variant: str = ""  # what tells it from other pairs of the same data set that were trained on the same

    @property
    def label(self) -> str:
        """The data set and what was trained on."""
        return f"{self.before.label}, {self.trained_on.replace('_', ' ')}"

    @property
    def trained_on(self) -> str:
        """What was trained on, the variant, and the threshold with which a trained filter was run."""
        return ", ".join([self.data, *self._variant, *self._threshold])

    @property
    def shown_as(self) -> tuple[str, str]:
        """The names of the two runs in tables of both."""
        name = ", ".join([self.before.label, *self._variant])
        return f"{name}, before", ", ".join([name, "after", *self._threshold])

    @property
    def threshold(self) -> float | None:
        """The probability from which the filter keeps a passage; None where it goes by the word written."""
        found = (method.settings.get("chunk_threshold") for method in self.after.info.methods.values())
        return next((threshold for threshold in found if threshold is not None), None)

    @property
    def _variant(self) -> list[str]:
        return [self.variant] if self.variant else []

    @property
    def _threshold(self) -> list[str]:
        return [] if self.threshold is None else [f"threshold {self.threshold:g}"]


def before_and_after(runs: Iterable[Run]) -> list[BeforeAfter]:
    """Pair each finished run of a trained model with that of the model it was trained from.

    The two are of the same questions, methods in common, retriever and prompts; of several runs before the first is
    taken. The threshold of the chunk filter may differ: it is chosen for a trained filter. A run without one before has
    no pair.
    """
    finished = [run for run in runs if run.info.finished]
    before = [run for run in finished if "trained_on" not in run.info.llm]
    pairs = [
        BeforeAfter(run.info.llm["trained_on"], first, run)
        for run in finished
        if "trained_on" in run.info.llm
        for first in [next((other for other in before if _same_but_training(other.info, run.info)), None)]
        if first is not None
    ]
    told_apart = [replace(pair, variant=_variant(pair, pairs)) for pair in pairs]
    return sorted(told_apart, key=lambda pair: (pair.data, pair.before.label, pair.variant, pair.threshold or 0))


def _variant(pair: BeforeAfter, pairs: Sequence[BeforeAfter]) -> str:
    """What tells a pair from those of the same data set that were trained on the same: its model, then its settings."""
    alike = [other for other in pairs if (other.data, other.before.label) == (pair.data, pair.before.label)]
    name, settings = _trained_model(pair), _settings(pair)
    twins = [_settings(other) for other in alike if (_trained_model(other), other.threshold) == (name, pair.threshold)]
    told = [name] if any(_trained_model(other) != name for other in alike) else []
    told += [f"{key}={value}" for key, value in settings.items() if any(twin.get(key) != value for twin in twins)]
    return ", ".join(told)


def _trained_model(pair: BeforeAfter) -> str:
    """What the names of the models after add to that of the model before."""
    llm = pair.after.info.llm
    names = dict.fromkeys([pair.after.info.model, *(stage["model"] for stage in llm.get("stages", {}).values())])
    return " and ".join(name.removeprefix(llm["base"]).lstrip("-") for name in names if name != llm["base"])


def _settings(pair: BeforeAfter) -> dict[str, Any]:
    info = pair.after.info
    of_methods = {name: value for method in info.methods.values() for name, value in method.settings.items()}
    asked = f"{info.dataset.questions} ({info.dataset.sha256[:7]})"
    return of_methods | {"questions": asked, "retriever": info.retriever.get("name"), "prompts": info.prompt_set}


def _same_but_training(before: RunInfo, after: RunInfo) -> bool:
    def compared(info: RunInfo) -> Any:
        sampling = {name: value for name, value in info.llm.items() if name not in _MODEL}
        return info.dataset, info.condition, info.retriever, info.prompt_set, info.repeat, sampling

    def settings(info: RunInfo, method: str) -> dict[str, Any]:
        return {name: value for name, value in info.methods[method].settings.items() if name != "chunk_threshold"}

    shared = set(before.methods) & set(after.methods)
    same = all(settings(before, name) == settings(after, name) for name in shared)
    return bool(shared) and same and before.model == after.llm["base"] and compared(before) == compared(after)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingStudy(Study):
    """Trainings with their examples and curves, and the runs before and after, paired by question."""

    trainings: Sequence[Training]
    pairs: Sequence[BeforeAfter]

    def recipes(self) -> pd.DataFrame:
        """A row for each training: what it was trained on and how."""
        return pd.DataFrame(
            [
                {
                    "training": one.name,
                    "data": one.card.get("name", ""),
                    "model": one.settings["base_model"],
                    "objective": one.settings["objective"].upper(),
                    "parameters": "all" if one.settings["lora_rank"] is None else f"LoRA {one.settings['lora_rank']}",
                    "learning rate": one.settings["learning_rate"],
                    "epochs": one.settings["epochs"],
                    "examples": one.metrics["trained_on"],
                    "held out": one.metrics["held_out"],
                    "steps": one.metrics["steps"],
                }
                for one in self.trainings
            ]
        )

    def data(self) -> pd.DataFrame:
        """A row for each training and stage: the examples, and how many samples were dropped."""
        dropped = self.dropped().groupby(["training", "stage"])["samples"].sum().to_dict()
        return pd.DataFrame(
            [
                [one.name, row["stage"], row["examples"], dropped.get((one.name, row["stage"]), 0)]
                for one in self.trainings
                for row in card_rows(one.card)
            ],
            columns=_DATA,
        )

    def dropped(self) -> pd.DataFrame:
        """A row for each training, stage and reason: how many samples gave no example."""
        return pd.DataFrame(
            [
                [one.name, stage, reason, number]
                for one in self.trainings
                for stage, reasons in sorted(one.card.get("dropped", {}).items())
                for reason, number in reasons.items()
            ],
            columns=_DROPPED,
        )

    def held_out(self) -> pd.DataFrame:
        """What was measured on the examples held out, before and after; shares with Wilson's interval."""
        rows = []
        for one in self.trainings:
            for measure in one.metrics["after"]:
                if not measure.startswith("eval_") or measure not in one.metrics["before"]:
                    continue
                values = [one.metrics[when][measure] for when in ("before", "after")]
                name, n = measure.removeprefix("eval_"), one.metrics["held_out"]
                shown = [
                    _share(value, n, self.config.confidence) if name == "rewards/accuracies" else f"{value:.3f}"
                    for value in values
                ]
                rows.append([one.name, name.replace("_", " ").replace("/", ", "), n, *shown])
        return pd.DataFrame(rows, columns=_HELD_OUT)

    @once
    def table(self) -> pd.DataFrame:
        """A row for each pair of runs, method and metric, as `compare_runs`; differences are after - before."""
        tables = [
            compare_runs(pair.before, pair.after, names=("before", "after"), **self.clustered).table.assign(
                dataset=pair.before.label, trained_on=pair.trained_on
            )
            for pair in self.pairs
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def display(self) -> pd.DataFrame:
        """Both means and their difference with its interval, scores in %; a star is a significant difference.

        What was found and what it cost is left out where it is the same for every question.
        """
        table = self.table()
        if table.empty:
            return table
        told = table[(table["kind"] == "answer") | (table["ties"] < table["n"])]
        return differences(told, ("before", "after"), by=("dataset", "trained_on"))

    def declined(self) -> pd.DataFrame:
        """The share of the questions that were declined before and after, in % with Wilson's interval, by method.

        Of the questions answered in both runs, those with an answer among them (Chain-of-Note, Table 4: reject rate).
        """
        rows = []
        for pair in self.pairs:
            for method in (name for name in pair.after.methods if name in pair.before.methods):
                both = [
                    (one.a.metrics, one.b.metrics) for one in match(pair.before, pair.after, method, method).matched
                ]
                known = [of for of in both if all("rejected" in metrics for metrics in of)]
                if known:
                    means = [
                        sum(metrics["rejected"] for metrics in side) / len(known) for side in zip(*known, strict=True)
                    ]
                    shown = [_share(mean, len(known), self.config.confidence) for mean in means]
                    names = [dataset_label(pair.before.label), pair.trained_on, method_label(method)]
                    rows.append([*names, len(known), *shown])
        return pd.DataFrame(rows, columns=_DECLINED)

    def parse_failures(self) -> pd.DataFrame:
        """The share of each stage's responses that could not be read, in % with Wilson's interval, by method.

        Of the questions answered in both runs; stages all of whose responses were read in both have no row.
        """
        rows = []
        for pair in self.pairs:
            for method in (name for name in pair.after.methods if name in pair.before.methods):
                both = match(pair.before, pair.after, method, method).matched
                sides = ([of.a.trace for of in both], [of.b.trace for of in both])
                asked = [Counter(event.stage for event in chain(*of) if isinstance(event, Ask)) for of in sides]
                failed = [
                    Counter(event.stage for event in chain(*of) if isinstance(event, ParseFailure)) for of in sides
                ]
                names = [dataset_label(pair.before.label), pair.trained_on, method_label(method)]
                for stage in sorted(failed[0] | failed[1]):
                    numbers = [of[stage] for of in asked]
                    shares = [
                        _share(of[stage] / n, n, self.config.confidence) if n else "–"
                        for of, n in zip(failed, numbers, strict=True)
                    ]
                    rows.append([*names, stage, *numbers, *shares])
        return pd.DataFrame(rows, columns=_PARSED)

    @once
    def verdicts(self) -> pd.DataFrame:
        """The verdicts of Amber's chunk filter on the questions answered before and after, as `chunk_verdicts`.

        `dataset` says also which of the two they are of, and with which threshold.
        """
        parts: dict[str, pd.DataFrame] = {}
        for pair in self.pairs:
            if pair.data != "content_filter":
                continue
            both = [chunk_verdicts([run]) for run in (pair.before, pair.after)]
            shared = set(both[0]["question_id"]) & set(both[1]["question_id"])
            for label, rows in zip(pair.shown_as, both, strict=True):
                parts.setdefault(label, rows[rows["question_id"].isin(shared)].assign(dataset=label))
        return pd.concat([*parts.values()] or [chunk_verdicts([])], ignore_index=True)

    def filter_rates(self) -> pd.DataFrame:
        """The rates of the chunk filter before and after, as `content_filter.filter_rates`."""
        return filter_rates(self.verdicts(), **self.intervals)

    def display_filter(self) -> pd.DataFrame:
        """The rates of the chunk filter before and after, a row each, in % with their intervals."""
        if (rates := self.filter_rates()).empty:
            return rates
        wide = rates.assign(cell=interval_texts(rates, "value")).pivot(index="dataset", columns="rate", values="cell")
        passages = self.verdicts().groupby("dataset").agg(passages=("gold", "size"), gold=("gold", "sum"))
        columns = ["passages", "gold", *dict.fromkeys(rates["rate"])]
        shown = passages.join(wide).loc[list(dict.fromkeys(rates["dataset"])), columns]
        return shown.rename(index=dataset_label).rename_axis("data set").reset_index()

    def curves(self) -> pd.DataFrame:
        """A row for each training, step and measure of its log: loss, reward accuracy, reward margin."""
        return pd.DataFrame(
            [
                {"training": one.name, "step": step, "measure": measure, "value": entry[measure]}
                for one in self.trainings
                for step, entry in enumerate(one.metrics["log"], 1)
                for measure in _CURVES
                if measure in entry
            ],
            columns=["training", "step", "measure", "value"],
        )

    def figure(self) -> NotebookFigure:
        """The curves of every step; saved with them, if there are any."""
        if (curves := self.curves()).empty:
            return _nothing("no training: rag-notes train makes one")
        return self.save(curves_figure(curves), curves)

    def figure_filter(self) -> NotebookFigure:
        """The confusion matrices of Amber's Figure 2, before and after; saved with the verdicts, if any."""
        if (verdicts := self.verdicts()).empty:
            return _nothing("no run of Amber with a trained filter and without")
        return self.save(confusion_figure(verdicts), verdicts, part="filter")


def curves_figure(curves: pd.DataFrame) -> NotebookFigure:
    """Draw `value` against `step`, a panel for each training and measure: each step thin, and its running mean."""
    panels = list(curves.groupby(["training", "measure"], sort=False))
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(2.6 * min(3, len(panels)), 2.1 * -(-len(panels) // 3)), layout="constrained")
        grid = figure.subplots(-(-len(panels) // 3), min(3, len(panels)), squeeze=False).ravel()
        for axes, ((training, measure), rows) in zip(grid, panels, strict=False):
            mean = rows["value"].rolling(10, min_periods=1, center=True).mean()
            axes.plot(rows["step"], rows["value"], color="#b0b0b0", marker="", linewidth=0.6)
            axes.plot(rows["step"], mean, marker="")
            axes.set_title(textwrap.fill(str(training), _TITLE), loc="left", fontweight="bold")
            axes.set_xlabel("step")
            axes.set_ylabel(_CURVES[str(measure)])
            axes.grid(visible=True)
        for axes in grid[len(panels) :]:
            axes.remove()
    return figure


def _nothing(text: str) -> NotebookFigure:
    figure = NotebookFigure(figsize=(3.4, 0.6))
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=8)
    return figure


def _share(value: float, n: int, confidence: float) -> str:
    low, high, _ = wilson(round(value * n), n, confidence)
    return interval_text(value, low, high, scale=100)
