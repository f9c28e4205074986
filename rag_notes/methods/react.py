"""ReAct: thought, action, observation, until the agent finishes (Adaptive-Note and DeepNote, baselines of Table 1)."""

import re

from rag_notes.methods.about import ANSWER, ANSWER_FORMAT, About
from rag_notes.methods.rag import Rag
from rag_notes.prompts.templates import layout
from rag_notes.types import NonNegative, Passage, Positive, Question

# A bracket may be missing, but then the line must say that it is the action.
_ACTION = re.compile(
    r"(?<![a-z])(search|finish) ?\[(.*?)\]|^Action: (search|finish)\b(?! ?\[.*\])[ :]*(.+)$",
    re.IGNORECASE | re.MULTILINE,
)

ABOUT = About(
    label="ReAct",
    source="ReAct (Yao et al., 2023), a baseline of Adaptive-Note, DeepNote and Amber, Table 1",
    limits=("max_searches",),
    calls=lambda s: s["max_searches"] + 2,
    prompts=("react", *ANSWER_FORMAT, *ANSWER),
)


async def react(rag: Rag, question: Question, *, top_k: Positive = 5, max_searches: NonNegative = 5) -> str:
    """Let the model choose between search[query] and finish[answer], with at most `max_searches` searches.

    A response without an action is recorded as unreadable and uses up one of them. An agent that has not finished by
    then answers from all passages it has seen.
    """
    transcript = ""
    seen: dict[str, Passage] = {}
    for searches_left in range(max_searches, -1, -1):
        fields = {"question": question.question, "form": rag.answer_format, "transcript": transcript}
        response = await rag.ask_until("\nObservation", "react", **fields)
        action = _ACTION.search(response)
        name, argument = (action[1] or action[3], action[2] or action[4] or "") if action else ("", "")
        argument = argument.strip(" <>[")
        if name.lower() == "finish":
            rag.stop("finish")
            return argument
        if action is None:
            rag.parse_failure("react")
        if searches_left == 0:
            break
        passages = await rag.search(argument.strip(" \"'"), top_k) if action else []
        seen |= {passage.id: passage for passage in passages}
        step = (response[: action.end()] if action else response).removeprefix("Thought:").strip()
        transcript += f"Thought: {step}\nObservation:\n{layout(passages, question.language)}\n\n"
    rag.stop("max_searches")
    return await rag.answer(list(seen.values()))
