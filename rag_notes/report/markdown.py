"""Tables in Markdown."""

import pandas as pd


def markdown(frame: pd.DataFrame, *, missing: str = "–") -> str:
    """A table in Markdown with the columns' names as its head; numbers as they are, `missing` where nothing is known.

    Vertical bars and line breaks are written so that they do not end a cell. The index is left out.
    """
    heads = [_cell(name) for name in frame.columns]
    rows = [[missing if pd.isna(value) else _cell(value) for value in row] for row in frame.itertuples(index=False)]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
