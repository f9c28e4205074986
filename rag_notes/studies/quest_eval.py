"""RAGQuestEval: the model asks, and answers from the gold answer and from the generated text (CRUD-RAG)."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rag_notes.config import load_study
from rag_notes.llm.store import canonical_json
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.quest_eval import CANNOT_INFER, parse_answers, quest_scores
from rag_notes.metrics.stats import mean_interval
from rag_notes.report.cells import dataset_label, interval_texts, method_label
from rag_notes.report.curves import curve_figure
from rag_notes.report.figures import NotebookFigure
from rag_notes.report.tables import METRIC_LABELS, QUEST_METRICS
from rag_notes.running.annotate import annotate
from rag_notes.running.quest_scores import quest_texts
from rag_notes.running.records import Run, require_text
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study, once
from rag_notes.types import Question


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "QuestEval":
    """Run the chosen methods and put every answer to RAGQuestEval.

    Raises ValueError for a question without gold answer, otherwise as `rag_notes.running.run.run_methods`.
    """
    config = load_study("quest_eval", options)
    one_repeat(config)
    runs = await run_methods(config, options, progress=progress)
    if runs[-1].info.finished:
        runs += await annotate(config, runs, "quest_eval", quest_eval, quest_texts, options, progress=progress)
    return QuestEval(config, options, runs)


class QuestEval(Study):
    """The scores of RAGQuestEval."""

    @once
    def table(self) -> pd.DataFrame:
        """The mean of each metric with its interval, as `quest_results`."""
        return quest_results(
            [run for run in self.runs if run.info.condition.annotates == "quest_eval"], **self.intervals
        )

    def display(self) -> pd.DataFrame:
        """The means in % with their intervals, a row for each data set and method."""
        table = self.table()
        table = table.assign(
            dataset=table["dataset"].map(dataset_label),
            metric=table["metric"].map(METRIC_LABELS),
            method=table["method"].map(method_label),
            cell=interval_texts(table),
        )
        return table.pivot_table(
            index=["dataset", "method", "n"], columns="metric", values="cell", aggfunc="first", sort=False
        )

    def figure(self) -> NotebookFigure:
        """The means with their intervals, a panel a metric; saved with the table."""
        shown = self.table().dropna(subset=["mean"])
        points = shown.assign(line=shown["dataset"].map(dataset_label), method=shown["method"].map(method_label))
        return self.save(curve_figure(points, "method", "method", line="line"), self.table())


async def quest_eval(about: Mapping[str, dict[str, str]], rag: Rag, question: Question, *, sha256: str) -> str:
    """Make questions from the gold answer and answer them from it and from the generated text; returns all as JSON.

    A response without questions, and a list of answers of another length, are recorded as parse failures. A blank
    text is not asked: it answers nothing. The JSON has `questions`, `gold`, `generated` and the `scores` of
    `quest_scores`.
    """
    gold, generated = about[question.id]["gold"], about[question.id]["generated"]
    questions = parse_lines(await rag.ask("quest_questions", context=gold))
    if not questions:
        rag.parse_failure("quest_questions")
        return canonical_json({"questions": [], "gold": [], "generated": [], "scores": {}})
    from_gold = await _answers(rag, question, gold, questions)
    from_text = await _answers(rag, question, generated, questions)
    scores = quest_scores(from_gold, from_text, question.language)
    return canonical_json({"questions": questions, "gold": from_gold, "generated": from_text, "scores": scores})


async def _answers(rag: Rag, question: Question, text: str, questions: Sequence[str]) -> list[str]:
    unknown = CANNOT_INFER[question.language]
    if not text.strip():
        return [unknown] * len(questions)
    numbered = [f"{number}. {asked}" for number, asked in enumerate(questions, 1)]
    response = await rag.ask("quest_answers", context=text, questions=numbered, unknown=unknown)
    answers, complete = parse_answers(response, len(questions), question.language)
    if not complete:
        rag.parse_failure("quest_answers")
    return answers


def quest_results(runs: Sequence[Run], *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """The mean of each metric of RAGQuestEval with its interval, from 0 to 1, a row for each method and metric.

    `runs` are annotations. Columns: dataset, method, metric, mean, low, high, interval, n (answers that have the
    metric) and `parse_failures`, the number of responses to its prompts that could not be parsed.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        require_text(run)
        for method in run.methods:
            samples = run.of(method)
            scores = [json.loads(sample.answer)["scores"] for sample in samples if sample.error is None]
            failures = sum(sample.counts.parse_failures for sample in samples)
            row = {"dataset": run.dataset, "method": method, "parse_failures": failures}
            for metric in QUEST_METRICS:
                values = [score[metric] for score in scores if metric in score]
                of_metric = row | {"metric": metric, "n": len(values)}
                if values:
                    low, high, interval = mean_interval(values, confidence=confidence, resamples=resamples)
                    mean = math.fsum(values) / len(values)
                    of_metric |= {"mean": mean, "low": low, "high": high, "interval": interval}
                rows.append(of_metric)
    columns = ["dataset", "method", "metric", "mean", "low", "high", "interval", "n", "parse_failures"]
    return pd.DataFrame(rows, columns=columns)
