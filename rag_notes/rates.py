"""What a million tokens of a model cost and take: the tables conf/prices.yaml and conf/speeds.yaml.

Files of these names in conf/ of the current folder add to the package's, and win.
"""

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from rag_notes.files import here
from rag_notes.llm.completion import Price
from rag_notes.options import CONF
from rag_notes.types import InputError

PRICED = "gpt-4o-mini"
"""At whose price tokens are counted where costs are compared and a model has none."""


@dataclass(frozen=True, slots=True)
class Rate(Price):
    """What a million tokens cost or take, on a date, and the source of these numbers."""

    date: str
    source: str


def _load(name: str) -> dict[str, Rate]:
    files = [file for file in (CONF / name, here() / "conf" / name) if file.is_file()]
    return {model: rate for file in files for model, rate in _read(file, file.stat().st_mtime_ns).items()}


@cache  # every answer of a comparison by cost asks for a rate
def _read(file: Path, _changed: int) -> dict[str, Rate]:
    try:
        with file.open(encoding="utf-8") as stream:  # whose name stands in YAML's errors
            return TypeAdapter(dict[str, Rate]).validate_python(yaml.safe_load(stream) or {})
    except ValidationError as error:
        problem = ": ".join([*map(str, error.errors()[0]["loc"]), error.errors()[0]["msg"]])
    except (ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
    example = 'NAME: {prompt: 0.15, completion: 0.6, date: "2026-01-31", source: "where this stands"}'
    raise InputError(f"{file}: {problem}; a line is meant such as {example}")


load_prices = partial(_load, "prices.yaml")
"""Return the prices of models, in US dollars. Raises InputError where a file is not such a table."""
load_speeds = partial(_load, "speeds.yaml")
"""Return the measured speeds of models, in seconds of computing. Raises InputError as `load_prices`."""
