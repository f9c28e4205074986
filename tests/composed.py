"""What a choice of `conf` composes to, and the function that it names."""

import importlib
from collections.abc import Callable
from typing import Any

from rag_notes.config import (
    load_config,
)


def target(settings: dict[str, Any]) -> Callable[..., Any]:
    module, _, name = settings["_target_"].rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def composed(group: str, choice: str) -> dict[str, Any]:
    options = [f"{group}={choice}"] + ([f"baseline={choice}"] if group == "method" else [])
    chosen: dict[str, Any] = getattr(load_config(options), group)
    if group in {"retriever", "llm"}:
        return chosen
    if group == "dataset":  # a part of the questions is taken when they are read, whatever reads them
        assert (chosen[choice].pop("offset"), chosen[choice].pop("limit")) == (0, None)
    settings: dict[str, Any] = chosen[choice]
    return settings
