"""Corpora from small files in the official formats, and that memory does not grow with them."""

import bz2
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes import datasets
from rag_notes.cli import main
from rag_notes.config import load_corpus
from rag_notes.datasets import DataError
from rag_notes.datasets.prepare import (
    Prepared,
    chunks,
    crud_news,
    dpr,
    hotpotqa_abstracts,
    hotpotqa_pool,
    musique_pool,
    twowikimultihopqa_pool,
)
from rag_notes.files import SHIPPED, DiskFullError
from rag_notes.options import CONF, choices
from rag_notes.retrieval.base import corpus_checksum
from rag_notes.types import Passage
from tests.dataset_records import as_lines, as_list


def read(out: Path | str) -> tuple[Passage, ...]:
    """The passages, by the loader that studies use."""
    questions = Path(out).with_name("questions.jsonl")
    questions.write_text('{"id": "1", "question": "q"}\n', encoding="utf-8")
    return tuple(datasets.plain(str(questions), corpus=str(out)).corpus)


def check(made: Prepared, passages: int, repeated: int, empty: int) -> tuple[Passage, ...]:
    assert (made.passages, made.repeated, made.empty) == (passages, repeated, empty)
    corpus = read(made.path)
    assert len(corpus) == passages
    assert made.sha256 == corpus_checksum(corpus) == hashlib.sha256(made.path.read_bytes()).hexdigest()
    return corpus


def wiki(identifier: str, *context: tuple[str, list[str]], **answered: Any) -> dict[str, Any]:
    return {"_id": identifier, "question": "q", "context": context, **answered}


ANSWERED = {"answer": "a", "type": "comparison", "supporting_facts": [["A", 0], ["B", 0]]}


def test_2wiki_pools_all_its_files_once_and_the_loader_finds_its_gold_in_it(tmp_path: Path) -> None:
    dev = as_list(tmp_path / "dev.json", wiki("1", ("A", ["One.", "Two."]), ("B", ["Three."]), **ANSWERED))
    # The test file has no answers.
    test = as_list(tmp_path / "test.json", wiki("2", ("A", ["One.", "Two."]), ("A", ["Other."]), ("C", [])))
    made = twowikimultihopqa_pool(str(tmp_path / "out" / "passages.jsonl"), [dev, test])
    corpus = check(made, passages=3, repeated=1, empty=1)
    assert [(p.title, p.text) for p in corpus] == [("A", "One. Two."), ("B", "Three."), ("A", "Other.")]
    (question,) = datasets.twowikimultihopqa(dev, corpus=str(made.path)).questions
    # Both paragraphs of the title are in the corpus; only those of the question are gold.
    assert question.gold_ids == (corpus[0].id, corpus[1].id)


def test_hotpotqa_joins_sentences_that_begin_with_their_space(tmp_path: Path) -> None:
    dev = as_list(tmp_path / "d.json", wiki("1", ("A", ["One.", " Two."]), ("B", ["Three. "]), **ANSWERED))
    made = hotpotqa_pool(str(tmp_path / "p.jsonl"), [dev])
    corpus = check(made, passages=2, repeated=0, empty=0)
    assert [(p.title, p.text) for p in corpus] == [("A", "One. Two."), ("B", "Three.")]
    assert datasets.hotpotqa(dev, corpus=str(made.path)).questions[0].gold_ids == tuple(p.id for p in corpus)


def test_musique_pools_answered_and_unanswered_files(tmp_path: Path) -> None:
    gold = {"title": "A", "paragraph_text": "One.", "is_supporting": True}
    answered = {"id": "2hop__1_2", "question": "q", "answer": "a", "answer_aliases": [], "answerable": True}
    dev = as_lines(tmp_path / "dev.jsonl", answered | {"paragraphs": [gold]})
    test = as_lines(
        tmp_path / "test.jsonl",
        {"id": "2hop__3_4", "paragraphs": [gold | {"is_supporting": None}, gold | {"title": ""}]},
    )
    made = musique_pool(str(tmp_path / "p.jsonl"), [dev, test])
    corpus = check(made, passages=2, repeated=1, empty=0)
    assert [(p.title, p.text) for p in corpus] == [("A", "One."), ("", "One.")]
    assert datasets.musique(dev, corpus=str(made.path)).questions[0].gold_ids == (corpus[0].id,)


def archive(path: Path, files: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:bz2") as tar:
        folder = tarfile.TarInfo("wiki/AA")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return str(path)


def packed(*records: Any) -> bytes:
    return bz2.compress("".join(json.dumps(record) + "\n" for record in records).encode())


def test_hotpotqas_abstracts_are_read_through_both_layers(tmp_path: Path) -> None:
    one = packed({"id": 12, "title": "A", "text": ["One.", " Two."]}, {"id": 13, "title": "Void", "text": []})
    two = packed({"id": "7", "title": "B", "text": " Three. "}, {"id": 8, "title": "A", "text": ["One.", " Two."]})
    path = archive(
        tmp_path / "w.tar.bz2", {"wiki/AA/wiki_00.bz2": one, "wiki/README": b"x", "wiki/AB/wiki_00.bz2": two}
    )
    made = hotpotqa_abstracts(str(tmp_path / "p.jsonl"), path, expected=4)
    assert made.expected == 4
    corpus = check(made, passages=3, repeated=0, empty=1)
    # The articles keep their ids, also two of one content.
    assert corpus == (Passage("12", "A", "One. Two."), Passage("7", "B", "Three."), Passage("8", "A", "One. Two."))


TSV = 'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\tplain\tÜ\n'


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz"])
def test_dprs_passages_are_read_packed_or_not(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"psgs_w100{ending}"
    path.write_bytes(gzip.compress(TSV.encode()) if ending.endswith("gz") else TSV.encode())
    corpus = check(dpr(str(tmp_path / "p.jsonl"), str(path)), passages=2, repeated=0, empty=0)
    assert corpus == (Passage("1", "T", 'a "b" c'), Passage("2", "Ü", "plain"))


def test_crud_news_become_chunks_of_whole_sentences(tmp_path: Path) -> None:
    folder = tmp_path / "80000_docs"
    folder.mkdir()
    (folder / "documents_part_1").write_text("一二三。四五六！\n七八。\n", encoding="utf-8")
    (folder / "documents_part_2").write_text("七八。\n\n一二三四五六七八九十。", encoding="utf-8")
    (folder / ".documents_part_1.sha256").write_text("not news", encoding="utf-8")
    made = crud_news(str(tmp_path / "p.jsonl"), str(folder), chunk_size=6)
    corpus = check(made, passages=5, repeated=1, empty=0)
    assert [p.text for p in corpus] == ["一二三。", "四五六！", "七八。", "一二三四五六", "七八九十。"]
    assert all(p.title == "" for p in corpus)
    assert crud_news(str(tmp_path / "p2.jsonl"), str(folder), chunk_size=8).passages == 4


@pytest.mark.parametrize("size", [1, 7, 20, 512])
def test_chunks_lose_nothing_and_are_no_longer_than_asked(size: int) -> None:
    text = "他说：“好的。”然后走了！ 第二段？是的。" * 9 + "没有标点" * 40 + "完。end"
    made = list(chunks(text, size))
    assert all(0 < len(chunk) <= size for chunk in made)
    assert "".join("".join(made).split()) == "".join(text.split())
    if size == 512:
        assert made == [text]


@pytest.mark.parametrize(
    ("prepare", "content", "message"),
    [
        (
            musique_pool,
            b'{"paragraphs": []}\n{"paragraphs": [{"title": 3}]}\n',
            "line 2, field 'paragraphs[0].title': expe",
        ),
        (musique_pool, b'{"paragraphs": [\n', "line 1: not valid JSON"),
        (musique_pool, b"", "p.jsonl: not written, the files hold no passage"),
        (
            hotpotqa_pool,
            b'[{"context": []},\n{"context": [["T", "x"]]}]',
            "record index 1 (line 2), field 'context[0]': exp",
        ),
        (hotpotqa_pool, b'[{"context": []},\n{"context": [["T', "line 2: not valid JSON: Unterminated string"),
        (hotpotqa_pool, b'[{"context": [["\xff', "line 1: not valid UTF-8"),
        (dpr, b"id\ttext\ttitle\n1\tx\tT\n1\ty\tT\n", "line 3, field 'id': expected a number above 1, found '1'"),
        (dpr, b"id\ttext\ttitle\nx\tx\tT\n", "line 2, field 'id': expected a number above 0, found 'x'"),
        (dpr, b"id\ttext\ttitle\n1\tx\n", "line 2: expected 3 columns (id, text, title), found 2"),
        (hotpotqa_abstracts, b"no archive", "cannot be read on ("),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_written(
    tmp_path: Path, prepare: Any, content: bytes, message: str
) -> None:
    path, out = tmp_path / "in", tmp_path / "p.jsonl"
    path.write_bytes(content)
    out.write_bytes(b"an earlier result")
    with pytest.raises(DataError) as error:
        prepare(str(out), str(path) if prepare in (dpr, hotpotqa_abstracts) else [str(path)])
    assert message in str(error.value)
    assert {file.name for file in tmp_path.iterdir()} == {"in", "p.jsonl"}
    assert out.read_bytes() == b"an earlier result"


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"id": 1, "title": "T", "text": ["x", 1]}], "wiki/AA/w.bz2, line 1, field 'text[1]': expected a string"),
        ([{"id": 1, "title": "T"}], "wiki/AA/w.bz2, line 1, field 'text': is missing, expected a list"),
        (
            [{"id": 1, "title": "T", "text": "x"}, {"id": 1, "title": "U", "text": "y"}],
            "wiki/AA/w.bz2, line 2, field 'id': the passage id '1' is already used",
        ),
    ],
)
def test_a_malformed_article_is_named_with_its_file_in_the_archive(
    tmp_path: Path, records: list[Any], message: str
) -> None:
    path = archive(tmp_path / "w.tar.bz2", {"wiki/AA/w.bz2": packed(*records)})
    with pytest.raises(DataError) as error:
        hotpotqa_abstracts(str(tmp_path / "p.jsonl"), path)
    assert str(error.value) == f"{path}, {message}"


def test_files_that_are_cut_off_are_named(tmp_path: Path) -> None:
    tsv = tmp_path / "p.tsv.gz"
    tsv.write_bytes(gzip.compress(TSV.encode() * 1)[:-9])
    with pytest.raises(DataError, match=r"p\.tsv\.gz, after line .: cannot be read on \(Compressed file ended"):
        dpr(str(tmp_path / "p.jsonl"), str(tsv))
    articles = [
        {"id": number, "title": "T", "text": hashlib.sha512(b"%d" % number).hexdigest()} for number in range(9999)
    ]
    whole = Path(archive(tmp_path / "w.tar.bz2", {"a.bz2": packed(*articles)}))
    whole.write_bytes(whole.read_bytes()[:-300_000])
    with pytest.raises(DataError, match=r"w\.tar\.bz2.*: cannot be read on \("):
        hotpotqa_abstracts(str(tmp_path / "p.jsonl"), str(whole))
    folder = tmp_path / "news"
    folder.mkdir()
    (folder / "a.part").write_text("half", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.part: is not finished; run the download again"):
        crud_news(str(tmp_path / "p.jsonl"), str(folder))


def test_a_full_disk_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text(TSV, encoding="utf-8")
    (tmp_path / "p.jsonl.part").symlink_to("/dev/full")
    with pytest.raises(DiskFullError, match=r"p\.jsonl: the disk is full .* make room and run the same command again"):
        dpr(str(tmp_path / "p.jsonl"), str(tmp_path / "p.tsv"))
    assert [file.name for file in tmp_path.iterdir()] == ["p.tsv"]


PEAK = """
import sys
from pathlib import Path
from rag_notes.datasets import prepare
kind, out, source = sys.argv[1:]
made = getattr(prepare, kind)(out, [source] if kind.endswith("pool") else source)
status = Path("/proc/self/status").read_text()
print(made.passages, next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def sized(kind: str, path: Path, number: int) -> str:
    """A source of so many passages of 400 characters."""
    texts = (f"{index} " + "word " * 79 for index in range(number))
    if kind == "dpr":
        lines: Iterable[str] = (f"{index}\t{text}\tT\n" for index, text in enumerate(texts, start=1))
        with path.open("w", encoding="utf-8") as file:
            file.writelines(["id\ttext\ttitle\n", *lines])
    elif kind == "hotpotqa_pool":
        with path.open("w", encoding="utf-8") as file:
            file.write('[{"context": []}')
            file.writelines(f', {{"context": [["T{index}", ["{text}"]]]}}' for index, text in enumerate(texts))
            file.write("]")
    else:
        articles = [{"id": index, "title": "T", "text": [text]} for index, text in enumerate(texts)]
        archive(path, {f"{first}.bz2": packed(*articles[first : first + 1000]) for first in range(0, number, 1000)})
    return str(path)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("large") / "psgs.tsv"
    sized("dpr", path, 100_000)
    yield path
    path.unlink()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak memory of a process is read from Linux")
@pytest.mark.parametrize("kind", ["dpr", "hotpotqa_pool", "hotpotqa_abstracts"])
def test_memory_does_not_grow_with_the_corpus(kind: str, tmp_path: Path, large: Path) -> None:
    peaks = []
    for number in (10_000, 100_000):
        source = str(large) if (kind, number) == ("dpr", 100_000) else sized(kind, tmp_path / "in", number)
        command = [sys.executable, "-c", PEAK, kind, str(tmp_path / "p.jsonl"), source]
        made, peak = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        assert made == number
        peaks.append(peak)
    # The texts that are more are 36 MB, and more as objects; only the database's pages in memory grow with them.
    assert peaks[1] - peaks[0] < 20_000  # KB


def test_killed_in_the_middle_and_run_again_it_gives_the_same(tmp_path: Path, large: Path) -> None:
    out, part = tmp_path / "p.jsonl", tmp_path / "p.jsonl.part"
    command = [sys.executable, "-c", PEAK, "dpr", str(out), str(large)]
    with subprocess.Popen(command) as process:
        while not (part.exists() and part.stat().st_size):
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert not out.exists()
    assert part.exists()
    made = dpr(str(out), str(large))
    assert not part.exists()
    lines = ({"id": str(number), "title": "T", "text": f"{number - 1} " + "word " * 79} for number in range(1, 100_001))
    digest = hashlib.sha256()
    for line in lines:
        digest.update(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    assert made.sha256 == digest.hexdigest()
    with out.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == made.sha256


@pytest.mark.parametrize("name", choices("corpus"))
def test_every_corpus_has_typed_settings_and_the_papers_size(name: str) -> None:
    load_corpus([f"corpus={name}"])
    settings = yaml.safe_load((CONF / "corpus" / f"{name}.yaml").read_text(encoding="utf-8"))
    papers = dict(
        line.split(",")[:2]
        for line in (SHIPPED / "data/paper/corpora.csv").read_text(encoding="utf-8").splitlines()[1:]
    )
    papers["wikipedia_2018"] = papers["asqa"]
    del papers["crud"]  # its news are counted, of which passages are cut
    assert settings["expected"] == (int(papers[name]) if name in papers else None)
    assert settings["out"].startswith("data/")


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.tsv"
    path.write_text(TSV, encoding="utf-8")
    options = ["corpus=wikipedia_2018", f"corpus.path={path}", f"corpus.out={tmp_path / 'p.jsonl'}"]
    assert main(["prepare", *options]) == 0
    made = dpr(str(tmp_path / "again.jsonl"), str(path))
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'p.jsonl'}: 2 passages, sha256 {made.sha256}",
        "left out: 0 repeated, 0 without text",
        "the papers' corpus has 21,015,324 passages, this one -21,015,322",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["corpus=musiqe"], "corpus=musiqe: no such corpus; there is musique"),
        (["corpus=musique", "corpus.pathz=x"], "corpus.pathz: no such option; did you mean corpus.path"),
        (["corpus=musique", "corpus.paths=x"], "corpus.paths: Input should be a valid list (given: 'x')"),
        (["corpus=crud", "corpus.chunk_size=0"], "corpus.chunk_size: Input should be greater than or equal to 1"),
        (["corpus.out=x"], "You must specify 'corpus', e.g, corpus=<OPTION>"),
        (
            ["corpus=crud", "corpus.path=/gone"],
            "/gone: no such folder; put it there (see `rag-notes download`) or set corpus.path=PATH",
        ),
        (
            ["corpus=hotpotqa", "corpus.path=/gone"],
            "/gone: no such file; get it with `rag-notes download` or set corpus.path=PATH",
        ),
    ],
)
def test_the_command_refuses_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["prepare", *options]) == 2
    assert f"rag-notes: {message}" in capsys.readouterr().err
