"""What is printed: texts of others (models, servers, data sets, run folders), and how far a run is."""

import re
import sys
from typing import Any, TextIO

from tqdm import tqdm

# All that steers a terminal or turns the order of letters, and halves of surrogate pairs; line feed and tab stay.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with what a terminal would obey instead of showing it written out as its escape in Python."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def say(*texts: object, sep: str = " ", end: str = "\n", file: TextIO | None = None) -> None:
    """As `print`, with `visible` texts."""
    print(visible(sep.join(map(str, texts))), end=end, file=file or sys.stdout)


class _PlainLines:
    """Takes what a progress bar draws over and over, and prints it as lines."""

    def write(self, text: str) -> None:
        if line := text.strip():
            print(f"… {line}", file=sys.stderr, flush=True)


def progress_bar(title: str, total: int, *, unit: str, disable: bool = False, interval: float = 30.0) -> "tqdm[Any]":
    """A progress bar; where standard error is no terminal, a plain line every `interval` seconds."""
    lines: dict[str, Any] = {"file": _PlainLines(), "delay": interval, "mininterval": interval, "miniters": 1}
    lines["bar_format"] = "{desc}: {n_fmt} of {total_fmt} {unit}s, {elapsed}<{remaining}{postfix}"
    return tqdm(desc=title, total=total, unit=unit, disable=disable, **({} if sys.stderr.isatty() else lines))


def tell(bar: "tqdm[Any]", text: str) -> None:
    """Print a line above a progress bar, as one of its own where there is no terminal; nothing where it is disabled."""
    if not bar.disable:
        bar.write(f"… {visible(text)}", file=sys.stderr)
