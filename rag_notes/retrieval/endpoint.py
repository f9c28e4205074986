"""An encoder behind an OpenAI-compatible endpoint for embeddings."""

import os
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import openai

from rag_notes.retrieval.encoders import Encoded, Vectors, unit
from rag_notes.types import InputError, Positive


class EndpointEncoder:
    """A model behind any OpenAI-compatible `/embeddings` endpoint; the key comes from the environment variable named.

    `batch_size` texts go out in a request, `dimensions` asks for shorter vectors where the endpoint can. 429, 5xx,
    time-outs and lost connections are tried again, `max_retries` times. A text longer than the model reads is the
    endpoint's affair: it refuses it or cuts it unsaid. The other settings are those of `OnnxEncoder`.

    Raises ValueError where the endpoint is OpenAI's own and the variable is empty, and while encoding OSError where the
    endpoint fails or answers something that is not the vectors asked for.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key_variable: str = "OPENAI_API_KEY",
        dimensions: Positive | None = None,
        normalize: bool = True,
        query_instruction: str = "",
        instruct_queries: bool = True,
        passage_instruction: str = "",
        batch_size: Positive = 64,
        timeout: float = 600.0,
        max_retries: int = 5,
    ) -> None:
        self._key = os.environ.get(api_key_variable) or ""
        if not self._key and "api.openai.com" in base_url:
            raise InputError(
                f"retriever.encoder needs a key: set the environment variable {api_key_variable}, or name your own "
                "server with retriever.encoder.base_url=http://127.0.0.1:8000/v1"
            )
        self._client = openai.OpenAI(
            base_url=base_url, api_key=self._key or "none", timeout=timeout, max_retries=max_retries
        )
        self._model, self._base_url, self._dimensions = model, base_url, dimensions
        self._batch_size, self._normalize = batch_size, normalize
        self._query_instruction = query_instruction if instruct_queries else ""
        self._passage_instruction = passage_instruction

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """As `Encoder.encode_queries`, but nothing is known of a query that the endpoint cuts."""
        return self._encode([self._query_instruction + query for query in queries]).vectors

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        """As `Encoder.encode_passages`; `truncated` is 0, as the endpoint does not say."""
        return self._encode([self._passage_instruction + text for text in texts])

    def describe(self) -> dict[str, Any]:
        """As `Encoder.describe`: of an endpoint's model only the name is known."""
        return {
            "encoder": "endpoint",
            "model": self._model,
            "dimensions": self._dimensions,
            "pooling": "the endpoint's own",
            "normalize": self._normalize,
            "passage_instruction": self._passage_instruction,
            "query_instruction": self._query_instruction,
        }

    def _encode(self, texts: list[str]) -> Encoded:
        rest, parts, retries = iter(texts), [], 0
        while batch := list(islice(rest, self._batch_size)):
            vectors, again = self._request(batch)
            parts.append(vectors)
            retries += again
        if len(widths := {part.shape[1] for part in parts}) > 1:
            raise OSError(f"{self._base_url} answered vectors of {sorted(widths)} dimensions to one list of texts")
        vectors = np.concatenate(parts)
        return Encoded(unit(vectors) if self._normalize else vectors, retries=retries)

    def _request(self, texts: list[str]) -> tuple[Vectors, int]:
        more = {} if self._dimensions is None else {"dimensions": self._dimensions}
        try:
            raw = self._client.embeddings.with_raw_response.create(
                model=self._model,
                input=texts,
                encoding_format="float",
                **more,  # type: ignore[arg-type] # one of many optional arguments
            )
            vectors = _read_vectors(raw.http_response.json(), len(texts), self._dimensions)
        except openai.APIError as error:
            text = self._redact(f"{type(error).__name__}: {error.message}")
            raise OSError(f"{self._base_url} failed to embed with {self._model!r} ({text})") from None
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            text = self._redact(f"{type(error).__name__}: {error}")
            raise OSError(f"{self._base_url} answered something that is not the vectors asked for ({text})") from None
        return vectors, raw.retries_taken

    def _redact(self, text: str) -> str:
        if self._key:
            text = text.replace(self._key, "[key]")
        return re.sub(r"\b(sk|key)-[\w*.-]{6,}", "[key]", text)[:500]


def _read_vectors(body: Any, count: int, dimensions: int | None) -> Vectors:
    """The vectors of an endpoint's answer in the order of the texts: each item says by its index whose it is."""
    items = body["data"]
    by_index = {item["index"]: item["embedding"] for item in items}
    if len(items) != count or set(by_index) != set(range(count)):
        raise InputError(f"{len(items)} vectors with the indices {sorted(by_index)[:5]}... for {count} texts")
    vectors = np.asarray([by_index[index] for index in range(count)], dtype=np.float32)
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise InputError("not one list of finite numbers for each text")
    if dimensions not in (None, vectors.shape[1]):
        raise InputError(f"{vectors.shape[1]} dimensions where {dimensions} were asked for")
    return vectors
