"""Reads the body of a chat completion: the answer, its reasoning, its tokens and their price, or an error."""

import codecs
import itertools
import json
import math
import re
from dataclasses import dataclass
from typing import Any

from rag_notes.llm.errors import LLMError, encodable, read_error
from rag_notes.llm.store import Logprobs, Response
from rag_notes.types import InputError

# The words of different endpoints, in lower case. Any other word ("error", "abort") or none means: not an answer.
_WHOLE = {"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"}
_CUT = {"length", "max_tokens", "max_output_tokens", "max_length", "model_length"}
_FILTERED = {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "sensitive"}
_BEGIN, _END = r"\s*(?:<(?:think|thinking|thought)>|\[THINK\])", r"(?:</(?:think|thinking|thought)>|\[/THINK\]|\Z)\s*"
_THOUGHT = re.compile(rf"{_BEGIN}(.*?){_END}", re.DOTALL)  # which may be cut off
_ENDED_THOUGHT = re.compile(r"((?:(?!<think>).)*?)</think>\s*", re.DOTALL)  # that the chat template has begun


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens, or what else a token takes."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What so many tokens take, in the same unit."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(slots=True)
class Usage:
    """What an LLM has done: calls answered, store hits, and the tokens and dollars of the calls."""

    sent: int = 0
    stored: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


def read_body(content: bytes) -> Any:
    """The JSON value of a body, its texts made encodable. Raises ValueError where it is not JSON."""
    body = json.loads(content)
    return json.loads(encodable(json.dumps(body, ensure_ascii=False))) if b"\\ud" in content.lower() else body


def read_usage(completion: Any) -> tuple[int, int, int] | None:
    """The prompt, completion (reasoning included) and reasoning tokens that a body reports, rounded up, or None."""
    try:
        usage = completion["usage"]
        prompt, answer = math.ceil(usage["prompt_tokens"]), math.ceil(usage["completion_tokens"])
        reasoning = math.ceil((usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError):
        return None
    if reasoning and usage.get("total_tokens") == prompt + answer + reasoning:  # some count them apart
        answer += reasoning
    return (prompt, answer, reasoning) if min(prompt, answer, reasoning) >= 0 else None


def read_completion(completion: Any) -> Response:
    """The response in a parsed body; what a model thinks aloud before its answer is `reasoning`.

    Raises LLMError where another try would fail too, ValueError, TypeError, AttributeError or LookupError where one
    may not.
    """
    choice = completion["choices"][0]
    message, reason = choice["message"], choice.get("finish_reason")
    if message.get("tool_calls"):
        raise LLMError("the model called a tool instead of answering; take the tools out of llm.extra_body")
    if (word := str(reason).lower()) in _FILTERED:
        raise LLMError(f"the endpoint's content filter withheld the answer ({reason})")
    if word not in _WHOLE | _CUT:
        error = read_error(choice)[0] if choice.get("error") else ""
        raise InputError(f"the answer was cut off before the model finished: finish_reason {reason!r} {error}")
    text, thoughts = _join_parts(message.get("content"))
    reasoning = message.get("reasoning_content") or message.get("reasoning") or thoughts
    finish_reason = "length" if word in _CUT else "stop"
    if not text and isinstance(refusal := message.get("refusal"), str) and refusal:
        text, finish_reason = refusal, "refusal"
    logprobs, tokens = None, (choice.get("logprobs") or {}).get("content")
    if tokens is not None and finish_reason != "refusal":
        logprobs = _read_tokens(text, tokens)
    if thought := _THOUGHT.match(text) or _ENDED_THOUGHT.match(text):
        reasoning = thought[1].strip() or reasoning
        text, logprobs = text[thought.end() :], logprobs and _tokens_from(logprobs, thought.end())
    prompt_tokens, answer_tokens, thinking = read_usage(completion) or (0, 0, 0)
    model, reasoning = (str(value) if value else None for value in (completion.get("model"), reasoning))
    return Response(text, finish_reason, prompt_tokens, answer_tokens, 0.0, 0, logprobs, reasoning, thinking, model)


def _join_parts(content: Any) -> tuple[str, str]:
    """The text of a message and the thoughts among its parts; the content is a text, None or a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    thoughts = [_join_parts(part["thinking"])[0] for part in content if part["type"] == "thinking"]
    return "".join(part["text"] for part in content if part["type"] == "text"), "".join(thoughts)


def _read_tokens(text: str, tokens: Any) -> Logprobs:
    """Tokens, a character being that of the token whose bytes complete it; ValueError where they do not spell it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    spelled = [decoder.decode(bytes(token["bytes"])) if token.get("bytes") else token["token"] for token in tokens]
    joined = "".join(spelled)
    # A special token may follow, and space may differ.
    if "\ufffd" not in joined and not "".join(joined.split()).startswith("".join(text.split())):
        raise InputError("the log-probabilities are not those of the answer's tokens")
    return _checked(zip(spelled, (token["logprob"] for token in tokens), strict=True))


def _checked(pairs: Any) -> Logprobs:
    checked = tuple((str(token), float(value)) for token, value in pairs)
    if not all(math.isfinite(value) and value < 0.01 for _, value in checked):  # some engines round 0 up
        raise InputError("a token's log-probability is no finite number of at most 0")
    return checked


def _tokens_from(logprobs: Logprobs, start: int) -> Logprobs:
    """The tokens that begin at the character `start` of the text, or after it."""
    ends = itertools.accumulate(len(token) for token, _ in logprobs)
    return tuple(pair for pair, end in zip(logprobs, ends, strict=True) if end - len(pair[0]) >= start)
