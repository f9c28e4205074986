"""Reads examples with their data card, and reads and publishes the recipes and metrics of trainings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from rag_notes.files import checksum_of, write_atomically
from rag_notes.types import InputError

RECIPE, METRICS = "recipe.json", "metrics.json"


def read_examples(path: Path, responses: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the examples of a file in TRL's format, and their data card; `responses` are the fields to be learned.

    Raises InputError where the file or its card is missing, the file is not that of the card, or has other responses.
    """
    card_file = Path(f"{path}.card.json")
    card = _read(card_file, "`rag-notes training-data` makes the examples and their card")
    if not path.is_file() or card["sha256"] != checksum_of(path):
        raise InputError(f"{path}: is not the file of its card {card_file.name}; make both again")
    with path.open(encoding="utf-8", newline="\n") as file:
        examples: list[dict[str, Any]] = [json.loads(line) for line in file]
    if missing := [name for name in responses if name not in examples[0]]:
        raise InputError(f"{path}: its examples have no {', '.join(missing)}, which this training needs")
    return examples, card


def load_training(folder: str | Path) -> dict[str, Any]:
    """Read the folder of a training: its `name`, `settings`, `versions`, `data` (the data card) and `metrics`.

    Raises InputError where it holds none, or one that is not finished.
    """
    recipe, metrics = (_read(Path(folder) / name, "`rag-notes train` writes it") for name in (RECIPE, METRICS))
    if "after" not in metrics:
        raise InputError(f"{folder}: is not finished; run the command that began it again")
    return {"name": Path(folder).resolve().name, **recipe, "metrics": metrics}


def publish_training(folder: str | Path, into: str | Path) -> Path:
    """Write recipe and metrics to the folder `into`/trainings/NAME, which is returned, without the user's paths.

    Raises InputError as `load_training`.
    """
    training = load_training(folder)
    target = Path(into) / "trainings" / str(training.pop("name"))
    write_json(target / METRICS, training.pop("metrics"))
    training["data"].pop("tests", None)  # options, which may have paths
    for settings, name in ((training["settings"], "base_model"), (training["data"].get("settings", {}), "scorer")):
        if PurePath(settings.get(name) or "").is_absolute():  # a name on the Hub stays as it is
            settings[name] = PurePath(settings[name]).name
    write_json(target / RECIPE, training)
    return target


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write an object as a JSON file, whole or not at all."""
    write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _read(file: Path, hint: str) -> dict[str, Any]:
    if not file.is_file():
        raise InputError(f"{file.absolute()}: no such file; {hint}")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
