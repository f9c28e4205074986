"""Tables as CSV, for spreadsheets and programs."""

import re
from pathlib import Path
from typing import Any

import pandas as pd

from rag_notes.files import write_atomically
from rag_notes.llm.errors import encodable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table without its index, numbers to six significant digits: the same table gives the same bytes.

    A text that a spreadsheet would take for a formula gets an apostrophe in front; one that is a number stays.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    harmless = frame.rename(columns=_no_formula)
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if any(_is_formula(cell) for cell in column):  # the others keep their type to the bit
            harmless.isetitem(place, [_no_formula(cell) for cell in column])
    write_atomically(path, encodable(harmless.to_csv(index=False, float_format="%.6g", lineterminator="\n")))
    return path


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if _is_formula(cell) else cell
