"""Figures have the letters that matplotlib brings along, whatever the list of fonts in the user's cache says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl

DRAW = """
import sys

import pandas as pd

from rag_notes.report.figures import save_figure
from rag_notes.studies.cost import pareto_figure

row = {"dataset": "made", "cost_metric": "calls", "score": 0.5, "score_low": 0.4, "score_high": 0.6, "n": 9}
points = [row | {"method": f"m{cost}", "cost": cost, "cost_low": cost, "cost_high": cost} for cost in (2, 3, 7)]
data = pd.DataFrame(points).assign(front=True)
save_figure(pareto_figure(data, "em"), data, sys.argv[1], "figure")
"""


def draw(cache: Path) -> tuple[bytes, str]:
    """The figure that a process with this cache of matplotlib's makes, and what it complains of."""
    environment = os.environ | {"MPLCONFIGDIR": str(cache)}
    result = subprocess.run(
        [sys.executable, "-c", DRAW, cache], env=environment, capture_output=True, text=True, check=True
    )
    return (cache / "figure.png").read_bytes(), result.stderr


def test_a_list_without_the_shipped_fonts_does_not_change_a_figure(tmp_path: Path) -> None:
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    sound.mkdir()
    expected, complaints = draw(sound)
    assert complaints == ""

    (fonts,) = sound.glob("fontlist*.json")
    listed = json.loads(fonts.read_text())
    other = shutil.copy(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSerif.ttf"), tmp_path / "other.ttf")
    (plain,) = (entry for entry in listed["ttflist"] if entry["fname"] == "fonts/ttf/DejaVuSans.ttf")
    listed["ttflist"] = [plain | {"fname": str(other)}]  # as left by a process whose environment was being removed
    broken.mkdir()
    (broken / fonts.name).write_text(json.dumps(listed))
    assert draw(broken) == (expected, "")
