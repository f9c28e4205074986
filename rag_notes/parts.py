"""Parts: settings with a `_target_`, checked against the signature of what that names, and called with it."""

import contextlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from rag_notes.files import here
from rag_notes.options import did_you_mean
from rag_notes.types import InputError

_STRICT = ConfigDict(extra="forbid", strict=True)
Model = TypeVar("Model", bound=BaseModel)


class ConfigError(InputError):
    """An option that does not exist or does not fit; the message names it and what would."""


def call(settings: Mapping[str, Any], *passed: Any) -> Any:
    """Call the target of settings with what is passed and with them; relative paths are those of `here`."""
    with contextlib.chdir(here()):
        return bound(settings)(*passed)


def bound(settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the target with its settings, every part among them built; a partial one is called by its owner."""
    arguments = _settings(settings)
    for name, value in arguments.items():
        if _is_part(value):
            arguments[name] = bound(value) if value.get("_partial_") else bound(value)()
    return partial(target_of(settings), **arguments)


def _is_part(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and "_target_" in value


def _settings(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in ("_target_", "_partial_")}


def target_of(settings: Mapping[str, Any], where: str = "") -> Callable[..., Any]:
    """Import what `_target_` of the settings at `where` names, of the package or of a module in the current folder."""
    if not isinstance(name := settings.get("_target_"), str):
        raise ConfigError(f"{where}._target_: name the function that it is, as MODULE.FUNCTION")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)  # behind all others, so that nothing that is installed is hidden
    try:
        target: Callable[..., Any] = pkgutil.resolve_name(":".join(name.rsplit(".", 1)))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}._target_: {name!r} cannot be imported ({error})") from None
    if not callable(target):
        raise ConfigError(f"{where}._target_: {name!r} is no function or class")
    return target


def check(where: str, settings: Mapping[str, Any], *, passed: int = 0, after: Callable[..., Any] | None = None) -> None:
    """Check settings against the annotated arguments of their target: the signature is the schema.

    The first `passed` arguments are no settings. `after` is called with the result and with settings of its own.
    """
    parameters = list(inspect.signature(target_of(settings, where)).parameters.items())[passed:]
    if after is not None:
        parameters += list(inspect.signature(after).parameters.items())[1:]
    fields: dict[str, Any] = {}
    for name, parameter in parameters:
        annotation, value = parameter.annotation, settings.get(name)
        if get_origin(annotation) is Callable or getattr(annotation, "_is_protocol", False):
            if _is_part(value):
                check(f"{where}.{name}", value, passed=int(value.get("_partial_", False)))
            elif name in settings:
                raise ConfigError(f"{where}.{name}: needs a part, settings with their own _target_ (given: {value!r})")
            annotation = Any
        annotation = Any if annotation is parameter.empty else annotation
        fields[name] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
    validated(create_model(where, __config__=_STRICT, **fields), _settings(settings), f"{where}.")


def validated(model: type[Model], settings: Mapping[str, Any], prefix: str = "") -> Model:
    """Return the settings as a model. Raises ConfigError with a line for each that does not fit."""
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            text = f"{problem['msg']} (given: {problem['input']!r})"
            if problem["type"] == "missing":
                text = "is required and not set"
            elif problem["type"] == "extra_forbidden":
                text = f"no such option{did_you_mean(name, model.model_fields)}"
            lines.append(f"{prefix}{name}: {text}")
        raise ConfigError("\n".join(lines)) from None
