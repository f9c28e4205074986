"""Single questions, seen by several methods: who answered what, and the traces side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D

from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.trace import Trace
from rag_notes.running.correctness import outcome
from rag_notes.running.records import Run

_MARKS = {  # of each outcome: colour and marker, told apart without the colour
    "right": (PALETTE[0], "o"),
    "wrong": (PALETTE[1], "x"),
    "unreadable": (PALETTE[4], "^"),
    "error": ("black", "s"),
    "unmarked": ("#9a9a9a", "."),
}


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The traces of several methods on one question, in columns that scroll sideways."""

    run: Run
    methods: Sequence[str]
    question_id: str

    def _repr_html_(self) -> str:
        columns = "".join(
            f'<div style="flex: 0 0 28rem"><h3>{escape(method.replace("_", " "))}</h3>{trace._repr_html_()}</div>'
            for method, trace in self._traces()
        )
        return f'<div style="display: flex; gap: 1.5rem; overflow-x: auto; align-items: flex-start">{columns}</div>'

    def __repr__(self) -> str:
        return "\n\n".join(f"{method}\n{trace!r}" for method, trace in self._traces())

    def _traces(self) -> list[tuple[str, Trace]]:
        return [(method, Trace(self.run.sample(method, self.question_id))) for method in self.methods]


def answers(run: Run, question_ids: Sequence[str]) -> pd.DataFrame:
    """Return a row for each question, a column for each method: the answer, with its outcome in front.

    Raises KeyError where the run lacks one of the questions.
    """
    rows = []
    for question_id in question_ids:
        samples = [run.sample(method, question_id) for method in run.methods]
        cells = {s["method"]: f"{outcome(s)}: {' '.join((s['error'] or s['answer']).split())[:120]}" for s in samples}
        rows.append({"question": samples[0]["question"], "gold": "; ".join(samples[0]["gold"][:2])} | cells)
    return pd.DataFrame(rows, index=pd.Index(question_ids, name="id"))


def cases_figure(run: Run, question_ids: Sequence[str]) -> NotebookFigure:
    """Draw who got which question right: a row a question, a column a method, a mark for each outcome.

    Raises ValueError where no question is given, KeyError where the run lacks one.
    """
    if not question_ids:
        raise ValueError("nothing to draw: no question is given")
    with mpl.rc_context(STYLE):
        size = (1.6 + 0.75 * len(run.methods), 1.1 + 0.3 * len(question_ids))
        figure = NotebookFigure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for row, question_id in enumerate(question_ids):
            for column, method in enumerate(run.methods):
                colour, marker = _MARKS[outcome(run.sample(method, question_id))]
                axes.plot(column, row, color=colour, marker=marker, linestyle="none", markersize=8)
        axes.set_xticks(range(len(run.methods)), [name.replace("_", "\n") for name in run.methods])
        axes.set_yticks(range(len(question_ids)), list(question_ids))
        axes.set_xlim(-0.5, len(run.methods) - 0.5)
        axes.set_ylim(len(question_ids) - 0.5, -0.5)  # the first question on top
        axes.tick_params(length=0)
        axes.grid(visible=True)
        handles = [
            Line2D([], [], color=colour, marker=marker, linestyle="none", label=name)
            for name, (colour, marker) in _MARKS.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.1)
    return figure


def pick_cases(run: Run, method: str, baseline: str) -> list[str]:
    """Return the first question of each kind there is: only `method` right, only `baseline`, both, none.

    They are picked by outcome alone, in the order of the questions, so that nobody chose them.
    """
    by_kind: dict[tuple[bool, bool], str] = {}
    for sample in run.samples:
        if sample["method"] == method:
            other = run.sample(baseline, sample["question_id"])
            by_kind.setdefault((outcome(sample) == "right", outcome(other) == "right"), sample["question_id"])
    return [by_kind[kind] for kind in ((True, False), (False, True), (True, True), (False, False)) if kind in by_kind]
