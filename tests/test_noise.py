"""Noise in fixed ratios: what is gold, what is noise, and in which order."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rag_notes.retrieval.noise import ControlledNoise, controllable, with_noise
from rag_notes.types import Dataset, Hit, InputError, Passage, QAPair, Question
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
    "n1": "Noise, now.",
    "n2": "More noise.",
    "n3": "Still more noise.",
    "n4": "Noise again.",
    "n5": "Noise to the end.",
}
CORPUS = tuple(Passage(name, "", text) for name, text in TEXTS.items())
DATASET = Dataset("made", (BRIDGE, CLOSED, READINGS), CORPUS)
RANKING = ["twin", "n3", "builder", "n1", "sea", "n2", "known", "n4", "n5", "bridge"]


class Ranking(ScriptedRetriever):
    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        hits = super().search(queries, top_k)
        return [[replace(hit, passage=CORPUS[list(TEXTS).index(hit.passage.id)]) for hit in ranked] for ranked in hits]


def found(question: Question, percent: int, top_k: int = 5, ranking: list[str] = RANKING) -> list[str]:
    retriever = ControlledNoise(Ranking(lambda _: ranking), DATASET, percent)
    (hits,) = retriever.search([question.question], top_k)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.passage.id for hit in hits]


@pytest.mark.parametrize(
    ("percent", "gold", "noise"),
    [
        (0, {"bridge", "builder"}, set()),
        (20, {"bridge", "builder"}, {"n3"}),
        (40, {"bridge", "builder"}, {"n3", "n1"}),
        (60, {"bridge", "builder"}, {"n3", "n1", "sea"}),
        (80, {"builder"}, {"n3", "n1", "sea", "n2"}),  # the one with the answer stays
        (100, set(), {"n3", "n1", "sea", "n2", "known"}),
    ],
)
def test_so_much_is_noise_and_the_rest_gold(percent: int, gold: set[str], noise: set[str]) -> None:
    names = found(BRIDGE, percent)
    assert len(names) == len(set(names))
    assert set(names) == gold | noise


def test_noise_holds_no_answer_of_any_reading_and_a_no_is_not_looked_for() -> None:
    assert set(found(READINGS, 80)) == {"sea", "twin", "n3", "builder", "n1"}
    assert set(found(CLOSED, 80)) == {"known", "twin", "n3", "builder", "n1"}


def test_neither_is_padded_where_there_is_too_little_of_it() -> None:
    assert found(CLOSED, 20, ranking=["known", "n1", "n2"]) in (["known", "n1"], ["n1", "known"])
    assert set(found(CLOSED, 100, ranking=["known", "n1", "n2"])) == {"n1", "n2"}


def test_the_order_is_the_same_at_every_ratio_and_does_not_give_the_gold_away() -> None:
    order = found(BRIDGE, 60)
    assert order == found(BRIDGE, 60)
    smaller = found(BRIDGE, 40)
    assert smaller == [name for name in order if name in smaller]
    places = set()
    for number in range(40):  # the gold passage of forty questions that differ in their id alone
        question = replace(CLOSED, id=f"c{number}")
        dataset = Dataset("made", (question,), CORPUS)
        (hits,) = ControlledNoise(Ranking(lambda _: RANKING), dataset, 80).search([question.question], 5)
        places.add([hit.passage.id for hit in hits].index("known"))
    assert places == {0, 1, 2, 3, 4}


def test_queries_that_are_no_question_are_refused() -> None:
    retriever = ControlledNoise(Ranking(lambda _: RANKING), DATASET, 40)
    with pytest.raises(ValueError, match=r"'who\?' is no question of the data set.*method=\[vanilla,chain_of_note\]"):
        retriever.search(["who?"], 5)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search([BRIDGE.question], 0)


def test_only_questions_with_known_gold_and_a_text_of_their_own_are_controllable() -> None:
    unanswerable, elsewhere = Question("q4", "Who?"), Question("q5", "What?", ("x",), gold_ids=("bridge", "nowhere"))
    dataset = replace(DATASET, questions=(*DATASET.questions, unanswerable, elsewhere))
    assert controllable(dataset) == list(DATASET.questions)
    twins = replace(DATASET, questions=(BRIDGE, CLOSED, replace(BRIDGE, id="q6", gold_ids=("n1",))))
    assert controllable(twins) == [CLOSED]
    with pytest.raises(ValueError, match="noise cannot be controlled for question 'q4'"):
        ControlledNoise(Ranking(lambda _: RANKING), dataset, 40)
    with pytest.raises(ValueError, match="noise_percent is 140"):
        ControlledNoise(Ranking(lambda _: RANKING), DATASET, 140)


def test_the_description_says_how_much_noise() -> None:
    dataset, retriever = with_noise(DATASET, Ranking(lambda _: RANKING), 40)
    assert dataset.name == "made"
    assert retriever.describe() == {
        "name": "scripted with 40 % noise",
        "noise_percent": 40,
        "retriever": {"name": "scripted"},
    }
    assert {hit.passage.id for hit in retriever.search([BRIDGE.question], 5)[0]} == {"bridge", "builder", "n3", "n1"}
    with pytest.raises(InputError, match="dataset bare: no question has gold passages"):
        with_noise(Dataset("bare", (Question("q", "Who?"),), CORPUS), Ranking(lambda _: RANKING), 40)


def retrieved(question: Question, percent: int, top_k: int = 5, ranking: list[str] = RANKING) -> list[str]:
    dataset, retriever = with_noise(
        Dataset("made", (question,), CORPUS), Ranking(lambda _: ranking), percent, "retrieved"
    )
    assert dataset.questions == (question,)
    return [hit.passage.id for hit in retriever.search([question.question], top_k)[0]]


def test_noise_of_the_retrieved_list_fills_both_kinds_from_the_top() -> None:
    # By annotation bridge and builder are gold, last and third of the list; twin is not, whatever it holds.
    assert set(retrieved(BRIDGE, 60)) == {"builder", "bridge", "twin", "n3", "n1"}
    assert set(retrieved(BRIDGE, 80)) == {"builder", "twin", "n3", "n1", "sea"}
    assert set(retrieved(BRIDGE, 100)) == {"twin", "n3", "n1", "sea", "n2"}
    # Two gold passages are too few for 0 %: the next others fill the five.
    assert set(retrieved(BRIDGE, 0)) == set(retrieved(BRIDGE, 60))


def test_without_annotation_the_answer_in_a_retrieved_passage_makes_it_gold() -> None:
    asked = replace(BRIDGE, gold_ids=())
    assert set(retrieved(asked, 60)) == {"twin", "builder", "n3", "n1", "sea"}
    assert set(retrieved(asked, 80)) == {"twin", "n3", "n1", "sea", "n2"}
    assert set(retrieved(asked, 100, top_k=2)) == {"n3", "n1"}
    # A list of gold alone has no noise to give.
    assert set(retrieved(asked, 100, top_k=2, ranking=["twin", "builder"])) == {"twin", "builder"}
    assert len({tuple(sorted(retrieved(asked, percent))) for percent in (0, 20, 40, 60)}) == 1
    with pytest.raises(InputError, match="dataset made: no question has gold passages or answer among the retrieved"):
        retrieved(asked, 20, ranking=["n1", "n2"])
