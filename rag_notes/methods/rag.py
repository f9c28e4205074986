"""The handle with which a method asks and searches, and which writes the trace while it does."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

from rag_notes.events import Ask, Decision, Event, Found, Note, ParseFailure, Search, Stop
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, RecordingMissError
from rag_notes.llm.store import Response, request_key
from rag_notes.methods.parse import parse_choice, parse_final_answer
from rag_notes.prompts.templates import Templates, Value
from rag_notes.retrieval.base import Retriever
from rag_notes.types import Hit, Passage, Question


class Token(NamedTuple):
    """A token of a response and its probability, from 0 to 1."""

    text: str
    probability: float


class Searcher:
    """Sends the searches that are waiting at the same moment to the retriever as one batch."""

    def __init__(self, retriever: Retriever) -> None:
        self.retriever = retriever
        self._waiting: dict[int, tuple[list[str], asyncio.Task[list[list[Hit]]]]] = {}

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """Return the best `top_k` hits for one query, best first."""
        if top_k not in self._waiting:
            self._waiting[top_k] = [], asyncio.create_task(self._search_batch(top_k))
        queries, rankings = self._waiting[top_k]
        queries.append(query)
        number = len(queries) - 1
        return (await asyncio.shield(rankings))[number]  # who is cancelled does not cancel the others' searches

    async def _search_batch(self, top_k: int) -> list[list[Hit]]:
        await asyncio.sleep(0)  # let the others that are ready join the batch
        queries, _ = self._waiting.pop(top_k)
        return await asyncio.to_thread(self.retriever.search, queries, top_k)


class Rag:
    """One method at work on one question: `ask`, `search`, `note`, `answer`; `trace` has every step, in order.

    `taken` has the seconds and retries of each response, by its key. The trace is in the order in which calls are
    issued, whatever their order of completion: what goes out together should be issued together (`asyncio.gather`).
    """

    def __init__(
        self, question: Question, *, method: str, llm: LLM, searcher: Searcher, templates: Templates, repeat: int = 0
    ) -> None:
        self.question = question
        self.trace: list[Event] = []
        self.taken: dict[str, tuple[float, int]] = {}
        self._method, self._llm, self._searcher = method, llm, searcher
        self._templates, self._repeat = templates, repeat

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """Return the `top_k` best passages for a query, best first."""
        event = Search(query, top_k)
        self.trace.append(event)
        hits = await self._searcher.search(query, top_k)
        event.hits = [Found(h.passage.id, h.passage.title, h.passage.text, round(h.score, 6)) for h in hits]
        return [hit.passage for hit in hits]

    async def search_all(self, queries: Sequence[str], top_k: int) -> list[Passage]:
        """Return the `top_k` best passages of several searches, merged by rank without duplicates."""
        rankings = await asyncio.gather(*(self.search(query, top_k) for query in queries))
        by_rank = [p for rank in range(top_k) for ranking in rankings for p in ranking[rank : rank + 1]]
        return self.read_only(list({passage.id: passage for passage in by_rank}.values())[:top_k])

    def sampled(self, number: int, samples: int) -> "Rag":
        """Return the handle, with the same trace, for the `number`-th of several samples of the same requests, from 0.

        No two samples of any repeats share a repeat index; the first of repeat 0 is what is asked without sampling.
        Raises FatalLLMError for several samples at temperature 0, which are alike.
        """
        if samples > 1 and self._llm.sampling.get("temperature") == 0:
            problem = f"{self._method} takes {samples} samples of one request, which are all alike at temperature 0"
            raise FatalLLMError(f"{problem}; set llm.temperature above 0, or leave the method out")
        sampled = copy(self)
        sampled._repeat = self._repeat * samples + number
        return sampled

    def read_only(self, passages: list[Passage]) -> list[Passage]:
        """Record that of the searches just made only these passages are read; the others do not count as retrieved."""
        ids = {passage.id for passage in passages}
        for event in reversed(self.trace):
            if not isinstance(event, Search):
                break
            for hit in event.hits:
                hit.unread = hit.unread or hit.id not in ids
        return passages

    async def ask(self, stage: str, **fields: Value) -> str:
        """Return the response to the prompt template `stage`, filled with `fields`; surrounding space removed."""
        return await self.ask_text(stage, self._fill(stage, fields))

    async def ask_until(self, stop: str, stage: str, **fields: Value) -> str:
        """Return the response as `ask`, but cut before the string `stop`."""
        response, _ = await self._ask(stage, self._fill(stage, fields), stop=[stop])
        return response.text.strip()

    async def ask_text(self, stage: str, prompt: str) -> str:
        """Return the response to a prompt that is not a template; `stage` names it in the trace."""
        response, _ = await self._ask(stage, prompt)
        return response.text.strip()

    async def ask_tokens(self, stage: str, **fields: Value) -> list[Token]:
        """Return the response as its tokens, without those that an endpoint adds behind the text.

        Raises FatalLLMError where the endpoint gives no log-probabilities.
        """
        return (await self._ask_tokens(stage, fields))[0]

    async def _ask_tokens(self, stage: str, fields: Mapping[str, Value]) -> tuple[list[Token], Ask]:
        response, event = await self._ask(stage, self._fill(stage, fields), logprobs=True)
        if response.logprobs is None:
            problem = f"{self._method} needs the log-probabilities of tokens, and the endpoint gives none for"
            remedy = "leave the method out, or name an endpoint that gives them"
            raise FatalLLMError(f"{problem} {self._llm.of(stage).model}; {remedy}")
        tokens = [Token(token, math.exp(logprob)) for token, logprob in response.logprobs]
        end = response.text.rstrip()
        while tokens and "\ufffd" not in tokens[-1].text and not end.endswith(tokens[-1].text.strip()):
            tokens.pop()
        return tokens, event

    async def _ask(
        self, stage: str, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False
    ) -> tuple[Response, Ask]:
        event = Ask(stage, prompt)
        self.trace.append(event)
        llm = self._llm.of(stage)
        request = llm.request(prompt, stop=stop, logprobs=logprobs, repeat=self._repeat)
        key = request_key(request)
        try:
            response = await llm.answer(request, key)
        except RecordingMissError as error:
            raise RecordingMissError(f"stage {stage} of {self._method} on {self.question.id}: {error}") from None
        except LLMError as error:
            raise type(error)(f"stage {stage}: {error}") from None
        event.response, event.finish_reason = response.text, response.finish_reason
        event.prompt_tokens, event.completion_tokens = response.prompt_tokens, response.completion_tokens
        event.key = key
        self.taken[key] = response.seconds, response.retries
        if response.logprobs is not None:
            event.logprobs = [(token, round(logprob, 4)) for token, logprob in response.logprobs]
        return response, event

    async def choose(self, stage: str, choices: Sequence[str], default: str, **fields: Value) -> str:
        """Return one of `choices`; what cannot be read counts as `default` and is recorded as a parse failure."""
        return await self._choose(stage, choices, "result", fields) or default

    async def judge(self, stage: str, **fields: Value) -> bool:
        """Return a true/false verdict; what cannot be read counts as False and is recorded as a parse failure."""
        return await self._choose(stage, ("true", "false"), "status", fields) == "true"

    async def _choose(self, stage: str, choices: Sequence[str], name: str, fields: Mapping[str, Value]) -> str | None:
        response, event = await self._ask(stage, self._fill(stage, fields))
        choice = parse_choice(response.text, choices, name)
        if choice is None:
            self._parse_failure_of(event)
        return choice

    async def probability(self, stage: str, choices: tuple[str, str], **fields: Value) -> float:
        """Return the probability of the first of two choices: that of the word that was written, or what it leaves.

        What cannot be read counts as 0 and is recorded as a parse failure. Raises FatalLLMError as `ask_tokens`.
        """
        tokens, event = await self._ask_tokens(stage, fields)
        text = "".join(token.text for token in tokens)
        if (word := parse_choice(text, choices)) is None:
            self._parse_failure_of(event)
            return 0.0
        start, offset, written = text.lower().rindex(word.lower()), 0, 1.0
        for token in tokens:
            if offset < start + len(word) and offset + len(token.text) > start:
                written *= token.probability
            offset += len(token.text)
        return written if word == choices[0] else 1 - written

    def _parse_failure_of(self, event: Ask) -> None:
        """Record it behind its own ask: others may have gone out together with it."""
        index = next(number for number, other in enumerate(self.trace, 1) if other is event)
        self.trace.insert(index, ParseFailure(event.stage))

    async def answer(self, context: Value | None = None, *, unknown: bool = False) -> str:
        """Return the answer by the task's own prompt, from `context` (passages or a note) or what the model knows."""
        question = self.question_text(unknown=unknown)
        if context is None:
            return await self.ask(f"direct_{self.question.task}", question=question)
        return await self.ask(f"answer_{self.question.task}", context=context, question=question)

    def question_text(self, *, unknown: bool = False) -> str:
        """Return the question for a prompt, with `unknown` followed by the clause that offers this as an answer."""
        return f"{self.question.question}\n{self._fill('unknown_clause', {})}" if unknown else self.question.question

    @property
    def answer_format(self) -> str:
        """Describe in words what an answer to this question looks like, for prompts that do not end in the answer."""
        return self._fill(f"form_{self.question.task}", {})

    def _fill(self, stage: str, fields: Mapping[str, Value]) -> str:
        return self._templates.fill(stage, self.question.language, fields)

    async def reason(self, stage: str, **fields: Value) -> str:
        """Return the final answer of a prompt that reasons first and marks it.

        Where the marker is missing it is the last line, and a parse failure is recorded.
        """
        response = await self.ask(stage, form=self.answer_format, **fields)
        if (answer := parse_final_answer(response)) is not None:
            return answer
        self.parse_failure(stage)
        return response.splitlines()[-1].strip() if response else ""

    def decide(self, what: str, outcome: str) -> None:
        """Record what a method decided by rule, without asking."""
        self.trace.append(Decision(what, outcome))

    def note(self, text: str, *, kept: bool) -> str:
        """Record a note as it was written and whether it became the best one; returns the note."""
        self.trace.append(Note(text, kept))
        return text

    def parse_failure(self, stage: str) -> None:
        """Record that the last response of `stage` could not be read."""
        self.trace.append(ParseFailure(stage))

    def stop(self, reason: str) -> None:
        """Record why a loop ended."""
        self.trace.append(Stop(reason))
