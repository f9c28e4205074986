"""What training DeepNote (sections 3.4, 3.5), Amber's filter (3.5, Figure 2) and Chain-of-Note (2.3) did."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.config import Config
from rag_notes.files import here
from rag_notes.report.compare import Comparison, compare_runs
from rag_notes.running.publish import PUBLISHED, published_runs, without_text
from rag_notes.running.records import Run, RunInfo, load_run, run_folders
from rag_notes.studies.base import Study
from rag_notes.studies.content_filter import chunk_verdicts, with_shares
from rag_notes.training.cards import RECIPE, load_training

_MEASURES = ("loss", "rewards/accuracies", "rewards/margins")
_KEY = ["dataset", "trained_on", "method"]
_FREE = ("model", "trained_on", "base", "system", "stages")  # may differ; a system message may have been learned


async def run(config: Config, *, progress: bool = True) -> "TrainingStudy":
    """Read trainings, and the finished runs of trained models with those of the models that they were trained from.

    With data sets or methods in the configuration, only runs of these are read. Raises as `load_training` and
    `rag_notes.running.records.load_run`.
    """
    del progress  # nothing is run, and reading takes a moment
    shipped = sorted(file.parent for file in PUBLISHED.glob(f"trainings/*/{RECIPE}"))
    trainings = [load_training(folder) for folder in config.study.trainings or shipped]
    runs = {folder.name: load_run(folder) for folder in run_folders(here() / config.runs)}
    for published in published_runs():
        runs.setdefault(published.folder.name if published.folder else "", published)
    pairs = before_and_after(
        run
        for run in runs.values()
        if run.dataset in (config.dataset or [run.dataset]) and set(run.methods) & set(config.method or run.methods)
    )
    paired = {id(run): run for pair in pairs for run in (pair.before, pair.after)}
    return TrainingStudy(config, [*paired.values()], trainings, pairs)


class BeforeAfter(NamedTuple):
    """A run of a model, and the same run after training on `data`.

    `models` is what the names of the trained models add to that of the base model, `threshold` the probability from
    which a trained filter keeps a passage, empty where it goes by the word. `variant` tells pairs of one name apart.
    """

    before: Run
    after: Run
    data: str
    models: str
    threshold: str
    variant: str = ""

    @property
    def trained_on(self) -> str:
        """The training data with variant and threshold."""
        return ", ".join(filter(None, [self.data, self.variant, self.threshold]))


def before_and_after(runs: Iterable[Run]) -> list[BeforeAfter]:
    """Pair each finished run of a trained model with the first of the model it was trained from.

    The two are of the same questions, methods in common, retriever and prompts. The threshold of the chunk filter may
    differ: it is chosen for a trained filter. A variant is named by the models, or the start of the fingerprint of the
    run after training.
    """
    finished, pairs = [run for run in runs if run.info.finished], []
    for after in finished:
        for before in [run for run in finished if _same_run(run.info, after.info)][:1]:
            llm, methods = after.info.llm, after.info.methods.values()
            thresholds = [method.settings.get("chunk_threshold") for method in methods]
            used = dict.fromkeys([llm["model"], *(stage["model"] for stage in llm.get("stages", {}).values())])
            models = " and ".join(name.removeprefix(llm["base"]).lstrip("-") for name in used if name != llm["base"])
            threshold = next((f"threshold {value:g}" for value in thresholds if value is not None), "")
            pairs.append(BeforeAfter(before, after, llm["trained_on"], models, threshold))
    for index, pair in enumerate(pairs):
        alike = [other for other in pairs if (other.data, other.before.label) == (pair.data, pair.before.label)]
        twins = [other for other in alike if (other.models, other.threshold) == (pair.models, pair.threshold)]
        names = [pair.models] * (len({other.models for other in alike}) > 1)
        names += [pair.after.info.fingerprint[:4]] * (len(twins) > 1)
        pairs[index] = pair._replace(variant=", ".join(names))
    return sorted(pairs, key=lambda pair: (pair.data, pair.before.label, pair.variant, pair.threshold))


def _same_run(before: RunInfo, after: RunInfo) -> bool:
    """Return whether the runs differ in the model alone, the first being of the model before training."""
    methods = before.methods.keys() & after.methods.keys()

    def identity(info: RunInfo) -> list[Any]:
        settings = {name: {**info.methods[name].settings, "chunk_threshold": None} for name in methods}
        llm = {name: value for name, value in info.llm.items() if name not in _FREE}
        return [info.dataset, info.condition, info.retriever, info.prompt_set, info.repeat, settings, llm]

    is_before = "trained_on" not in before.llm and before.model == after.llm.get("base")
    return is_before and bool(methods) and identity(before) == identity(after)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingStudy(Study):
    """Trainings with their examples and curves, and the runs before and after, paired by question."""

    trainings: Sequence[dict[str, Any]]
    pairs: Sequence[BeforeAfter]

    def curves(self) -> pd.DataFrame:
        """Return a row for each training, step and measure of its log: loss, reward accuracy and reward margin."""
        rows = [
            (one["name"], step, measure, entry[measure])
            for one in self.trainings
            for step, entry in enumerate(one["metrics"]["log"], 1)
            for measure in _MEASURES
            if measure in entry
        ]
        return pd.DataFrame(rows, columns=["training", "step", "measure", "value"])

    def held_out(self) -> pd.DataFrame:
        """Return each measure of the `n` examples held out, before and after; of accuracies with Wilson's interval."""
        rows = [
            (one["name"], name.removeprefix("eval_"), one["metrics"]["held_out"], when, one["metrics"][when][name])
            for one in self.trainings
            for name in one["metrics"]["after"]
            for when in ("before", "after")
            if name.startswith("eval_") and name in one["metrics"]["before"]
        ]
        table = pd.DataFrame(rows, columns=["training", "measure", "n", "when", "value"])
        shares = table[table["measure"] == "rewards/accuracies"]
        counts = pd.DataFrame({"count": (shares["value"] * shares["n"]).round(), "of": shares["n"]})
        return table.join(with_shares(counts, self.config.confidence)[["low", "high"]])

    @cached_property
    def comparisons(self) -> list[tuple[BeforeAfter, Comparison]]:
        """Each pair with the comparison of its runs, as they are published: with the traces in their frames."""
        options: dict[str, Any] = {"names": ("before", "after"), **self.tests}
        runs = [(pair, without_text(pair.before), without_text(pair.after)) for pair in self.pairs]
        return [(pair, compare_runs(before, after, **options)) for pair, before, after in runs]

    def table(self) -> pd.DataFrame:
        """Return a row for each pair of runs, method and metric, as `compare_runs`; differences are after - before."""
        tables = [
            one.table.assign(dataset=pair.before.label, trained_on=pair.trained_on) for pair, one in self.comparisons
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def declined(self) -> pd.DataFrame:
        """Return Chain-of-Note's reject rate (Table 4) on the questions with an answer, as `with_shares`."""
        rows = []
        for key, questions in self._questions():
            scores = questions.reindex(columns=["rejected_a", "rejected_b"]).dropna().astype(int)
            counts = zip(("before", "after"), scores.sum(), strict=True)
            rows += [(*key, when, declined, len(scores)) for when, declined in counts if len(scores)]
        return with_shares(pd.DataFrame(rows, columns=[*_KEY, "when", "count", "of"]), self.config.confidence)

    def parse_failures(self) -> pd.DataFrame:
        """Return the share of responses that could not be read, before and after, of stages that had any."""
        rows = []
        for key, questions in self._questions():
            for when, side in (("before", "a"), ("after", "b")):
                words = questions[f"trace_{side}"].str.split().explode().dropna()
                stages = words[~words.str.contains("[:>!]")].str.partition("=")[0].value_counts().sort_index()
                failures = words[words.str.startswith("!")].str[1:].value_counts()
                rows += [(*key, stage, when, failures.get(stage, 0), number) for stage, number in stages.items()]
        table = pd.DataFrame(rows, columns=[*_KEY, "stage", "when", "count", "of"])
        failed = table.groupby([*_KEY, "stage"])["count"].transform("sum") > 0
        return with_shares(table[failed].reset_index(drop=True), self.config.confidence)

    def _questions(self) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
        """Yield data set, training data and method with the questions compared, for each pair and method."""
        for pair, comparison in self.comparisons:
            for method, questions in comparison.questions.groupby("method_a", sort=False):
                yield (pair.before.label, pair.trained_on, str(method)), questions

    def verdicts(self) -> pd.DataFrame:
        """Return the verdicts of Amber's chunk filter on the questions answered before and after, as `chunk_verdicts`.

        `dataset` names also the variant, which of the two runs it is, and its threshold.
        """
        parts: dict[str, pd.DataFrame] = {}
        for pair in self.pairs:
            if pair.data == "content_filter":
                before, after = chunk_verdicts([pair.before]), chunk_verdicts([pair.after])
                for when, rows, others in (("before", before, after), ("after", after, before)):
                    words = pair.before.label, pair.variant, when, pair.threshold if when == "after" else ""
                    label = ", ".join(filter(None, words))
                    parts.setdefault(label, rows[rows["question_id"].isin(others["question_id"])].assign(dataset=label))
        return pd.concat([*parts.values()] or [chunk_verdicts([])], ignore_index=True)
