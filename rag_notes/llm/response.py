"""A response, the key it is stored under, and its JSON: strictly checked, the same text for the same value."""

import hashlib
import json
import math
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from rag_notes.llm.errors import encodable
from rag_notes.types import InputError

KEY_VERSION = "rag-notes-1"
MOST = 2**53
"""More tokens, retries or seconds than any call has."""


class StoreError(InputError):
    """A response store or an export of one that cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a model answered to one request, with what it cost when it was made.

    `seconds` is the wall time of the call including its `retries`, in seconds. `finish_reason` is the endpoint's
    own word; "length" means that the answer was cut at the token limit, "refusal" (ours) that `text` is the message
    with which the model declined. `logprobs` holds (token, natural log probability) pairs where they were asked for.
    `reasoning` is what a reasoning model wrote before the answer, where the endpoint shows it; `completion_tokens`
    include the `reasoning_tokens`. `endpoint` (host and port), `served_as` (the name asked for) and `model` (the name
    answered) say what served it.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    retries: int = 0
    logprobs: tuple[tuple[str, float], ...] | None = None
    reasoning: str | None = None
    reasoning_tokens: int = 0
    model: str | None = None
    served_as: str | None = None
    endpoint: str | None = None

    def fields(self) -> dict[str, Any]:
        """All fields by name, of the optional ones after `logprobs` those that are set."""
        values = ((name, getattr(self, name)) for name in _FIELDS)
        return {name: value for name, value in values if name in _ALWAYS or value}


_FIELDS = tuple(field.name for field in fields(Response))
_NEEDED = {"text", "finish_reason", "prompt_tokens", "completion_tokens", "seconds"}
_ALWAYS = _NEEDED | {"retries", "logprobs"}


def response_of(fields: Any) -> Response:
    """The response that `Response.fields` gave. Raises ValueError where a field is missing, unknown or impossible."""
    if not isinstance(fields, dict):
        raise ValueError(f"the response is no object but {type(fields).__name__}")  # noqa: TRY004 - bad data
    if missing := _NEEDED - fields.keys():
        raise ValueError(f"the response lacks {', '.join(sorted(missing))}")
    if unknown := fields.keys() - set(_FIELDS):
        raise ValueError(f"the response has unknown fields: {', '.join(sorted(unknown))[:200]}")
    for name in ("text", "finish_reason", "reasoning", "model", "served_as", "endpoint"):
        value = fields.get(name)
        if not isinstance(value, str) and not (value is None and name not in _NEEDED):
            raise ValueError(f"{name} is {str(value)[:40]}, not a text")
    for name in ("prompt_tokens", "completion_tokens", "retries", "reasoning_tokens"):
        if not _is_number(value := fields.get(name, 0)) or not isinstance(value, int):
            raise ValueError(f"{name} is {str(value)[:40]}, not a count")
    if not _is_number(fields["seconds"]):
        raise ValueError(f"seconds is {str(fields['seconds'])[:40]}, not a time")
    logprobs = fields.get("logprobs")
    return Response(**{**fields, "logprobs": None if logprobs is None else read_logprobs(logprobs)})


def read_logprobs(pairs: Any) -> tuple[tuple[str, float], ...]:
    """(token, natural log probability) pairs. Raises ValueError where one is not a text with a finite number <= 0."""
    try:
        read = tuple((encodable(token), float(value)) for token, value in pairs)
    except (TypeError, ValueError):
        raise ValueError("a token's log-probability is not a number") from None
    if not all(math.isfinite(value) and value < 0.01 for _, value in read):  # some engines round 0 up
        raise ValueError("a token's log-probability is no finite number of at most 0")
    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, the same text for the same value everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def strict_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError where it is none, too deep, or has NaN or Infinity."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def request_key(request: dict[str, Any]) -> str:
    """The tagged hash under which the response to `request` is stored."""
    return hashlib.sha256(f"{KEY_VERSION}\n{canonical_json(request)}".encode()).hexdigest()


def digest(key: str, request: str, response: str) -> str:
    """The SHA-256 that shows a change in a stored response; `request` and `response` are canonical JSON."""
    return hashlib.sha256(f"{key}\n{request}\n{response}".encode()).hexdigest()
