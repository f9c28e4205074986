"""Packages that only some commands need, which are not installed with the others."""

import importlib
from types import ModuleType

from rag_notes.types import InputError


def needed(module: str, extra: str) -> ModuleType:
    """Import a module of the package's `extra`. Raises InputError that says how to install it where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise InputError(f"{package} is not installed, which this needs: pip install 'rag-notes[{extra}]'") from None
