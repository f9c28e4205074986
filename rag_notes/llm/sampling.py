"""What is sent beside the prompt: the settings that every model source shares, said once."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from rag_notes.llm.errors import encodable
from rag_notes.types import InputError

Built = TypeVar("Built")
_OURS = {"model", "messages", "stop", "logprobs", "repeat", "stream", "n"}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model is asked; None is not sent, so that a model's own default holds.

    Temperature 0.1 and a fixed seed are DeepNote's (section C.1); top_p 0.9 and 1280 new tokens are in its authors'
    public code only. Reasoning models want `max_completion_tokens` instead of `max_tokens`, no temperature and no
    top_p. `system` is a message put before the prompt. `extra_body` holds further fields of the request, as an
    endpoint defines them. Raises ValueError where one of them is a setting of its own.
    """

    temperature: float | None = 0.1
    top_p: float | None = 0.9
    seed: int | None = 42
    max_tokens: int | None = 1280
    max_completion_tokens: int | None = None
    reasoning_effort: str | None = None
    system: str | None = None
    extra_body: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if taken := (self.extra_body or {}).keys() & (_OURS | set(NAMES)):
            raise InputError(f"llm.extra_body.{min(taken)}: set llm.{min(taken)} where there is one, not in extra_body")

    def settings(self) -> dict[str, Any]:
        """The settings as keys and records have them: the first four, and the others where they are set."""
        values = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in values.items() if name in NAMES[:4] or value not in (None, {})}


NAMES = [field.name for field in fields(Sampling)]


def messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """A prompt as the messages of a request, behind the system message where there is one."""
    first = [] if system is None else [{"role": "system", "content": encodable(system)}]
    return [*first, {"role": "user", "content": encodable(prompt)}]


def with_sampling(function: Callable[..., Built]) -> Callable[..., Built]:
    """Have a function that takes `sampling` take the fields of Sampling instead, in its signature too."""
    own = inspect.signature(function)
    settings = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in SIGNATURE.parameters.values()]

    @functools.wraps(function)
    def build(**given: Any) -> Built:
        sampling = Sampling(**{name: given.pop(name) for name in NAMES if name in given})
        return function(sampling=sampling, **given)

    others = [parameter for name, parameter in own.parameters.items() if name != "sampling"]
    build.__signature__ = own.replace(parameters=[*others, *settings])  # type: ignore[attr-defined] # read by inspect
    return build


SIGNATURE = inspect.signature(Sampling)
