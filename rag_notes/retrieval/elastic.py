"""BM25 and kNN in an Elasticsearch server or cluster, over a corpus that `rag-notes index` has loaded into it."""

import hashlib
import itertools
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from elasticsearch import ApiError, Elasticsearch, TransportError, helpers
from pydantic import Field
from tqdm import tqdm

from rag_notes.datasets.corpus import check_ids
from rag_notes.llm.store import canonical_json
from rag_notes.retrieval.base import RetrieverError, check_search, measure
from rag_notes.retrieval.encoders import Encoder, describe_passages, encode_in_batches
from rag_notes.retrieval.tokenize import detect_language
from rag_notes.types import Hit, InputError, NonNegative, Passage, Positive

JSON = dict[str, Any]

_SEARCHES = 250  # in a request: the server refuses one above 100 MB, and a vector can take 80 kB
_MOMENTARY = (429, 500, 502, 503, 504)  # a server that is busy, or a node in trouble
_STORED: JSON = {"type": "text", "index": False}
_ANALYZERS = {"en": "english", "zh": "cjk"}


@dataclass(kw_only=True, eq=False)
class ElasticsearchRetriever(ABC):
    """The connection to a server, an index with its alias, and batches of searches: what BM25 and kNN share.

    `index` is the alias to search (None: one named by the corpus). `shards` and `replicas` are those of a new index.
    `ca_file` is the server's CA certificate (PEM), `timeout` is in seconds a request, `max_retries` is how often a
    request is sent again, to the next host, after a failure that may pass. Key, user and password are read from the
    environment variables named. The corpus is iterated several times and never held. Threads may share the object.
    Raises InputError for an empty corpus and settings that cannot be; the first search contacts the server.
    """

    corpus: Iterable[Passage] = field(kw_only=False)
    hosts: Sequence[str] = ("http://127.0.0.1:9200",)
    index: str | None = None
    shards: Positive = 1
    replicas: NonNegative = 1
    api_key_variable: str = "ELASTICSEARCH_API_KEY"
    user_variable: str = "ELASTICSEARCH_USER"
    password_variable: str = "ELASTICSEARCH_PASSWORD"
    ca_file: str | None = None
    timeout: Annotated[float, Field(gt=0)] = 60.0
    max_retries: NonNegative = 8
    name: ClassVar[str]
    slow: ClassVar = True
    chunk: ClassVar = 1000  # passages in a request
    header: ClassVar[JSON] = {}  # of each search

    def __post_init__(self) -> None:
        variables = (self.api_key_variable, self.user_variable, self.password_variable)
        key, user, password = (os.environ.get(name) for name in variables)
        if bool(user) != bool(password) or (key and user):
            raise InputError("set {}, or both {} and {}, or none of them".format(*variables))
        if any("@" in host for host in self.hosts):
            raise InputError(f"retriever.hosts has a password in it; set {self.password_variable} instead")
        options: JSON = {"api_key": key} if key else {"basic_auth": (user, password)} if user else {}
        options |= {"retry_on_status": _MOMENTARY, "retry_on_timeout": True, "max_retries": self.max_retries}
        options |= {"retry_backoff_base": 0.2, "retry_backoff_cap": 10, "request_timeout": self.timeout}
        try:
            options |= {"ca_certs": str(Path(self.ca_file).resolve(strict=True))} if self.ca_file else {}
            self._client = Elasticsearch(list(self.hosts), **options)
        except (ValueError, OSError) as error:
            raise InputError(f"retriever.hosts={list(self.hosts)} ca_file={self.ca_file}: {error}") from None
        # What decides the content of the index and the searches, and what the server is sent for a new index.
        self._settings, self._search_settings, self._index_settings = JSON(), JSON(), JSON()
        self._properties: JSON = {"id": {"type": "keyword"}, "title": _STORED, "text": _STORED}
        self._size = measure(self.corpus)
        self._alias = self.index or f"rag-notes-{self.name}-{self._size.sha256[:12]}"

    @abstractmethod
    def _searches(self, queries: Sequence[str], top_k: int) -> list[JSON]: ...

    def _score(self, score: float) -> float:
        return score

    def _documents(self, passages: Sequence[Passage]) -> list[JSON]:
        return [{"id": one.id, "title": one.title, "text": one.text} for one in passages]

    def describe(self) -> JSON:
        """Name, settings, version of the server, and size and checksum of the corpus. Raises as `search`."""
        with self._explained():
            index = {"index": self._checked_index}  # first: it finds out whether there is a server at all
            nodes = self._client.nodes.info(filter_path="nodes.*.version")["nodes"].values()
            index["server"] = ", ".join(sorted({node["version"] for node in nodes}))
        return {"name": self.name, **self._settings, **self._search_settings, **index, "corpus": self._size._asdict()}

    def build_index(self, *, progress: bool = True) -> str:
        """Index the corpus, or what is missing of it, and return a line that says what was done.

        The index is named by its content, so that a load that was killed goes on with its last chunk. The alias is
        switched when all passages are in; the index that it named before stays. Raises RetrieverError for what the
        server refuses, and InputError for an id that occurs twice; the alias is then unchanged.
        """
        digest = hashlib.sha256(canonical_json([self._meta, self.shards]).encode()).hexdigest()
        index, indices = f"{self._alias}-{digest[:12]}", self._client.indices
        creating = self._client.options(ignore_status=400).indices  # where a load was killed it exists
        with self._explained():
            former = set(self._aliased_indexes())
            if self._alias in former:
                raise RetrieverError(f"{self._alias!r} is an index, not an alias; set another name: retriever.index")
            settings = {"number_of_shards": self.shards, "number_of_replicas": self.replicas, **self._index_settings}
            mappings = {"dynamic": "strict", "_meta": {"rag_notes": self._meta}, "properties": self._properties}
            created = creating.create(index=index, mappings=mappings, settings=settings)
            if created.meta.status == 400 and "already_exists" not in str(created.body):
                raise RetrieverError(f"Elasticsearch refused the index: {created.body}"[:1000])
            indices.put_settings(index=index, settings={"number_of_replicas": self.replicas})
            indices.refresh(index=index)
            if (present := self._client.count(index=index)["count"]) != self._size.passages:
                self._load(index, present // self.chunk * self.chunk, progress=progress)
            indices.refresh(index=index)
            if (count := self._client.count(index=index)["count"]) != self._size.passages:
                check_ids(self.corpus)
                raise RetrieverError(f"{index} has {count} of {self._size.passages} passages; delete it, index again")
            actions: list[JSON] = [{"remove": {"index": other, "alias": self._alias}} for other in former - {index}]
            indices.update_aliases(actions=[*actions, {"add": {"index": index, "alias": self._alias}}])
        return f"{self._alias}: {count} passages in {index}, {count - present} of them loaded now"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes.

        Raises InputError for a search that is refused, and RetrieverError where the index is not that of the corpus or
        the server gives no whole answer.
        """
        check_search(queries, top_k)
        order = {"sort": [{"_score": "desc"}, {"id": "asc"}], "track_total_hits": False, "_source": ["title", "text"]}
        rankings: list[list[Hit]] = []
        with self._explained():
            header = {"index": self._checked_index, "allow_partial_search_results": False, **self.header}
            for start in range(0, len(queries), _SEARCHES):
                bodies = [order | body for body in self._searches(queries[start : start + _SEARCHES], top_k)]
                for hits in self._answers(header, bodies):
                    passages = [Passage(hit["_id"], **hit["_source"]) for hit in hits]
                    rankings.append([Hit(p, self._score(hit["_score"])) for p, hit in zip(passages, hits, strict=True)])
        return rankings

    @property
    def _meta(self) -> JSON:
        return {"retriever": self.name, **self._size._asdict(), **self._settings}

    @cached_property
    def _checked_index(self) -> str:
        """The name of the right index. Raises RetrieverError where there is none, or one of something else."""
        indexes = self._aliased_indexes()
        advice = f"type `rag-notes index retriever={self.name}` with the options of this command"
        if len(indexes) != 1:
            raise RetrieverError(f"the corpus is not indexed: {self._alias!r} names {len(indexes)} indexes; {advice}")
        [(name, index)] = indexes.items()
        meta = index["mappings"].get("_meta", {}).get("rag_notes", {})
        if differences := [f"{k} is {meta.get(k)}, expected {v}" for k, v in self._meta.items() if meta.get(k) != v]:
            raise RetrieverError(f"{name} behind {self._alias!r} is another index: {'; '.join(differences)}; {advice}")
        if (count := self._client.count(index=name)["count"]) != self._size.passages:
            raise RetrieverError(f"{name} has {count} of {self._size.passages} passages; delete it and {advice}")
        return name

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise RetrieverError, which says what is wrong, for errors of the client."""
        try:
            yield
        except (ApiError, TransportError) as error:
            status, advice = getattr(error, "status_code", None), ""
            if status in {401, 403}:
                advice = f"; see {self.api_key_variable}, or {self.user_variable} and {self.password_variable}"
            elif "media_type_header" in str(error):
                advice = "; client and server need the same major version"
            elif status is None or status in _MOMENTARY:
                advice = "; see retriever.hosts and ca_file; once the server is well, the same command goes on"
            text = error.message if isinstance(error, TransportError) else error
            raise RetrieverError(f"Elasticsearch at {', '.join(self.hosts)}: {text}"[:1000] + advice) from None

    def _aliased_indexes(self) -> JSON:
        """The indexes that the alias names. This is the first request: a wrong address is an error without a pause."""
        client = self._client.options(ignore_status=404, max_retries=len(self.hosts) - 1, retry_backoff_base=0)
        indexes = client.indices.get(index=self._alias)
        return dict(indexes.body) if indexes.meta.status == 200 else {}

    def _load(self, index: str, start: int, *, progress: bool) -> None:
        # One chunk after the other: all before the one that was under way at a kill are in the index.
        passages = itertools.islice(self.corpus, start, None)
        chunks = iter(lambda: list(itertools.islice(passages, self.chunk)), [])
        documents = itertools.chain.from_iterable(map(self._documents, chunks))
        actions = ({"_op_type": "create", "_id": document["id"]} | document for document in documents)
        options: JSON = {"max_retries": self.max_retries, "initial_backoff": 0.2, "max_backoff": 10}
        options |= {"retry_on_status": _MOMENTARY, "raise_on_error": False, "chunk_size": self.chunk}
        client = self._client.options(retry_on_status=())  # the helper sends again what such a status refused
        results: Any = helpers.streaming_bulk(client, actions, index=index, **options)
        bar: JSON = {"total": self._size.passages, "initial": start, "unit": " passages", "file": sys.stderr}
        for success, item in tqdm(results, disable=not progress, **bar):
            if not success and item["create"]["status"] != 409:  # 409: a killed load has put it there
                raise RetrieverError(f"a passage was refused: {str(item['create'])[:1000]}")

    def _answers(self, header: JSON, bodies: Sequence[JSON]) -> list[Any]:
        """The hits of each search. One that failed inside a batch, where the client does not look, is sent again."""
        answers: dict[int, Any] = {}
        missing, problem = list(range(len(bodies))), ""
        for attempt in range(self.max_retries + 1):
            searches = [part for number in missing for part in (header, bodies[number])]
            responses = self._client.msearch(searches=searches)["responses"]
            for number, response in zip(missing, responses, strict=True):
                if "error" in response and response["status"] not in _MOMENTARY:
                    kind = RetrieverError if response["status"] == 404 else InputError
                    raise kind(f"Elasticsearch refused the search: {str(response['error'])[:1000]}")
                shards = response.get("_shards", {"total": 1, "successful": 0})
                if response.get("timed_out") or shards["successful"] != shards["total"]:
                    problem = str(response.get("error") or shards)[:500]
                else:
                    answers[number] = response["hits"]["hits"]
            if not (missing := [number for number in missing if number not in answers]):
                return [answers[number] for number in range(len(bodies))]
            time.sleep(min(0.1 * 2**attempt, 10))
        raise RetrieverError(f"Elasticsearch gave no whole answer {self.max_retries + 1} times: {problem}")


@dataclass(kw_only=True, eq=False)
class ElasticsearchBM25(ElasticsearchRetriever):
    """BM25 by Lucene's formula, with the statistics of all shards. Its scores are k1 + 1 times those of `bm25`.

    `analyzer="auto"` is `english`, or `cjk` for Chinese. The `fields` are indexed as one text; with a `title_weight`
    the score is that many times the title's plus the text's.
    """

    analyzer: str = "auto"
    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    fields: Sequence[Literal["title", "text"]] = ("title", "text")
    title_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    name: ClassVar = "elasticsearch"
    header: ClassVar = {"search_type": "dfs_query_then_fetch"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.analyzer == "auto":
            self.analyzer = _ANALYZERS[detect_language(self.corpus)]
        if not self.fields or (self.title_weight and set(self.fields) != {"title", "text"}):
            raise InputError(f"retriever.fields={list(self.fields)}: set title, text or both; title_weight needs both")
        analyzed: JSON = {"type": "text", "analyzer": self.analyzer}
        if self.title_weight is None:
            self._match: JSON = {"fields": ["contents"]}
            self._properties |= dict.fromkeys(self.fields, _STORED | {"copy_to": ["contents"]}) | {"contents": analyzed}
        else:
            self._match = {"type": "most_fields", "fields": [f"title^{self.title_weight}", "text"]}
            self._properties |= {"title": analyzed, "text": analyzed}
        self._index_settings = {"similarity": {"default": {"type": "BM25", "k1": self.k1, "b": self.b}}}
        fields = list(self.fields) if self.title_weight else ["+".join(self.fields)]
        self._settings = {"analyzer": self.analyzer, "k1": float(self.k1), "b": float(self.b), "fields": fields}
        self._search_settings = {"title_weight": self.title_weight}

    def _searches(self, queries: Sequence[str], top_k: int) -> list[JSON]:
        return [{"size": top_k, "query": {"multi_match": {"query": query} | self._match}} for query in queries]


@dataclass(kw_only=True, eq=False)
class ElasticsearchKNN(ElasticsearchRetriever):
    """Ranks passages by the inner product of their vectors, encoded `batch_size` together, with the query's.

    "flat" compares all vectors with the query. "hnsw" follows a graph with `m` neighbours a vector and may miss some.
    Each shard gives `candidates`; equal scores are in the order of the ids among these.
    """

    encoder: Encoder
    index_type: Literal["hnsw", "flat"] = "hnsw"
    m: Annotated[int, Field(ge=2, le=512)] = 16
    ef_construction: Annotated[int, Field(ge=1, le=3200)] = 100
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 200
    batch_size: Positive = 32
    name: ClassVar = "elasticsearch_knn"
    chunk: ClassVar = _SEARCHES

    def __post_init__(self) -> None:
        super().__post_init__()
        self._unit = bool(self.encoder.describe().get("normalize"))
        graph: JSON = {"m": self.m, "ef_construction": self.ef_construction} if self.index_type == "hnsw" else {}
        # Index options are always set, as the server's own would quantise the vectors.
        compared: JSON = {"index_options": {"type": self.index_type} | graph}
        compared["similarity"] = "dot_product" if self._unit else "max_inner_product"
        self._properties |= {"vector": {"type": "dense_vector"} | compared}
        self._settings = {"encoder": describe_passages(self.encoder)} | compared
        self._search_settings = {"encoder": self.encoder.describe(), "candidates": self.candidates}

    def _documents(self, passages: Sequence[Passage]) -> list[JSON]:
        vectors = encode_in_batches(self.encoder, passages, self.batch_size).tolist()
        return [one | {"vector": vector} for one, vector in zip(super()._documents(passages), vectors, strict=True)]

    def _searches(self, queries: Sequence[str], top_k: int) -> list[JSON]:
        depth = max(self.candidates, top_k)  # the server sorts them all by score and id
        knn = {"field": "vector", "k": depth, "num_candidates": depth}
        vectors = self.encoder.encode_queries(queries).tolist()
        return [{"size": top_k, "knn": knn | {"query_vector": vector}} for vector in vectors]

    def _score(self, score: float) -> float:
        """Undo the server's change of an inner product to a positive score (`similarity` of `dense_vector`)."""
        return 2 * score - 1 if self._unit else score - 1 if score >= 1 else 1 - 1 / score
