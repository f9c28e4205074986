"""Reading of JSON, JSON Lines and text files, with errors that name the file, the line and the field."""

import codecs
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rag_notes.files import open_binary
from rag_notes.types import InputError

_BLOCK = 1 << 20
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_DEEP = 500  # below this, Python's own limit of about 1,000 is not reached
_MOST_DIGITS = sys.int_info.default_max_str_digits
_DEPTH_OR_DIGITS = re.compile(rf'"(?:[^"\\]|\\.)*"|[\[{{\]}}]|\d{{{_MOST_DIGITS + 1},}}')
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON_TYPES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class DataError(InputError):
    """A data file that does not hold what its format promises; the message names file, line and field."""


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object with the place it came from.

    `place` is the file with the line (JSON Lines) or the record index and line (a list in one JSON file); `prefix`
    is the way from there to this object. Every getter raises `DataError` on a missing field or a wrong type.
    """

    values: dict[str, Any]
    place: str
    prefix: str = ""

    def error(self, field: str, problem: str) -> DataError:
        """Return (not raise) the error for one field of this record."""
        return DataError(f"{self.place}, field '{self.prefix}{field}': {problem}")

    def has(self, field: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(field) is not None

    def first_of(self, *fields: str) -> str:
        """Return the first of these field names that the record has, or the first one where it has none."""
        return next((field for field in fields if self.has(field)), fields[0])

    def text(self, field: str) -> str:
        """Return a string that is more than white space."""
        return self._checked_text(field, self._get(field, "a string", str))

    def title(self, field: str) -> str:
        """Return a string that may be empty."""
        value: str = self._get(field, "a string", str)
        return self._checked_text(field, value) if value.strip() else ""

    def identifier(self, field: str) -> str:
        """Return a string or an integer as a string."""
        return self._checked_text(field, str(self._get(field, "a string or an integer", str, int)))

    def boolean(self, field: str) -> bool:
        """Return true or false."""
        value: bool = self._get(field, "true or false", bool)
        return value

    def integer(self, field: str) -> int:
        """Return an integer that is not negative."""
        value: int = self._get(field, "an integer of 0 or more", int)
        if value < 0:
            raise self.error(field, f"expected an integer of 0 or more, found {value}")
        return value

    def items(self, field: str) -> list[Any]:
        """Return a list of anything."""
        value: list[Any] = self._get(field, "a list", list)
        return value

    def texts(self, field: str, *, at_least: int = 1) -> tuple[str, ...]:
        """Return the distinct strings of a list in their order."""
        values = self.items(field)
        if len(values) < at_least:
            raise self.error(field, f"expected a list of at least {at_least} string, found an empty list")
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{field}[{index}]", f"expected a string, found {_JSON_TYPES[type(value)]}")
        return tuple(
            dict.fromkeys(self._checked_text(f"{field}[{index}]", value) for index, value in enumerate(values))
        )

    def object(self, field: str) -> "Record":
        """Return the object of a field."""
        return Record(self._get(field, "an object", dict), self.place, f"{self.prefix}{field}.")

    def objects(self, field: str) -> list["Record"]:
        """Return the objects of a list."""
        for index, value in enumerate(self.items(field)):
            if not isinstance(value, dict):
                raise self.error(f"{field}[{index}]", f"expected an object, found {_JSON_TYPES[type(value)]}")
        return [
            Record(value, self.place, f"{self.prefix}{field}[{index}].")
            for index, value in enumerate(self.items(field))
        ]

    def objects_if_any(self, field: str) -> list["Record"]:
        """Return the objects of a list, none where the field is not there or null."""
        return self.objects(field) if self.has(field) else []

    def _get(self, field: str, expected: str, *types: type) -> Any:
        if field not in self.values:
            raise self.error(field, f"is missing, expected {expected}")
        value = self.values[field]
        # An exact comparison, because Python counts true as an integer.
        if type(value) not in types:
            raise self.error(field, f"expected {expected}, found {_JSON_TYPES[type(value)]}")
        return value

    def _checked_text(self, field: str, value: str) -> str:
        if not value.strip():
            raise self.error(field, "expected text, found an empty string")
        return value


def read_lines(path: str, option: str) -> Iterator[tuple[int, str]]:
    """Yield the line number (from 1) and the text of each line that is not blank.

    Lines end at a line feed alone, since JSON strings may hold the other separators of Unicode. Reading is strict
    UTF-8; a byte order mark is dropped, and .gz and .bz2 are unpacked. `option` is the setting that a missing file's
    error names.
    """
    with open_binary(existing(path, option)) as file:
        yield from lines_of(file, path)


def lines_of(file: BinaryIO, path: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of an open file as `read_lines` does; `path` is what errors call it."""
    number = 0
    try:
        for number, raw in enumerate(file, start=1):
            line = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
            if line.strip():
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise not_utf8(f"{path}, line {number}", error) from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}, after line {number}: cannot be read on ({error}); get the file anew") from None


def read_jsonl(path: str, option: str) -> Iterator[Record]:
    """Yield the object of each line of a JSON Lines file."""
    return records_of(read_lines(path, option), path)


def records_of(lines: Iterable[tuple[int, str]], path: str) -> Iterator[Record]:
    """Yield the objects of numbered lines of JSON; `path` is what errors call their file."""
    for number, line in lines:
        yield record_of(line, f"{path}, line {number}")


def record_of(line: str, place: str) -> Record:
    """Return the object that a line of JSON is."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        position, problem = _unreadable(error, line)
        raise DataError(f"{place}: {problem} at column {position + 1}") from None
    return _as_record(value, place, line)


def read_json_list(path: str, option: str) -> Iterator[Record]:
    """Yield the objects of a JSON file that is one list, with one block of the file in memory at a time.

    A file with a malformed record is read to its end before that is known, because a record may be cut by a block.
    """
    with existing(path, option).open("rb") as file:
        window = _Window(path, file)
        if window.skip_space() != "[":
            raise window.error("expected one JSON list of records")
        window.position += 1
        index = 0
        done = window.skip_space() == "]"
        while not done:
            line = window.line()
            value, source = window.value()
            yield _as_record(value, f"{path}, record index {index} (line {line})", source)
            following = window.skip_space()
            if following not in (",", "]"):
                raise window.error(f"expected ',' or ']' after record index {index}")
            done = following == "]"
            if not done:
                window.position += 1
                window.skip_space()
                index += 1
        trailing = window.error("expected nothing after the list of records")
        window.position += 1
        if window.skip_space():
            raise trailing


class _Window:
    """The part of a text file that is in memory, with a position in it; it slides on as more is asked for."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.text, self.position = "", 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._lines, self._counted = 0, 0  # line feeds of the file up to the place in the window that is counted so far
        self._column = 0  # characters of the window's first line that are before it

    def line(self) -> int:
        """The line of the position, from 1."""
        self._lines += self.text.count("\n", self._counted, self.position)
        self._counted = self.position
        return self._lines + 1

    def error(self, problem: str) -> DataError:
        return DataError(f"{self.path}, line {self.line()}: {problem}")

    def skip_space(self) -> str:
        """Go to the next character that is not white space and return it, "" at the end of the file."""
        self.position = _skip(self.text, self.position)
        while self.position == len(self.text) and self._more():
            self.position = _skip(self.text, self.position)
        return self.text[self.position : self.position + 1]

    def value(self) -> tuple[Any, str]:
        """Read the JSON value at the position, which moves behind it; return it with its source."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.position)
            except (ValueError, RecursionError) as error:
                position, problem = _unreadable(error, self.text, self.position)
                line = self.line() + self.text.count("\n", self.position, position)
                begins = self.text.rfind("\n", 0, position)
                column = position - begins + (self._column if begins < 0 else 0)
                if isinstance(error, json.JSONDecodeError) and self._more():
                    continue
                raise DataError(f"{self.path}, line {line}: {problem} at column {column}") from None
            source, self.position = self.text[self.position : end], end
            return value, source

    def _more(self) -> bool:
        """Drop what lies before the position and read on, at least as much as is kept; False at the end of the file."""
        self.line()
        last = self.text.rfind("\n", 0, self.position)
        self._column = self.position - last - 1 if last >= 0 else self._column + self.position
        self.text, self.position, self._counted = self.text[self.position :], 0, 0
        data = self.file.read(max(_BLOCK, len(self.text)))
        try:
            self.text += self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._lines + self.text.count("\n") + error.object.count(b"\n", 0, error.start) + 1
            raise not_utf8(f"{self.path}, line {line}", error) from None
        return bool(data)


def read_json_object(path: str, option: str) -> Record:
    """Return the object that a whole JSON file is."""
    data = existing(path, option).read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
        value = json.loads(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_utf8(f"{path}, line {line}", error) from None
    except (ValueError, RecursionError) as error:
        position, problem = _unreadable(error, text)
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        raise DataError(f"{path}, line {line}: {problem} at column {column}") from None
    return _as_record(value, path, text)


def existing(path: str, option: str) -> Path:
    """The path of a file that is there. Raises FileNotFoundError, which names `option`."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{Path(path).absolute()}: no such file; put it there (see `rag-notes download`) or set {option}=PATH "
            "to where it is"
        )
    return Path(path)


def not_utf8(place: str, error: UnicodeDecodeError) -> DataError:
    """Return (not raise) the error for bytes that are no text."""
    return DataError(f"{place}: not valid UTF-8 ({error.reason}); save the file as UTF-8")


def _as_record(value: Any, place: str, source: str) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{place}: expected a JSON object, found {_JSON_TYPES[type(value)]}")
    if _SURROGATE_ESCAPE.search(source):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f"{place}: expected valid Unicode, found one half of a \\ud... pair alone") from None
        except RecursionError as error:
            raise DataError(f"{place}: {_unreadable(error, source)[1]}") from None
    return Record(value, place)


def _unreadable(error: ValueError | RecursionError, text: str, start: int = 0) -> tuple[int, str]:
    """The place in JSON, which begins at `start`, that Python cannot read, and why."""
    if isinstance(error, json.JSONDecodeError):
        return error.pos, f"not valid JSON: {error.msg}"
    depth = 0
    for token in _DEPTH_OR_DIGITS.finditer(text, start):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > _DEEP:
            return token.start(), f"expected values nested at most {_DEEP} deep"
        if token[0].isdecimal():
            return token.start(), f"expected integers of at most {_MOST_DIGITS} digits"
    return start, f"not readable: {error}"


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
