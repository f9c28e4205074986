"""BM25 and kNN in a real Elasticsearch: rankings, the index and its alias, faults, and who may do what."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rag_notes.datasets as datasets
from rag_notes.cli import main
from rag_notes.config import build_datasets, build_retriever, load_config
from rag_notes.datasets.corpus import passage_line
from rag_notes.retrieval.base import RetrieverError, measure
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.elastic import ElasticsearchBM25, ElasticsearchKNN
from rag_notes.types import Passage
from tests.corpora import BIRDS, CHINESE, ids, plain_bm25, plain_words, random_corpus
from tests.elastic import Secured, free_port, make_certificate
from tests.elastic_proxy import Forward, Proxy
from tests.embeddings import EmbeddingServer
from tests.encoding import WordEncoder
from tests.samples import samples

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time

CHUNK = ElasticsearchBM25.chunk
names = (f"test-{os.getpid()}-{number}" for number in itertools.count())


def make(server: Secured, corpus: Sequence[Passage], kind: str = "bm25", **settings: Any) -> Any:
    """A retriever over `corpus` that is not indexed."""
    host = {} if "hosts" in settings else {"hosts": [server.url], "ca_file": server.ca_file}
    common: dict[str, Any] = {"index": next(names), "replicas": 0} | host
    if kind == "bm25":
        return ElasticsearchBM25(corpus, **common | {"analyzer": "standard"} | settings)
    return ElasticsearchKNN(corpus, **common | {"encoder": WordEncoder(), "batch_size": 8} | settings)


def indexed(server: Secured, corpus: Sequence[Passage], kind: str = "bm25", **settings: Any) -> Any:
    retriever = make(server, corpus, kind, **settings)
    retriever.build_index(progress=False)
    return retriever


# BM25


@pytest.mark.parametrize(("k1", "b", "shards"), [(1.2, 0.75, 1), (0.9, 0.4, 3)])
def test_scores_are_those_of_an_independent_bm25(admin: Secured, k1: float, b: float, shards: int) -> None:
    corpus, queries = random_corpus(60, seed=1), ["v", "w x", "z z y", "x unknown v"]
    documents = [plain_words(f"{passage.title} {passage.text}") for passage in corpus]
    rankings = indexed(admin, corpus, k1=k1, b=b, shards=shards).search(queries, 25)
    for query, hits in zip(queries, rankings, strict=True):
        scores = [round((k1 + 1) * score, 5) for score in plain_bm25(documents, query.split(), k1, b)]
        expected = sorted((-score, one.id) for one, score in zip(corpus, scores, strict=True) if score)[:25]
        assert ids(hits) == [name for _, name in expected]
        assert [hit.score for hit in hits] == pytest.approx([-score for score, _ in expected], rel=1e-4)
        assert {hit.passage for hit in hits} <= set(corpus)


def test_the_score_of_a_title_is_weighted_and_fields_are_chosen(admin: Secured) -> None:
    corpus = [passage for passage in random_corpus(40, seed=2) if passage.text]
    (hits,) = indexed(admin, corpus, title_weight=3.0).search(["x v"], 40)
    titles = plain_bm25([plain_words(passage.title) for passage in corpus], ["x", "v"])
    texts = plain_bm25([plain_words(passage.text) for passage in corpus], ["x", "v"])
    parts = zip(corpus, titles, texts, strict=True)
    scores = {passage.id: 2.2 * (3 * title + text) for passage, title, text in parts if title or text}
    assert {hit.passage.id: hit.score for hit in hits} == pytest.approx(scores, rel=1e-4)
    text_alone = indexed(admin, BIRDS, fields=["text"])
    assert [ids(hits) for hits in text_alone.search(["kingfisher", "oak", "acorns"], 5)] == [["p2"], [], ["p3"]]


def test_the_default_agrees_with_embedded_bm25_on_real_questions_and_knows_chinese(admin: Secured) -> None:
    chinese = indexed(admin, CHINESE, analyzer="auto")  # two characters that stand together are a term
    assert chinese.describe()["analyzer"] == "cjk"
    assert [ids(hits) for hits in chinese.search(["青绿", "大运", "绿青"], 2)] == [["z1"], ["z2"], []]
    data = datasets.hotpotqa(str(min(samples("hotpotqa").glob("*.json"))))
    questions = [question.question for question in data.questions]
    embedded = bm25(data.corpus, cache=None).search(questions, 5)
    server = indexed(admin, data.corpus, analyzer="auto", shards=2)
    assert server.describe()["analyzer"] == "english"
    pairs = list(zip(embedded, server.search(questions, 5), strict=True))
    assert sum(a[0].passage == b[0].passage for a, b in pairs) > 0.98 * len(questions)
    assert sum(set(ids(a)) == set(ids(b)) for a, b in pairs) > 0.9 * len(questions)


def test_a_search_that_cannot_be_is_refused_and_a_description_says_what_decides_the_ranking(admin: Secured) -> None:
    retriever = indexed(admin, BIRDS, k1=0.9, title_weight=2.0, index=(name := next(names)))
    assert retriever.search([], 3) == []
    with pytest.raises(ValueError, match=r"refused the search: .*window is too large"):
        retriever.search(["water"], 100_000)
    described = retriever.describe()
    assert described.pop("index").startswith(f"{name}-")
    settings = {"analyzer": "standard", "k1": 0.9, "b": 0.75, "fields": ["title", "text"], "title_weight": 2.0}
    corpus = {"passages": 4, "sha256": measure(BIRDS).sha256}
    assert described == {"name": "elasticsearch", **settings, "server": "9.2.4", "corpus": corpus}


# kNN


def passages(size: int) -> list[Passage]:
    """Passages of 3 to 12 words, no two of the same words, with ids in no order."""
    words = [start + end for start in "bdfghk" for end in ("an", "el", "in", "or", "um", "ash", "eck", "ill")]
    rng = np.random.default_rng(size)
    names = rng.permutation(10 * size)[:size].tolist()
    texts = [f"number{name} " + " ".join(rng.choice(words, rng.integers(2, 12))) for name in names]
    return [Passage(f"d{name}", str(rng.choice(words)), text) for name, text in zip(names, texts, strict=True)]


def test_inner_products_are_those_of_dense_retrieval(admin: Secured, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="dense retrieval needs the extra `dense`")
    from rag_notes.retrieval.dense import DenseRetriever  # noqa: PLC0415

    corpus, encoder = passages(200), WordEncoder(normalize=False)
    queries = ["ban del fin", "hum", "gash keck", "dor dor bill kan", "unknown"]
    expected = DenseRetriever(corpus, encoder=encoder, batch_size=8, cache=str(tmp_path)).search(queries, 60)
    retriever = indexed(admin, corpus, "knn", encoder=encoder, index_type="flat", shards=2)
    for hits, ranking in zip(retriever.search(queries, 60), expected, strict=True):
        assert ids(hits) == ids(ranking)
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in ranking], rel=1e-5, abs=1e-5)
        assert {hit.passage for hit in hits} <= set(corpus)
    assert min(hit.score for hit in retriever.search(["ban"], 200)[0]) < 0  # the server's own scores are positive


def test_approximate_search_finds_most_and_ties_are_in_the_order_of_the_ids(admin: Secured) -> None:
    corpus, name = passages(900), next(names)
    queries = [passage.text for passage in corpus[:300]]  # more than a request takes
    exact = indexed(admin, corpus, "knn", index_type="flat").search(queries, 10)
    recalls = []
    for candidates in (10, 200):
        retriever = indexed(admin, corpus, "knn", index=name, m=4, ef_construction=20, candidates=candidates)
        pairs = zip(retriever.search(queries, 10), exact, strict=True)
        recalls.append(sum(len(set(ids(hits)) & set(ids(ranking))) for hits, ranking in pairs) / 3000)
    assert 0.5 < recalls[0] <= recalls[1]
    assert recalls[1] > 0.95
    tied = [Passage(f"p{number:03}", "", "ban del") for number in np.random.default_rng(0).permutation(150)]
    ties = indexed(admin, [*tied, *passages(20)], "knn", shards=2)
    assert ids(ties.search(["ban del"], 7)[0]) == [f"p{number:03}" for number in range(7)]


def test_knn_is_indexed_and_searched_from_options(admin: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["dataset=mini", "retriever=elasticsearch_knn", "retriever/encoder=embeddings_api"]
    options += [f"retriever.hosts=[{admin.url}]", f"retriever.ca_file={admin.ca_file}", "retriever.replicas=0"]
    with EmbeddingServer() as endpoint:
        options += [f"retriever.encoder.base_url={endpoint.base_url}", "retriever.index_type=flat"]
        options += ["retriever.encoder.api_key_variable=NO_SUCH_KEY", f"retriever.index={next(names)}"]
        assert main(["index", *options]) == 0
        assert ": 297 passages" in capsys.readouterr().out
        (dataset,) = build_datasets(config := load_config(options))
        passage = dataset.corpus[3]
        (hits,) = build_retriever(config, dataset.corpus).search([f"{passage.title}\n{passage.text}"], 5)
    assert hits[0].passage == passage


# the index


@pytest.mark.parametrize(
    ("kind", "settings", "difference"),
    [
        ("bm25", {"k1": 0.9}, "k1 is 1.2, expected 0.9"),
        ("bm25", {"corpus": BIRDS[:3]}, "passages is 4, expected 3"),
        ("bm25", {"kind": "knn"}, "retriever is elasticsearch, expected elasticsearch_knn"),
        ("knn", {"encoder": WordEncoder(model="other")}, "encoder is .*'words'.*, expected .*'other'"),
    ],
)
def test_another_index_is_refused(admin: Secured, kind: str, settings: dict[str, Any], difference: str) -> None:
    if admin.ask("GET", f"/_alias/fixed-{kind}") is None:
        indexed(admin, BIRDS, kind, index=f"fixed-{kind}")
    other: dict[str, Any] = {"corpus": BIRDS, "kind": kind, "index": f"fixed-{kind}"} | settings
    with pytest.raises(RetrieverError, match=rf"is another index: (.*; )?{difference}.*`rag-notes index retriever="):
        make(admin, **other).search(["water"], 2)
    if kind == "knn":  # what only a search depends on can change
        changed = {"encoder": WordEncoder(instruction="find: "), "candidates": 7}
        assert make(admin, BIRDS, "knn", index="fixed-knn", **changed).search(["water"], 2)


def test_an_index_that_is_missing_lost_a_passage_or_is_a_strangers_is_refused(admin: Secured) -> None:
    name, stranger = next(names), next(names)
    with pytest.raises(RetrieverError, match=r"the corpus is not indexed: .*type `rag-notes index"):
        make(admin, BIRDS, index=name).describe()
    retriever = indexed(admin, BIRDS, index=name)
    assert retriever.search(["water"], 1)
    [index] = admin.ask("GET", f"/_alias/{name}")
    admin.ask("DELETE", f"/{index}/_doc/p2?refresh=true")
    with pytest.raises(RetrieverError, match="has 3 of 4 passages; delete it"):
        make(admin, BIRDS, index=name).search(["water"], 2)
    admin.ask("DELETE", f"/{index}")
    with pytest.raises(RetrieverError, match=r"refused the search: .*no such index"):
        retriever.search(["water"], 1)
    admin.ask("PUT", f"/{stranger}", {"aliases": {name: {}}})
    with pytest.raises(RetrieverError, match="retriever is None, expected elasticsearch"):
        make(admin, BIRDS, index=name).search(["water"], 2)
    with pytest.raises(RetrieverError, match=f"'{stranger}' is an index, not an alias"):
        indexed(admin, BIRDS, index=stranger)


def test_indexing_twice_does_nothing_and_another_version_takes_the_alias(admin: Secured) -> None:
    name = next(names)
    assert "4 of them loaded now" in make(admin, BIRDS, index=name).build_index(progress=False)
    [former] = admin.ask("GET", f"/_alias/{name}")
    assert "0 of them loaded now" in make(admin, BIRDS, index=name, replicas=1).build_index(progress=False)
    [settings] = admin.ask("GET", f"/{name}/_settings").values()
    assert settings["settings"]["index"]["number_of_replicas"] == "1"
    assert indexed(admin, BIRDS[:3], index=name).describe()["corpus"]["passages"] == 3
    [index] = admin.ask("GET", f"/_alias/{name}")
    assert index != former
    assert {former, index} <= set(admin.ask("GET", f"/{name}-*"))


@pytest.mark.parametrize(
    ("corpus", "settings", "message"),
    [
        ((*BIRDS, BIRDS[1]), {}, "the passage id 'p2' is already used"),
        ((*BIRDS, Passage("x" * 600, "Long", "text")), {}, r"id \[xxx.* is too long"),
        (BIRDS[:2], {"analyzer": "nosuch"}, r"refused the index: .*analyzer \[nosuch\] has not been configured"),
    ],
)
def test_a_corpus_that_is_refused_leaves_the_alias(admin: Secured, corpus: Any, settings: Any, message: str) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    before = admin.ask("GET", f"/_alias/{name}")
    with pytest.raises((ValueError, RetrieverError), match=message):
        indexed(admin, corpus, index=name, **settings)
    assert admin.ask("GET", f"/_alias/{name}") == before


def test_a_killed_load_continues_and_gives_the_same_index(admin: Secured, tmp_path: Path) -> None:
    """The process dies while the server has half of the third chunk and has not answered yet."""
    corpus = [passage for passage in random_corpus(5 * CHUNK, seed=3) if passage.text][: 3 * CHUNK + 100]
    path, questions, name = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl", next(names)
    path.write_text("".join(map(passage_line, corpus)), encoding="utf-8")
    questions.write_text('{"id": "q", "question": "v w?"}\n', encoding="utf-8")
    bulks, under_way, over = itertools.count(1), threading.Event(), threading.Event()

    def cut(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        if "_bulk" in path and next(bulks) == 3:
            forward(b"".join(body.splitlines(keepends=True)[:CHUNK]))  # two lines a passage
            under_way.set()
            over.wait()
        return forward(body)

    with Proxy(cut, admin) as proxy:
        command = ["index", "dataset=plain", f"dataset.plain.path={questions}", f"dataset.plain.corpus={path}"]
        command += ["retriever=elasticsearch", f"retriever.hosts=[{proxy.url}]", "retriever.analyzer=standard"]
        command += [f"retriever.index={name}", "retriever.replicas=0"]
        code = "import sys; from rag_notes.cli import main; sys.exit(main(sys.argv[1:]))"
        process = subprocess.Popen([sys.executable, "-c", code, *command], stderr=subprocess.DEVNULL)
        while not under_way.wait(timeout=1):
            assert process.poll() is None, "the command ended by itself"
        process.kill()
        process.wait()
        assert admin.ask("GET", f"/_alias/{name}") is None
        assert main(command) == 0
        over.set()
        assert len(proxy.sent("_bulk")) == 5  # three of the killed process, the third again, and the last one
    [stats] = admin.ask("GET", f"/{name}/_stats/docs")["indices"].values()
    assert (stats["total"]["docs"]["count"], stats["total"]["docs"]["deleted"]) == (len(corpus), 0)
    queries = ["v w", "x", "y z z"]
    assert make(admin, corpus, index=name).search(queries, 50) == indexed(admin, corpus).search(queries, 50)


# faults


def test_passages_that_a_busy_server_refuses_are_sent_again(admin: Secured) -> None:
    error = {"type": "es_rejected_execution_exception", "reason": "queue is full"}
    refusals = iter(["request", "two passages"])

    def meddle(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        refusal = next(refusals, None) if "_bulk" in path else None
        if refusal is None:
            return forward(body)
        if refusal == "request":
            return 429, json.dumps({"error": error, "status": 429}).encode()
        status, answer = forward(b"".join(body.splitlines(keepends=True)[:-4]))
        items = json.loads(answer)["items"] + 2 * [{"create": {"status": 429, "error": error}}]
        return status, json.dumps({"errors": True, "items": items}).encode()

    with Proxy(meddle, admin) as proxy:
        retriever = indexed(admin, BIRDS, hosts=[proxy.url])
        assert len(proxy.sent("_bulk")) == 3
        assert ids(retriever.search(["water"], 5)[0]) == ["p1", "p2"]
        refusals = itertools.repeat("request")
        with pytest.raises(RetrieverError, match=r"es_rej.*same command goes on"):
            indexed(admin, BIRDS, hosts=[proxy.url], max_retries=1)


@pytest.mark.parametrize(
    "partial",
    [
        {"_shards": {"total": 2, "successful": 1, "failed": 1}, "hits": {"hits": []}, "timed_out": False},
        {"_shards": {"total": 2, "successful": 2, "failed": 0}, "hits": {"hits": []}, "timed_out": True},
        {"status": 503, "error": {"type": "search_phase_execution_exception", "reason": "a node left"}},
    ],
)
def test_a_partial_answer_is_asked_for_again_and_never_a_short_list(admin: Secured, partial: Any) -> None:
    remaining = 2

    def meddle(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        nonlocal remaining
        status, answer = forward(body)
        if path.endswith("_msearch") and remaining:
            remaining -= 1
            value = json.loads(answer)
            answer = json.dumps(value | {"responses": [partial, *value["responses"][1:]]}).encode()
        return status, answer

    name, queries = next(names), ["water", "acorns"]
    expected = indexed(admin, BIRDS, index=name, shards=2).search(queries, 3)
    with Proxy(meddle, admin) as proxy:
        assert make(admin, BIRDS, index=name, hosts=[proxy.url]).search(queries, 3) == expected
        assert [body.count(b'"sort"') for body in proxy.sent("_msearch")] == [2, 1, 1]
        remaining = 9
        with pytest.raises(RetrieverError, match="gave no whole answer 2 times"):
            make(admin, BIRDS, index=name, hosts=[proxy.url], max_retries=1).search(queries, 3)


def test_a_server_killed_while_loading_and_searching_loses_nothing(admin: Secured) -> None:
    corpus = [passage for passage in random_corpus(4 * CHUNK, seed=5) if passage.text]
    name, bulks = next(names), itertools.count(1)
    expected = indexed(admin, corpus).search(["v w", "x"], 50)

    def kill_server(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        if "_bulk" in path and next(bulks) == 2:
            admin.node.kill()
        try:
            return forward(body)
        except OSError:
            return 503, b'{"error": {"reason": "gone"}, "status": 503}'

    with Proxy(kill_server, admin) as proxy:
        with pytest.raises(RetrieverError, match="once the server is well, the same command goes on"):
            indexed(admin, corpus, index=name, hosts=[proxy.url], max_retries=1)
        admin.start()
        retriever = make(admin, corpus, index=name, hosts=[proxy.url], max_retries=1)
        assert f"{len(corpus) - CHUNK} of them loaded now" in retriever.build_index(progress=False)
        assert retriever.search(["v w", "x"], 50) == expected
        admin.node.kill()
        with pytest.raises(RetrieverError, match="gone"):
            retriever.search(["v w", "x"], 50)
        admin.start()
        assert retriever.search(["v w", "x"], 50) == expected


# access


def test_users_and_keys_can_do_what_they_may(admin: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    def new_key(*privileges: str) -> str:
        indices = [{"names": ["*"], "privileges": ["read", "view_index_metadata", *privileges]}]
        roles = {"role": {"cluster": ["monitor"], "indices": indices}}
        return str(admin.ask("POST", "/_security/api_key", {"name": name, "role_descriptors": roles})["encoded"])

    name = next(names)
    reader, indexer = new_key(), new_key("manage", "create_doc")
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", "swordfish-3")
    with pytest.raises(RetrieverError, match="see ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USER and") as refusal:
        make(admin, BIRDS, index=name).describe()
    assert "swordfish" not in str(refusal.value)
    monkeypatch.delenv("ELASTICSEARCH_USER")
    monkeypatch.delenv("ELASTICSEARCH_PASSWORD")
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", indexer)
    indexed(admin, BIRDS, index=name)
    monkeypatch.setenv("READERS_KEY", reader)
    assert ids(make(admin, BIRDS, index=name, api_key_variable="READERS_KEY").search(["acorns"], 1)[0]) == ["p3"]
    with pytest.raises(RetrieverError, match=r"unauthorized.*see READERS_KEY, or ELASTICSEARCH_USER and") as refusal:
        indexed(admin, BIRDS, api_key_variable="READERS_KEY")
    assert reader not in str(refusal.value)


def test_a_certificate_is_checked(admin: Secured, tmp_path: Path) -> None:
    for ca_file in (None, str(make_certificate(tmp_path, "other")[1])):
        with pytest.raises(RetrieverError, match=r"(?i)certificate.*see retriever.hosts and ca_file"):
            make(admin, BIRDS, ca_file=ca_file).describe()


@pytest.mark.parametrize(
    ("settings", "variables", "message"),
    [
        ({}, {"ELASTICSEARCH_API_KEY": "secret-key"}, "set ELASTICSEARCH_API_KEY, or both ELASTICSEARCH_USER and"),
        ({}, {"ELASTICSEARCH_PASSWORD": ""}, "set ELASTICSEARCH_API_KEY, or both ELASTICSEARCH_USER and"),
        ({"hosts": ["http://127.0.0.1"]}, {}, "retriever.hosts=.*127.0.0.1"),
        ({"ca_file": "none.pem"}, {}, r"ca_file=.*none.pem"),
        ({"hosts": ["http://a:1", "https://me:secret@b:1"]}, {}, "retriever.hosts has a password in it"),
        ({"fields": ["text"], "title_weight": 2.0}, {}, "title_weight needs both"),
    ],
)
def test_unfit_settings_need_no_server(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], variables: dict[str, str], message: str
) -> None:
    for name, value in ({"ELASTICSEARCH_USER": "me", "ELASTICSEARCH_PASSWORD": "secret-word"} | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message) as refusal:
        ElasticsearchBM25(BIRDS, **settings)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((400, b'{"error": {"type": "media_type_header_exception"}}'), "server need the same major version"),
        ((200, b'{"nodes": '), "Elasticsearch at http"),
        ((500, b'{"error": {"reason": "out of memory"}}'), "out of memory"),
    ],
)
def test_a_server_of_another_kind_is_an_error(answer: tuple[int, bytes], message: str) -> None:
    with Proxy(lambda *_: answer) as proxy, pytest.raises(RetrieverError, match=message):
        ElasticsearchBM25(BIRDS, hosts=[proxy.url], max_retries=1).describe()


def test_a_server_that_is_not_there_is_an_error_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    gone, encoder = f"http://127.0.0.1:{free_port()}", WordEncoder()
    with pytest.raises(RetrieverError, match=f"Elasticsearch at {gone}: .*see retriever.hosts"):
        ElasticsearchKNN(BIRDS, encoder=encoder, hosts=[gone]).build_index(progress=False)
    assert encoder.batches == []
    assert main(["index", "dataset=mini", "retriever=elasticsearch", f"retriever.hosts=[{gone}]"]) == 2
    assert f"rag-notes: Elasticsearch at {gone}" in capsys.readouterr().err
    assert main(["index", "dataset=mini", "retriever=dense"]) == 2
    assert "encodes a corpus on first use" in capsys.readouterr().err
