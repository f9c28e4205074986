"""What can go wrong with a call, and the cleaning of texts that come from a server."""

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST = 500
"""Characters of a server's text that a message repeats."""


class LLMError(RuntimeError):
    """A call that gave no usable response; the question that needed it fails, the run goes on."""


class RecordingMissError(LLMError):
    """The network is forbidden and the store has no response to this request."""


class UnreachedError(LLMError):
    """The connection ended without a response: no model was heard, and the next run of the same command asks again."""


class FatalLLMError(LLMError):
    """An error that every further call would meet too (no such model, key refused, nobody there): the run stops."""


class SpendingLimitError(FatalLLMError):
    """The spending limit is reached; what is already answered is kept."""


class PausedError(FatalLLMError):
    """The server asks to wait longer than `llm.max_wait`; what is already answered is kept."""


def encodable(text: str) -> str:
    """`text` with every half of a surrogate pair, which no file can hold, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def printable(text: str) -> str:
    """A server's text as a message may repeat it: one line, at most `LONGEST` characters, none that control."""
    return encodable(_CONTROL.sub(" ", _ESCAPES.sub("", text)))[:LONGEST]
