"""What retrieved passages hold of the gold, by hand and on the real samples."""

import json

import pytest

from rag_notes.metrics.retrieval import all_gold, answer_in_passages, any_gold, gold_clusters
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Hit, Passage, Question
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


def pooled(name: str) -> tuple[list[Passage], list[tuple[str, set[str], set[str]]]]:
    """The distinct paragraphs of a sample, and of each question the gold's ids and titles."""
    text = samples(name).read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
    pool: dict[tuple[str, str], str] = {}
    questions = []
    for record in records:
        if "paragraphs" in record:
            rows = [(row["title"], row["paragraph_text"], row["is_supporting"]) for row in record["paragraphs"]]
        else:
            titles = {title for title, _ in record["supporting_facts"]}
            rows = [(title, " ".join(map(str.strip, lines)), title in titles) for title, lines in record["context"]]
        named = [(pool.setdefault((title, body), f"p{len(pool):05}"), title, gold) for title, body, gold in rows]
        gold_ids, gold_titles = {row[0] for row in named if row[2]}, {row[1] for row in named if row[2]}
        questions.append((record["question"], gold_ids, gold_titles))
    return [Passage(identity, title, body) for (title, body), identity in pool.items()], questions


@pytest.mark.parametrize(
    ("name", "by_id", "by_title"),
    [
        ("hotpotqa/dev_distractor.sample200.json", 0.585, 0.585),
        ("2wikimultihopqa/dev.sample500.json", 0.312, 0.312),
        # Several paragraphs of MuSiQue share a title: finding the title is much less than finding the paragraph.
        ("musique/musique_ans_dev.sample200.jsonl", 0.105, 0.175),
    ],
)
def test_all_gold_at_5_on_the_real_samples(name: str, by_id: float, by_title: float) -> None:
    corpus, questions = pooled(name)
    found = bm25(corpus, cache=None).search([question for question, _, _ in questions], 5)
    for expected, (ids, names) in ((by_id, (1, "id")), (by_title, (2, "title"))):
        rankings = [[str(getattr(hit.passage, names)) for hit in hits] for hits in found]
        marks = [all_gold(hits, list(gold[ids])) for hits, gold in zip(rankings, questions, strict=True)]
        assert sum(mark or 0 for mark in marks) / len(questions) == pytest.approx(expected, abs=0.01)


def test_questions_that_share_gold_passages_are_a_cluster() -> None:
    gold = {"q1": "ab", "q2": "cd", "q3": "e", "q4": "bc", "q5": "", "q6": "", "q7": "de"}
    questions = [Question(id_, "?", gold_ids=tuple(passages)) for id_, passages in gold.items()]
    # q4 joins q1 and q2, and q7 joins q3 to them.
    assert gold_clusters(questions) == dict.fromkeys(["q1", "q2", "q4", "q3", "q7"], "q1") | {"q5": "q5", "q6": "q6"}
    by_title = [Question(id_, "?", gold_titles=("Rome",)) for id_ in "ab"]
    assert gold_clusters(by_title) == {"a": "a", "b": "a"}
