"""One Elasticsearch for all tests that need one."""

from collections.abc import Iterator

import pytest

from tests.elastic import Secured, UnavailableError, secured_node, unavailable


@pytest.fixture(scope="session")
def server() -> Iterator[Secured]:
    try:
        with secured_node() as node:
            yield node
    except UnavailableError as error:
        unavailable(str(error))


@pytest.fixture
def admin(server: Secured, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """The server, with the environment of one who may do everything."""
    monkeypatch.setenv("ELASTICSEARCH_USER", server.admin[0])
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", server.admin[1])
    monkeypatch.delenv("ELASTICSEARCH_API_KEY", raising=False)
    return server
