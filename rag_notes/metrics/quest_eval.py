"""RAGQuestEval: does a text answer the questions that the gold answer answers, and alike? (CRUD-RAG, Lyu et al., 2024).

Pure functions of strings: who asks the questions and answers them is in `rag_notes.studies.quest_eval`.
"""

import re
from collections import Counter
from collections.abc import Sequence

from rag_notes.metrics.answer import normalize_answer, tokens
from rag_notes.types import InputError, Language

CANNOT_INFER: dict[Language, str] = {"en": "cannot be inferred", "zh": "无法推断"}
"""What is written in the place of an answer that a text does not give."""

_NUMBERED = re.compile(r"\s*\(?(\d{1,3})[.):、．：](?!\d)\s*(.*)")


def parse_answers(text: str, number: int, language: Language = "en") -> tuple[list[str], bool]:
    """Return the `number` answers that a response lists, and whether it lists just so many.

    Lines are read by their numbers or, where none has one, in their order. An answer that is missing or empty counts
    as "cannot be inferred".
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    numbered = [match for line in lines if (match := _NUMBERED.fullmatch(line))]
    listed = {int(match[1]): match[2].strip() for match in numbered} or dict(enumerate(lines, 1))
    answers = [listed.get(index) or CANNOT_INFER[language] for index in range(1, number + 1)]
    return answers, set(listed) == set(range(1, number + 1)) and all(listed.values())


def can_infer(answer: str, language: Language = "en") -> bool:
    """Tell whether an answer is one: it is not blank and does not hold the phrase that it cannot be inferred."""
    normal = normalize_answer(answer, language)
    return bool(normal) and normalize_answer(CANNOT_INFER[language], language) not in normal


def quest_scores(gold: Sequence[str], generated: Sequence[str], language: Language = "en") -> dict[str, float]:
    """Return Q-R and T-P, T-R, T-F1 of one text, from 0 to 1, by the names `q_r`, `t_p`, `t_r` and `t_f1`.

    `gold` and `generated` are the answers to the same questions, from the gold answer and from the text. A question
    that the gold answer itself does not answer is left out first: `q_gold` is the share of those that stay, and alone
    where none does; without questions nothing is returned. Q-R is the share of the others that the text answers. T-P,
    T-R and T-F1 are means, over the questions that both answer, of the share of the generated answer's tokens that the
    gold one has, of the gold one's that the generated one has, and of their F1: 0 where there is none. Raises
    ValueError for answers to different numbers of questions.
    """
    if len(gold) != len(generated):
        raise InputError(f"answers must be to the same questions: gold has {len(gold)}, generated {len(generated)}")
    if not gold:
        return {}
    inferable = [pair for pair in zip(gold, generated, strict=True) if can_infer(pair[0], language)]
    scores = {"q_gold": len(inferable) / len(gold)}
    if not inferable:
        return scores
    overlaps = [_overlap(theirs, ours, language) for theirs, ours in inferable if can_infer(ours, language)]
    means = [sum(values) / len(overlaps) for values in zip(*overlaps, strict=True)] if overlaps else [0.0, 0.0, 0.0]
    return scores | {"q_r": len(overlaps) / len(inferable)} | dict(zip(("t_p", "t_r", "t_f1"), means, strict=True))


def _overlap(gold: str, generated: str, language: Language) -> tuple[float, float, float]:
    gold_tokens, generated_tokens = (Counter(tokens(text, language)) for text in (gold, generated))
    shared = (gold_tokens & generated_tokens).total()
    gold_size, generated_size = gold_tokens.total(), generated_tokens.total()
    return shared / generated_size, shared / gold_size, 2 * shared / (gold_size + generated_size)
