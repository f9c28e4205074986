"""What a method does while it answers a question, as typed records: the trace."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from rag_notes.types import Passage


@dataclass(slots=True)
class Found:
    """A passage that a search returned, with its score; `unread` where the method left it aside."""

    id: str
    title: str
    text: str
    score: float
    unread: bool = False


@dataclass(slots=True)
class Search:
    """A query and what it found, best first."""

    query: str
    top_k: int
    hits: list[Found] = field(default_factory=list)
    event: Literal["search"] = "search"

    @property
    def read(self) -> list[Passage]:
        """The passages found that the method read."""
        return [Passage(hit.id, hit.title, hit.text) for hit in self.hits if not hit.unread]


@dataclass(slots=True)
class Ask:
    """A prompt and the model's response, None where there was none; `stage` is the name of the prompt."""

    stage: str
    prompt: str
    response: str | None = None
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    key: str = ""  # of the response in the store
    logprobs: list[tuple[str, float]] | None = None  # tokens with natural log probabilities, where asked for
    event: Literal["ask"] = "ask"


@dataclass(slots=True)
class Note:
    """A note as it was written, and whether it became the best one."""

    text: str
    kept: bool
    event: Literal["note"] = "note"


@dataclass(slots=True)
class Decision:
    """What a method decided by rule, without asking."""

    what: str
    outcome: str
    event: Literal["decision"] = "decision"


@dataclass(slots=True)
class ParseFailure:
    """The response of a stage could not be read; it stands behind the ask that it is about."""

    stage: str
    event: Literal["parse_failure"] = "parse_failure"


@dataclass(slots=True)
class Stop:
    """Why a loop ended."""

    reason: str
    event: Literal["stop"] = "stop"


Event = Annotated[Ask | Search | Note | Decision | ParseFailure | Stop, Field(discriminator="event")]
"""An entry of a trace."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a trace cost and where it went wrong; `truncated` are responses cut at the token limit."""

    searches: int = 0
    distinct_passages: int = 0  # that were read
    steps: int = 0  # notes written after the first
    calls: int = 0  # that were answered
    prompt_tokens: int = 0
    completion_tokens: int = 0
    parse_failures: int = 0
    empty_responses: int = 0
    truncated: int = 0


def answered(trace: Iterable[Event]) -> list[Ask]:
    """The asks of a trace that got a response."""
    return [event for event in trace if isinstance(event, Ask) and event.response is not None]


def searches(trace: Iterable[Event]) -> list[Search]:
    """The searches of a trace."""
    return [event for event in trace if isinstance(event, Search)]


def count(trace: Sequence[Event]) -> Counts:
    """Count what happened in a trace."""
    asks, queries = answered(trace), searches(trace)
    return Counts(
        searches=len(queries),
        distinct_passages=len({passage.id for search in queries for passage in search.read}),
        steps=max(0, sum(isinstance(event, Note) for event in trace) - 1),
        calls=len(asks),
        prompt_tokens=sum(ask.prompt_tokens for ask in asks),
        completion_tokens=sum(ask.completion_tokens for ask in asks),
        parse_failures=sum(isinstance(event, ParseFailure) for event in trace),
        empty_responses=sum(not (ask.response or "").strip() for ask in asks),
        truncated=sum(ask.finish_reason == "length" for ask in asks),
    )
