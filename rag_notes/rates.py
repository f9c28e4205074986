"""What a million tokens of a model cost and take: the tables conf/prices.yaml and conf/speeds.yaml."""

from dataclasses import dataclass
from functools import cache

import yaml

from rag_notes.llm.usage import Price
from rag_notes.options import CONF


@dataclass(frozen=True, slots=True)
class Rate(Price):
    """What a million tokens cost or take, when that was so, and who says it."""

    date: str
    source: str


@cache
def load_prices() -> dict[str, Rate]:
    """The prices of models, in US dollars."""
    return _rates("prices")


@cache
def load_speeds() -> dict[str, Rate]:
    """The measured speeds of models, in seconds of computing."""
    return _rates("speeds")


def _rates(name: str) -> dict[str, Rate]:
    table = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    return {model: Rate(**rate) for model, rate in table.items()}
