"""Reading and writing the two files of a run, `run.json` and `samples.jsonl`, which is packed where it is published."""

import io
import json
import lzma
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from rag_notes.files import SHIPPED, replacing, write_atomically
from rag_notes.llm.errors import encodable
from rag_notes.running.lines import Lines, reader, sort_lines
from rag_notes.running.old_records import info_of, sample_of
from rag_notes.running.records import Key, RecordError, Run, RunInfo, Sample

T = TypeVar("T")

PUBLISHED = SHIPPED / "data" / "results"
"""Where records without text lie that come with the project (`rag_notes.running.publish`)."""

SAMPLES = "samples.jsonl"
PACKED = f"{SAMPLES}.xz"

_MAX_UNPACKED = 1 << 30  # bytes: more than any run without text has

_SAMPLE, _INFO = TypeAdapter(Sample), TypeAdapter(RunInfo)


def load_run(folder: str | Path) -> Run:
    """Read a run folder. Raises RecordError naming file, line and field where it is missing or malformed."""
    info = read_info(folder)
    samples, _ = read_samples(samples_of(Path(folder)))
    return Run(info, samples, Path(folder))


def samples_of(folder: Path) -> Path:
    """The file of samples in a run folder: `samples.jsonl`, or, where there is none, `samples.jsonl.xz`."""
    packed = folder / PACKED
    return packed if packed.exists() and not (folder / SAMPLES).exists() else folder / SAMPLES


def run_folders(folder: str | Path, *, published: bool = False) -> list[Path]:
    """The run folders in a folder, by name; with `published` then those in `PUBLISHED` of other names."""
    found = sorted(file.parent for file in Path(folder).glob("*/run.json"))
    names = {path.name for path in found}
    return found + ([path for path in run_folders(PUBLISHED) if path.name not in names] if published else [])


def load_runs(folders: Iterable[str | Path]) -> dict[str, Run]:
    """Read run folders, by the folders' names. Raises RecordError as `load_run`, and where two have the same name."""
    runs: dict[str, Run] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in runs:
            raise RecordError(f"{folder}: a run named {name} was given before; name it once, or rename one of the two")
        runs[name] = load_run(folder)
    return runs


def read_info(folder: str | Path) -> RunInfo:
    """Read the run.json of a run folder. Raises RecordError where it is missing or malformed, naming the field."""
    path = Path(folder) / "run.json"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path.absolute()}: no such run; make one with `rag-notes run`") from None
    try:
        return _read(_INFO, text, info_of, "settings")
    except ValueError as error:
        raise RecordError(f"{path}: {error}; move the folder away to run anew") from None


def read_samples(path: Path) -> tuple[Sequence[Sample], int]:
    """The samples of a file and how many half-written last lines were left out (0 or 1: a killed run's).

    Every line is checked, and read again when its sample is asked for; a packed file (.xz) stays in memory unpacked.
    Raises RecordError naming line and field where one but the last is malformed, or where a packed file is not whole.
    """
    if not path.exists():
        return [], 0
    keys: list[Key] = []
    starts, start = array("q"), 0
    content = _unpacked(path) if path.suffix == ".xz" else None
    read = reader(_opened(path, content), _parse)
    with _opened(path, content) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return Lines(read, keys, starts), 1
            try:
                keys.append(read(start).key)
            except ValueError as error:
                raise RecordError(
                    f"{path}, line {number}: not a sample: {error}; delete the line to run it again"
                ) from None
            starts.append(start)
            start += len(line)
    return Lines(read, keys, starts), 0


def _opened(path: Path, content: bytes | None) -> BinaryIO:
    return path.open("rb") if content is None else io.BytesIO(content)


def _unpacked(path: Path) -> bytes:
    try:
        with lzma.open(path) as file:
            content = file.read(_MAX_UNPACKED + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise RecordError(f"{path}: cannot be unpacked ({error}); fetch or publish it again") from None
    if len(content) > _MAX_UNPACKED:
        raise RecordError(f"{path}: unpacks to more than {_MAX_UNPACKED:,} bytes, which no published run has")
    return content


def _parse(line: bytes) -> Sample:
    return _read(_SAMPLE, line, sample_of, "question_id")


def write_info(folder: Path, info: RunInfo) -> None:
    """Write run.json, atomically; half a surrogate pair in a text, such as a server's error, becomes U+FFFD."""
    try:
        text = _INFO.dump_json(info, indent=1)
    except PydanticSerializationError:
        text = _INFO.dump_json(_encodable(_INFO, info), indent=1)
    write_atomically(folder / "run.json", text.decode())


def sample_line(sample: Sample) -> str:
    """A sample as a line of samples.jsonl: fields in a fixed order, so that the same sample gives the same bytes."""
    return _SAMPLE.dump_json(sample).decode() + "\n"


def recordable(sample: Sample) -> tuple[Sample, str]:
    """A sample as it is read back, and its line: what no file can hold, half a surrogate pair, becomes U+FFFD."""
    try:
        return sample, sample_line(sample)
    except PydanticSerializationError:
        whole = _encodable(_SAMPLE, sample)
        return whole, sample_line(whole)


def _encodable(kind: TypeAdapter[T], value: T) -> T:
    return kind.validate_json(encodable(json.dumps(kind.dump_python(value), ensure_ascii=False)))


def write_samples(path: Path, samples: Iterable[Sample]) -> list[Key]:
    """Write all samples, atomically, packed where the name ends in .xz; returns their keys."""
    keys = []
    with replacing(path) as raw, lzma.open(raw, "wb", preset=9) if path.suffix == ".xz" else nullcontext(raw) as file:
        for sample in samples:
            file.write(sample_line(sample).encode())
            keys.append(sample.key)
    return keys


def sort_samples(path: Path, written: Sequence[Key], order: Iterable[Key]) -> Sequence[Sample]:
    """Put the lines of a file of samples, which are those of `written`, in the order of `order`, atomically.

    Returns the samples that `order` has; others are left out.
    """
    keys, starts = sort_lines(path, written, order)
    return Lines(reader(path.open("rb"), _parse), keys, starts)


def _read(kind: TypeAdapter[T], text: bytes, of_old: Callable[[dict[str, Any]], dict[str, Any]], mark: str) -> T:
    """A record of today's form, or of the first one, which has a field `mark`. Raises ValueError naming the field."""
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        problem = error
    try:
        found = json.loads(text)
        if not (isinstance(found, dict) and mark in found):
            raise ValueError(_problem(problem))
        return kind.validate_python(of_old(found))
    except KeyError as missing:
        raise ValueError(f"field {missing.args[0]}: missing (a record of version 0.1)") from None
    except ValidationError as error:
        raise ValueError(_problem(error)) from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(_problem(problem)) from None


def _problem(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"field {place}: {first['msg']}" if place else first["msg"]
