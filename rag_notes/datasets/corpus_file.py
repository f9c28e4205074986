"""A corpus file with a passage a line, of any size: read as it is iterated, or one passage at a time, never held."""

import csv
import json
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from rag_notes.datasets._read import DataError, Record, not_utf8, read_jsonl, read_lines, record_of
from rag_notes.types import Passage

_DPR_COLUMNS = ["id", "text", "title"]
_BLOCK = 1 << 20  # ids checked together


class CorpusFile(Sequence[Passage]):
    """The passages of a corpus file with a passage a line; in memory are 8 bytes a passage, from the first look-up on.

    `.jsonl` has `id`, `title`, `text` or FlashRAG's `id`, `contents` (title, line feed, text); `.tsv` is DPR's passage
    file with the header id, text, title. `option` is the setting that names it, for errors. Iterating raises
    `DataError` on a malformed line; `checked` does so on an id that occurs twice, too. Threads may share it.
    """

    SUFFIXES: ClassVar = (".jsonl", ".tsv")

    def __init__(self, path: str, option: str) -> None:
        self.path = str(Path(path).absolute())  # the working directory may be another one when a passage is looked up
        self._option = option
        self._tsv = path.endswith(".tsv")
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Passage]:
        for _, passage in self.placed():
            yield passage

    def placed(self) -> Iterator[tuple[str, Passage]]:
        """Yield each passage with its place in the file."""
        if self._tsv:
            yield from dpr_passages(self.path, self._option)
        else:
            for record in read_jsonl(self.path, self._option):
                yield record.place, jsonl_passage(record)

    def checked(self) -> "CorpusFile":
        """Read the whole file once for what is malformed and for ids that occur twice, and return it."""
        check_ids(self)
        return self

    def offsets(self) -> Iterator[int]:
        """Yield where the line of each passage begins, in bytes."""
        position, header = 0, self._tsv
        with Path(self.path).open("rb") as file:
            for line in file:
                if line.decode("utf-8-sig", "replace").strip():
                    if not header:
                        yield position
                    header = False
                position += len(line)

    def at(self, offset: int) -> Passage:
        """Return the passage whose line begins at `offset`."""
        with self._lock:  # not memory-mapped: pages around each passage would add up
            self._file.seek(offset)
            line = self._file.readline()
        place = f"{self.path}, byte {offset}"
        try:
            text = line.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise not_utf8(place, error) from None
        return _dpr_passage(text, place) if self._tsv else jsonl_passage(record_of(text, place))

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Passage, ...]: ...
    def __getitem__(self, index: int | slice) -> Passage | tuple[Passage, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        return self.at(int(self._offsets[number]))

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return np.frombuffer(array("q", self.offsets()), dtype=np.int64)

    @cached_property
    def _file(self) -> BinaryIO:
        return Path(self.path).open("rb")


def passage_line(passage: Passage) -> str:
    """Write a passage as one line of canonical JSON (keys id, title, text; compact; ends in a newline)."""
    record = {"id": passage.id, "title": passage.title, "text": passage.text}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def check_ids(corpus: Iterable[Passage]) -> int:
    """Return the number of passages, which are iterated once; at most 32 MB in memory, and 8 bytes a passage on disk.

    Raises `ValueError`, after iterating again, on an id that occurs twice.
    """
    with tempfile.TemporaryFile() as file:
        block, count = array("q"), 0
        for count, passage in enumerate(corpus, 1):
            block.append(hash(passage.id))
            if count % _BLOCK == 0:
                file.write(block)
                block = array("q")
        file.write(block)
        parts = -(-count // _BLOCK)
        repeated = set().union(*(_repeated(file, part, parts) for part in range(parts)))
    placed = corpus.placed() if isinstance(corpus, CorpusFile) else (("the corpus", passage) for passage in corpus)
    seen: set[str] = set()
    for place, passage in placed if repeated else ():
        if passage.id in seen:
            raise DataError(f"{place}: the passage id {passage.id!r} is already used")
        if hash(passage.id) in repeated:  # other ids may have the same hash
            seen.add(passage.id)
    return count


def _repeated(file: IO[bytes], part: int, parts: int) -> set[int]:
    """The numbers that a file has twice, of those that leave the rest `part`."""
    file.seek(0)
    found = []
    while block := file.read(8 * _BLOCK):
        numbers = np.frombuffer(block, dtype=np.int64)
        found.append(numbers[numbers % parts == part])
    ordered = np.sort(np.concatenate(found))
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


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


def dpr_passages(path: str, option: str) -> Iterator[tuple[str, Passage]]:
    """Yield the place and the passage of each line of DPR's passage file."""
    for index, (number, line) in enumerate(read_lines(path, option)):
        place = f"{path}, line {number}"
        if index > 0:
            yield place, _dpr_passage(line, place)
        elif _columns(line, place) != _DPR_COLUMNS:
            raise DataError(f"{place}: expected the header id, text, title, with tabs between")


def _dpr_passage(line: str, place: str) -> Passage:
    row = _columns(line, place)
    if len(row) != len(_DPR_COLUMNS):
        raise DataError(f"{place}: expected 3 columns (id, text, title), found {len(row)}")
    record = Record(dict(zip(_DPR_COLUMNS, row, strict=True)), place)
    return Passage(record.text("id"), record.title("title"), record.text("text"))


def _columns(line: str, place: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error as error:
        raise DataError(f"{place}: not valid tab-separated values: {error}") from None
