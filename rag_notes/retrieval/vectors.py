"""The vector file: the vectors of a corpus on disk, memory-mapped, with what they were made of and with."""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm import tqdm

from rag_notes.retrieval.base import corpus_checksum
from rag_notes.retrieval.encoders import Encoder, file_checksum
from rag_notes.types import InputError, Passage

META, VECTORS, PROGRESS = "meta.json", "vectors.npy", "progress.json"
_CHECKPOINT = 4  # batches between two checkpoints: what a kill costs at most


class VectorFile(NamedTuple):
    """Vectors of a corpus, memory-mapped, of shape (passages, dimensions), in the order of the passages.

    `meta` is what meta.json says: `encoder`, `corpus`, `dtype`, how many passages were `truncated`, and `sha256`.
    """

    folder: Path
    vectors: NDArray[Any]
    meta: dict[str, Any]


def cached_vectors(
    passages: Sequence[Passage],
    encoder: Encoder,
    *,
    dtype: Literal["float16", "float32"],
    batch_size: int,
    folder: str | None,
    cache: str,
    progress: bool = True,
) -> VectorFile:
    """Open the vector file of a corpus, in `folder` or in one below `cache` that is named by corpus and encoder.

    Raises as `encode_corpus`, and `ValueError` for an empty corpus.
    """
    if not passages:
        raise InputError("the corpus is empty, nothing can be retrieved: set dataset.<name>.corpus to its passages")
    if folder is None:
        key = json.dumps([describe_vectors(passages, encoder, dtype), batch_size], sort_keys=True)
        path = Path(cache) / f"dense-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    else:
        path = Path(folder).expanduser()
    return encode_corpus(passages, encoder, path, dtype=dtype, batch_size=batch_size, progress=progress)


def encode_corpus(
    passages: Sequence[Passage],
    encoder: Encoder,
    folder: str | Path,
    *,
    dtype: Literal["float16", "float32"] = "float32",
    batch_size: int = 32,
    progress: bool = True,
) -> VectorFile:
    """Open the vector file in `folder`, encoding what it lacks: title, newline and text of each passage.

    Passages are encoded in batches of similar length, the longest first. A process that is killed loses at most 4
    batches, and the next one goes on to the same bytes. Several processes may do this at once: one encodes, the others
    wait. Raises ValueError where the folder's vectors, whole or half made, are of another corpus, encoder or dtype
    (naming the differences), where they are damaged, and where a vector is not finite in `dtype`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = describe_vectors(passages, encoder, dtype)
    with FileLock(folder / "lock"):
        if not ((folder / META).exists() and (folder / VECTORS).exists()):
            _encode(passages, encoder, folder, wanted, batch_size=batch_size, progress=progress)
    return open_vectors(folder, wanted)


def open_vectors(folder: str | Path, wanted: Mapping[str, Any] | None = None) -> VectorFile:
    """Open a finished vector file, memory-mapped, after its checksum.

    With `wanted` (`encoder`, `corpus` and `dtype`) the vectors must have been made of these. Raises ValueError naming
    what differs or what is damaged, FileNotFoundError where there is no finished file.
    """
    folder = Path(folder)
    meta = _read(folder / META)
    if wanted is not None:
        _check_same(folder, meta, wanted)
    path = folder / VECTORS
    if (actual := file_checksum(path)) != meta["sha256"]:
        raise InputError(
            f"{path} is damaged: checksum {actual}, written with {meta['sha256']}; delete {folder} to encode again"
        )
    return VectorFile(folder, _load(path, "r"), meta)


def describe_vectors(passages: Sequence[Passage], encoder: Encoder, dtype: str) -> dict[str, Any]:
    """What determines the vectors of a corpus: `encoder`, `corpus` and `dtype`; the instruction of queries does not."""
    corpus = {"passages": len(passages), "sha256": corpus_checksum(passages)}
    return {"encoder": describe_passages(encoder), "corpus": corpus, "dtype": dtype}


def describe_passages(encoder: Encoder) -> dict[str, Any]:
    """What determines the vectors that an encoder gives to passages: all but the instruction of queries."""
    return {name: value for name, value in encoder.describe().items() if name != "query_instruction"}


def passage_text(passage: Passage) -> str:
    """What an encoder reads of a passage: title, newline, text."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Every value that differs between two nested settings, as "name: found, but wanted is asked for"."""
    lines: list[str] = []
    for name in dict.fromkeys([*wanted, *found]):
        one, other = found.get(name), wanted.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            lines += differences(one, other, f"{prefix}{name}.")
        elif one != other:
            lines.append(f"{prefix}{name}: {one!r}, but {other!r} is asked for")
    return lines


def _encode(
    passages: Sequence[Passage],
    encoder: Encoder,
    folder: Path,
    wanted: dict[str, Any],
    *,
    batch_size: int,
    progress: bool,
) -> None:
    lengths = np.fromiter((len(passage_text(passage)) for passage in passages), dtype=np.int64, count=len(passages))
    order = np.argsort(-lengths, kind="stable")
    batches = [order[start : start + batch_size].tolist() for start in range(0, len(order), batch_size)]
    part, state = folder / f"{VECTORS}.part", {**wanted, "batch_size": batch_size, "batches": 0, "truncated": 0}
    vectors: NDArray[Any] | None = None
    if (folder / PROGRESS).exists():
        before = _read(folder / PROGRESS)
        _check_same(folder, before, {**wanted, "batch_size": batch_size})
        if part.exists():
            state, vectors = before, _load(part, "r+")
    retries = 0
    done = sum(len(batch) for batch in batches[: state["batches"]])
    with tqdm(total=len(passages), initial=done, unit="passage", disable=not progress, file=sys.stderr) as bar:
        for number in range(state["batches"], len(batches)):
            rows = batches[number]
            encoded = encoder.encode_passages([passage_text(passages[row]) for row in rows])
            with np.errstate(over="ignore"):
                made = encoded.vectors.astype(wanted["dtype"])
            _check_batch(
                made, made.shape[-1] if vectors is None else vectors.shape[1], [passages[row].id for row in rows]
            )
            if vectors is None:
                vectors = _create(part, made.dtype, (len(passages), made.shape[1]))
            vectors[rows] = made
            state["truncated"] += encoded.truncated
            retries += encoded.retries
            if (number + 1) % _CHECKPOINT == 0:
                _flush(vectors)
                state["batches"] = number + 1
                write_json(folder / PROGRESS, state)
            bar.update(len(rows))
            bar.set_postfix_str(f"{state['truncated']} truncated" + (f", {retries} retries" if retries else ""))
    assert vectors is not None  # there is at least one passage
    _flush(vectors)
    del vectors
    meta = {**wanted, "truncated": state["truncated"], "sha256": file_checksum(part)}
    write_json(folder / META, meta)  # first: a kill between the two leaves the vectors where they are gone on with
    part.replace(folder / VECTORS)
    (folder / PROGRESS).unlink(missing_ok=True)


def _create(path: Path, dtype: np.dtype[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """A new memory-mapped file. Raises OSError where the disk is too full: writing to the map would end the process."""
    needed, free = dtype.itemsize * shape[0] * shape[1], shutil.disk_usage(path.parent).free
    if free < needed:
        raise OSError(f"{path.parent}: the vectors need {needed / 1e9:.2f} GB of disk, {free / 1e9:.2f} GB are free")
    vectors: NDArray[Any] = np.lib.format.open_memmap(path, "w+", dtype, shape)
    return vectors


def _load(path: Path, mode: Literal["r", "r+"]) -> NDArray[Any]:
    try:
        vectors: NDArray[Any] = np.load(path, mmap_mode="r")
        if mode == "r+":  # in this mode alone numpy would fill up a file that is too short
            vectors = np.load(path, mmap_mode=mode)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); delete {path.parent} to encode again") from None
    return vectors


def _check_batch(vectors: NDArray[Any], dimensions: int, ids: Sequence[str]) -> None:
    if vectors.shape != (len(ids), dimensions):
        raise InputError(f"the encoder gave vectors of shape {vectors.shape}, expected {(len(ids), dimensions)}")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise InputError(
            f"the vector of passage {ids[int(np.argmin(finite))]!r} is not finite in {vectors.dtype}; store float32, "
            "or mend the model"
        )


def _check_same(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if lines := differences({name: found.get(name) for name in wanted}, wanted):
        raise InputError(
            f"{folder} holds vectors made otherwise; name another folder or delete this one:\n  " + "\n  ".join(lines)
        )


def _flush(vectors: NDArray[Any]) -> None:
    assert isinstance(vectors, np.memmap)
    vectors.flush()


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := {"encoder", "corpus", "dtype", "truncated"} - set(content):
            raise InputError(f"lacks {', '.join(sorted(missing))}")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path.parent}: no finished vector file (there is no {path.name})") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete {path.parent} to encode again") from None
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file at `path` by JSON, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)
