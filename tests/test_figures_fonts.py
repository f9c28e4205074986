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

from rag_notes.report.figures import main_figure, save_figure

row = {"dataset": "made", "metric": "em", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 9, "significant": False}
data = pd.DataFrame([row | {"method": name, "baseline": "a", "confidence": 0.95} for name in "abc"])
save_figure(main_figure(data), data, sys.argv[1], "figure")
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
