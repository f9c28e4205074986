"""Stores what a slow retriever finds, so that a run that is started again searches for nothing twice."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rag_notes.llm.store import ResponseStore, request_key
from rag_notes.retrieval.base import Retriever, check_search
from rag_notes.types import Hit, Passage

LARGE = 1_000_000
"""Passages from which on a search in this process is worth storing."""


def cached(retriever: Retriever, path: str | Path | None) -> Retriever:
    """Return the retriever; a slow one such that it stores its hits in the SQLite file at `path`, if there is one."""
    if path is None or not getattr(retriever, "slow", False):
        return retriever
    return CachedRetriever(retriever, ResponseStore(path))


class CachedRetriever:
    """Stores the hits of a retriever in a table of their own in the file of the response store.

    The key is the hash of the retriever's description, the query and `top_k`. A search that fails is not stored.
    Threads and processes may share the file. Raises StoreError where it cannot be used.
    """

    def __init__(self, retriever: Retriever, store: ResponseStore) -> None:
        self.name, self._retriever, self._description = retriever.name, retriever, retriever.describe()
        self._store = store
        store.execute("CREATE TABLE IF NOT EXISTS searches (key TEXT PRIMARY KEY, hits TEXT NOT NULL) WITHOUT ROWID")

    def describe(self) -> dict[str, Any]:
        """Return the retriever's own description: the store changes no hit."""
        return self._description

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """As `Retriever.search`. Only queries that are not stored are searched, each once and in one batch."""
        check_search(queries, top_k)
        keys = {q: request_key({"retriever": self._description, "query": q, "top_k": top_k}) for q in queries}
        select = "SELECT key, hits FROM searches WHERE key IN (SELECT value FROM json_each(?))"
        rows = self._store.execute(select, [json.dumps(list(keys.values()))])
        hits = {key: [Hit(Passage(**hit["passage"]), hit["score"]) for hit in json.loads(text)] for key, text in rows}
        if missing := [query for query in keys if keys[query] not in hits]:
            for query, ranking in zip(missing, self._retriever.search(missing, top_k), strict=True):
                hits[keys[query]] = ranking
                text = json.dumps([asdict(hit) for hit in ranking], ensure_ascii=False)
                self._store.execute("INSERT OR IGNORE INTO searches VALUES (?, ?)", [keys[query], text])
        return [list(hits[keys[query]]) for query in queries]
