"""The loop in which a note grows, which DeepNote and Adaptive-Note share: ask, search, update, judge."""

from collections.abc import Mapping
from typing import Literal

from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag

Queries = Literal["joined", "separate"]
"""How new questions are searched: joined with the original one in one search, or each by itself, merged by rank."""

JOINED_LENGTH = 500  # characters; where the published runs cut the joined query


async def grow_note(
    rag: Rag, limits: Mapping[str, int], *, top_k: int, queries: Queries = "joined", judged: bool = True
) -> str:
    """Write a note on the question, update it until a limit is reached, and return the best note.

    `limits` are those of failed updates (in total, not in a row), of updates, and of distinct passages, in this order
    and by the names that the trace shows. A search that could go past the last one gives only unseen passages up to
    it. An update becomes the best note where the judge finds it better, and always without `judged`.
    """
    question, max_passages = rag.question.question, [*limits.values()][-1]
    passages = await rag.search(question, min(top_k, max_passages))
    best = rag.note(await rag.ask("note_init", context=passages, question=question), kept=True)
    seen = {passage.id for passage in passages}
    earlier_queries: list[str] = []
    steps = failures = 0
    while True:
        for (name, limit), reached in zip(limits.items(), (failures, steps, len(seen)), strict=True):
            if reached >= limit:
                rag.stop(name)
                return best
        new = parse_lines(await rag.ask("note_query", question=question, note=best, queries=earlier_queries))
        earlier_queries += new
        if queries == "joined":
            passages = await rag.search(" ".join([*new, question])[:JOINED_LENGTH], top_k)
        else:
            passages = await rag.search_all(new or [question], top_k)
        if len(seen) + top_k > max_passages:
            unseen = [passage for passage in passages if passage.id not in seen]
            passages = rag.read_only(unseen[: max_passages - len(seen)])
        seen |= {passage.id for passage in passages}
        note = await rag.ask("note_update", context=passages, question=question, note=best)
        better = not judged or await rag.judge("note_judge", question=question, best_note=best, new_note=note)
        rag.note(note, kept=better)
        steps += 1
        if better:
            best = note
        else:
            failures += 1
