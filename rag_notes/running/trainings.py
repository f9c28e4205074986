"""What `rag-notes train` left in a folder, read again and given away: recipe and metrics, without the weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rag_notes.files import write_atomically
from rag_notes.running.records import RecordError
from rag_notes.running.run_files import PUBLISHED

RECIPE, METRICS = "recipe.json", "metrics.json"


@dataclass(frozen=True)
class Training:
    """A finished training: its settings, the data card of its examples, the versions, and what was measured.

    `metrics` has `before` and `after` on the examples held out, `steps`, the numbers of examples, and `log`, an entry
    for each step.
    """

    name: str
    settings: Mapping[str, Any]
    card: Mapping[str, Any]
    versions: Mapping[str, str]
    metrics: Mapping[str, Any]


def load_training(folder: str | Path) -> Training:
    """Read the folder of a training. Raises RecordError where it holds none, or one that is not finished."""
    recipe, metrics = (_read(Path(folder) / name) for name in (RECIPE, METRICS))
    if lacking := [name for name in ("settings", "versions", "data") if name not in recipe]:
        raise RecordError(f"{Path(folder) / RECIPE}: has no {', '.join(lacking)}; `rag-notes train` writes it")
    if "after" not in metrics:
        raise RecordError(f"{folder}: is not finished; the command that began it finishes it")
    return Training(Path(folder).resolve().name, recipe["settings"], recipe["data"], recipe["versions"], metrics)


def published_trainings() -> list[Path]:
    """The folders of the trainings that come with the project, by name."""
    return sorted(file.parent for file in PUBLISHED.glob(f"trainings/*/{RECIPE}"))


def publish_training(folder: str | Path, into: str | Path) -> Path:
    """Write recipe and metrics to a folder of the same name below `into`/trainings; returns it.

    Of absolute paths the last part stays; the options of the test questions, which hold paths, do not. Raises
    RecordError as `load_training`.
    """
    training = load_training(folder)
    target = Path(into) / "trainings" / training.name
    settings = {**training.settings, "base_model": _named(training.settings["base_model"])}
    card = {name: value for name, value in training.card.items() if name != "tests"}
    if scorer := card.get("settings", {}).get("scorer"):
        card["settings"] = card["settings"] | {"scorer": _named(scorer)}
    recipe = {"settings": settings, "versions": dict(training.versions), "data": card}
    for name, content in ((RECIPE, recipe), (METRICS, dict(training.metrics))):
        write_atomically(target / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return target


def card_rows(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each stage of a data card: stage, examples, and `dropped`, the reasons with their numbers."""
    sizes, dropped = card.get("sizes", {}), card.get("dropped", {})
    return [
        {
            "stage": stage,
            "examples": sizes.get(stage, 0),
            "dropped": "; ".join(f"{reason}: {n}" for reason, n in dropped.get(stage, {}).items()),
        }
        for stage in sorted({*sizes, *dropped})
    ]


def _named(model: str) -> str:
    """A model without the user's folders; a name on the Hub, with its owner, stays as it is."""
    return PurePath(model).name if PurePath(model).is_absolute() else model


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{file.absolute()}: no such file; name a folder that `rag-notes train` wrote") from None
    except ValueError as error:
        raise RecordError(f"{file}: is no JSON ({error})") from None
    if not isinstance(content, dict):
        raise RecordError(f"{file}: expected an object, found {type(content).__name__}")
    return content
