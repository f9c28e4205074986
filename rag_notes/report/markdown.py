"""Tables in Markdown."""

import pandas as pd


def markdown(frame: pd.DataFrame, *, index: bool = False) -> str:
    """Lay out a frame as a pipe table, its cells as text; a cell's own pipes are escaped."""
    shown = frame.reset_index() if index else frame
    rows = [list(map(str, shown.columns)), ["---"] * len(shown.columns)]
    rows += [[str(cell).replace("|", "\\|") for cell in row] for row in shown.itertuples(index=False)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows).replace("| --- |", "|---|")
