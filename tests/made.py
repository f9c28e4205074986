"""Samples and runs made up for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from rag_notes.events import Ask, Counts, Event, Found, Search
from rag_notes.methods.about import label_of
from rag_notes.report.scores_table import ScoresTable
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, Run, RunInfo
from rag_notes.running.samples import Sample, SampleError
from rag_notes.types import Question

Scores = Mapping[str, Sequence[float | None]]  # a value a question by metric; None: the question failed


def make_sample(
    method: str,
    question_id: str,
    metrics: dict[str, float],
    *,
    question: str = "",
    gold: Sequence[str] = ("gold",),
    type: str = "",  # noqa: A002 - the name of the field
    answer: str = "an answer",
    error: str | SampleError | None = None,
    counts: Counts | None = None,
    trace: Sequence[Event] = (),
) -> Sample:
    return Sample(
        method=method,
        question=Question(question_id, question or f"Question {question_id}?", tuple(gold), type=type),
        answer=answer,
        error=SampleError("LLMError", error) if isinstance(error, str) else error,
        metrics=metrics,
        counts=counts or Counts(),
        trace=list(trace),
    )


def make_info(dataset: str, methods: Mapping[str, dict[str, Any]] | Sequence[str] = (), **info: Any) -> RunInfo:
    """A run's description; methods with their settings, or only by name."""
    settings = methods if isinstance(methods, Mapping) else {method: {} for method in methods}
    fields: dict[str, Any] = {
        "dataset": DatasetInfo(dataset, 0, "0" * 64),
        "condition": Condition(),
        "methods": {method: MethodInfo(f"made.{method}", of, "c") for method, of in settings.items()},
        "retriever": {"name": "bm25"},
        "llm": {"model": "made"},
        "prompt_set": "small",
        "prompts": {},
        "status": "finished",
    }
    return RunInfo(**fields | info)


def make_run(dataset: str, methods: Mapping[str, Scores], **info: Any) -> Run:
    samples = []
    for method, scores in methods.items():
        for i, values in enumerate(zip(*scores.values(), strict=True)):
            if None in values:
                samples.append(make_sample(method, f"q{i}", {}, error="no answer", answer=""))
            else:
                metrics = {metric: value for metric, value in zip(scores, values, strict=True) if value is not None}
                samples.append(make_sample(method, f"q{i}", metrics))
    return Run(make_info(dataset, list(methods), **info), samples)


def changed(run: Run, place: int, **fields: Any) -> Run:
    """A run with other fields of the sample at this place."""
    samples = list(run.samples)
    samples[place] = replace(samples[place], **fields)
    return replace(run, samples=samples)


def ask(stage: str, response: str | None, prompt: str = "a prompt", finish_reason: str = "stop") -> Ask:
    return Ask(stage, prompt, response, finish_reason, 7, 3, "k")


def search(query: str, title: str, text: str, passage_id: str = "") -> Search:
    return Search(query, 1, [Found(passage_id or title, title, text, 1.5)])


def row_of(table: pd.DataFrame, /, **where: str) -> dict[Any, Any]:
    for column, value in where.items():
        table = table[table[column] == value]
    (row,) = table.to_dict("records")
    return row


def shown_cell(table: pd.DataFrame, method: str, metric: str) -> str:
    """The cell that a table of scores of one data set shows for a method and a metric."""
    wide = ScoresTable(table).wide.droplevel("questions", axis="columns")
    return str(wide.loc[label_of(method), metric])


def drawn_texts(figure: Figure) -> list[tuple[Text, Any]]:
    """The texts that can be seen, each with its box in pixels."""
    figure.draw_without_rendering()
    hidden: set[Text] = set()
    for axes in figure.axes:
        if not axes.axison:
            hidden |= {*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label}
        low, high = axes.get_xlim()
        places = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        hidden |= {label for place, label in places if not low <= place <= high}
        low, high = sorted(axes.get_ylim())
        places = zip(axes.get_yticks(), axes.get_yticklabels(), strict=False)
        hidden |= {label for place, label in places if not low <= place <= high}
        if not axes.yaxis.get_tick_params()["labelleft"]:
            hidden |= set(axes.get_yticklabels())
    every = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    return [(text, text.get_window_extent()) for text in every if text not in hidden]
