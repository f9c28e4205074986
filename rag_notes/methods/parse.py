"""Reading what an LLM wrote: lists, sentences, one of a few words, a final answer behind its marker."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import sentencex
from json_repair import repair_json

from rag_notes.types import Language

# A number followed by a digit is no bullet (1.5 million), nor is a star without a space (*Who* ...).
_BULLET = re.compile(r"^(?:[-•](?!\d)|\*\s|\(?\d{1,2}[.):、．](?!\d))\s*")
_BOLD = re.compile(r"^\*\*(.*)\*\*$")
_QUOTED = re.compile(r'^["“](.*)["”]$')
_ANY = re.IGNORECASE | re.MULTILINE
_MARKER = re.compile(r"(?:final answer|最终答案)(?:\s+is|是|为)?[*_\s]*?(?:[:：]|[*_ ]*$)[*_\s]*", _ANY)
_QUESTION = re.compile(r"(?:new question|新问题)[*_\s]*[:：][*_\s]*", _ANY)
# "A lookup" and "a fact", but not "A is right".
_ARTICLE = re.compile(r"(?:\ba|(?:^|(?<=[.!?] ))A)(?= (?!(?:and|or|is)\b)\w)", re.MULTILINE)
# The number of a passage at the beginning of a line, and its two tags side by side; a list of choices is no tag.
_NUMBERED = re.compile(r"^\W*(?:passage|段落)?\W{0,3}(\d{1,2})(?!\d)", _ANY)
_TAGS = re.compile(
    r"(?<!or )(?<!not )\b(useful|useless)\W{1,8}(?:(?:and|but) )?(relevant|irrelevant)\b(?! or)"
    r"|(?<![或没])(有用|无用)\W{0,8}(?:且|但|而)?(不相关|无关|相关)(?!或)",
    _ANY,
)
_BRACKETED = re.compile(r"<([^<>]+)>[^<>]*")


class Label(NamedTuple):
    """Whether a passage helps with the answer, and whether it is about the question."""

    useful: bool
    relevant: bool


def parse_lines(text: str) -> list[str]:
    """The non-empty lines of `text` without bullets, numbers, bold stars or surrounding quotes."""
    plain = (_BOLD.sub(r"\1", line.strip()).strip() for line in text.splitlines())
    lines = (_QUOTED.sub(r"\1", _BULLET.sub("", line)).strip() for line in plain)
    return [line for line in lines if line]


def parse_sentences(text: str, language: Language = "en") -> list[str]:
    """The sentences of `text`, a line break being the end of one."""
    lines = (line for line in text.splitlines() if line.strip())
    return [sentence.strip() for line in lines for sentence in sentencex.segment(language, line) if sentence.strip()]


def parse_copied(text: str, response: str, language: Language = "en") -> list[str]:
    """The sentences of `text` that `response` has word for word."""
    return [sentence for sentence in parse_sentences(text, language) if sentence in response]


def parse_next_sentence(text: str, language: Language = "en") -> str:
    """The first sentence of `text`; all of `text` where that is a final answer, which may have several."""
    text = text.strip()
    first = next(iter(parse_sentences(text, language)), "")
    return text if _MARKER.search(first) else first


def parse_choice(text: str, choices: Sequence[str], field: str = "result") -> str | None:
    """The one of `choices` that `{"result": "..."}` names, read leniently; None where it cannot be read.

    Fenced JSON, single quotes, a bare boolean in the JSON, a bare word and a sentence with just one of the choices
    are read, in any case; several choices are not, and an article is not the choice A.
    """
    names = {choice.lower(): choice for choice in choices}
    words = rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])"
    readings = set(re.findall(words, _ARTICLE.sub("", text).lower(), re.ASCII))
    for braces in (r"\{[^{}]*\}", r"(?s)\{.*\}"):  # the innermost objects, else the whole
        objects = [repair_json(found, return_objects=True) for found in re.findall(braces, text)]
        values = {str(value.get(field)).strip().lower() for value in objects if isinstance(value, dict)}
        if values & names.keys():
            readings = values & names.keys()
            break
    return names[readings.pop()] if len(readings) == 1 else None


def parse_final_answer(text: str) -> str | None:
    """What follows the last `Final answer:` marker; None where the marker or the text behind it is missing.

    Bold stars and angle brackets around the answer are left out, and so is a remark behind the closing bracket.
    """
    _, *parts = _MARKER.split(text)
    answer = parts[-1].strip() if parts else ""
    if bracketed := _BRACKETED.fullmatch(answer):
        answer = bracketed[1]
    return answer.strip("<>*` \n") or None


def parse_new_question(text: str) -> str | None:
    """What follows the last `New question:` marker on its line; None where the marker or the text is missing."""
    _, *parts = _QUESTION.split(text)
    lines = parse_lines(parts[-1]) if parts else []
    return lines[0].strip("<>") if lines else None


def parse_labels(text: str) -> dict[int, Label]:
    """The two tags of each passage by its number, from lines such as `2. useless, relevant, it says no year`.

    The tags may stand anywhere behind the number, up to the next one; a number given twice keeps its first tags.
    """
    labels: dict[int, Label] = {}
    _, *parts = _NUMBERED.split(text)
    for number, rest in zip(parts[::2], parts[1::2], strict=True):
        if tags := _TAGS.search(rest):
            useful, relevant = (tag.lower() for tag in tags.groups() if tag)
            labels.setdefault(int(number), Label(useful in ("useful", "有用"), relevant in ("relevant", "相关")))
    return labels
