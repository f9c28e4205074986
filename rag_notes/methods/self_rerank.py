"""Self-Rerank: the LLM labels the passages and reads the useful ones (Adaptive-Note, baselines of Table 1)."""

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import Label, parse_labels
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Self-Rerank",
    source="Adaptive-Note, baselines of Table 1, with the prompts of ActiveRAG (Xu et al., 2024)",
    family="single search",
    calls=lambda _: 2,
    prompts=("self_rerank", *ANSWER),
)

UNREAD = Label(useful=True, relevant=False)  # a passage whose tags cannot be read stays, behind the others


async def self_rerank(rag: Rag, question: Question, *, top_k: Positive = 5) -> str:
    """Search once, label all passages in one call, and answer from the useful ones, those also relevant first."""
    q = question.question
    passages = await rag.search(q, top_k)
    if not passages:
        return await rag.answer([])
    labels = parse_labels(await rag.ask("self_rerank", context=passages, question=q))
    numbers = range(1, len(passages) + 1)
    if not labels.keys() >= set(numbers):
        rag.parse_failure("self_rerank")
    useful = [number for number in numbers if labels.get(number, UNREAD).useful]
    useful.sort(key=lambda number: not labels.get(number, UNREAD).relevant)
    rag.decide("useful passages", ", ".join(str(number) for number in useful) or "(none)")
    return await rag.answer([passages[number - 1] for number in useful])
