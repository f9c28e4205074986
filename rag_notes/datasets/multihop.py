"""Multi-hop question answering: HotpotQA, 2WikiMultiHopQA, MuSiQue and StrategyQA in their official formats."""

import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Literal

from rag_notes.datasets._build import Entry, Paragraph, build, read_corpus
from rag_notes.datasets._read import Record, read_json_list, read_json_object, read_jsonl
from rag_notes.datasets.selection import Asked, asked
from rag_notes.types import Dataset, Name, Passage, Question

_HOPS = re.compile(r"((\d)hop\d?)__")
_PARAGRAPH_KEY = re.compile(r"(.+)-\d+")


def hotpotqa(
    path: str,
    *,
    name: Name = "hotpotqa",
    setting: Literal["distractor", "fullwiki"] = "distractor",
    questions: Asked = "all",
    corpus: str | None = None,
) -> Dataset:
    """Read HotpotQA's JSON (Yang et al., 2018); `type` is bridge or comparison.

    Every supporting title is among a question's paragraphs in the distractor setting, and `DataError` is raised where
    it is not. In the fullwiki setting the paragraphs are retrieved ones: `gold_titles` are always set, `gold_ids`
    only where all supporting paragraphs were retrieved. `questions` may be the papers' own (`asked`).
    """
    entries = _wiki_entries(path, name, glue="", complete=setting == "distractor")
    return asked(build(name, path, entries, corpus), questions, "hotpotqa", path)


def twowikimultihopqa(
    path: str, *, name: Name = "twowikimultihopqa", questions: Asked = "all", corpus: str | None = None
) -> Dataset:
    """Read 2WikiMultiHopQA's JSON (Ho et al., 2020); `type` is its kind of reasoning, such as bridge_comparison.

    `questions` may be the papers' own (`asked`).
    """
    # HotpotQA's sentences begin with their space, those of 2WikiMultiHopQA do not.
    entries = _wiki_entries(path, name, glue=" ", complete=True)
    return asked(build(name, path, entries, corpus), questions, "twowikimultihopqa", path)


def _wiki_entries(path: str, name: str, *, glue: str, complete: bool) -> Iterator[Entry]:
    for record in read_json_list(path, f"dataset.{name}.path"):
        paragraphs = [paragraph for paragraph in wiki_paragraphs(record, glue=glue) if paragraph.text]
        titles = tuple(dict.fromkeys(_supporting_titles(record)))
        missing = [title for title in titles if title not in {paragraph.title for paragraph in paragraphs}]
        if missing and complete:
            raise record.error(
                "supporting_facts", f"expected a title of the paragraphs in 'context', found {missing[0]!r}"
            )
        question = Question(
            id=record.identifier("_id"),
            question=record.text("question"),
            answers=(record.text("answer"),),
            gold_titles=titles,
            type=record.text("type"),
        )
        support = [] if missing else [p for title in titles for p in dict.fromkeys(paragraphs) if p.title == title]
        yield Entry(record.place, question, paragraphs, support)


def wiki_paragraphs(record: Record, *, glue: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a record of HotpotQA or 2WikiMultiHopQA, also those without text."""
    for title, sentences in _context(record):
        yield Paragraph(title, glue.join(sentences).strip())


def _context(record: Record) -> Iterator[tuple[str, list[str]]]:
    for index, item in enumerate(record.items("context")):
        match item:
            case [str(title), [*sentences]] if title.strip() and all(isinstance(text, str) for text in sentences):
                yield title, sentences
            case _:
                raise record.error(f"context[{index}]", "expected [title, [sentence, ...]]")


def _supporting_titles(record: Record) -> Iterator[str]:
    for index, item in enumerate(record.items("supporting_facts")):
        match item:
            case [str(title), int()]:
                yield title
            case _:
                raise record.error(f"supporting_facts[{index}]", "expected [title, sentence number]")


def musique(path: str, *, name: Name = "musique", questions: Asked = "all", corpus: str | None = None) -> Dataset:
    """Read MuSiQue's JSON Lines (Trivedi et al., 2022), of the answerable (Ans) or of the full set.

    `answers` are the answer and its aliases, and empty for an unanswerable question. `type` and `hops` come from the
    id ("3hop1__..." has type "3hop1" and 3 hops). The full set gives a question and its unanswerable twin one id:
    the twin's gets the ending "_unanswerable". `questions` may be the papers' own (`asked`).
    """
    return asked(build(name, path, _musique_entries(path, name), corpus), questions, "musique", path)


def _musique_entries(path: str, name: str) -> Iterator[Entry]:
    for record in read_jsonl(path, f"dataset.{name}.path"):
        question_id = record.text("id")
        kind, hops = hops_of(question_id)
        if not hops:
            raise record.error("id", f"expected an id that begins like '2hop__' or '3hop1__', found {question_id!r}")
        answerable = record.boolean("answerable")
        answers = (record.text("answer"), *record.texts("answer_aliases", at_least=0)) if answerable else ()
        paragraphs, support = supported_paragraphs(record, "paragraphs")
        question = Question(
            id=question_id if answerable else f"{question_id}_unanswerable",
            question=record.text("question"),
            answers=tuple(dict.fromkeys(answers)),
            type=kind,
            hops=hops,
        )
        yield Entry(record.place, question, paragraphs, support)


def hops_of(question_id: str) -> tuple[str, int]:
    """Return the type and the number of hops that a MuSiQue id begins with, ("", 0) for another id."""
    match = _HOPS.match(question_id)
    return (match[1], int(match[2])) if match else ("", 0)


def supported_paragraphs(record: Record, field: str) -> tuple[list[Paragraph], list[Paragraph]]:
    """Return the paragraphs (`title`, `paragraph_text`, `is_supporting`) of a list, and the supporting ones of them."""
    flagged = [
        (Paragraph(item.title("title"), item.text("paragraph_text")), item.boolean("is_supporting"))
        for item in record.objects(field)
    ]
    return [p for p, _ in flagged], list(dict.fromkeys(p for p, supporting in flagged if supporting))


def strategyqa(path: str, *, name: Name = "strategyqa", corpus: str | None = None) -> Dataset:
    """Read StrategyQA's JSON (Geva et al., 2021), whose answers become "yes" and "no".

    `corpus` is the official paragraph file (a JSON object from "Title-number" to `title`, `content`), the same as
    JSON Lines with `title`, `para_index`, `contents`, or any other corpus. The evidence names paragraphs as
    "Title-number": `gold_titles` are the titles, `gold_ids` the paragraphs that any annotator named, set where
    the corpus is a paragraph file. Raises `DataError` on evidence that the paragraph file does not hold.
    """
    passages, ids = _strategyqa_paragraphs(corpus, name)
    entries = []
    for record in read_json_list(path, f"dataset.{name}.path"):
        keys = tuple(dict.fromkeys(_evidence(record))) if record.has("evidence") else ()
        unknown = [key for key in keys if ids and key not in ids]
        if unknown:
            raise record.error("evidence", f"expected paragraphs of {corpus}, found {unknown[0]!r}")
        question = Question(
            id=record.text("qid"),
            question=record.text("question"),
            answers=("yes" if record.boolean("answer") else "no",),
            gold_titles=tuple(dict.fromkeys(key.rpartition("-")[0] for key in keys)),
            gold_ids=tuple(ids[key] for key in keys) if ids else (),
            task="yes_no",
        )
        entries.append(Entry(record.place, question))
    return build(name, path, entries, passages)


def _evidence(record: Record) -> Iterator[str]:
    """Yield the paragraph keys of all annotators (annotator > step > keys, "operation" or "no_evidence")."""
    waiting = list(reversed(record.items("evidence")))
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, str) and _PARAGRAPH_KEY.fullmatch(item):
            yield item
        elif item not in ("operation", "no_evidence"):
            found = reprlib.repr(item)  # which does not go into the depth
            raise record.error("evidence", f"expected 'Title-number', 'operation' or 'no_evidence', found {found}")


def _strategyqa_paragraphs(corpus: str | None, name: str) -> tuple[Sequence[Passage] | None, dict[str, str]]:
    """Return the passages and each evidence key's passage id; no keys where the corpus is not a paragraph file."""
    option = f"dataset.{name}.corpus"
    if corpus is not None and corpus.endswith(".json"):
        file = read_json_object(corpus, option)
        records = {key: file.object(key) for key in file.values}
        passages = tuple(Passage(key, record.title("title"), record.text("content")) for key, record in records.items())
        return passages, {passage.id: passage.id for passage in passages}
    ids = {
        f"{record.text('title')}-{record.integer('para_index')}": record.identifier("id")
        for record in (read_jsonl(corpus, option) if corpus is not None and corpus.endswith(".jsonl") else ())
        if record.has("para_index")
    }
    return None if corpus is None else read_corpus(corpus, option), ids
