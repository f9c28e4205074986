"""The verification as pages (HTML and Markdown), as CSV, and its summary in a README."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from rag_notes.papers.forest import order_label
from rag_notes.papers.systems import WITHOUT, model_of
from rag_notes.papers.verification import (
    AGREES,
    DIFFERS,
    NOT_RUN,
    OWN,
    UNSCALED,
    WITHIN,
    count_verdicts,
    verify_claims,
    verify_orders,
)
from rag_notes.report.page import render, sound, style
from rag_notes.report.tables import METRIC_LABELS, write_csv
from rag_notes.running.records import RecordError, Run, load_runs, write_atomically

MARKERS = ("<!-- verification -->", "<!-- /verification -->")
"""What the summary stands between in a README."""

SIGNS: Mapping[str, str] = {AGREES: "✓", WITHIN: "≈", DIFFERS: "✗", NOT_RUN: "–"}

RULES: Mapping[str, str] = {
    AGREES: "A value: ours is within the paper's tolerance, which is how far a repetition on the paper's own number of "
    "questions may be off. An order: our difference is above 0, its 95 % interval excludes 0, and the paired "
    "permutation test gives p < .05.",
    WITHIN: "A value: ours is farther off, but our 95 % interval contains the paper's. An order: our difference is "
    "above 0, but these questions cannot tell it from 0.",
    DIFFERS: "Everything else that was run. Open are the orders among them of which these questions cannot tell our "
    "difference from 0: we do not find the order, but do not refute it either.",
    NOT_RUN: "No run has the data set, the method and the setting of the claim.",
}

LIMITS = (
    "The papers' models are rarely ours. A value measured with another model is the number of another system: its "
    "verdict is a distance, no test of the paper. An order may carry over from one model to another, which is what an "
    "order measured with another model tests. Both names stand in every row, and a verdict with another model says so. "
    "Names are compared by letters and digits alone; Chain-of-Note's LLaMa-2-7B is fine-tuned, whatever ours is.",
    "Even with the paper's model the prompts are our wording, and retriever and corpus are those of the run.",
    "Many orders are tested at once: where none held, about one in forty would still agree by chance. p (Holm) "
    "is corrected for all orders tested on our own data set with a model.",
    "Orders of seconds are those of the machine and server that answered; costs need the prices of a model.",
)

_HEADS = {AGREES: "agrees", WITHIN: "within interval", DIFFERS: "differs", "open": "of these open", NOT_RUN: "not run"}


class Table(NamedTuple):
    """A table of texts."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False


class Verification(NamedTuple):
    """What was verified: the runs by folder name, what `verify_claims` and `verify_orders` gave."""

    runs: dict[str, Run]
    claims: pd.DataFrame
    orders: pd.DataFrame


def verify(folders: Iterable[str | Path], *, resamples: int = 10_000) -> Verification:
    """Verify the papers' claims by these run folders. Raises RecordError where one is missing or malformed."""
    by_name = sorted((Path(folder).resolve() for folder in folders), key=lambda path: path.name)
    runs = load_runs(by_name)
    for folder, run in zip(by_name, runs.values(), strict=True):
        try:
            _described("", run)
            parts = [method["settings"] for method in run.info["settings"]["methods"].values() if "function" in method]
            bad = [part for part in parts if not isinstance(part, dict)]
        except (KeyError, TypeError, AttributeError) as error:
            bad = [repr(error)]
        if bad:
            raise RecordError(
                f"{folder / 'run.json'}: does not describe its data set, model and methods ({bad[0]}); move the "
                "folder away to run anew"
            )
    return Verification(runs, verify_claims(runs, resamples=resamples), verify_orders(runs, resamples=resamples))


def find_runs(folder: str | Path) -> list[Path]:
    """The run folders in a folder, by name."""
    return sorted(file.parent for file in Path(folder).glob("*/run.json"))


def write_verification(verification: Verification, folder: str | Path) -> list[Path]:
    """Write verification.html and .md, claims.csv and orders.csv (a row a claim or order, all columns) to `folder`.

    The same runs give the same bytes. Returns the four paths.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tables = _tables(verification)
    page = render("verification.html", tables=tables, rules=_rules(), limits=LIMITS, css=style())
    text = render(
        "verification.md",
        tables=[_in_markdown(table) for table in tables],
        rules={_markdown(verdict): _markdown(rule) for verdict, rule in _rules().items()},
        limits=[_markdown(limit) for limit in LIMITS],
    )
    write_atomically(folder / "verification.html", page)
    write_atomically(folder / "verification.md", text)
    return [
        folder / "verification.html",
        folder / "verification.md",
        write_csv(verification.claims, folder / "claims.csv"),
        write_csv(verification.orders, folder / "orders.csv"),
    ]


def summary(verification: Verification) -> str:
    """Return the verdicts counted by paper, for claims and for orders on our own data set, as Markdown."""
    made = [
        _markdown(f"{run.dataset} with {model_of(run)} ({_asked(run)} questions)") for run in verification.runs.values()
    ]
    return render(
        "verification_summary.md",
        made=list(dict.fromkeys(made)),
        tables=[_in_markdown(table) for table in _counts(verification)],
    )


def write_summary(path: str | Path, text: str) -> None:
    """Replace what stands between the MARKERS of a file; raises ValueError where they are not there once, in order."""
    path = Path(path)
    parts = re.split("|".join(map(re.escape, MARKERS)), whole := path.read_text(encoding="utf-8"))
    if len(parts) != 3 or whole.find(MARKERS[0]) > whole.find(MARKERS[1]):
        raise ValueError(f"{path}: needs the lines {MARKERS[0]} and {MARKERS[1]} once, where the summary is to stand")
    write_atomically(path, f"{parts[0]}{MARKERS[0]}\n\n{text.strip()}\n\n{MARKERS[1]}{parts[2]}")


def shown_claims(claims: pd.DataFrame) -> pd.DataFrame:
    """Return the claims that were run, as texts: the paper's number, ours with interval and n, the verdict."""
    rows = claims[claims["verdict"] != NOT_RUN].to_dict("records")
    return pd.DataFrame([_claim(row) for row in rows], columns=list(_claim(claims.iloc[0].to_dict())))


def shown_orders(orders: pd.DataFrame) -> pd.DataFrame:
    """Return the orders that were run, as texts, as `shown_claims`."""
    rows = orders[orders["verdict"] != NOT_RUN].to_dict("records")
    return pd.DataFrame([_order(row) for row in rows], columns=list(_order(orders.iloc[0].to_dict())))


def _rules() -> dict[str, str]:
    return {f"{SIGNS[verdict]} {verdict}": rule for verdict, rule in RULES.items()}


def _tables(verification: Verification) -> list[Table]:
    """Every table of the page, in its order."""
    claims, orders = verification.claims, verification.orders
    tables = _counts(verification, by_kind=True)
    runs = [_described(name, run) for name, run in verification.runs.items()]
    tables.append(_texts("The runs", runs or [{"run": "there are none"}]))
    for model in dict.fromkeys(orders["our_model"]):
        of_model = orders[orders["our_model"] == model]
        run = [_order(row) for row in of_model.to_dict("records") if row["verdict"] != NOT_RUN]
        if run:
            tables.append(_texts(f"The papers' orders on {OWN}, with {model}", run))
        missing = of_model[of_model["verdict"] == NOT_RUN]
        if not missing.empty:
            with_model = f", with {model}" if model else ""
            tables.append(_reasons(f"Orders not run on {OWN}{with_model}", missing, "orders"))
    run = [_claim(row) for row in claims.to_dict("records") if row["verdict"] != NOT_RUN]
    if run:
        tables.append(_texts("The papers' claims that were run", run))
    tables.append(_reasons("Claims not run", claims[claims["verdict"] == NOT_RUN], "claims"))
    for paper, of_paper in claims[claims["verdict"] == NOT_RUN].groupby("paper", sort=False):
        rows = [_unrun(row) for row in of_paper.to_dict("records")]
        tables.append(_texts(f"Each claim of {paper} that was not run", rows, folded=True))
    without = [
        {"paper's method": method, "without": part, "ours": " ".join([ours, *(f"{k}={v}" for k, v in given.items())])}
        for (method, part), (ours, given) in WITHOUT.items()
    ]
    tables.append(_texts("How the papers' ablations are read as settings of ours", without))
    return [table for table in tables if table.rows]


def _counts(verification: Verification, *, by_kind: bool = False) -> list[Table]:
    claims = count_verdicts(verification.claims, ["paper", "kind"] if by_kind else ["paper"])
    orders = count_verdicts(verification.orders, ["our_model", "paper", "about"])
    heads = {"paper": "paper", "kind": "kind", "rows": "claims", **_HEADS, "other_model": "run with another model"}
    of_orders = {"our_model": "our model", "paper": "paper", "about": "about", "rows": "orders", **_HEADS}
    return [
        _renamed("The papers' claims, on their data sets", claims, heads),
        _renamed(f"The papers' orders, tested on {OWN}", orders, of_orders),
    ]


def _renamed(caption: str, counts: pd.DataFrame, heads: Mapping[str, str]) -> Table:
    shown = {column: head for column, head in heads.items() if column in counts}
    rows = [[str(row[column]) or "–" for column in shown] for row in counts.to_dict("records")]
    return Table(caption, list(shown.values()), rows)


def _reasons(caption: str, missing: pd.DataFrame, what: str) -> Table:
    counted = missing.groupby(["paper", "reason"], sort=False).size().reset_index(name=what)
    return Table(caption, ["paper", "why", what], [[str(value) for value in row] for row in counted.to_numpy()])


def _texts(caption: str, rows: Sequence[Mapping[str, str]], *, folded: bool = False) -> Table:
    return Table(caption, list(rows[0]), [list(row.values()) for row in rows], folded)


def _described(name: str, run: Run) -> dict[str, str]:
    git = run.info.get("git", {})
    return {
        "run": name,
        "data set": run.dataset,
        "model": model_of(run),
        "retriever": str(run.info["settings"].get("retriever", {}).get("name", "–")),
        "questions": _asked(run),
        "methods": str(len(run.methods)),
        "failed answers": str(sum(sample["error"] is not None for sample in run.samples)),
        "status": str(run.info.get("status", "–")),
        "commit": git.get("commit", "–")[:12] + (" with changes" if git.get("dirty") else ""),
    }


def _asked(run: Run) -> str:
    return str(run.info["dataset"].get("questions", len({sample["question_id"] for sample in run.samples})))


def _claim(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        **_about(row),
        "data set": row["dataset"],
        "metric": METRIC_LABELS.get(row["metric"], row["metric"]),
        "paper's model": row["model"],
        "paper": _theirs(row),
        "our model": row["our_model"],
        "ours": _ours(row),
        **_tested(row),
        "verdict": _verdict(row) + ("" if row["same_model"] else "; other model"),
        "size of the order": row["size"] or "–",
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
        "p (Holm)": _p(row["p_holm"]),
        "verdict": _verdict(row),
        "run": _origin(row),
    }


def _unrun(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        **_about(row),
        "data set": row["dataset"] or "–",
        "metric": METRIC_LABELS.get(row["metric"], row["metric"]),
        "paper's model": row["model"],
        "paper": _theirs(row),
        "why": row["reason"],
    }


def _about(row: Mapping[Any, Any]) -> dict[str, str]:
    about = f"{row['paper']}, {row['source']}"
    if row["other"]:
        return {"claim": order_label(row), "source": about}
    return {"claim": f"{row['method']} [{row['setting']}]" if row["setting"] else row["method"], "source": about}


def _theirs(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["value"]):
        return "above 0" if row["supported"] else "above 0, but not in its cells"
    sign = "+" if row["other"] else ""
    return f"{row['value']:{sign}.{row['decimals']}f} ± {row['tolerance']:g}"


def _ours(row: Mapping[Any, Any]) -> str:
    if row["verdict"] == NOT_RUN:
        return "–"
    kind = f"{'+' if row['other'] else ''}.{4 if row['metric'] == 'cost' else 1}f"
    interval = "no interval" if math.isnan(row["low"]) else f"[{row['low']:{kind}}, {row['high']:{kind}}]"
    unit = {"cost": " $", "seconds": " s"}[row["metric"]] if row["metric"] in UNSCALED else ""
    return f"{row['ours']:{kind}} {interval}{unit}"


def _tested(row: Mapping[Any, Any]) -> dict[str, str]:
    n = "–" if row["verdict"] == NOT_RUN else str(row["n"]) + (f" ({row['failed']} failed)" if row["failed"] else "")
    return {"n": n, "p": _p(row["p"])}


def _p(p: float) -> str:
    return "–" if math.isnan(p) else "< .001" if p < 0.001 else f"{p:.3f}"


def _verdict(row: Mapping[Any, Any]) -> str:
    return f"{SIGNS[row['verdict']]} {row['verdict']}" + ("; open" if row["open"] else "")


def _origin(row: Mapping[Any, Any]) -> str:
    of_other = f" in {row['other_run']}" if row["other_run"] else ""
    methods = f"{row['our_method']} - {row['our_other']}{of_other}" if row["our_other"] else row["our_method"]
    commit = f" @ {row['commit']}" if row["commit"] else ""
    return f"{row['run']}{commit}: {methods}, {row['retriever'] or 'unknown retriever'}"


def _in_markdown(table: Table) -> Table:
    rows = [[_markdown(text) for text in row] for row in table.rows]
    return Table(_markdown(table.caption), [_markdown(head) for head in table.heads], rows, table.folded)


def _markdown(text: str) -> Markup:
    """A text on one line in which nothing is markup, of HTML or of Markdown."""
    line = escape(" ".join(sound(text).split()), quote=False)
    line = re.sub(r"([\\`*\[\]|~])", r"\\\1", line)
    return Markup(re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line))
