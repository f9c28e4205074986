"""One Elasticsearch for all tests that need one."""

from collections.abc import Iterator

import pytest

from rag_notes.running.records import Run
from tests.elastic import Secured, secured_node
from tests.made import make_run


@pytest.fixture(scope="session")
def server() -> Iterator[Secured]:
    with secured_node() as node:
        yield node


@pytest.fixture
def admin(server: Secured, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """The server, with the environment of one who may do everything."""
    monkeypatch.setenv("ELASTICSEARCH_USER", server.admin[0])
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", server.admin[1])
    monkeypatch.delenv("ELASTICSEARCH_API_KEY", raising=False)
    return server


@pytest.fixture
def toy() -> Run:
    """Five questions and three methods, one answer of which failed."""
    return make_run(
        "toy",
        {
            "no_retrieval": {"em": [0, 0, 0, 0, 0], "f1": [0, 0.5, 0, 0.5, 0]},
            "vanilla": {"em": [1, 0, 0, 0, 0], "f1": [1, 0.5, 0, 0, 0], "all_gold_first": [1, 1, 0, 0, 1]},
            "deepnote": {"em": [1, 1, 1, 0, None], "f1": [1, 1, 1, 0.2, None], "all_gold_first": [1, 1, 0, 1, None]},
        },
    )
