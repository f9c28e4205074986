"""A corpus file with a passage a line, of any size: read as it is iterated, or one passage at a time, never held."""

import csv
import json
import threading
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from rag_notes.datasets._read import DataError, Record, not_utf8, read_jsonl, read_lines, record_of
from rag_notes.types import Passage

_DPR_COLUMNS = ["id", "text", "title"]


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
        hashes = np.frombuffer(array("q", (hash(passage.id) for passage in self)), dtype=np.int64)
        ordered = np.sort(hashes)
        repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        seen: set[str] = set()
        for place, passage in self.placed() if repeated else ():
            if passage.id in seen:
                raise DataError(f"{place}: the passage id {passage.id!r} is already used")
            if hash(passage.id) in repeated:  # other ids may have the same hash
                seen.add(passage.id)
        return self

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Passage, ...]: ...
    def __getitem__(self, index: int | slice) -> Passage | tuple[Passage, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        start, end = self._starts[number : number + 2].tolist()
        with self._lock:  # not memory-mapped: pages around each passage would add up
            self._file.seek(start)
            lines = self._file.read(end - start)
        place = f"{self.path}, passage {number + 1}"
        try:
            line = lines.split(b"\n", 1)[0].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise not_utf8(place, error) from None
        return _dpr_passage(line.rstrip("\r"), place) if self._tsv else jsonl_passage(record_of(line, place))

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where the line of each passage begins, in bytes, and behind them where the file ends."""
        starts, position = array("q"), 0
        with Path(self.path).open("rb") as file:
            for line in file:
                if line.decode("utf-8-sig", "replace").strip():
                    starts.append(position)
                position += len(line)
        starts.append(position)
        found = np.frombuffer(starts, dtype=np.int64)
        return found[1:] if self._tsv and len(found) > 1 else found  # without the header

    @cached_property
    def _file(self) -> BinaryIO:
        return Path(self.path).open("rb")


def passage_line(passage: Passage) -> str:
    """Write a passage as one line of canonical JSON (keys id, title, text; compact; ends in a newline)."""
    record = {"id": passage.id, "title": passage.title, "text": passage.text}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


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
