"""Tables, figures, traces, comparisons and reports, all of them made from runs alone."""

from rag_notes.papers.forest import forest_figure
from rag_notes.papers.inconsistencies import inconsistencies
from rag_notes.papers.numbers import beside_paper, corpus_sizes, paper_cells, paper_claims, paper_results, paper_table
from rag_notes.papers.page import verify, write_verification
from rag_notes.papers.verification import verify_claims, verify_orders
from rag_notes.report.compare import Comparison, compare_runs
from rag_notes.report.compare_page import write_comparison
from rag_notes.report.figures import MARKERS, PALETTE, STYLE, NotebookFigure, main_figure, save_figure
from rag_notes.report.site import write_report
from rag_notes.report.tables import (
    ANSWER_METRICS,
    METRIC_LABELS,
    RETRIEVAL_METRICS,
    diagnostics,
    results,
    results_table,
    write_csv,
)
from rag_notes.report.trace import Trace, render_trace, show_trace
from rag_notes.running.correctness import OUTCOMES, outcome

__all__ = [
    "ANSWER_METRICS",
    "MARKERS",
    "METRIC_LABELS",
    "OUTCOMES",
    "PALETTE",
    "RETRIEVAL_METRICS",
    "STYLE",
    "Comparison",
    "NotebookFigure",
    "Trace",
    "beside_paper",
    "compare_runs",
    "corpus_sizes",
    "diagnostics",
    "forest_figure",
    "inconsistencies",
    "main_figure",
    "outcome",
    "paper_cells",
    "paper_claims",
    "paper_results",
    "paper_table",
    "render_trace",
    "results",
    "results_table",
    "save_figure",
    "show_trace",
    "verify",
    "verify_claims",
    "verify_orders",
    "write_comparison",
    "write_csv",
    "write_report",
    "write_verification",
]
