"""BM25 indexes on disk: used again, damaged, killed, built at once, read where the passages lie."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.datasets.corpus import CorpusFile, passage_line
from rag_notes.retrieval import bm25 as module
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Passage
from tests.corpora import BIRDS, CHINESE, build

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("corpus", [BIRDS, CHINESE], ids=["en", "zh"])
def test_an_index_on_disk_finds_what_one_in_memory_does(tmp_path: Path, corpus: tuple[Passage, ...]) -> None:
    in_memory = build(corpus)
    queries = ["water fish", "oaks", "青瓷", "大运河北京", "?"]
    for summary in (f"{len(corpus)} of them indexed now", "all there"):
        on_disk = bm25(corpus, cache=str(tmp_path))
        assert on_disk.build_index().endswith(f": {len(corpus)} passages, {summary}")
        assert on_disk.search(queries, 3) == in_memory.search(queries, 3)
        assert on_disk.describe() == in_memory.describe()


LINES = {
    "jsonl": [passage_line(passage) for passage in BIRDS],
    "blank lines, CRLF and a byte order mark": [
        "\ufeff",
        *(f"\n{passage_line(passage)[:-1]}\r\n \n" for passage in BIRDS),
    ],
    "tsv": ["id\ttext\ttitle\n", *(f"{passage.id}\t{passage.text}\t{passage.title}\n" for passage in BIRDS)],
}


@pytest.mark.parametrize("form", LINES)
def test_passages_of_a_file_are_read_where_they_lie(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"corpus.{'tsv' if form == 'tsv' else 'jsonl'}"
    path.write_text("".join(LINES[form]), encoding="utf-8", newline="")
    corpus, expected = CorpusFile(str(path), "corpus"), build(BIRDS)
    assert (tuple(corpus), tuple(corpus[:]), len(corpus)) == (BIRDS, BIRDS, 4)
    for cache in (None, str(tmp_path / "cache"), str(tmp_path / "cache")):
        retriever = bm25(corpus, cache=cache)
        assert retriever.search(["water fish", "oak"], 3) == expected.search(["water fish", "oak"], 3)
        assert retriever.describe() == expected.describe()
    assert size_of(tmp_path / "cache", "swallowed") == 0


def size_of(folder: Path, text: str) -> int:
    """How many files hold a text."""
    return sum(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_file_that_holds_an_id_twice_or_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = tmp_path / "corpus.jsonl", str(tmp_path / "cache")
    path.write_text("".join(map(passage_line, [*BIRDS, BIRDS[2]])), encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 5: the passage id 'p3' is already used"):
        bm25(CorpusFile(str(path), "corpus"), cache=cache)
    path.write_text("".join(map(passage_line, BIRDS)), encoding="utf-8")
    fill = module._fill

    def change(*arguments: Any, **options: Any) -> Any:
        seen = fill(*arguments, **options)
        path.write_text("".join(map(passage_line, BIRDS[:3])), encoding="utf-8")
        return seen

    monkeypatch.setattr(module, "_fill", change)
    with pytest.raises(ValueError, match="changed while it was indexed"):
        bm25(CorpusFile(str(path), "corpus"), cache=cache)
    monkeypatch.undo()
    assert bm25(CorpusFile(str(path), "corpus"), cache=cache).describe()["corpus"]["passages"] == 3


def test_the_cache_knows_corpus_and_settings(tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "cache"
    changes: list[tuple[Any, dict[str, Any]]] = [(BIRDS, {}), (BIRDS, {"stop_words": False}), (BIRDS[:3], {})]
    for corpus, options in [*changes, (BIRDS, {"stemming": False})]:
        assert "indexed now" in bm25(corpus, cache=str(cache), **options).build_index()
    assert len(list(cache.iterdir())) == 4
    assert "all there" in bm25(list(BIRDS), cache=str(cache), memory_mb=20).build_index()


def test_an_index_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bm25(BIRDS, cache=str(tmp_path))
    monkeypatch.setattr(module, "version", lambda package: f"another {package}")
    assert "4 of them indexed now" in bm25(BIRDS, cache=str(tmp_path)).build_index()


def cut_meta(folder: Path) -> None:
    (folder / "meta.json").write_text('{"corpus": "')


def remove_index(folder: Path) -> None:
    shutil.rmtree(folder / "index")


def cut_index(folder: Path) -> None:
    (folder / "meta.json").unlink()
    (folder / "index" / "meta.json").write_text("{")


@pytest.mark.parametrize("damage", [cut_meta, remove_index, cut_index])
def test_a_damaged_index_is_an_error_that_says_what_to_delete(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    bm25(BIRDS, cache=str(tmp_path))
    [folder] = tmp_path.iterdir()
    damage(folder)
    with pytest.raises(ValueError, match=f"{folder}: the index is damaged .*; delete this folder to index again"):
        bm25(BIRDS, cache=str(tmp_path))


KILLED = """
import os, pathlib, signal, sys
from rag_notes.retrieval import bm25 as module
from tests.test_bm25_index import numbered

class Deadly(list):
    def __iter__(self):
        for passage in list.__iter__(self):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield passage

def write(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

module._COMMIT = 50
corpus = Deadly(numbered(600))
for number, passages in enumerate(sys.argv[2].split(",")):
    child = os.fork()
    if not child:
        left = int(passages)
        if not left:
            module.write_atomically = write
        module.bm25(corpus, cache=f"{sys.argv[1]}/{number}")
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def numbered(size: int) -> list[Passage]:
    return [Passage(f"d{i * 7919 % size:03}", "", f"word{i % 7} word{i % 11} common") for i in range(size)]


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code, *arguments]
    return subprocess.Popen(command, env={"PYTHONPATH": str(ROOT), "PATH": ""}, stdout=subprocess.PIPE, text=True)


def test_indexing_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, corpus = random.Random(11), numbered(600)
    monkeypatch.setattr(module, "_COMMIT", 50)
    queries = [f"word{n} word{n + 3} common" for n in range(8)]
    expected = repr(build(corpus).search(queries, 20))
    # One passage to see whether there is any, 200 for the language, 600 for each of checksum, ids, size, indexing and
    # again the checksum; the last two kills come when the index is about to be declared whole.
    points = [rng.randint(1, 3201) for _ in range(6)] + [rng.randint(2002, 2601) for _ in range(12)] + [0, 0]
    output = python(KILLED, str(tmp_path), ",".join(map(str, points))).communicate()[0]
    assert output.split() == ["9"] * 20
    indexed = []
    for number in range(20):
        assert not list((tmp_path / str(number)).glob("*/meta.json"))
        retriever = bm25(corpus, cache=str(tmp_path / str(number)))
        assert repr(retriever.search(queries, 20)) == expected
        assert "all there" in bm25(corpus, cache=str(tmp_path / str(number))).build_index()
        indexed.append(int(retriever.build_index().split()[3]))
    assert indexed[-2:] == [0, 0]
    assert len(set(indexed)) > 5  # what was committed was not done again


def test_one_command_indexes_an_official_file_and_a_data_set_that_names_the_passages_finds_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, out, questions = tmp_path / "psgs_w100.tsv", tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    lines = ["id\ttext\ttitle", "1\tHerons wade.\tHeron", "2\tOaks drop acorns.\tOak"]
    questions.write_text('{"id": "q", "question": "Which acorn dropped?", "gold_ids": ["2"]}\n', encoding="utf-8")
    cache = f"retriever.cache={tmp_path / 'cache'}"
    command = ["index", "corpus=wikipedia_2018", f"corpus.path={raw}", f"corpus.out={out}", cache]
    assert main(command) == 2
    assert f"{raw}: no such file" in capsys.readouterr().err
    raw.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for said in (f"{out}: 2 passages, sha256 .*2 passages, 2 of them indexed now", "^[^,]*2 passages, all there"):
        assert main(command) == 0
        assert re.search(said, capsys.readouterr().out, re.DOTALL)
    data = ["dataset=plain", f"dataset.plain.path={questions}", f"dataset.plain.corpus={out}", cache]
    assert main(["index", *data]) == 0
    assert "all there" in capsys.readouterr().out
    assert main(["retrieval", *data, "--top-k", "1"]) == 0
    assert "| 100.0 [20.7, 100.0] | 1 |" in capsys.readouterr().out
