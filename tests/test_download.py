"""Official files from a server that answers, breaks off or gives something else."""

import bz2
import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes import download
from rag_notes.download import Entry, File, load_downloads
from rag_notes.options import CONF, choices
from rag_notes.types import InputError

DEV = b"[1, 2]\n" * 300
SHA256, MD5 = f"sha256:{hashlib.sha256(DEV).hexdigest()}", f"md5:{hashlib.md5(DEV).hexdigest()}"
WRONG = f"sha256:{'0' * 64}"
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


class Handler(BaseHTTPRequestHandler):
    """Gives `files`; of "cut" half is sent, and all of it is announced."""

    files = {"f": DEV, "other": b"other", "cut": DEV, **ARCHIVES}
    requests: list[str] = []

    def do_GET(self) -> None:
        name = self.path[1:]
        self.requests.append(name)
        body = self.files.get(name)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write((body or b"")[: len(DEV) // 2 if name == "cut" else None])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Handler.requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def bring(root: Path, *files: File) -> list[str]:
    return download.download({"dataset=mine": Entry("MIT", "https://page.example/", list(files))}, root)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - {"data"}


@pytest.mark.parametrize("checksum", [None, SHA256, MD5])
def test_the_first_address_that_gives_the_file_counts_and_a_file_that_is_here_stays(
    address: str, tmp_path: Path, checksum: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = File(path="data/f", urls=[f"{address}gone", f"{address}cut", f"{address}f"], checksum=checksum)
    assert [bring(tmp_path, file), bring(tmp_path, file)] == [[], []]
    assert (tmp_path / "data/f").read_bytes() == DEV
    assert files_in(tmp_path) == {"data/f"}
    assert Handler.requests == ["gone", "cut", "f"]
    said = f"  data/f: is here, {checksum or f'{SHA256} (none is published)'}\n"
    assert capsys.readouterr().out == 2 * f"dataset=mine (licence: MIT)\n{said}"


@pytest.mark.parametrize(
    ("name", "checksum", "problem"),
    [
        ("other", WRONG, f"SHA256 hash of downloaded file (f) does not match the known hash: expected {WRONG}"),
        ("gone", None, "404 Client Error"),
        ("cut", None, "IncompleteRead(1050 bytes read, 1050 more expected)"),
    ],
)
def test_a_file_that_is_not_what_the_table_says_is_named_with_its_address_and_not_kept(
    address: str, tmp_path: Path, name: str, checksum: str | None, problem: str
) -> None:
    bad = File(path="data/f", urls=[address + name], checksum=checksum)
    (failure,) = bring(tmp_path, bad, File(path="data/g", urls=[f"{address}f"]))  # the other file comes all the same
    assert failure.startswith(f"dataset=mine: f from {address}{name}: ") and problem in failure
    assert failure.endswith(f"\n  by hand: put f from https://page.example/ at {tmp_path}/data/f")
    assert files_in(tmp_path) == {"data/g"}


def test_a_file_by_hand_and_one_that_is_here_with_another_checksum_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_bytes(b"mine")
    changed, by_hand = bring(tmp_path, File(path="data/f", checksum=SHA256), File(path="data/hand"))
    assert f"{tmp_path}/data/f: has not the checksum {SHA256}; move it away and run this again" in changed
    assert f"{tmp_path}/data/hand: no program can download it\n  by hand: put hand from https://page" in by_hand
    assert (tmp_path / "data/f").read_bytes() == b"mine"


@pytest.mark.parametrize("archive", ARCHIVES)
def test_only_the_named_members_are_unpacked_and_what_is_here_is_not_downloaded(
    address: str, tmp_path: Path, archive: str
) -> None:
    member = File(name="dev.json", path="data/deep/d", checksum=SHA256)
    file = File(path=f"data/{archive}", urls=[address + archive], members=[member])
    assert bring(tmp_path, file) == []
    assert (tmp_path / "data/deep/d").read_bytes() == DEV
    assert files_in(tmp_path) == {f"data/{archive}", "data/deep", "data/deep/d"}
    (tmp_path / f"data/{archive}").unlink()  # what was needed of it is here
    assert bring(tmp_path, file) == []
    assert Handler.requests == [archive]


@pytest.mark.parametrize("archive", ARCHIVES)
@pytest.mark.parametrize(
    ("size", "member", "problem"),
    [
        (None, {"name": "dev.json", "checksum": WRONG}, f"does not match the known hash: expected {WRONG}"),
        (40, {"name": "dev.json"}, ""),
        (None, {"name": "son"}, "0 members end in son, one is expected: ['../evil.json', "),
    ],
)
def test_a_member_that_is_not_what_it_should_be_is_named_and_not_kept(
    tmp_path: Path, archive: str, size: int | None, member: dict[str, str], problem: str
) -> None:
    if archive == "a.gz" and member["name"] == "son":
        return  # it has one member, without a name
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / archive).write_bytes(ARCHIVES[archive][:size])
    (failure,) = bring(tmp_path, File(path=f"data/{archive}", members=[File(path="data/m", **member)]))
    assert failure.startswith(f"dataset=mine: m from {tmp_path}/data/{archive}: ") and problem in failure
    assert files_in(tmp_path) == {f"data/{archive}"}


def test_the_table_is_listed_and_unknown_names_are_refused(tmp_path: Path) -> None:
    entries = load_downloads(CONF / "downloads.yaml")
    rows = download.overview(entries, tmp_path).splitlines()
    for row, (name, entry) in zip(rows, entries.items(), strict=True):
        assert row.startswith(f"{name} ") and row.endswith(f" {entry.licence}; {entry.page}")
    chosen = download.choose(entries, ["dataset=[hotpotqa, musique]", "dataset=musique"])
    assert list(chosen) == ["dataset=hotpotqa", "dataset=musique"]
    with pytest.raises(InputError, match="dataset=hotpot: nothing to download by that name; did you mean dataset=hotp"):
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
        ({"path": "../f"}, "files[0].path`"),
        ({"path": "/f"}, "files[0].path`"),
        ({"checksum": "crc32:1"}, "files[0].checksum`"),
        ({"sha256": "0"}, "Object contains unknown field `sha256` - at `$[...][...].files[0]`"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_field(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    entry = {"licence": "MIT", "page": "https://a", "files": [{"path": "data/f"} | change]}
    table = tmp_path / "t.yaml"
    table.write_text(yaml.safe_dump({"dataset": {"d": entry}, "corpus": {}}), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_downloads(table)
    assert str(error.value).startswith(f"{table}: ") and problem in str(error.value)
