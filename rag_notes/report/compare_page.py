"""A comparison to read: as text for a terminal, as a page that stands alone, as CSV."""

import math
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from rag_notes.files import write_atomically
from rag_notes.report.cells import DISAGREE, disagree, interval_text, p_text
from rag_notes.report.compare import CHANGES, Comparison, Matched, Pair
from rag_notes.report.csv_file import write_csv
from rag_notes.report.page import places, render, scores, style, title_of
from rag_notes.report.site import trace_links
from rag_notes.report.tables import METRIC_LABELS
from rag_notes.running.correctness import correctness, meanings
from rag_notes.running.records import Key, Sample
from rag_notes.types import InputError

LISTED = 20
"""Differing questions that the text names."""

_HEADS = {
    "method": "method",
    "metric": "metric",
    "n": "n",
    "a": "A",
    "b": "B",
    "difference": "B - A",
    "p": "p",
    "p_holm": "p Holm",
    "counts": "wins/ties/losses",
    "detectable": "detectable",
}
_COST_HEADS = _HEADS | {"counts": "more/same/fewer"}
_EXPLAINED = (
    "B - A with its {confidence:g} % interval and the p of the paired sign-flip permutation test; * where p < "
    "{alpha:.2g} after Holm's correction for the methods compared by one metric; "
    f"{DISAGREE} where interval and test disagree about 0 (before correction): of few questions, or few that differ, "
    "the bootstrap's interval is too narrow; the test decides. Wins, ties and losses are B's. "
    "Detectable: the smallest difference that n questions spread like these show with 80 % power at alpha .05 (paired "
    "t test); no spread: every question differs by the same, from which it cannot be told."
)


@dataclass(frozen=True, slots=True)
class Links:
    """Where the report in the folder `report` has the traces of both sides: paths within it, by sample."""

    report: Path
    a: Mapping[Key, str]
    b: Mapping[Key, str]

    def of(self, pair: Pair, both: Matched, report: str | None = None) -> tuple[str, str]:
        """The links to both traces of a question; `report` is how to get to the report, by default its own path."""
        start = str(self.report) if report is None else report
        return f"{start}/{self.a[pair.method_a, both.id]}", f"{start}/{self.b[pair.method_b, both.id]}"


def find_links(comparison: Comparison, report: str | Path) -> Links:
    """Return the links to the traces of a comparison's runs. Raises RecordError as `trace_links` does."""
    a, b = comparison.names
    return Links(Path(report), trace_links(report, a, comparison.run_a), trace_links(report, b, comparison.run_b))


def kind_of(out: str | Path) -> str:
    """Tell what to write by the ending of a file's name: html or csv. Raises ValueError for any other."""
    kind = Path(out).suffix.lower().removeprefix(".")
    if kind not in ("html", "csv"):
        raise InputError(f"{out}: a comparison is written as .html or .csv; name such a file")
    return kind


def write_comparison(comparison: Comparison, out: str | Path, links: Links | None = None) -> list[Path]:
    """Write a comparison to a file of the kind that its name says, and return the paths written.

    The page needs no other file: of the questions that differ it has both traces, or with `links` leads to those of a
    report. The CSV is the table of `compare_runs`; the questions that differ go beside it, as `*.questions.csv`. The
    same comparison gives the same bytes. Raises ValueError for another kind of file.
    """
    out = Path(out)
    if kind_of(out) == "csv":
        questions = out.with_suffix(".questions.csv")
        return [write_csv(comparison.table, out), write_csv(differing_questions(comparison, links), questions)]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, _page(comparison, out, links))
    return [out]


def differing_questions(comparison: Comparison, links: Links | None = None) -> pd.DataFrame:
    """Return a row for each question on which two methods differ in score: correctness, answers, scores and links."""
    columns = ["method_a", "method_b", "question_id", "change", "question", "gold"]
    columns += [f"{name}_{side}" for name in ("correctness", "answer", "scores", "trace") for side in "ab"]
    rows = []
    for pair in comparison.pairs:
        for both in pair.differing():
            trace_a, trace_b = links.of(pair, both) if links else ("", "")
            sides = {"a": (both.a, trace_a), "b": (both.b, trace_b)}
            rows.append(
                {"method_a": pair.method_a, "method_b": pair.method_b, "question_id": both.id, "change": both.change}
                | {"question": both.a.question.question, "gold": " | ".join(both.a.gold)}
                | {f"correctness_{side}": correctness(sample) for side, (sample, _) in sides.items()}
                | {f"answer_{side}": sample.answer for side, (sample, _) in sides.items()}
                | {f"scores_{side}": scores(sample) for side, (sample, _) in sides.items()}
                | {f"trace_{side}": trace for side, (_, trace) in sides.items()}
            )
    return pd.DataFrame(rows, columns=columns)


def as_text(comparison: Comparison, links: Links | None = None, page: Path | None = None) -> str:
    """Return a comparison for a terminal: what is compared, the table, and the first LISTED questions that differ.

    Each of these comes with the `links` to its traces, or with its place in the `page` that was written.
    """
    return "\n".join(_lines(comparison, links, page))


def _lines(comparison: Comparison, links: Links | None, page: Path | None) -> Iterator[str]:
    for side, name in zip("AB", comparison.names, strict=True):
        yield f"{side}  {name}"
    for name, a, b in comparison.settings():
        yield f"   {name}: {a} -> {b}"
    for pair in comparison.pairs:
        yield f"{pair.name}: {coverage(pair)}"
    told = [pair for pair in comparison.pairs if not comparison.all_equal(pair)]
    for title, kinds, heads in (
        ("scores in %", ("answer", "retrieval"), _HEADS),
        ("what a question took", ("cost",), _COST_HEADS),
    ):
        rows = [
            shown(row) | {"method": pair.name} for pair in told for row in comparison.rows(pair) if row["kind"] in kinds
        ]
        if rows:
            columns = [key for key in heads if key != "method" or len(told) > 1]
            table = pd.DataFrame(rows, columns=columns).rename(columns=heads).to_string(index=False)
            yield from ("", title, table)
    if equal := [pair.name for pair in comparison.pairs if pair not in told]:
        yield from ("", f"equal in every value of every question: {', '.join(equal)}")
    yield from ("", textwrap.fill(explained(comparison), 100))
    differing = [(pair, both) for pair in comparison.pairs for both in pair.differing()]
    yield ""
    yield f"{len(differing)} answers differ in score" + (":" if differing else "")
    for pair, both in differing[:LISTED]:
        where = f"{_plain(both.id)} ({pair.name})" if len(comparison.pairs) > 1 else _plain(both.id)
        yield f"{where}, {correctness(both.a)} -> {correctness(both.b)}: {_short(both.a)} -> {_short(both.b)}"
        if links:
            yield from (f"   {link}" for link in links.of(pair, both))
        elif page:
            yield f"   {page}#{_anchors(comparison, pair)[both.id]}"
    if len(differing) > LISTED:
        yield f"and {len(differing) - LISTED} more: --out FILE.html or --out FILE.csv has all"


def coverage(pair: Pair) -> str:
    """How many questions are compared, how many are left out and why, and which metrics only one side has."""
    parts = [f"{len(pair.matched)} questions compared"]
    parts += [f"{len(ids)} left out: {reason}" for reason, ids in pair.left_out.items()]
    for side, metrics in pair.one_sided().items():
        parts.append(f"only {side} has {', '.join(METRIC_LABELS[metric] for metric in metrics)}")
    return "; ".join(parts)


def explained(comparison: Comparison) -> str:
    """How to read the table."""
    confidence = float(comparison.table["confidence"].iloc[0])
    return _EXPLAINED.format(confidence=100 * confidence, alpha=1 - confidence)


def shown(row: Mapping[Any, Any]) -> dict[str, str]:
    """A row of the table as text, scores in %."""
    scale = 1 if row["kind"] == "cost" else 100
    detectable = scale * row["smallest_detectable"]
    if math.isnan(detectable):
        smallest = "n = 1" if row["n"] == 1 else "no spread"
    else:
        smallest = "> 100" if scale == 100 and detectable > 100 else f"{detectable:,.1f}"
    return {
        "metric": METRIC_LABELS.get(row["metric"], row["metric"].replace("_", " ")),
        "n": str(row["n"]),
        "a": f"{scale * row['mean_a']:,.1f}",
        "b": f"{scale * row['mean_b']:,.1f}",
        "difference": interval_text(row["difference"], row["low"], row["high"], scale=scale, spec="+,.1f")
        + ("*" if row["significant"] else "")
        + (DISAGREE if disagree(row["low"], row["high"], row["p"], 1 - row["confidence"]) else ""),
        "p": p_text(row["p"]),
        "p_holm": p_text(row["p_holm"]),
        "counts": f"{row['wins']}/{row['ties']}/{row['losses']}",
        "detectable": smallest,
    }


def _short(sample: Sample, width: int = 60) -> str:
    text = _plain(sample.answer) or "(empty)"
    return text if len(text) <= width else text[: width - 2] + " …"


def _plain(text: str) -> str:
    """The text in one line and without characters that do something to a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _page(comparison: Comparison, out: Path, links: Links | None) -> str:
    report = None if links is None else quote(Path(os.path.relpath(links.report, out.parent)).as_posix())
    pairs = []
    for pair in comparison.pairs:
        rows = comparison.rows(pair)
        anchors = _anchors(comparison, pair)
        pairs.append(
            {
                "pair": pair,
                "place": anchors[""],
                "coverage": coverage(pair),
                "scores": [(row, shown(row)) for row in rows if row["kind"] != "cost"],
                "costs": [(row, shown(row)) for row in rows if row["kind"] == "cost"],
                "limit": _limit(rows),
                "changes": {
                    text: [
                        {
                            "both": both,
                            "place": anchors[both.id],
                            "links": None if links is None else links.of(pair, both, report),
                        }
                        for both in pair.differing(change)
                    ]
                    for change, text in CHANGES.items()
                },
            }
        )
    samples = (sample for pair in comparison.pairs for both in pair.matched for sample in (both.a, both.b))
    return render(
        "compare.html",
        title=title_of([comparison.run_a, comparison.run_b]),
        comparison=comparison,
        pairs=pairs,
        heads=_HEADS,
        cost_heads=_COST_HEADS,
        explained=explained(comparison),
        means=meanings(samples),
        css=style(),
    )


def _anchors(comparison: Comparison, pair: Pair) -> dict[str, str]:
    """The places on the page of a pair of methods (under "") and of its questions, by id."""
    place = places(each.name for each in comparison.pairs)[pair.name]
    questions = places((both.id for both in pair.matched), digits=4)
    return {question_id: f"{place}.{name}" for question_id, name in questions.items()} | {"": place}


def _limit(rows: list[dict[Any, Any]]) -> float:
    """How far the drawing of the scores reaches to either side: all intervals fit, detectable differences up to 1."""
    reach = [
        abs(row[name])
        for row in rows
        if row["kind"] != "cost"
        for name in ("difference", "low", "high", "smallest_detectable")
        if not math.isnan(row[name])
    ]
    return min(1.0, max(reach, default=0)) or 1.0
