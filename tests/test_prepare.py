"""Corpora from small files in the official formats, and that memory does not grow with them."""

import bz2
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import rag_notes.datasets as datasets
from rag_notes.config import load_corpus
from rag_notes.datasets import DataError
from rag_notes.datasets.corpus import CorpusFile
from rag_notes.datasets.prepare import Prepared, chunks, crud_news, dpr, hotpotqa_abstracts, question_paragraphs
from rag_notes.files import SHIPPED, DiskFullError
from rag_notes.options import CONF, choices
from rag_notes.retrieval.base import measure
from rag_notes.types import Passage
from tests.test_datasets_files import write

TSV = 'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\tplain\tÜ\n'


def check(made: Prepared, passages: int, repeated: int, empty: int) -> tuple[Passage, ...]:
    assert (made.passages, made.repeated, made.empty) == (passages, repeated, empty)
    corpus = tuple(CorpusFile(str(made.path), "corpus.out"))
    assert made.sha256 == measure(corpus).sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
    return corpus


@pytest.mark.parametrize(("layout", "text"), [("hotpotqa", "One.Two."), ("twowikimultihopqa", "One. Two.")])
def test_question_files_are_pooled_and_the_loader_finds_its_gold_in_them(
    tmp_path: Path, layout: str, text: str
) -> None:
    record = {
        "_id": "1",
        "question": "q",
        "answer": "a",
        "type": "comparison",
        "supporting_facts": [["A", 0], ["B", 0]],
    }
    dev = write(tmp_path / "dev.json", [record | {"context": [["A", ["One.", "Two."]], ["B", ["Three. "]]]}])
    test = write(tmp_path / "test.json", [{"context": [["A", ["One.", "Two."]], ["A", ["Other."]], ["C", []]]}])
    made = question_paragraphs(str(tmp_path / "out" / "passages.jsonl"), [dev, test], layout=layout)  # type: ignore[arg-type]
    corpus = check(made, passages=3, repeated=1, empty=1)
    assert [(p.title, p.text) for p in corpus] == [("A", text), ("B", "Three."), ("A", "Other.")]
    # Both paragraphs of the title are in the corpus; only those of the question are gold.
    (question,) = getattr(datasets, layout)(dev, corpus=str(made.path)).questions
    assert question.gold_ids == (corpus[0].id, corpus[1].id)


def test_musique_pools_answered_and_unanswered_files(tmp_path: Path) -> None:
    gold = {"title": "A", "paragraph_text": "One.", "is_supporting": True}
    record = {"id": "2hop__1_2", "question": "q", "answer": "a", "answerable": True, "paragraphs": [gold]}
    dev = write(tmp_path / "dev.jsonl", [record])
    test = write(
        tmp_path / "test.jsonl", [{"paragraphs": [{"title": "A", "paragraph_text": "One."}, gold | {"title": ""}]}]
    )
    made = question_paragraphs(str(tmp_path / "p.jsonl"), [dev, test], layout="musique")
    corpus = check(made, passages=2, repeated=1, empty=0)
    assert [(p.title, p.text) for p in corpus] == [("A", "One."), ("", "One.")]
    assert datasets.musique(dev, corpus=str(made.path)).questions[0].gold_ids == (corpus[0].id,)


def archive(path: Path, files: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:bz2") as tar:
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
    path = archive(tmp_path / "w.tar.bz2", {"AA/wiki_00.bz2": one, "README": b"x", "AB/wiki_00.bz2": two})
    made = hotpotqa_abstracts(str(tmp_path / "p.jsonl"), path, expected=4)
    assert made.expected == 4
    corpus = check(made, passages=3, repeated=0, empty=1)
    # The articles keep their ids, also two of one content.
    assert corpus == (Passage("12", "A", "One. Two."), Passage("7", "B", "Three."), Passage("8", "A", "One. Two."))


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz"])
def test_dprs_passages_are_read_packed_or_not(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"psgs{ending}", gzip.compress(TSV.encode()) if ending.endswith("gz") else TSV)
    corpus = check(dpr(str(tmp_path / "p.jsonl"), path), passages=2, repeated=0, empty=0)
    assert corpus == (Passage("1", "T", 'a "b" c'), Passage("2", "Ü", "plain"))


def test_crud_news_become_chunks_of_whole_sentences(tmp_path: Path) -> None:
    folder = tmp_path / "80000_docs"
    folder.mkdir()
    write(folder / "documents_part_1", "一二三。四五六！\n七八。\n")
    write(folder / "documents_part_2", "七八。\n\n一二三四五六七八九十。")
    made = crud_news(str(tmp_path / "p.jsonl"), str(folder), chunk_size=6)
    corpus = check(made, passages=5, repeated=1, empty=0)
    assert [p.text for p in corpus] == ["一二三。", "四五六！", "七八。", "一二三四五六", "七八九十。"]


@pytest.mark.parametrize("size", [1, 7, 20, 512])
def test_chunks_lose_nothing_and_are_no_longer_than_asked(size: int) -> None:
    text = "他说：“好的。”然后走了！ 第二段？是的。" * 9 + "没有标点" * 40 + "完。end"
    made = list(chunks(text, size))
    assert all(0 < len(chunk) <= size for chunk in made)
    assert "".join("".join(made).split()) == "".join(text.split())
    assert (made == [text]) == (size == 512)


@pytest.mark.parametrize(
    ("settings", "content", "message"),
    [
        ({"layout": "musique"}, b'{"paragraphs": []}\n{"paragraphs": [{"title": 3}]}\n', "in, line 2: Expected `str`"),
        ({"layout": "musique"}, b"", "p.jsonl: not written, the files hold no passage"),
        (dpr, b"id\ttext\ttitle\n1\tx\tT\n1\ty\tT\n", "line 2: the passage id '1' is already used"),
        (dpr, b"id\ttext\ttitle\n1\tx\n", "line 2: expected 3 columns (id, text, title), found 2"),
        (hotpotqa_abstracts, b"no archive", "in.tsv: cannot be read on ("),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_and_an_earlier_result_is_kept(
    tmp_path: Path, settings: Any, content: bytes, message: str
) -> None:
    path, out = write(tmp_path / ("in" if isinstance(settings, dict) else "in.tsv"), content), tmp_path / "p.jsonl"
    out.write_bytes(b"an earlier result")
    with pytest.raises(DataError) as error:
        question_paragraphs(str(out), [path], **settings) if isinstance(settings, dict) else settings(str(out), path)
    assert message in str(error.value)
    assert {file.name for file in tmp_path.iterdir()} == {Path(path).name, "p.jsonl"}
    assert out.read_bytes() == b"an earlier result"


def test_files_that_are_cut_off_or_malformed_are_named_with_their_place_in_the_archive(tmp_path: Path) -> None:
    tsv = write(tmp_path / "p.tsv.gz", gzip.compress(TSV.encode())[:-9])
    with pytest.raises(DataError, match=r"p\.tsv\.gz, after line .: cannot be read on \(Compressed file ended"):
        dpr(str(tmp_path / "p.jsonl"), tsv)
    path = archive(tmp_path / "w.tar.bz2", {"AA/w.bz2": packed({"id": 1, "title": "T", "text": ["x", 1]})})
    with pytest.raises(
        DataError, match=r"w\.tar\.bz2, AA/w\.bz2, line 1: Expected `str`, got `int` - at `\$\.text\[1\]`"
    ):
        hotpotqa_abstracts(str(tmp_path / "p.jsonl"), path)
    texts = [{"id": n, "title": "T", "text": hashlib.sha512(b"%d" % n).hexdigest()} for n in range(9999)]
    whole = Path(archive(tmp_path / "w.tar.bz2", {"a.bz2": packed(*texts)}))
    whole.write_bytes(whole.read_bytes()[:-300_000])
    with pytest.raises(DataError, match=r"w\.tar\.bz2.*: cannot be read on \("):
        hotpotqa_abstracts(str(tmp_path / "p.jsonl"), str(whole))


def test_a_full_disk_is_said_plainly(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", TSV)
    (tmp_path / "p.jsonl.part").symlink_to("/dev/full")
    with pytest.raises(DiskFullError, match=r"p\.jsonl: the disk is full .* make room and run the same command again"):
        dpr(str(tmp_path / "p.jsonl"), path)
    assert [file.name for file in tmp_path.iterdir()] == ["p.tsv"]


PEAK = """
import sys
from pathlib import Path
from rag_notes.datasets import prepare
made = prepare.dpr(*sys.argv[1:])
status = Path("/proc/self/status").read_text()
print(made.passages, next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak memory of a process is read from Linux")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for number in (10_000, 100_000):
        lines = (f"{index}\t{index} {'word ' * 79}\tT\n" for index in range(number))
        path = write(tmp_path / "in.tsv", "id\ttext\ttitle\n" + "".join(lines))
        command = [sys.executable, "-c", PEAK, str(tmp_path / "p.jsonl"), path]
        made, peak = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        assert made == number
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 10_000  # KB, of texts with 36 MB more


@pytest.mark.parametrize("name", choices("corpus"))
def test_every_corpus_has_typed_settings_and_the_papers_size(name: str) -> None:
    load_corpus([f"corpus={name}"])
    settings = yaml.safe_load((CONF / "corpus" / f"{name}.yaml").read_text(encoding="utf-8"))
    rows = (SHIPPED / "data/paper/corpora.csv").read_text(encoding="utf-8").splitlines()[1:]
    papers = {row.split(",")[0]: int(row.split(",")[1]) for row in rows if not row.startswith("crud,")}
    assert settings["expected"] == papers.get({"wikipedia_2018": "asqa"}.get(name, name))
