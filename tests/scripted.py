"""An LLM and a retriever that answer by a script and log what they are asked.

The stage of a prompt is recognised by matching the prompt against the text files of the package, without rag_notes'
own templates module, so that what is asserted of the prompts is asserted independently.
"""

import asyncio
import itertools
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import rag_notes
from rag_notes.events import Event, Note, ParseFailure, Stop
from rag_notes.llm.client import LLM
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.prompts.templates import Templates
from rag_notes.types import Hit, Passage, Question

T = TypeVar("T")

Q = Question("q1", "Where was its builder born?", ("Dumfries",))
ZH = Question("q2", "建造者王明出生在哪里？", ("邓弗里斯",), language="zh")
YES, NO = '{"status": "True"}', '{"status": "False"}'
FORM = "the answer alone, without any other words"
TOKEN = re.compile(r"(^\s+|\S+?)(?:@(0\.\d+))?(\s+|$)")
PROMPTS = Path(rag_notes.__file__).parent / "prompts"


class Ask(NamedTuple):
    """A prompt as the LLM got it, with the template it was made of (`""`: none) and what filled the placeholders."""

    stage: str
    language: str
    fields: dict[str, str]
    prompt: str
    repeat: int


Answer = Callable[[Ask], str | Awaitable[str]]
Method = Callable[..., Awaitable[str]]


def _pattern(path: Path) -> re.Pattern[str]:
    body = path.read_text(encoding="utf-8").split("\n---\n", 1)[1].strip()
    text = re.sub(r"\\\{([a-z_]+)\\\}", r"(?P<\1>.*?)", re.escape(body))
    return re.compile(text, re.DOTALL)


TEMPLATES = [path for path in sorted(PROMPTS.glob("*/*/*.txt")) if not path.stem.startswith("form_")]
PATTERNS = [(path.stem, path.parent.name, _pattern(path)) for path in TEMPLATES]


def recognise(prompt: str, repeat: int = 0) -> Ask:
    """The one template of any set that `prompt` is made of, with its fields."""
    matches = {
        (stage, language): Ask(stage, language, match.groupdict(), prompt, repeat)
        for stage, language, pattern in PATTERNS
        if (match := pattern.fullmatch(prompt))
    }
    assert len(matches) <= 1, f"this prompt could be any of {[*matches]}: {prompt}"
    return next(iter(matches.values()), Ask("", "", {}, prompt, repeat))


def by_stage(**answers: str | Sequence[str]) -> Callable[[Ask], str]:
    """Answers by stage: a string is the answer every time, of a list the first ask gets the first, and so on.

    A stage that is not named, and one that is asked more often than there are answers, fail the test.
    """
    left = {stage: itertools.repeat(text) if isinstance(text, str) else iter(text) for stage, text in answers.items()}

    def answer(ask: Ask) -> str:
        assert ask.stage in left, f"not in the script: {ask.prompt}"
        text = next(left[ask.stage], None)
        assert text is not None, f"{ask.stage} is asked more often than the script says"
        return text

    return answer


def together(number: int, answer: Callable[[Ask], str], stages: set[str]) -> Answer:
    """Keep back every answer to `stages` until `number` of them are asked: hangs where they are asked one by one."""
    counter, all_asked = itertools.count(1), asyncio.Event()

    async def held_back(ask: Ask) -> str:
        if ask.stage in stages:
            if next(counter) == number:
                all_asked.set()
            async with asyncio.timeout(30):  # not waited for: only a failing test gets that far
                await all_asked.wait()
        return answer(ask)

    return held_back


class ScriptedLLM(LLM):
    """`answer` gives the text for each ask; every ask is in `asks`, and its stage in `log`, in the order of asking.

    A call takes one second on paper. The words are the tokens, certain but for those that the script writes with a
    probability: `in@0.3 1904`; a word such as `<|end|>` is a token that the text does not have.
    """

    def __init__(self, answer: Answer, log: list[str] | None = None, **settings: Any) -> None:
        super().__init__("scripted", store=ResponseStore(":memory:"), **settings)
        self.asks: list[Ask] = []
        self.log = [] if log is None else log
        self._answer = answer

    async def answer(self, request: dict[str, Any], key: str) -> Response:
        prompt, logprobs = request["messages"][-1]["content"], request["logprobs"]
        ask = recognise(prompt, request["repeat"])
        self.asks.append(ask)
        self.log.append(ask.stage)
        scripted = self._answer(ask)
        text = scripted if isinstance(scripted, str) else await scripted
        tokens = tuple((word + space, math.log(float(p or 1))) for word, p, space in TOKEN.findall(text))
        text = "".join(token for token, _ in tokens if not token.startswith("<|")) if logprobs else text
        counts = len(prompt.split()), len(text.split())
        response = Response(text, "stop", *counts, seconds=1.0, logprobs=tokens if logprobs else None)
        self.usage.sent += 1
        self.store.put(request, response)
        return response

    def asked(self, stage: str) -> list[dict[str, str]]:
        """The fields of every ask of a stage."""
        return [ask.fields for ask in self.asks if ask.stage == stage]


def passage(name: str) -> Passage:
    """The passage with the id `name`."""
    return Passage(name, f"Title {name}", f"Text of {name}.")


def shown(*names: str) -> str:
    """The passages of these ids as a prompt shows them; none: `(none)`."""
    return "\n\n".join(f"[{number}] Title {name}\nText of {name}." for number, name in enumerate(names, 1)) or "(none)"


Ids = Mapping[str, Sequence[str]] | Callable[[str], Sequence[str]]


class ScriptedRetriever:
    """Finds the passages that `ids` names for a query (ids by query, or a function), the first `top_k` of them.

    `searches` has every (query, top_k), `batches` how many queries came at once; `log` gets a "search" for each.
    """

    name = "scripted"

    def __init__(self, ids: Ids, log: list[str] | None = None) -> None:
        self.searches: list[tuple[str, int]] = []
        self.batches: list[int] = []
        self.log = [] if log is None else log
        self._ids = ids if callable(ids) else ids.__getitem__

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self.batches.append(len(queries))
        self.searches += [(query, top_k) for query in queries]
        self.log += ["search"] * len(queries)
        names = (enumerate(self._ids(query)[:top_k], 1) for query in queries)
        return [[Hit(passage(name), 1 / rank) for rank, name in ranking] for ranking in names]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


class Played(NamedTuple):
    answer: str
    log: list[str]
    llm: ScriptedLLM
    searches: list[tuple[str, int]]
    batches: list[int]
    trace: list[Event]

    def asked(self, stage: str, field: str) -> list[str]:
        """What filled one placeholder in every ask of a stage."""
        return [fields[field] for fields in self.llm.asked(stage)]

    def queries(self) -> list[str]:
        return [query for query, _ in self.searches]

    def languages(self) -> set[str]:
        return {ask.language for ask in self.llm.asks}

    def stops(self) -> list[str]:
        return [event.reason for event in self.trace if isinstance(event, Stop)]

    def parse_failures(self) -> list[str]:
        """The stages whose responses could not be read."""
        return [event.stage for event in self.trace if isinstance(event, ParseFailure)]

    def notes(self) -> list[tuple[str, bool]]:
        return [(event.text, event.kept) for event in self.trace if isinstance(event, Note)]

    def decisions(self) -> list[tuple[str, str]]:
        return [(event.what, event.outcome) for event in self.trace if event.event == "decision"]


def play(
    method: Method,
    answer: Answer,
    ids: Ids = lambda _: "abcdef",
    *,
    question: Question = Q,
    prompts: str = "papers",
    repeat: int = 0,
    llm: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Played:
    """Run one method on one question by a script, with a set of prompts; `llm` has settings of the model."""
    log: list[str] = []
    model, retriever = ScriptedLLM(answer, log, **llm or {}), ScriptedRetriever(ids, log)
    parts: dict[str, Any] = {"llm": model, "searcher": Searcher(retriever), "templates": Templates(prompts)}
    rag = Rag(question, method=method.__name__, repeat=repeat, **parts)

    async def call() -> str:
        return await method(rag, question, **settings)

    return Played(asyncio.run(call()), log, model, retriever.searches, retriever.batches, rag.trace)


def asked(llm: LLM, use: Callable[[LLM], Awaitable[T]]) -> T:
    """What a use of a model gives, the model being opened for it."""

    async def run() -> T:
        async with llm:
            return await use(llm)

    return asyncio.run(run())
