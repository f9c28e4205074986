"""Official files from a server that answers, breaks off or gives something else."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes import download
from rag_notes.download import Entry, File, load_downloads
from rag_notes.options import CONF, choices
from rag_notes.types import InputError
from tests.corpora import pack, write

DEV = b"[1, 2]\n" * 300
SHA256, MD5 = f"sha256:{hashlib.sha256(DEV).hexdigest()}", f"md5:{hashlib.md5(DEV).hexdigest()}"
WRONG = f"sha256:{'0' * 64}"
ARCHIVES = ("a.zip", "a.tar", "a.tar.bz2", "a.gz")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files and of archives in which dev.json lies in a folder, beside what macOS adds."""
    folder = tmp_path_factory.mktemp("served")
    for kind in ("zip", "tar", "bztar"):
        pack(folder / "a", kind, {"top/dev.json": DEV, "top/test.json": b"y", "__MACOSX/top/dev.json": b"x"})
    for name, text in {"f": DEV, "cut": DEV, "other": b"other", "a.gz": gzip.compress(DEV)}.items():
        write(folder / name, text)
    return folder


class Handler(SimpleHTTPRequestHandler):
    requests: list[str]

    def copyfile(self, source: Any, outputfile: Any) -> None:  # of "cut" half is sent, and all of it is announced
        outputfile.write(source.read()[: len(DEV) // 2 if self.path == "/cut" else None])

    def log_request(self, *_: object) -> None:
        self.requests.append(self.path[1:])


@pytest.fixture
def address(served: Path) -> Iterator[str]:
    Handler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(served))) as server:
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
    assert f"  data/f: is here, {checksum or f'{SHA256} (none is published)'}\n" in capsys.readouterr().out


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


def test_a_file_by_hand_a_changed_one_and_a_missing_member_say_what_to_do(address: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_bytes(b"mine")
    archive = File(path="data/a.zip", urls=[f"{address}a.zip"], members=[File(name="son", path="data/m")])
    files = (File(path="data/f", urls=[f"{address}f"], checksum=SHA256), File(path="data/hand"), archive)
    changed, by_hand, member = bring(tmp_path, *files)
    assert f"{tmp_path}/data/f: has not the checksum {SHA256}; move it away and run this again" in changed
    assert f"{tmp_path}/data/hand: no program can download it\n  by hand: put hand from https://page" in by_hand
    assert "data/a.zip: 0 members end in son, one is expected: ['__MACOSX/" in member
    assert (tmp_path / "data/f").read_bytes() == b"mine"


@pytest.mark.parametrize("archive", ARCHIVES)
def test_only_the_named_members_are_unpacked_and_what_is_here_is_not_downloaded(
    address: str, tmp_path: Path, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    members = [File(name="dev.json", path="data/deep/d", checksum=SHA256)]
    file = File(path=f"data/{archive}", urls=[address + archive], members=members)
    assert bring(Path(), file) == []
    assert (tmp_path / "data/deep/d").read_bytes() == DEV
    assert files_in(tmp_path) == {f"data/{archive}", "data/deep", "data/deep/d"}
    (tmp_path / f"data/{archive}").unlink()  # what was needed of it is here
    assert bring(Path(), file) == []
    assert Handler.requests == [archive]


@pytest.mark.parametrize("archive", ARCHIVES)
@pytest.mark.parametrize(("size", "checksum", "problem"), [(None, WRONG, "not match the known hash"), (20, None, "")])
def test_a_member_that_is_not_what_it_should_be_is_named_and_not_kept(
    served: Path, tmp_path: Path, archive: str, size: int | None, checksum: str | None, problem: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / archive).write_bytes((served / archive).read_bytes()[:size])
    (failure,) = bring(
        tmp_path, File(path=f"data/{archive}", members=[File(name="dev.json", path="data/m", checksum=checksum)])
    )
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
OFFICIAL = [(group, name) for group in ("dataset", "corpus") for name in choices(group) if name not in OURS]


@pytest.mark.parametrize(("group", "name"), OFFICIAL)
def test_everything_is_downloaded_to_where_it_is_read_and_has_a_licence(group: str, name: str) -> None:
    settings = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    keys = ("path", "corpus", "search_results") if group == "dataset" else ("path",)
    paths = {*settings.get("paths", []), *(settings[key] for key in keys if settings.get(key))}
    entries = load_downloads(CONF / "downloads.yaml")
    entry = entries.get(f"{group}={name}") or entries[f"dataset={name.removesuffix('_distractor')}"]
    targets = {part.path for file in entry.files for part in (file, *file.members)}
    assert paths <= targets | {str(Path(path).parent) for path in targets}
    assert entry.page.startswith("https://")
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
    table = write(tmp_path / "t.yaml", yaml.safe_dump({"dataset": {"d": entry}, "corpus": {}}))
    with pytest.raises(InputError) as error:
        load_downloads(Path(table))
    assert str(error.value).startswith(f"{table}: ") and problem in str(error.value)
