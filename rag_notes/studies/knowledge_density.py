"""How dense with evidence is what an answer is made from, and how good the answer (DeepNote, section 5.3, Figure 3)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from rag_notes.config import load_study
from rag_notes.events import Note, answered, searches
from rag_notes.methods.parse import parse_copied, parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.answer import normalize_answer, tokens
from rag_notes.metrics.stats import mean_interval
from rag_notes.report.cells import dataset_label, interval_text, method_label
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import ANSWER_METRICS
from rag_notes.running.annotate import annotate
from rag_notes.running.records import Run, Sample, require_text
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study, once
from rag_notes.types import InputError, Language, Passage, Question

QUANTITIES: Mapping[str, str] = {
    "reference_tokens": "Reference (tokens)",
    "density_marked": "Knowledge density (%)",
    "performance": "Performance (%)",
}
"""What is compared, as tables and figures print it."""

_SHARES = ("density", "density_marked", "density_parsed", "performance")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
_NONE = frozenset({"none", "无"})


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "KnowledgeDensity":
    """Run the methods and have the evidence marked in the reference of every answer, by the answering model.

    Raises ValueError for a method whose reference is not defined, otherwise as `rag_notes.running.run.run_methods`.
    """
    config = load_study("knowledge_density", options)
    one_repeat(config)
    runs = await run_methods(config, options, progress=progress)
    if runs[-1].info.finished:
        runs += await annotate(config, runs, "evidence", mark_evidence, reference_of, options, progress=progress)
    return KnowledgeDensity(config, options, runs)


class KnowledgeDensity(Study):
    """Length and density of the references, and how good the answers made from them are."""

    @once
    def answers(self) -> pd.DataFrame:
        """A row for each answer, as `knowledge_density`."""
        asked = [run for run in self.runs if run.info.condition.annotates is None]
        return knowledge_density(asked, [run for run in self.runs if run.info.condition.annotates == "evidence"])

    @once
    def table(self) -> pd.DataFrame:
        """The means of the answers with their intervals, as `density_results`."""
        return density_results(self.answers(), **self.intervals)

    def display(self) -> pd.DataFrame:
        """The means as text, with counts, as `density_table`."""
        return density_table(self.answers(), self.table())

    def figure(self) -> NotebookFigure:
        """Reference length, density and performance; saved with the table."""
        return self.save(density_figure(self.table(), confidence=self.config.confidence), self.table())


async def mark_evidence(
    references: Mapping[str, list[dict[str, str]] | str], rag: Rag, question: Question, *, sha256: str
) -> str:
    """Ask which sentences of the reference are evidence for the answer; returns those copied, one a line.

    A response with no sentence of the reference in it, and that does not say that there is none, cannot be read: it
    gives no evidence and is recorded as a parse failure. An empty reference is not asked about.
    """
    reference = references[question.id]
    context = reference if isinstance(reference, str) else [Passage(**passage) for passage in reference]
    texts = reference_texts(reference)
    if not texts:
        return ""
    response = (await rag.ask("evidence", context=context, question=question.question)).replace("**", "")
    copied = [sentence for text in texts for sentence in parse_copied(text, response, question.language)]
    if not copied and normalize_answer(response, question.language) not in _NONE:
        rag.parse_failure("evidence")
    return "\n".join(dict.fromkeys(copied))


def reference_of(sample: Sample) -> list[dict[str, str]] | str:
    """What an answer was made from: the best note or, without notes, the passages (id, title, text) of the one search.

    Raises ValueError for a method that neither writes notes nor searches just once.
    """
    notes = [event.text for event in sample.trace if isinstance(event, Note) and event.kept]
    if notes:
        return notes[-1]
    found = searches(sample.trace)
    if len(found) != 1:
        raise InputError(
            f"{sample.method} made {len(found)} searches and no note for {sample.question.id}: what it answered from "
            "is not known; choose methods that write notes or search once"
        )
    return [asdict(passage) for passage in found[0].read]


def reference_texts(reference: list[dict[str, str]] | str) -> list[str]:
    """The texts whose sentences and tokens count: of the passages, without titles, or the note; no bullets, no bold."""
    texts = [reference] if isinstance(reference, str) else [passage["text"] for passage in reference]
    return [text for text in ("\n".join(parse_lines(text.replace("**", ""))) for text in texts) if text]


def knowledge_density(runs: Sequence[Run], evidence: Sequence[Run]) -> pd.DataFrame:
    """A row for each answer without error: its reference, the evidence marked in it, and its score.

    `runs` are those with the answers, `evidence` their annotations. Tokens are what spaces separate and
    has a letter or digit, in Chinese jieba's; of passages the titles are not counted. `density` is evidence /
    reference tokens: 0 where the model found no evidence and, as `parse_failure` says, where its response could not be
    parsed; NaN for an empty reference and where the evidence could not be asked for. `density_parsed` leaves the parse
    failures out. `density_marked` is the paper's: the tokens of all that the model named as evidence, copied word for
    word or not, and 0 where its response could not be parsed. `performance` is the mean of the metrics of the
    question's task, from 0 to 1.
    """
    for run in [*runs, *evidence]:
        require_text(run)
    marked = {(run.dataset, *sample.key): sample for run in evidence for sample in run.samples}
    rows = [
        {"dataset": run.dataset, "method": sample.method, "question_id": sample.question.id}
        | _row(sample, marked.get((run.dataset, *sample.key)))
        for run in runs
        for sample in run.samples
        if sample.error is None
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def density_results(rows: pd.DataFrame, *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """The mean of every quantity of `knowledge_density` with its interval, a row for each method and quantity.

    Columns: dataset, method, quantity, mean, low, high, interval, n. Shares lie between 0 and 1. A quantity that no
    answer has is there with n = 0.
    """
    means: list[dict[str, Any]] = []
    for (dataset, method), of_method in rows.groupby(["dataset", "method"], sort=False):
        for quantity in ("reference_tokens", "evidence_tokens", *_SHARES):
            values = of_method[quantity].dropna().astype(float).tolist()
            row = {"dataset": dataset, "method": method, "quantity": quantity, "n": len(values)}
            if values:
                low, high, interval = mean_interval(values, confidence=confidence, resamples=resamples)
                row |= {"mean": math.fsum(values) / len(values), "low": low, "high": high, "interval": interval}
            means.append(row)
    return pd.DataFrame(means, columns=["dataset", "method", "quantity", "mean", "low", "high", "interval", "n"])


def density_table(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Lay out `density_results` with its counts: a row for each method, shares in %, a cell `mean [low, high]`.

    `answers` are those without error, `asked` those of them whose evidence was asked for or whose reference is empty;
    `none` and `parse failures` say how many responses named no evidence and how many could not be parsed.
    """
    wide = []
    for (dataset, method), of_method in rows.groupby(["dataset", "method"], sort=False):
        cells = table[(table["dataset"] == dataset) & (table["method"] == method)].set_index("quantity")
        wide.append(
            {"data set": dataset_label(str(dataset)), "method": method}
            | {str(quantity).replace("_", " "): _cell(str(quantity), row) for quantity, row in cells.iterrows()}
            | {
                "answers": len(of_method),
                "asked": int(of_method["evidence_tokens"].notna().sum()),
                "empty": int((of_method["reference_tokens"] == 0).sum()),
                "none": int(of_method["none"].sum()),
                "parse failures": int(of_method["parse_failure"].sum()),
            }
        )
    return pd.DataFrame(wide)


def density_figure(table: pd.DataFrame, *, confidence: float = 0.95) -> NotebookFigure:
    """Draw reference length, density and performance side by side, a bar or point a method, with their intervals.

    `table` is what `density_results` gave: a row of panels a data set.
    """
    datasets = list(dict.fromkeys(table["dataset"])) or ["(no answers)"]
    methods = list(dict.fromkeys(table["method"]))
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(6.9, 0.4 + len(datasets) * (0.75 + 0.32 * max(1, len(methods)))),
            layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06),
        )
        grid = figure.subplots(len(datasets), len(QUANTITIES), squeeze=False, sharey="row")
        for panels, dataset in zip(grid, datasets, strict=True):
            for axes, (quantity, label) in zip(panels, QUANTITIES.items(), strict=True):
                scale = 100 if quantity in _SHARES else 1
                cells = table[(table["dataset"] == dataset) & (table["quantity"] == quantity)].set_index("method")
                for place, method in enumerate(methods):
                    if method not in cells.index or not cells.loc[method, "n"]:
                        axes.annotate("n = 0", (0, place), xytext=(3, 0), textcoords="offset points", va="center")
                        continue
                    mean, low, high = (scale * float(cells.loc[method, name]) for name in ("mean", "low", "high"))
                    colour = PALETTE[place % len(PALETTE)]
                    if quantity == "performance":
                        axes.plot(mean, place, color=colour, marker="o", linestyle="none")
                        axes.plot([low, high], [place, place], color=colour, marker="none")
                    else:
                        hatch = _HATCHES[place % len(_HATCHES)]
                        axes.barh(place, mean, 0.6, color=colour, edgecolor="white", linewidth=0, hatch=hatch)
                        axes.plot([low, high], [place, place], color="black", marker="none")
                n = sorted(set(cells["n"])) or [0]
                axes.set_xlabel(f"{label}\nn = {n[0]}" + (f" to {n[-1]}" if len(n) > 1 else ""))
                axes.set_xlim(left=0)
                axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
                axes.grid(visible=True, axis="x")
                axes.tick_params(axis="y", length=0)
                axes.set_ylim(max(1, len(methods)) - 0.5, -0.5)  # the first method on top
                axes.set_yticks(range(len(methods)), [fill(method_label(method), 20) for method in methods])
            title = f"{dataset_label(str(dataset))}; lines: {100 * confidence:g} % intervals"
            panels[0].set_title(title, loc="left", fontweight="bold")
    return figure


_COLUMNS = [
    *(
        "dataset",
        "method",
        "question_id",
        "reference_tokens",
        "evidence_tokens",
        "density",
        "density_marked",
        "density_parsed",
    ),
    *("performance", "parse_failure", "none"),
]


def _row(sample: Sample, found: Sample | None) -> dict[str, Any]:
    language = sample.question.language
    reference = sum(_count(text, language) for text in reference_texts(reference_of(sample)))
    scores = [sample.metrics[metric] for metric in ANSWER_METRICS if metric in sample.metrics]
    row = dict.fromkeys(_COLUMNS[4:8], math.nan) | {
        "reference_tokens": reference,
        "performance": math.fsum(scores) / len(scores) if scores else math.nan,
        "parse_failure": False,
        "none": False,
    }
    if found is None or found.error is not None:
        return row
    evidence, failed = _count(found.answer, language), bool(found.counts.parse_failures)
    row |= {"evidence_tokens": evidence, "parse_failure": failed}
    if reference:
        row |= {"density": evidence / reference, "none": not evidence and not failed}
        row["density_parsed"] = math.nan if failed else row["density"]
        row["density_marked"] = 0.0 if failed else _marked(found, language) / reference
    return row


def _marked(found: Sample, language: Language) -> int:
    text = "\n".join(
        line for ask in answered(found.trace) for line in parse_lines((ask.response or "").replace("**", ""))
    )
    return 0 if normalize_answer(text, language) in _NONE else _count(text, language)


def _count(text: str, language: Language) -> int:
    return sum(any(char.isalnum() for char in token) for token in tokens(text, language))


def _cell(quantity: str, row: Any) -> str:
    if not row["n"]:
        return "– (n = 0)"
    return interval_text(row["mean"], row["low"], row["high"], scale=100 if quantity in _SHARES else 1)
