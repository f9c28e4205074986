"""Writes a run: its answers as they come, in a file of this process alone, and in the end in order, to its folder."""

import json
import tempfile
import uuid
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self

import msgspec

from rag_notes.files import replacing, saying_full
from rag_notes.llm.errors import encodable
from rag_notes.running.records import SAMPLES, Run, RunInfo, load_run, read_info
from rag_notes.running.samples import RecordError, Sample, SampleFile


class SampleWriter:
    """Takes the samples of a run in any order: in memory, or with a folder in a file that ends with the process.

    The file has no name, so that nothing of a killed process is left, and two processes can make the same run.
    """

    def __init__(self, samples: int, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._samples: dict[int, Sample] = {}
        self._file: IO[bytes] | None = None
        self._starts, self._sizes = array("q", bytes(8 * samples)), array("q", bytes(8 * samples))

    def __enter__(self) -> Self:
        if self.folder is not None:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self.folder.parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def add(self, line: int, sample: Sample) -> None:
        """Take the sample of this line of samples.jsonl."""
        if self._file is None or self.folder is None:
            self._samples[line] = sample
            return
        text = encode(sample) + b"\n"
        with saying_full(self.folder / SAMPLES):
            self._starts[line], self._sizes[line] = self._file.seek(0, 2), len(text)
            self._file.write(text)

    def samples(self) -> list[Sample]:
        """The samples in memory, in their order."""
        return [self._samples[line] for line in sorted(self._samples)]

    def lines(self) -> Iterator[bytes]:
        """The lines in the file, in their order."""
        for start, size in zip(self._starts, self._sizes, strict=True):
            if size and self._file is not None:
                self._file.seek(start)
                yield self._file.read(size)


def write_run(info: RunInfo, writer: SampleWriter) -> Run:
    """Write a run to the folder of its writer, the studies that it was made for before added to its own.

    A finished run is not replaced by one that was stopped.
    """
    folder = writer.folder
    if folder is None:
        return Run(info, writer.samples())
    if (before := _read(folder)) is not None:
        if before.finished and not info.finished:
            return replace(load_run(folder), info=replace(before, status=info.status))
        info = replace(info, studies=sorted({*before.studies, *info.studies}))
    with _replacing(folder / SAMPLES) as file:
        file.writelines(writer.lines())
    with _replacing(folder / "run.json") as file:
        file.write(msgspec.json.format(encode(info), indent=1))
    return Run(info, SampleFile(folder / SAMPLES), folder)


def check_folder(folder: Path, info: RunInfo) -> None:
    """Raise RecordError, naming what differs, where a folder holds another run."""
    if (before := _read(folder)) is not None and before.fingerprint != info.fingerprint:
        differing = [name for name, part in before.identity.items() if encode(part) != encode(info.identity[name])]
        raise RecordError(
            f"{folder}: holds a run with other {', '.join(differing)}; name another folder or move this one away"
        )


def encode(value: Any) -> bytes:
    """JSON with fields in a fixed order; half a surrogate pair in a text, such as a server's error, becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return encodable(text).encode()


def _read(folder: Path) -> RunInfo | None:
    with suppress(RecordError):  # nothing, or what an earlier version wrote: it is replaced
        return read_info(folder)
    return None


def _replacing(path: Path) -> AbstractContextManager[BinaryIO]:
    """Write a file by way of one of this process's own: another process may be making the same run."""
    return replacing(path, path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part"))
