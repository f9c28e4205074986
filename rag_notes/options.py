"""The options that conf/ offers: what there is to choose from, what a wrong one may have meant, their completion."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

import yaml

from rag_notes.files import SHIPPED

CONF = SHIPPED / "conf"
_LAUNCHERS = {"joblib": "joblib", "ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""Hydra's launchers with the extra that installs each."""
GROUPS = ("study", "dataset", "corpus", "method", "retriever", "llm")
_OTHERS = ("training", "training_data")


def choices(group: str) -> list[str]:
    """The names that a configuration group offers."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def complete(prefix: str, **_: object) -> list[str]:
    """The options that begin so, for argcomplete: names, and behind `=` the choices."""
    group, equals, _value = prefix.partition("=")
    if equals:
        return [f"{prefix[: len(group)]}={choice}" for choice in choices(group)] if group in GROUPS else []
    return [f"{name}=" for name in _option_names()]


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's own message, with the nearest names for each override that is unknown."""
    hints = []
    known = _option_names()
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if str(error).startswith("Ambiguous value") and "," in value and value[0] not in "[{'\"":
            one = name in ("retriever", "llm", "study", "corpus")
            together = "one is meant" if one else f"several stand in brackets: {name}=[{value}]"
            hints.append(f"{override}: {together}; a run for each of them: rag-notes run --multirun")
            continue
        if name.startswith("hydra"):
            if (extra := _LAUNCHERS.get(value)) and f"Could not find '{name}/{value}'" in str(error):
                hints.append(f'{override}: is not installed; pip install "rag-notes[{extra}]"')
            continue
        name, _, _ = name.partition("@")  # where a part is put: retriever@retriever.second=dense
        if (CONF / name).is_dir():
            for choice in value.strip("[]").split(","):
                if choice.strip() not in choices(name):
                    near = get_close_matches(choice.strip(), choices(name), n=3, cutoff=0.4) or choices(name)
                    hints.append(f"{name}={choice.strip()}: no such {name}; there is {', '.join(near)}")
        elif name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.6)
            hints.append(f"{name}: no such option" + (f"; did you mean {', '.join(near)}?" if near else ""))
    return "\n".join(hints) or str(error)


def _option_names() -> list[str]:
    settings = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    names = [name for name in settings if name not in ("defaults", "hydra")]
    for group in (*GROUPS, *_OTHERS):
        names.append(group)
        for choice in choices(group):
            names += _names(
                CONF / group / f"{choice}.yaml", f"{group}.{choice}" if group in {"dataset", "method"} else group
            )
    return sorted(set(names))


def _names(file: Path, prefix: str) -> Iterator[str]:
    """The paths of the settings in a file of conf/ and in those that it is made of."""
    settings = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    for entry in settings.pop("defaults", []):
        if isinstance(entry, dict):  # a part, from a group of its own
            for name, choice in entry.items():
                if name.startswith("override "):  # another choice of a group that is listed anyway
                    continue
                group, _, package = name.partition("@")
                folder = CONF / group[1:] if group.startswith("/") else file.parent / group
                yield from _names(folder / f"{choice}.yaml", f"{prefix}.{package or group}")
        elif entry != "_self_":
            yield from _names(file.with_name(f"{entry}.yaml"), prefix)
    for name, value in settings.items():
        if name != "_target_":
            yield f"{prefix}.{name}"
        if isinstance(value, dict):
            yield from (f"{prefix}.{name}.{inner}" for inner in value if inner != "_target_")
