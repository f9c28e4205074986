"""From the records of a file to a `Dataset`: the pool of passages, corpus files, gold ids, the cut of the questions."""

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from rag_notes.datasets._read import DataError, Record, read_jsonl, read_lines
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
    return Dataset(name, tuple(_with_gold(entry, ids) for entry in chosen), tuple(corpus))


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


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """The passages of a corpus file with a passage a line, read anew each time they are iterated and never held.

    `.jsonl` has `id`, `title`, `text` or FlashRAG's `id`, `contents` (title, line feed, text); `.tsv` is DPR's passage
    file with the header id, text, title. `name` is that of the data set, for errors. Raises `DataError` on a malformed
    line; ids that occur twice are not found.
    """

    SUFFIXES: ClassVar = (".jsonl", ".tsv")

    path: str
    name: str

    def __iter__(self) -> Iterator[Passage]:
        for _, passage in self.placed():
            yield passage

    def placed(self) -> Iterator[tuple[str, Passage]]:
        """Yield each passage with its place in the file."""
        option = f"dataset.{self.name}.corpus"
        if self.path.endswith(".tsv"):
            yield from dpr_passages(self.path, option)
        else:
            for record in read_jsonl(self.path, option):
                yield record.place, jsonl_passage(record)


def load_corpus(corpus: str | None, name: str) -> tuple[Passage, ...] | None:
    """Return the passages of a corpus file, or None where no corpus is given (then the data set pools its own).

    The ending tells the format: `.jsonl` and `.tsv` as `CorpusFile` reads them; `.txt`, and every file of a folder, has
    one text a line. Raises `DataError` on another ending, a malformed line and an id that occurs twice.
    """
    if corpus is None:
        return None
    option = f"dataset.{name}.corpus"
    suffix = Path(corpus).suffix
    if Path(corpus).is_dir():
        return pool(Paragraph("", text) for _, text in folder_texts(corpus, option))
    if suffix == ".txt":
        return pool(Paragraph("", line.strip()) for _, line in read_lines(corpus, option))
    if suffix in CorpusFile.SUFFIXES:
        return unique(CorpusFile(corpus, name).placed())
    raise DataError(f"{option}={corpus}: expected a file that ends in .jsonl, .tsv or .txt, or a folder of text files")


def unique(placed: Iterable[tuple[str, Passage]]) -> tuple[Passage, ...]:
    """Return the passages of pairs (place, passage); raise `DataError` on an id that occurs twice."""
    passages: dict[str, Passage] = {}
    for place, passage in placed:
        if passage.id in passages:
            raise DataError(f"{place}: the passage id {passage.id!r} is already used")
        passages[passage.id] = passage
    return tuple(passages.values())


def jsonl_passage(record: Record) -> Passage:
    """Return the passage of a corpus record in one of the two JSON Lines layouts."""
    if not record.has("contents"):
        title = record.title("title") if record.has("title") else ""
        return Passage(record.identifier("id"), title, record.text("text"))
    if record.has("title"):
        return Passage(record.identifier("id"), record.title("title"), record.text("contents"))
    title, separator, text = record.text("contents").partition("\n")
    if not separator or not text.strip():
        raise record.error("contents", "expected a title, a line feed and a text")
    # FlashRAG's Wikipedia corpus puts the title in double quotes.
    return Passage(record.identifier("id"), title.removeprefix('"').removesuffix('"'), text)


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


def dpr_passages(path: str, option: str) -> Iterator[tuple[str, Passage]]:
    """Yield the place and the passage of each line of DPR's passage file."""
    columns = ["id", "text", "title"]
    for index, (number, line) in enumerate(read_lines(path, option)):
        place = f"{path}, line {number}"
        try:
            row = next(csv.reader([line], delimiter="\t", strict=True))
        except csv.Error as error:
            raise DataError(f"{place}: not valid tab-separated values: {error}") from None
        if index == 0 and row != columns:
            raise DataError(f"{place}: expected the header id, text, title, with tabs between")
        if len(row) != len(columns):
            raise DataError(f"{place}: expected 3 columns (id, text, title), found {len(row)}")
        if index > 0:
            record = Record(dict(zip(columns, row, strict=True)), place)
            yield place, Passage(record.text("id"), record.title("title"), record.text("text"))
