"""Official files from a server that answers, breaks off, changes its mind or gives something else."""

import bz2
import gzip
import hashlib
import io
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes import download
from rag_notes.download import Entry, FetchError, File, fetch, load_downloads
from rag_notes.files import DiskFullError
from rag_notes.options import CONF, choices
from rag_notes.types import InputError
from tests.file_server import FileServer, Seen

BODY = random.Random(6).randbytes(300_000)
SHA256, MD5 = f"sha256:{hashlib.sha256(BODY).hexdigest()}", f"md5:{hashlib.md5(BODY).hexdigest()}"
DEV = b"[1, 2]\n" * 300
MEMBERS = {"top/dev.json": DEV, "__MACOSX/top/dev.json": b"x", "../evil.json": b"evil"}


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in MEMBERS.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVES = {"a.zip": zipped(), "a.tar": tarred(), "a.tar.bz2": bz2.compress(tarred()), "a.gz": gzip.compress(DEV)}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(download, "WAITS", [0.0, 0.0])
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with FileServer({"f": BODY, **ARCHIVES}) as running:
        yield running


def file_of(server: FileServer, *names: str, **settings: Any) -> File:
    return File(path="data/f", urls=[server.url(name) for name in names or ("f",)], **settings)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def bring(folder: Path, *files: File) -> list[str]:
    return download.download({"dataset=mine": Entry("MIT", "https://page.example/", list(files))}, folder)


@pytest.mark.parametrize("checksum", [None, SHA256, MD5])
@pytest.mark.parametrize("faults", [[], ["cut:100000", "cut:50000"], [500, 503], ["cut:9", "hang"]])
def test_a_file_is_brought_whole_and_continued_where_it_was_cut(
    server: FileServer, tmp_path: Path, checksum: str | None, faults: list[str | int]
) -> None:
    server.faults, position = list(faults), 0
    fetch(file_of(server, size=len(BODY), checksum=checksum), tmp_path / "new" / "f.bin")
    assert (tmp_path / "new" / "f.bin").read_bytes() == BODY
    assert files_in(tmp_path) == {"f.bin"}
    assert len(server.seen) == len(faults) + 1
    for fault, seen in zip(faults, server.seen[1:], strict=True):
        position += int(str(fault).partition(":")[2] or 0)
        assert seen.range == (f"bytes={position}-" if position else None)


@pytest.mark.parametrize(
    ("change", "status"),
    [({}, 206), ({"etag": 'W/"weak"', "changed": "Sun, 22 Nov 2020 06:00:00 GMT"}, 206), ({"etag": ""}, 200)],
)
def test_a_strong_etag_or_a_date_decides_whether_a_file_is_continued(
    server: FileServer, tmp_path: Path, change: dict[str, str], status: int
) -> None:
    vars(server).update(change, faults=["cut:100000"])
    fetch(file_of(server), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    version = server.changed or server.etag or None
    assert server.seen[1] == Seen("f", version and "bytes=100000-", version, status)


@pytest.mark.parametrize("change", [{"files": {"f": BODY[::-1]}, "etag": '"two"'}, {"ranges": False}, {}])
def test_a_part_that_does_not_fit_is_begun_again(server: FileServer, tmp_path: Path, change: dict[str, Any]) -> None:
    server.faults = ["cut:100000", 404]
    with pytest.raises(FetchError, match="HTTP 404"):
        fetch(file_of(server), tmp_path / "f")
    assert (tmp_path / "f.part").read_bytes() == BODY[:100_000]
    if not change:
        (tmp_path / "f.part").write_bytes(BODY + b"surplus")
    vars(server).update(change)
    fetch(file_of(server), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == server.files["f"]
    assert files_in(tmp_path) == {"f"}


@pytest.mark.parametrize(
    ("settings", "faults", "message"),
    [
        ({"checksum": f"sha256:{'0' * 64}"}, [], "has the checksum sha256:.* is expected"),
        ({"size": len(BODY) - 1}, [], "has more than 299,999 bytes; if that is right, correct its `size`"),
        ({"size": len(BODY) + 1}, [], "has 300,000 bytes, 300,001 are expected"),
        ({"size": len(BODY)}, ["endless"], "has more than 300,000 bytes"),
        ({}, [404], "HTTP 404$"),
        ({}, ["cut:9", 429, 429], "HTTP 429, after 2 further attempts; the same command continues what is in f.part"),
        ({}, ["html"], "gives an HTML page instead of the file$"),
        ({}, ["hang", "hang", "hang"], "timed out, after 2 further attempts"),
    ],
)
def test_an_address_that_does_not_give_the_file_is_named_and_the_next_one_is_tried(
    server: FileServer, tmp_path: Path, settings: dict[str, Any], faults: list[str | int], message: str
) -> None:
    server.faults = list(faults)
    with pytest.raises(FetchError, match=message) as error:
        fetch(file_of(server, **settings), tmp_path / "f")
    assert str(error.value).startswith(server.url("f"))
    assert files_in(tmp_path) <= {"f.part", ".f.tag"}
    server.faults, server.files["g"] = [404], BODY
    fetch(file_of(server, "f", "g", checksum=SHA256), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


LIMITED = """
import resource, sys
from pathlib import Path
from rag_notes.download import File, fetch
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
fetch(File(path="f", urls=[sys.argv[1]]), Path(sys.argv[2]))
"""


def test_what_fitted_on_the_disk_is_kept_and_continued(server: FileServer, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, server.url("f"), str(tmp_path / "f")]
    errors = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "DiskFullError" in errors and "100,000 bytes are kept; make room and run the same command" in errors
    fetch(file_of(server), tmp_path / "f")
    assert server.seen[1] == Seen("f", "bytes=100000-", '"one"', 206)
    assert (tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("archive", ARCHIVES)
def test_only_the_named_members_are_unpacked_and_what_is_here_is_not_downloaded(
    server: FileServer, tmp_path: Path, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = File(path=f"data/{archive}", urls=[server.url(archive)], members=[File(name="dev.json", path="data/deep/d")])
    assert bring(tmp_path, file) == []
    assert (tmp_path / "data/deep/d").read_bytes() == DEV
    assert files_in(tmp_path) == {archive, "d"}
    digest = hashlib.sha256(ARCHIVES[archive]).hexdigest()
    printed = capsys.readouterr().out
    assert "dataset=mine (licence: MIT)\n" in printed and f"sha256:{digest} (none is published)\n" in printed
    (tmp_path / f"data/{archive}").unlink()  # what was needed of it is here
    assert bring(tmp_path, file) == []
    assert len(server.seen) == 1


@pytest.mark.parametrize("archive", ARCHIVES)
@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"size": len(DEV) - 1}, "has more than 2,099 bytes"),
        ({"size": len(DEV) + 1}, "has 2,100 bytes, 2,101 are expected"),
        ({"checksum": f"sha256:{'0' * 64}"}, "has the checksum sha256:"),
        ({}, "cannot be unpacked ("),
    ],
)
def test_a_member_that_is_not_what_it_should_be_never_gets_its_name(
    server: FileServer, tmp_path: Path, archive: str, facts: dict[str, Any], problem: str
) -> None:
    if not facts:
        server.files[archive] = ARCHIVES[archive][:40]
    member = File(name="dev.json", path="data/m", **facts)
    file = File(path=f"data/{archive}", urls=[server.url(archive)], members=[member])
    (failure,) = bring(tmp_path, file, file_of(server))  # the other file comes all the same
    assert f"{tmp_path}/data/{archive}: dev.json {problem}" in failure
    assert not list((tmp_path / "data").glob("m*"))
    assert (tmp_path / "data/f").read_bytes() == BODY


def test_a_missing_member_a_changed_file_and_one_by_hand_are_named(server: FileServer, tmp_path: Path) -> None:
    member = File(path="data/a.zip", urls=[server.url("a.zip")], members=[File(name="json", path="data/m")])
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_bytes(b"mine")
    failures = bring(tmp_path, member, file_of(server, size=5), File(path="data/hand"))
    assert "0 members end in json, one is expected: ['../evil.json', " in failures[0]
    assert "data/f: has 4 bytes, 5 are expected; move it away, and the same command brings it anew" in failures[1]
    assert "data/hand: no program can download it" in failures[2]
    assert f"\n  by hand: get hand from https://page.example/, put it at {tmp_path}/data/hand, and run" in failures[2]
    (tmp_path / "data/m.part").symlink_to("/dev/full")
    with pytest.raises(DiskFullError, match=r"data/m: the disk is full .* make room and run the same command again"):
        bring(tmp_path, File(path="data/a.zip", members=[File(name="dev.json", path="data/m")]))


def test_the_table_is_listed_and_unknown_names_are_refused(tmp_path: Path) -> None:
    entries = load_downloads(CONF / "downloads.yaml")
    rows = download.overview(entries, tmp_path).splitlines()
    for row, (name, entry) in zip(rows, entries.items(), strict=True):
        assert row.startswith(f"{name} ") and row.endswith(f" {entry.licence}; {entry.page}")
    chosen = download.choose(entries, ["dataset=[hotpotqa, musique]", "dataset=musique"])
    assert list(chosen) == ["dataset=hotpotqa", "dataset=musique"]
    with pytest.raises(InputError, match="dataset=hotpot: nothing to download by that name; there is dataset=hotpotqa"):
        download.choose(entries, ["dataset=hotpot"])


OURS = {"mini", "mini_zh", "plain", "world"}


@pytest.mark.parametrize("option", [f"{group}={name}" for group in ("dataset", "corpus") for name in choices(group)])
def test_everything_is_downloaded_to_where_it_is_read_and_has_a_licence(option: str) -> None:
    group, _, name = option.partition("=")
    if name in OURS:
        return
    settings = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    keys = ("path", "corpus", "search_results") if group == "dataset" else ("path",)
    paths = {*settings.get("paths", []), *(settings[key] for key in keys if settings.get(key))}
    entries = load_downloads(CONF / "downloads.yaml")
    entry = entries.get(option) or entries[f"dataset={name.removesuffix('_distractor')}"]
    targets = {part.path for file in entry.files for part in (file, *file.members)}
    assert paths <= targets | {str(Path(path).parent) for path in targets}
    assert entry.licence.strip() and entry.page.startswith("https://")
    # Without encryption only the checksum tells that nobody changed a file on its way.
    assert all(file.checksum or all(url.startswith("https://") for url in file.urls) for file in entry.files)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"path": "../f"}, "at `$.files[0].path`"),
        ({"path": "/f"}, "at `$.files[0].path`"),
        ({"checksum": "crc32:1"}, "at `$.files[0].checksum`"),
        ({"size": -1}, "Expected `int` >= 0 - at `$.files[0].size`"),
        ({"sha256": "0"}, "Object contains unknown field `sha256` - at `$.files[0]`"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_field(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    entry = {"licence": "MIT", "page": "https://a", "files": [{"path": "data/f"} | change]}
    table = tmp_path / "t.yaml"
    table.write_text(yaml.safe_dump({"dataset": {"d": entry}, "corpus": {}}), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_downloads(table)
    assert str(error.value).startswith(f"{table}, dataset.d: ") and problem in str(error.value)
