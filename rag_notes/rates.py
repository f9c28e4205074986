"""What a million tokens of a model cost and take: the tables conf/prices.yaml and conf/speeds.yaml.

Files of these names in the folder one stands in add to the package's, and win.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from rag_notes.files import here
from rag_notes.llm.client import Price
from rag_notes.options import CONF
from rag_notes.types import InputError

PRICED = "gpt-4o-mini"
"""At whose price tokens are counted where costs are compared and a model has none."""


@dataclass(frozen=True, slots=True)
class Rate(Price):
    """What a million tokens cost or take, when that was so, and who says it."""

    date: str
    source: str


def load_prices() -> dict[str, Rate]:
    """The prices of models, in US dollars. Raises InputError where a file is not such a table."""
    return _load("prices.yaml")


def load_speeds() -> dict[str, Rate]:
    """The measured speeds of models, in seconds of computing. Raises InputError where a file is not such a table."""
    return _load("speeds.yaml")


def _load(name: str) -> dict[str, Rate]:
    shipped, own = CONF / name, here() / "conf" / name
    return _read(shipped, _changed(shipped)) | (_read(own, _changed(own)) if own != shipped and own.is_file() else {})


def _changed(file: Path) -> int:
    return file.stat().st_mtime_ns


@cache  # every answer of a comparison by cost asks for a rate
def _read(file: Path, changed: int) -> dict[str, Rate]:
    del changed
    try:
        with file.open(encoding="utf-8") as stream:  # whose name stands in YAML's errors
            return _TABLE.validate_python(yaml.safe_load(stream) or {})
    except ValidationError as error:
        first = error.errors()[0]
        problem = ": ".join([*map(str, first["loc"]), first["msg"]])
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
    raise InputError(
        f"{file}: {problem}; a line is meant such as "
        'NAME: {prompt: 0.15, completion: 0.6, date: "2026-01-31", source: "where this stands"}'
    )


_TABLE = TypeAdapter(dict[str, Rate])
