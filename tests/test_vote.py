import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rag_notes.events import Counts
from rag_notes.llm.client import FatalLLMError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.methods.vanilla import vanilla
from rag_notes.prompts.templates import Templates
from rag_notes.running.records import MethodInfo
from rag_notes.studies.cost import at_equal_tokens
from tests.made import make_run, row_of
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


def test_methods_at_equal_tokens_by_hand() -> None:
    scores = {
        "vanilla": [0, 0, 0, 1, 0, 0, 0, 0],
        "vote_3": [1, 0, 0, 1, 0, 0, 0, 0],
        "vote_5": [1, 1, 0, 1, 0, 0, 0, 0],
        "deepnote": [1, 1, 1, 1, 1, 1, 1, 1],
        "none": [0] * 8,
    }
    tokens = {"vanilla": 10, "vote_3": 30, "vote_5": 50, "deepnote": 45, "none": 5}
    run = make_run("toy", {name: {"acc": values} for name, values in scores.items()})
    samples = {"vanilla": 1, "vote_3": 3, "vote_5": 5}
    methods = {
        name: MethodInfo("rag_notes.methods.vanilla.vanilla", {"samples": samples[name]}, "c")
        if name in samples
        else of
        for name, of in run.info.methods.items()
    }
    spent = [replace(one, counts=Counts(prompt_tokens=tokens[one.method])) for one in run.samples]
    table = at_equal_tokens([replace(run, info=replace(run.info, methods=methods), samples=spent)], "acc")
    assert list(table["method"]) == ["deepnote"]  # no vote is as cheap as the other one
    row = row_of(table, method="deepnote")
    assert (row["vote"], row["samples"], row["tokens"], row["vote_tokens"], row["n"]) == ("vote_3", 3, 45, 30, 8)
    # Better on six questions, worse on none: two of 2^6 patterns.
    assert (row["difference"], row["p"], row["p_holm"]) == (0.75, 2 / 64, 2 / 64)
    assert row["low"] > 0
