"""FLARE: search again wherever the model is unsure of its next sentence (DeepNote, baselines of Table 1)."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Literal

from rag_notes.methods.about import ANSWER, ANSWER_FORMAT, About
from rag_notes.methods.parse import parse_final_answer, parse_next_sentence
from rag_notes.methods.rag import Rag, Token
from rag_notes.types import Passage, Positive, Probability, Question

ABOUT = About(
    label="FLARE",
    source="FLARE (Jiang et al., 2023), section 3.2, a baseline of Adaptive-Note, DeepNote and Amber, Table 1",
    limits=("max_sentences",),
    calls=lambda s: s["max_sentences"] * (3 if s["queries"] == "asked" else 2) + 1,
    prompts=("flare_draft", "flare_sentence", "flare_query", *ANSWER_FORMAT, *ANSWER),
)


async def flare(
    rag: Rag,
    question: Question,
    *,
    top_k: Positive = 5,
    theta: Probability = 0.8,
    beta: Probability = 0.4,
    queries: Literal["masked", "asked"] = "masked",
    max_sentences: Positive = 6,
    draft_with_passages: bool = False,
) -> str:
    """Write sentence by sentence; one with a token under `theta` becomes a query and is written anew.

    A sentence is first drafted without passages (FLARE, section 3.2); with `draft_with_passages` the question is
    searched to begin with, and a draft sees the passages of the last search. `masked` searches with the sentence
    without its tokens under `beta`, `asked` with a question for them. A text without an answer's marker after
    `max_sentences` is what the question is answered from. Raises FatalLLMError where the endpoint gives no
    log-probabilities.
    """
    q = question.question
    passages = await rag.search(q, top_k) if draft_with_passages else None
    text: list[str] = []
    while len(text) < max_sentences:
        sentence = await next_sentence(rag, question, passages, text)
        if sentence and min(token.probability for token in sentence) < theta:
            if queries == "masked":
                query = written([token for token in sentence if token.probability >= beta])
            else:
                query = await rag.ask("flare_query", question=q, text=text, sentence=written(sentence))
            evidence = await rag.search(query or q, top_k)
            sentence = await next_sentence(rag, question, evidence, text)
            if draft_with_passages:
                passages = evidence
        if not sentence or written(sentence) in text:
            rag.stop("nothing new written")
            break
        text.append(written(sentence))
        if (answer := parse_final_answer(text[-1])) is not None:
            rag.stop("answer reached")
            return answer
    else:
        rag.stop("max_sentences")
    return await rag.answer(" ".join(text) or [])


async def next_sentence(
    rag: Rag, question: Question, passages: Sequence[Passage] | None, text: Sequence[str]
) -> list[Token]:
    """The tokens of the first sentence of the response, or of all of a final answer; none where it is empty."""
    ask = partial(rag.ask_tokens, question=question.question, form=rag.answer_format, text=text)
    tokens = await (ask("flare_draft") if passages is None else ask("flare_sentence", context=passages))
    sentence = parse_next_sentence(written(tokens), question.language)
    if not sentence:
        return []
    end = "".join(token.text for token in tokens).index(sentence) + len(sentence)
    starts = accumulate((len(token.text) for token in tokens[:-1]), initial=0)
    return [token for token, start in zip(tokens, starts, strict=True) if start < end]


def written(tokens: Sequence[Token]) -> str:
    """The text of tokens, without space around it."""
    return "".join(token.text for token in tokens).strip()
