"""What calls cost, and what an LLM has done."""

from dataclasses import dataclass


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
    """What an LLM object has done: calls answered, store hits, and tokens, retries and dollars of the calls.

    An empty answer that is asked again was answered and paid: it counts as sent, with its tokens. `completion_tokens`
    include the `reasoning_tokens`.
    """

    sent: int = 0
    stored: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    retries: int = 0
    errors: int = 0
    cost: float = 0.0
