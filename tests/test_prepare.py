"""Corpora from small files in the official formats, and that memory does not grow with them."""

import bz2
import gzip
import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml

import rag_notes.datasets as datasets
from rag_notes.config import load_settings
from rag_notes.datasets import DataError
from rag_notes.datasets.corpus import CorpusFile
from rag_notes.datasets.prepare import chunks, crud_news, dpr, hotpotqa_abstracts, question_paragraphs
from rag_notes.files import SHIPPED
from rag_notes.options import CONF, choices
from rag_notes.retrieval.base import measure
from rag_notes.types import Passage
from tests.corpora import pack, write

TSV = 'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\tplain\tÜ\n'


def check(summary: str, passages: int, repeated: int, empty: int) -> tuple[Passage, ...]:
    path, _, counts = summary.partition(": ")
    corpus = tuple(CorpusFile(path, "corpus.out"))
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert digest == measure(corpus).sha256
    expected = f"{passages} passages, sha256 {digest}; left out: {repeated} repeated, {empty} empty"
    assert counts.partition("; the papers")[0] == expected
    return corpus


@pytest.mark.parametrize(("layout", "separator"), [("hotpotqa", ""), ("twowikimultihopqa", " "), ("musique", " ")])
def test_question_files_are_pooled_and_the_loader_finds_its_gold_in_them(
    tmp_path: Path, layout: Any, separator: str
) -> None:
    def record(*parts: tuple[str, list[str]]) -> dict[str, Any]:
        supports = [{"title": title, "paragraph_text": " ".join(part), "is_supporting": True} for title, part in parts]
        return {"paragraphs": supports} if layout == "musique" else {"context": parts}

    question = {"_id": "1", "id": "2hop__1_2", "question": "q", "answer": "a", "answerable": True, "type": "t"}
    dev = question | {"supporting_facts": [["A", 0], ["B", 0]]} | record(("A", ["One.", "Two."]), ("B", ["Three."]))
    test = record(("A", ["One.", "Two."]), ("A", ["Other."]), ("C", []))
    paths = [write(tmp_path / f"{number}.json", [part]) for number, part in enumerate((dev, test))]
    out = str(tmp_path / "o/p.jsonl")
    corpus = check(question_paragraphs(out, paths, layout=layout), passages=3, repeated=1, empty=1)
    assert [(p.title, p.text) for p in corpus] == [("A", f"One.{separator}Two."), ("B", "Three."), ("A", "Other.")]
    # Both paragraphs of the title are in the corpus; only those of the question are gold.
    (loaded,) = getattr(datasets, layout)(paths[0], corpus=out).questions
    assert loaded.gold_ids == (corpus[0].id, corpus[1].id)


def packed(*records: Any) -> bytes:
    return bz2.compress("".join(json.dumps(record) + "\n" for record in records).encode())


def test_hotpotqas_abstracts_are_read_through_both_layers(tmp_path: Path) -> None:
    one = packed({"id": 12, "title": "A", "text": ["One.", " Two."]}, {"id": 13, "title": "Void", "text": []})
    two = packed({"id": "7", "title": "B", "text": " Three. "}, {"id": 8, "title": "A", "text": ["One.", " Two."]})
    path = pack(tmp_path / "w", "bztar", {"AA/wiki_00.bz2": one, "README": b"x", "AB/wiki_00.bz2": two})
    summary = hotpotqa_abstracts(str(tmp_path / "p.jsonl"), path, expected=4000)
    assert summary.endswith("; the papers count 4,000")
    corpus = check(summary, passages=3, repeated=0, empty=1)
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
    summary = crud_news(str(tmp_path / "p.jsonl"), str(folder), chunk_size=6)
    corpus = check(summary, passages=5, repeated=1, empty=0)
    assert [p.text for p in corpus] == ["一二三。", "四五六！", "七八。", "一二三四五六", "七八九十。"]


@pytest.mark.parametrize("size", [1, 7, 20, 512])
def test_chunks_lose_nothing_and_are_no_longer_than_asked(size: int) -> None:
    text = "他说：“好的。”然后走了！ 第二段？是的。" * 9 + "没有标点" * 40 + "完。end"
    pieces = list(chunks(text, size))
    assert all(0 < len(chunk) <= size for chunk in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert (pieces == [text]) == (size == 512)


@pytest.mark.parametrize(
    ("prepare", "file", "content", "message"),
    [
        (question_paragraphs, "in", b'{"paragraphs": []}\n{"paragraphs": [{"title": 3}]}\n', "in, line 2: Expected `s"),
        (question_paragraphs, "in", b'{"context": []}\n', "in, line 1: Object missing required field `paragraphs`"),
        (question_paragraphs, "in", b"", "p.jsonl: not written, the files hold no passage"),
        (dpr, "in.tsv", b"id\ttext\ttitle\n1\tx\tT\n1\ty\tT\n", "line 2: the passage id '1' is already used"),
        (dpr, "in.tsv", b"id\ttext\ttitle\n1\tx\n", "line 2: expected 3 columns (id, text, title), found 2"),
        (dpr, "in.tsv.gz", gzip.compress(TSV.encode())[:-9], "cannot be read on (Compressed file ended"),
        (hotpotqa_abstracts, "in", b"no archive", "in: cannot be read on ("),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_and_an_earlier_result_is_kept(
    tmp_path: Path, prepare: Any, file: str, content: bytes, message: str
) -> None:
    path, out = write(tmp_path / file, content), tmp_path / "p.jsonl"
    out.write_bytes(b"an earlier result")
    with pytest.raises(DataError) as error:
        prepare(str(out), [path], layout="musique") if prepare is question_paragraphs else prepare(str(out), path)
    assert message in str(error.value)
    assert {entry.name for entry in tmp_path.iterdir()} == {file, "p.jsonl"}
    assert out.read_bytes() == b"an earlier result"


def test_an_archive_that_is_cut_off_or_malformed_is_named_with_the_place_in_it(tmp_path: Path) -> None:
    path = pack(tmp_path / "w", "bztar", {"AA/w.bz2": packed({"id": 1, "title": "T", "text": ["x", 1]})})
    with pytest.raises(DataError, match=r"w\.tar\.bz2, \./AA/w\.bz2, line 1: Expected `str`, got `int`"):
        hotpotqa_abstracts(str(tmp_path / "p.jsonl"), path)
    texts = [{"id": n, "title": "T", "text": hashlib.sha512(b"%d" % n).hexdigest()} for n in range(9999)]
    whole = Path(pack(tmp_path / "v", "bztar", {"a.bz2": packed(*texts)}))
    whole.write_bytes(whole.read_bytes()[:-300_000])
    with pytest.raises(DataError, match=r"v\.tar\.bz2.*: cannot be read on \("):
        hotpotqa_abstracts(str(tmp_path / "p.jsonl"), str(whole))


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for number in (1_000, 10_000):
        lines = (f"{index}\t{index} {'word ' * 79}\tT\n" for index in range(number))
        path = write(tmp_path / "in.tsv", "id\ttext\ttitle\n" + "".join(lines))
        tracemalloc.start()
        dpr(str(tmp_path / "p.jsonl"), path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 1_000_000  # bytes, of texts with 3.6 MB more


@pytest.mark.parametrize("name", choices("corpus"))
def test_every_corpus_has_typed_settings_and_the_papers_size(name: str) -> None:
    load_settings("corpus", [f"corpus={name}"], root="prepare")
    settings = yaml.safe_load((CONF / "corpus" / f"{name}.yaml").read_text(encoding="utf-8"))
    rows = (SHIPPED / "data/paper/corpora.csv").read_text(encoding="utf-8").splitlines()[1:]
    papers = {row.split(",")[0]: int(row.split(",")[1]) for row in rows if not row.startswith("crud,")}
    assert settings["expected"] == papers.get({"wikipedia_2018": "asqa"}.get(name, name))
