"""kNN in a real Elasticsearch: inner products and rankings of dense retrieval, over no index but the right one."""

import itertools
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_notes.cli import main
from rag_notes.config import build_datasets, build_retriever, load_config
from rag_notes.retrieval.base import RetrieverError, corpus_checksum
from rag_notes.retrieval.elastic_knn import ElasticsearchKNN, KNNContent, elasticsearch_knn
from rag_notes.retrieval.encoders import Vectors
from rag_notes.retrieval.vectors import cached_vectors, passage_text
from rag_notes.types import Passage
from tests.corpora import BIRDS
from tests.elastic import Secured, free_port
from tests.elastic_proxy import Forward, Proxy
from tests.embeddings import EmbeddingServer
from tests.encoding import WordEncoder
from tests.indexed import ids, indexed, make, names
from tests.test_elastic_faults import altered, fail_shard, lose_node

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time

WORDS = [f"{first}{second}" for first in "bdfghk" for second in ("an", "el", "in", "or", "um", "ash", "eck", "ill")]
QUERIES = ["ban del fin", "hum", "gash keck", "dor dor bill kan", "unknown"]


class Encoder(WordEncoder):
    """Says whether its vectors have length 1; where they do not, the length grows with the number of words."""

    def __init__(self, dimensions: int = 24, *, normalize: bool = True, **options: Any) -> None:
        super().__init__(dimensions, **options)
        self.normalize = normalize

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"normalize": self.normalize}

    def _vector(self, text: str) -> Vectors:
        return super()._vector(text) * np.float32(1 if self.normalize else len(text.split()) / 2)


def passages(size: int) -> list[Passage]:
    """Passages of 3 to 12 words, no two of the same words, with ids in no order."""
    rng = np.random.default_rng(size)
    return [
        Passage(f"d{name}", str(rng.choice(WORDS)), f"number{name} " + " ".join(rng.choice(WORDS, rng.integers(2, 12))))
        for name in rng.permutation(10 * size)[:size].tolist()
    ]


def made(server: Secured, corpus: Sequence[Passage], folder: Path, **settings: Any) -> ElasticsearchKNN:
    """A retriever over `corpus`, not indexed."""
    where = {} if "hosts" in settings else {"hosts": [server.url], "ca_file": server.ca_file}
    standard: dict[str, Any] = {"encoder": Encoder(), "replicas": 0, "cache": str(folder), "batch_size": 8}
    return elasticsearch_knn(corpus, **standard | where | settings)


def loaded(server: Secured, corpus: Sequence[Passage], folder: Path, **settings: Any) -> ElasticsearchKNN:
    retriever = made(server, corpus, folder, **{"index": next(names)} | settings)
    retriever.build_index(progress=False)
    return retriever


def exact(
    corpus: Sequence[Passage],
    folder: Path,
    queries: Sequence[str],
    top_k: int,
    encoder: Encoder,
    dtype: str = "float32",
) -> list[list[tuple[str, float]]]:
    """The rankings of dense retrieval over the same vector file."""
    pytest.importorskip("faiss", reason="dense retrieval needs the extra `dense`")
    from rag_notes.retrieval.dense import dense  # noqa: PLC0415

    retriever = dense(corpus, encoder=encoder, dtype=dtype, batch_size=8, cache=str(folder))  # type: ignore[arg-type]
    return [[(hit.passage.id, hit.score) for hit in hits] for hits in retriever.search(queries, top_k)]


@pytest.mark.parametrize(
    ("normalize", "shards", "dtype"),
    [(True, 1, "float32"), (False, 1, "float32"), (True, 3, "float16"), (False, 2, "float16")],
)
def test_flat_gives_the_rankings_of_dense_retrieval(
    admin: Secured, tmp_path: Path, normalize: bool, shards: int, dtype: str
) -> None:
    corpus, encoder = passages(150), Encoder(normalize=normalize)
    retriever = loaded(admin, corpus, tmp_path, encoder=encoder, shards=shards, dtype=dtype, index_type="flat")
    batches = len(encoder.batches)
    for top_k in (5, 150, 400):
        wanted = exact(corpus, tmp_path, QUERIES, top_k, encoder, dtype)
        found = retriever.search(QUERIES, top_k)
        assert [ids(hits) for hits in found] == [[name for name, _ in ranking] for ranking in wanted]
        for hits, ranking in zip(found, wanted, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([score for _, score in ranking], rel=1e-5, abs=1e-5)
            assert {hit.passage for hit in hits} <= set(corpus)
    assert len(encoder.batches) == batches  # the vector file is the same one
    scores = [hit.score for hits in found for hit in hits]
    assert min(scores) < -0.3  # the server's scores are never negative
    assert max(scores) > (0.5 if normalize else 1)


def test_a_poor_graph_finds_most_and_many_candidates_nearly_all(admin: Secured, tmp_path: Path) -> None:
    corpus, encoder, queries = passages(900), Encoder(), [passage_text(passage) for passage in passages(100)]
    wanted = exact(corpus, tmp_path, queries, 10, encoder)
    name = next(names)
    recalls = []
    for candidates in (10, 200):
        retriever = loaded(admin, corpus, tmp_path, index=name, m=4, ef_construction=20, candidates=candidates)
        found = retriever.rank(queries, 10)
        shared = [
            len({name for name, _ in hits} & {name for name, _ in ranking})
            for hits, ranking in zip(found, wanted, strict=True)
        ]
        recalls.append(sum(shared) / 1000)
    assert recalls[0] > 0.5
    assert recalls[-1] > max(0.95, recalls[0])


@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
def test_ties_are_in_the_order_of_the_ids(admin: Secured, tmp_path: Path, index_type: str) -> None:
    equal = [f"p{number:03}" for number in np.random.default_rng(0).permutation(150)]
    corpus = [Passage(name, "", "ban del") for name in equal] + passages(20)
    retriever = loaded(admin, corpus, tmp_path, shards=2, index_type=index_type)
    (hits,) = retriever.search(["ban del"], 7)
    assert ids(hits) == [f"p{number:03}" for number in range(7)]
    assert [hit.score for hit in hits] == pytest.approx([1.0] * 7)
    assert len({hit.score for hit in hits}) == 1


def test_a_batch_is_one_request_and_vectors_are_never_sent_back(admin: Secured, tmp_path: Path) -> None:
    answers: list[bytes] = []

    def keep(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        status, answer = forward(body)
        answers.append(answer)
        return status, answer

    with Proxy(keep, admin) as proxy:
        retriever = loaded(admin, BIRDS, tmp_path, hosts=[proxy.url])
        (hits, _) = retriever.search(["water fish", "acorns"], 2)
        assert len(proxy.sent("_msearch")) == 1
        assert b'"text"' in answers[-1]
        assert b'"vector"' not in answers[-1]
        ranked = retriever.rank(["water fish"], 2)
        assert ranked == [[(hit.passage.id, hit.score) for hit in hits]]
        assert b"_source" not in answers[-1]
        assert len(retriever.rank(["water"] * 600, 1)) == 600
        sizes = [body.count(b"query_vector") for body in proxy.sent("_msearch")]
        assert sizes == [2, 1, 250, 250, 100]  # a request has a limit


def test_there_are_as_many_hits_as_asked_for_or_passages(admin: Secured, tmp_path: Path) -> None:
    retriever = loaded(admin, passages(60), tmp_path, candidates=1)
    assert [len(hits) for hits in retriever.search(["ban", "unknown"], 50)] == [50, 50]
    assert [len(hits) for hits in retriever.search(["ban"], 10_000)] == [60]
    with pytest.raises(ValueError, match="top_k is 10001; Elasticsearch finds at most 10000"):
        retriever.search(["ban"], 10_001)
    assert retriever.search([], 5) == []


def test_a_load_that_broke_off_continues_and_encodes_nothing_again(admin: Secured, tmp_path: Path) -> None:
    corpus, name = passages(2 * KNNContent.chunk + 100), next(names)
    bulks = itertools.count(1)

    def cut(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        if path.split("?", maxsplit=1)[0].endswith("_bulk") and next(bulks) == 2:
            forward(b"".join(body.splitlines(keepends=True)[: KNNContent.chunk]))  # half of the passages
            return 503, b'{"error": {"reason": "going down"}, "status": 503}'
        return forward(body)

    with Proxy(cut, admin) as proxy:
        settings: dict[str, Any] = {"index": name, "hosts": [proxy.url], "max_retries": 0, "index_type": "flat"}
        with pytest.raises(RetrieverError, match=r"going down\); the same command continues"):
            made(admin, corpus, tmp_path, **settings).build_index(progress=False)
        assert admin.ask("GET", f"/_alias/{name}") is None
        encoder = Encoder()
        said = made(admin, corpus, tmp_path, encoder=encoder, **settings).build_index(progress=False)
        assert "600 passages" in said
        assert "225 of them loaded now" in said
        assert encoder.batches == []
        assert len(proxy.sent("_bulk")) == 4  # the first, the broken one, that again, the last
    undisturbed = loaded(admin, corpus, tmp_path, index_type="flat")
    resumed = made(admin, corpus, tmp_path, index=name, index_type="flat")
    assert resumed.search(QUERIES, 50) == undisturbed.search(QUERIES, 50)
    assert "0 of them loaded now" in resumed.build_index(progress=False)


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"encoder": Encoder(model="other")}, "encoder.model is 'words', wanted 'other'"),
        ({"encoder": Encoder(normalize=False)}, "encoder.normalize is True, wanted False; similarity is 'dot_product'"),
        ({"dtype": "float16"}, "dtype is 'float32', wanted 'float16'"),
        ({"index_type": "flat"}, "index_options.type is 'hnsw', wanted 'flat'"),
        ({"m": 8}, "index_options.m is 16, wanted 8"),
        ({"ef_construction": 50}, "index_options.ef_construction is 100, wanted 50"),
        ({"corpus": BIRDS[:3]}, r"its corpus has 4 passages \(sha256 .*\), wanted 3 passages"),
    ],
)
def test_an_index_of_something_else_is_refused_with_the_difference(
    admin: Secured, tmp_path: Path, settings: dict[str, Any], difference: str
) -> None:
    if admin.ask("GET", "/_alias/fixed-knn") is None:
        loaded(admin, BIRDS, tmp_path, index="fixed-knn")
    others: dict[str, Any] = {"corpus": BIRDS, "index": "fixed-knn"} | settings
    with pytest.raises(RetrieverError, match=difference):
        made(admin, folder=tmp_path, **others).search(["water"], 2)
    instructed = Encoder(instruction="find: ")  # only queries have it
    assert made(admin, BIRDS, tmp_path, index="fixed-knn", encoder=instructed, candidates=7).search(["water"], 2)


def test_an_index_of_another_kind_is_refused(admin: Secured, tmp_path: Path) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    with pytest.raises(RetrieverError, match=r"is another one: kind is 'bm25', wanted 'knn'. Change"):
        made(admin, BIRDS, tmp_path, index=name).search(["water"], 2)
    loaded(admin, BIRDS, tmp_path, index=name)
    with pytest.raises(RetrieverError, match=r"is another one: kind is 'knn', wanted 'bm25'. Change"):
        make(admin, BIRDS, index=name).search(["water"], 2)


def test_a_corpus_that_is_not_indexed_is_not_searched_and_the_line_to_type_is_given(
    admin: Secured, tmp_path: Path
) -> None:
    retriever = made(admin, BIRDS, tmp_path, index="none-such", m=8, vectors="somewhere")
    with pytest.raises(RetrieverError, match="with the dataset and encoder options of this command") as refusal:
        retriever.describe()
    program, command, *options = shlex.split(str(refusal.value).rpartition("of this command: ")[2])
    assert (program, command) == ("rag-notes", "index")
    config = load_config(["dataset=mini", *options]).retriever
    assert (config["m"], config["vectors"], config["batch_size"], config["replicas"]) == (8, "somewhere", 8, 0)


class Given(Encoder):
    """Gives queries other vectors than passages."""

    def __init__(self, vectors: Callable[[int], Vectors], **options: Any) -> None:
        super().__init__(**options)
        self.vectors = vectors

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return self.vectors(len(queries))


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (lambda count: np.ones((count, 7), np.float32), "gives queries 7 dimensions, the vectors in test-.* have 24"),
        (lambda count: np.full((count, 24), np.nan, np.float32), "not finite"),
        (lambda count: np.ones((count, 24), np.float32), "refused the search: .*only be used with unit-length vectors"),
    ],
)
def test_query_vectors_that_do_not_fit_are_refused(
    admin: Secured, tmp_path: Path, vectors: Callable[[int], Vectors], said: str
) -> None:
    retriever = loaded(admin, BIRDS, tmp_path, encoder=Given(vectors))
    with pytest.raises(ValueError, match=said):
        retriever.search(["water"], 2)


def test_what_the_server_refuses_of_vectors_is_said_and_the_alias_not_set(admin: Secured, tmp_path: Path) -> None:
    before = admin.indexes()
    with pytest.raises(
        RetrieverError, match=r"number of dimensions should be in the range \[1, 4096\] but was \[4097\]"
    ):
        loaded(admin, BIRDS, tmp_path, encoder=Encoder(4097))
    assert admin.indexes() == before
    name = next(names)
    with pytest.raises(RetrieverError, match=r"passage 5 \('void'\) was refused: .*unit-length vectors"):
        loaded(admin, [*BIRDS, Passage("void", "", "...")], tmp_path, index=name)
    assert admin.ask("GET", f"/_alias/{name}") is None


def test_a_template_of_the_server_that_changes_the_mapping_is_found_out(admin: Secured, tmp_path: Path) -> None:
    name = next(names)
    mappings = {"properties": {"extra": {"type": "keyword"}}}
    template = {"index_patterns": [f"{name}-*"], "priority": 500, "template": {"mappings": mappings}}
    admin.ask("PUT", f"/_index_template/{name}", template)
    try:
        with pytest.raises(RetrieverError, match=r"than asked for: mappings\.properties\.extra is {'type': 'keyword'}"):
            loaded(admin, BIRDS, tmp_path, index=name)
    finally:
        admin.ask("DELETE", f"/_index_template/{name}")


@pytest.mark.parametrize(
    ("change", "said"), [(fail_shard, "a partial answer: 1 of 2 shards"), (lose_node, "status 503: a node left")]
)
def test_a_partial_answer_is_asked_again_and_never_a_short_list(
    admin: Secured, tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    name = next(names)
    wanted = loaded(admin, BIRDS, tmp_path, index=name, shards=2).search(["water", "acorns"], 3)
    with Proxy(altered(change, times=2), admin) as proxy:
        retriever = made(admin, BIRDS, tmp_path, index=name, hosts=[proxy.url])
        assert retriever.search(["water", "acorns"], 3) == wanted
        assert retriever.retries == 2
        assert [body.count(b"query_vector") for body in proxy.sent("_msearch")] == [2, 1, 1]
    with Proxy(altered(change, times=9), admin) as proxy:
        retriever = made(admin, BIRDS, tmp_path, index=name, hosts=[proxy.url], max_retries=1)
        with pytest.raises(RetrieverError, match=f"failed 2 times in a row .{said}"):
            retriever.search(["water", "acorns"], 3)


def test_a_description_holds_what_decides_the_ranking(admin: Secured, tmp_path: Path) -> None:
    encoder = Encoder(instruction="find: ")
    described = loaded(admin, BIRDS, tmp_path, encoder=encoder, candidates=50).describe()
    file = cached_vectors(
        BIRDS, encoder, dtype="float32", batch_size=8, folder=None, cache=str(tmp_path), progress=False
    )
    assert described == {
        "name": "elasticsearch_knn",
        "encoder": encoder.describe(),
        "dtype": "float32",
        "similarity": "dot_product",
        "index_options": {"type": "hnsw", "m": 16, "ef_construction": 100},
        "vectors": {"dimensions": 24, "truncated": 0, "sha256": file.meta["sha256"]},
        "candidates": 50,
        "server": "9.2.4",
        "corpus": {"passages": 4, "sha256": corpus_checksum(BIRDS)},
    }


def test_with_bm25_in_the_same_server_as_a_hybrid_from_options(
    admin: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, parts = next(names), {"first": "elasticsearch", "second": "elasticsearch_knn"}
    common = {
        "hosts": f"[{admin.url}]",
        "ca_file": admin.ca_file,
        "replicas": "0",
    }
    with EmbeddingServer() as endpoint:
        own = {
            "first": {"analyzer": "standard", "index": f"{name}-text"},
            "second": {
                "index": f"{name}-vectors",
                "index_type": "flat",
                "cache": str(tmp_path),
                "encoder.base_url": endpoint.base_url,
                "encoder.api_key_variable": "NO_SUCH_KEY",
            },
        }
        settings = {part: common | own[part] for part in parts}
        options = ["dataset=mini", "retriever=hybrid"]
        for part, choice in parts.items():
            encoder = ["retriever/encoder=embeddings_api"] if part == "second" else []
            values = [f"retriever.{key}={value}" for key, value in settings[part].items()]
            assert main(["index", "dataset=mini", f"retriever={choice}", *encoder, *values]) == 0
            options.append(f"retriever@retriever.{part}={choice}")
            options += [f"retriever.{part}.{key}={value}" for key, value in settings[part].items()]
        assert f"{name}-vectors: " in capsys.readouterr().out
        assert main(["index", *options, "retriever/encoder@retriever.second.encoder=embeddings_api"]) == 2
        assert "rag-notes index retriever=elasticsearch_knn" in capsys.readouterr().err
        config = load_config([*options, "retriever/encoder@retriever.second.encoder=embeddings_api"])
        (dataset,) = build_datasets(config)
        retriever = build_retriever(config, dataset.corpus)
        (hits,) = retriever.search([passage_text(dataset.corpus[3])], 5)
    assert hits[0].passage == dataset.corpus[3]
    assert retriever.name == "elasticsearch+elasticsearch_knn"
    assert retriever.describe()["second"]["vectors"]["dimensions"] == 6


# these need no server


def test_settings_and_servers_that_cannot_be_are_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    encoder = Encoder()
    with pytest.raises(RetrieverError, match="nobody answers"):
        elasticsearch_knn(
            BIRDS, encoder=encoder, hosts=[f"http://127.0.0.1:{free_port()}"], cache=str(tmp_path)
        ).build_index(progress=False)
    assert encoder.batches == []
    with Proxy(lambda *_: (200, json.dumps({"nodes": {"a": {"version": "9.2.4"}}}).encode())) as proxy:
        retriever = elasticsearch_knn([], encoder=encoder, hosts=[proxy.url], cache=str(tmp_path))
        with pytest.raises(ValueError, match="the corpus is empty"):
            retriever.build_index(progress=False)
    with pytest.raises(ValueError, match=r"retriever.hosts\[0\]"):
        elasticsearch_knn(BIRDS, encoder=encoder, hosts=["127.0.0.1"])
