"""The verification as a page, as Markdown and as CSV, and its summary for a page of results."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.files import write_atomically
from rag_notes.papers.forest import order_label
from rag_notes.papers.measures import UNSCALED
from rag_notes.papers.systems import left_out, model_of
from rag_notes.papers.verdicts import NOT_RUN, OTHER_CORPUS, RULES, SIGNS, count_verdicts
from rag_notes.papers.verification import NOT_THEIRS, OWN, usable, verify_claims, verify_orders
from rag_notes.rates import PRICED
from rag_notes.report.cells import DISAGREE, dataset_label, disagree, interval_text, method_label, p_text
from rag_notes.report.csv_file import write_csv
from rag_notes.report.markdown import markdown
from rag_notes.report.page import render, sound, style
from rag_notes.report.tables import METRIC_LABELS
from rag_notes.running.records import Run
from rag_notes.running.run_files import load_runs
from rag_notes.types import InputError

MARKERS = ("<!-- verification -->", "<!-- /verification -->")
"""What the summary stands between in a page."""

LIMITS = (
    "The papers' models are rarely ours. A value measured with another model is the number of another system: its "
    "verdict is a distance, no test of the paper. A comparison may carry over from one model to another, which is what "
    "one made with another model tests. Both names stand in every row, and a verdict with another model says so. "
    "Names are compared by letters and digits alone; Chain-of-Note's LLaMa-2-7B is fine-tuned, whatever ours is.",
    "Even with the paper's model the prompts are our wording, and retriever and corpus are those of the run. Every row "
    "says which questions it had, and whether its passages were pooled from the questions' own paragraphs, came as a "
    "corpus, or were a part of one (less than half of what the papers searched).",
    "Many comparisons are tested at once: where none held, about one in forty would still agree by chance. p (Holm) "
    "is corrected for all comparisons tested on our own data set with a model. Detectable is the smallest difference "
    "that so many questions, spread like these, show with 80 % power at alpha .05 (paired t test).",
    f"{DISAGREE} marks a difference whose bootstrap interval and permutation test disagree about 0: of few questions, "
    "or few that differ, the interval is too narrow; agreement and contradiction take both.",
    "The papers' acc is raw containment, and so is ours (acc_raw), also within avg; a verdict from records that have "
    "only the normalised one says so.",
    "Seconds are those of computing, from the tokens and the speed of the model (conf/speeds.yaml); of a model without "
    "a measured speed those waited, queue included. Costs are those at the model's own price; where it has "
    f"none, those of its tokens at the price of {PRICED} (conf/prices.yaml), as the row then says.",
)

_ALPHA = 0.05
_SELECTIONS = {"papers": "the papers'"}
_CORPORA = {
    "pooled": "pooled paragraphs",
    "given": "given corpus",
    "part": "part of the corpus",
    "none": "not searched",
}


class Table(NamedTuple):
    """A table of texts."""

    caption: str
    frame: pd.DataFrame
    folded: bool = False


class Verification(NamedTuple):
    """What was verified: the runs by folder name, those left aside and why, both tables of `verification`."""

    runs: dict[str, Run]
    aside: dict[str, tuple[Run, str]]
    claims: pd.DataFrame
    orders: pd.DataFrame


def verify(folders: Iterable[str | Path], *, resamples: int = 10_000, min_questions: int = 1) -> Verification:
    """Verify the papers' claims by these run folders. Raises RecordError where one is missing or malformed."""
    by_name = sorted((Path(folder).resolve() for folder in folders), key=lambda path: path.name)
    runs = load_runs(by_name)
    used, why = usable(runs, min_questions)
    aside = {name: (runs[name], reason) for name, reason in why.items()}
    claims, orders = verify_claims(used, resamples=resamples), verify_orders(used, resamples=resamples)
    return Verification(used, aside, claims, orders)


def write_verification(verification: Verification, folder: str | Path) -> list[Path]:
    """Write verification.html and .md, claims.csv and orders.csv (a row a claim or order, all columns) to `folder`.

    The same runs give the same bytes. Returns the four paths.
    """
    folder = Path(folder)
    tables = _tables(verification)
    rules = {f"{SIGNS[verdict]} {verdict}": rule for verdict, rule in RULES.items()}
    page = render("verification.html", tables=tables, rules=rules, limits=LIMITS, css=style())
    parts = ["# Verification: the papers' numbers and ours", "## How to read a verdict"]
    parts.append("\n".join(f"- **{_plain(verdict)}**: {_plain(rule)}" for verdict, rule in rules.items()))
    parts += map(_plain, LIMITS)
    for table in tables:
        parts += [f"## {_plain(table.caption)}", _markdown(table)]
    write_atomically(folder / "verification.html", page)
    write_atomically(folder / "verification.md", "\n\n".join(parts) + "\n")
    return [
        folder / "verification.html",
        folder / "verification.md",
        write_csv(verification.claims, folder / "claims.csv"),
        write_csv(verification.orders, folder / "orders.csv"),
    ]


def summary(verification: Verification) -> str:
    """The verdicts counted by paper, for claims and for comparisons on our own data set, as Markdown."""
    made = dict.fromkeys(
        _plain(
            f"{dataset_label(run.label)} with {model_of(run)} ({run.info.dataset.questions} questions{_failures(run)})"
        )
        for run in verification.runs.values()
    )
    parts = [f"From {'; '.join(made)}." if made else "There are no runs."]
    if verification.aside:
        names = ", ".join(_plain(f"{name}: {reason}") for name, (_, reason) in verification.aside.items())
        parts.append(f"Left aside: {names}.")
    for table in _counts(verification):
        parts += [f"**{_plain(table.caption)}**", _markdown(table)]
    return "\n\n".join(parts)


def _failures(run: Run) -> str:
    failed = sum(sample.error is not None for sample in run.samples)
    return f", {failed} of {len(run.samples)} answers failed" if failed else ""


def write_summary(path: str | Path, text: str) -> None:
    """Replace what stands between the MARKERS of a file; raises ValueError where they are not there once, in order."""
    path = Path(path)
    parts = re.split("|".join(map(re.escape, MARKERS)), whole := path.read_text(encoding="utf-8"))
    if len(parts) != 3 or whole.find(MARKERS[0]) > whole.find(MARKERS[1]):
        raise InputError(f"{path}: needs the lines {MARKERS[0]} and {MARKERS[1]} once, where the summary is to stand")
    write_atomically(path, f"{parts[0]}{MARKERS[0]}\n\n{text.strip()}\n\n{MARKERS[1]}{parts[2]}")


def shown_claims(claims: pd.DataFrame) -> pd.DataFrame:
    """The claims that were run, as texts: the paper's number, ours with interval and n, the verdict."""
    return pd.DataFrame([_claim(row) for row in claims[claims["verdict"] != NOT_RUN].to_dict("records")])


def shown_orders(orders: pd.DataFrame) -> pd.DataFrame:
    """The comparisons that were run, as texts, as `shown_claims`."""
    return pd.DataFrame([_order(row) for row in orders[orders["verdict"] != NOT_RUN].to_dict("records")])


def _tables(verification: Verification) -> list[Table]:
    """Every table of the page, in its order."""
    claims, orders = verification.claims, verification.orders
    tables = _counts(verification, by_kind=True)
    runs = [_described(name, run) for name, run in verification.runs.items()]
    tables.append(Table("The runs", pd.DataFrame(runs or [{"run": "there are none"}])))
    aside = [_described(name, run) | {"why": reason} for name, (run, reason) in verification.aside.items()]
    tables.append(Table("Runs left aside", pd.DataFrame(aside)))
    for model in dict.fromkeys(orders["our_model"]):
        of_model = orders[orders["our_model"] == model]
        with_model = f", with {model}" if model else ""
        tables.append(Table(f"The papers' comparisons on {OWN}{with_model}", shown_orders(of_model)))
        tables.append(_reasons(f"Comparisons not run on {OWN}{with_model}", of_model, "comparisons"))
    tables.append(Table("The papers' claims that were run", shown_claims(claims)))
    tables.append(_reasons("Claims not run", claims, "claims"))
    for paper, of_paper in claims[claims["verdict"] == NOT_RUN].groupby("paper", sort=False):
        rows = [_unrun(row) for row in of_paper.to_dict("records")]
        tables.append(Table(f"Each claim of {paper} that was not run", pd.DataFrame(rows), folded=True))
    without = [
        {"paper's method": method, "without": part, "ours": " ".join([ours, *(f"{k}={v}" for k, v in given.items())])}
        for (method, part), (ours, given) in left_out().items()
    ]
    tables.append(Table("How the papers' ablations are read as settings of ours", pd.DataFrame(without)))
    return [table for table in tables if len(table.frame)]


def _counts(verification: Verification, *, by_kind: bool = False) -> list[Table]:
    return [
        _counted("The papers' claims, on their data sets", verification.claims, ["paper", *(["kind"] * by_kind)]),
        _counted(f"The papers' comparisons, tested on {OWN}", verification.orders, ["our_model", "paper", "about"]),
    ]


def _counted(caption: str, rows: pd.DataFrame, by: Sequence[str]) -> Table:
    """The verdicts counted; those that no row has are left out."""
    counts = count_verdicts(rows, by)
    counts = counts.drop(columns=[verdict for verdict in RULES if not counts[verdict].any()]).replace("", "–")
    heads = {"rows": "claimed", "our_model": "our model", "other_model": "run with another model"}
    return Table(caption, counts.rename(columns=heads))


def _reasons(caption: str, rows: pd.DataFrame, what: str) -> Table:
    missing = rows[rows["verdict"] == NOT_RUN]
    counted = missing.groupby(["paper", "reason"], sort=False).size().reset_index(name=what)
    return Table(caption, counted.rename(columns={"reason": "why"}))


def _described(name: str, run: Run) -> dict[str, str]:
    info = run.info
    return {
        "run": name,
        "data set": run.label,
        "model": model_of(run),
        "retriever": str(info.retriever.get("name", "–")),
        "questions": f"{info.dataset.questions} ({_SELECTIONS.get(info.dataset.selection, info.dataset.selection)})",
        "corpus": _CORPORA.get(info.dataset.corpus, info.dataset.corpus),
        "methods": str(len(run.methods)),
        "failed answers": str(sum(sample.error is not None for sample in run.samples)),
        "status": info.status,
        "commit": info.git.get("commit", "–")[:12] + (" with changes" if info.git.get("dirty") else ""),
    }


def _claim(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        **_about(row),
        "data set": dataset_label(row["dataset"]),
        "metric": METRIC_LABELS.get(row["metric"], row["metric"]),
        "paper's model": row["model"],
        "paper": _theirs(row),
        "our model": row["our_model"],
        "ours": _ours(row),
        **_tested(row),
        "verdict": _verdict(row),
        "size of the difference": row["size"] or "–",
        "run": _origin(row),
    }


def _order(row: Mapping[Any, Any]) -> dict[str, str]:
    span = "–"
    if not math.isnan(row["least"]):
        span = f"{row['least']:+.1f}" + (f" to {row['most']:+.1f}" if row["most"] > row["least"] else "")
    unsupported = f"; {row['unsupported']} not in its cells" if row["unsupported"] else ""
    return {
        **_about(row),
        "metric": METRIC_LABELS.get(row["metric"], row["metric"]),
        "paper's data sets": row["datasets"] or "–",
        "paper's models": row["models"],
        "paper": f"{span} ({row['claimed']} claimed{unsupported})",
        "ours": _ours(row),
        **_tested(row),
        "p (Holm)": p_text(row["p_holm"]),
        "detectable": "–" if math.isnan(row["detectable"]) else f"{row['detectable']:{_spec(row, sign='')}}",
        "verdict": _verdict(row),
        "run": _origin(row),
    }


def _unrun(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        **_about(row),
        "data set": dataset_label(row["dataset"]) or "–",
        "metric": METRIC_LABELS.get(row["metric"], row["metric"]),
        "paper's model": row["model"],
        "paper": _theirs(row),
        "why": row["reason"],
    }


def _about(row: Mapping[Any, Any]) -> dict[str, str]:
    about = f"{row['paper']}, {row['source']}"
    if row["other"]:
        return {"claim": order_label(row), "source": about}
    method = method_label(row["method"])
    return {"claim": f"{method} [{row['setting']}]" if row["setting"] else method, "source": about}


def _theirs(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["value"]):
        return "above 0" if row["supported"] else "above 0, but not in its cells"
    sign = "+" if row["other"] else ""
    return f"{row['value']:{sign}.{row['decimals']}f} ± {row['tolerance']:g}"


def _ours(row: Mapping[Any, Any]) -> str:
    unit = {"cost": " $", "seconds": " s"}[row["metric"]] if row["metric"] in UNSCALED else ""
    text = interval_text(row["ours"], row["low"], row["high"], scale=1, spec=_spec(row, "+" if row["other"] else ""))
    return text + unit + (DISAGREE if disagree(row["low"], row["high"], row["p"], _ALPHA) else "")


def _spec(row: Mapping[Any, Any], sign: str) -> str:
    return f"{sign}.{4 if row['metric'] == 'cost' else 1}f"


def _tested(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        "n": str(row["n"]) + (f" ({row['failed']} failed)" if row["failed"] else ""),
        "questions": _SELECTIONS.get(row["selection"], row["selection"]),
        "corpus": _CORPORA.get(row["corpus"], row["corpus"]),
        "p": p_text(row["p"]),
    }


def _verdict(row: Mapping[Any, Any]) -> str:
    said = [f"{SIGNS[row['verdict']]} {row['verdict']}"]
    if row.get("same_model") is False:
        said.append("other model")
    if row["other"] and row["corpus"] in NOT_THEIRS and row["dataset"] != OWN:
        said.append(OTHER_CORPUS)
    return "; ".join([*said, row["reason"]] if row["reason"] else said)


def _origin(row: Mapping[Any, Any]) -> str:
    of_other = f" in {row['other_run']}" if row["other_run"] else ""
    methods = f"{row['our_method']} - {row['our_other']}{of_other}" if row["our_other"] else row["our_method"]
    commit = f" @ {row['commit']}" if row["commit"] else ""
    return f"{row['run']}{commit}: {methods}, {row['retriever'] or 'unknown retriever'}"


def _markdown(table: Table) -> str:
    return markdown(table.frame.astype(str).map(_plain).rename(columns=_plain))


def _plain(text: str) -> str:
    """A text on one line in which nothing is markup, of HTML or of Markdown; bars are left to the table."""
    line = escape(" ".join(sound(text).split()), quote=False)
    line = re.sub(r"([\\`*\[\]~])", r"\\\1", line)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)
