"""Searching a real Elasticsearch: scores, batches, and what a description says."""

import pytest

from rag_notes import datasets
from rag_notes.retrieval.base import corpus_checksum
from rag_notes.retrieval.bm25 import bm25
from tests.corpora import BIRDS, plain_bm25, plain_words, random_corpus
from tests.elastic import Secured
from tests.elastic_proxy import Forward, Proxy
from tests.indexed import expected, ids, indexed
from tests.samples import samples

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time


@pytest.mark.parametrize(("k1", "b", "shards"), [(1.2, 0.75, 1), (0.9, 0.4, 3), (2.0, 0.0, 2)])
def test_scores_are_those_of_an_independent_bm25_however_many_shards(
    admin: Secured, k1: float, b: float, shards: int
) -> None:
    corpus = random_corpus(60, seed=1)
    documents = [plain_words(f"{passage.title} {passage.text}") for passage in corpus]
    retriever = indexed(admin, corpus, k1=k1, b=b, shards=shards)
    queries = ["v", "w x", "z z y", "x unknown v"]
    for query, hits in zip(queries, retriever.search(queries, 25), strict=True):
        # Elasticsearch keeps the factor k1 + 1 that Lucene dropped: the same order, other figures.
        scores = [(k1 + 1) * score for score in plain_bm25(documents, query.split(), k1, b)]
        wanted = expected(corpus, [round(score, 5) for score in scores], 25)
        assert ids(hits) == [name for name, _ in wanted]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in wanted], rel=1e-4)
        assert {hit.passage for hit in hits} <= set(corpus)


def test_a_title_weighs_as_told(admin: Secured) -> None:
    corpus = random_corpus(40, seed=2)
    retriever = indexed(admin, corpus, title_weight=3.0)
    titles = plain_bm25([plain_words(passage.title) for passage in corpus], ["x", "v"], 1.2, 0.75)
    texts = plain_bm25([plain_words(passage.text) for passage in corpus if passage.text], ["x", "v"], 1.2, 0.75)
    by_text = dict(zip([passage.id for passage in corpus if passage.text], texts, strict=True))
    scores = [2.2 * (3 * title + by_text.get(passage.id, 0.0)) for title, passage in zip(titles, corpus, strict=True)]
    found = {hit.passage.id: hit.score for hit in retriever.search(["x v"], 40)[0]}
    assert found == pytest.approx(dict(expected(corpus, scores, 40)), rel=1e-4)


def test_the_text_alone_can_be_searched(admin: Secured) -> None:
    retriever = indexed(admin, BIRDS, fields=["text"])
    assert [ids(hits) for hits in retriever.search(["kingfisher", "oak", "acorns"], 5)] == [["p2"], [], ["p3"]]


def test_a_batch_is_one_request_and_the_texts_are_sent_only_when_asked_for(admin: Secured) -> None:
    answers: list[bytes] = []

    def keep(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        status, answer = forward(body)
        answers.append(answer if path.endswith("_msearch") else b"")
        return status, answer

    with Proxy(keep, admin) as proxy:
        retriever = indexed(admin, BIRDS, hosts=[proxy.url])
        assert [ids(hits) for hits in retriever.search(["water fish", "acorns", "xyzzy"], 2)] == [
            ["p1", "p2"],
            ["p3"],
            [],
        ]
        assert len(proxy.sent("_msearch")) == 1
        assert b"swallowed" in answers[-1]
        [ranked] = retriever.rank(["water fish"], 2)
        assert [name for name, _ in ranked] == ["p1", "p2"]
        assert b"_source" not in answers[-1]
        assert b"swallowed" not in answers[-1]


def test_what_cannot_be_asked_is_refused(admin: Secured) -> None:
    retriever = indexed(admin, BIRDS)
    assert retriever.search([], 3) == []
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["water"], 0)
    with pytest.raises(TypeError, match="one string"):
        retriever.search("water", 3)
    with pytest.raises(ValueError, match=r"refused the search: .*window is too large"):
        retriever.search(["water"], 100_000)


def test_it_agrees_with_embedded_bm25_on_real_questions(admin: Secured) -> None:
    """The minimal build has no stemmer; words are cut by the same rules, and lengths kept in the same byte."""
    data = datasets.twowikimultihopqa(str(samples("2wikimultihopqa/dev.sample500.json")))
    questions = [question.question.replace("'s", "").replace("’s", "") for question in data.questions]
    ours = bm25(data.corpus, stemming=False, stop_words=False, cache=None).search(questions, 5)
    theirs = indexed(admin, data.corpus, shards=2).search(questions, 5)
    same_first = sum(a[0].passage == b[0].passage for a, b in zip(ours, theirs, strict=True))
    same_five = sum(set(ids(a)) == set(ids(b)) for a, b in zip(ours, theirs, strict=True))
    assert same_first / len(questions) > 0.98
    assert same_five / len(questions) > 0.9


def test_a_description_holds_what_decides_the_ranking_and_no_secret(admin: Secured) -> None:
    described = indexed(admin, BIRDS, k1=0.9, title_weight=2.0).describe()
    assert described == {
        "name": "elasticsearch",
        "analyzer": "standard",
        "k1": 0.9,
        "b": 0.75,
        "fields": ["title", "text"],
        "title_weight": 2.0,
        "server": "9.2.4",
        "corpus": {"passages": 4, "sha256": corpus_checksum(BIRDS)},
    }
