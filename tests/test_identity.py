"""What a changed line of code, prompt or metric does to a run: just the samples it made are made again."""

import asyncio
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.vanilla import vanilla
from rag_notes.metrics import answer as metrics
from rag_notes.prompts.templates import Templates
from rag_notes.retrieval.bm25 import bm25
from rag_notes.running import evaluate as running
from rag_notes.running.evaluate import evaluate
from rag_notes.running.identity import code_hash
from rag_notes.running.records import Run
from rag_notes.running.run_files import load_run, read_samples
from rag_notes.types import Passage, Question
from tests.loopback import Loopback

CORPUS = [Passage(f"p{n}", place, f"{place} lies on river {n}.") for n, place in enumerate(["Lima", "Oslo", "Hanoi"])]
QUESTIONS = [Question(f"q{n}", f"Where does {passage.title} lie?", ("x",)) for n, passage in enumerate(CORPUS)]
HELPERS = "LIMIT = 2\n\n\ndef shorten(text):\n    return text[:LIMIT]\n"
METHODS = """\
from helpers import shorten
from rag_notes.methods.rag import Rag


async def short(rag: Rag, question):
    return shorten(await rag.answer())


async def plain(rag: Rag, question):
    return await rag.answer()
"""

Import = Callable[..., ModuleType]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Write `helpers.py` and `mine.py`, or change them, and import `mine` anew."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(helpers: str = HELPERS, methods: str = METHODS) -> ModuleType:
        (tmp_path / "helpers.py").write_text(helpers, encoding="utf-8")
        (tmp_path / "mine.py").write_text(methods, encoding="utf-8")
        for name in ("helpers", "mine"):
            sys.modules.pop(name, None)
        sys.dont_write_bytecode = True
        importlib.invalidate_caches()
        return importlib.import_module("mine")

    return write


def run(folder: Path, methods: dict[str, Any], store: ResponseStore, base_url: str | None, **options: Any) -> Run:
    async def work() -> Run:
        async with LLM("tiny", store=store, base_url=base_url) as llm:
            return await evaluate(
                methods, QUESTIONS, bm25(CORPUS, cache=None), llm, folder=folder, progress=False, **options
            )

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("helpers", "methods", "changes"),
    [
        (HELPERS.replace("[:LIMIT]", "[1:LIMIT]"), METHODS, True),  # a function that it calls
        (HELPERS.replace("LIMIT = 2", "LIMIT = 3"), METHODS, True),  # a constant that this one uses
        (HELPERS, METHODS.replace("return shorten", "return 'x' + shorten"), True),
        (HELPERS + "\n\ndef other():\n    return 1\n", METHODS, False),
        (HELPERS, METHODS.replace("return await", "return (await").replace("answer()\n", "answer())  # why\n"), False),
        (HELPERS.replace("(text):\n", "(text):\n    '''Say what.'''\n"), METHODS, False),
    ],
)
def test_the_hash_of_a_method_changes_with_the_code_it_is_made_of_and_with_nothing_else(
    written: Import, helpers: str, methods: str, *, changes: bool
) -> None:
    before = code_hash(written().short)
    assert (code_hash(written(helpers, methods).short) != before) is changes


def test_a_changed_helper_of_amber_changes_amber_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("rag_notes.methods.amber")
    before = [code_hash(method) for method in (module.amber, deepnote, vanilla)]

    async def useful(rag: Any, query: str, passages: Any) -> Any:
        return passages

    monkeypatch.setattr(module, "useful", useful)
    after = [code_hash(method) for method in (module.amber, deepnote, vanilla)]
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, False, False]


def test_a_changed_helper_makes_just_the_samples_of_its_method_again_from_the_store(
    written: Import, tmp_path: Path
) -> None:
    store = ResponseStore(":memory:")
    mine = written()
    with Loopback(tmp_path / "log") as server:
        first = run(tmp_path / "run", {"short": mine.short, "plain": mine.plain}, store, server.base_url)
    assert {len(sample.answer) for sample in first.of("short")} == {2}
    mine = written(HELPERS.replace("LIMIT = 2", "LIMIT = 3"))
    again = run(tmp_path / "run", {"short": mine.short, "plain": mine.plain}, store, None)
    assert {len(sample.answer) for sample in again.of("short")} == {3}
    assert again.of("plain") == first.of("plain")
    assert (again.info.usage, again.info.samples.errors) == (first.info.usage, 0)
    assert load_run(tmp_path / "run").samples == again.samples
    superseded, _ = read_samples(tmp_path / "run" / "superseded.jsonl")
    assert superseded == first.of("short")  # nothing that was made is lost


def test_a_changed_prompt_makes_the_samples_that_used_it_again_and_a_new_one_changes_nothing(tmp_path: Path) -> None:
    prompts, store = tmp_path / "mine", ResponseStore(":memory:")
    (prompts / "en").mkdir(parents=True)
    methods = {"vanilla": vanilla, "deepnote": deepnote}
    with Loopback(tmp_path / "log") as server:
        first = run(tmp_path / "run", methods, store, server.base_url, templates=Templates(prompts))
        files = {name: (tmp_path / "run" / name).read_bytes() for name in ("run.json", "samples.jsonl")}
        run(tmp_path / "run", methods, store, None, templates=Templates(prompts))
        assert {name: (tmp_path / "run" / name).read_bytes() for name in files} == files
        asked = len(server.seen())
        packaged = next(path for path in Path(running.__file__).parents[1].glob("prompts/**/en/note_judge.txt"))
        text = packaged.read_text(encoding="utf-8").replace("\n---\n", "\n---\nRead with care.\n", 1)
        (prompts / "en" / "note_judge.txt").write_text(text, encoding="utf-8")
        again = run(tmp_path / "run", methods, store, server.base_url, templates=Templates(prompts))
        assert len(server.seen()) > asked
    assert again.of("vanilla") == first.of("vanilla")
    assert all("Read with care." in str(sample.trace) for sample in again.of("deepnote"))


def test_a_changed_metric_marks_the_answers_again_without_store_or_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(tmp_path / "log") as server:
        first = run(tmp_path / "run", {"vanilla": vanilla}, ResponseStore(":memory:"), server.base_url)
    assert {sample.metrics["acc"] for sample in first.samples} == {0.0}

    def accuracy(answer: str, gold: Any, language: str = "en") -> float:
        return 1.0

    monkeypatch.setattr(metrics, "accuracy", accuracy)
    again = run(tmp_path / "run", {"vanilla": vanilla}, ResponseStore(":memory:"), None)
    assert {sample.metrics["acc"] for sample in again.samples} == {1.0}
    assert [sample.trace for sample in again.samples] == [sample.trace for sample in first.samples]
    assert again.info.seconds == first.info.seconds
