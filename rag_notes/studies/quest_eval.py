"""RAGQuestEval: the model asks, and answers from the gold answer and from the generated text (CRUD-RAG)."""

from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.config import load_study
from rag_notes.llm.store import canonical_json
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.quest_eval import CANNOT_INFER, parse_answers, quest_scores
from rag_notes.report.figures import NotebookFigure, main_figure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.tables import QUEST_METRICS
from rag_notes.running.annotate import annotate
from rag_notes.running.quest_scores import quest_texts, with_quest_scores
from rag_notes.running.records import require_text
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study, once
from rag_notes.types import Question


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "QuestEval":
    """Run the chosen methods and put every answer to RAGQuestEval, but those that were published with their scores.

    Raises ValueError for a question without gold answer and for a run published without scores, otherwise as
    `rag_notes.running.run.run_methods`.
    """
    config = load_study("quest_eval", options)
    one_repeat(config)
    runs = await run_methods(config, options, progress=progress)
    asked = [run for run in runs if not any("q_gold" in sample.metrics for sample in run.samples)]
    for run in asked:
        require_text(run)
    if asked and runs[-1].info.finished:
        runs += await annotate(config, asked, "quest_eval", quest_eval, quest_texts, options, progress=progress)
    return QuestEval(config, options, runs)


class QuestEval(Study):
    """The scores of RAGQuestEval, beside each other by method."""

    @once
    def table(self) -> pd.DataFrame:
        """The scores of the answers that were put to it, with intervals and tests: rows of `tables.results`."""
        scored = with_quest_scores({str(number): run for number, run in enumerate(self.runs)})
        table = self.results([run for run in scored.values() if run.info.condition.annotates is None])
        return table[table["metric"].isin(QUEST_METRICS)]

    def display(self) -> ScoresTable:
        """The scores in %, methods by data sets and metrics."""
        return ScoresTable(self.table())

    def figure(self) -> NotebookFigure:
        """The scores with their intervals, a panel a metric by which methods differ; saved with the table."""
        return self.save(main_figure(self.table(), metrics=QUEST_METRICS), self.table())


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
