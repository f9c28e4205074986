"""Noise in fixed ratios: what is gold, what is noise, and in which order."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rag_notes.retrieval.noise import ControlledNoise, controllable, with_noise
from rag_notes.types import Dataset, Hit, InputError, Passage, QAPair, Question
from tests.corpora import ids
from tests.scripted import ScriptedRetriever

BRIDGE = Question("q1", "Where was its builder born?", ("Dumfries",), gold_ids=("bridge", "builder"))
CLOSED = Question("q2", "Is it known?", ("no",), gold_ids=("known",), task="yes_no")
READINGS = Question("q3", "Which seas?", qa_pairs=(QAPair("North?", ("Baltic",)),), gold_ids=("sea",), task="long_form")
TEXTS = {
    "bridge": "It was built by a man.",
    "builder": "He was born near Dumfries.",
    "twin": "Another was born in DUMFRIES, too.",
    "known": "It is well known.",
    "sea": "The Baltic is a sea.",
    **{f"n{number}": "Noise, now." for number in range(1, 6)},
}
CORPUS = tuple(Passage(name, "", text) for name, text in TEXTS.items())
DATASET = Dataset("made", (BRIDGE, CLOSED, READINGS), CORPUS)
RANKING = ["twin", "n3", "builder", "n1", "sea", "n2", "known", "n4", "n5", "bridge"]


class Ranking(ScriptedRetriever):
    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        hits = super().search(queries, top_k)
        return [[replace(hit, passage=CORPUS[list(TEXTS).index(hit.passage.id)]) for hit in ranked] for ranked in hits]


def noisy(question: Question, percent: int, top_k: int = 5, ranking: list[str] = RANKING) -> list[str]:
    retriever = ControlledNoise(Ranking(lambda _: ranking), DATASET, percent)
    (hits,) = retriever.search([question.question], top_k)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return ids(hits)


@pytest.mark.parametrize(
    ("question", "percent", "passages"),
    [
        (BRIDGE, 0, "bridge builder"),  # neither kind is padded where there is too little of it
        (BRIDGE, 60, "bridge builder n3 n1 sea"),
        (BRIDGE, 80, "builder n3 n1 sea n2"),  # the gold passage with the answer stays
        (BRIDGE, 100, "n3 n1 sea n2 known"),
        (READINGS, 80, "sea twin n3 builder n1"),  # noise holds no answer of any reading
        (CLOSED, 80, "known twin n3 builder n1"),  # a no is not looked for
    ],
)
def test_so_much_is_noise_and_the_rest_gold(question: Question, percent: int, passages: str) -> None:
    assert sorted(noisy(question, percent)) == sorted(passages.split())
    short = [name for name in noisy(CLOSED, percent, ranking=["known", "n1", "n2"]) if name != "known"]
    assert set(short) == set(["n1", "n2"][: round(percent / 20)])


def test_the_order_is_the_same_at_every_ratio_and_does_not_give_the_gold_away() -> None:
    order = noisy(BRIDGE, 60)
    assert order == noisy(BRIDGE, 60)
    smaller = noisy(BRIDGE, 40)
    assert smaller == [name for name in order if name in smaller]
    places = set()
    for number in range(40):  # the gold passage of forty questions that differ in their id alone
        question = replace(CLOSED, id=f"c{number}")
        dataset = Dataset("made", (question,), CORPUS)
        (hits,) = ControlledNoise(Ranking(lambda _: RANKING), dataset, 80).search([question.question], 5)
        places.add(ids(hits).index("known"))
    assert places == {0, 1, 2, 3, 4}


def test_only_questions_with_known_gold_and_a_text_of_their_own_are_controllable() -> None:
    unanswerable, elsewhere = Question("q4", "Who?"), Question("q5", "What?", ("x",), gold_ids=("bridge", "nowhere"))
    dataset = replace(DATASET, questions=(*DATASET.questions, unanswerable, elsewhere))
    assert controllable(dataset) == list(DATASET.questions)
    twins = replace(DATASET, questions=(BRIDGE, CLOSED, replace(BRIDGE, id="q6", gold_ids=("n1",))))
    assert controllable(twins) == [CLOSED]
    with pytest.raises(InputError, match="dataset bare: no question has gold passages"):
        with_noise(Dataset("bare", (unanswerable,), CORPUS), Ranking(lambda _: RANKING), 40)


def test_the_description_says_how_much_noise_and_other_queries_are_refused() -> None:
    _, retriever = with_noise(DATASET, Ranking(lambda _: RANKING), 40)
    scripted = {"noise_percent": 40, "retriever": {"name": "scripted"}}
    assert retriever.describe() == {"name": "scripted with 40 % noise", **scripted}
    with pytest.raises(ValueError, match=r"'who\?' is no question of the data set.*method=\[vanilla,chain_of_note\]"):
        retriever.search(["who?"], 5)


def retrieved(question: Question, percent: int, top_k: int = 5, ranking: list[str] = RANKING) -> str:
    _, retriever = with_noise(replace(DATASET, questions=(question,)), Ranking(lambda _: ranking), percent, "retrieved")
    return " ".join(sorted(ids(retriever.search([question.question], top_k)[0])))


def test_noise_of_the_retrieved_list_fills_both_kinds_from_the_top() -> None:
    # By annotation bridge and builder are gold, last and third of the list; twin is not, whatever it holds.
    assert retrieved(BRIDGE, 60) == "bridge builder n1 n3 twin"
    assert retrieved(BRIDGE, 80) == "builder n1 n3 sea twin"
    assert retrieved(BRIDGE, 100) == "n1 n2 n3 sea twin"
    # Two gold passages are too few for 0 %: the next others fill the five.
    assert retrieved(BRIDGE, 0) == retrieved(BRIDGE, 60)


def test_without_annotation_the_answer_in_a_retrieved_passage_makes_it_gold() -> None:
    bare = replace(BRIDGE, gold_ids=())
    assert retrieved(bare, 60) == retrieved(bare, 0) == "builder n1 n3 sea twin"
    assert retrieved(bare, 80) == "n1 n2 n3 sea twin"
    assert retrieved(bare, 100, top_k=2) == "n1 n3"
    # A list of gold alone has no noise to give.
    assert retrieved(bare, 100, top_k=2, ranking=["twin", "builder"]) == "builder twin"
    with pytest.raises(InputError, match="dataset made: no question has gold passages"):
        retrieved(bare, 20, ranking=["n1", "n2"])
