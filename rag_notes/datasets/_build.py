"""From the records of a file to a `Dataset`: the pool of passages, corpus files, gold ids, the cut of the questions."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rag_notes.datasets._read import DataError, existing, read_lines
from rag_notes.datasets.corpus_file import CorpusFile
from rag_notes.types import Dataset, Passage, Question


class Paragraph(NamedTuple):
    """A paragraph of a record; `id` is empty where the file gives none."""

    title: str
    text: str
    id: str = ""


class Entry(NamedTuple):
    """A question with its place in the file, its own paragraphs, and those of them that support the answer."""

    place: str
    question: Question
    paragraphs: Sequence[Paragraph] = ()
    support: Sequence[Paragraph] = ()


def build(
    name: str, entries: Iterable[Entry], corpus: Sequence[Passage] | None, offset: int, limit: int | None
) -> Dataset:
    """Return `limit` questions from `offset` on, with the given corpus or else the pool of all entries' paragraphs.

    A question's `gold_ids` are set where the corpus holds all its supporting paragraphs with the same title and text;
    they stay empty where one of them is missing, because a part of them would make recall look better than it is.
    Raises `DataError` on an id that occurs twice and on a cut that leaves no question.
    """
    entries = list(entries)
    places: dict[str, str] = {}
    for entry in entries:
        if entry.question.id in places:
            other = places[entry.question.id]
            raise DataError(f"{entry.place}: the question id {entry.question.id!r} is already used in {other}")
        places[entry.question.id] = entry.place
    if offset < 0:
        raise DataError(f"dataset.{name}.offset: expected 0 or more, found {offset}")
    if limit is not None and limit < 1:
        raise DataError(f"dataset.{name}.limit: expected 1 or more, or null for all, found {limit}")
    if offset >= len(entries):
        raise DataError(f"dataset.{name}.offset is {offset}, but dataset.{name}.path holds {len(entries)} questions")
    if corpus is None:
        corpus = pool(paragraph for entry in entries for paragraph in entry.paragraphs)
    chosen = entries[offset:] if limit is None else entries[offset : offset + limit]
    wanted = {(paragraph.title, paragraph.text) for entry in chosen for paragraph in entry.support}
    ids = {(p.title, p.text): p.id for p in corpus if (p.title, p.text) in wanted}
    return Dataset(name, tuple(_with_gold(entry, ids) for entry in chosen), corpus)


def _with_gold(entry: Entry, ids: dict[tuple[str, str], str]) -> Question:
    if not entry.support:
        return entry.question
    titles = dict.fromkeys(paragraph.title for paragraph in entry.support if paragraph.title)
    found = [ids[p.title, p.text] for p in entry.support if (p.title, p.text) in ids]
    complete = len(found) == len(entry.support)
    return replace(
        entry.question,
        gold_titles=entry.question.gold_titles or tuple(titles),
        gold_ids=tuple(dict.fromkeys(found)) if complete else (),
    )


def pool(paragraphs: Iterable[Paragraph]) -> tuple[Passage, ...]:
    """Return the distinct paragraphs in the order of their first appearance.

    A paragraph keeps the id that its file gives it. Any other is named after its title (or the beginning of its text
    where it has none), with a hash of title and text where several paragraphs would get the same name; so the names
    depend on the paragraphs of the file alone, not on their order. Raises `DataError` on an id with two contents.
    """
    given: dict[tuple[str, str], str] = {}
    for paragraph in paragraphs:
        content = (paragraph.title, paragraph.text)
        given[content] = given.get(content) or paragraph.id
    slugs = Counter(_slug(*content) for content, own_id in given.items() if not own_id)
    passages = tuple(
        Passage(own_id or name_of(title, text, alone=slugs[_slug(title, text)] == 1), title, text)
        for (title, text), own_id in given.items()
    )
    seen: dict[str, Passage] = {}
    for passage in passages:
        other = seen.setdefault(passage.id, passage)
        if other is not passage:
            contents = f"titles {other.title!r} and {passage.title!r}"
            raise DataError(f"the passage id {passage.id!r} stands for two different passages ({contents})")
    return passages


def _slug(title: str, text: str) -> str:
    return re.sub(r"\W+", "_", title[:80] or text[:24]).strip("_") or "passage"


def name_of(title: str, text: str, *, alone: bool) -> str:
    """Name a passage after its title or the beginning of its text, with a hash of both if it is not `alone` in that."""
    digest = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:12]
    return _slug(title, text) if alone else f"{_slug(title, text)}-{digest}"


def load_corpus(corpus: str | None, name: str) -> Sequence[Passage] | None:
    """Return the passages of a data set's corpus file, or None where none is given (then the data set pools its own).

    Raises as `read_corpus`.
    """
    return None if corpus is None else read_corpus(corpus, f"dataset.{name}.corpus")


def read_corpus(path: str, option: str) -> Sequence[Passage]:
    """Return the passages of a corpus; `option` is the setting that names it, for errors.

    The ending tells the format: `.jsonl` and `.tsv` are read by `CorpusFile`, which does not hold them; `.txt`, and
    every file of a folder, has one text a line. Raises FileNotFoundError, and `DataError` on another ending, a
    malformed line and an id that occurs twice.
    """
    if Path(path).is_dir():
        return pool(Paragraph("", text) for _, text in folder_texts(path, option))
    suffix = existing(path, option).suffix
    if suffix == ".txt":
        return pool(Paragraph("", line.strip()) for _, line in read_lines(path, option))
    if suffix in CorpusFile.SUFFIXES:
        return CorpusFile(path, option).checked()
    raise DataError(f"{option}={path}: expected a file that ends in .jsonl, .tsv or .txt, or a folder of text files")


def folder_texts(folder: str, option: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line of the files of a folder, in the order of their names.

    Hidden files are left out. Raises `DataError` on a file whose download is not finished.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; put it there (see `rag-notes download`) or set {option}=PATH to where it is"
        )
    for file in sorted(file for file in Path(folder).iterdir() if file.is_file() and not file.name.startswith(".")):
        if file.suffix == ".part":
            raise DataError(f"{file}: is not finished; run the download again, or remove it ({option}={folder})")
        for number, line in read_lines(str(file), option):
            yield f"{file}, line {number}", line.strip()
