"""The words that the world is made of, as `language.yaml` has them."""

from dataclasses import dataclass
from pathlib import Path

import yaml

_LANGUAGE = yaml.safe_load(Path(__file__).with_name("language.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Relation:
    """What can be said of an entity of one kind; `language.yaml` says what the fields are."""

    name: str
    kind: str
    value: str
    sentences: tuple[str, ...]
    question: str
    phrase: str = ""


RELATIONS = {fields["name"]: Relation(**fields) for fields in _LANGUAGE["relations"]}
NOUNS: dict[str, list[str]] = _LANGUAGE["nouns"]
THINGS: list[str] = _LANGUAGE["things"]
OPENINGS: dict[str, list[str]] = _LANGUAGE["openings"]
FILLERS: dict[str, list[str]] = _LANGUAGE["fillers"]
SIGHTS: list[str] = _LANGUAGE["sights"]
