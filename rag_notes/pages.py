"""Pages in Markdown whose numbers commands write: what stands between two markers is what the command prints.

    <!-- rag-notes calls dataset=mini -->
    ...
    <!-- end -->

Several commands may be joined by `&&`; what the last one prints is shown.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rag_notes.files import write_atomically
from rag_notes.types import InputError

_BLOCK = re.compile(r"^<!-- (rag-notes [^\n]*?) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)

Main = Callable[[Sequence[str]], int]


def renew(path: Path, main: Main, *, check: bool = False) -> list[str]:
    """Run the commands of a page and put what they print between their markers; returns those whose output changed.

    With `check` the page stays as it is. Each block finds an empty folder of runs, as in a fresh clone. Raises
    InputError where the page has no block, or a command fails.
    """
    text = path.read_text(encoding="utf-8")
    changed: list[str] = []

    def written(match: re.Match[str]) -> str:
        with tempfile.TemporaryDirectory() as runs, _environment("RAG_NOTES_RUNS", runs):
            shown = _output(match[1], main, path)
        if shown != match[2].strip():
            changed.append(match[1])
        return f"<!-- {match[1]} -->\n\n{shown}\n\n<!-- end -->"

    renewed, blocks = _BLOCK.subn(written, text)
    if not blocks:
        raise InputError(f"{path}: has no block; one begins with <!-- rag-notes COMMAND --> and ends in <!-- end -->")
    if changed and not check:
        write_atomically(path, renewed)
    return changed


def _output(commands: str, main: Main, path: Path) -> str:
    printed = io.StringIO()
    for command in commands.split("&&"):
        name, *arguments = shlex.split(command) or [""]
        if name != "rag-notes":
            raise InputError(
                f"{path}: {command.strip()!r} in a marker is no command of rag-notes; begin it with rag-notes"
            )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                code: object = main(arguments)
            except SystemExit as refused:  # for an option that the parser does not know
                code = refused.code
        if code:
            raise InputError(f"{path}: {command.strip()} ended with code {code}; mend it, or the marker that names it")
    return printed.getvalue().strip()


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
