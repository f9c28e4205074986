"""What a failed call means: whether it passes, how long to wait, what to change."""

import contextlib
import email.utils
import math
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import urlsplit

from rag_notes.llm.errors import FatalLLMError, LLMError, UnreachedError
from rag_notes.types import InputError

if TYPE_CHECKING:  # what a replay never needs takes longer to load than a whole study's answers
    import httpx2
    import openai

PAUSES = (0.5, 8.0)
"""Seconds between tries: the first pause and the longest; each is twice the one before."""


class FailedCallError(Exception):
    """A try that gave no response: the error it is if it was the last one, and what it may still need to pass.

    `passing` says whether another try may succeed, `asked` are the seconds that the server asks to wait, if it does.
    """

    def __init__(self, error: LLMError, *, passing: bool = False, asked: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.passing, self.asked = error, passing, asked


def pause(tries: int) -> float:
    """Seconds to wait after so many tries where the server does not say: doubling, with jitter."""
    first, longest = PAUSES
    return min(first * 2.0 ** min(tries, 60), longest) * random.uniform(0.75, 1.0)


def failed_call(
    error: "openai.APIError", body: Mapping[str, Any], base_url: str | None, clean: Callable[[str], str]
) -> FailedCallError:
    """What an error of the endpoint at `base_url` means for a call with `body`; `clean` makes its text printable."""
    import openai  # noqa: PLC0415

    text, model = clean(f"{type(error).__name__}: {error.message}"), body["model"]
    match error:
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return FailedCallError(
                FatalLLMError(f"{base_url} refused the API key ({text}); check the key's environment variable")
            )
        case openai.NotFoundError():
            return FailedCallError(FatalLLMError(f"{base_url} does not know model {model!r} or the path ({text})"))
        case openai.BadRequestError() if "logprob" in text:
            return FailedCallError(FatalLLMError(f"{base_url} gives no log-probabilities of tokens ({text})"))
        case openai.APIStatusError(status_code=400 | 422) if (setting := _refused_setting(error, body)) is not None:
            instead = f" and llm.max_completion_tokens={body[setting]}" if setting == "max_tokens" else ""
            where = f"{base_url} refuses llm.{setting} for {model!r} ({text})"
            return FailedCallError(FatalLLMError(f"{where}; set llm.{setting}=null{instead}"))
        case openai.RateLimitError() if error.code == "insufficient_quota":
            return FailedCallError(
                FatalLLMError(f"{base_url}: the account has no credit ({text}); with more, the same command continues")
            )
        case openai.APIConnectionError() if _is_unreachable(error.__cause__):
            there = FatalLLMError(
                f"nobody answers at {base_url} ({text}); is the server running? The same command continues"
            )
            return FailedCallError(there, passing=True)
        case openai.APITimeoutError() if not _has_no_connection(error.__cause__):
            late = LLMError(f"{base_url} did not answer in time ({text}); raise llm.timeout or lower llm.concurrency")
            return FailedCallError(late, passing=True)
        case openai.APIStatusError():
            headers, status = error.response.headers, error.status_code
            told = {"true": True, "false": False}.get(headers.get("x-should-retry", ""))
            passing = status in (408, 409, 429) or status >= 500 if told is None else told
            return FailedCallError(
                LLMError(f"{base_url} failed ({text})"), passing=passing, asked=_retry_after(headers)
            )
    return FailedCallError(UnreachedError(f"{base_url} closed the connection ({text})"), passing=True)


def _is_unreachable(cause: BaseException | None) -> bool:
    """Whether nobody took the connection: the transport gives one that the server closed the same name."""
    import aiohttp  # noqa: PLC0415

    return _has_no_connection(cause) and not isinstance(cause.__cause__, aiohttp.ServerDisconnectedError)


def _has_no_connection(cause: BaseException | None) -> TypeGuard[BaseException]:
    import httpx2  # noqa: PLC0415

    return isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)  # the transport calls a refusal a time-out


def _retry_after(headers: "httpx2.Headers") -> float | None:
    """Seconds that a server asks to wait, by Retry-After-Ms or Retry-After (seconds or a date), or None."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with contextlib.suppress(ValueError):
            if not math.isnan(seconds := float(headers.get(name, "")) * unit):
                return max(seconds, 0.0)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        until = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(until.timestamp() - time.time(), 0.0)
    return None


def _refused_setting(error: "openai.APIError", body: Mapping[str, Any]) -> str | None:
    """The setting in `body` that an endpoint does not take at all, or not with a value of ours."""
    refusal = r"unsupported|not support|unknown|unrecogni[sz]ed|not permitted|only the default"
    if not re.search(refusal, error.message, re.IGNORECASE):
        return None
    named = [error.param, *re.findall(r"['\"`](\w+)['\"`]", error.message)]
    return next((name for name in named if name in body.keys() - {"model", "messages", "logprobs"}), None)


def endpoint_of(base_url: str) -> str:
    """Host and port of an address. Raises ValueError where it is none, or holds what must not get into records."""
    if "@" in base_url:
        raise InputError(
            "llm.base_url has a user or password in it; they belong in an environment variable, see "
            "llm.api_key_variable"
        )
    with contextlib.suppress(ValueError):  # a port that is no number
        parts = urlsplit(base_url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.netloc
    raise InputError(f"llm.base_url is {base_url!r}; expected for example http://127.0.0.1:8000/v1")
