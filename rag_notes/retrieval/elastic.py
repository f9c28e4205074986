"""BM25 in an Elasticsearch server or cluster, over a corpus that `rag-notes index` has put there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rag_notes.retrieval.elastic_index import kept
from rag_notes.retrieval.elastic_search import ElasticsearchRetriever, IndexOptions, command_line
from rag_notes.retrieval.elastic_server import Server
from rag_notes.retrieval.tokenize import detect_language
from rag_notes.types import InputError, NonNegative, Passage, Positive

_ANALYZERS = {"en": "english", "zh": "cjk"}  # that Elasticsearch comes with


@dataclass(frozen=True, slots=True)
class BM25Settings:
    """How passages are indexed for BM25 with `k1` and `b`, as `rag_notes.retrieval.elastic_index.Content` describes.

    With `joined` the fields are indexed as one text, named `contents`; else each on its own.
    """

    analyzer: str
    k1: float
    b: float
    fields: tuple[str, ...]
    joined: bool
    kind: ClassVar[str] = "bm25"
    chunk: ClassVar[int] = 1000

    def describe(self) -> dict[str, Any]:
        """As `Content.describe`."""
        return {
            "analyzer": self.analyzer,
            "k1": self.k1,
            "b": self.b,
            "fields": ["+".join(self.fields)] if self.joined else list(self.fields),
        }

    def index_settings(self) -> dict[str, Any]:
        """As `Content.index_settings`: one similarity for all fields."""
        return {"similarity": {"default": {"type": "BM25", "k1": self.k1, "b": self.b}}}

    def properties(self) -> dict[str, Any]:
        """As `Content.properties`."""
        fields, searched = kept("title", "text"), {"type": "text", "analyzer": self.analyzer}
        if not self.joined:
            return fields | dict.fromkeys(self.fields, searched)
        return (
            fields | {name: fields[name] | {"copy_to": ["contents"]} for name in self.fields} | {"contents": searched}
        )

    def document(self, position: int, passage: Passage) -> dict[str, Any]:
        """As `Content.document`."""
        return {"title": passage.title, "text": passage.text}


class ElasticsearchBM25(ElasticsearchRetriever):
    """BM25 by Lucene's formula over an index that carries the checksum of `corpus` and its own settings.

    The score is k1 + 1 times that of `rag_notes.retrieval.bm25.BM25`, which Lucene itself no longer multiplies by. With
    several shards the statistics are those of the whole index. With a `title_weight` the score is `title_weight` times
    that of the title plus that of the text. Make one with `elasticsearch`.
    """

    name = "elasticsearch"
    _prefix = "rag-notes"
    _header = {"search_type": "dfs_query_then_fetch"}  # noqa: RUF012 - a mapping that is only read

    def __init__(
        self,
        server: Server,
        corpus: Iterable[Passage],
        settings: BM25Settings,
        options: IndexOptions,
        *,
        title_weight: float | None = None,
    ) -> None:
        """As `ElasticsearchRetriever`; `title_weight` needs settings that do not join the fields."""
        super().__init__(server, corpus, settings, options)
        self._settings = settings
        self._title_weight = title_weight

    def build_index(self, *, progress: bool = True) -> str:
        """Index the corpus, or what is missing of it, and return a line that says what was done.

        Raises as `rag_notes.retrieval.elastic_index.build_index`.
        """
        self._server.versions()
        return self._build(self._corpus, self._settings, progress=progress)

    def describe(self) -> dict[str, Any]:
        """Name, settings, version of the server, number of passages and checksum of the corpus.

        Raises `RetrieverError` where the corpus is not indexed, or with other settings.
        """
        described = {"name": self.name, **self._settings.describe(), "server": self._check().version}
        return described | {"title_weight": self._title_weight, "corpus": self._size._asdict()}

    def _searches(self, queries: Sequence[str], top_k: int) -> list[dict[str, Any]]:
        fields = [f"title^{self._title_weight}" if field == "title" else field for field in self._settings.fields]
        searched = {"fields": ["contents"] if self._settings.joined else fields, "type": "most_fields"}
        return [{"query": {"multi_match": {"query": query, **searched}}} for query in queries]


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
        raise InputError(f"retriever.fields is {list(fields)}; expected title, text or both")
    if title_weight is not None and set(fields) != {"title", "text"}:
        raise InputError(
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
    analyzer = _ANALYZERS[detect_language(corpus)] if analyzer == "auto" else analyzer
    return ElasticsearchBM25(
        server,
        corpus,
        BM25Settings(analyzer, float(k1), float(b), tuple(fields), joined=title_weight is None),
        IndexOptions(index, shards, replicas, command_line("elasticsearch", elasticsearch, given)),
        title_weight=title_weight,
    )
