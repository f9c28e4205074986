"""Pools and corpus files: one passage a content, stable ids, every layout."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from rag_notes import datasets
from rag_notes.datasets.selection import cut
from rag_notes.types import Passage


def trivia(path: Path, paragraphs: list[tuple[str, str]]) -> str:
    passages = [f"Document 1 (Title: {title}): {text}" for title, text in paragraphs]
    path.write_text(json.dumps({"question": "q", "answers": ["a"], "passages": passages}), encoding="utf-8")
    return str(path)


def questions(tmp_path: Path) -> str:
    path = tmp_path / "q.jsonl"
    path.write_text('{"id": "1", "question": "q", "answers": ["a"]}\n', encoding="utf-8")
    return str(path)


def test_pool_names_depend_on_the_contents_not_on_their_order(tmp_path: Path) -> None:
    paragraphs = [("A B", "1"), ("A/B", "1"), ("A B", "2"), ("C", "3"), ("???", "4"), ("C", "3")]
    shuffled = paragraphs.copy()
    random.Random(1).shuffle(shuffled)
    assert shuffled != paragraphs
    first = datasets.triviaqa(trivia(tmp_path / "1.jsonl", paragraphs)).corpus
    second = datasets.triviaqa(trivia(tmp_path / "2.jsonl", shuffled)).corpus
    assert set(first) == set(second)
    digest = hashlib.sha256(b"A/B\x001").hexdigest()[:12]
    assert [p.id for p in first if p.title != "A B"] == [f"A_B-{digest}", "C", "passage"]
    assert len({p.id for p in first}) == 5


def test_one_content_under_two_ids_is_one_passage(tmp_path: Path) -> None:
    contexts = [{"id": "7", "title": "T", "text": "x"}, {"id": "8", "title": "T", "text": "x", "isgold": True}]
    path = tmp_path / "n.jsonl"
    path.write_text(json.dumps({"question": "q", "answers": ["a"], "ctxs": contexts}), encoding="utf-8")
    data = datasets.nq_open(str(path))
    assert data.corpus == (Passage("7", "T", "x"),)
    assert data.questions[0].gold_ids == ("7",)


def test_one_id_with_two_contents_is_an_error(tmp_path: Path) -> None:
    contexts = [{"id": "7", "title": "T", "text": "x"}, {"id": "7", "title": "U", "text": "x"}]
    path = tmp_path / "n.jsonl"
    path.write_text(json.dumps({"question": "q", "answers": ["a"], "ctxs": contexts}), encoding="utf-8")
    with pytest.raises(datasets.DataError, match=r"n\.jsonl: the passage id '7' stands for two .* 'T' and 'U'"):
        datasets.nq_open(str(path))


def test_gold_ids_come_from_the_corpus_file_where_it_holds_all_supporting_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    contexts = [{"title": "T", "text": "x", "isgold": True}, {"title": "U", "text": "y", "isgold": True}]
    path.write_text(json.dumps({"question": "q", "answers": ["a"], "ctxs": contexts}), encoding="utf-8")
    corpus = tmp_path / "c.jsonl"
    lines = [{"id": "c1", "title": "U", "text": "y"}, {"id": "c2", "title": "T", "text": "x"}]
    for present, gold_ids in ((lines, ("c2", "c1")), (lines[:1], ())):
        corpus.write_text("\n".join(map(json.dumps, present)), encoding="utf-8")
        (question,) = datasets.nq_open(str(path), corpus=str(corpus)).questions
        assert (question.gold_ids, question.gold_titles) == (gold_ids, ("T", "U"))


@pytest.mark.parametrize(
    ("file", "content", "passages"),
    [
        (
            "c.jsonl",
            '{"id": 1, "title": "T", "text": "x"}\n\n{"id": "2", "text": "y"}',
            [("1", "T", "x"), ("2", "", "y")],
        ),
        ("c.jsonl", '{"id": "1", "contents": "T\\nx\\ny"}\n', [("1", "T", "x\ny")]),
        ("c.jsonl", '{"id": "1", "title": "T", "contents": "x\\ny", "more": 0}\n', [("1", "T", "x\ny")]),
        ("c.tsv", 'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\tplain\t\n', [("1", "T", 'a "b" c'), ("2", "", "plain")]),
        (
            "c.jsonl",
            '\ufeff{"id": "é", "text": "x"}\r\n\u3000\r\n{"id": "2", "text": "\u2028y"}\r\n',
            [("é", "", "x"), ("2", "", "\u2028y")],
        ),
        ("c.tsv", "\nid\ttext\ttitle\r\n1\tx\tT\r\n", [("1", "T", "x")]),
        ("c.jsonl", "", []),
        ("c.tsv", "", []),
        ("c.tsv", "id\ttext\ttitle\n", []),
        ("c.txt", " 新闻一 \r\n\n新闻二\n新闻一\n", [("新闻一", "", "新闻一"), ("新闻二", "", "新闻二")]),
    ],
)
def test_corpus_layouts(tmp_path: Path, file: str, content: str, passages: list[tuple[str, str, str]]) -> None:
    corpus = tmp_path / file
    corpus.write_text(content, encoding="utf-8", newline="")
    data = datasets.webquestions(questions(tmp_path), corpus=str(corpus))
    assert tuple(data.corpus) == tuple(Passage(*passage) for passage in passages)
    count = len(passages)
    assert [data.corpus[number] for number in range(-count, count)] == 2 * list(data.corpus)  # each on its own
    assert (data.corpus[::2], data.corpus[count:]) == (tuple(data.corpus)[::2], ())
    with pytest.raises(IndexError):
        data.corpus[count]


def test_a_folder_is_read_in_the_order_of_its_file_names(tmp_path: Path) -> None:
    folder = tmp_path / "news"
    folder.mkdir()
    for name, text in (("part_2", "c\na\n"), ("part_1", "a\nb"), (".hidden", "d")):
        (folder / name).write_text(text, encoding="utf-8")
    data = datasets.webquestions(questions(tmp_path), corpus=str(folder))
    assert [p.text for p in data.corpus] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("c.csv", "", r"^dataset\.webquestions\.corpus=.*c\.csv: expected a file that ends in \.jsonl, \.tsv or \.txt"),
        (
            "c.jsonl",
            '{"id": "1", "text": "x"}\n{"id": "1", "text": "y"}',
            r"c\.jsonl, line 2: the passage id '1' is alr",
        ),
        (
            "c.jsonl",
            '{"id": "1", "text": " "}',
            r"c\.jsonl, line 1, field 'text': expected text, found an empty string",
        ),
        ("c.jsonl", '{"id": true, "text": "x"}', r"c\.jsonl, line 1, field 'id': expected a string or an integer, fou"),
        ("c.jsonl", '{"title": "T", "text": "x"}', r"c\.jsonl, line 1, field 'id': is missing, expected a string or"),
        ("c.jsonl", '{"id": "1"}', r"c\.jsonl, line 1, field 'text': is missing, expected a string"),
        ("c.jsonl", '{"id": "1", "contents": "T"}', r"line 1, field 'contents': expected a title, a line feed and a t"),
        ("c.tsv", "text\ttitle\n", r"c\.tsv, line 1: expected the header id, text, title"),
        ("c.tsv", "id\ttext\ttitle\n1\tx\n", r"c\.tsv, line 2: expected 3 columns \(id, text, title\), found 2"),
        ("c.tsv", 'id\ttext\ttitle\n1\t"x\tT\n', r"c\.tsv, line 2: not valid tab-separated values: "),
        ("c.tsv", "id\ttext\ttitle\n1\tx\tT\n1\ty\tT\n", r"c\.tsv, line 3: the passage id '1' is already used"),
        ("c.tsv", "id\ttext\ttitle\n1\t\tT\n", r"c\.tsv, line 2, field 'text': expected text"),
    ],
)
def test_malformed_corpus(tmp_path: Path, file: str, content: str, message: str) -> None:
    corpus = tmp_path / file
    corpus.write_text(content, encoding="utf-8")
    with pytest.raises(datasets.DataError, match=message):
        datasets.webquestions(questions(tmp_path), corpus=str(corpus))


def test_missing_corpus_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.jsonl: no such file; .* set dataset\.mine\.corpus=PATH"):
        datasets.webquestions(questions(tmp_path), name="mine", corpus=str(tmp_path / "gone.jsonl"))


@pytest.mark.parametrize("bad", [b"\xff", b"caf\xe9"])
def test_corpus_that_is_not_utf8(tmp_path: Path, bad: Any) -> None:
    corpus = tmp_path / "c.txt"
    corpus.write_bytes(b"fine\n" + bad + b"\n")
    with pytest.raises(datasets.DataError, match=r"c\.txt, line 2: not valid UTF-8"):
        datasets.webquestions(questions(tmp_path), corpus=str(corpus))


@pytest.mark.parametrize(
    ("offset", "limit", "ids"), [(0, 1, ["a"]), (1, None, ["b", "c"]), (1, 1, ["b"]), (2, 9, ["c"])]
)
def test_offset_and_limit_cut_the_questions_but_not_the_pool(
    tmp_path: Path, offset: int, limit: int | None, ids: list[str]
) -> None:
    records = [
        {"id": i, "question": "q", "answers": ["x"], "passages": [f"Document 1 (Title: {i}): text"]} for i in "abc"
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    whole = datasets.triviaqa(str(path))
    data = cut(whole, offset=offset, limit=limit)
    assert (whole.selection, data.selection) == ("all", "offset/limit")
    assert cut(whole, limit=3) == whole
    assert [q.id for q in data.questions] == ids
    assert [p.id for p in data.corpus] == ["a", "b", "c"]
