"""Options are completed in a shell, and a launcher that is not installed is named with what installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

from rag_notes.options import explain


def completed(line: str, shell: str, folder: Path) -> list[str]:
    """What the command offers to a shell that asks as argcomplete's function for it does."""
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": shell,
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><;|&(=:" if shell == "bash" else "",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "offered"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    code = "from rag_notes.cli import main; main()"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return (folder / "offered").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("line", "shell", "offered"),
    [
        ("rag-notes ver", "bash", ["verify"]),
        ("rag-notes run dataset=mu", "bash", ["musique"]),  # bash breaks words at `=`
        ("rag-notes run method.deepnote.max_s", "bash", ["method.deepnote.max_step="]),
        ("rag-notes run dataset=mu", "zsh", ["dataset=musique"]),
    ],
)
def test_commands_and_options_are_completed(line: str, shell: str, offered: list[str], tmp_path: Path) -> None:
    found = completed(line, shell, tmp_path)
    assert [each.partition(":")[0].strip() for each in found] == offered  # zsh gets a description, too


def test_a_launcher_that_is_not_installed_is_named_with_its_extra() -> None:
    error = HydraException("In 'hydra/config': Could not find 'hydra/launcher/submitit_slurm'")
    said = explain(error, ["limit=1,2", "hydra/launcher=submitit_slurm"])
    assert said == 'hydra/launcher=submitit_slurm: is not installed; pip install "rag-notes[slurm]"'
