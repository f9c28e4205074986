"""What a note has of the facts that a question needs, and where a method lost its way, where these facts are known.

Pure functions of texts and of the facts of a generated data set (data/world/facts.jsonl); no model is asked.

A text *states* a fact if one of its sentences has the fact's value and is about its subject. It is about the subject if
it has one of the subject's names, or if it refers back and the last sentence before it that does not refer back has
one. A sentence refers back if it begins with he, she, it, they, his, her, its, their or this, or with "the" where, the
value apart, no other word of it has a capital. Texts are compared as `normalize_answer` leaves them, with other
punctuation, bullets, bold and a possessive 's taken out, word by word: 195 is not in 1951.

So a fact in other words counts ("he comes from Ayr"), but what is said between subject and value is not understood. A
denial ("was not born in Ayr") and another relation of the two ("moved to Ayr") count as if they stated the fact, and so
does a value that belongs to somebody else in the same sentence. Not counted are a sentence without subject ("Born in
Ayr."), a fact with the entity in between left out ("the film's director was born in Ayr") and a name written otherwise.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import sentencex

from rag_notes.metrics.answer import normalize_answer
from rag_notes.types import Fact, InputError

Failure = Literal[
    "right",
    "first hop not found",
    "linking entity not asked for",
    "second hop not found",
    "fact dropped from the note",
    "answer wrong although the note has it",
    "answer wrong although the passages have it",  # of methods that write no notes
]

_BULLET = re.compile(r"^\s*(?:[-*•+]|\(?\d{1,2}[.)])\s+")
_POSSESSIVE = re.compile(r"['’]s\b")
_MARKS = re.compile(r"[^\w\s']|_")
_PRONOUN = re.compile(r"\W*(?:he|she|it|they|his|her|its|their|this)\b", re.IGNORECASE)
_DESCRIPTION = re.compile(r"\W*the\s", re.IGNORECASE)
_CAPITAL = re.compile(r"\b[^\W\d_a-z]\w*")


class Density(NamedTuple):
    """How many tokens a text has, and how many of them are in sentences that state a needed fact."""

    evidence: int
    tokens: int


class Verdict(NamedTuple):
    """Whether the judge took a new note for better than the best one, and whether it is."""

    judge: bool
    truth: bool


def facts_held(facts: Sequence[Fact], texts: Sequence[str]) -> tuple[bool, ...]:
    """Tell for each fact whether one of the texts (a note, or passages) states it; each text is read by itself."""
    sentences = [_sentences(text) for text in _checked(texts)]
    return tuple(any(_stating(fact, of_text) for of_text in sentences) for fact in facts)


def fact_density(facts: Sequence[Fact], texts: Sequence[str]) -> Density:
    """Count the tokens of the texts and those of their sentences that state a fact: exact knowledge density.

    A token is what spaces separate and has a letter or a digit. What knowledge density is: DeepNote, section 5.3; there
    the answering model marks the evidence.
    """
    evidence = total = 0
    for text in _checked(texts):
        sentences = _sentences(text)
        stating = {index for fact in facts for index in _stating(fact, sentences)}
        sizes = [sum(any(char.isalnum() for char in token) for token in sentence.split()) for sentence in sentences]
        total += sum(sizes)
        evidence += sum(sizes[index] for index in stating)
    return Density(evidence, total)


def failure(
    facts: Sequence[Fact],
    searches: Sequence[tuple[str, Sequence[str]]],
    notes: Sequence[tuple[str, bool]],
    *,
    correct: bool,
) -> Failure:
    """Name the first thing that went wrong on the way to an answer.

    `facts` are in the order of their hops, `searches` are (query, ids of the passages read), `notes` are (text, whether
    it became the best note), all in the order of the run. Of a wrong answer the facts are gone through: the passage of
    the first was never found; that of a later one ("second hop", of three hops also the third) was not, although a
    query names its subject (one of its names, or the value of the fact before) or because none does; all were found,
    and the last note kept does not state one of them, whether it was lost or never written; it states them all. Raises
    ValueError for a question without facts (unanswerable), and where notes were written and none was kept.
    """
    if not facts:
        raise InputError("this question needs no fact, so that none can be missed; leave unanswerable questions out")
    if correct:
        return "right"
    retrieved = {name for _, ids in searches for name in ids}
    for hop, fact in enumerate(facts):
        if fact.passage_id in retrieved:
            continue
        if hop == 0:
            return "first hop not found"
        subject_names = [_plain(name) for name in (*fact.names, facts[hop - 1].value)]
        is_queried = any(_has(_plain(query), name) for query, _ in searches for name in subject_names)
        return "second hop not found" if is_queried else "linking entity not asked for"
    if not notes:
        return "answer wrong although the passages have it"
    best_notes = [text for text, is_kept in notes if is_kept]
    if not best_notes:
        raise InputError("notes were written, but none is marked as kept; the first one always is")
    if all(facts_held(facts, best_notes[-1:])):
        return "answer wrong although the note has it"
    return "fact dropped from the note"


def note_is_better(facts: Sequence[Fact], best: str, new: str) -> bool:
    """Tell whether the new note states a fact more than the best one and has lost none that this states."""
    before, after = facts_held(facts, [best]), facts_held(facts, [new])
    return before != after and all(now or not then for then, now in zip(before, after, strict=True))


def verdicts(facts: Sequence[Fact], notes: Sequence[tuple[str, bool]]) -> list[Verdict]:
    """Compare each verdict of the judge of a run with the truth, for `notes` as in `failure`.

    No judge sees the first, the initial note; each later one is compared with the note that was best then.
    """
    pairs: list[Verdict] = []
    best = notes[0][0] if notes else ""
    for text, is_kept in notes[1:]:
        pairs.append(Verdict(is_kept, note_is_better(facts, best, text)))
        best = text if is_kept else best
    return pairs


def _checked(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise TypeError(f"texts must be a sequence of strings, not the string {texts[:40]!r}; put it in a list")
    return texts


def _sentences(text: str) -> list[str]:
    lines = (_BULLET.sub("", line.replace("**", "")) for line in text.splitlines())
    return [sentence.strip() for line in lines for sentence in sentencex.segment("en", line) if sentence.strip()]


def _stating(fact: Fact, sentences: Sequence[str]) -> list[int]:
    value, names = _plain(fact.value), [_plain(name) for name in fact.names]
    stating, about = [], False  # whether what a sentence that refers back speaks of is the subject
    for index, sentence in enumerate(sentences):
        plain = _plain(sentence)
        has_name = any(_has(plain, name) for name in names)
        if not _refers_back(sentence, fact.value):
            about = has_name
        if (about or has_name) and _has(plain, value):
            stating.append(index)
    return stating


def _refers_back(sentence: str, value: str) -> bool:
    if _PRONOUN.match(sentence):
        return True
    rest = _DESCRIPTION.sub("", sentence, count=1).replace(value, "")
    return _DESCRIPTION.match(sentence) is not None and not _CAPITAL.search(rest)


def _plain(text: str) -> str:
    return normalize_answer(_MARKS.sub(" ", _POSSESSIVE.sub("", text)))


def _has(plain: str, words: str) -> bool:
    return f" {words} " in f" {plain} "
