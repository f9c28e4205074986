"""Reads the body of a chat completion: the answer, its reasoning, its tokens; nothing unusable gets through."""

import re
from dataclasses import replace
from typing import Any, TypeGuard

from rag_notes.llm.errors import LLMError, encodable
from rag_notes.llm.response import MOST, Response, read_logprobs
from rag_notes.types import InputError

_THOUGHT = re.compile(r"\s*(?:<think>)?((?:(?!<think>).)*?)</think>\s*", re.DOTALL)
SCORED = "scored"
"""The finish_reason of a response that has the log-probabilities of its prompt instead of a text."""
_DATED = r"-\d{4}(?:-?\d{2}-?\d{2})?"


def read_completion(completion: Any, *, seconds: float, retries: int, scored: bool = False) -> Response:
    """The response in a parsed body.

    A refusal is its message with finish_reason "refusal"; what a model thinks aloud before its answer is `reasoning`.
    With `scored` the log-probabilities of the prompt are what counts: where they are there, the response has these and
    no text, and the finish_reason is SCORED.
    Raises ValueError, TypeError, AttributeError or LookupError where the body is no whole completion (another try may
    give one), LLMError where another try would fail too.
    """
    choice = completion["choices"][0]
    message, reason = choice["message"], choice.get("finish_reason")
    text, refusal = message.get("content"), message.get("refusal")
    if reason == "content_filter":
        raise LLMError("the endpoint's content filter withheld the answer")
    if message.get("tool_calls"):
        raise LLMError("the model called a tool instead of answering; take the tools out of llm.extra_body")
    if not isinstance(reason, str):
        raise InputError("the answer was cut off before the model finished")
    if refusal and not text:
        text, reason = refusal, "refusal"
    if not isinstance(text, str | None):
        raise TypeError(f"the content is {text!r}")
    text, reasoning = encodable(text or ""), message.get("reasoning_content") or message.get("reasoning")
    logprobs, items = None, (choice.get("logprobs") or {}).get("content")
    if items is not None and reason != "refusal":
        logprobs = read_logprobs([(item["token"], item["logprob"]) for item in items])
        _check_spelling(text, logprobs)
    if thought := _THOUGHT.match(text):
        reasoning, logprobs = thought[1].strip() or reasoning, _from(logprobs, thought.end())
        text = text[thought.end() :]
    elif text.lstrip().startswith("<think>"):  # cut off before the answer
        reasoning, text, logprobs = text.lstrip().removeprefix("<think>").strip(), "", logprobs and ()
    tokens, thinking = _tokens(completion.get("usage") or {})
    response = Response(
        text=text,
        finish_reason=encodable(reason),
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        seconds=round(seconds, 3),
        retries=retries,
        logprobs=logprobs,
        reasoning=encodable(reasoning) if isinstance(reasoning, str) and reasoning else None,
        reasoning_tokens=thinking,
        model=encodable(model) if isinstance(model := completion.get("model"), str) else None,
    )
    if not scored or (prompt := completion.get("prompt_logprobs")) is None:
        return response
    pairs = [(one["decoded_token"], one["logprob"]) for each in prompt if each for one in each.values()]
    return replace(response, text="", finish_reason=SCORED, logprobs=read_logprobs(pairs))


def _tokens(usage: dict[str, Any]) -> tuple[tuple[int, int], int]:
    """Prompt and completion tokens, and how many of the latter are reasoning."""
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (_is_count(prompt) and _is_count(completion)):
        raise LLMError("the endpoint reports no token usage, which the cost metrics need")
    thinking = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    if not _is_count(thinking):
        raise InputError(f"reasoning_tokens is {str(thinking)[:40]}")
    if thinking and usage.get("total_tokens") == prompt + completion + thinking:  # some count them apart
        completion += thinking
    return (prompt, completion), thinking


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def _check_spelling(text: str, logprobs: tuple[tuple[str, float], ...]) -> None:
    """Raise ValueError where the tokens are not those of the text (a special token may follow, space may differ)."""
    spelled = "".join(token for token, _ in logprobs)
    if "\ufffd" not in spelled and not "".join(spelled.split()).startswith("".join(text.split())):
        raise InputError("the log-probabilities are not those of the answer's tokens")


def _from(logprobs: tuple[tuple[str, float], ...] | None, start: int) -> tuple[tuple[str, float], ...] | None:
    """The tokens that begin at `start`, in characters, or behind it."""
    if logprobs is None:
        return None
    kept, place = [], 0
    for token, value in logprobs:
        if place >= start:
            kept.append((token, value))
        place += len(token)
    return tuple(kept)


def is_same_model(asked: str, answered: str) -> bool:
    """Whether a response's model is the one asked for: the same name, or that name with the vendor's date."""
    return re.fullmatch(f"{re.escape(asked)}(?:{_DATED})?", answered) is not None
