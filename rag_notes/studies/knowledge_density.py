"""How much of what an answer was made from is evidence, how long it is, how good the answer (DeepNote, section 5.3)."""

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from rag_notes.metrics.answer import tokens
from rag_notes.metrics.stats import mean_interval
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import ANSWER_METRICS
from rag_notes.running.records import Run, Sample
from rag_notes.studies.evidence import reference_of, reference_texts
from rag_notes.types import Dataset, Language

QUANTITIES: Mapping[str, str] = {
    "reference_tokens": "Reference (tokens)",
    "density": "Knowledge density (%)",
    "performance": "Performance (%)",
}
"""What is compared, as tables and figures print it."""

_SHARES = ("density", "density_readable", "performance")
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")


def knowledge_density(runs: Sequence[Run], evidence: Sequence[Run], datasets: Sequence[Dataset]) -> pd.DataFrame:
    """Return a row for each answer without error: its reference, the evidence marked in it, and its score.

    `runs` are those with the answers, `evidence` what `rag_notes.studies.evidence.run_evidence` made of them. Tokens are
    what spaces separate and has a letter or digit, in Chinese jieba's; of passages the titles are not counted.
    `density` is evidence / reference tokens: 0 where the model found no evidence and, as `unreadable` says, where its
    response could not be read; NaN for an empty reference and where the evidence could not be asked for.
    `density_readable` leaves the unreadable out. `performance` is the mean of the metrics of the question's task, from
    0 to 1.
    """
    rows: list[dict[str, Any]] = []
    for run, marked in zip(runs, evidence, strict=True):
        (dataset,) = [dataset for dataset in datasets if dataset.name == run.dataset]
        languages: dict[str, Language] = {question.id: question.language for question in dataset.questions}
        by_key = {(sample["method"], sample["question_id"]): sample for sample in marked.samples}
        for sample in run.samples:
            if sample["error"] is None:
                found = by_key.get((f"evidence_of_{sample['method']}", sample["question_id"]))
                key = {"dataset": run.dataset, "method": sample["method"], "question_id": sample["question_id"]}
                rows.append(key | _row(sample, found, languages[sample["question_id"]]))
    return pd.DataFrame(rows, columns=_COLUMNS)


def density_results(rows: pd.DataFrame, *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """Return the mean of every quantity of `knowledge_density` with its interval, a row for each method and quantity.

    Columns: dataset, method, quantity, mean, low, high, interval, n. Shares lie between 0 and 1. A quantity that no
    answer has is there with n = 0.
    """
    means: list[dict[str, Any]] = []
    for (dataset, method), of_method in rows.groupby(["dataset", "method"], sort=False):
        for quantity in ("reference_tokens", "evidence_tokens", "density", "density_readable", "performance"):
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
    `none` and `unreadable` say how many responses named no evidence and how many could not be read.
    """
    wide = []
    for (dataset, method), of_method in rows.groupby(["dataset", "method"], sort=False):
        cells = table[(table["dataset"] == dataset) & (table["method"] == method)].set_index("quantity")
        wide.append(
            {"data set": dataset, "method": method}
            | {str(quantity).replace("_", " "): _cell(str(quantity), row) for quantity, row in cells.iterrows()}
            | {
                "answers": len(of_method),
                "asked": int(of_method["evidence_tokens"].notna().sum()),
                "empty": int((of_method["reference_tokens"] == 0).sum()),
                "none": int(of_method["none"].sum()),
                "unreadable": int(of_method["unreadable"].sum()),
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
                axes.set_yticks(range(len(methods)), [fill(method.replace("_", " "), 20) for method in methods])
            panels[0].set_title(f"{dataset}; lines: {100 * confidence:g} % intervals", loc="left", fontweight="bold")
    return figure


_COLUMNS = [
    *("dataset", "method", "question_id", "reference_tokens", "evidence_tokens", "density", "density_readable"),
    *("performance", "unreadable", "none"),
]


def _row(sample: Sample, found: Sample | None, language: Language) -> dict[str, Any]:
    reference = sum(_count(text, language) for text in reference_texts(reference_of(sample)))
    scores = [sample["metrics"][metric] for metric in ANSWER_METRICS if metric in sample["metrics"]]
    row = dict.fromkeys(_COLUMNS[4:7], math.nan) | {
        "reference_tokens": reference,
        "performance": math.fsum(scores) / len(scores) if scores else math.nan,
        "unreadable": False,
        "none": False,
    }
    if found is None or found["error"] is not None:
        return row
    evidence = _count(found["answer"], language)
    unreadable = bool(found["counts"]["unreadable"])
    row |= {"evidence_tokens": evidence, "unreadable": unreadable}
    if reference:
        row |= {"density": evidence / reference, "none": not evidence and not unreadable}
        row["density_readable"] = math.nan if unreadable else row["density"]
    return row


def _count(text: str, language: Language) -> int:
    return sum(any(char.isalnum() for char in token) for token in tokens(text, language))


def _cell(quantity: str, row: Any) -> str:
    if not row["n"]:
        return "– (n = 0)"
    scale = 100 if quantity in _SHARES else 1
    interval = "" if math.isnan(row["low"]) else f" [{scale * row['low']:.1f}, {scale * row['high']:.1f}]"
    return f"{scale * row['mean']:.1f}{interval}"
