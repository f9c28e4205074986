"""RAGQuestEval of finished runs: the model asks, and answers from the gold answer and the generated text (CRUD-RAG)."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rag_notes.config import Config
from rag_notes.llm.store import canonical_json
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.quest_eval import CANNOT_INFER, parse_answers, quest_scores
from rag_notes.metrics.stats import mean_interval
from rag_notes.running.annotate import follow_up
from rag_notes.running.records import Run, Sample
from rag_notes.types import Question

METRICS = ("q_r", "t_p", "t_r", "t_f1", "q_gold")


async def quest_eval(about: Mapping[str, dict[str, str]], rag: Rag, question: Question, *, sha256: str) -> str:
    """Make questions from the gold answer and answer them from it and from the generated text; returns all as JSON.

    A response without questions, and a list of answers of another length, are recorded as unreadable. A blank text is
    not asked: it answers nothing. The JSON has `questions`, `gold`, `generated` and the `scores` of `quest_scores`.
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


async def run_quest_eval(
    config: Config, runs: Sequence[Run], given: Sequence[str] = (), *, progress: bool = True
) -> list[Run]:
    """Put every answer of these runs to RAGQuestEval; a run for each of them.

    Raises ValueError for a question without gold answer, otherwise as `rag_notes.running.annotate.follow_up`.
    """
    return await follow_up(config, runs, "quest_eval", quest_eval, _texts, given=given, progress=progress)


def quest_results(runs: Sequence[Run], *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """Return the mean of each metric of RAGQuestEval with its interval, from 0 to 1, a row for each method and metric.

    Columns: dataset, method, metric, mean, low, high, interval, n (answers that have the metric) and `unreadable`, the
    number of responses of the method's inquiries that could not be read.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        for method in run.methods:
            samples = [sample for sample in run.samples if sample["method"] == method]
            scores = [json.loads(sample["answer"])["scores"] for sample in samples if sample["error"] is None]
            row = {
                "dataset": run.dataset.removesuffix("-quest_eval"),
                "method": method.removeprefix("quest_eval_of_"),
                "unreadable": sum(sample["counts"]["unreadable"] for sample in samples),
            }
            for metric in METRICS:
                values = [score[metric] for score in scores if metric in score]
                of_metric = row | {"metric": metric, "n": len(values)}
                if values:
                    low, high, interval = mean_interval(values, confidence=confidence, resamples=resamples)
                    mean = math.fsum(values) / len(values)
                    of_metric |= {"mean": mean, "low": low, "high": high, "interval": interval}
                rows.append(of_metric)
    columns = ["dataset", "method", "metric", "mean", "low", "high", "interval", "n", "unreadable"]
    return pd.DataFrame(rows, columns=columns)


def _texts(sample: Sample) -> dict[str, str]:
    if not sample["gold"]:
        raise ValueError(f"question {sample['question_id']} has no gold answer to make questions from; leave it out")
    return {"gold": sample["gold"][0], "generated": sample["answer"]}
