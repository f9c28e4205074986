"""What can go wrong with a call: the kinds of error, what an endpoint's refusal means, and texts made fit to show."""

import json
import re
from collections.abc import Container
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSUPPORTED = re.compile(
    r"(?i)unsupported|not support|unknown|unrecogni|not permitted|only the default|(not|n't) both"
)


class LLMError(RuntimeError):
    """A call that gave no usable response; the question that needed it fails, the run goes on."""


class RecordingMissError(LLMError):
    """The network is forbidden and the store has no response to this request."""


class FatalLLMError(LLMError):
    """An error that every further call would meet too (no such model, key refused, nobody there): the run stops."""


class SpendingLimitError(FatalLLMError):
    """The spending limit is reached; what is already answered is kept."""


def read_error(body: Any) -> tuple[str, str, str | None]:
    """The message, code and parameter in the body of an error; a body of unknown shape is its own message."""
    first = body[0] if isinstance(body, list) and body else body
    error = (first.get("error") or first) if isinstance(first, dict) else first
    details = error if isinstance(error, dict) else {}
    message = details.get("message") or (error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))
    return str(message), str(details.get("code") or ""), details.get("param")


def explain(status: int, body: Any, settings: Container[str]) -> LLMError:
    """The error that a refused request is, fatal where all others would meet it; `settings` are those of its fields
    that a user sets.
    """
    message, code, parameter = read_error(body)
    text = f"status {status}: {message}"
    if status == 401 or (status == 403 and re.search(r"(?i)\bkey\b|credential|authenticat", message)):
        return FatalLLMError(f"refused the API key ({text}); check the key's environment variable")
    if status == 402 or code == "insufficient_quota":
        return FatalLLMError(f"says that the account has no credit ({text}); with more, the same command continues")
    if status in (400, 422) and "logprob" in message:
        return FatalLLMError(f"gives no log-probabilities of tokens ({text})")
    if status in (400, 422) and _UNSUPPORTED.search(message):
        for name in (parameter, *re.findall(r"['\"`](\w+)['\"`]", message)):
            if name in settings:
                instead = " and llm.max_completion_tokens instead" if name == "max_tokens" else ""
                return FatalLLMError(f"refuses llm.{name} ({text}); set llm.{name}=null{instead}")
    return LLMError(f"failed ({text})")


def explain_connection(error: Exception) -> LLMError:
    """The error that openai's error of a connection is; fatal where nobody takes the connection."""
    import aiohttp  # noqa: PLC0415

    cause = error.__cause__ and error.__cause__.__cause__
    if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return FatalLLMError("nobody answers at this address; is the server running? The same command continues")
    if isinstance(cause, aiohttp.SocketTimeoutError):
        return LLMError("did not answer in time; raise llm.timeout or lower llm.concurrency")
    return LLMError(f"closed the connection ({type(cause).__name__})")


def encodable(text: str) -> str:
    """`text` with every half of a surrogate pair, which no file can hold, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def printable(text: str) -> str:
    """A server's text as a message may repeat it: one line, at most 500 characters, none that control a terminal."""
    return "".join(char if char.isprintable() else " " for char in text[:500])
