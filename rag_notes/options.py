"""The options that conf/ offers: what there is to choose from, and what a wrong one may have meant."""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import yaml

from rag_notes.files import SHIPPED

CONF = SHIPPED / "conf"
GROUPS = ("study", "dataset", "corpus", "method", "retriever", "llm")
_LAUNCHERS = {"joblib": "joblib", "ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""Hydra's launchers with the extra that installs each."""


def choices(group: str) -> list[str]:
    """Return the names that a configuration group offers."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.4) -> str:
    """Return `; did you mean ...?` with the nearest of the names, or nothing where none is near."""
    near = get_close_matches(name, [*names], n=3, cutoff=cutoff)
    return f"; did you mean {', '.join(near)}?" if near else ""


def with_new_methods(options: Sequence[str]) -> list[str]:
    """Mark settings of a method that conf/ does not have as new, as Hydra wants it: `++method.mine.top_k=3`."""
    new = re.compile(rf"method\.(?!(?:{'|'.join(choices('method'))})[.=])")
    return [f"++{option}" if new.match(option) else option for option in options]


def explain(error: Exception, options: Sequence[str]) -> str:
    """Return Hydra's own message, with the nearest names for each option that is unknown."""
    hints, known = [], _option_names()
    for option in options:
        name, _, value = option.lstrip("+~").partition("=")
        if str(error).startswith("Ambiguous value") and "," in value and value[0] not in "[{'\"":
            single = name in ("retriever", "llm", "study", "corpus")
            advice = "one is meant" if single else f"several stand in brackets: {name}=[{value}]"
            hints.append(f"{option}: {advice}; a run for each of them: rag-notes run --multirun")
        elif name.startswith("hydra"):
            if (extra := _LAUNCHERS.get(value)) and f"Could not find '{name}/{value}'" in str(error):
                hints.append(f'{option}: is not installed; pip install "rag-notes[{extra}]"')
        elif (CONF / (group := name.partition("@")[0])).is_dir():  # @: where a part is put
            for choice in map(str.strip, value.strip("[]").split(",")):
                if choice not in choices(group):
                    near = get_close_matches(choice, choices(group), n=3, cutoff=0.4) or choices(group)
                    hints.append(f"{group}={choice}: no such {group}; there is {', '.join(near)}")
        elif name not in known:
            hints.append(f"{name}: no such option{did_you_mean(name, sorted(known), 0.6)}")
    return "\n".join(hints) or str(error)


def _option_names() -> set[str]:
    settings = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    groups = (*GROUPS, "training", "training_data")
    names = {*settings, *groups} - {"defaults", "hydra"}
    for file in (file for group in groups for file in (CONF / group).rglob("*.yaml")):
        group, *folders = file.relative_to(CONF).parent.parts
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        path = [file.stem] if group in ("dataset", "method") else folders
        for part in ([], ["first"], ["second"]) if group == "retriever" else ([],):  # those of a hybrid
            names |= {*_setting_names(settings.get(group, settings), ".".join([group, *part, *path]))}
    return names


def _setting_names(settings: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, value in settings.items():
        if not name.startswith("_") and name != "defaults":
            yield f"{prefix}.{name}"
            yield from _setting_names(value, f"{prefix}.{name}") if isinstance(value, dict) else ()
