"""Note-based adaptive RAG methods, their baselines and metrics, as reproducible runs: `import rag_notes as rn`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_notes.lab import Lab, compare, figure, load, open, table, trace  # noqa: A004 - as rn.open
    from rag_notes.methods.rag import Rag
    from rag_notes.running.records import Run
    from rag_notes.types import Passage, Question

__all__ = ["Lab", "Passage", "Question", "Rag", "Run", "compare", "figure", "load", "open", "table", "trace"]

_PLACES = {"Passage": "types", "Question": "types", "Rag": "methods.rag", "Run": "running.records"}


def __getattr__(name: str) -> Any:  # so that importing a part of the package does not load the whole
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'lab')}"), name)
