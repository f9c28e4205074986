"""The generated data set is made again byte for byte, its answers follow from its facts, and searches find them."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from rag_notes.config import build_datasets, load_config
from rag_notes.datasets.formats import load_facts
from rag_notes.files import SHIPPED
from rag_notes.metrics.chain import facts_held
from rag_notes.metrics.retrieval import all_gold_at_k
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import Dataset, Hit, Passage, Question

FOLDER = SHIPPED / "data" / "world"
FILES = ("questions.jsonl", "passages.jsonl", "facts.jsonl")
CHAINED = ("two_hop", "three_hop")


def generate(*options: str | int | Path) -> None:
    command = [sys.executable, str(FOLDER / "generate.py"), *map(str, options)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(SHIPPED)})


def test_the_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    generate("--out", tmp_path)
    assert [(tmp_path / file).read_bytes() for file in FILES] == [(FOLDER / file).read_bytes() for file in FILES]


def test_another_world_and_a_smaller_one(tmp_path: Path) -> None:
    generate("--out", tmp_path / "small", "--questions", 40, "--distractors", 100)
    lines = {file: (FOLDER / file).read_text(encoding="utf-8").splitlines() for file in FILES}
    for file in FILES:  # a larger world begins with the smaller one
        small = (tmp_path / "small" / file).read_text(encoding="utf-8").splitlines()
        assert small == lines[file][: len(small)]
        assert len(small) == (5 * 36 + 100 if file == "passages.jsonl" else 40)
    generate("--out", tmp_path / "other", "--questions", 40, "--seed", 8)
    options = [
        f"dataset.world.{key}={tmp_path}/other/{file}" for key, file in (("path", FILES[0]), ("corpus", FILES[1]))
    ]
    (other,) = build_datasets(load_config(["dataset=world", *options, "limit=12"]))
    assert len(other.questions) == 12
    assert not {passage.title for passage in other.corpus} & {passage.title for passage in world().corpus}


@cache
def world() -> Dataset:
    (data,) = build_datasets(load_config(["dataset=world"]))
    return data


FACTS = load_facts(str(FOLDER / "facts.jsonl"))


@cache
def passages() -> dict[str, Passage]:
    return {passage.id: passage for passage in world().corpus}


def of_type(*types: str) -> list[Question]:
    return [question for question in world().questions if question.type in types]


def test_every_type_is_there_and_fits_the_types_of_questions() -> None:
    counts = Counter(question.type for question in world().questions)
    assert counts == {"two_hop": 91, "one_hop": 61, "comparison": 31, "three_hop": 30, "yes_no": 30, "unanswerable": 30, "ambiguous": 27}  # fmt: skip # noqa: E501
    assert len({passage.title for passage in world().corpus}) == len(passages()) == len(world().corpus) == 1116
    assert list(FACTS) == [question.id for question in world().questions]
    for question in world().questions:
        assert set(question.gold_ids) <= set(passages())
        assert question.gold_ids == tuple(dict.fromkeys(fact.passage_id for fact in FACTS[question.id]))
        assert question.task == {"yes_no": "yes_no", "ambiguous": "long_form"}.get(question.type, "short")
        assert bool(question.answers) == (question.type not in ("ambiguous", "unanswerable"))
    for passage in world().corpus:
        assert 40 <= len(passage.text.split()) <= 70


def test_facts_stand_in_their_passages_and_lead_to_the_answer() -> None:
    for question in of_type("one_hop", *CHAINED):
        facts = FACTS[question.id]
        assert (len(facts), len(set(question.gold_ids))) == (question.hops, question.hops)
        assert question.answers[0] == facts[-1].value
        assert passages()[facts[0].passage_id].title.split(" (")[0] in question.question
        assert all(following.subject.split(" (")[0] == fact.value for fact, following in pairwise(facts))
        for fact in facts:
            text = passages()[fact.passage_id].text
            assert fact.sentence in text and fact.value in fact.sentence and facts_held([fact], [text]) == (True,)
        # Neither the question nor an earlier passage gives the answer away.
        earlier = [question.question, *(passages()[name].text for name in question.gold_ids[:-1])]
        assert not any(facts[-1].value in text for text in earlier)


def test_comparisons_yes_no_and_ambiguous_questions_follow_from_their_facts() -> None:
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
        facts = FACTS[question.id]
        assert [pair.answers for pair in question.qa_pairs] == [(fact.value,) for fact in facts]
        assert len({fact.subject.split(" (")[0] for fact in facts}) == 1 < len({fact.subject for fact in facts})


@pytest.fixture(scope="module")
def retriever() -> BM25:
    return bm25(list(world().corpus)[: 11 * 36], cache=None)  # the regions of the first hundred questions


def share(values: Sequence[float | None]) -> float:
    return sum(value or 0 for value in values) / len(values)


def test_the_later_hops_share_no_term_with_the_question() -> None:
    terms = Tokenizer()
    for question in of_type(*CHAINED):
        for passage in (passages()[name] for name in question.gold_ids[1:]):
            shared = set(terms(question.question)) & set(terms(f"{passage.title} {passage.text}"))
            assert shared <= {"who"}, question  # no word of content, though no stop word of BM25's either


def test_first_searches_find_the_first_hop_and_searches_for_the_links_find_the_rest(retriever: BM25) -> None:
    """The gates of data/world/README.md that need no model."""

    def search(query: str) -> list[Hit]:
        return retriever.search([query], 5)[0]

    hundred = [question for question in world().questions[:100] if question.gold_ids]
    first = [float(q.gold_ids[0] in {hit.passage.id for hit in search(q.question)}) for q in hundred]
    assert share(first) >= 0.95
    several = [question for question in hundred if question.hops > 1]
    assert 0.20 <= share([all_gold_at_k(search(q.question), q.gold_ids, 5) for q in several]) <= 0.45
    chained = [question for question in several if question.type in CHAINED]
    assert share([all_gold_at_k(search(q.question), q.gold_ids, 5) for q in chained]) <= 0.1
    complete = []
    for question in chained:
        ids = {hit.passage.id for fact in FACTS[question.id][1:] for hit in search(fact.names[0])}
        complete.append(float(set(question.gold_ids[1:]) <= ids))
    assert share(complete) >= 0.8
