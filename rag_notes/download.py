"""Official files of data sets and corpora. A download that breaks off keeps nothing and begins anew."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import pooch

from rag_notes.options import did_you_mean
from rag_notes.terminal import say
from rag_notes.types import InputError


class File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file, or one to take out of an archive; the head of the table says what the fields are."""

    path: Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$)).+$")]  # relative, without ".."
    urls: list[str] = []
    size: int | None = None
    checksum: Annotated[str, msgspec.Meta(pattern="^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$")] | None = None
    name: str = ""
    members: list["File"] = []


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """The files of a data set or corpus, their licence, and the page where a person finds them."""

    licence: Annotated[str, msgspec.Meta(min_length=1)]
    page: str
    files: Annotated[list[File], msgspec.Meta(min_length=1)]


def load_downloads(path: Path) -> dict[str, Entry]:
    """Read a table, by the option that names each entry. Raises `InputError` naming file and field."""
    try:
        table = msgspec.yaml.decode(path.read_bytes(), type=dict[str, dict[str, Entry]])
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: {error}") from None
    return {f"{group}={name}": entry for group, named in table.items() for name, entry in named.items()}


def choose(entries: dict[str, Entry], options: Sequence[str]) -> dict[str, Entry]:
    """Return the entries that options such as `dataset=hotpotqa` or `corpus=[hotpotqa,musique]` name."""
    pairs = (option.partition("=")[::2] for option in options)
    names = [f"{group}={name.strip()}" for group, value in pairs for name in value.strip("[]").split(",")]
    for name in names:
        if name not in entries:
            raise InputError(f"{name}: nothing to download by that name{did_you_mean(name, entries)}")
    return {name: entries[name] for name in names}


def overview(entries: dict[str, Entry], root: Path) -> str:
    """Describe what there is, a line an entry: name, known size, how many files are below `root`, licence and page."""
    lines = []
    for name, entry in entries.items():
        size = sum(file.size or 0 for file in entry.files) / 1e6
        present = [(root / part.path).is_file() for file in entry.files for part in file.members or [file]]
        here = f"{sum(present)} of {len(present)} files are here"
        lines.append(f"{name:<26}{size:>9,.1f} MB  {here:<24}{entry.licence}; {entry.page}")
    return "\n".join(lines)


def download(entries: dict[str, Entry], root: Path) -> list[str]:
    """Bring the files of entries below `root`, checked and unpacked; return what failed."""
    failures = []
    for name, entry in entries.items():
        say(f"{name} (licence: {entry.licence})")
        for file in entry.files:
            archive, unpacked = root.absolute() / file.path, [root.absolute() / member.path for member in file.members]
            try:
                if archive.exists() or not (unpacked and all(path.exists() for path in unpacked)):
                    _bring(file, file.urls, archive)
                for member, path in zip(file.members, unpacked, strict=True):
                    _bring(member, [str(archive)], path)
            except InputError as error:
                failures.append(f"{name}: {error}\n  by hand: put {archive.name} from {entry.page} at {archive}")
                say(failures[-1])
    return failures


def _bring(file: File, sources: Sequence[str], target: Path) -> None:
    """Bring a file that is not there from the first of its addresses that gives it, or from its archive."""
    http = pooch.HTTPDownloader(sys.stderr.isatty(), 1 << 20, timeout=60, headers={"Accept-Encoding": "identity"})
    bring, problems = partial(_unpack, name=file.name) if file.name else http, []
    target.parent.mkdir(parents=True, exist_ok=True)
    for source in sources if not target.exists() else []:
        with TemporaryDirectory(prefix=".", dir=target.parent) as folder:
            try:
                path = Path(folder, target.name)
                bring(source, str(path), None)
                pooch.hashes.hash_matches(str(path), file.checksum, strict=True, source=target.name)
                path.replace(target)
                break
            except Exception as error:  # each kind of damage to each kind of archive raises another one
                problems.append(f"{target.name} from {source}: {error}")
    if not target.exists():
        raise InputError("\n".join(problems) or f"{target}: no program can download it")
    if not pooch.hashes.hash_matches(str(target), file.checksum):
        raise InputError(f"{target}: has not the checksum {file.checksum}; move it away and run this again")
    say(f"  {file.path}: is here, {file.checksum or f'sha256:{pooch.file_hash(str(target))} (none is published)'}")


def _unpack(archive: str, output: str, _: object, name: str) -> Any:
    """Write the member whose path ends in `name` to `output`; nothing else of the archive is unpacked."""
    if archive.endswith(".gz") and not archive.endswith(".tar.gz"):
        return pooch.Decompress(name=output)(archive, "download", None)
    processor = pooch.Unzip if archive.endswith(".zip") else pooch.Untar
    paths = processor()._all_members(archive)
    # macOS puts files of its own, with the same endings, in a folder beside.
    matches = [path for path in paths if f"/{path}".endswith(f"/{name}") and "__MACOSX/" not in path]
    if len(matches) != 1:
        raise InputError(f"{len(matches)} members end in {name}, one is expected: {sorted(paths)[:10]}")
    processor(matches, f"{output}.unpacked")(archive, "download", None)
    return Path(f"{output}.unpacked", matches[0]).replace(output)
