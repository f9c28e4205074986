"""What the rest of the project needs to know of a method: every method's file declares it as its `ABOUT`."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args

from rag_notes.types import Task

Family = Literal["baseline", "single search", "several searches", "notes"]
Settings = Mapping[str, Any]

# One a task: the prompts of `Rag.answer` from passages or a note, and from the model's knowledge; and the words of
# `Rag.answer_format`, which are parts of other prompts.
ANSWER, DIRECT, ANSWER_FORMAT = (
    tuple(f"{name}_{task}" for task in get_args(Task)) for name in ("answer", "direct", "form")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a method is called, where it comes from, and what can be said of it without running it.

    `labels` has another label for the value of a setting that makes another system of it. `limits` are the settings
    that the study of thresholds varies. `parts` has the settings of each ablation of the papers; `method` among them is
    another method. `calls` gives the most calls that a question can take with all settings given, and `prompts` are the
    templates used (`prompts/<set>/<language>/<name>.txt`), which are the stages asked; None where unknown.
    """

    label: str
    labels: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    source: str = ""
    family: Family = "several searches"
    limits: tuple[str, ...] = ()
    parts: Mapping[str, Settings] = field(default_factory=dict)
    calls: Callable[[Settings], int] | None = None
    prompts: tuple[str, ...] | None = None


def about_of(method: Callable[..., Any]) -> About:
    """Return the `ABOUT` of the file that has the name of a method's function, the method being one or a partial of it.

    Any other function, such as one of a notebook, has its name as its label, and nothing else is known of it.
    """
    function = method
    while isinstance(function, partial):
        function = function.func
    of_file = function.__module__.rpartition(".")[2] == function.__name__
    about = getattr(importlib.import_module(function.__module__), "ABOUT", None) if of_file else None
    if not isinstance(about, About):
        return About(label=function.__name__.replace("_", " "))
    settings = settings_of(method)
    special = (labels[settings[name]] for name, labels in about.labels.items() if settings[name] in labels)
    return replace(about, label=next(special, about.label))


def settings_of(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings of a method or of a partial of one, defaults included."""
    parameters = inspect.signature(method).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


@cache
def label_of(name: str) -> str:
    """Return what tables and figures call a method by this name: its label, and in brackets what the name adds to it.

    `deepnote_2_1` is `DeepNote (2-1)`. Where settings, which a name does not tell, make several systems of a method, it
    is what their labels have in common. A name that begins with no method's file is its own label, without underscores.
    """
    words = name.split("_")
    for count in range(len(words), 0, -1):
        if about := _about_file("_".join(words[:count])):
            label = about.label.partition(" (")[0] if about.labels else about.label
            rest = re.sub(r"(?<=\d) (?=\d)", "-", " ".join(words[count:]))
            return f"{label} ({rest})" if rest else label
    return " ".join(words)


def family_of(function: str) -> Family | None:
    """Return the family of the method whose function has this name, None where nothing is known of it."""
    about = _about_file(function)
    return about.family if about else None


@cache
def _about_file(name: str) -> About | None:
    if not Path(__file__).with_name(f"{name}.py").is_file() or not name.isidentifier():
        return None
    about = getattr(importlib.import_module(f"{__package__}.{name}"), "ABOUT", None)
    return about if isinstance(about, About) else None
