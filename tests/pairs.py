"""A script by which DNAlign has a pair in every stage, and training examples by a script."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rag_notes.llm.client import LLM
from rag_notes.prompts.templates import Templates
from rag_notes.training.data import Batch, Data, make_examples
from rag_notes.types import Question
from tests.scripted import Answer, Q, ScriptedLLM, ScriptedRetriever, by_stage

NINE = [0.1, 0.5, 0.9]
HITS = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
VERDICT = '{"best_id": 2, "worst_id": 3}'
DNALIGN = {
    "answer_short": ["Dumfries", "Glasgow", *["I think Dumfries"] * 7],
    "note_init": ["note 1", "note 2", "note 3", *["note 1"] * 6],
    "dnalign_notes": VERDICT,
    "note_query": ["What?\nWho?", "Which bridge?", "When?", *["When?"] * 6],
    "dnalign_queries": VERDICT,
    "note_update": [f"update {n}" for n in range(9)],
    "note_judge": ['{"status": "True"}', *['{"status": "False"}'] * 8],
}


def examples_of(
    maker: Callable[..., Any],
    answer: Answer | Mapping[str, Any],
    *,
    question: Question = Q,
    llm: LLM | None = None,
    hits: Mapping[str, Sequence[str]] | Callable[[str], Sequence[str]] = lambda _: HITS,
    **settings: Any,
) -> Batch:
    """Make the examples of one question by a script."""
    llm = llm or ScriptedLLM(answer if callable(answer) else by_stage(**answer))
    data = Data(partial(maker, **settings), out="unused")
    return asyncio.run(make_examples(data, [question], ScriptedRetriever(hits), llm, Templates()))
