"""Small valid files of every format, mutated at random: each is read, or refused by an error that names the file."""

import bz2
import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_notes import datasets
from rag_notes.datasets import DataError, prepare
from rag_notes.datasets.corpus_file import CorpusFile
from rag_notes.files import SHIPPED
from rag_notes.types import Dataset
from tests import dataset_records as valid

MUTATIONS = 40
MINI = SHIPPED / "data" / "mini"


def as_json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def as_lines(*records: Any) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def in_tar(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2") as tar:
        info = tarfile.TarInfo("a.bz2")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def twice(record: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [record, record | {field: f"{record[field]}2"}]


SQUAD = {
    "data": [
        {
            "title": "T_1",
            "paragraphs": [{"context": "x", "qas": [{"id": "1", "question": "q", "answers": [{"text": "a"}]}]}],
        }
    ]
}
CRUD = {
    f"questanswer_{name}": [{"ID": "1", "news1": "n", "news2": "m", "news3": "o", "questions": "q", "answers": "a"}]
    for name in ("1doc", "2docs", "3docs")
}
NQ = valid.SIMPLE | {"ctxs": [{"id": 7, "title": "T", "text": "x", "isgold": True}, {"title": "U", "text": "y"}]}
TRIVIA = valid.SIMPLE | {"passages": ["Document 1 (Title: T): x"]}
FOUND = {"question_id": "w_0", "search_result": [{"title": "T", "text": "x"}]}
FLASH = valid.FLASHRAG | {"metadata": {"type": "t", "supporting_facts": {"title": ["T"]}}}
PARAGRAPHS = [{"id": 1, "title": "T", "para_index": 1, "contents": "x"}]
ABSTRACTS = as_lines({"id": 1, "title": "T", "text": ["One.", " Two."]}, {"id": "2", "title": "U", "text": "x"})
TSV = b'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\tplain\tU\n'
NEWS = "新闻一。正文。\n新闻二。\n".encode()
QUESTIONS = as_lines(valid.SIMPLE)


def corpus_of(**files: str) -> Dataset:
    """The questions and the corpus file, also looked up passage by passage."""
    data = datasets.webquestions(**files)
    for number in range(len(data.corpus)):
        assert data.corpus[number].text
    return data


def looked_up(path: str) -> None:
    """The passages of a file that nobody has checked before."""
    file = CorpusFile(path, "corpus.out")
    for number in range(len(file)):
        assert file[number].text


def prepared(function: Callable[..., Any], path: str, *, several: bool = False) -> None:
    function(f"{path}.out", [path] if several else path)


Case = tuple[Callable[..., Any], dict[str, tuple[str, bytes]]]
CASES: dict[str, Case] = {
    "hotpotqa": (datasets.hotpotqa, {"path": ("f.json", as_json(twice(valid.HOTPOT, "_id")))}),
    "twowikimultihopqa": (datasets.twowikimultihopqa, {"path": ("f.json", as_json(twice(valid.HOTPOT, "_id")))}),
    "musique": (datasets.musique, {"path": ("f.jsonl", as_lines(*twice(valid.MUSIQUE, "id")))}),
    "strategyqa": (
        datasets.strategyqa,
        {"path": ("f.json", as_json([valid.STRATEGY])), "corpus": ("p.jsonl", as_lines(*PARAGRAPHS))},
    ),
    "strategyqa-object": (
        datasets.strategyqa,
        {
            "path": ("f.json", as_json([valid.STRATEGY])),
            "corpus": ("p.json", as_json({"T-1": {"title": "T", "content": "x"}})),
        },
    ),
    "asqa": (datasets.asqa, {"path": ("f.json", as_json([valid.ASQA | {"docs": NQ["ctxs"]}]))}),
    "crud": (datasets.crud, {"path": ("f.json", as_json(CRUD))}),
    "squad": (datasets.squad, {"path": ("f.json", as_json(SQUAD))}),
    "nq_open": (datasets.nq_open, {"path": ("f.jsonl", as_lines(*twice(NQ, "id")))}),
    "triviaqa": (datasets.triviaqa, {"path": ("f.jsonl", as_lines(TRIVIA))}),
    "webquestions": (datasets.webquestions, {"path": ("f.jsonl", QUESTIONS)}),
    "realtimeqa": (
        datasets.realtimeqa,
        {"path": ("f.jsonl", as_lines(valid.REALTIME)), "search_results": ("s.jsonl", as_lines(FOUND))},
    ),
    "ircot": (datasets.ircot, {"path": ("f.jsonl", as_lines(valid.IRCOT))}),
    "flashrag": (
        datasets.flashrag,
        {
            "path": ("f.jsonl", as_lines(FLASH)),
            "corpus": ("c.jsonl", as_lines({"id": "0", "contents": '"T"\nFirst.'}, {"id": "1", "contents": "U\nx"})),
        },
    ),
    "plain": (
        datasets.plain,
        {
            "path": ("f.jsonl", b"".join((MINI / "questions.jsonl").read_bytes().splitlines(keepends=True)[:3])),
            "corpus": ("c.jsonl", (MINI / "passages.jsonl").read_bytes()),
        },
    ),
    "plain-gz": (
        datasets.plain,
        {"path": ("f.jsonl.gz", gzip.compress(QUESTIONS)), "corpus": ("c.jsonl.bz2", bz2.compress(ABSTRACTS))},
    ),
    "cloze": (datasets.cloze, {"path": ("f.jsonl", (MINI / "passages.jsonl").read_bytes())}),
    "corpus-tsv": (corpus_of, {"path": ("f.jsonl", QUESTIONS), "corpus": ("c.tsv", TSV)}),
    "corpus-txt": (corpus_of, {"path": ("f.jsonl", QUESTIONS), "corpus": ("c.txt", NEWS)}),
    "looked-up": (
        looked_up,
        {"path": ("c.jsonl", as_lines({"id": 1, "title": "T", "text": "x"}, {"id": 2, "text": "y"}))},
    ),
    "looked-up-tsv": (looked_up, {"path": ("c.tsv", TSV)}),
    "prepare-wiki": (
        partial(prepared, prepare.hotpotqa_pool, several=True),
        {"path": ("f.json", as_json([valid.HOTPOT]))},
    ),
    "prepare-musique": (
        partial(prepared, prepare.musique_pool, several=True),
        {"path": ("f.jsonl", as_lines(valid.MUSIQUE))},
    ),
    "prepare-dpr": (partial(prepared, prepare.dpr), {"path": ("f.tsv", TSV)}),
    "prepare-abstracts": (
        partial(prepared, prepare.hotpotqa_abstracts),
        {"path": ("f.tar.bz2", in_tar(bz2.compress(ABSTRACTS)))},
    ),
}

DIGITS, DEEP = b"9" * 5000, 100_000
VALUES = [
    *(b"null", b"true", b"-1", b"2.5", b"1e999", b"NaN", b'""', b'" "', b"[]", b"{}", b"[[]]", b'[{"a": 1}]', b'"x"'),
    *(rb'"\ud800"', rb'"\ud83d\ude00"', rb'"\u0000"', b'"../x"', DIGITS, b"-" + DIGITS, b'"' + DIGITS + b'"'),
    *(b"[" * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"[" * 700 + b"]" * 700),
    b"[" * 400 + rb'"\ud83d\ude00"' + b"]" * 400,
]
BYTES = [
    b"\xff",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\t",
    b'"',
    b"[",
    b"}",
    b",",
    b"\\",
    "\u2028".encode(),
    DIGITS,
]
TEXT_ENDINGS = (".json", ".jsonl", ".tsv", ".txt")


def mutated(content: bytes, draw: random.Random, *, packed: bool) -> bytes:
    """One change: a value or a few bytes put in the place of others, a cut, or a part that is moved or left out."""
    kind = "bytes" if packed else draw.choice(["value", "value", "value", "bytes", "cut", "moved"])
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.randint(0, 30))
    if kind == "value":  # from one colon, bracket or comma to the next one: mostly a whole value
        marks = [place for place, byte in enumerate(content) if byte in b":[,\t"] or [0]
        start = draw.choice(marks) + 1
        end = next((place for place in range(start, len(content)) if content[place] in b",]}\t\n"), len(content))
        return content[:start] + draw.choice(VALUES) + content[end:]
    if kind == "bytes":
        new = bytes([draw.randrange(256)]) if packed else draw.choice(BYTES)
        return content[:start] + new + content[start + draw.randint(0, 1) :]
    if kind == "cut":
        return content[:start]
    return content[:start] + content[end:] + draw.choice([b"", content[start:end]])


@pytest.mark.parametrize("name", CASES)
def test_a_mutated_file_is_read_or_named(name: str, tmp_path: Path) -> None:
    load, files = CASES[name]
    draw = random.Random(name)
    paths = {option: tmp_path / file for option, (file, _) in files.items()}
    arguments = {option: str(path) for option, path in paths.items()}
    refused = 0
    for _ in range(MUTATIONS):
        for option, (_, content) in files.items():
            paths[option].write_bytes(content)
        option = draw.choice(sorted(files))
        path, content = paths[option], files[option][1]
        path.write_bytes(mutated(content, draw, packed=not path.name.endswith(TEXT_ENDINGS)))
        try:
            load(**arguments)
        except DataError as error:
            refused += 1
            assert any(str(place) in str(error) for place in paths.values()), error
            assert len(str(error)) < 2000
    assert refused


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"[" * DEEP + b"]" * DEEP, "expected values nested at most 500 deep"),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "expected values nested at most 500 deep"),
        (b"-" + DIGITS, "expected integers of at most 4300 digits"),
    ],
)
@pytest.mark.parametrize(
    ("name", "before", "place"),
    [
        ("hotpotqa", b"[\n\n", "line 3"),
        ("squad", b"\n\n", "line 3"),
        ("musique", b"\n", "line 2"),
        ("looked-up", b'{"id": "1", "text": "x"}\n', "byte 25"),
    ],
)
def test_what_python_cannot_read_is_named_with_its_line(
    tmp_path: Path, name: str, before: bytes, place: str, value: bytes, problem: str
) -> None:
    load, files = CASES[name]
    ((file, _),) = files.values()
    path = tmp_path / file
    path.write_bytes(before + b'{"a": "[[", "b": %s}\n' % value)
    with pytest.raises(DataError) as error:
        load(path=str(path))
    assert str(error.value).startswith(f"{path}, {place}: {problem} at column ")
