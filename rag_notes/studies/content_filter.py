"""What Amber's content filter keeps and drops, read from the traces of its runs (Amber, section 5.2, Figure 2)."""

import math
import textwrap
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.layout_engine import ConstrainedLayoutEngine
from sklearn.metrics import confusion_matrix, f1_score

from rag_notes.config import load_study
from rag_notes.events import Decision, Event, Found, Search, answered, searches
from rag_notes.methods.parse import parse_choice, parse_copied
from rag_notes.metrics.answer import tokens
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.metrics.stats import wilson
from rag_notes.papers.numbers import paper_cells
from rag_notes.report.cells import dataset_label, interval_texts
from rag_notes.report.figures import STYLE, NotebookFigure
from rag_notes.running.records import Run, Sample
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study, once

_TITLE = 26  # letters of a data set's name beside each other above a matrix
_RATES = {  # of the four cells of the confusion matrix (tn, fp, fn, tp): what is counted, of how many
    "accuracy": ((0, 3), (0, 1, 2, 3)),
    "precision": ((3,), (1, 3)),
    "recall (gold kept)": ((3,), (2, 3)),
    "specificity (other dropped)": ((0,), (0, 1)),
}
_COVERED = {
    "dataset": "data set",
    "no_gold": "no gold passages known",
    "without_text": "judged without text",
    "size": "passages",
    "sum": "parse failures",
}
_PAPER = {"recall (gold kept)": "useful_kept", "specificity (other dropped)": "useless_dropped"}


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "ContentFilter":
    """Run Amber. Raises as `rag_notes.running.run.run_methods`."""
    config = load_study("content_filter", options)
    one_repeat(config)
    return ContentFilter(config, options, await run_methods(config, options, progress=progress))


class ContentFilter(Study):
    """The verdicts of Amber's filters on the passages of the first search, beside the gold passages."""

    @once
    def verdicts(self) -> pd.DataFrame:
        """A row for each passage, as `chunk_verdicts`."""
        return chunk_verdicts(self.runs)

    def coverage(self) -> pd.DataFrame:
        """What the verdicts cover, as `filter_coverage`."""
        return filter_coverage(self.runs)

    def display_coverage(self) -> pd.DataFrame:
        """What the verdicts cover, with the numbers of passages and of verdicts that could not be parsed."""
        verdicts = self.verdicts().groupby("dataset")["parse_failure"].agg(["size", "sum"])
        table = self.coverage().join(verdicts, on="dataset").fillna({"size": 0, "sum": 0})
        return table.astype({"size": int, "sum": int}).rename(columns=_COVERED).set_index("data set")

    def table(self) -> pd.DataFrame:
        """The rates of the chunk filter by data set, as `filter_rates`."""
        return filter_rates(self.verdicts(), **self.intervals)

    def display(self) -> pd.DataFrame:
        """The rates of the chunk filter in %, with the passages that each is of, and what the paper has at least."""
        rates = self.table()
        shown = {
            "data set": rates["dataset"].map(dataset_label),
            "rate": rates["rate"],
            "in %": interval_texts(rates, "value"),
            "counted": _counted(rates),
            "paper, at least (%)": (100 * rates["paper"]).map("{:.0f}".format),
        }
        return pd.DataFrame(shown).replace("nan", "–").set_index(["data set", "rate"])

    def display_by_type(self) -> pd.DataFrame:
        """The rates by type of question in %, with the number of passages."""
        rates = filter_rates(self.verdicts(), by="type", **self.intervals)
        wide = rates.assign(cell=interval_texts(rates, "value")).pivot(index="type", columns="rate", values="cell")
        passages = rates[rates["rate"] == "accuracy"].set_index("type")["of"].rename("passages")
        return wide[list(dict.fromkeys(rates["rate"]))].join(passages)

    def display_sentences(self) -> pd.DataFrame:
        """What the sentence filter did, in %."""
        table = sentence_filter(self.runs, confidence=self.config.confidence)
        shown = {
            "data set": table["dataset"].map(dataset_label),
            "what": table["what"],
            "in %": interval_texts(table, "value"),
            "counted": _counted(table),
        }
        return pd.DataFrame(shown).set_index(["data set", "what"])

    def figure(self) -> NotebookFigure:
        """The confusion matrix of each data set; saved with the verdicts."""
        return self.save(confusion_figure(self.verdicts()), self.verdicts())


def chunk_verdicts(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each passage that the chunk filter saw in the first iteration, whose query is the question.

    Columns: dataset, method, question_id, type, passage_id, `gold` (whether it is a gold passage), `useful` (the
    filter's verdict) and `parse_failure` (then it counts as useless). Answers that failed and questions without known
    gold passages have no rows; see `filter_coverage`.
    """
    rows = []
    for run, sample in _judged(runs):
        search, events = _first_iteration(sample)
        verdicts = _verdicts(events)
        for hit, read in zip(search.hits, verdicts, strict=True) if verdicts else ():
            question = sample.question
            key = {"dataset": run.dataset, "method": sample.method, "question_id": question.id}
            rows.append(
                key
                | {"type": question.type, "passage_id": hit.id, "gold": hit.id in question.gold_ids}
                | {"useful": read == "useful", "parse_failure": read is None}
            )
    return pd.DataFrame(rows, columns=_VERDICT).astype(dict.fromkeys(("gold", "useful", "parse_failure"), bool))


def filter_coverage(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each data set: its answers, those to questions without known gold passages, and those that failed.

    `without_text` are those judged of published runs, which say what the chunk filter kept, and not which sentences.
    """
    rows = []
    for run in runs:
        judged = [sample for sample in run.samples if sample.question.gold_ids]
        failed = sum(sample.error is not None for sample in judged)
        left = len(judged) - failed
        rows.append([run.dataset, len(run.samples), len(run.samples) - len(judged), failed, left])
        rows[-1].append(left if run.info.published else 0)
    return pd.DataFrame(rows, columns=["dataset", "answers", "no_gold", "failed", "judged", "without_text"])


def filter_rates(
    verdicts: pd.DataFrame, *, by: str = "dataset", confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> pd.DataFrame:
    """How well the chunk filter's verdict tells the gold passages, a row for each value of `by` and rate.

    Columns: `by`, rate, value, low, high, interval, `count` (what the rate counts), `of`, and `paper`: what the text
    of the paper gives for its fine-tuned filter, at least, on its own labels. Rates lie between 0 and 1; intervals are
    Wilson's, which takes the passages of a question for independent; that of F1 is the percentile bootstrap over
    questions. Rates of nothing are NaN.
    """
    cells = paper_cells()
    cells = cells[(cells["paper"] == "amber") & (cells["table"] == "text")]
    paper = dict(zip(cells["metric"], cells["value"] / 100, strict=True))
    rows: list[dict[str, Any]] = []
    for value, group in verdicts.groupby(by, sort=False):
        counts = confusion(group).ravel()
        for rate, (counted, among) in _RATES.items():
            k, n = int(counts[list(counted)].sum()), int(counts[list(among)].sum())
            row = {
                by: value,
                "rate": rate,
                "count": k,
                "of": n,
                "paper": paper[_PAPER[rate]] if rate in _PAPER else math.nan,
            }
            if n:
                low, high, interval = wilson(k, n, confidence)
                row |= {"value": k / n, "low": low, "high": high, "interval": interval}
            rows.append(row)
        low, high = _f1_interval(group, confidence, resamples, seed)
        score = float(f1_score(group["gold"], group["useful"], zero_division=np.nan))
        bounds = {"low": low, "high": high, "interval": "percentile"}
        rows.append({by: value, "rate": "F1", "value": score, "paper": math.nan} | bounds)
    return pd.DataFrame(rows, columns=[by, "rate", "value", "low", "high", "interval", "count", "of", "paper"]).astype(
        {"count": "Int64", "of": "Int64"}
    )


def confusion(verdicts: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The confusion matrix: rows other and gold passages, columns dropped and kept."""
    if verdicts.empty:
        return np.zeros((2, 2), dtype=np.int64)
    matrix: np.ndarray[Any, np.dtype[np.int64]] = confusion_matrix(
        verdicts["gold"], verdicts["useful"], labels=[False, True]
    )
    return matrix


def sentence_filter(runs: Sequence[Run], *, confidence: float = 0.95) -> pd.DataFrame:
    """What the sentence filter did to the passages that it saw in the first iteration, by data set.

    Columns: dataset, `what`, value, low, high (Wilson's; NaN for words, which are no independent trials), count, of.
    `passages cut`: those of which a sentence was copied; the others stay whole, since the response could not be parsed.
    `words kept`: of all passages, and of those cut. `answers kept`: of the passages with a gold answer in their text,
    those that still have it. Published runs are left out: they have no text (see `filter_coverage`).
    """
    counts: dict[tuple[str, str], list[int]] = {}
    for run, sample in _judged([run for run in runs if not run.info.published]):
        question = sample.question
        for text, response in _filtered(sample):
            copied = parse_copied(text, response, question.language)
            kept = "\n".join(copied) if copied else text
            _add(counts, run.dataset, "passages cut", bool(copied), 1)
            words = len(tokens(kept, question.language)), len(tokens(text, question.language))
            _add(counts, run.dataset, "words kept", *words)
            if copied:
                _add(counts, run.dataset, "words kept of those cut", *words)
            if answer_in_passages([text], question.answers, question.language):
                survived = answer_in_passages([kept], question.answers, question.language)
                _add(counts, run.dataset, "answers kept", bool(survived), 1)
    rows = []
    for (dataset, what), (k, n) in counts.items():
        low, high = (math.nan, math.nan) if what.startswith("words") else wilson(k, n, confidence)[:2]
        rows.append([dataset, what, k / n, low, high, k, n])
    return pd.DataFrame(rows, columns=["dataset", "what", "value", "low", "high", "count", "of"])


def confusion_figure(verdicts: pd.DataFrame) -> NotebookFigure:
    """Draw the confusion matrix of each data set: counts, and the share of their row, which is also the shade."""
    datasets = list(dict.fromkeys(verdicts["dataset"])) or ["(no answers)"]
    columns = 2 if len(datasets) == 4 else min(len(datasets), 3)
    rows = math.ceil(len(datasets) / columns)
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(0.9 + 2.5 * columns, 2.6 * rows), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06)
        )
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid[len(datasets) :]:
            axes.remove()
        for axes, dataset in zip(grid, datasets, strict=False):
            matrix = confusion(verdicts[verdicts["dataset"] == dataset])
            totals = matrix.sum(axis=1, keepdims=True)
            shares = np.divide(matrix, totals, out=np.zeros(matrix.shape), where=totals > 0)
            image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=1)  # reads the same to the colour-blind
            for (row, column), share in np.ndenumerate(shares):
                text = f"{matrix[row, column]}\n{100 * share:.0f} %" if totals[row, 0] else "0\n–"
                axes.text(column, row, text, ha="center", va="center", color="white" if share < 0.55 else "black")
            axes.set_xticks([0, 1], ["dropped", "kept"])
            axes.set_yticks([0, 1], [f"other\n(n = {totals[0, 0]})", f"gold\n(n = {totals[1, 0]})"])
            axes.tick_params(length=0)
            axes.set_xlabel("verdict of the filter")
            axes.set_ylabel("passage")
            axes.set_title(textwrap.fill(dataset_label(str(dataset)), _TITLE), loc="left", fontweight="bold")
        figure.colorbar(image, ax=figure.axes, label="share of the row", shrink=0.8)
    return figure


_VERDICT = ["dataset", "method", "question_id", "type", "passage_id", "gold", "useful", "parse_failure"]


def _judged(runs: Sequence[Run]) -> list[tuple[Run, Sample]]:
    """The samples without error of questions with known gold passages."""
    return [(run, s) for run in runs for s in run.samples if s.error is None and s.question.gold_ids]


def _first_iteration(sample: Sample) -> tuple[Search, list[Event]]:
    """The first search, and what happened from it to the next one."""
    first = searches(sample.trace)[0]
    behind = sample.trace[sample.trace.index(first) + 1 :]
    return first, list(takewhile(lambda event: not isinstance(event, Search), behind))


def _responses(events: Sequence[Event], stage: str) -> list[str]:
    return [ask.response or "" for ask in answered(events) if ask.stage == stage]


def _verdicts(events: Sequence[Event]) -> list[str | None]:
    """The chunk filter's verdict on each passage, by its threshold where it has one; None where it cannot be read."""
    read = [parse_choice(response, ("useful", "useless")) for response in _responses(events, "amber_chunk_filter")]
    decided = [one.outcome for one in events if isinstance(one, Decision) and one.what == "amber_chunk_filter"]
    return [verdict and by for verdict, by in zip(read, decided, strict=True)] if decided else read


def _filtered(sample: Sample) -> list[tuple[str, str]]:
    """The text of each passage that the sentence filter saw in the first iteration, and its response."""
    search, events = _first_iteration(sample)
    hits: list[Found] = search.hits
    if verdicts := _verdicts(events):
        hits = [hit for hit, verdict in zip(hits, verdicts, strict=True) if verdict == "useful"]
    responses = _responses(events, "amber_sentence_filter")
    return [(hit.text, response) for hit, response in zip(hits, responses, strict=bool(responses))]


def _add(counts: dict[tuple[str, str], list[int]], dataset: str, what: str, k: int, n: int) -> None:
    cell = counts.setdefault((dataset, what), [0, 0])
    cell[0] += k
    cell[1] += n


def _counted(table: pd.DataFrame) -> list[str]:
    """What each share counts, of how many."""
    return ["–" if pd.isna(of) else f"{k:,} of {of:,}" for k, of in zip(table["count"], table["of"], strict=True)]


def _f1_interval(verdicts: pd.DataFrame, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Percentile bootstrap of F1 over questions, whose passages belong together."""
    counts = np.array(
        [
            [(group["gold"] & group["useful"]).sum(), group["gold"].sum() + group["useful"].sum()]
            for _, group in verdicts.groupby(["dataset", "method", "question_id"], sort=False)
        ]
    )
    drawn = np.random.default_rng(seed).integers(len(counts), size=(resamples, len(counts)))
    hits, total = counts[drawn].sum(axis=1).T
    scores = 2 * hits[total > 0] / total[total > 0] if total.any() else np.array([math.nan])
    low, high = np.quantile(scores, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
