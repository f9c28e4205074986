"""The command that downloads official files, against a server of files."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes.cli import main
from rag_notes.downloads import Entry, File, Member, download, load_downloads
from rag_notes.files import DiskFullError
from rag_notes.options import CONF
from tests.file_server import FileServer


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("top/link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


PLAIN, DEV = b'{"question": "q"}\n' * 500, b"[1, 2]\n" * 300
ZIP = zipped(**{"top/dev.json": DEV, "__MACOSX/top/dev.json": b"x", "../evil.json": b"evil", "top/train.json": b"t"})
GZ = gzip.compress(DEV, mtime=0)
TAR = tarred(**{"top/dev.json": DEV, "../../evil.json": b"evil"})


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer({"plain": PLAIN, "a.zip": ZIP, "a.tar": TAR, "a.gz": GZ}) as running:
        yield running


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def one(
    path: str, *urls: str, size: int | None = None, checksum: str | None = None, members: dict[str, str] | None = None
) -> File:
    parts = [Member(name=name, path=target) for name, target in (members or {}).items()]
    return File(urls=list(urls), path=path, size=size, checksum=checksum, members=parts)


def table_of(folder: Path, *files: File) -> Path:
    entry = {"licence": "MIT", "page": "https://page.example/", "files": [file.model_dump() for file in files]}
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump({"dataset": {"mine": entry}, "corpus": {"other": entry}}), encoding="utf-8")
    return path


def run(folder: Path, table: Path, *options: str) -> int:
    return main(["download", *options, "--table", str(table), "--into", str(folder)])


def test_the_list_names_size_licence_page_and_what_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of(tmp_path, one("data/a", "https://a/a", size=1_500_000), one("data/b", size=2), one("data/c"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "b").write_bytes(b"12")
    assert run(tmp_path, table) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["what", "size", "here", "licence", "page"]
    assert [row.split("  ")[0] for row in rows] == ["dataset=mine", "corpus=other"]
    assert "1.5 MB and more  1 of 3 files, by hand  MIT      https://page.example/" in rows[0]


def test_the_projects_own_table_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["download"]) == 0
    shown = capsys.readouterr().out
    assert all(
        f"{name} " in shown and entry.licence in shown
        for name, entry in load_downloads(CONF / "downloads.yaml").entries()
    )


@pytest.mark.parametrize("options", [["dataset=mine"], ["dataset=[mine]", "corpus=[other, other]"]])
def test_files_are_downloaded_checked_and_recorded(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    table = table_of(tmp_path, one("data/x/plain.jsonl", server.url("plain")))
    assert run(tmp_path, table, *options) == 0
    assert (tmp_path / "data/x/plain.jsonl").read_bytes() == PLAIN
    assert len(server.seen) == 1
    shown = capsys.readouterr().out
    assert "dataset=mine (licence: MIT)\n  data/x/plain.jsonl: downloaded, 9,000 bytes\n" in shown
    assert f"no checksum is published for it; it has {sha256(PLAIN)}, recorded in .plain.jsonl.sha256" in shown
    assert run(tmp_path, table, *options) == 0
    assert len(server.seen) == 1
    assert "  data/x/plain.jsonl: is here\n" in capsys.readouterr().out


def test_a_later_download_must_have_the_recorded_checksum(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(tmp_path, one("data/plain", server.url("plain")))
    assert run(tmp_path, table, "dataset=mine") == 0
    (tmp_path / "data/plain").unlink()
    server.files["plain"] = PLAIN[::-1]
    assert run(tmp_path, table, "dataset=mine") == 1
    shown = capsys.readouterr().out
    assert f"{sha256(PLAIN)} is expected" in shown
    assert f"of an earlier download; delete {tmp_path}/data/.plain.sha256 to forget it" in shown
    assert not (tmp_path / "data/plain").exists()
    (tmp_path / "data/.plain.sha256").unlink()
    assert run(tmp_path, table, "dataset=mine") == 0
    assert (tmp_path / "data/plain").read_bytes() == PLAIN[::-1]


def test_a_file_here_that_is_another_one_is_not_touched(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(tmp_path, one("data/plain", server.url("plain"), checksum=sha256(PLAIN)))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/plain").write_bytes(b"mine")
    assert run(tmp_path, table, "dataset=mine") == 1
    assert "is expected; move it away, and the same command downloads it anew" in capsys.readouterr().out
    assert (tmp_path / "data/plain").read_bytes() == b"mine"
    assert server.seen == []


@pytest.mark.parametrize(("archive", "content"), [("a.zip", ZIP), ("a.tar", TAR), ("a.gz", GZ)])
def test_only_the_named_members_are_unpacked_to_the_named_places(
    server: FileServer, tmp_path: Path, archive: str, content: bytes
) -> None:
    table = table_of(
        tmp_path,
        one(
            f"data/{archive}", server.url(archive), checksum=sha256(content), members={"dev.json": "data/deep/dev.json"}
        ),
    )
    assert run(tmp_path, table, "dataset=mine") == 0
    assert (tmp_path / "data/deep/dev.json").read_bytes() == DEV
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written - {f"data/.{archive}.lock"} == {"table.yaml", f"data/{archive}", "data/deep/dev.json"}
    assert not list(tmp_path.parent.glob("evil*"))
    # The archive may go: what was wanted of it is here.
    (tmp_path / f"data/{archive}").unlink()
    assert run(tmp_path, table, "dataset=mine") == 0
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("archive", "member", "message"),
    [
        ("a.zip", "test.json", "0 members end in test.json, one is expected; there is ../evil.json, __MACOSX/top/dev"),
        ("a.zip", "json", "0 members end in json"),
        ("a.tar", "link.json", "0 members end in link.json"),
        (
            "bad.zip",
            "dev.json",
            "dev.json cannot be unpacked (File is not a zip file); delete the archive, and the same command downloads",
        ),
        (
            "cut.gz",
            "dev.json",
            "dev.json cannot be unpacked (Compressed file ended before the end-of-stream marker was reached)",
        ),
        ("bad.tar", "dev.json", "dev.json cannot be unpacked (file could not be opened successfully"),
    ],
)
def test_an_archive_without_the_member_or_damaged_is_named(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], archive: str, member: str, message: str
) -> None:
    server.files |= {"bad.zip": ZIP[:-30], "bad.tar": b"x" * 2000, "cut.gz": gzip.compress(os.urandom(4000))[:-900]}
    table = table_of(tmp_path, one(f"data/{archive}", server.url(archive), members={member: "data/m"}))
    assert run(tmp_path, table, "dataset=mine") == 1
    assert f"{tmp_path}/data/{archive}: {message}" in capsys.readouterr().out
    assert not (tmp_path / "data/m").exists()
    assert not (tmp_path / "data/m.part").exists()
    assert not list((tmp_path / "data").glob(".*.sha256"))


def unusual(kind: str) -> bytes:
    """An archive that its reader refuses in its own way, though its list of members is whole."""
    content = bytearray(zipped(**{"dev.json": DEV}))
    central = content.index(b"PK\x01\x02")
    if kind == "encrypted":
        content[6] |= 1
        content[central + 8] |= 1
    elif kind == "method":
        content[8] = content[central + 10] = 97
    else:
        content[40] ^= 0xFF
    return bytes(content)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("encrypted", "File 'dev.json' is encrypted, password required for extraction"),
        ("method", "That compression method is not supported"),
        ("damaged", ""),
    ],
)
def test_an_archive_that_cannot_be_unpacked_does_not_keep_the_others_from_coming(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, problem: str
) -> None:
    server.files["bad.zip"] = unusual(kind)
    archive = one("data/bad.zip", server.url("bad.zip"), members={"dev.json": "data/m"})
    assert run(tmp_path, table_of(tmp_path, archive, one("data/plain", server.url("plain"))), "dataset=mine") == 1
    said = capsys.readouterr().out
    assert f"{tmp_path}/data/bad.zip: dev.json cannot be unpacked ({problem}" in said
    assert "delete the archive, and the same command downloads it anew, or unpack it by another program" in said
    assert (tmp_path / "data/plain").read_bytes() == PLAIN
    assert not list((tmp_path / "data").glob("m*"))


@pytest.mark.parametrize("archive", ["a.zip", "a.tar", "a.gz"])
@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"size": len(DEV) - 1}, "has more than 2,099 bytes, and nothing is kept of it; if that is right, correct its"),
        ({"size": len(DEV) + 1}, "has 2,100 bytes, 2,101 are expected; nothing is kept of it, delete the archive"),
        ({"checksum": f"sha256:{'0' * 64}"}, "has the checksum sha256:"),
        ({}, "has more than 2,000 bytes, and nothing is kept of it"),
    ],
)
def test_a_member_that_is_not_what_it_should_be_never_gets_its_name(
    server: FileServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    archive: str,
    facts: dict[str, Any],
    problem: str,
) -> None:
    member = Member(name="dev.json", path="data/m", **facts)
    body = server.files[archive]
    file = File(urls=[server.url(archive)], path=f"data/{archive}", size=len(body), checksum=None, members=[member])
    table = table_of(tmp_path, file, one("data/gz", server.url("a.gz")))
    if not facts:
        table.write_text(table.read_text(encoding="utf-8") + "largest: 2000\n", encoding="utf-8")
    assert run(tmp_path, table, "dataset=mine") == 1
    assert f"{tmp_path}/data/{archive}: dev.json {problem}" in capsys.readouterr().out
    assert not list((tmp_path / "data").glob("m*"))
    assert (tmp_path / "data/gz").read_bytes() == GZ


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "gz", "bz2"])
def test_mutated_archives_are_unpacked_or_named(tmp_path: Path, ending: str) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    whole = zipped(**{"dev.json": DEV, "b": b"b"}) if ending == "zip" else DEV if "tar" not in ending else TAR
    content = packers.get(ending.rpartition(".")[2], bytes)(whole)
    path, target = tmp_path / f"a.{ending}", tmp_path / "m"
    entry = Entry(licence="MIT", page="", files=[one(path.name, members={"dev.json": "m"})])
    draw = random.Random(ending)
    refused = 0
    for _ in range(60):
        target.unlink(missing_ok=True)
        path.with_name(f".{path.name}.sha256").unlink(missing_ok=True)
        mutated = bytearray(content)
        for _ in range(draw.randint(1, 8)):
            mutated[draw.randrange(len(mutated))] = draw.randrange(256)
        path.write_bytes(mutated[: draw.choice([None, draw.randrange(len(mutated))])])
        failures = download([("dataset=mine", entry)], tmp_path, largest=10**6, say=lambda _: None)
        refused += len(failures)
        assert all(f"{path}: " in failure for failure in failures)
        assert target.exists() == (not failures)
        assert not (tmp_path / "m.part").exists()
    assert refused


@pytest.mark.parametrize("content", [b"", b"\xff", b"sha256:1 plain\n", b"rot13:00 plain\n"])
def test_a_damaged_record_of_a_checksum_is_named(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    record = tmp_path / "data/.plain.sha256"
    record.parent.mkdir()
    record.write_bytes(content)
    table = table_of(tmp_path, one("data/plain", server.url("plain")), one("data/gz", server.url("a.gz")))
    assert run(tmp_path, table, "dataset=mine") == 1
    said = capsys.readouterr().out
    assert f"{record}: expected the checksum of an earlier download; delete it to forget that" in said
    assert (tmp_path / "data/gz").read_bytes() == GZ


def test_a_place_that_cannot_be_written_does_not_keep_the_others_from_coming(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data/plain").mkdir(parents=True)
    table = table_of(tmp_path, one("data/plain", server.url("plain")), one("data/gz", server.url("a.gz")))
    assert run(tmp_path, table, "dataset=mine") == 1
    assert f"'{tmp_path}/data/plain'" in capsys.readouterr().out
    assert (tmp_path / "data/gz").read_bytes() == GZ


def test_a_file_by_hand_is_asked_for_then_checked_and_unpacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(tmp_path, one("data/a.zip", members={"dev.json": "data/dev.json"}))
    assert run(tmp_path, table, "dataset=mine") == 1
    said = capsys.readouterr()
    assert f"{tmp_path}/data/a.zip: no program can download it\n" in said.out
    wanted = f"by hand: get a.zip from https://page.example/, put it at {tmp_path}/data/a.zip, and run the same command"
    assert wanted in said.out
    assert said.err == "1 files are missing, see above; the same command continues\n"
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.zip").write_bytes(ZIP)
    assert run(tmp_path, table, "dataset=mine") == 0
    assert (tmp_path / "data/dev.json").read_bytes() == DEV


def test_one_file_that_fails_does_not_keep_the_others_from_coming(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(tmp_path, one("data/gone", server.url("gone")), one("data/plain", server.url("plain")))
    assert run(tmp_path, table, "dataset=mine") == 1
    shown = capsys.readouterr().out
    assert f"{server.url('gone')}: HTTP 404\n  by hand: get gone from https://page.example/, put it at" in shown
    assert (tmp_path / "data/plain").read_bytes() == PLAIN


def test_a_full_disk_ends_it_all(server: FileServer, tmp_path: Path) -> None:
    table = table_of(tmp_path, one("data/a.gz", server.url("a.gz"), members={"dev.json": "data/d"}), one("data/b", "x"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/d.part").symlink_to("/dev/full")
    entries = list(load_downloads(table).entries())
    with pytest.raises(DiskFullError, match="data/d: the disk is full"):
        download(entries, tmp_path, waits=(), say=lambda _: None)
    assert [seen.path for seen in server.seen] == ["a.gz"]


@pytest.mark.parametrize("option", ["dataset=main", "main", "corpus=mine"])
def test_an_unknown_name_is_refused_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert run(tmp_path, table_of(tmp_path, one("data/a")), option) == 2
    assert f"rag-notes: {option}: nothing to download by that name; there is " in capsys.readouterr().err


def test_a_killed_command_is_continued_by_the_same_command(server: FileServer, tmp_path: Path) -> None:
    table = table_of(tmp_path, one("data/plain", server.url("plain"), size=len(PLAIN), checksum=sha256(PLAIN)))
    call = "import sys; from rag_notes.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "download", "dataset=mine", "--table", str(table), "--into", str(tmp_path)]
    server.faults = ["hold:4000"]
    part = tmp_path / "data/plain.part"
    with subprocess.Popen(command) as process:
        while not (part.exists() and part.stat().st_size == 4000):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert not (tmp_path / "data/plain").exists()
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "data/plain").read_bytes() == PLAIN
    assert [(seen.range, seen.status) for seen in server.seen] == [(None, 200), ("bytes=4000-", 206)]
