"""Texts of others on a terminal: of models, servers, data sets and run folders."""

import re
import sys
from typing import TextIO

# All that steers a terminal or turns the order of letters, and halves of surrogate pairs; line feed and tab stay.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with what a terminal would obey instead of showing it written out as its escape in Python."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def say(*texts: object, sep: str = " ", end: str = "\n", file: TextIO | None = None) -> None:
    """As `print`, with `visible` texts."""
    print(visible(sep.join(map(str, texts))), end=end, file=file or sys.stdout)
