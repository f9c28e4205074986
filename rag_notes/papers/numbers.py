"""The numbers that the papers print and what they claim, as tables, and our results beside them."""

from decimal import Decimal
from functools import cache
from pathlib import Path

import pandas as pd

from rag_notes.files import SHIPPED

PAPERS = ("deepnote", "adaptive_note", "amber", "chain_of_note")
"""The papers, each with a file of its cells in `data/paper/`."""

_FOLDER = SHIPPED / "data" / "paper"
_MAIN_TABLES = {"deepnote": "1", "adaptive_note": "1", "amber": "1", "chain_of_note": "2"}
_CELL = ["dataset", "method", "metric"]


def paper_cells() -> pd.DataFrame:
    """Return every number of the papers' tables as printed, a row a cell; `data/paper/README.md` says what they are.

    Columns: paper, table, row (the printed label), method, dataset, model, setting, metric, value, and `decimals`, how
    many are printed. Methods, data sets and metrics have this project's names, models those of the papers. `setting`
    holds `name=value` pairs joined by `;` for what the table varies. Scores are in %, `cost` in US dollars and
    `seconds` for a question; the rest are counts.
    """
    return pd.concat([_read(_FOLDER / f"{paper}.csv") for paper in PAPERS], ignore_index=True)


def paper_claims() -> pd.DataFrame:
    """Return what the papers claim, a row a claim; `data/paper/README.md` says how to read one.

    Columns: id, paper, source, kind, method, setting, other, other_setting, dataset, model, metric, value, tolerance,
    statement, and the `decimals` of value. Of kind `value`: the cell has this value. Of kind `order`: the cell of
    `method` and `setting` is larger than that of `other` and `other_setting`, by `value` unless it is NaN.
    """
    return _read(_FOLDER / "claims.csv").copy()


def corpus_sizes() -> pd.DataFrame:
    """Return how many passages the corpora have by their own documentation: dataset, passages, source."""
    return _read(_FOLDER / "corpora.csv").copy()


def paper_results() -> pd.DataFrame:
    """Return the cells of the papers' main tables, with the columns of `paper_cells`, values in %.

    They are Table 1 of DeepNote (`deepnote_dpo` is its +DPO), Adaptive-Note and Amber, and Table 2 of Chain-of-Note
    (Retrieve-Read is its baseline), without the rows of differences. They are as printed: DeepNote's `avg` of ASQA is
    in most rows not the mean of its two metrics.
    """
    cells = paper_cells()
    is_main = (cells["table"] == cells["paper"].map(_MAIN_TABLES)) & (cells["setting"] == "")
    return cells[is_main].reset_index(drop=True)


def beside_paper(results: pd.DataFrame) -> pd.DataFrame:
    """Return our cells beside the papers' of the same data set, method and metric, a row for each of theirs, in %.

    `results` is what `results` of the tables gave. Columns: dataset, method, metric, `ours` with `low`, `high` and
    `n`, then `paper`, `table`, `model`, `theirs` and `difference` (ours - theirs).
    """
    ours = results[[*_CELL, "n"]].assign(
        ours=100 * results["mean"], low=100 * results["low"], high=100 * results["high"]
    )
    paired = ours.merge(paper_results().rename(columns={"value": "theirs"}), on=_CELL)
    paired["difference"] = paired["ours"] - paired["theirs"]
    return paired[[*_CELL, "ours", "low", "high", "n", "paper", "table", "model", "theirs", "difference"]]


@cache
def _read(path: Path) -> pd.DataFrame:
    """A file of `data/paper/`: numbers as floats (an empty one NaN), everything else text (an empty one "")."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if "value" in table:
        # The decimals that are printed, trailing zeros and exponent included: 3 for 1.50E-1.
        table["decimals"] = [max(0, -int(Decimal(text or 0).as_tuple().exponent)) for text in table["value"]]
    numbers = [column for column in ("value", "tolerance", "passages") if column in table]
    return table.assign(**{column: [float(text or "nan") for text in table[column]] for column in numbers})
