"""From the records of a file to a `Dataset`: the pool of passages, corpus files, gold ids."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rag_notes.datasets._read import DataError, Record, existing, read_lines
from rag_notes.datasets.corpus_file import CorpusFile
from rag_notes.files import PART
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
    name: str,
    path: str,
    entries: Iterable[Entry],
    corpus: str | Sequence[Passage] | None,
    pooled: Iterable[Paragraph] | None = None,
) -> Dataset:
    """Return the questions of the file `path` with a given corpus, or where there is none with a pool of paragraphs.

    `corpus` is one that is read already or the path of one; the pool is of the paragraphs `pooled`, if any are given,
    and otherwise of all entries' own. A question's `gold_ids` are set where the corpus holds all its supporting
    paragraphs with the same title and text; they stay empty where one of them is missing, because a part of them would
    make recall look better than it is. Raises `DataError` on an id that occurs twice and on a file without questions.
    """
    passages = read_corpus(corpus, f"dataset.{name}.corpus") if isinstance(corpus, str) else corpus
    entries = list(entries)
    if not entries:
        raise DataError(f"{path}: holds no questions; put the data set's file there or set dataset.{name}.path=PATH")
    places: dict[str, str] = {}
    for entry in entries:
        if entry.question.id in places:
            other = places[entry.question.id]
            raise DataError(f"{entry.place}: the question id {entry.question.id!r} is already used in {other}")
        places[entry.question.id] = entry.place
    if passages is None:
        own = (paragraph for entry in entries for paragraph in entry.paragraphs)
        passages = pool(own if pooled is None else pooled, path)
    wanted = {(paragraph.title, paragraph.text) for entry in entries for paragraph in entry.support}
    ids = {(p.title, p.text): p.id for p in passages if wanted and (p.title, p.text) in wanted}
    questions = tuple(_with_gold(entry, ids) for entry in entries)
    return Dataset(name, questions, passages, corpus_kind="pooled" if corpus is None else "given")


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


def paragraph_of(record: Record) -> Paragraph:
    """Return the paragraph of a record with `title`, `text` and perhaps `id`."""
    return Paragraph(record.title("title"), record.text("text"), record.identifier("id") if record.has("id") else "")


def pool(paragraphs: Iterable[Paragraph], path: str) -> tuple[Passage, ...]:
    """Return the distinct paragraphs of the file or folder `path` in the order of their first appearance.

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
            raise DataError(f"{path}: the passage id {passage.id!r} stands for two different passages ({contents})")
    return passages


def _slug(title: str, text: str) -> str:
    return re.sub(r"\W+", "_", title[:80] or text[:24]).strip("_") or "passage"


def name_of(title: str, text: str, *, alone: bool) -> str:
    """Name a passage after its title or the beginning of its text, with a hash of both if it is not `alone` in that."""
    digest = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:12]
    return _slug(title, text) if alone else f"{_slug(title, text)}-{digest}"


def read_corpus(path: str, option: str) -> Sequence[Passage]:
    """Return the passages of a corpus; `option` is the setting that names it, for errors.

    The ending tells the format: `.jsonl` and `.tsv` are read by `CorpusFile`, which does not hold them; `.txt`, and
    every file of a folder, has one text a line. Raises FileNotFoundError, and `DataError` on another ending, a
    malformed line and an id that occurs twice.
    """
    if Path(path).is_dir():
        return pool((Paragraph("", text) for _, text in folder_texts(path, option)), path)
    suffix = existing(path, option).suffix
    if suffix == ".txt":
        return pool((Paragraph("", line.strip()) for _, line in read_lines(path, option)), path)
    if suffix in CorpusFile.SUFFIXES:
        return CorpusFile(path, option).checked()
    raise DataError(f"{option}={path}: expected a file that ends in .jsonl, .tsv or .txt, or a folder of text files")


def folder_texts(folder: str, option: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line of the files of a folder, in the order of their names.

    Hidden files are left out. Raises `DataError` on a file whose download is not finished.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{Path(folder).absolute()}: no such folder; put it there (see `rag-notes download`) or set "
            f"{option}=PATH to where it is"
        )
    for file in sorted(file for file in Path(folder).iterdir() if file.is_file() and not file.name.startswith(".")):
        if file.suffix == PART:
            raise DataError(f"{file}: is not finished; run the download again, or remove it ({option}={folder})")
        for number, line in read_lines(str(file), option):
            yield f"{file}, line {number}", line.strip()
