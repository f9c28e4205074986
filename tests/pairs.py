"""A script by which DNAlign finds a pair in every stage, and training examples made by a script."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rag_notes.llm.client import LLM
from rag_notes.prompts.templates import Templates
from rag_notes.training.examples import (
    Data,
    Made,
    make,
)
from rag_notes.types import Question
from tests.scripted import Answer, Q, ScriptedLLM, ScriptedRetriever, by_stage

NINE = [0.1, 0.5, 0.9]
FOUND = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
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


def made(
    maker: Callable[..., Any],
    answer: Answer | Mapping[str, Any],
    *,
    question: Question = Q,
    llm: LLM | None = None,
    found: Mapping[str, Sequence[str]] | Callable[[str], Sequence[str]] = lambda _: FOUND,
    **settings: Any,
) -> Made:
    """What a maker makes of one question by a script."""
    llm = llm or ScriptedLLM(answer if callable(answer) else by_stage(**answer))
    data = Data(partial(maker, **settings), out="unused")
    return asyncio.run(make(data, [question], ScriptedRetriever(found), llm, Templates(), progress=False))


def rewrite(path: Path, text: str) -> None:
    """Write another file with the card that belongs to it."""
    path.write_text(text, encoding="utf-8")
    card = path.with_name(path.name + ".card.json")
    known = json.loads(card.read_text(encoding="utf-8")) | {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    card.write_text(json.dumps(known), encoding="utf-8")
