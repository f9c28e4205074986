"""Which method of which run is the system that a paper's claim speaks of."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import yaml

from rag_notes.methods.about import about_of
from rag_notes.options import CONF, choices
from rag_notes.running.describe import describe_method
from rag_notes.running.records import Condition, MethodInfo, Run

_RETRIEVAL = ("retriever", "noise")  # of `setting`: what belongs to the run, not to the method
_MEASURED = "questions"  # of `setting`: how many the paper asked; a run's own number stands beside its result
_TRAINED = {  # systems of the papers that are a method with a trained model: the method, and what that was trained on
    "deepnote_dpo": ("deepnote", "dnalign"),
    "chain_of_note_hybrid": ("retrieve_read", "hybrid"),
}
_BM25 = ("bm25", "elasticsearch")  # the retrievers that rank by BM25


class NotRunError(LookupError):
    """No run has what a claim speaks of; the message says what is lacking."""


class System(NamedTuple):
    """A method by its function, with all its settings; those that the claim changed, of it and of the retriever.

    `trained_on` is what its model has to be trained on, None for any model but those trained for such a system.
    """

    function: str
    settings: dict[str, Any]
    changed: dict[str, Any]
    retrieval: dict[str, Any]
    label: str
    trained_on: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A method of a run, by the name that it has there; `folder` is the run's."""

    folder: str
    run: Run
    method: str


@cache
def left_out() -> Mapping[tuple[str, str], tuple[str, dict[str, Any]]]:
    """What the papers' ablations leave out (method, part), as a method of ours and the settings that it is then given.

    As the methods themselves say (`ABOUT.parts`). Where both parts of DeepNote or of Adaptive-Note are out, the papers'
    tables have the numbers of vanilla RAG.
    """
    found = {}
    for method in choices("method"):
        for part, given in about_of(_function(method)[0]).parts.items():
            settings = dict(given)
            found[method, part] = (str(settings.pop("method", method)), settings)
    return found


@cache
def system_of(method: str, setting: str, dataset: str = "") -> System:
    """Return the system that a claim means by `method` and `setting` (`data/paper/README.md`).

    What the setting does not name is as in `conf/method` and, on a data set for which the papers have settings of their
    own, as in its preset. Raises NotRunError where this project has no such method or setting.
    """
    named = settings_of(setting)
    retrieval = {name: named.pop(name) for name in _RETRIEVAL if name in named}
    named.pop(_MEASURED, None)
    ours, trained_on = _TRAINED.get(method, (method, None))
    if "without" in named:
        without = named.pop("without")
        if (method, without) not in left_out():
            raise NotRunError(f"{method} has no setting that leaves out {without}")
        ours, switched = left_out()[method, without]
        named |= switched
    if ours not in choices("method"):
        raise NotRunError(f"there is no method {ours}")
    function, conf = _function(ours)
    if dataset in choices("preset"):
        preset = yaml.safe_load((CONF / "preset" / f"{dataset}.yaml").read_text(encoding="utf-8"))
        conf |= preset.get("method", {}).get(ours, {})
    if unknown := set(named) - set(inspect.signature(function).parameters):
        raise NotRunError(f"{ours} has no setting {', '.join(sorted(unknown))}")
    described = describe_method(partial(function, **(conf | named)))
    changed = named | retrieval | ({"trained.data": trained_on} if trained_on else {})
    label = " ".join([ours, *(f"{name}={value}" for name, value in changed.items())])
    return System(described.function, described.settings, named, retrieval, label, trained_on)


def settings_of(setting: str) -> dict[str, Any]:
    """The `name=value` pairs of a claim's setting; numbers as such."""
    pairs = (pair.partition("=") for pair in setting.split(";") if pair)
    return {name: int(value) if value.isdigit() else value for name, _, value in pairs}


def without_count(setting: str) -> str:
    """The setting without how many questions the paper asked."""
    return ";".join(pair for pair in setting.split(";") if not pair.startswith(f"{_MEASURED}="))


def find_cells(runs: Mapping[str, Run], dataset: str, system: System) -> list[Cell]:
    """Return the methods of the runs of a data set that are this system, by the order of the runs.

    A setting that a run does not record, because it is newer than the run, was as it is by default. Raises NotRunError
    where there are none.
    """
    condition = Condition(system.retrieval.get("noise"))
    here = {name: run for name, run in runs.items() if run.dataset == dataset and run.info.condition == condition}
    if not here:
        noise = f" with {condition.noise_percent} % noise" if condition.noise_percent is not None else ""
        known = dataset in choices("dataset")
        raise NotRunError(f"no run of {dataset}{noise}" if known else "the claim is of no single data set")
    cells = [
        Cell(folder, run, name)
        for folder, run in here.items()
        if is_trained_for(system, run.info.llm.get("trained_on"))
        for name, method in run.info.methods.items()
        if is_system(system, method) and system.retrieval.get("retriever") in (None, _kind(run))
    ]
    if not cells:
        raise NotRunError(f"no run of {dataset} has {system.label}")
    return cells


def is_trained_for(system: System, trained_on: str | None) -> bool:
    """Whether a model trained on this (None: on nothing of ours) is one that a system may have."""
    special = {name for _, name in _TRAINED.values()}
    return trained_on == system.trained_on if {trained_on, system.trained_on} & special else True


def comparable(cell: Cell, other: Cell, *, retriever: bool, trained: bool = False) -> bool:
    """Whether two cells have the same model and sampling, prompts and, if `retriever`, retriever and corpus.

    A run records the prompts that its methods used: those that both runs used must be the same. With `trained` models
    are the same that were trained from the same one, or are it.
    """
    a, b = cell.run.info, other.run.info
    if trained:
        a, b = (replace(info, llm=_untrained(info.llm)) for info in (a, b))
    same = (a.llm, a.repeat, a.prompt_set) == (b.llm, b.repeat, b.prompt_set) and all(
        b.prompts.get(name, digest) == digest for name, digest in a.prompts.items()
    )
    return same and (not retriever or a.retriever == b.retriever)


def _untrained(llm: Mapping[str, Any]) -> dict[str, Any]:
    """A run's model as it was before it was trained, without system messages: they may hold a word of the training."""
    if "trained_on" not in llm:
        return dict(llm)
    kept = {name: value for name, value in llm.items() if name not in ("trained_on", "base", "system", "stages")}
    return kept | {"model": llm.get("base") or llm["model"]}


def model_of(run: Run) -> str:
    """The model of a run, with those of single stages."""
    stages = [f"{name}: {of['model']}" for name, of in run.info.llm.get("stages", {}).items()]
    return run.info.model + (f" ({', '.join(stages)})" if stages else "")


def same_model(run: Run, model: str) -> bool:
    """Whether a run's model is the one that a paper names: letters and digits alone count (`GPT-4o-mini`)."""
    ours = run.info.llm.get("base") or model_of(run)
    ours, theirs = ("".join(filter(str.isalnum, name)).casefold() for name in (ours, model))
    return ours == theirs


def _function(method: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a method of `conf/method`, and the settings that it is given there."""
    conf = yaml.safe_load((CONF / "method" / f"{method}.yaml").read_text(encoding="utf-8"))
    module, _, name = conf.pop("_target_").rpartition(".")
    return getattr(importlib.import_module(module), name), conf


def is_system(system: System, method: MethodInfo) -> bool:
    """Whether a method of a run is this system, settings newer than the run being as they are by default."""
    if method.function != system.function:
        return False
    newer = {name: value for name, value in system.settings.items() if name not in method.settings}
    return not newer.keys() & system.changed.keys() and method.settings | newer == system.settings


def _kind(run: Run) -> str:
    return "bm25" if run.info.retriever.get("name") in _BM25 else "dense"
