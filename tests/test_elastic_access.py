"""Who may use an Elasticsearch, and what is said where it is another server or none."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rag_notes import datasets
from rag_notes.cli import main
from rag_notes.datasets.corpus import CorpusFile, passage_line
from rag_notes.retrieval.base import RetrieverError
from rag_notes.retrieval.elastic import elasticsearch
from tests.corpora import BIRDS
from tests.elastic import Secured, free_port, make_authority
from tests.elastic_proxy import Proxy
from tests.indexed import ids, indexed, make, names

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time


def test_a_wrong_password_is_an_error_that_does_not_tell_it(admin: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", "swordfish-3")
    with pytest.raises(RetrieverError, match="refused the user and password in ELASTICSEARCH_USER and") as refusal:
        make(admin, BIRDS, index="none").describe()
    assert "swordfish" not in str(refusal.value)
    monkeypatch.delenv("ELASTICSEARCH_USER")
    monkeypatch.delenv("ELASTICSEARCH_PASSWORD")
    with pytest.raises(RetrieverError, match="refused a request without a key: set ELASTICSEARCH_API_KEY, or"):
        make(admin, BIRDS, index="none").describe()


def test_one_who_may_only_read_searches_and_does_not_index(admin: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    monkeypatch.setenv("READER", admin.reader[0])
    monkeypatch.setenv("READERS_WORD", admin.reader[1])
    settings = {"user_variable": "READER", "password_variable": "READERS_WORD"}
    assert ids(make(admin, BIRDS, index=name, **settings).search(["acorns"], 1)[0]) == ["p3"]
    with pytest.raises(RetrieverError, match="does not allow this to the user and password in READER and READERS_WORD"):
        make(admin, BIRDS, index=next(names), **settings).build_index(progress=False)


def test_an_api_key_is_sent_and_told_to_nobody(admin: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """This server repeats the header, as a careless one would; real keys are in test_elastic_complete.py."""
    monkeypatch.delenv("ELASTICSEARCH_USER")
    monkeypatch.delenv("ELASTICSEARCH_PASSWORD")
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", "c2VjcmV0OmtleQ==")
    reason = {"reason": "not this one: ApiKey c2VjcmV0OmtleQ=="}
    with Proxy(lambda *_: (401, json.dumps({"error": reason, "status": 401}).encode())) as proxy:
        with pytest.raises(RetrieverError, match="refused the API key in ELASTICSEARCH_API_KEY") as refusal:
            make(admin, BIRDS, hosts=[proxy.url]).describe()
        assert proxy.keys[0] == "ApiKey c2VjcmV0OmtleQ=="
    assert "c2VjcmV0OmtleQ" not in str(refusal.value)


def test_a_certificate_is_checked(admin: Secured, tmp_path: Path) -> None:
    other = make_authority(tmp_path, "other")
    for ca_file in (None, str(other.file)):
        with pytest.raises(RetrieverError, match=r"certificate is not trusted .*retriever.ca_file"):
            make(admin, BIRDS, ca_file=ca_file).describe()
    with pytest.raises(ValueError, match=r"retriever.ca_file=.*none.pem: no such file"):
        make(admin, BIRDS, ca_file=str(tmp_path / "none.pem"))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ELASTICSEARCH_API_KEY": "secret-key"}, "both ELASTICSEARCH_API_KEY and ELASTICSEARCH_USER are set"),
        (
            {"ELASTICSEARCH_PASSWORD": ""},
            "set both environment variables ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD",
        ),
    ],
)
def test_keys_that_contradict_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_USER", "someone")
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", "secret-word")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said) as refusal:
        elasticsearch(BIRDS)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ([], "retriever.hosts is empty"),
        (["127.0.0.1:9200"], r"retriever.hosts\[0\] is '127.0.0.1:9200'; expected for example http://127.0.0.1:9200"),
        (["http://127.0.0.1"], r"retriever.hosts\[0\] is 'http://127.0.0.1'"),
        (["http://127.0.0.1:x"], r"retriever.hosts\[0\] is 'http://127.0.0.1:x'"),
        (["http://a:1", "https://me:secret@b:1"], r"retriever.hosts\[1\] has a user or password in it"),
    ],
)
def test_hosts_that_cannot_be_are_refused(hosts: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refusal:
        elasticsearch(BIRDS, hosts=hosts)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fields": ["text"], "title_weight": 2.0}, r"title_weight=2.0 needs retriever.fields=\[title,text\]"),
        ({"fields": ["text", "text"]}, r"retriever.fields is \['text', 'text'\]; expected title, text or both"),
        ({"ca_file": __file__}, "retriever.ca_file is for https, and retriever.hosts has http://127.0.0.1:9200"),
        ({"fields": []}, r"retriever.fields is \[\]"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        elasticsearch(BIRDS, **settings)


# any server: these need no real one


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            200,
            b'{"nodes": {"a": {"version": "9.0.1"}, "b": {"version": "8.19.0"}}}',
            r"is version 8\.19\.0, the client .* 9\.",
        ),
        (200, b'{"nodes": []}', "answers, but not as Elasticsearch does"),
        (200, b'{"nodes": ', "does not answer as Elasticsearch"),
        (404, b'{"error": "no handler"}', "refused it: no handler"),
        (500, b'{"error": {"reason": "out of memory"}}', r"failed 3 times in a row \(status 500: out of memory\)"),
    ],
)
def test_a_server_of_another_kind_is_an_error_that_says_so(status: int, body: bytes, said: str) -> None:
    with Proxy(lambda *_: (status, body)) as proxy:
        retriever = elasticsearch(BIRDS, hosts=[proxy.url], max_retries=2)
        with pytest.raises(RetrieverError, match=said):
            retriever.describe()
        with pytest.raises(RetrieverError, match=said):
            retriever.build_index(progress=False)


def test_nobody_there_is_said_at_once_and_one_dead_host_of_two_does_no_harm() -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RetrieverError, match=f"nobody answers at {gone} .*is the Elasticsearch server running"):
        elasticsearch(BIRDS, hosts=[gone]).describe()
    with Proxy(lambda *_: (200, b'{"nodes": {"a": {"version": "8.1.0"}}}')) as other:
        for hosts in ([gone, other.url], [other.url, gone]):
            with pytest.raises(RetrieverError, match=r"is version 8\.1\.0"):
                elasticsearch(BIRDS, hosts=hosts).describe()


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "dataset=mini", "retriever=dense"]) == 2
    assert "indexes a corpus by itself on first use" in capsys.readouterr().err
    gone = f"http://127.0.0.1:{free_port()}"
    assert main(["index", "dataset=mini", "retriever=elasticsearch", f"retriever.hosts=[{gone}]"]) == 2
    assert f"rag-notes: nobody answers at {gone}" in capsys.readouterr().err


def test_a_corpus_file_is_read_as_it_is_iterated(tmp_path: Path) -> None:
    """It is the data set's corpus, again each time, and no line before it is asked for."""
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(map(passage_line, BIRDS)) + "broken\n", encoding="utf-8")
    corpus = CorpusFile(str(path), "dataset.mine.corpus")
    for _ in range(2):
        assert tuple(itertools.islice(corpus, len(BIRDS))) == BIRDS
    with pytest.raises(datasets.DataError, match=r"corpus.jsonl, line 5: JSON is malformed"):
        list(corpus)
