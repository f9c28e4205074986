"""BM25 in an Elasticsearch server or cluster, over a corpus that `rag-notes index` has put there."""

import inspect
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from elasticsearch import Elasticsearch
from pydantic import Field

from rag_notes.retrieval.base import RetrieverError
from rag_notes.retrieval.elastic_index import (
    Corpus,
    IndexSettings,
    build_index,
    carried,
    contents,
    find_index,
    measure,
)
from rag_notes.retrieval.elastic_server import Server, is_momentary, reason_of
from rag_notes.retrieval.tokenize import detect_language
from rag_notes.types import Hit, NonNegative, Passage, Positive

_ANALYZERS = {"en": "english", "zh": "cjk"}  # that Elasticsearch comes with


class ElasticsearchBM25:
    """BM25 by Lucene's formula over an index that carries the checksum of `corpus` and its own settings.

    The score is that of `rag_notes.retrieval.bm25.BM25`, but for the analyzer and for lengths kept in one byte. With
    several shards the statistics are those of the whole index. With a `title_weight` the score is `title_weight` times
    that of the title plus that of the text. The first search, or `describe`, checks that the index is the right one.
    Threads may share it. `retries` counts what was sent again. Make one with `elasticsearch`.
    """

    name = "elasticsearch"

    def __init__(
        self,
        server: Server,
        corpus: Iterable[Passage],
        settings: IndexSettings,
        *,
        index: str | None = None,
        title_weight: float | None = None,
        shards: int = 1,
        replicas: int = 1,
        command: str = "rag-notes index",
    ) -> None:
        """Join a server with a corpus; `command` is what to type where the corpus is not indexed."""
        self._server = server
        self._corpus = corpus
        self._settings = settings
        self._alias_given = index
        self._title_weight = title_weight
        self._shards = shards
        self._replicas = replicas
        self._command = command
        self._lock = threading.Lock()
        self._checked: tuple[str, str] | None = None

    @property
    def retries(self) -> int:
        """How many requests and searches were sent again since this object was made."""
        return self._server.retries

    @cached_property
    def _size(self) -> Corpus:
        return measure(self._corpus)

    @property
    def _alias(self) -> str:
        return self._alias_given or f"rag-notes-{self._size.sha256[:12]}"

    @property
    def _fields(self) -> list[str]:
        if self._settings.joined:
            return ["contents"]
        return [f"title^{self._title_weight}" if field == "title" else field for field in self._settings.fields]

    def build_index(self, *, progress: bool = True) -> str:
        """Index the corpus, or what is missing of it, and return a line that says what was done.

        Raises as `rag_notes.retrieval.elastic_index.build_index`.
        """
        self._server.versions()
        return build_index(
            self._server,
            self._alias,
            self._corpus,
            self._settings,
            shards=self._shards,
            replicas=self._replicas,
            progress=progress,
        )

    def describe(self) -> dict[str, Any]:
        """Name, settings, version of the server, number of passages and checksum of the corpus.

        Raises `RetrieverError` where the corpus is not indexed, or with other settings.
        """
        _, version = self._check()
        described = {"name": self.name, **self._settings.describe(), "server": version}
        return described | {"title_weight": self._title_weight, "corpus": self._size._asdict()}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes; the passages come from the server.

        Raises `RetrieverError` where the index is not that of the corpus, or the server gives no whole answer, and
        `ValueError` for a query or `top_k` that it refuses.
        """
        return [
            [
                Hit(Passage(hit["_id"], hit["_source"]["title"], hit["_source"]["text"]), float(hit["_score"]))
                for hit in hits
            ]
            for hits in self._search(queries, top_k, source=["title", "text"])
        ]

    def rank(self, queries: Sequence[str], top_k: int) -> list[list[tuple[str, float]]]:
        """As `search`, but only the ids of the passages with their scores: nothing else is sent."""
        return [
            [(hit["_id"], float(hit["_score"])) for hit in hits] for hits in self._search(queries, top_k, source=False)
        ]

    def _search(self, queries: Sequence[str], top_k: int, *, source: list[str] | bool) -> list[list[dict[str, Any]]]:
        if isinstance(queries, str):
            raise TypeError("queries is one string; pass a list of queries")
        if top_k < 1:
            raise ValueError(f"top_k is {top_k}; it must be at least 1")
        index, _ = self._check()
        found: dict[int, list[dict[str, Any]]] = {}

        def send(client: Elasticsearch, waiting: Sequence[int]) -> tuple[list[int], str]:
            searches: list[dict[str, Any]] = []
            for number in waiting:
                searches += [
                    {"index": index, "search_type": "dfs_query_then_fetch", "allow_partial_search_results": False},
                    self._query(queries[number], top_k, source),
                ]
            again, why = [], ""
            answers = client.msearch(searches=searches).body["responses"]
            for number, answer in zip(waiting, answers, strict=True):
                if (missing := _missing(answer)) is None:
                    found[number] = answer["hits"]["hits"]
                else:
                    again.append(number)
                    why = missing
            return again, why

        if queries:
            self._server.send_all(range(len(queries)), send)
        return [found[number] for number in range(len(queries))]

    def _query(self, query: str, top_k: int, source: list[str] | bool) -> dict[str, Any]:
        return {
            "query": {"multi_match": {"query": query, "fields": self._fields, "type": "most_fields"}},
            "size": top_k,
            "sort": [{"_score": "desc"}, {"id": "asc"}],
            "track_total_hits": False,
            "_source": source,
        }

    def _check(self) -> tuple[str, str]:
        """The name of the index behind the alias, and the server's version; asked once."""
        with self._lock:
            if self._checked is None:
                version = self._server.versions()
                self._checked = self._find(), version
            return self._checked

    def _find(self) -> str:
        found = find_index(self._server, self._alias)
        if found is None:
            raise RetrieverError(
                f"the corpus of {self._size.passages} passages is not indexed: no {self._alias!r} at "
                f"{self._server.where}. Type, with the dataset options of this command: {self._command}"
            )
        if found.meta != (wanted := carried(self._size, self._settings)):
            differences = "; ".join(_differences(found.meta, wanted))
            raise RetrieverError(
                f"the index {found.name} behind {self._alias!r} is another one: {differences}. Change the setting, "
                "name another index with retriever.index, or index it anew. Type, with the dataset options of this "
                "command: "
                f"{self._command}"
            )
        if (count := contents(self._server, found.name)[0]) != self._size.passages:
            raise RetrieverError(
                f"the index {found.name} has {count} passages, and {self._size.passages} when it was made; delete it "
                f"and type, with the dataset options of this command: {self._command}"
            )
        return found.name


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
        raise ValueError(f"Elasticsearch refused the search: {reason}")
    shards = answer["_shards"]
    if answer["timed_out"] or shards["failed"] or shards["successful"] != shards["total"]:
        timed_out = ", timed out" if answer["timed_out"] else ""
        return f"a partial answer: {shards['successful']} of {shards['total']} shards{timed_out}"
    return None


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    if set(found) != set(wanted):
        return ["it was not made by rag-notes"]
    differences = [
        f"{name} is {found['settings'].get(name)!r}, wanted {value!r}"
        for name, value in wanted["settings"].items()
        if found["settings"].get(name) != value
    ]
    if found["corpus"] != wanted["corpus"]:
        was, wants = (
            f"{corpus['passages']} passages (sha256 {corpus['sha256'][:12]}...)"
            for corpus in (found["corpus"], wanted["corpus"])
        )
        differences.append(f"its corpus has {was}, wanted {wants}")
    return differences


def elasticsearch(
    corpus: Iterable[Passage],
    *,
    hosts: Sequence[str] = ("http://127.0.0.1:9200",),
    index: str | None = None,
    analyzer: str = "auto",
    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2,
    b: Annotated[float, Field(ge=0, le=1)] = 0.75,
    fields: Sequence[Literal["title", "text"]] = ("title", "text"),
    title_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None,
    shards: Positive = 1,
    replicas: NonNegative = 1,
    api_key_variable: str = "ELASTICSEARCH_API_KEY",
    user_variable: str = "ELASTICSEARCH_USER",
    password_variable: str = "ELASTICSEARCH_PASSWORD",
    ca_file: str | None = None,
    timeout: Annotated[float, Field(gt=0)] = 60.0,
    max_retries: NonNegative = 8,
) -> ElasticsearchBM25:
    """BM25 in Elasticsearch over `corpus`, which `rag-notes index` must have put there: nothing is indexed here.

    `corpus` is iterated for its checksum and not held, so it may be a `CorpusFile`. `index` is the alias to search
    (None: `rag-notes-` and the beginning of the corpus's checksum). `analyzer="auto"` is `english`, or `cjk` where most
    letters of the first 200 passages are Han characters. With `title_weight=None` the `fields` are one text. `shards`
    and `replicas` are those of a new index; `timeout` is in seconds a request. Raises `ValueError` for settings that
    cannot be; nothing is asked of the server yet.
    """
    given = {name: value for name, value in locals().items() if name != "corpus"}
    if not fields or len(set(fields)) < len(fields):
        raise ValueError(f"retriever.fields is {list(fields)}; expected title, text or both")
    if title_weight is not None and set(fields) != {"title", "text"}:
        raise ValueError(
            f"retriever.title_weight={title_weight} needs retriever.fields=[title,text], not {list(fields)}"
        )
    server = Server(
        hosts,
        api_key_variable=api_key_variable,
        user_variable=user_variable,
        password_variable=password_variable,
        ca_file=ca_file,
        timeout=timeout,
        max_retries=max_retries,
    )
    analyzer = _ANALYZERS[detect_language(list(itertools.islice(corpus, 200)))] if analyzer == "auto" else analyzer
    return ElasticsearchBM25(
        server,
        corpus,
        IndexSettings(analyzer, float(k1), float(b), tuple(fields), joined=title_weight is None),
        index=index,
        title_weight=title_weight,
        shards=shards,
        replicas=replicas,
        command=" ".join(["rag-notes index retriever=elasticsearch", *_options(given)]),
    )


def _options(given: Mapping[str, Any]) -> list[str]:
    """The settings that are not the default, as one types them."""
    options = []
    for name, parameter in inspect.signature(elasticsearch).parameters.items():
        if name in given and _typed(given[name]) != _typed(parameter.default):
            options.append(f"retriever.{name}={_typed(given[name])}")
    return options


def _typed(value: Any) -> str:
    if value is None:
        return "null"
    return f"[{','.join(value)}]" if isinstance(value, (list, tuple)) else str(value)
