"""Indexing in a real Elasticsearch: nothing other than asked for, nothing twice, nothing lost."""

import itertools
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.config import load_config
from rag_notes.datasets.corpus import passage_line
from rag_notes.retrieval.base import RetrieverError
from rag_notes.retrieval.elastic import BM25Settings
from rag_notes.types import Passage
from tests.corpora import BIRDS, random_corpus
from tests.elastic import Secured
from tests.elastic_proxy import Forward, Proxy
from tests.indexed import ids, indexed, make, names

CHUNK = BM25Settings.chunk

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time


def test_nothing_is_created_where_the_server_refuses_the_analyzer(admin: Secured) -> None:
    before = admin.indexes()
    retriever = make(admin, BIRDS, analyzer="auto", index=next(names))  # English: this build lacks `english`
    with pytest.raises(RetrieverError, match=r"refused it: .*analyzer \[english\] has not been configured"):
        retriever.build_index(progress=False)
    assert admin.indexes() == before


def test_the_default_for_chinese_is_cjk(admin: Secured) -> None:
    retriever = make(admin, [Passage("z", "青瓷", "青瓷在窑炉中烧成，釉色青绿。")], analyzer="auto")
    with pytest.raises(RetrieverError, match=r"analyzer \[cjk\] has not been configured"):
        retriever.build_index(progress=False)


def test_a_template_of_the_server_that_changes_the_index_is_found_out(admin: Secured) -> None:
    name = next(names)
    similarity = {"similarity": {"default": {"type": "BM25", "discount_overlaps": False}}}
    template = {"index_patterns": [f"{name}-*"], "priority": 500, "template": {"settings": similarity}}
    admin.ask("PUT", f"/_index_template/{name}", template)
    try:
        with pytest.raises(
            RetrieverError, match=r"than asked for: settings.similarity.default.discount_overlaps is 'false'"
        ):
            make(admin, BIRDS, index=name).build_index(progress=False)
        assert admin.ask("GET", f"/_alias/{name}") is None
    finally:
        admin.ask("DELETE", f"/_index_template/{name}")


def test_a_corpus_that_is_not_indexed_is_not_searched_and_the_line_to_type_is_given(admin: Secured) -> None:
    retriever = make(admin, BIRDS, index="none-such", k1=0.9)
    with pytest.raises(RetrieverError, match="corpus of 4 passages is not indexed: no 'none-such'") as refusal:
        retriever.describe()
    program, command, *options = shlex.split(str(refusal.value).rpartition("of this command: ")[2])
    assert (program, command) == ("rag-notes", "index")
    config = load_config(["dataset=mini", *options])
    assert config.retriever["k1"] == 0.9
    assert config.retriever["index"] == "none-such"
    assert config.retriever["analyzer"] == "standard"
    assert config.retriever["ca_file"] == admin.ca_file
    assert config.retriever["fields"] == ["title", "text"]


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"analyzer": "simple"}, "analyzer is 'standard', wanted 'simple'"),
        ({"k1": 0.9}, "k1 is 1.2, wanted 0.9"),
        ({"b": 0.4}, "b is 0.75, wanted 0.4"),
        ({"title_weight": 2.0}, r"fields is \['title\+text'\], wanted \['title', 'text'\]"),
        ({"corpus": BIRDS[:3]}, r"its corpus has 4 passages \(sha256 .*\), wanted 3 passages"),
        ({"corpus": BIRDS[::-1]}, r"its corpus has 4 passages \(sha256 .*\), wanted 4 passages"),
    ],
)
def test_an_index_of_something_else_is_refused_with_the_difference(
    admin: Secured, settings: dict[str, Any], difference: str
) -> None:
    if admin.ask("GET", "/_alias/fixed") is None:
        indexed(admin, BIRDS, index="fixed")
    corpus = settings.pop("corpus", BIRDS)
    with pytest.raises(RetrieverError, match=difference):
        make(admin, corpus, index="fixed", **settings).search(["water"], 2)


def test_an_index_that_lost_a_passage_or_is_a_strangers_is_refused(admin: Secured) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    [index] = admin.ask("GET", f"/_alias/{name}")
    admin.ask("DELETE", f"/{index}/_doc/p2?refresh=true")
    with pytest.raises(RetrieverError, match="has 3 passages, and 4 when it was made"):
        make(admin, BIRDS, index=name).search(["water"], 2)
    alias, index = next(names), next(names)
    admin.ask("PUT", f"/{index}", {"aliases": {alias: {}}})
    with pytest.raises(RetrieverError, match="it was not made by rag-notes"):
        make(admin, BIRDS, index=alias).search(["water"], 2)
    with pytest.raises(RetrieverError, match=f"'{index}' is an index itself"):
        make(admin, BIRDS, index=index).build_index(progress=False)


def test_indexing_twice_does_nothing_and_another_version_takes_the_alias(admin: Secured) -> None:
    name = next(names)
    first, second = make(admin, BIRDS, index=name), make(admin, BIRDS[:3], index=name)
    assert "4 of them loaded now" in first.build_index(progress=False)
    [old] = admin.ask("GET", f"/_alias/{name}")
    assert "0 of them loaded now" in first.build_index(progress=False)
    assert f"{old}, which the alias named before, is kept" in second.build_index(progress=False)
    [new] = admin.ask("GET", f"/_alias/{name}")
    assert new != old
    assert {old, new} <= admin.indexes()
    assert make(admin, BIRDS[:3], index=name).describe()["corpus"]["passages"] == 3


def test_replicas_can_be_changed_later(admin: Secured) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    indexed(admin, BIRDS, index=name, replicas=1)
    [found] = admin.ask("GET", f"/{name}/_settings").values()
    assert found["settings"]["index"]["number_of_replicas"] == "1"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (Passage("p2", "Other", "text"), r"passages 2 and 5 of the corpus have the same id 'p2'"),
        (Passage("x" * 600, "Long", "text"), r"the id of passage 5 \('xxx.*'\) has 600 bytes"),
    ],
)
def test_a_passage_that_cannot_be_indexed_is_named_and_the_alias_stays(
    admin: Secured, extra: Passage, said: str
) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    before = admin.ask("GET", f"/_alias/{name}")
    with pytest.raises((ValueError, RetrieverError), match=said):
        make(admin, (*BIRDS, extra), index=name).build_index(progress=False)
    assert admin.ask("GET", f"/_alias/{name}") == before


def test_an_empty_corpus_and_one_that_changes_meanwhile_are_refused(admin: Secured) -> None:
    class Growing(list[Passage]):
        def __iter__(self) -> Iterator[Passage]:
            self.append(Passage(f"new{len(self)}", "", "more"))
            return super().__iter__()

    with pytest.raises(ValueError, match="corpus is empty"):
        make(admin, [], index=next(names)).build_index(progress=False)
    name = next(names)
    with pytest.raises(ValueError, match="corpus changed while it was indexed"):
        make(admin, Growing(BIRDS), index=name).build_index(progress=False)
    assert admin.ask("GET", f"/_alias/{name}") is None


def test_back_pressure_is_obeyed_and_counted(admin: Secured) -> None:
    """The first bulk request is answered 429; of the second one the last two passages are."""
    busy = {"type": "es_rejected_execution_exception", "reason": "queue is full"}
    bulks = itertools.count()

    def full(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        number = next(bulks) if path.split("?", maxsplit=1)[0].endswith("_bulk") else None
        if number == 0:
            return 429, json.dumps({"error": busy, "status": 429}).encode()
        if number == 1:
            kept = body.splitlines(keepends=True)[:-4]
            status, answer = forward(b"".join(kept))
            items = json.loads(answer)["items"] + 2 * [{"create": {"status": 429, "error": busy}}]
            return status, json.dumps({"items": items}).encode()
        return forward(body)

    with Proxy(full, admin) as proxy:
        retriever = make(admin, BIRDS, hosts=[proxy.url], index=next(names))
        said = retriever.build_index(progress=False)
        assert "4 of them loaded now, 6 times something was sent again" in said
        assert retriever.retries == 6  # the four of the first request, the two of the second one
        assert len(proxy.sent("_bulk")) == 3
        assert ids(retriever.search(["water"], 5)[0]) == ["p1", "p2"]


def test_back_pressure_without_end_is_an_error_with_the_reason(admin: Secured) -> None:
    busy = json.dumps({"error": {"type": "es_rejected", "reason": "queue is full"}, "status": 429}).encode()

    def full(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        return (429, busy) if path.split("?", maxsplit=1)[0].endswith("_bulk") else forward(body)

    with Proxy(full, admin) as proxy:
        retriever = make(admin, BIRDS, hosts=[proxy.url], index=next(names), max_retries=2)
        with pytest.raises(
            RetrieverError, match=r"failed 3 times in a row \(status 429: queue is full\); the same command"
        ):
            retriever.build_index(progress=False)


def test_a_killed_load_continues_and_gives_the_same_index(admin: Secured, tmp_path: Path) -> None:
    """The process dies while the server has half of the third chunk and has not answered yet."""
    corpus = [passage for passage in random_corpus(5 * CHUNK, seed=3) if passage.text][: 3 * CHUNK + 400]
    (tmp_path / "corpus.jsonl").write_text("".join(map(passage_line, corpus)), encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text('{"id": "q", "question": "v w?"}\n', encoding="utf-8")
    bulks = itertools.count(1)
    under_way, over = threading.Event(), threading.Event()

    def cut(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        if path.split("?", maxsplit=1)[0].endswith("_bulk") and next(bulks) == 3:
            forward(b"".join(body.splitlines(keepends=True)[:CHUNK]))
            under_way.set()
            over.wait()
        return forward(body)

    name = next(names)
    with Proxy(cut, admin) as proxy:
        options = [
            "dataset=plain",
            f"dataset.plain.path={tmp_path / 'questions.jsonl'}",
            f"dataset.plain.corpus={tmp_path / 'corpus.jsonl'}",
            "retriever=elasticsearch",
            f"retriever.hosts=[{proxy.url}]",
            "retriever.analyzer=standard",
            "retriever.replicas=0",
            f"retriever.index={name}",
        ]
        code = "import sys; from rag_notes.cli import main; sys.exit(main(sys.argv[1:]))"
        process = subprocess.Popen([sys.executable, "-c", code, "index", *options], stderr=subprocess.DEVNULL)
        while not under_way.wait(timeout=1):
            assert process.poll() is None, "the command ended by itself"
        process.kill()
        process.wait()
        assert admin.ask("GET", f"/_alias/{name}") is None
        assert main(["index", *options]) == 0
        over.set()
        assert len(proxy.sent("_bulk")) == 5  # three of the killed process, the third again, and the last one
    resumed, undisturbed = make(admin, corpus, index=name), indexed(admin, corpus)
    [found] = admin.ask("GET", f"/{name}/_stats/docs")["indices"].values()
    assert found["total"]["docs"] | {"total_size_in_bytes": 0} == {
        "count": len(corpus),
        "deleted": 0,
        "total_size_in_bytes": 0,
    }
    queries = ["v w", "x", "y z z"]
    assert resumed.search(queries, 50) == undisturbed.search(queries, 50)
