"""From a corpus to an index in Elasticsearch: mapping, a bulk load that can be resumed, the switch of the alias."""

import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from elasticsearch import Elasticsearch
from tqdm import tqdm

from rag_notes.llm.store import canonical_json
from rag_notes.retrieval.base import Corpus, Counted, RetrieverError, measure
from rag_notes.retrieval.elastic_server import RefusedError, Server, is_momentary, reason_of
from rag_notes.types import InputError, Passage

_LONGEST_ID = 512  # bytes in UTF-8; one that is longer would have the server refuse the whole chunk
_META = "rag_notes"  # the key of the mapping's _meta


class Kind(Protocol):
    """A way to search, with its settings: an index is known again by both."""

    @property
    def kind(self) -> str:
        """Its name."""
        ...

    def describe(self) -> dict[str, Any]:
        """What decides an index's content besides the corpus, as plain JSON values; the index carries it."""
        ...


class Content(Kind, Protocol):
    """What an index holds: the fields of its documents besides `id` and `position`."""

    @property
    def chunk(self) -> int:
        """Passages in a bulk request; one request at a time, so a killed load lacks at most these."""
        ...

    def index_settings(self) -> dict[str, Any]:
        """The index's settings besides its shards and replicas."""
        ...

    def properties(self) -> dict[str, Any]:
        """The fields as the mapping has them."""
        ...

    def document(self, position: int, passage: Passage) -> dict[str, Any]:
        """The values of the fields for a passage of the corpus; positions count from 0."""
        ...


class Found(NamedTuple):
    """An index as the server has it: its name, and what it carries of its kind, corpus and settings."""

    name: str
    meta: dict[str, Any]


def carried(corpus: Corpus, kind: Kind) -> dict[str, Any]:
    """What an index of this corpus and kind carries, to be known again."""
    return {"kind": kind.kind, "corpus": corpus._asdict(), "settings": kind.describe()}


def kept(*fields: str) -> dict[str, Any]:
    """The mapping of fields that are in _source alone and are not searched."""
    return {field: {"type": "text", "index": False} for field in fields}


def index_body(content: Content, meta: Mapping[str, Any], *, shards: int, replicas: int) -> dict[str, Any]:
    """The settings and mapping of a new index, which takes no field but those named."""
    placed = {"id": {"type": "keyword"}, "position": {"type": "long"}}
    return {
        "settings": {"number_of_shards": shards, "number_of_replicas": replicas, **content.index_settings()},
        "mappings": {"dynamic": "strict", "_meta": {_META: dict(meta)}, "properties": placed | content.properties()},
    }


def find_index(server: Server, alias: str) -> Found | None:
    """The index behind an alias, or None. Raises `RetrieverError` where the name is no alias of one index."""
    try:
        indexes = server.call(lambda client: client.indices.get(index=alias).body)
    except RefusedError as error:
        if error.status == 404:
            return None
        raise
    if list(indexes) == [alias] or len(indexes) != 1:
        what = "an index itself" if list(indexes) == [alias] else f"the alias of {len(indexes)} indexes"
        raise RetrieverError(f"{alias!r} is {what}, not the alias of one index; name another one with retriever.index")
    [(name, index)] = indexes.items()
    return Found(name, index["mappings"].get("_meta", {}).get(_META, {}))


def contents(server: Server, index: str) -> tuple[int, int]:
    """How many passages a search of an index sees, and the position of the last one (-1: none)."""
    last = {"last": {"max": {"field": "position"}}}
    answer = server.call(
        lambda client: (
            client.search(
                index=index, size=0, aggs=last, track_total_hits=True, allow_partial_search_results=False
            ).body
        )
    )
    position = answer["aggregations"]["last"]["value"]
    return int(answer["hits"]["total"]["value"]), -1 if position is None else int(position)


def build_index(
    server: Server,
    alias: str,
    corpus: Iterable[Passage],
    content: Content,
    *,
    shards: int,
    replicas: int,
    progress: bool = True,
) -> str:
    """Index a corpus, or what is missing of it, and let `alias` name the index; returns a line that says what was done.

    The corpus is read twice and never held. The index is named by what it carries, so that a load that was killed finds
    its own again; the alias is switched in one step when every passage is there once, and an index that it named before
    stays. Raises `RetrieverError` with the server's reason for what it refuses, `ValueError` for an empty corpus, ids
    that occur twice and a corpus that changes meanwhile.
    """
    size = measure(corpus)
    if not size.passages:
        raise InputError("the corpus is empty, there is nothing to index: set dataset.<name>.corpus to its passages")
    meta = carried(size, content)
    body = index_body(content, meta, shards=shards, replicas=replicas)
    index = f"{alias}-{hashlib.sha256(canonical_json([meta, shards]).encode()).hexdigest()[:12]}"
    before = find_index(server, alias)
    _create(server, index, body)
    retries = server.retries
    server.call(lambda client: client.indices.refresh(index=index))
    there, last = contents(server, index)
    if there != size.passages:
        # All before the chunk that was under way are there for sure: one chunk was sent after the other.
        start = max(last, 0) // content.chunk * content.chunk
        _load(server, index, corpus, content, size, start=start, progress=progress)
        server.call(lambda client: client.indices.refresh(index=index))
        if (count := contents(server, index)[0]) != size.passages:
            raise RetrieverError(
                f"{index} has {count} passages where the corpus has {size.passages}; the alias {alias!r} was left as "
                f"it was. Delete the index {index} and index again"
            )
    if before is None or before.name != index:
        actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": alias}}]
        if before is not None:
            actions.insert(0, {"remove": {"index": before.name, "alias": alias}})
        server.call(lambda client: client.indices.update_aliases(actions=actions))
    said = f"{alias}: {size.passages} passages in {index}, {size.passages - there} of them loaded now"
    if server.retries > retries:
        said += f", {server.retries - retries} times something was sent again"
    if before is not None and before.name != index:
        said += f"; {before.name}, which the alias named before, is kept"
    return said


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every value that differs between two nested settings, by its path: the server gives all of them as strings."""
    for name in dict.fromkeys([*wanted, *found]):
        want, find = wanted.get(name), found.get(name)
        if isinstance(want, Mapping) and isinstance(find, Mapping):
            yield from differences(want, find, f"{prefix}{name}.")
        elif _plain(want) != _plain(find):
            yield f"{prefix}{name} is {find!r}, wanted {want!r}"


def _create(server: Server, index: str, body: dict[str, Any]) -> None:
    """Make the index unless it is there, and read back that the server has what was asked for."""
    replicas = body["settings"]["number_of_replicas"]
    try:
        server.call(lambda client: client.indices.create(index=index, **body))
    except RefusedError as error:
        if error.status != 400 or not server.call(lambda client: client.indices.exists(index=index).body):
            raise
    actual = server.call(lambda client: client.indices.get(index=index).body)[index]
    if actual["settings"]["index"]["number_of_replicas"] != str(replicas):  # asked otherwise when the load began
        server.call(lambda client: client.indices.put_settings(index=index, settings={"number_of_replicas": replicas}))
        actual["settings"]["index"]["number_of_replicas"] = str(replicas)
    settings = {name: actual["settings"]["index"].get(name) for name in (*body["settings"], "analysis")}
    if other := [
        *differences(body["settings"] | {"analysis": None}, settings, "settings."),
        *differences(body["mappings"], actual["mappings"], "mappings."),
    ]:
        raise RetrieverError(
            f"the server made the index {index} with other settings than asked for: {'; '.join(other)}. Look for an "
            "index template that matches this name, and delete the index before you try again"
        )


def _plain(value: Any) -> Any:
    """A value for comparison: the server gives back its settings as strings."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value).lower() if isinstance(value, bool) else value


def _load(
    server: Server,
    index: str,
    corpus: Iterable[Passage],
    content: Content,
    size: Corpus,
    *,
    start: int,
    progress: bool,
) -> None:
    counted = Counted(corpus)
    placed = enumerate(counted)
    bar = tqdm(total=size.passages, initial=start, disable=not progress, unit=" passages", file=sys.stderr)
    retries = server.retries
    with bar:
        for _ in itertools.islice(placed, start):
            pass
        while chunk := list(itertools.islice(placed, content.chunk)):
            _send(server, index, chunk, content)
            bar.update(len(chunk))
            if server.retries > retries:
                bar.set_postfix_str(f"{server.retries - retries} sent again", refresh=False)
    if counted.seen() != size:
        raise InputError(
            f"the corpus changed while it was indexed: {counted.seen().passages} passages now, {size.passages} before; "
            "index it again"
        )


def _send(server: Server, index: str, chunk: Sequence[tuple[int, Passage]], content: Content) -> None:
    """Put a chunk into the index; a passage that is there already, from this load or a killed one, is left alone."""
    there: list[tuple[int, Passage]] = []

    def send(client: Elasticsearch, waiting: Sequence[tuple[int, Passage]]) -> tuple[list[tuple[int, Passage]], str]:
        operations: list[dict[str, Any]] = []
        for position, passage in waiting:
            if (length := len(passage.id.encode())) > _LONGEST_ID:
                raise InputError(
                    f"the id of passage {position + 1} ({passage.id[:80]!r}) has {length} bytes; Elasticsearch takes "
                    f"{_LONGEST_ID}"
                )
            document = {"id": passage.id, "position": position, **content.document(position, passage)}
            # `create`, since to write a passage again would leave a deleted one behind, which counts in the statistics.
            operations += [{"create": {"_id": passage.id}}, document]
        answer = client.bulk(index=index, operations=operations, filter_path="items.*.status,items.*.error")
        again, why = [], ""
        for (position, passage), item in zip(waiting, answer["items"], strict=True):
            status, error = item["create"]["status"], item["create"].get("error")
            if status == 409:
                there.append((position, passage))
            elif is_momentary(status):
                again.append((position, passage))
                why = f"status {status}: {reason_of(error)}"
            elif error is not None:
                raise RetrieverError(f"passage {position + 1} ({passage.id[:80]!r}) was refused: {reason_of(error)}")
        return again, why

    server.send_all(chunk, send)
    if there:
        _check_positions(server, index, there)


def _check_positions(server: Server, index: str, there: Sequence[tuple[int, Passage]]) -> None:
    ids = [passage.id for _, passage in there]
    found = server.call(lambda client: client.mget(index=index, ids=ids, source_includes=["position"]).body)["docs"]
    for (position, passage), document in zip(there, found, strict=True):
        if (other := document["_source"]["position"]) != position:
            raise InputError(
                f"passages {other + 1} and {position + 1} of the corpus have the same id {passage.id!r}; ids must "
                f"differ. The unfinished index {index} can be deleted"
            )
