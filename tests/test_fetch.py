"""One file over HTTP, from a server that answers, breaks off, changes its mind or gives something else."""

import hashlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_notes.fetch import FetchError, fetch
from rag_notes.files import DiskFullError
from tests.file_server import FileServer, Seen

BODY = random.Random(6).randbytes(300_000)
SHA256 = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
MD5 = f"md5:{hashlib.md5(BODY).hexdigest()}"
QUICK = (0.0, 0.0)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer({"f": BODY}) as running:
        yield running


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


@pytest.mark.parametrize("checksum", [None, SHA256, MD5])
def test_a_file_is_there_whole_and_alone(server: FileServer, tmp_path: Path, checksum: str | None) -> None:
    fetch([server.url("f")], tmp_path / "new" / "f.bin", size=len(BODY), checksum=checksum)
    assert (tmp_path / "new" / "f.bin").read_bytes() == BODY
    assert names(tmp_path / "new") == {"f.bin"}
    assert server.seen == [Seen("f", None, None, 200)]


def test_a_cut_connection_is_continued_where_it_was_cut(server: FileServer, tmp_path: Path) -> None:
    server.faults = ["cut:100000", "cut:50000"]
    fetch([server.url("f")], tmp_path / "f", checksum=SHA256, waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen == [
        Seen("f", None, None, 200),
        Seen("f", "bytes=100000-", '"one"', 206),
        Seen("f", "bytes=150000-", '"one"', 206),
    ]


def test_attempts_that_bring_something_are_not_limited(server: FileServer, tmp_path: Path) -> None:
    server.faults = ["cut:30000"] * 9
    fetch([server.url("f")], tmp_path / "f", checksum=SHA256, waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert len(server.seen) == 10


def test_the_date_of_change_serves_where_the_etag_is_weak(server: FileServer, tmp_path: Path) -> None:
    server.etag, server.changed = 'W/"weak"', "Sun, 22 Nov 2020 06:00:00 GMT"
    server.faults = ["cut:100000"]
    fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen[1] == Seen("f", "bytes=100000-", server.changed, 206)


def test_a_file_that_nothing_identifies_is_begun_again(server: FileServer, tmp_path: Path) -> None:
    server.etag = ""
    server.faults = ["cut:100000"]
    fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen[1] == Seen("f", None, None, 200)


def test_a_known_checksum_lets_it_be_continued_all_the_same_even_elsewhere(server: FileServer, tmp_path: Path) -> None:
    server.etag = ""
    server.files["mirror"] = BODY
    server.faults = ["cut:100000", 404]
    fetch([server.url("f"), server.url("mirror")], tmp_path / "f", checksum=SHA256, waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen[1:] == [Seen("f", "bytes=100000-", None, 404), Seen("mirror", "bytes=100000-", None, 206)]


def test_a_server_without_ranges_begins_again(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.faults = ["cut:100000"]
    fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen[1] == Seen("f", "bytes=100000-", '"one"', 200)


@pytest.mark.parametrize("fault", ["", "ignore"])
def test_a_file_that_changed_between_two_attempts_is_begun_again(
    server: FileServer, tmp_path: Path, fault: str
) -> None:
    server.faults = ["cut:100000", 404]
    with pytest.raises(FetchError, match="HTTP 404"):
        fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert (tmp_path / "f.part").read_bytes() == BODY[:100_000]
    changed = BODY[::-1]
    server.files["f"], server.etag, server.faults = changed, '"two"', [fault]
    fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert (tmp_path / "f").read_bytes() == changed
    assert server.seen[2] == Seen("f", "bytes=100000-", '"one"', 206 if fault else 200)
    assert names(tmp_path) == {"f"}


def test_a_range_that_was_not_asked_for_is_not_appended(server: FileServer, tmp_path: Path) -> None:
    server.faults = ["cut:100000", "elsewhere"]
    fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("length", [len(BODY), len(BODY) + 7])
def test_all_bytes_there_already_are_checked_and_more_than_all_are_begun_again(
    server: FileServer, tmp_path: Path, length: int
) -> None:
    server.faults = ["cut:100000", 404]
    with pytest.raises(FetchError):
        fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    (tmp_path / "f.part").write_bytes((BODY + b"surplus")[:length])
    fetch([server.url("f")], tmp_path / "f", checksum=SHA256, waits=QUICK)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen[2].status == 416
    assert len(server.seen) == (3 if length == len(BODY) else 4)


@pytest.mark.parametrize("checksum", [f"sha256:{'0' * 64}", f"md5:{'0' * 32}"])
def test_a_wrong_checksum_sets_the_file_aside_and_the_next_call_begins_again(
    server: FileServer, tmp_path: Path, checksum: str
) -> None:
    with pytest.raises(FetchError, match=rf"f: has the checksum .*, {checksum} is expected; it is set aside as f\.rej"):
        fetch([server.url("f")], tmp_path / "f", checksum=checksum)
    assert names(tmp_path) == {"f.rejected"}
    fetch([server.url("f")], tmp_path / "f", checksum=SHA256)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen[1].range is None


def test_another_size_is_refused_before_anything_is_written(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="the file there has 300,000 bytes, 299,999 are expected: it was changed"):
        fetch([server.url("f")], tmp_path / "f", size=299_999)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("limit", [{"size": len(BODY)}, {"largest": len(BODY) + 1}])
def test_a_server_that_sends_on_and_on_is_left(server: FileServer, tmp_path: Path, limit: dict[str, int]) -> None:
    server.faults = ["cut:100000", "endless"]
    server.etag = ""
    (most,) = limit.values()
    with pytest.raises(FetchError, match=rf"/f: gives more than {most:,} bytes, and nothing is kept of it"):
        fetch([server.url("f")], tmp_path / "f", waits=QUICK, **limit)  # type: ignore[arg-type] # a key a parameter
    assert names(tmp_path) == set()
    server.faults = ["endless"]
    server.files["mirror"] = BODY
    fetch([server.url("f"), server.url("mirror")], tmp_path / "f", checksum=SHA256, **limit)  # type: ignore[arg-type]
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_file_larger_than_the_limit_is_refused_before_anything_is_written(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="gives more than 299,999 bytes"):
        fetch([server.url("f")], tmp_path / "f", largest=len(BODY) - 1)
    assert names(tmp_path) == set()
    fetch([server.url("f")], tmp_path / "f", largest=len(BODY))
    assert (tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("state", ["[]", "{}", "no JSON", '{"url": 1}'])
def test_a_part_whose_beginning_is_not_known_is_begun_again(server: FileServer, tmp_path: Path, state: str) -> None:
    (tmp_path / "f.part").write_bytes(b"something else")
    (tmp_path / ".f.state").write_text(state, encoding="utf-8")
    fetch([server.url("f")], tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.seen == [Seen("f", None, None, 200)]


def test_errors_that_pass_are_waited_for(server: FileServer, tmp_path: Path) -> None:
    server.faults = [500, 503]
    fetch([server.url("f")], tmp_path / "f", waits=QUICK)
    assert [seen.status for seen in server.seen] == [500, 503, 200]


@pytest.mark.parametrize(
    ("faults", "message", "requests"),
    [
        ([404], "HTTP 404$", 1),
        ([403], "HTTP 403$", 1),
        ([500, 500, 500], "HTTP 500, after 3 attempts in a row$", 3),
        (["cut:9", 429, 429, 429], "HTTP 429, after 3 attempts in a row; 9 bytes are kept and the same", 4),
        (["html"], "gives an HTML page instead of the file$", 1),
        (["cut:9", "html"], "gives an HTML page instead of the file$", 2),
        (["hang", "hang", "hang"], "ReadTimeout: .*, after 3 attempts in a row$", 3),
    ],
)
def test_an_address_that_gives_no_file_is_named_with_its_answer(
    server: FileServer, tmp_path: Path, faults: list[str | int], message: str, requests: int
) -> None:
    server.faults = faults
    with pytest.raises(FetchError, match=message) as error:
        fetch([server.url("f")], tmp_path / "f", waits=QUICK, timeout=0.2)
    assert str(error.value).startswith(server.url("f"))
    assert len(server.seen) == requests
    assert not (tmp_path / "f").exists()


def test_an_html_page_without_a_content_type_is_known_by_its_beginning(server: FileServer, tmp_path: Path) -> None:
    server.files["f"] = b"\n<HTML><body>Quota exceeded"
    with pytest.raises(FetchError, match="HTML page"):
        fetch([server.url("f")], tmp_path / "f")


def test_a_refused_connection_and_every_other_address_are_named(server: FileServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}/f"
    with pytest.raises(FetchError) as error:
        fetch([refused, server.url("gone")], tmp_path / "f", waits=QUICK)
    first, second = str(error.value).splitlines()
    assert first.startswith(f"{refused}: ConnectError")
    assert second == f"{server.url('gone')}: HTTP 404"


def test_a_full_device_is_said_plainly(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / ".f.state.part").symlink_to("/dev/full")
    with pytest.raises(
        DiskFullError, match=r"f\.state: the disk is full or its quota is used up .*; make room and run"
    ):
        fetch([server.url("f")], tmp_path / "f")
    fetch([server.url("f")], tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


LIMITED = """
import resource, sys
from pathlib import Path
from rag_notes.fetch import fetch
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    fetch([sys.argv[1]], Path(sys.argv[2]))
except OSError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-c", *arguments]


def test_what_fitted_on_the_disk_is_kept_and_continued(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "f"
    ended = subprocess.run(python(LIMITED, server.url("f"), str(path)), capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        f"DiskFullError: {path}: the disk is full or its quota is used up (File too large); "
    )
    assert "; 100,000 bytes are kept; make room and run the same command again" in ended.stderr
    assert (tmp_path / "f.part").read_bytes() == BODY[:100_000]
    fetch([server.url("f")], path, checksum=SHA256)
    assert path.read_bytes() == BODY
    assert server.seen[1] == Seen("f", "bytes=100000-", '"one"', 206)


FETCH = """
import sys
from pathlib import Path
from rag_notes.fetch import fetch
fetch([sys.argv[1]], Path(sys.argv[2]))
"""


def test_a_killed_download_is_continued_by_another_process(server: FileServer, tmp_path: Path) -> None:
    server.faults = ["hold:120000"]
    path, part = tmp_path / "f", tmp_path / "f.part"
    with subprocess.Popen(python(FETCH, server.url("f"), str(path))) as process:
        while not (part.exists() and part.stat().st_size == 120_000):
            assert process.poll() is None
            time.sleep(0.01)
        with pytest.raises(FetchError, match="another process is downloading it"):
            fetch([server.url("f")], path)
        process.kill()
    assert process.returncode == -9
    subprocess.run(python(FETCH, server.url("f"), str(path)), check=True, env=os.environ)
    assert path.read_bytes() == BODY
    assert server.seen == [Seen("f", None, None, 200), Seen("f", "bytes=120000-", '"one"', 206)]
    assert names(tmp_path) == {"f"}
