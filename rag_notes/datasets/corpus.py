"""Passages and questions: corpora of any size, a question file's pool, and errors that say where in a file."""

import csv
import hashlib
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from rag_notes.files import PART, SHIPPED, open_binary
from rag_notes.types import Dataset, InputError, NonNegative, Passage, Positive, Question

T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(pattern=r"\S")]  # more than white space
Some = Annotated[list[T], msgspec.Meta(min_length=1)]
Id = Text | int
Corpus = str | Sequence[Passage] | None  # the path of a corpus, or one that is read already
Questions = Literal["all", "papers", "cases"]  # of a file: all, those of the papers, those of the papers' case studies


class DataError(InputError):
    """A data file that does not hold what its format promises; the message names file, line or record, and field."""


def existing(path: str, option: str = "dataset.NAME.path") -> Path:
    """Return the path of a file or folder that exists. Raises FileNotFoundError, which names the option to set."""
    if not Path(path).exists():
        hint = f"put it there (see `rag-notes download`) or set {option}=PATH to where it is"
        raise FileNotFoundError(f"{Path(path).absolute()}: no such file; {hint}")
    return Path(path)


def read_lines(path: str, option: str = "dataset.NAME.path") -> Iterator[tuple[str, str]]:
    """Yield the location ("FILE, line 3") and the text of each line that is not blank; .gz and .bz2 are unpacked."""
    with open_binary(existing(path, option)) as file:
        yield from locate_lines(file, path)


def locate_lines(file: Iterable[bytes], name: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of an open file as `read_lines` does; `name` is what errors call it."""
    number = 0
    try:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if line.strip():
                yield f"{name}, line {number}", line
    except UnicodeDecodeError as error:
        raise DataError(f"{name}, line {number}: not valid UTF-8 ({error.reason}); save the file as UTF-8") from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{name}, after line {number}: cannot be read on ({error}); get the file anew") from None


def read_records(path: str, kind: type[T], option: str = "dataset.NAME.path") -> Iterator[tuple[str, T]]:
    """Yield the location and the value of each item of a .json file that is a list, or of each line of another file."""
    located: Iterable[tuple[str, Any]] = read_lines(path, option)
    if path.endswith(".json"):
        items = read_json(path, list[msgspec.Raw], option)  # in memory are the bytes of the file alone
        located = ((f"{path}, record index {index}", item) for index, item in enumerate(items))
    return ((location, decode(item, kind, location)) for location, item in located)


def read_json(path: str, kind: type[T], option: str = "dataset.NAME.path") -> T:
    """Read a whole JSON file as a value of a type."""
    return decode(existing(path, option).read_bytes().removeprefix(b"\xef\xbb\xbf"), kind, path)


def decode(data: bytes | str | msgspec.Raw, kind: type[T], location: str) -> T:
    """Decode JSON as a value of a type. Raises `DataError`, which names the location and the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{location}: {error}") from None


def pool(paragraphs: Iterable[Passage]) -> tuple[Passage, ...]:
    """Return the distinct paragraphs, named by their ids or, where they have none, by their contents."""
    ids: dict[tuple[str, str], str] = {}
    for paragraph in paragraphs:
        content = (paragraph.title, paragraph.text)
        ids[content] = ids.get(content) or paragraph.id
    slugs = Counter(_slug(*content) for content, passage_id in ids.items() if not passage_id)
    return tuple(
        Passage(passage_id or passage_name(title, text, unique=slugs[_slug(title, text)] == 1), title, text)
        for (title, text), passage_id in ids.items()
    )


def passage_name(title: str, text: str, *, unique: bool) -> str:
    """Name a passage after its title or the beginning of its text, with a hash of both if that is not `unique`."""
    digest = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:12]
    return _slug(title, text) if unique else f"{_slug(title, text)}-{digest}"


def _slug(title: str, text: str) -> str:
    return re.sub(r"\W+", "_", title[:80] or text[:24]).strip("_") or "passage"


def read_corpus(path: str, option: str) -> Sequence[Passage]:
    """Return the passages of a `CorpusFile`, held in memory only if it is packed, or of texts, one a line."""
    ending = Path(path.removesuffix(".gz").removesuffix(".bz2")).suffix
    if existing(path, option).is_dir() or ending == ".txt":
        return pool(Passage("", "", text) for text in read_texts(path, option))
    if ending not in CorpusFile.SUFFIXES:
        raise DataError(f"{option}={path}: expected a file that ends in .jsonl, .tsv or .txt, or a folder of texts")
    corpus = CorpusFile(path, option)
    check_ids(corpus)
    return corpus if path.endswith(ending) else tuple(corpus)


def read_texts(path: str, option: str) -> Iterator[str]:
    """Yield the lines of a file, or of a folder's files in the order of their names, without hidden ones."""
    files = sorted(existing(path, option).iterdir()) if Path(path).is_dir() else [Path(path)]
    for file in (file for file in files if file.is_file() and not file.name.startswith(".")):
        if file.suffix == PART:
            raise DataError(f"{file}: is not finished; run the download again, or remove it ({option}={path})")
        yield from (line.strip() for _, line in read_lines(str(file), option))


class PassageRecord(msgspec.Struct, kw_only=True):
    """A passage as files write it: `title` and `text`, or FlashRAG's `contents` (title, line feed, text)."""

    id: Id | None = None
    title: str | None = None
    text: str | None = None
    contents: str | None = None
    content: str | None = None  # the text in StrategyQA's official file
    para_index: int | None = None  # in StrategyQA's paragraphs as JSON Lines
    isgold: bool | None = None  # in NQ-open

    def passage(self, location: str) -> Passage:
        """Return the passage. Raises `DataError` where it has no text."""
        title, text = self.title or "", self.contents or self.content or self.text or ""
        if self.contents and self.title is None:  # FlashRAG's Wikipedia corpus puts the title in double quotes
            title, _, text = text.partition("\n")
            title = title.removeprefix('"').removesuffix('"')
        if not text.strip():
            raise DataError(f"{location}: expected a `text`, or `contents` of a title, a line feed and a text")
        return Passage("" if self.id is None else str(self.id), title if title.strip() else "", text)


class CorpusFile(Sequence[Passage]):
    """The passages of a .jsonl file of `PassageRecord`s or of DPR's .tsv, of which 8 bytes each are held in memory."""

    SUFFIXES: ClassVar = (".jsonl", ".tsv")

    def __init__(self, path: str, option: str) -> None:
        self.path = str(Path(path).absolute())  # the working directory may be another one when a passage is looked up
        self._option = option
        self._header = int(".tsv" in Path(path).suffixes)  # lines before the passages

    def __iter__(self) -> Iterator[Passage]:
        return (passage for _, passage in self.located())

    def located(self) -> Iterator[tuple[str, Passage]]:
        """Yield the location and the content of each passage."""
        lines = read_lines(self.path, self._option)
        if self._header:
            location, header = next(lines, (self.path, ""))
            if header.split("\t") != ["id", "text", "title"]:
                raise DataError(f"{location}: expected the header id, text, title, with tabs between")
        yield from ((location, self._passage(line, location)) for location, line in lines)

    def offsets(self) -> Iterator[int]:
        """Yield where the line of each passage begins, in bytes."""
        position, header = 0, self._header
        with Path(self.path).open("rb") as file:
            for line in file:
                if line.decode("utf-8-sig", "replace").strip():
                    if not header:
                        yield position
                    header = 0
                position += len(line)

    def at(self, offset: int) -> Passage:
        """Return the passage whose line begins at `offset`."""
        with Path(self.path).open("rb") as file:  # opened anew for each: threads may share this object
            file.seek(offset)
            location = f"{self.path}, byte {offset}"
            return next(self._passage(line, location) for _, line in locate_lines([file.readline()], location))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: Any) -> Any:
        offsets = self._offsets[index]
        return tuple(map(self.at, offsets.tolist())) if isinstance(index, slice) else self.at(int(offsets))

    def _passage(self, line: str, location: str) -> Passage:
        if self._header:
            row = next(csv.reader([line], delimiter="\t"))
            if len(row) != 3:
                raise DataError(f"{location}: expected 3 columns (id, text, title), found {len(row)}")
            passage = PassageRecord(id=row[0], text=row[1], title=row[2]).passage(location)
        else:
            passage = decode(line, PassageRecord, location).passage(location)
        if not passage.id:
            raise DataError(f"{location}: expected an `id`")
        return passage

    @cached_property
    def _offsets(self) -> Any:
        return np.fromiter(self.offsets(), dtype=np.int64)


def check_ids(corpus: Iterable[Passage]) -> int:
    """Return the number of passages, of which 8 bytes each are held. Raises `DataError` on an id that occurs twice."""
    hashes = np.fromiter((hash(passage.id) for passage in corpus), dtype=np.int64)
    hashes.sort()
    repeated = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    located = corpus.located() if isinstance(corpus, CorpusFile) else (("the corpus", passage) for passage in corpus)
    seen: set[str] = set()
    for location, passage in located if repeated else ():
        if passage.id in seen:
            raise DataError(f"{location}: the passage id {passage.id!r} is already used")
        if hash(passage.id) in repeated:  # other ids may have the same hash
            seen.add(passage.id)
    return len(hashes)


def passage_line(passage: Passage) -> str:
    """Write a passage as one line of canonical JSON (keys id, title, text; compact; ends in a newline)."""
    return msgspec.json.encode(passage).decode() + "\n"


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct texts in the order of their first appearance."""
    return tuple(dict.fromkeys(texts))


class Entry(NamedTuple):
    """A question with the paragraphs that its file gives it, and those of them that support the answer."""

    question: Question
    paragraphs: Collection[Passage] = ()
    gold: Collection[Passage] = ()


def build(
    name: str, path: str, entries: Iterable[Entry], corpus: Corpus, pooled: Iterable[Passage] | None = None
) -> Dataset:
    """Return the questions of the file `path` with a corpus, or where there is none with a pool of their paragraphs.

    `gold_ids` are set where the corpus holds all gold paragraphs of a question: a part of them would make recall look
    better than it is. Raises `DataError` on an id that occurs twice or no question.
    """
    entries = list(entries)
    if not entries:
        raise DataError(f"{path}: holds no questions; put the data set's file there or set dataset.{name}.path=PATH")
    question_id, count = Counter(entry.question.id for entry in entries).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path}: the question id {question_id!r} is used {count} times")
    passages = read_corpus(corpus, f"dataset.{name}.corpus") if isinstance(corpus, str) else corpus
    if passages is None:
        passages = pool(pooled or (p for entry in entries for p in entry.paragraphs))
    gold = {(paragraph.title, paragraph.text) for entry in entries for paragraph in entry.gold}
    ids = {(p.title, p.text): p.id for p in passages if (p.title, p.text) in gold} if gold else {}
    questions = tuple(_with_gold(entry, ids) if entry.gold else entry.question for entry in entries)
    return Dataset(name, questions, passages, corpus_kind="pooled" if corpus is None else "given")


def _with_gold(entry: Entry, ids: dict[tuple[str, str], str]) -> Question:
    titles = entry.question.gold_titles or unique(paragraph.title for paragraph in entry.gold if paragraph.title)
    gold_ids = unique(ids.get((paragraph.title, paragraph.text), "") for paragraph in entry.gold)
    return replace(entry.question, gold_titles=titles, gold_ids=gold_ids if all(gold_ids) else ())


def select(dataset: Dataset, questions: Questions, listed: str, path: str) -> Dataset:
    """Return the data set with the papers' questions (data/paper/questions) that are in it, in the papers' order."""
    if questions == "all":
        return dataset
    file = SHIPPED / "data/paper/questions" / f"{listed if questions == 'papers' else questions}.sha256.txt"
    digests = file.read_text(encoding="ascii").split()
    by_digest: dict[str, Question] = {}
    for question in sorted(dataset.questions, key=lambda question: not question.answers):  # MuSiQue's twins come last
        by_digest.setdefault(hashlib.sha256(question.question.strip().encode()).hexdigest(), question)
    selected = tuple(by_digest[digest] for digest in digests if digest in by_digest)
    option = f"dataset.{dataset.name}.questions={questions}"
    if not selected:
        hint = f"expected the official development set, which `rag-notes download dataset={listed}` gets"
        raise DataError(f"{path}: holds none of the papers' {len(digests)} questions ({option}); {hint}")
    print(f"{option}: {len(selected)} of the papers' {len(digests)} questions are in {path}", file=sys.stderr)
    return replace(dataset, questions=selected, selection=questions)


def cut(dataset: Dataset, *, offset: NonNegative = 0, limit: Positive | None = None) -> Dataset:
    """Return the data set with `limit` of its questions (None: all) from `offset` on, and its whole corpus."""
    questions = dataset.questions[offset : None if limit is None else offset + limit]
    if not questions:
        total = len(dataset.questions)
        raise DataError(f"dataset.{dataset.name}: offset={offset}, limit={limit} leave none of its {total} questions")
    selection = dataset.selection if questions == dataset.questions else "offset/limit"
    return replace(dataset, questions=questions, selection=selection)
