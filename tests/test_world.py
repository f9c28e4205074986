"""The generated data set is made again byte for byte, its answers follow from its facts, and searches find them."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from rag_notes.config import build_datasets, load_config
from rag_notes.datasets.formats import load_facts, plain
from rag_notes.files import SHIPPED
from rag_notes.metrics.chain import facts_held
from rag_notes.metrics.retrieval import all_gold
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import Hit, Question

FOLDER = SHIPPED / "data" / "world"
FILES = ("questions.jsonl", "passages.jsonl", "facts.jsonl")
CHAINED = ("two_hop", "three_hop")
FACTS = load_facts(str(FOLDER / "facts.jsonl"))
WORLD = plain(str(FOLDER / FILES[0]), name="world", corpus=str(FOLDER / FILES[1]))
PASSAGES = {passage.id: passage for passage in WORLD.corpus}


def generate(*options: str | int | Path) -> None:
    command = [sys.executable, str(FOLDER / "generate.py"), *map(str, options)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(SHIPPED)})


def of_type(*types: str) -> list[Question]:
    return [question for question in WORLD.questions if question.type in types]


def share(values: list[float]) -> float:
    return sum(values) / len(values)


def test_the_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    generate("--out", tmp_path)
    assert [(tmp_path / file).read_bytes() for file in FILES] == [(FOLDER / file).read_bytes() for file in FILES]


def test_another_world_and_a_smaller_one(tmp_path: Path) -> None:
    generate("--out", tmp_path / "small", "--questions", 40, "--distractors", 100)
    for file in FILES:  # a larger world begins with the smaller one
        small = (tmp_path / "small" / file).read_text(encoding="utf-8").splitlines()
        assert small == (FOLDER / file).read_text(encoding="utf-8").splitlines()[: len(small)]
        assert len(small) == (5 * 36 + 100 if file == "passages.jsonl" else 40)
    generate("--out", tmp_path / "other", "--questions", 40, "--seed", 8)
    path, corpus = f"{tmp_path}/other/{FILES[0]}", f"{tmp_path}/other/{FILES[1]}"
    options = [f"dataset.world.path={path}", f"dataset.world.corpus={corpus}", "limit=12"]
    (other,) = build_datasets(load_config(["dataset=world", *options]))
    assert len(other.questions) == 12
    assert not {passage.title for passage in other.corpus} & {passage.title for passage in WORLD.corpus}


def test_every_question_has_the_gold_passages_of_its_facts() -> None:
    counts = Counter(question.type for question in WORLD.questions)
    assert counts == {"two_hop": 91, "one_hop": 61, "comparison": 31, "three_hop": 30, "yes_no": 30, "unanswerable": 30, "ambiguous": 27}  # fmt: skip # noqa: E501
    assert len({passage.title for passage in WORLD.corpus}) == len(PASSAGES) == len(WORLD.corpus) == 1116
    assert list(FACTS) == [question.id for question in WORLD.questions]
    for question in WORLD.questions:
        assert question.gold_ids == tuple(dict.fromkeys(fact.passage_id for fact in FACTS[question.id]))
        assert question.task == {"yes_no": "yes_no", "ambiguous": "long_form"}.get(question.type, "short")
        assert bool(question.answers) == (question.type not in ("ambiguous", "unanswerable"))


def test_answers_follow_from_their_facts_which_stand_in_their_passages() -> None:
    for question in of_type("one_hop", *CHAINED):
        facts = FACTS[question.id]
        assert (len(facts), question.answers[0]) == (question.hops, facts[-1].value)
        assert all(following.subject.split(" (")[0] == fact.value for fact, following in pairwise(facts))
        for fact in facts:
            text = PASSAGES[fact.passage_id].text
            assert fact.sentence in text and fact.value in fact.sentence and facts_held([fact], [text]) == (True,)
        # Neither the question nor an earlier passage gives the answer away.
        earlier = [question.question, *(PASSAGES[name].text for name in question.gold_ids[:-1])]
        assert not any(facts[-1].value in text for text in earlier)
    for question in of_type("comparison"):
        first, second = FACTS[question.id]
        assert first.relation == second.relation
        assert question.answers == (str(min(int(first.value), int(second.value))),)
    for question in of_type("yes_no"):
        first, second = FACTS[question.id]
        pair = first.relation == second.relation and second.subject.split(" (")[0] != first.value
        true = first.value == second.value if pair else second.value in question.question
        assert question.answers == ("yes" if true else "no",)
    for question in of_type("ambiguous"):
        assert [pair.answers for pair in question.qa_pairs] == [(fact.value,) for fact in FACTS[question.id]]


def test_first_searches_find_the_first_hop_and_searches_for_the_links_find_the_rest() -> None:
    """The gates of data/world/README.md that need no model."""
    retriever = bm25(list(WORLD.corpus)[: 11 * 36], cache=None)  # the regions of the first hundred questions
    hundred = [question for question in WORLD.questions[:100] if question.gold_ids]

    def search(query: str) -> list[Hit]:
        return retriever.search([query], 5)[0]

    def complete(questions: list[Question]) -> float:
        return share([all_gold(search(q.question), q.gold_ids) or 0 for q in questions])

    assert share([q.gold_ids[0] in {hit.passage.id for hit in search(q.question)} for q in hundred]) >= 0.95
    chained, terms, links = [question for question in hundred if question.type in CHAINED], Tokenizer(), []
    assert 0.20 <= complete([question for question in hundred if question.hops > 1]) <= 0.45
    assert complete(chained) <= 0.1
    for question in chained:
        for passage in (PASSAGES[name] for name in question.gold_ids[1:]):  # no word of content is shared
            assert set(terms(question.question)) & set(terms(f"{passage.title} {passage.text}")) <= {"who"}
        ids = {hit.passage.id for fact in FACTS[question.id][1:] for hit in search(fact.names[0])}
        links.append(float(set(question.gold_ids[1:]) <= ids))
    assert share(links) >= 0.8
