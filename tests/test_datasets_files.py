"""Files that are broken or missing, corpora of every layout, gold ids, offset and limit, and the configurations."""

import inspect
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import rag_notes.datasets as datasets
from rag_notes.config import load_config
from rag_notes.datasets import DataError
from rag_notes.datasets.corpus import CorpusFile, cut
from rag_notes.options import CONF, choices
from rag_notes.parts import ConfigError
from rag_notes.types import Dataset, Passage
from tests.corpora import write
from tests.test_datasets_formats import ARTICLE, ASQA, CRUD, FLASH, HOTPOT, IRCOT, MUSIQUE, NQ, REALTIME, STRATEGY

ONE = {"id": "1", "question": "q", "answers": ["a"]}
MISSING = object()


def refused(message: str, loader: Callable[..., Any], path: str, **options: Any) -> None:
    with pytest.raises(DataError) as error:
        loader(path, **options)
    text = str(error.value).replace(f"{Path(path).parent}/", "")
    assert all(part in text for part in message.split(" … ")), text


@pytest.mark.parametrize(
    ("loader", "record", "changes", "problem"),
    [
        (datasets.hotpotqa, HOTPOT, {"_id": MISSING}, "Object missing required field `_id`"),
        (datasets.hotpotqa, HOTPOT, {"question": " "}, r"Expected `str` matching regex '\\S' - at `$.question`"),
        (datasets.hotpotqa, HOTPOT, {"context": [["T", ["x", 1]]]}, "got `int` - at `$.context[0][1][1]`"),
        (datasets.twowikimultihopqa, HOTPOT, {"supporting_facts": [["T"]]}, "length 2 - at `$.supporting_facts[0]`"),
        (datasets.strategyqa, STRATEGY, {"answer": "yes"}, "Expected `bool`, got `str` - at `$.answer`"),
        (datasets.asqa, ASQA, {"qa_pairs": []}, "Expected `array` of length >= 1 - at `$.qa_pairs`"),
        (datasets.asqa, ASQA, {"docs": [{"id": "1", "title": "T"}]}, "`docs`: expected a `text`"),
        (datasets.musique, MUSIQUE, {"id": "x"}, r"Expected `str` matching regex '^\\dhop\\d?__' - at `$.id`"),
        (datasets.nq_open, NQ, {"answers": MISSING}, "expected a field `answers`, `answer` or `golden_answers`"),
        (datasets.nq_open, NQ, {"answers": "a"}, "Expected `array | null`, got `str` - at `$.answers`"),
        (datasets.triviaqa, ONE, {"passages": ["Doc 2: x"]}, r"matching regex '(?s)^Document … at `$.passages[0]`"),
        (datasets.realtimeqa, REALTIME, {"answer": ["4"]}, "Invalid enum value '4' - at `$.answer[0]`"),
        (datasets.ircot, IRCOT, {"answers_objects": [{"spans": []}]}, ">= 1 - at `$.answers_objects[0].spans`"),
        (datasets.flashrag, FLASH, {"metadata": []}, "Expected `object`, got `array` - at `$.metadata`"),
        (datasets.plain, ONE, {"gold_id": ["p"]}, "`gold_id` is not a field, did you mean `gold_ids`? (id, "),
        (datasets.plain, ONE, {"qa_pairs": [{"question": "p"}]}, "required field `answers` - at `$.qa_pairs[0]`"),
    ],
)  # fmt: skip
def test_a_malformed_record_is_refused_with_file_record_and_field(
    tmp_path: Path, loader: Callable[..., Any], record: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    changed = {key: value for key, value in (record | changes).items() if value is not MISSING}
    for file, location in (("f.jsonl", "f.jsonl, line 2"), ("f.json", "f.json, record index 1")):
        if loader is not datasets.plain or file == "f.jsonl":
            refused(f"{location} … {problem}", loader, write(tmp_path / file, [record, changed]))


@pytest.mark.parametrize(
    ("loader", "file", "content", "problem"),
    [
        (datasets.hotpotqa, "f.json", b'{"a": 1}', "f.json: Expected `array`, got `object`"),
        (datasets.hotpotqa, "f.json", b"", "f.json: Input data was truncated"),
        (datasets.hotpotqa, "f.json", b"[" * 100_000, "f.json: maximum recursion depth exceeded"),
        (datasets.hotpotqa, "f.json", b"[3]", "f.json, record index 0: Expected `object`, got `int`"),
        (datasets.hotpotqa, "f.json", [HOTPOT], "f.json: holds none of the papers' 500 questions (dataset.hotpotqa."),
        (datasets.squad, "f.json", {"data": [ARTICLE | {"title": 3}]}, "f.json: Expected `str` … at `$.data[0].title`"),
        (datasets.crud, "f.json", CRUD | {"questanswer_2docs": [3]}, "f.json, questanswer_2docs: Expected `object`"),
        (datasets.webquestions, "f.jsonl", b'\n\n{"a"}\n', "f.jsonl, line 3: JSON is malformed"),
        (datasets.webquestions, "f.jsonl", b"\n\xff\n", "f.jsonl, line 2: not valid UTF-8 (invalid start byte)"),
        (datasets.webquestions, "f.jsonl", rb'{"question": "\udc00 and"}', "f.jsonl, line 1: JSON is malformed"),
        (datasets.webquestions, "f.jsonl", b"", "f.jsonl: holds no questions; put the data set's file there or set"),
        (datasets.webquestions, "f.jsonl", [ONE, ONE | {"id": "2"}, ONE], "the question id '1' is used 2 times"),
        (datasets.webquestions, "f.jsonl.gz", b"\x1f\x8b", "f.jsonl.gz, after line 0: cannot be read on ("),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(
    tmp_path: Path, loader: Callable[..., Any], file: str, content: Any, problem: str
) -> None:
    options = {"questions": "papers"} if content == [HOTPOT] else {}
    refused(problem, loader, write(tmp_path / file, content), **options)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path / "p.jsonl", [{"id": "p1", "title": "T", "text": "x"}])
    for field, value in (("gold_ids", "T2"), ("gold_titles", "p2")):
        path = write(tmp_path / "q.jsonl", [ONE | {field: [value]}])
        refused(f"q.jsonl, line 1, `gold_ids` … p.jsonl has no '{value}'", datasets.plain, path, corpus=corpus)
    write(tmp_path / "p.jsonl", [{"id": "p1", "Title": "T", "text": "x"}])
    refused("p.jsonl, line 1: `Title` is not a field, did you mean `title`?", datasets.plain, path, corpus=corpus)
    path = write(tmp_path / "qa.jsonl", [REALTIME])
    results = write(tmp_path / "r.jsonl", [{"question_id": "v_0", "search_result": []}])
    refused("r.jsonl: the question 'v_0' is not in qa.jsonl", datasets.realtimeqa, path, search_results=results)


@pytest.mark.parametrize("name", choices("dataset"))
def test_every_configuration_fits_its_loader_which_names_a_missing_file(tmp_path: Path, name: str) -> None:
    text = (CONF / "dataset" / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# @package dataset.{name}\n") and "icence: " in text
    options = yaml.safe_load(text)
    loader = getattr(datasets, options.pop("_target_").removeprefix("rag_notes.datasets."))
    assert set(options) == {*inspect.signature(loader).parameters, "offset", "limit"}
    assert (options["name"], options["offset"], options["limit"]) == (name, "${offset}", "${limit}")
    with pytest.raises(ConfigError, match=rf"dataset\.{name}\.lim: no such option; did you mean limit"):
        load_config([f"dataset={name}", f"+dataset.{name}.lim=1"])
    with pytest.raises(ConfigError, match=rf"dataset\.{name}\.name: .*expected a name that file names can hold"):
        load_config([f"dataset={name}", f"dataset.{name}.name=../x"])
    message = r"/gone: no such file; put it there \(see `rag-notes download`\) or set dataset\."
    with pytest.raises(FileNotFoundError, match=message):
        loader(str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"gone.jsonl: no such file; .* or set dataset\.mine\.corpus=PATH"):
        datasets.webquestions(write(tmp_path / "q.jsonl", [ONE]), name="mine", corpus=str(tmp_path / "gone.jsonl"))


def test_a_byte_order_mark_and_other_separators_of_lines_are_read(tmp_path: Path) -> None:
    record = json.dumps(ONE | {"question": "one\u2028two\x85three"}, ensure_ascii=False).encode()
    path = write(tmp_path / "f.jsonl", b"\xef\xbb\xbf" + record + b"\r\n\r\n")
    assert datasets.webquestions(path).questions[0].question == "one\u2028two\x85three"
    path = write(tmp_path / "f.json", b"\xef\xbb\xbf" + json.dumps([HOTPOT | {"question": "\U0001f600"}]).encode())
    assert datasets.hotpotqa(path).questions[0].question == "\U0001f600"


@pytest.mark.parametrize(
    ("file", "content", "passages"),
    [
        ("c.jsonl", '{"id": 1, "text": "x"}\n\n{"id": 2, "text": "y"}', [("1", "", "x"), ("2", "", "y")]),
        ("c.jsonl", '{"id": "1", "contents": "T\\nx\\ny"}\n', [("1", "T", "x\ny")]),
        ("c.jsonl", '\ufeff{"id": "é", "text": "x"}\r\n\u3000\r\n{"id": "2", "text": "\u2028y"}\r\n', [("é", "", "x"), ("2", "", "\u2028y")]),  # noqa: E501
        ("c.tsv", 'id\ttext\ttitle\n1\t"a ""b"" c"\tT\n2\tplain\t\n', [("1", "T", 'a "b" c'), ("2", "", "plain")]),
        ("c.tsv", "\nid\ttext\ttitle\r\n1\tx\tT\r\n", [("1", "T", "x")]),
        ("c.jsonl", "", []),
        ("c.txt", " 新闻一 \r\n\n新闻二\n新闻一\n", [("新闻一", "", "新闻一"), ("新闻二", "", "新闻二")]),
    ],
)  # fmt: skip
def test_corpus_layouts(tmp_path: Path, file: str, content: str, passages: list[tuple[str, str, str]]) -> None:
    corpus = datasets.webquestions(write(tmp_path / "q.jsonl", [ONE]), corpus=write(tmp_path / file, content)).corpus
    assert tuple(corpus) == tuple(Passage(*passage) for passage in passages)
    count = len(passages)
    assert [corpus[number] for number in range(-count, count)] == 2 * list(corpus)  # each on its own
    assert (corpus[::2], corpus[count:]) == (tuple(corpus)[::2], ())
    with pytest.raises(IndexError):
        corpus[count]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("c.csv", "", "expected a file that ends in .jsonl, .tsv or .txt"),
        ("c.jsonl", '{"id": "1", "text": "x"}\n{"id": "1", "text": "y"}', "c.jsonl, line 2: … already used"),
        ("c.jsonl", '{"id": "1", "contents": "T"}', "c.jsonl, line 1: expected a `text`, or `contents`"),
        ("c.jsonl", '{"id": true, "text": "x"}', "c.jsonl, line 1: Expected `int | str | null`"),
        ("c.jsonl", '{"title": "T", "text": "x"}', "c.jsonl, line 1: expected an `id`"),
        ("c.tsv", "text\ttitle\n", "c.tsv, line 1: expected the header id, text, title"),
        ("c.tsv", "id\ttext\ttitle\n1\tx\n", "c.tsv, line 2: expected 3 columns (id, text, title), found 2"),
        ("c.txt", b"fine\ncaf\xe9\n", "c.txt, line 2: not valid UTF-8"),
    ],
)  # fmt: skip
def test_a_malformed_corpus_is_refused(tmp_path: Path, file: str, content: Any, message: str) -> None:
    corpus = write(tmp_path / file, content)
    refused(message, datasets.webquestions, write(tmp_path / "q.jsonl", [ONE]), corpus=corpus)
    if file == "c.jsonl" and "already used" not in message:  # also where only one passage of the file is looked up
        with pytest.raises(DataError, match=r"c\.jsonl, byte 0: "):
            CorpusFile(corpus, "corpus.out")[0]


def test_a_folder_is_read_in_the_order_of_its_file_names_and_once_finished(tmp_path: Path) -> None:
    path, corpus = write(tmp_path / "q.jsonl", [ONE]), str(tmp_path / "news")
    Path(corpus).mkdir()
    for name, text in (("part_2", "c\na\n"), ("part_1", "a\nb"), (".hidden", "d")):
        write(tmp_path / "news" / name, text)
    assert [passage.text for passage in datasets.webquestions(path, corpus=corpus).corpus] == ["a", "b", "c"]
    write(tmp_path / "news" / "part_3.part", "half")
    refused("news/part_3.part: is not finished; run the download again", datasets.webquestions, path, corpus=corpus)


def trivia(path: Path, paragraphs: list[tuple[str, str]]) -> Dataset:
    texts = [f"Document 1 (Title: {title}): {text}" for title, text in paragraphs]
    records = [ONE | {"id": index, "passages": [text]} for index, text in enumerate(texts)]
    return datasets.triviaqa(write(path, records))


def test_the_names_of_a_pool_depend_on_the_contents_and_not_on_their_order(tmp_path: Path) -> None:
    paragraphs = [("A B", "1"), ("A/B", "1"), ("A B", "2"), ("C", "3"), ("???", "4"), ("C", "3")]
    corpus = trivia(tmp_path / "1.jsonl", paragraphs).corpus
    random.Random(1).shuffle(paragraphs)
    assert set(trivia(tmp_path / "2.jsonl", paragraphs).corpus) == set(corpus)
    assert [passage.id for passage in corpus if passage.title != "A B"] == ["A_B-39ddd052605f", "C", "passage"]


def test_gold_ids_are_set_where_the_corpus_holds_all_gold_paragraphs(tmp_path: Path) -> None:
    contexts = [{"title": "T", "text": "x", "isgold": True}, {"title": "U", "text": "y", "isgold": True}]
    path = write(tmp_path / "n.jsonl", [ONE | {"ctxs": contexts}])
    lines = [{"id": "c1", "title": "U", "text": "y"}, {"id": "c2", "title": "T", "text": "x"}]
    for present, gold_ids in ((lines, ("c2", "c1")), (lines[:1], ())):
        (question,) = datasets.nq_open(path, corpus=write(tmp_path / "c.jsonl", present)).questions
        assert (question.gold_ids, question.gold_titles) == (gold_ids, ("T", "U"))


@pytest.mark.parametrize(("offset", "limit", "ids"), [(0, 1, "0"), (1, None, "12"), (1, 1, "1"), (2, 9, "2")])
def test_offset_and_limit_cut_the_questions_but_not_the_pool(
    tmp_path: Path, offset: int, limit: int | None, ids: str
) -> None:
    whole = trivia(tmp_path / "t.jsonl", [("a", "x"), ("b", "x"), ("c", "x")])
    data = cut(whole, offset=offset, limit=limit)
    assert "".join(question.id for question in data.questions) == ids
    assert (whole.selection, data.selection, data.corpus) == ("all", "offset/limit", whole.corpus)
    assert cut(whole, limit=3) == whole
    with pytest.raises(DataError, match=r"offset=3, limit=None leave none of its 3 questions"):
        cut(whole, offset=3)
