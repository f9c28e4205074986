"""The methods as a table: what each is called, where it comes from, and what it costs at most."""

from collections.abc import Mapping
from typing import get_args

import pandas as pd

from rag_notes.methods.about import Family, about_of, settings_of
from rag_notes.running.describe import Method


def methods_frame(methods: Mapping[str, Method]) -> pd.DataFrame:
    """A row for each method, by family: name, label, source, and the most calls a question with these settings."""
    rows = []
    for name, method in methods.items():
        about = about_of(method)
        calls = "" if about.calls is None else about.calls(settings_of(method))
        rows.append([about.family, f"`{name}`", about.label, about.source, calls])
    families = list(get_args(Family))
    frame = pd.DataFrame(rows, columns=["family", "method", "called", "source", "calls at most"])
    return frame.sort_values("family", key=lambda column: column.map(families.index), kind="stable", ignore_index=True)
