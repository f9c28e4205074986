"""A cluster of three nodes on 127.0.0.1 that loses one during searches and gets it back."""

from collections.abc import Iterator

import pytest
from elasticsearch import Elasticsearch

from rag_notes.retrieval.elastic import ElasticsearchBM25
from tests.corpora import random_corpus
from tests.elastic import Node, free_port, installation

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(900)]  # one server at a time

QUERIES = [" ".join(f"{number:09b}".replace("0", "v").replace("1", "w")) for number in range(320)]
CORPUS = random_corpus(300, seed=4)


def wait_until_whole(node: Node) -> None:
    """Return when all nodes and all copies of all shards are there. Raises OSError where they are not yet."""
    with Elasticsearch(f"http://127.0.0.1:{node.port}", max_retries=0, request_timeout=60) as client:
        try:
            health = client.cluster.health(wait_for_nodes="3", wait_for_status="green", timeout="30s")
        except Exception as error:
            raise OSError(str(error)) from None
    if health["timed_out"]:
        raise OSError(f"the cluster is not whole: {health}")


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with installation() as installed:
        transport = {name: free_port() for name in ("one", "two", "three")}
        common = {
            "cluster.name": "three-nodes",
            "cluster.initial_master_nodes": list(transport),
            "discovery.seed_hosts": [f"127.0.0.1:{port}" for port in transport.values()],
            "xpack.security.enabled": False,
        }
        cluster = [Node(installed, name, common | {"transport.port": port}) for name, port in transport.items()]
        try:
            for node in cluster:
                node.start()
            cluster[0].wait(lambda: wait_until_whole(cluster[0]))
            yield cluster
        finally:
            for node in cluster:
                node.stop()


def test_a_node_that_is_killed_and_comes_back_changes_no_result(nodes: list[Node]) -> None:
    hosts = [f"http://127.0.0.1:{node.port}" for node in nodes]
    retriever = ElasticsearchBM25(CORPUS, hosts=hosts, analyzer="standard", shards=3, replicas=1)
    retriever.build_index(progress=False)
    wait_until_whole(nodes[0])
    expected = retriever.search(QUERIES, 5)
    rankings = []
    for number, query in enumerate(QUERIES):
        if number == 80:
            nodes[1].kill()
        if number == 200:
            nodes[1].start()
        rankings += retriever.search([query], 5)
    nodes[1].wait(lambda: wait_until_whole(nodes[0]))
    assert rankings == expected
    assert {len(hits) for hits in rankings} == {5}
    assert retriever.describe()["server"] == "9.2.4"
