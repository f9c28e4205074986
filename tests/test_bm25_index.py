"""BM25 indexes on disk: used again, damaged, killed, built at once, read where the passages lie."""

import hashlib
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
from rag_notes.config import ConfigError, load_config
from rag_notes.datasets.corpus import CorpusFile, check_ids, passage_line
from rag_notes.retrieval import bm25 as module
from rag_notes.retrieval.base import corpus_checksum
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Passage
from tests.corpora import BIRDS, CHINESE, build, random_corpus

ROOT = Path(__file__).parents[1]


def test_checksum_is_that_of_canonical_lines_in_order() -> None:
    line = '{"id":"z","title":"é","text":"a \\"b\\"\\n"}\n'
    assert corpus_checksum([Passage("z", "é", 'a "b"\n')]) == hashlib.sha256(line.encode()).hexdigest()
    assert corpus_checksum(BIRDS) != corpus_checksum(BIRDS[::-1])


@pytest.mark.parametrize("corpus", [BIRDS, CHINESE], ids=["en", "zh"])
def test_an_index_on_disk_finds_what_one_in_memory_does(tmp_path: Path, corpus: tuple[Passage, ...]) -> None:
    in_memory = build(corpus)
    queries = ["water fish", "oaks", "青瓷", "大运河北京", "?"]
    for done in (f"{len(corpus)} of them indexed now", "all there"):
        on_disk = bm25(corpus, cache=str(tmp_path))
        assert on_disk.build_index().endswith(f": {len(corpus)} passages, {done}")
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


def test_ids_are_checked() -> None:
    corpus = random_corpus(100, seed=4)
    assert check_ids(corpus) == 100
    assert check_ids(corpus[:7]) == 7
    assert check_ids([]) == 0
    for place in (1, 50, 100):
        with pytest.raises(ValueError, match=f"the passage id '{corpus[0].id}' is already used"):
            check_ids([*corpus[:place], corpus[0], *corpus[place:]])


def test_the_cache_is_used_and_knows_corpus_and_settings(tmp_path: Path) -> None:
    cache = str(tmp_path / "deep" / "cache")
    first = bm25(BIRDS, cache=cache)
    [entry] = Path(cache).iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in (entry / "index").glob("*.*")}
    again = bm25(list(BIRDS), cache=cache)
    assert again.search(["water fish"], 3) == first.search(["water fish"], 3)
    assert {path.name: path.stat().st_mtime_ns for path in (entry / "index").glob("*.*")} == before
    bm25(BIRDS, cache=cache, stop_words=False)
    bm25(BIRDS, cache=cache, stemming=False)
    bm25(BIRDS[:3], cache=cache)
    assert len(list(Path(cache).iterdir())) == 4
    bm25(BIRDS, cache=cache, memory_mb=20)
    assert len(list(Path(cache).iterdir())) == 4


def test_an_index_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bm25(BIRDS, cache=str(tmp_path))
    monkeypatch.setattr(module, "version", lambda package: f"another {package}")
    assert "4 of them indexed now" in bm25(BIRDS, cache=str(tmp_path)).build_index()


def damages() -> dict[str, Callable[[Path], object]]:
    def the(entry: Path, suffix: str) -> Path:
        [path] = (entry / "index").glob(f"*.{suffix}")
        return path

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def unfinished(entry: Path, text: str) -> None:
        (entry / "meta.json").unlink()
        (entry / "index" / "meta.json").write_text(text)

    return {
        "postings cut": lambda entry: the(entry, "idx").write_bytes(b""),
        "one bit of the postings": lambda entry: flip(the(entry, "idx")),
        "one bit of the terms": lambda entry: flip(the(entry, "term")),
        "one bit of the lengths": lambda entry: flip(the(entry, "fast")),
        "no terms": lambda entry: the(entry, "term").unlink(),
        "no index": lambda entry: shutil.rmtree(entry / "index"),
        "meta cut": lambda entry: (entry / "meta.json").write_text('{"corpus": "'),
        "meta empty": lambda entry: (entry / "meta.json").write_text("{}"),
        "meta a list": lambda entry: (entry / "meta.json").write_text("[1]"),
        "unfinished, and no JSON": lambda entry: unfinished(entry, "{"),
        "unfinished, and nothing": lambda entry: unfinished(entry, ""),
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages().keys())
def test_a_damaged_cache_entry_is_rebuilt_with_a_warning(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    expected = bm25(BIRDS, cache=str(tmp_path)).search(["water fish"], 3)
    [entry] = tmp_path.iterdir()
    damage(entry)
    with pytest.warns(RuntimeWarning, match=f"the index in {entry} is damaged"):
        assert bm25(BIRDS, cache=str(tmp_path)).search(["water fish"], 3) == expected
    assert "all there" in bm25(BIRDS, cache=str(tmp_path)).build_index()
    assert sorted(path.name for path in entry.iterdir()) == ["index", "lock", "meta.json"]


KILLED = """
import os, pathlib, signal, sys
from rag_notes.retrieval import bm25 as module
from rag_notes.types import Passage

class Deadly(list):
    def __iter__(self):
        for passage in list.__iter__(self):
            die()
            yield passage

def die():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def replace(self, target):
    os.kill(os.getpid(), signal.SIGKILL)

module._COMMIT = 50
corpus = Deadly(Passage(f"d{i * 7919 % 600:03}", "", f"word{i % 7} word{i % 11} common") for i in range(600))
for number, passages in enumerate(sys.argv[2].split(",")):
    child = os.fork()
    if not child:
        left = int(passages)
        if not left:
            pathlib.Path.replace = replace
        module.bm25(corpus, cache=f"{sys.argv[1]}/{number}")
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def test_indexing_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    monkeypatch.setattr(module, "_COMMIT", 50)
    corpus = [Passage(f"d{i * 7919 % 600:03}", "", f"word{i % 7} word{i % 11} common") for i in range(600)]
    queries = [f"word{n} word{n + 3} common" for n in range(8)]
    expected = repr(build(corpus).search(queries, 20))
    # One passage to see whether there is any, 200 for the language, 600 for each of checksum, checksum, ids, indexing
    # and again the checksum; the last two kills come when the index is about to be declared whole.
    points = [rng.randint(1, 3201) for _ in range(6)] + [rng.randint(2002, 2601) for _ in range(12)] + [0, 0]
    arguments = [sys.executable, "-c", KILLED, str(tmp_path), ",".join(map(str, points))]
    done = subprocess.run(
        arguments, env={"PYTHONPATH": str(ROOT), "PATH": ""}, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.split() == ["9"] * 20
    indexed = []
    for number in range(20):
        assert not list((tmp_path / str(number)).glob("*/meta.json"))
        retriever = bm25(corpus, cache=str(tmp_path / str(number)))
        assert repr(retriever.search(queries, 20)) == expected
        assert "all there" in bm25(corpus, cache=str(tmp_path / str(number))).build_index()
        indexed.append(int(retriever.build_index().split()[3]))
    assert indexed[-2:] == [0, 0]
    assert len(set(indexed)) > 5  # what was committed was not done again


PROCESS = """
import sys
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Passage
corpus = [Passage(str(i), "", f"word{i % 7} word{i % 11} common") for i in range(300)]
print("ready", flush=True)
sys.stdin.readline()
hits = bm25(corpus, cache=sys.argv[1]).search(["word3 word5 common"], 4)[0]
print([(hit.passage.id, hit.score) for hit in hits])
"""


def test_processes_that_build_at_once_agree_and_leave_one_entry(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", PROCESS, str(tmp_path / "cache")],
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed), "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2, 3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(outputs) == 1
    assert "'" in outputs.pop()
    assert len(list((tmp_path / "cache").iterdir())) == 1


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


@pytest.mark.parametrize("option", ["retriever.k1=0.9", "retriever.b=0"])
def test_the_constants_of_the_formula_are_no_settings(option: str) -> None:
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        load_config([option])
    with pytest.raises(ConfigError, match=r"retriever\.memory_mb"):
        load_config(["retriever.memory_mb=3"])
