"""Note-based adaptive RAG methods, their baselines and metrics, as reproducible runs: `import rag_notes as rn`."""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_notes.lab import Lab, compare, datasets, load, methods, open, studies, table, trace  # noqa: A004 - rn.open
    from rag_notes.methods.rag import Rag
    from rag_notes.report.figures import bars, curves, forest, save, scatter
    from rag_notes.running.records import Run
    from rag_notes.studies.base import study
    from rag_notes.types import Passage, Question

__all__ = [
    "Lab", "Passage", "Question", "Rag", "Run", "bars", "compare", "curves", "datasets", "forest", "load", "methods",
    "open", "save", "scatter", "studies", "study", "table", "trace",
]  # fmt: skip
_MODULES = {"Passage": "types", "Question": "types", "Rag": "methods.rag", "Run": "running.records"}
_MODULES |= {"study": "studies.base"} | dict.fromkeys(("bars", "curves", "forest", "save", "scatter"), "report.figures")


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # so that importing a part of the package does not load the whole
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'lab')}"), name)
    near = get_close_matches(name, __all__, n=3)
    raise AttributeError(f"rag_notes has no {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
