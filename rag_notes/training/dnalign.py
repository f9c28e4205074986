"""DNAlign: preference pairs for four stages of DeepNote (DeepNote, section 3.4, Appendix D, Tables 3, 19 and 20)."""

import asyncio
import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

from json_repair import repair_json

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.note import JOINED_LENGTH
from rag_notes.methods.parse import parse_lines
from rag_notes.metrics.answer import score_answer, tokens
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.training.data import Fields, Work
from rag_notes.types import Passage, Positive, Question

ABOUT = About(
    label="DNAlign",
    source="DeepNote, section 3.4 and Appendix D",
    calls=lambda s: len(s["temperatures"]) * len(s["top_ps"]) * 5 + 2 * (s["evaluator"] == "model"),
    prompts=("note_init", "note_query", "note_update", "note_judge", "dnalign_notes", "dnalign_queries", *ANSWER),
)

_METRICS = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit")  # an answer's score is the mean of those it has
_Pair = tuple[str, str]  # chosen and rejected


async def dnalign(
    work: Work,
    *,
    evaluator: Literal["model", "gold"] = "model",
    temperatures: list[float],
    top_ps: list[float],
    least_passages: Positive = 3,
    most_passages: Positive = 9,
) -> None:
    """Sample each stage with every pair of `temperatures` and `top_ps`, and take a better and a worse response.

    The number of passages is drawn for each question between the two bounds. `evaluator` chooses the best and the worst
    of the first notes and of the further questions: a model by a prompt (stages `dnalign_notes` and `dnalign_queries`),
    or a rule from the gold answers and passages. Updates are judged by the method's own prompt (`note_judge`), and one
    of either verdict is drawn; answers, those of vanilla RAG as in the paper, are ranked by the mean of the task's
    metrics. The later stages start from the best first note and the best questions. A stage whose responses give no
    pair is dropped.
    """
    question = work.question.question
    samplings = [{"temperature": temperature, "top_p": top_p} for temperature in temperatures for top_p in top_ps]
    top_k = work.random.randint(*sorted((least_passages, most_passages)))
    passages = await work.search(question, top_k)

    stage = f"answer_{work.question.task}"
    fields: Fields = {"context": passages, "question": question}
    if work.question.answers or work.question.qa_pairs:
        answers = await work.sample(stage, fields, samplings)
        metrics = [score_answer(work.question, answer) for answer in answers]
        scores = [(fmean(one[name] for name in _METRICS if name in one),) for one in metrics]
        _learn(work, stage, fields, _extremes(answers, scores))
    else:
        work.drop(stage, "no gold answer")

    pair: _Pair | str
    notes = await work.sample("note_init", fields, samplings)
    if evaluator == "gold":
        pair = _extremes(notes, [_note_score(work, note, passages) for note in notes])
    else:
        pair = await _evaluate(work, "dnalign_notes", notes, fields)
    if (best := _learn(work, "note_init", fields, pair)) is None:
        return

    fields = {"question": question, "note": best, "queries": []}
    lists = await work.sample("note_query", fields, samplings)
    if evaluator == "gold":
        results = await asyncio.gather(*(work.search(_query(queries, question), top_k) for queries in lists))
        pair = _extremes(lists, [_search_score(work, hits, passages) for hits in results])
    else:
        pair = await _evaluate(work, "dnalign_queries", lists, fields)
    if (queries := _learn(work, "note_query", fields, pair)) is None:
        return

    fields = {"context": await work.search(_query(queries, question), top_k), "question": question, "note": best}
    updates = await work.sample("note_update", fields, samplings)
    verdicts = await asyncio.gather(
        *(work.judge("note_judge", question=question, best_note=best, new_note=update) for update in updates)
    )
    better = [update for update, is_better in zip(updates, verdicts, strict=True) if is_better]
    others = [update for update, is_better in zip(updates, verdicts, strict=True) if not is_better]
    pair = "all judged better" if better else "none judged better"
    if better and others:
        pair = (work.random.choice(better), work.random.choice(others))
    _learn(work, "note_update", fields, pair)


def _learn(work: Work, stage: str, fields: Fields, pair: _Pair | str) -> str | None:
    """Add a pair as an example and return its better half; a string is why there is none."""
    if isinstance(pair, str):
        work.drop(stage, pair)
        return None
    work.learn(stage, fields, chosen=pair[0], rejected=pair[1])
    return pair[0]


async def _evaluate(work: Work, stage: str, candidates: Sequence[str], fields: Fields) -> _Pair | str:
    """Ask a model for the best and the worst of the candidates (Tables 19 and 20)."""
    if len(candidates) < 2:
        return "all the same"
    by_number = {str(number): text for number, text in enumerate(candidates, 1)}
    lines = [json.dumps({"_id": i, "content": text}, ensure_ascii=False) for i, text in enumerate(candidates, 1)]
    response = await work.ask(stage, candidates=lines, **fields)
    verdict: Any = repair_json(response[response.find("{") :], return_objects=True)
    try:
        best, worst = (by_number[str(verdict[key])] for key in ("best_id", "worst_id"))
    except (LookupError, TypeError):
        return "the evaluator's verdict cannot be read"
    return "no difference" if best == worst else (best, worst)


def _extremes(candidates: Sequence[str], scores: Sequence[tuple[float, ...]]) -> _Pair | str:
    """Return the first of the candidates with the highest score, and the first with the lowest."""
    if len(candidates) < 2:
        return "all the same"
    if max(scores) == min(scores):
        return "no difference"
    return candidates[scores.index(max(scores))], candidates[scores.index(min(scores))]


def _note_score(work: Work, note: str, passages: Sequence[Passage]) -> tuple[float, ...]:
    """Return whether a note holds a gold answer, how many gold passages it names, and its share of their words."""
    gold, language = [passage for passage in passages if work.is_gold(passage)], work.question.language
    titles = {passage.title.casefold() for passage in gold if passage.title}
    gold_words = {word for passage in gold for word in tokens(f"{passage.title} {passage.text}", language)}
    words = tokens(note, language)
    share = sum(word in gold_words for word in words) / max(1, len(words))
    return _has_answer([note], work.question), sum(title in note.casefold() for title in titles), share


def _search_score(work: Work, hits: Sequence[Passage], before: Sequence[Passage]) -> tuple[float, ...]:
    """Return how many gold passages are new after the first search, and whether a search finds the answer."""
    ids = {passage.id for passage in before}
    return sum(work.is_gold(passage) for passage in hits if passage.id not in ids), _has_answer(hits, work.question)


def _has_answer(texts: Sequence[Passage | str], question: Question) -> float:
    """Return whether a gold answer stands in the texts; yes and no stand anywhere, so that they do not count."""
    answers = question.answers if question.task != "yes_no" else ()
    return answer_in_passages(texts, answers, question.language) or 0.0


def _query(queries: str, question: str) -> str:
    """Return the query that DeepNote makes of further questions."""
    return " ".join([*parse_lines(queries), question])[:JOINED_LENGTH]
