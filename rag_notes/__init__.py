"""Note-based adaptive RAG methods, their baselines and metrics, as reproducible runs: `import rag_notes as rn`."""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_notes.lab import Lab, compare, datasets, methods, open, studies, table  # noqa: A004 - rn.open
    from rag_notes.methods.rag import Rag
    from rag_notes.report.figures import Look, bars, curves, forest, save, scatter
    from rag_notes.report.rows import difference_rows, score_rows
    from rag_notes.report.tables import counts, results
    from rag_notes.report.trace import show_trace as trace
    from rag_notes.running.records import Run
    from rag_notes.running.records import load_run as load
    from rag_notes.studies.base import study
    from rag_notes.types import Passage, Question

__all__ = [
    "Lab", "Look", "Passage", "Question", "Rag", "Run", "bars", "compare", "counts", "curves", "datasets",
    "difference_rows", "forest", "load", "methods", "open", "results", "save", "scatter", "score_rows", "studies",
    "study", "table", "trace",
]  # fmt: skip
_MODULES = {
    "Passage": "types", "Question": "types", "Rag": "methods.rag", "Run": "running.records", "load": "running.records",
    "trace": "report.trace", "study": "studies.base", "difference_rows": "report.rows", "score_rows": "report.rows",
    "counts": "report.tables", "results": "report.tables",
}  # fmt: skip
_MODULES |= dict.fromkeys(("Look", "bars", "curves", "forest", "save", "scatter"), "report.figures")


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # so that importing a part of the package does not load the whole
    if name in __all__:
        module = import_module(f"{__name__}.{_MODULES.get(name, 'lab')}")
        return getattr(module, {"load": "load_run", "trace": "show_trace"}.get(name, name))
    near = get_close_matches(name, __all__, n=3)
    raise AttributeError(f"rag_notes has no {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
