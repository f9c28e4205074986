"""What retrieved passages hold of the gold, by hand and on the real samples."""

from collections.abc import Callable

import pytest

from rag_notes.datasets import hotpotqa, musique, twowikimultihopqa
from rag_notes.metrics.retrieval import all_gold, answer_in_passages, any_gold, gold_clusters
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Dataset, Hit, Passage, Question
from tests.samples import samples

BIRDS = (
    Passage("p1", "Heron", "The heron stands in shallow water."),
    Passage("p2", "Kingfisher", "A kingfisher dives into the water; the fish is swallowed head first."),
    Passage("p3", "Oak", "Oaks drop acorns in autumn."),
    Passage("p4", "Café", "Coffee is served with milk."),
)
CHINESE = (Passage("z1", "青瓷", "青瓷在窑炉中烧成。"), Passage("z2", "京杭大运河", "大运河连接北京与杭州。"))


def test_gold_by_hand() -> None:
    hits = [Hit(passage, 1.0) for passage in BIRDS[:3]]
    assert all_gold(hits, ["p1", "p3"]) == 1.0
    assert all_gold(hits[:2], ["p1", "p3"]) == 0.0
    assert all_gold(hits[:1], ["p1", "p1"]) == 1.0
    assert (all_gold(hits, ["p1", "p4"]), any_gold(hits, ["p1", "p4"])) == (0.0, 1.0)
    assert any_gold(hits[:2], ["p3"]) == any_gold([], ["p3"]) == all_gold([], ["p3"]) == 0.0
    assert all_gold(hits, []) is any_gold(hits, ()) is None
    assert all_gold(BIRDS, ["p2", "p4"]) == 1.0
    assert (all_gold(["Oak", "Café"], ["Oak"]), any_gold(["Oak"], ["p3"])) == (1.0, 0.0)  # by title


def test_answer_in_passages_by_hand() -> None:
    hits = [Hit(BIRDS[1], 2.0), Hit(BIRDS[3], 1.0)]
    assert [answer_in_passages(hits, golds) for golds in (["whale", "The Water"], ["kingfisher!"])] == [1.0, 1.0]
    assert answer_in_passages(BIRDS[:1], ["kingfisher"]) == answer_in_passages([], ["water"]) == 0.0
    assert answer_in_passages(["Swallowed, head first."], ["swallowed head"]) == 1.0
    assert answer_in_passages(hits, []) is answer_in_passages(hits, ["the", " "]) is None
    assert answer_in_passages([Passage("a", "Grey", "Heron")], ["grey heron"]) == 0.0  # none spans title and text
    assert [answer_in_passages(CHINESE, [gold], "zh") for gold in ("北京与杭州，", "上海")] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("load", "name", "by_id", "by_title"),
    [
        (hotpotqa, "hotpotqa/dev_distractor.sample200.json", 0.585, 0.585),
        (twowikimultihopqa, "2wikimultihopqa/dev.sample500.json", 0.312, 0.312),
        # Several paragraphs of MuSiQue share a title: finding the title is much less than finding the paragraph.
        (musique, "musique/musique_ans_dev.sample200.jsonl", 0.105, 0.175),
    ],
)
def test_all_gold_at_5_on_the_real_samples(
    load: Callable[[str], Dataset], name: str, by_id: float, by_title: float
) -> None:
    data = load(str(samples(name)))
    titles = {passage.id: passage.title for passage in data.corpus}
    rankings = bm25(data.corpus, cache=None).search([question.question for question in data.questions], 5)
    pairs = list(zip(rankings, data.questions, strict=True))
    marks = [all_gold(hits, question.gold_ids) or 0 for hits, question in pairs]
    assert sum(marks) / len(marks) == pytest.approx(by_id, abs=0.01)
    names = [
        ([hit.passage.title for hit in hits], [titles[id_] for id_ in question.gold_ids]) for hits, question in pairs
    ]
    marks = [all_gold(retrieved, gold) or 0 for retrieved, gold in names]
    assert sum(marks) / len(marks) == pytest.approx(by_title, abs=0.01)


def test_questions_that_share_gold_passages_are_a_cluster() -> None:
    gold = {"q1": "ab", "q2": "cd", "q3": "e", "q4": "bc", "q5": "", "q6": "", "q7": "de"}
    questions = [Question(id_, "?", gold_ids=tuple(passages)) for id_, passages in gold.items()]
    # q4 joins q1 and q2, and q7 joins q3 to them.
    assert gold_clusters(questions) == dict.fromkeys(["q1", "q2", "q4", "q3", "q7"], "q1") | {"q5": "q5", "q6": "q6"}
    by_title = [Question(id_, "?", gold_titles=("Rome",)) for id_ in "ab"]
    assert gold_clusters(by_title) == {"a": "a", "b": "a"}
