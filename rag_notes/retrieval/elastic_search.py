"""Searching an index in Elasticsearch: that it is the right one, batches of searches, and answers that are whole."""

import abc
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from elasticsearch import Elasticsearch

from rag_notes.retrieval.base import Corpus, RetrieverError, measure
from rag_notes.retrieval.elastic_index import (
    Content,
    Kind,
    build_index,
    carried,
    contents,
    differences,
    find_index,
)
from rag_notes.retrieval.elastic_server import Server, is_momentary, reason_of
from rag_notes.types import Hit, InputError, Passage

_TOGETHER = 250  # searches in a request: the server refuses one above 100 MB, and a vector can take 80 kB


class IndexOptions(NamedTuple):
    """An index's alias (None: one by the corpus), shards and replicas of a new one, and the line to type to make it."""

    alias: str | None = None
    shards: int = 1
    replicas: int = 1
    command: str = "rag-notes index"


class Checked(NamedTuple):
    """The right index: its name, the settings that it carries, and the version of the server."""

    name: str
    settings: dict[str, Any]
    version: str


class ElasticsearchRetriever(abc.ABC):
    """A retriever over an index that carries the checksum of `corpus` and the settings of `kind`.

    The first search, or `describe`, checks that the index is the right one. Threads may share it. `retries` counts what
    was sent again.
    """

    name: str
    _prefix: ClassVar[str]  # of the alias where none is given
    _besides: ClassVar[str] = "dataset"  # the options that the line to type lacks
    _header: ClassVar[Mapping[str, Any]] = {}  # of each search

    def __init__(
        self,
        server: Server,
        corpus: Iterable[Passage],
        kind: Kind,
        options: IndexOptions,
    ) -> None:
        """Join a server with a corpus, which may be read several times and is not held."""
        self._server = server
        self._corpus = corpus
        self._kind = kind
        self._options = options
        self._lock = threading.Lock()
        self._checked: Checked | None = None

    @property
    def retries(self) -> int:
        """How many requests and searches were sent again since this object was made."""
        return self._server.retries

    @cached_property
    def _size(self) -> Corpus:
        return measure(self._corpus)

    @property
    def _alias(self) -> str:
        return self._options.alias or f"{self._prefix}-{self._size.sha256[:12]}"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes; the passages come from the server.

        Raises `RetrieverError` where the index is not that of the corpus, or the server gives no whole answer, and
        `ValueError` for a query or `top_k` that it refuses.
        """
        return [
            [
                Hit(Passage(hit["_id"], hit["_source"]["title"], hit["_source"]["text"]), self._score(hit))
                for hit in hits
            ]
            for hits in self._search(queries, top_k, source=["title", "text"])
        ]

    def rank(self, queries: Sequence[str], top_k: int) -> list[list[tuple[str, float]]]:
        """As `search`, but only the ids of the passages with their scores: nothing else is sent."""
        return [[(hit["_id"], self._score(hit)) for hit in hits] for hits in self._search(queries, top_k, source=False)]

    def _build(self, corpus: Iterable[Passage], content: Content, *, progress: bool) -> str:
        return build_index(
            self._server,
            self._alias,
            corpus,
            content,
            shards=self._options.shards,
            replicas=self._options.replicas,
            progress=progress,
        )

    @abc.abstractmethod
    def _searches(self, queries: Sequence[str], top_k: int) -> list[dict[str, Any]]:
        """What to search for each query, as the body of a search has it."""

    def _score(self, hit: Mapping[str, Any]) -> float:
        return float(hit["_score"])

    def _search(self, queries: Sequence[str], top_k: int, *, source: list[str] | bool) -> list[list[dict[str, Any]]]:
        if isinstance(queries, str):
            raise TypeError("queries is one string; pass a list of queries")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        index = self._check().name
        if not queries:
            return []
        header = {"index": index, "allow_partial_search_results": False, **self._header}
        wanted = {
            "size": top_k,
            "sort": [{"_score": "desc"}, {"id": "asc"}],
            "track_total_hits": False,
            "_source": source,
        }
        bodies = [search | wanted for search in self._searches(queries, top_k)]
        found: dict[int, list[dict[str, Any]]] = {}

        def send(client: Elasticsearch, waiting: Sequence[int]) -> tuple[list[int], str]:
            again, why = [], ""
            searches = [part for number in waiting for part in (header, bodies[number])]
            answers = client.msearch(searches=searches).body["responses"]
            for number, answer in zip(waiting, answers, strict=True):
                if (missing := _missing(answer)) is None:
                    found[number] = answer["hits"]["hits"]
                else:
                    again.append(number)
                    why = missing
            return again, why

        for start in range(0, len(bodies), _TOGETHER):
            self._server.send_all(range(start, min(start + _TOGETHER, len(bodies))), send)
        return [found[number] for number in range(len(queries))]

    def _check(self) -> Checked:
        """The index behind the alias, asked for once."""
        with self._lock:
            if self._checked is None:
                self._checked = self._find(self._server.versions())
            return self._checked

    def _find(self, version: str) -> Checked:
        type_it = f"Type, with the {self._besides} options of this command: {self._options.command}"
        found = find_index(self._server, self._alias)
        if found is None:
            raise RetrieverError(
                f"the corpus of {self._size.passages} passages is not indexed: no {self._alias!r} at "
                f"{self._server.where}. {type_it}"
            )
        if other := list(_others(found.meta, carried(self._size, self._kind))):
            raise RetrieverError(
                f"the index {found.name} behind {self._alias!r} is another one: {'; '.join(other)}. Change the "
                f"setting, name another index with retriever.index, or index it anew. {type_it}"
            )
        if (count := contents(self._server, found.name)[0]) != self._size.passages:
            raise RetrieverError(
                f"the index {found.name} has {count} passages, and {self._size.passages} when it was made; delete it. "
                f"{type_it}"
            )
        return Checked(found.name, found.meta["settings"], version)


def command_line(choice: str, factory: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """The line that indexes for a retriever, with the settings that are not its factory's defaults."""
    options = [
        f"retriever.{name}={_typed(given[name])}"
        for name, parameter in inspect.signature(factory).parameters.items()
        if name in given and _typed(given[name]) != _typed(parameter.default)
    ]
    return " ".join([f"rag-notes index retriever={choice}", *options])


def _typed(value: Any) -> str:
    if value is None:
        return "null"
    return f"[{','.join(value)}]" if isinstance(value, (list, tuple)) else str(value)


def _others(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """What an index carries otherwise than wanted; it may say more of its settings than a search needs."""
    if set(found) != set(wanted):
        yield "it was not made by rag-notes, or by another version"
    elif found["kind"] != wanted["kind"]:
        yield f"kind is {found['kind']!r}, wanted {wanted['kind']!r}"
    else:
        settings = found["settings"]
        yield from differences(wanted["settings"], {name: settings.get(name) for name in wanted["settings"]})
        if found["corpus"] != wanted["corpus"]:
            was, wants = (
                f"{corpus['passages']} passages (sha256 {corpus['sha256'][:12]}...)"
                for corpus in (found["corpus"], wanted["corpus"])
            )
            yield f"its corpus has {was}, wanted {wants}"


def _missing(answer: Mapping[str, Any]) -> str | None:
    """What a search's answer lacks for the moment, or None if it is whole.

    Raises `ValueError` for a query that the server refuses, `RetrieverError` where the index is gone.
    """
    if "error" in answer:
        reason, status = reason_of(answer["error"]), int(answer["status"])
        if is_momentary(status):
            return f"status {status}: {reason}"
        if status == 404:
            raise RetrieverError(
                f"the index went away during the searches: {reason}; the same command looks for it anew"
            )
        raise InputError(f"Elasticsearch refused the search: {reason}")
    shards = answer["_shards"]
    if answer["timed_out"] or shards["failed"] or shards["successful"] != shards["total"]:
        timed_out = ", timed out" if answer["timed_out"] else ""
        return f"a partial answer: {shards['successful']} of {shards['total']} shards{timed_out}"
    return None
