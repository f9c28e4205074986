"""Single questions seen by several methods (Adaptive-Note, Table A5; DeepNote, Tables 21 to 23; Chain-of-Note, 6)."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D

from rag_notes.config import load_study
from rag_notes.report.cells import method_label
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.trace import Trace
from rag_notes.running.correctness import Correctness, correctness
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study
from rag_notes.types import InputError

_MARKS: dict[Correctness, tuple[str, str]] = {  # colour and marker, told apart without the colour
    "right": (PALETTE[0], "o"),
    "wrong": (PALETTE[1], "x"),
    "parse failure": (PALETTE[4], "^"),
    "error": ("black", "s"),
    "unscored": ("#9a9a9a", "."),
}


async def run(options: Sequence[str] = (), *, question_ids: Sequence[str] = (), progress: bool = True) -> "CaseStudies":
    """Run the methods and show the questions of these ids; those that the data set lacks are left out.

    Where none is left, the questions are those of `pick_cases`. Raises as
    `rag_notes.running.run.run_methods`.
    """
    config = load_study("case_studies", options)
    return CaseStudies(config, options, await run_methods(config, options, progress=progress), question_ids)


@dataclass(frozen=True, eq=False, repr=False)
class CaseStudies(Study):
    """The first data set's questions: who answered what, and the traces side by side."""

    question_ids: Sequence[str]

    @property
    def shown(self) -> list[str]:
        """The ids of the questions that are shown."""
        known = {question_id for _, question_id in self.runs[0].keys}
        return [name for name in self.question_ids if name in known] or pick_cases(self.runs[0])

    def display(self, question_ids: Sequence[str] | None = None) -> pd.DataFrame:
        """Who answered what, of the questions shown or of these."""
        table = answers(self.runs[0], self.shown if question_ids is None else question_ids)
        return table.rename(columns={name: method_label(name) for name in self.runs[0].methods})

    def figure(self) -> NotebookFigure:
        """Who got which question right; saved with the answers."""
        return self.save(cases_figure(self.runs[0], self.shown), answers(self.runs[0], self.shown).reset_index())

    def traces(self) -> list["SideBySide"]:
        """The traces of all methods side by side, for each question shown."""
        return [SideBySide(self.runs[0], self.runs[0].methods, question_id) for question_id in self.shown]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The traces of several methods on one question, in columns that scroll sideways."""

    run: Run
    methods: Sequence[str]
    question_id: str

    def _repr_html_(self) -> str:
        columns = "".join(
            f'<div style="flex: 0 0 28rem"><h3>{escape(method_label(method))}</h3>{trace._repr_html_()}</div>'
            for method, trace in self._traces()
        )
        return f'<div style="display: flex; gap: 1.5rem; overflow-x: auto; align-items: flex-start">{columns}</div>'

    def __repr__(self) -> str:
        return "\n\n".join(f"{method}\n{trace!r}" for method, trace in self._traces())

    def _traces(self) -> list[tuple[str, Trace]]:
        return [(method, Trace(self.run.sample(method, self.question_id))) for method in self.methods]


def answers(run: Run, question_ids: Sequence[str]) -> pd.DataFrame:
    """A row for each question, a column for each method: the answer, with whether it is right in front.

    Raises KeyError where the run lacks one of the questions.
    """
    rows = []
    for question_id in question_ids:
        samples = [run.sample(method, question_id) for method in run.methods]
        cells = {s.method: f"{correctness(s)}: {' '.join(str(s.error or s.answer).split())[:120]}" for s in samples}
        rows.append({"question": samples[0].question.question, "gold": "; ".join(samples[0].gold[:2])} | cells)
    return pd.DataFrame(rows, index=pd.Index(question_ids, name="id"))


def cases_figure(run: Run, question_ids: Sequence[str]) -> NotebookFigure:
    """Draw who got which question right: a row a method, a column a question, a mark for right, wrong and so on.

    Raises ValueError where no question is given, KeyError where the run lacks one.
    """
    if not question_ids:
        raise InputError("nothing to draw: no question is given")
    with mpl.rc_context(STYLE):
        size = (max(5.5, 2.0 + 0.9 * len(question_ids)), 1.2 + 0.2 * len(run.methods))  # at least the legend's width
        figure = NotebookFigure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for column, question_id in enumerate(question_ids):
            for row, method in enumerate(run.methods):
                colour, marker = _MARKS[correctness(run.sample(method, question_id))]
                axes.plot(column, row, color=colour, marker=marker, linestyle="none", markersize=6)
        axes.set_yticks(range(len(run.methods)), [method_label(name) for name in run.methods])
        axes.set_xticks(range(len(question_ids)), [textwrap.fill(name, 12) for name in question_ids])
        axes.set_xlim(-0.5, len(question_ids) - 0.5)
        axes.set_ylim(len(run.methods) - 0.5, -0.5)  # the first method on top
        axes.tick_params(length=0)
        axes.grid(visible=True)
        handles = [
            Line2D([], [], color=colour, marker=marker, linestyle="none", label=name)
            for name, (colour, marker) in _MARKS.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.1)
    return figure


def pick_cases(run: Run, most: int = 4) -> list[str]:
    """The questions that split the methods most evenly into right and not; all alike only where there is no other.

    They are picked by correctness alone, of equal ones the first in the order of the questions.
    """
    right = {sample.question.id: 0 for sample in run.samples}
    for sample in run.samples:
        right[sample.question.id] += correctness(sample) == "right"
    split = [name for name, count in right.items() if 0 < count < len(run.methods)] or list(right)
    return sorted(split, key=lambda name: abs(2 * right[name] - len(run.methods)))[:most]
