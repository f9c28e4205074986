"""DNAlign: preference pairs for four stages of DeepNote (DeepNote, section 3.4, Appendix D, Tables 3, 19 and 20)."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from json_repair import repair_json

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.note import JOINED_LENGTH
from rag_notes.methods.parse import parse_lines
from rag_notes.metrics.answer import score_answer, tokens
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.prompts.templates import Value
from rag_notes.training.examples import Work
from rag_notes.types import InputError, Passage, Positive, Question

ABOUT = About(
    label="DNAlign",
    source="DeepNote, section 3.4 and Appendix D",
    calls=lambda s: len(s["temperatures"]) * len(s["top_ps"]) * 5 + 2 * (s["evaluator"] == "model"),
    # prompts/<set>/<language>/<name>.txt
    prompts=("note_init", "note_query", "note_update", "note_judge", "dnalign_notes", "dnalign_queries", *ANSWER),
)

_METRICS = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit")  # those of a data set, which its mean is made of


class _Pair(NamedTuple):
    chosen: str
    rejected: str


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

    The number of passages is drawn for each question between the two bounds. `evaluator` names the best and the worst
    of the first notes and of the further questions: a model by a prompt (stages `dnalign_notes` and `dnalign_queries`),
    or a rule from the gold answers and passages. Updates are told apart by the prompt that decides in the method
    (`note_judge`), and one of either kind is drawn; answers, those of vanilla RAG as in the paper, by the mean of the
    task's metrics. The later stages go on from the best first note and the best questions. A stage whose responses give
    no pair is dropped. Raises InputError where the bounds are the wrong way round.
    """
    if least_passages > most_passages:
        raise InputError(
            f"training_data.least_passages={least_passages} is more than training_data.most_passages={most_passages}"
        )
    q, rag = work.question.question, work.rag
    samplings = [{"temperature": temperature, "top_p": top_p} for temperature in temperatures for top_p in top_ps]
    top_k = work.random.randint(least_passages, most_passages)
    passages = await rag.search(q, top_k)

    stage = f"answer_{work.question.task}"
    prompt = work.prompt(stage, context=passages, question=q)
    if work.question.answers or work.question.qa_pairs:
        answers = await work.sample(stage, prompt, samplings)
        _keep(work, stage, prompt, _extremes(answers, [(_task_score(work.question, answer),) for answer in answers]))
    else:
        work.drop(stage, "no gold answer")

    prompt = work.prompt("note_init", context=passages, question=q)
    notes = await work.sample("note_init", prompt, samplings)
    if evaluator == "gold":
        pair = _extremes(notes, [_note_score(work, note, passages) for note in notes])
    else:
        pair = await _evaluate(work, "dnalign_notes", notes, context=passages, question=q)
    if (best := _keep(work, "note_init", prompt, pair)) is None:
        return

    prompt = work.prompt("note_query", question=q, note=best, queries=[])
    lists = await work.sample("note_query", prompt, samplings)
    if evaluator == "gold":
        found = await asyncio.gather(*(rag.search(_joined(queries, q), top_k) for queries in lists))
        pair = _extremes(lists, [_search_score(work, hits, passages) for hits in found])
    else:
        pair = await _evaluate(work, "dnalign_queries", lists, question=q, note=best, queries=[])
    if (queries := _keep(work, "note_query", prompt, pair)) is None:
        return

    passages = await rag.search(_joined(queries, q), top_k)
    prompt = work.prompt("note_update", context=passages, question=q, note=best)
    updates = await work.sample("note_update", prompt, samplings)
    verdicts = await asyncio.gather(
        *(rag.judge("note_judge", question=q, best_note=best, new_note=update) for update in updates)
    )
    better = [update for update, is_better in zip(updates, verdicts, strict=True) if is_better]
    others = [update for update, is_better in zip(updates, verdicts, strict=True) if not is_better]
    drawn: _Pair | str = "none judged better" if not better else "all judged better"
    if better and others:
        drawn = _Pair(work.random.choice(better), work.random.choice(others))
    _keep(work, "note_update", prompt, drawn)


def _keep(work: Work, stage: str, prompt: str, pair: _Pair | str) -> str | None:
    """Add the pair as an example and return its better half; a string is why there is none."""
    if isinstance(pair, str):
        work.drop(stage, pair)
        return None
    work.learn(stage, prompt, chosen=pair.chosen, rejected=pair.rejected)
    return pair.chosen


async def _evaluate(work: Work, stage: str, candidates: Sequence[str], **fields: Value) -> _Pair | str:
    """The best and the worst of the candidates as a model names them (Tables 19 and 20)."""
    if len(candidates) < 2:
        return "all the same"
    listed = [json.dumps({"_id": i, "content": text}, ensure_ascii=False) for i, text in enumerate(candidates, 1)]
    verdict = await work.rag.ask(stage, candidates=listed, **fields)
    read = repair_json(verdict[verdict.find("{") :], return_objects=True)
    ids = [_place(read, name, len(candidates)) for name in ("best_id", "worst_id")]
    if None in ids:
        return "the evaluator's verdict cannot be read"
    best, worst = (place for place in ids if place is not None)
    return "no difference" if best == worst else _Pair(candidates[best], candidates[worst])


def _place(read: Any, name: str, count: int) -> int | None:
    """The place of the candidate that a verdict names, counted from 0; None where it names none."""
    said = str(read.get(name)) if isinstance(read, Mapping) else ""
    return int(said) - 1 if said.isdecimal() and 1 <= int(said) <= count else None


def _extremes(candidates: Sequence[str], scores: Sequence[tuple[float, ...]]) -> _Pair | str:
    """The first of the candidates with the highest score, and the first with the lowest."""
    if len(candidates) < 2:
        return "all the same"
    if max(scores) == min(scores):
        return "no difference"
    return _Pair(candidates[scores.index(max(scores))], candidates[scores.index(min(scores))])


def _task_score(question: Question, answer: str) -> float:
    scores = score_answer(question, answer)
    values = [scores[name] for name in _METRICS if name in scores]
    if not values:
        raise InputError(f"question {question.id!r}: has no gold answer, by which training answers are chosen")
    return math.fsum(values) / len(values)


def _note_score(work: Work, note: str, passages: Sequence[Passage]) -> tuple[float, ...]:
    """Whether a note holds a gold answer, then how many of the gold passages found it names by their title.

    Of notes equal in both that one is better of whose words more, as a share, stand in the gold passages found.
    """
    gold, language = [passage for passage in passages if work.is_gold(passage)], work.question.language
    titles = {passage.title.casefold() for passage in gold if passage.title}
    named = sum(title in note.casefold() for title in titles)
    known = {word for passage in gold for word in tokens(f"{passage.title} {passage.text}", language)}
    words = tokens(note, language)
    return _answer_in([note], work.question), named, sum(word in known for word in words) / max(1, len(words))


def _search_score(work: Work, hits: Sequence[Passage], before: Sequence[Passage]) -> tuple[float, ...]:
    """How many gold passages a search found that the first one had not found, then whether it found the answer."""
    known = {passage.id for passage in before}
    new = sum(work.is_gold(passage) for passage in hits if passage.id not in known)
    return new, _answer_in(hits, work.question)


def _answer_in(texts: Sequence[Passage | str], question: Question) -> float:
    """Whether a gold answer stands in the texts; yes and no stand anywhere."""
    known = question.answers if question.task != "yes_no" else ()
    return answer_in_passages(texts, known, question.language) or 0.0


def _joined(queries: str, question: str) -> str:
    """The query that DeepNote makes of further questions."""
    return " ".join([*parse_lines(queries), question])[:JOINED_LENGTH]
