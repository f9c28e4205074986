"""Reads and writes examples with their data card, and the recipes and metrics of trainings."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from rag_notes.files import SHIPPED, checksum_of, write_atomically
from rag_notes.training.examples import Batch
from rag_notes.types import InputError

RECIPE, METRICS = "recipe.json", "metrics.json"


def card_of(path: Path) -> Path:
    """Return where the data card of a file of examples lies."""
    return path.with_name(f"{path.name}.card.json")


def write_examples(path: Path, batch: Batch, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the examples to `path`, one a line, and their data card beside it; returns the card.

    The card has `about`, the sizes by stage, what was dropped by stage and reason, the examples of each kind, a
    histogram (lower and upper bound, number) and the SHA-256 of the file. Raises InputError without any example.
    """
    dropped = {stage: dict(sorted(reasons.items())) for stage, reasons in sorted(batch.dropped.items())}
    if not batch.examples:
        reasons = "; ".join(f"{stage}: {counts}" for stage, counts in dropped.items()) or "none were asked"
        raise InputError(f"{path}: no examples came of {batch.questions} questions ({reasons})")
    write_atomically(path, "".join(json.dumps(example, ensure_ascii=False) + "\n" for _, example in batch.examples))
    counts, edges = np.histogram(batch.values, bins=20) if batch.values else (np.empty(0), np.empty(1))
    card = dict(about) | {
        "questions": batch.questions,
        "sizes": dict(sorted(Counter(example["stage"] for _, example in batch.examples).items())),
        "dropped": dropped,
        "kinds": dict(sorted(Counter(kind for kind, _ in batch.examples if kind).items())),
        "histogram": np.column_stack([edges[:-1], edges[1:], counts]).round(4).tolist(),
        "sha256": checksum_of(path),
    }
    write_json(card_of(path), card)
    return card


def read_examples(path: Path, responses: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the examples of a file in TRL's format, and their data card; `responses` are the fields to be learned.

    Raises InputError, with file and line, where the file or its card is missing, the file is not that of the card, or
    an example lacks a field.
    """
    card = _read(card_of(path), "`rag-notes training-data` makes the examples and their card")
    if not path.is_file() or card.get("sha256") != checksum_of(path):
        raise InputError(f"{path}: is not the file of its card {card_of(path).name}; make both again")
    with path.open(encoding="utf-8", newline="\n") as file:
        examples: list[dict[str, Any]] = [json.loads(line) for line in file]
    for number, example in enumerate(examples, 1):
        if missing := [name for name in ("stage", "question_id", "prompt", *responses) if not example.get(name)]:
            raise InputError(f"{path}, line {number}: has no {', '.join(missing)}, which this training needs")
    return examples, card


def card_table(card: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each stage of a data card: its examples, and how many samples were dropped for which reason."""
    dropped = {stage: "; ".join(f"{why}: {n}" for why, n in part.items()) for stage, part in card["dropped"].items()}
    table = pd.DataFrame({"examples": pd.Series(card["sizes"]), "dropped": pd.Series(dropped, dtype=str)})
    return table.fillna({"examples": 0, "dropped": ""}).astype({"examples": int}).rename_axis("stage").reset_index()


@dataclass(frozen=True)
class Training:
    """A finished training: its settings, the data card of its examples, the versions, and the metrics of `train`."""

    name: str
    settings: Mapping[str, Any]
    card: Mapping[str, Any]
    versions: Mapping[str, str]
    metrics: Mapping[str, Any]


def load_training(folder: str | Path) -> Training:
    """Read the folder of a training. Raises InputError where it holds none, or one that is not finished."""
    hint = "`rag-notes train` writes it"
    recipe, metrics = (_read(Path(folder) / name, hint) for name in (RECIPE, METRICS))
    if missing := [name for name in ("settings", "versions", "data") if name not in recipe]:
        raise InputError(f"{Path(folder) / RECIPE}: has no {', '.join(missing)}; {hint}")
    if "after" not in metrics:
        raise InputError(f"{folder}: is not finished; run the command that began it again")
    return Training(Path(folder).resolve().name, recipe["settings"], recipe["data"], recipe["versions"], metrics)


def is_training(folder: str | Path) -> bool:
    """Return whether a folder is that of a training rather than of a run."""
    return (Path(folder) / RECIPE).is_file()


def published_trainings() -> list[Path]:
    """Return the folders of the trainings that come with the project, by name."""
    return sorted(file.parent for file in SHIPPED.glob(f"data/results/trainings/*/{RECIPE}"))


def publish_training(folder: str | Path, into: str | Path) -> Path:
    """Write recipe and metrics to the folder `into`/trainings/NAME, which is returned, without the user's paths.

    Raises InputError as `load_training`.
    """
    training = load_training(folder)
    target = Path(into) / "trainings" / training.name
    card = {name: value for name, value in training.card.items() if name != "tests"}
    if scorer := card.get("settings", {}).get("scorer"):
        card["settings"] = card["settings"] | {"scorer": _model_name(scorer)}
    settings = {**training.settings, "base_model": _model_name(training.settings["base_model"])}
    write_json(target / RECIPE, {"settings": settings, "versions": training.versions, "data": card})
    write_json(target / METRICS, training.metrics)
    return target


def _model_name(model: str) -> str:
    """Return a model without the user's folders; a name on the Hub stays as it is."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


def _read(file: Path, hint: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else f"is no JSON ({error})"
        raise InputError(f"{file.absolute()}: {problem}; {hint}") from None
    return content


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write an object as a JSON file, whole or not at all."""
    write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
