"""RAGQuestEval: the model asks, and answers from the gold answer and from the generated text (CRUD-RAG)."""

from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.config import Config
from rag_notes.llm.store import canonical_json
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.quest_eval import CANNOT_INFER, parse_answers, quest_scores
from rag_notes.report.tables import QUEST_METRICS
from rag_notes.running.annotate import annotate, quest_texts, with_quest_scores
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study
from rag_notes.types import Question


async def run(config: Config, *, progress: bool = True) -> "QuestEval":
    """Run the chosen methods and put every answer to RAGQuestEval.

    Raises InputError for a question without gold answer, otherwise as `rag_notes.running.run.run_methods`.
    """
    one_repeat(config)
    runs = await run_methods(config, progress=progress)
    if runs[-1].info.finished:
        runs += await annotate(config, runs, "quest_eval", quest_eval, quest_texts, progress=progress)
    return QuestEval(config, runs)


class QuestEval(Study):
    """The scores of RAGQuestEval by method."""

    def table(self) -> pd.DataFrame:
        """Return the scores of RAGQuestEval with intervals and tests."""
        table = self.results(with_quest_scores(self.runs), self.config.baseline)
        return table[table["metric"].isin(QUEST_METRICS)].reset_index(drop=True)


async def quest_eval(texts: Mapping[str, dict[str, str]], rag: Rag, question: Question, *, sha256: str) -> str:
    """Make questions from the gold answer and answer them from it and from the generated text; return all as JSON.

    A response without questions, and a list of answers of another length, are recorded as parse failures. Nothing is
    asked about a blank text: it answers nothing. The JSON has `questions`, `gold`, `generated` and the `scores` of
    `quest_scores`.
    """
    questions = parse_lines(await rag.ask("quest_questions", context=texts[question.id]["gold"]))
    if not questions:
        rag.parse_failure("quest_questions")
        return canonical_json({"questions": [], "gold": [], "generated": [], "scores": {}})
    answers = {name: await _answers(rag, question, text, questions) for name, text in texts[question.id].items()}
    scores = quest_scores(answers["gold"], answers["generated"], question.language)
    return canonical_json({"questions": questions} | answers | {"scores": scores})


async def _answers(rag: Rag, question: Question, text: str, questions: Sequence[str]) -> list[str]:
    unknown = CANNOT_INFER[question.language]
    if not text.strip():
        return [unknown] * len(questions)
    numbered = [f"{number}. {line}" for number, line in enumerate(questions, 1)]
    response = await rag.ask("quest_answers", context=text, questions=numbered, unknown=unknown)
    answers, complete = parse_answers(response, len(questions), question.language)
    if not complete:
        rag.parse_failure("quest_answers")
    return answers
