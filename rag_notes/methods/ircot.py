"""IRCoT: sentences of reasoning and searches with them take turns, then a reader answers (DeepNote, Table 11)."""

from rag_notes.methods.about import ANSWER, ANSWER_FORMAT, About
from rag_notes.methods.parse import parse_final_answer, parse_next_sentence
from rag_notes.methods.rag import Rag
from rag_notes.types import NonNegative, Positive, Question

ABOUT = About(
    label="IRCoT",
    source="IRCoT (Trivedi et al., 2023), as in DeepNote, Table 11",
    limits=("max_steps", "max_passages"),
    calls=lambda s: s["max_steps"] + 1,
    prompts=("ircot_thought", *ANSWER_FORMAT, *ANSWER),
)


async def ircot(
    rag: Rag, question: Question, *, top_k: Positive = 5, max_passages: Positive = 15, max_steps: NonNegative = 8
) -> str:
    """Reason until the chain has an answer, `max_passages` are collected or `max_steps` sentences were written.

    Every sentence is the query of the next search. The reader gets all passages, and none of the reasoning.
    """
    q = question.question
    passages = await rag.search(q, min(top_k, max_passages))
    thoughts: list[str] = []
    while len(thoughts) < max_steps and len(passages) < max_passages:
        ask = rag.ask("ircot_thought", context=passages, question=q, form=rag.answer_format, thoughts=thoughts)
        thought = parse_next_sentence(await ask, question.language)
        if parse_final_answer(thought) is not None:
            rag.stop("answer reached")
            break
        if not thought or thought in thoughts:
            rag.stop("nothing new written")
            break
        thoughts.append(thought)
        hits = await rag.search(thought, top_k)
        unseen = [passage for passage in hits if passage not in passages]
        passages = passages + unseen[: max_passages - len(passages)]
        rag.read_only([passage for passage in hits if passage in passages])
    else:
        rag.stop("max_passages" if len(passages) == max_passages else "max_steps")
    return await rag.answer(passages)
