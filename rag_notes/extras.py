"""Packages that only some commands need and that are not installed with the others, and packages that can be called."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from rag_notes.types import InputError


def needed(module: str, extra: str) -> ModuleType:
    """Import a module of the package's `extra`. Raises InputError that says how to install it where it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise InputError(f"{package} is not installed, which this needs: pip install 'rag-notes[{extra}]'") from None


class _Listing(ModuleType):
    def __call__(self) -> Any:
        return getattr(import_module("rag_notes.lab"), self.__name__.rpartition(".")[2])()


def make_callable(package: str) -> None:
    """Make `rn.methods()` and the like calls of `rag_notes.lab`, although packages have these names."""
    sys.modules[package].__class__ = _Listing
