"""What a `_target_` names: a function or class of rag_notes, or of a module of one's own."""

import importlib
import site
import sys
import sysconfig
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_PACKAGES = ("site-packages", "dist-packages")
_OURS = __name__.partition(".")[0]


class TargetError(ImportError):
    """A `_target_` that names nothing there is, or what may not be named."""


def load_target(target: object) -> Callable[..., Any]:
    """The function or class that `module.name` says, of rag_notes or of a module of one's own.

    One's own is what is neither part of Python nor installed: a file in the current folder, or wherever `PYTHONPATH`
    leads. Any other module is refused before it is imported, as importing runs it. Raises TargetError.
    """
    module, _, name = str(target).rpartition(".")
    top = module.partition(".")[0]
    if not isinstance(target, str) or not top.isidentifier():
        raise TargetError(f"expected MODULE.FUNCTION, found {target!r}")
    if top != _OURS:
        _check_own(top)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TargetError(f"{target!r} cannot be imported ({error})") from None
    if not callable(found):
        raise TargetError(f"{target!r} is no function or class")
    return found  # type: ignore[no-any-return]


def _check_own(top: str) -> None:
    """Raise TargetError where a module is not one's own; one of the current folder can be imported afterwards."""
    spec, here = _spec_of(top), str(Path.cwd())
    if spec is None and (spec := PathFinder.find_spec(top, [here])) is not None:
        sys.path.append(here)  # behind all others: nothing that is installed is hidden
    if spec is None:
        raise TargetError(f"there is no module {top!r} here: neither in {here} nor on PYTHONPATH")
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or [])
    if not places or any(_is_installed(Path(place or "/")) for place in places):
        raise TargetError(
            f"{top!r} is a module of Python or an installed one; name a function of rag_notes, or one of a module of "
            "your own in the current folder"
        )


def _spec_of(top: str) -> ModuleSpec | None:
    try:
        return find_spec(top)  # of a module without dots: imports nothing
    except ValueError:  # imported without a spec, such as __main__
        return None


def _is_installed(place: Path) -> bool:
    if any(part in _PACKAGES for part in place.parts) or place.is_relative_to(site.getusersitepackages()):
        return True
    return any(place.is_relative_to(folder) for folder in _INSTALLED)
