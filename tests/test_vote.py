import asyncio
from collections.abc import Sequence

import pytest

from rag_notes.llm.client import FatalLLMError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.methods.vanilla import vanilla
from rag_notes.prompts.templates import Templates
from tests.scripted import Q, ScriptedLLM, ScriptedRetriever, play


@pytest.mark.parametrize(
    ("answers", "chosen"),
    [
        (["Bath", "Dumfries.", "the Dumfries"], "Dumfries."),  # normalised they are the same
        (["Bath", "Dumfries", "York"], "Bath"),  # all equally frequent: the first
        (["Bath", "York", "Dumfries", "York", "Dumfries"], "York"),
    ],
)
def test_most_samples_decide(answers: Sequence[str], chosen: str) -> None:
    played = play(vanilla, lambda ask: answers[ask.repeat], samples=len(answers))
    assert played.answer == chosen
    assert [ask.repeat for ask in played.llm.asks] == list(range(len(answers)))
    assert len({ask.prompt for ask in played.llm.asks}) == len(played.searches) == 1
    assert [event.event for event in played.trace] == ["search", *["ask"] * len(answers), "decision"]


def test_one_sample_is_vanilla_itself() -> None:
    assert play(vanilla, lambda _: "A", samples=1).trace == play(vanilla, lambda _: "A").trace


def test_no_repeat_shares_a_sample_with_another() -> None:
    async def repeats_of(repeat: int) -> list[int]:
        llm, searcher = ScriptedLLM(lambda _: "A"), Searcher(ScriptedRetriever(lambda _: ["a"]))
        rag = Rag(Q, method="vote", llm=llm, searcher=searcher, templates=Templates("small"), repeat=repeat)
        await vanilla(rag, Q, samples=3)
        return [ask.repeat for ask in llm.asks]

    assert [asyncio.run(repeats_of(repeat)) for repeat in (0, 1)] == [[0, 1, 2], [3, 4, 5]]


def test_a_vote_at_temperature_0_is_refused() -> None:
    async def vote(samples: int) -> str:
        llm = ScriptedLLM(lambda _: "A", temperature=0.0)
        searcher = Searcher(ScriptedRetriever(lambda _: ["a"]))
        rag = Rag(Q, method="vote", llm=llm, searcher=searcher, templates=Templates("small"))
        return await vanilla(rag, Q, samples=samples)

    assert asyncio.run(vote(1)) == "A"
    with pytest.raises(FatalLLMError, match=r"vote takes 3 samples .* alike at temperature 0; set llm.temperature"):
        asyncio.run(vote(3))
