"""An Elasticsearch with the analyzers of a released one, which are our defaults, and with API keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.retrieval.base import RetrieverError
from rag_notes.types import Passage
from tests.corpora import BIRDS
from tests.elastic import Secured, UnavailableError, secured_node, unavailable
from tests.indexed import ids, indexed, make, names

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time

READING: dict[str, Any] = {
    "cluster": ["monitor"],
    "indices": [{"names": ["*"], "privileges": ["read", "view_index_metadata"]}],
}
INDEXING: dict[str, Any] = {
    "cluster": ["monitor"],
    "indices": [{"names": ["*"], "privileges": ["read", "view_index_metadata", "manage", "create_doc"]}],
}


@pytest.fixture(scope="module")
def complete() -> Iterator[Secured]:
    try:
        with secured_node(complete=True) as node:
            yield node
    except UnavailableError as error:
        unavailable(str(error))


@pytest.fixture
def keyless(complete: Secured, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """The server, with nothing in the environment that it knows."""
    for name in ("ELASTICSEARCH_API_KEY", "ELASTICSEARCH_USER", "ELASTICSEARCH_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return complete


def new_key(server: Secured, name: str, rights: dict[str, Any]) -> str:
    """An API key with these rights, as it goes into the environment."""
    made = server.ask("POST", "/_security/api_key", {"name": name, "role_descriptors": {name: rights}})
    return str(made["encoded"])


def test_an_api_key_indexes_and_searches_with_the_privileges_that_the_errors_name(
    keyless: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(names)
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", new_key(keyless, "indexing", INDEXING))
    indexed(keyless, BIRDS, index=name)
    monkeypatch.setenv("READERS_KEY", new_key(keyless, "reading", READING))
    monkeypatch.delenv("ELASTICSEARCH_API_KEY")
    reader = make(keyless, BIRDS, index=name, api_key_variable="READERS_KEY")
    assert ids(reader.search(["acorns"], 1)[0]) == ["p3"]
    with pytest.raises(RetrieverError, match=r"does not allow this to the API key in READERS_KEY .*indexing `manage`"):
        make(keyless, BIRDS, index=next(names), api_key_variable="READERS_KEY").build_index(progress=False)


def test_a_key_that_is_withdrawn_is_refused_and_told_to_nobody(
    keyless: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, key = next(names), new_key(keyless, "withdrawn", INDEXING)
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", key)
    assert ids(indexed(keyless, BIRDS, index=name).search(["acorns"], 1)[0]) == ["p3"]
    keyless.ask("DELETE", "/_security/api_key", {"name": "withdrawn"})
    for refused in (key, key[:-4], "no key"):
        monkeypatch.setenv("ELASTICSEARCH_API_KEY", refused)
        with pytest.raises(RetrieverError, match="refused the API key in ELASTICSEARCH_API_KEY") as refusal:
            make(keyless, BIRDS, index=name).describe()
        assert refused not in str(refusal.value)


def test_the_default_for_english_finds_other_forms_of_a_word_and_no_stop_words(
    keyless: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", new_key(keyless, "english", INDEXING))
    retriever = indexed(keyless, BIRDS, analyzer="auto")
    assert retriever.describe()["analyzer"] == "english"
    found, none = retriever.search(["hiding an acorn", "the of and"], 2)
    assert (ids(found), none) == (["p3"], [])
    plain = indexed(keyless, BIRDS, analyzer="standard")
    found, some = plain.search(["hiding an acorn", "the of and"], 2)
    assert found == []
    assert some != []


def test_the_default_for_chinese_finds_two_characters_that_stand_together(
    keyless: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", new_key(keyless, "cjk", INDEXING))
    corpus = [Passage("a", "青瓷", "青瓷在窑炉中烧成，釉色青绿。"), Passage("b", "潮汐", "月亮的引力使海水涨落。")]
    retriever = indexed(keyless, corpus, analyzer="auto")
    assert retriever.describe()["analyzer"] == "cjk"
    assert [ids(hits) for hits in retriever.search(["引力", "窑炉"], 2)] == [["b"], ["a"]]
    assert retriever.search(["炉窑"], 2) == [[]]


def test_a_prepared_corpus_is_indexed_and_searched_by_the_data_set_that_names_it(
    keyless: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", new_key(keyless, "prepared", INDEXING))
    raw, out, questions = tmp_path / "psgs_w100.tsv", tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    lines = ["id\ttext\ttitle", "1\tHerons wade.\tHeron", "2\tOaks drop acorns.\tOak"]
    raw.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    questions.write_text('{"id": "q", "question": "Which acorn dropped?", "gold_ids": ["2"]}\n', encoding="utf-8")
    where = [f"retriever.hosts=[{keyless.url}]", f"retriever.ca_file={keyless.ca_file}"]
    server = ["retriever=elasticsearch", *where]
    corpus = ["corpus=wikipedia_2018", f"corpus.out={out}"]
    assert main(["index", *corpus, *server, f"corpus.path={raw}.gz"]) == 2
    assert f"{raw}.gz: no such file" in capsys.readouterr().err
    assert main(["index", *corpus, *server, "dataset=mini"]) == 2
    assert "corpus=... or dataset=..." in capsys.readouterr().err
    assert main(["index", *corpus, *server, f"corpus.path={raw}", "retriever.replicas=0"]) == 0
    data = ["dataset=plain", f"dataset.plain.path={questions}", f"dataset.plain.corpus={out}"]
    capsys.readouterr()
    assert main(["retrieval", *data, "--top-k", "1", "--retriever", " ".join(["elasticsearch", *where])]) == 0
    assert "| 100.0 [20.7, 100.0] | 1 |" in capsys.readouterr().out
