"""Files of data sets that are broken, empty, missing or in another form, and names that lead elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_notes import datasets
from rag_notes.config import ConfigError, load_config
from rag_notes.datasets import DataError
from rag_notes.datasets.selection import cut
from rag_notes.types import Dataset, Question
from tests.dataset_records import (
    HOTPOT,
    MUSIQUE,
    PLAIN,
    SIMPLE,
    Loader,
    as_lines,
    as_list,
    refused,
)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1}\n', "line 1: expected one JSON list of records"),
        (b"", "line 1: expected one JSON list of records"),
        (b'[\n{"a": }]', "line 2: not valid JSON: Expecting value at column 7"),
        (b"[" + json.dumps(HOTPOT).encode() + b"\n\n{}]", "line 3: expected ',' or ']' after record index 0"),
        (b"[" + json.dumps(HOTPOT).encode() + b",\n]", "line 2: not valid JSON: Expecting value at column 1"),
        (b"[3]", "record index 0 (line 1): expected a JSON object, found an integer"),
        (b"[\n] x", "line 2: expected nothing after the list of records"),
        (b'[\n{"a": "caf\xe9"}]', "line 2: not valid UTF-8 (invalid continuation byte); save the file as UTF-8"),
        (
            rb'[{"a": "\ud83d\ude00 \ud83d"}]',
            r"record index 0 (line 1): expected valid Unicode, found one half of a \ud... pair alone",
        ),
    ],
)
def test_broken_json_list(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(content)
    refused(f"f.json, {problem}", datasets.hotpotqa, str(path))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'\n\n{"a"}\n', "line 3: not valid JSON: Expecting ':' delimiter at column 5"),
        (b"[1]\n", "line 1: expected a JSON object, found a list"),
        (b"{}\n\xff\n", "line 1, field 'question': is missing, expected a string"),
        (b"\n\xff\n", "line 2: not valid UTF-8 (invalid start byte); save the file as UTF-8"),
        (
            rb'{"question": "\udc00"}',
            r"line 1: expected valid Unicode, found one half of a \ud... pair alone",
        ),
    ],
)
def test_broken_jsonl(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(content)
    refused(f"f.jsonl, {problem}", datasets.webquestions, str(path))


def test_broken_json_object(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"data":\n [}', encoding="utf-8")
    refused("f.json, line 2: not valid JSON: Expecting value at column 3", datasets.squad, str(path))
    path.write_text("[]", encoding="utf-8")
    refused("f.json: expected a JSON object, found a list", datasets.squad, str(path))


def test_byte_order_mark_and_unicode_line_separators_are_read(tmp_path: Path) -> None:
    record = json.dumps(SIMPLE | {"question": "one\u2028two\x85three"}, ensure_ascii=False)
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + record.encode() + b"\r\n")
    assert datasets.webquestions(str(path)).questions[0].question == "one\u2028two\x85three"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([HOTPOT | {"question": "\U0001f600"}]).encode())
    assert datasets.hotpotqa(str(path)).questions[0].question == "\U0001f600"


@pytest.mark.parametrize(
    "loader", [getattr(datasets, name) for name in datasets.__all__ if name not in {"DataError", "world"}]
)
def test_missing_file_names_the_option(tmp_path: Path, loader: Loader) -> None:
    with pytest.raises(FileNotFoundError) as error:
        loader(str(tmp_path / "gone"), name="mine")
    message = (
        f"{tmp_path}/gone: no such file; put it there (see `rag-notes download`) "
        "or set dataset.mine.path=PATH to where it is"
    )
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"offset": -1}, "dataset.mine.offset: expected 0 to 1, found -1: there are 2 questions"),
        ({"limit": 0}, "dataset.mine.limit: expected 1 or more, or null for all, found 0"),
        ({"offset": 2}, "dataset.mine.offset: expected 0 to 1, found 2: there are 2 questions"),
    ],
)
def test_cuts_that_leave_nothing(part: dict[str, int], problem: str) -> None:
    data = Dataset("mine", (Question("1", "q"), Question("2", "q")), ())
    with pytest.raises(DataError) as error:
        cut(data, **part)
    assert str(error.value) == problem


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    path = as_list(tmp_path / "f.json")
    message = "f.json: holds no questions; put the data set's file there or set dataset.hotpotqa.path=PATH"
    refused(message, datasets.hotpotqa, path)


@pytest.mark.parametrize(
    ("loader", "record", "listed"),
    [
        (datasets.hotpotqa, HOTPOT, "hotpotqa"),
        (datasets.twowikimultihopqa, HOTPOT, "twowikimultihopqa"),
        (datasets.musique, MUSIQUE, "musique"),
    ],
)
def test_a_file_without_the_papers_questions_is_refused(
    tmp_path: Path, loader: Loader, record: dict[str, Any], listed: str
) -> None:
    path = (as_lines if loader is datasets.musique else as_list)(tmp_path / "f", record)
    message = (
        f"f: holds none of the papers' 500 questions (dataset.mine.questions=papers); expected the official "
        f"development set, which `rag-notes download dataset={listed}` gets"
    )
    refused(message, loader, path, name="mine", questions="papers")


@pytest.mark.parametrize("name", ["../mine", "a/b", "a\\b", "", "..", ".hidden", "-f", "a\n", "a\0"])
def test_a_name_that_leads_out_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = as_lines(tmp_path / "f.jsonl", PLAIN)
    with pytest.raises(ValueError, match=r"expected a name that file names can hold: .*; found "):
        datasets.plain(path, name=name)
    with pytest.raises(ConfigError, match=r"dataset\.plain\.name: Value error, expected a name that file"):
        load_config(["dataset=plain", f"dataset.plain.name={json.dumps(name)}"])


def test_a_name_in_any_script_is_taken(tmp_path: Path) -> None:
    path = as_lines(tmp_path / "f.jsonl", PLAIN)
    assert [datasets.plain(path, name=name).name for name in ("数据-1.0", "My set")] == ["数据-1.0", "My set"]
    assert load_config(["dataset=plain", "dataset.plain.name='数据-1.0'"]).dataset["plain"]["name"] == "数据-1.0"
