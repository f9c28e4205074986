"""A cluster of three nodes on 127.0.0.1 that loses one during a study and gets it back, and has another restarted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from elasticsearch import Elasticsearch

from rag_notes.events import Search
from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.rag import Rag
from rag_notes.retrieval.elastic import elasticsearch
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from rag_notes.types import Question
from tests.corpora import random_corpus
from tests.elastic import Node, UnavailableError, free_port, installation, unavailable

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(900)]  # one server at a time

QUESTIONS = [
    Question(f"q{number:03}", " ".join(f"{number:09b}".replace("0", "v").replace("1", "w"))) for number in range(320)
]
KILLED_AT, BACK_AT, STOPPED_AT, STARTED_AT = "q080", "q140", "q200", "q260"
CORPUS = random_corpus(300, seed=4)


class Cluster(NamedTuple):
    nodes: list[Node]

    @property
    def hosts(self) -> list[str]:
        return [f"http://127.0.0.1:{node.port}" for node in self.nodes]

    def whole(self) -> None:
        """Return when all nodes are there and every copy of every shard. Raises OSError where that is not so yet."""
        with Elasticsearch(self.hosts[0], max_retries=0, request_timeout=60) as client:
            try:
                health = client.cluster.health(wait_for_nodes="3", wait_for_status="green", timeout="30s")
            except Exception as error:
                raise OSError(str(error)) from None
        if health["timed_out"]:
            raise OSError(f"the cluster is not whole: {health}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        with installation() as installed:
            names, transport = ["one", "two", "three"], [free_port() for _ in range(3)]
            nodes = [
                Node(
                    installed,
                    name,
                    {
                        "cluster.name": "three-nodes",
                        "cluster.initial_master_nodes": names,
                        "discovery.seed_hosts": [f"127.0.0.1:{other}" for other in transport],
                        "transport.port": port,
                        "xpack.security.enabled": False,
                    },
                    heap="384m",
                )
                for name, port in zip(names, transport, strict=True)
            ]
            running = Cluster(nodes)
            for node in nodes:
                node.start()
            try:
                nodes[0].wait(running.whole)
                yield running
            finally:
                for node in nodes:
                    node.stop()
    except UnavailableError as error:
        unavailable(str(error))


def test_a_node_killed_during_a_study_and_another_restarted_change_no_result(cluster: Cluster, tmp_path: Path) -> None:
    retriever = elasticsearch(CORPUS, hosts=cluster.hosts, analyzer="standard", shards=3, replicas=1, index="study")
    retriever.build_index(progress=False)
    cluster.whole()

    async def undisturbed(rag: Rag, question: Question) -> str:
        return " ".join(passage.id for passage in await rag.search(question.question, 5))

    turn = asyncio.Lock()

    async def disturbed(rag: Rag, question: Question) -> str:
        async with turn:  # in order, so that the events fall among the searches
            if question.id == KILLED_AT:
                await asyncio.to_thread(cluster.nodes[1].kill)
            if question.id == STOPPED_AT:
                await asyncio.to_thread(cluster.nodes[2].stop)
            for moment, node in ((BACK_AT, cluster.nodes[1]), (STARTED_AT, cluster.nodes[2])):
                if question.id == moment:
                    node.start()
                    await asyncio.to_thread(node.wait, cluster.whole)
            return await undisturbed(rag, question)

    async def study() -> tuple[Run, Run]:
        async with LLM("none", store=ResponseStore(tmp_path / "none.sqlite")) as llm:
            before = await evaluate([undisturbed], QUESTIONS, retriever, llm, progress=False)
            assert before.info.search_retries == 0
            return before, await evaluate([disturbed], QUESTIONS, retriever, llm, progress=False)

    before, after = asyncio.run(study())
    assert after.info.status == "finished"
    assert [sample.error for sample in after.samples] == [None] * len(QUESTIONS)
    searches = [[sample.trace for sample in run.samples] for run in (before, after)]
    assert searches[0] == searches[1]
    assert all(len(one.hits) == 5 for trace in searches[0] for one in trace if isinstance(one, Search))
    assert after.info.search_retries > 0  # what went to the dead node
    assert (
        elasticsearch(CORPUS, hosts=cluster.hosts, analyzer="standard", index="study").describe()["server"] == "9.2.4"
    )
