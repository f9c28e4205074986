"""Lets `rn.methods()`, `rn.datasets()` and `rn.studies()` be calls although packages have these names."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Listing(ModuleType):
    def __call__(self) -> Any:
        return getattr(import_module("rag_notes.lab"), self.__name__.rpartition(".")[2])()


def make_callable(package: str) -> None:
    """Make a call of the package, which has been imported, the function of this name in `rag_notes.lab`."""
    sys.modules[package].__class__ = _Listing
