"""Which method, with which settings, model and retriever, a paper's claim is about."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import yaml

from rag_notes.methods.about import about_of, label_of, settings_of
from rag_notes.options import CONF, choices
from rag_notes.parts import target_of
from rag_notes.running.records import MethodInfo

SIDES = (("method", "setting"), ("other", "other_setting"))
"""The columns of a claim that name its two systems."""

_RUN_SETTINGS = ("retriever", "noise", "questions")  # settings of a claim that belong to a run, not to its method
_TRAINED = {"deepnote_dpo": ("deepnote", "dnalign"), "chain_of_note_hybrid": ("retrieve_read", "hybrid")}
_LIMITS = ("max_step", "max_failure", "collector_iterations", "invalid_updates")  # printed as pairs, such as 3-2
_PRINTED = {"without": "w/o {}", "top_k": "top-k {}", "noise": "{} % noise"}


class NotRunError(LookupError):
    """No run has what a claim is about; the message says what is missing."""


class System(NamedTuple):
    """A method's function with all its settings, and what a run of it needs.

    `changed` are the settings that differ from our defaults by name. `retriever` (`bm25` or `dense`), `noise` (% of the
    passages) and `trained_on` (the data of a trained model) are None where the claim does not name them.
    """

    function: str
    settings: Mapping[str, Any]
    changed: frozenset[str]
    retriever: str | None
    noise: int | None
    trained_on: str | None

    def is_method(self, method: MethodInfo) -> bool:
        """Return whether a run's method is this system; a setting newer than the run had its default value there."""
        newer = {name: value for name, value in self.settings.items() if name not in method.settings}
        same = method.function == self.function and method.settings | newer == self.settings
        return same and not newer.keys() & self.changed

    def allows(self, trained_on: str | None) -> bool:
        """Return whether the system may have a model trained on this data; None is a model as it was published."""
        special = {data for _, data in _TRAINED.values()}
        return trained_on == self.trained_on or not {trained_on, self.trained_on} & special


@cache
def system_of(method: str, setting: str, dataset: str = "", metric: str = "") -> System:
    """Return the system that a paper means by a method and a setting (`data/paper/README.md`).

    Settings that are not named are those of `conf/method` or, on a data set that has a preset, of `conf/preset`.
    Reject rates are those of methods that are offered "unknown" as an answer. Raises NotRunError where this project has
    no such method or setting.
    """
    pairs = (pair.partition("=") for pair in setting.split(";") if pair)
    changes: dict[str, Any] = {name: int(value) if value.isdigit() else value for name, _, value in pairs}
    run_settings = {name: changes.pop(name, None) for name in _RUN_SETTINGS}
    ours, trained_on = _TRAINED.get(method, (method, None))
    if "without" in changes:
        parts = about_of(_function(ours)[0]).parts if ours in choices("method") else {}
        if changes["without"] not in parts:
            raise NotRunError(f"{method} has no setting that leaves out {changes['without']}")
        part = dict(parts[changes.pop("without")])
        ours, changes = str(part.pop("method", ours)), changes | part
    if ours not in choices("method"):
        raise NotRunError(f"there is no method {ours}")
    function, settings = _function(ours)
    if dataset in choices("preset"):
        preset = yaml.safe_load((CONF / "preset" / f"{dataset}.yaml").read_text(encoding="utf-8"))
        settings |= preset.get("method", {}).get(ours, {})
    parameters = inspect.signature(function).parameters
    if metric == "reject" and "unknown" in parameters:
        changes["unknown"] = True
    if unknown := changes.keys() - parameters.keys():
        raise NotRunError(f"{ours} has no setting {', '.join(sorted(unknown))}")
    every = settings_of(partial(function, **settings | changes))
    name = f"{function.__module__}.{function.__qualname__}"
    return System(name, every, frozenset(changes), run_settings["retriever"], run_settings["noise"], trained_on)


def comparison_label(row: Mapping[Any, Any]) -> str:
    """Return the name of a claim: `DeepNote – Vanilla RAG`, or of one method's settings `DeepNote: 3-2 – 1-1`."""
    name, other = (label_of(str(row[method])) if row[method] else "" for method, _ in SIDES)
    settings, other_settings = (_settings_label(str(row[setting])) for _, setting in SIDES)
    if name == other:
        return f"{name}: {settings or 'whole'} – {other_settings or 'whole'}"
    if other and settings and settings == other_settings:
        return f"{name} – {other}, both {settings}"
    return " – ".join(side for side in (f"{name} {settings}".strip(), f"{other} {other_settings}".strip()) if side)


def system_label(row: Mapping[Any, Any], method: str, setting: str) -> str:
    """Return the name of one side of a claim: the method's label, the limits of its loop (`3-2`), other settings."""
    return f"{label_of(str(row[method]))} {_settings_label(str(row[setting]))}".strip()


def _settings_label(setting: str) -> str:
    pairs = [pair.split("=") for pair in setting.split(";") if pair]
    limits = [value for name, value in pairs if name in _LIMITS]
    others = [_PRINTED.get(name, f"{name} {{}}").format(value) for name, value in pairs if name not in _LIMITS]
    text = " ".join([*(["-".join(limits)] if limits else []), *others])
    text = re.sub(r"\b[a-z]{2,3}\b(?=$|\+)", lambda part: part[0].upper(), text)  # the papers' own, such as AMR
    return text.replace("_", " ").replace("+", " and ")


def _function(method: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function of a method of `conf/method`, and the settings that it has there."""
    conf = yaml.safe_load((CONF / "method" / f"{method}.yaml").read_text(encoding="utf-8"))
    return target_of(conf), {name: value for name, value in conf.items() if name != "_target_"}
