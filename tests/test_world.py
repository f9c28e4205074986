"""The generated benchmark: the same everywhere, answers follow from their chains, searches find what they should."""

import hashlib
import json
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from itertools import pairwise

import pytest

from rag_notes.config import ConfigError, build_datasets, load_config
from rag_notes.datasets import DataError, world
from rag_notes.datasets.selection import cut
from rag_notes.datasets.world import world_chains, world_passages
from rag_notes.datasets.world.names import WORDS, word
from rag_notes.datasets.world.region import PASSAGES, Entity, region
from rag_notes.datasets.world.relations import RELATIONS, Relation
from rag_notes.metrics.chain import facts_held
from rag_notes.metrics.retrieval import all_gold_at_k
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import Dataset, Fact, Hit, Passage, Question

SIZE = 300
CHAINED = ("two_hop", "three_hop")


@cache
def made() -> tuple[Dataset, dict[str, tuple[Fact, ...]], dict[str, Passage]]:
    data = world(questions=SIZE)
    return data, world_chains(7, SIZE), {passage.id: passage for passage in data.corpus}


def sha256(data: Dataset) -> str:
    generated = [asdict(data)["questions"], asdict(data)["corpus"]]
    return hashlib.sha256(json.dumps(generated, sort_keys=True).encode()).hexdigest()


def of_type(*types: str) -> list[Question]:
    found = [question for question in made()[0].questions if question.type in types]
    assert found
    return found


def test_the_world_of_a_seed_never_changes() -> None:
    assert sha256(made()[0]) == "49574dee7a935d891bceab205af50eae1e40453fb8fb4c56fd12016278e2fee6"
    chains = json.dumps([[asdict(fact) for fact in chain] for chain in made()[1].values()])
    assert (
        hashlib.sha256(chains.encode()).hexdigest()
        == "672b4b5153e38902b775a615bff03ac634fdf66bb3e8709c0f73f9c3a961ad82"
    )
    code = "from tests.test_world import made, sha256; print(sha256(made()[0]))"
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}  # that of this process is random
    other = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert other.stdout.strip() == sha256(made()[0])


def test_a_larger_world_begins_with_the_smaller_one() -> None:
    data, chains, _ = made()
    small = world(questions=40, distractors=100)
    assert small.questions == data.questions[:40]
    assert tuple(small.corpus) == tuple(data.corpus)[: len(small.corpus)]
    assert len(small.corpus) == len(world(questions=40).corpus) + 100
    assert world_chains(7, 40) == {question.id: chains[question.id] for question in small.questions}
    assert tuple(world_passages(7, len(data.corpus))) == data.corpus
    part = cut(world(questions=40, distractors=100), offset=5, limit=3)
    assert (part.questions, part.corpus) == (small.questions[5:8], small.corpus)


def test_another_seed_is_another_world() -> None:
    other = world(questions=40, seed=8)
    titles = {passage.title for passage in made()[0].corpus}
    assert not any(passage.title in titles for passage in other.corpus)


def test_names_never_meet() -> None:
    assert len({word(7, index) for index in range(30_000)}) == 30_000
    step = WORDS // 30_000
    assert len({word(3, index * step) for index in range(30_000)}) == 30_000
    assert word(7, WORDS - 1).istitle()
    with pytest.raises(ValueError, match="there is no number 12000000"):
        word(7, WORDS)


def test_every_type_is_there_and_fits_the_types_of_questions() -> None:
    data, chains, passages = made()
    counts = Counter(question.type for question in data.questions)
    assert dict(counts) == {
        "two_hop": 91,
        "one_hop": 61,
        "comparison": 31,
        "three_hop": 30,
        "yes_no": 30,
        "unanswerable": 30,
        "ambiguous": 27,
    }
    assert len({question.id for question in data.questions}) == SIZE
    assert len(passages) == len(data.corpus)
    assert len({passage.title for passage in data.corpus}) == len(data.corpus)
    assert list(chains) == [question.id for question in data.questions]
    for question in data.questions:
        assert set(question.gold_ids) <= set(passages)
        assert question.gold_ids == tuple(dict.fromkeys(fact.passage_id for fact in chains[question.id]))
        assert question.task == {"yes_no": "yes_no", "ambiguous": "long_form"}.get(question.type, "short")
        assert bool(question.answers) == (question.type not in ("ambiguous", "unanswerable"))
        hops = {"one_hop": 1, "three_hop": 3, "ambiguous": 1}.get(question.type, 2)
        assert question.hops == hops or (question.type == "unanswerable" and question.hops == 1)
        assert question.question.endswith("?")


def test_passages_have_40_to_70_words_and_several_facts() -> None:
    for number in range(30):
        made_region = region(7, number)
        assert len(made_region.passages) == PASSAGES
        for passage, facts in zip(made_region.passages, made_region.facts, strict=True):
            assert 40 <= len(passage.text.split()) <= 70
            assert len(facts) >= 2
            for fact in facts.values():
                assert fact.passage_id == passage.id
                assert fact.sentence in passage.text
                assert fact.value in fact.sentence
                assert facts_held([fact], [passage.text]) == (True,)
    assert len(RELATIONS) >= 10


def test_facts_of_a_chain_stand_in_their_passages_and_lead_to_the_answer() -> None:
    _, chains, passages = made()
    for question in of_type("one_hop", *CHAINED):
        chain = chains[question.id]
        assert len(chain) == question.hops
        assert len(set(question.gold_ids)) == question.hops
        assert question.answers[0] == chain[-1].value
        assert passages[chain[0].passage_id].title.split(" (")[0] in question.question
        for fact, following in pairwise(chain):
            assert following.subject.split(" (")[0] == fact.value
        for fact in chain:
            assert fact.subject == passages[fact.passage_id].title
            assert fact.sentence in passages[fact.passage_id].text
        # Neither the question nor an earlier passage gives the answer away.
        earlier = [question.question, *(passages[name].text for name in question.gold_ids[:-1])]
        assert not any(chain[-1].value in text for text in earlier)


def test_a_comparison_has_the_earlier_year_and_a_yes_is_true() -> None:
    chains = made()[1]
    for question in of_type("comparison"):
        first, second = chains[question.id]
        assert first.relation == second.relation
        assert question.answers == (str(min(int(first.value), int(second.value))),)
        assert first.value != second.value
    answers: Counter[tuple[bool, str]] = Counter()
    for question in of_type("yes_no"):
        first, second = chains[question.id]
        pair = first.relation == second.relation and second.subject.split(" (")[0] != first.value
        true = first.value == second.value if pair else second.value in question.question
        assert question.answers == ("yes" if true else "no",)
        answers[pair, question.answers[0]] += 1
    assert min(answers[key] for key in ((True, "yes"), (True, "no"), (False, "yes"), (False, "no"))) >= 3


def test_an_ambiguous_question_has_a_reading_for_each_namesake() -> None:
    chains = made()[1]
    for question in of_type("ambiguous"):
        facts = chains[question.id]
        assert [pair.answers for pair in question.qa_pairs] == [(fact.value,) for fact in facts]
        assert len({fact.subject.split(" (")[0] for fact in facts}) == 1 < len({fact.subject for fact in facts})
        assert len({fact.value for fact in facts}) == 2
        assert len({pair.question for pair in question.qa_pairs}) == 2


def states(text: str, relation: Relation, entity: Entity, *, own: bool) -> bool:
    """Whether a passage has a sentence of the relation about the entity, with whatever value."""
    mention = f"(?:T|t){re.escape(entity.mention[1:])}" if entity.namesake else re.escape(entity.mention)
    subject = f"(?:{mention}{'|He|She|It' if own else ''})"
    value = r"\d{4}" if relation.value == "year" else "(?:[Tt]he [a-z]+ )?[A-Z][^.]*"
    patterns = (
        re.escape(pattern).replace(r"\{s\}", subject).replace(r"\{v\}", value) for pattern in relation.sentences
    )
    return any(re.search(pattern, text) for pattern in patterns)


def test_what_an_unanswerable_question_asks_for_is_stated_nowhere() -> None:
    data, chains, passages = made()
    regions = [region(7, number) for number in range(len(data.corpus) // PASSAGES)]
    asked = 0
    for question in of_type("unanswerable"):
        assert (chains[question.id], question.gold_ids, question.answers) == ((), (), ())
        of_question = regions[int(question.id.split("-")[0].removeprefix("r"))]
        described = {entity.id: {entity.description} for entity in of_question.entities}
        for entity, values in zip(of_question.entities, of_question.values, strict=True):
            for name, value in values.items():
                if isinstance(value, Entity):
                    described[value.id].add(RELATIONS[name].phrase.format(e=entity.description))
        for entity, missing, values in zip(of_question.entities, of_question.missing, of_question.values, strict=True):
            relation = RELATIONS[missing]
            if question.question in [relation.question.format(e=text) for text in described[entity.id]]:
                asked += 1
                assert missing not in values
                assert not any(states(p.text, relation, entity, own=p.id == entity.id) for p in data.corpus)
                # Nor can it be guessed: no town that she governs, no company that she founded.
                mentions = [p.id for p in of_question.passages if entity.mention in p.text and p.id != entity.id]
                kinds = {other.kind for other in of_question.entities if other.id in mentions}
                assert relation.value not in kinds
                # What is stated would have been seen.
                assert all(states(passages[entity.id].text, RELATIONS[name], entity, own=True) for name in values)
    assert asked == len(of_type("unanswerable"))


@cache
def retriever() -> BM25:
    return bm25(world(questions=100).corpus, cache=None)


def found(query: str) -> list[Hit]:
    return retriever().search([query], 5)[0]


def share(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    assert len(known) == len(values) > 0
    return sum(known) / len(known)


def test_the_later_hops_share_no_term_with_the_question() -> None:
    passages, terms = made()[2], Tokenizer()
    for question in of_type(*CHAINED):
        for name in question.gold_ids[1:]:
            passage = passages[name]
            shared = set(terms(question.question)) & set(terms(f"{passage.title} {passage.text}"))
            assert shared <= {"who"}, question  # no word of content, though no stop word of BM25's either


def test_the_first_search_finds_the_first_hop_and_seldom_all() -> None:
    """Gate 3: BM25's first five passages have all gold for 20 to 45 % of the questions of several hops."""
    hundred = [question for question in made()[0].questions[:100] if question.gold_ids]
    assert share([float(q.gold_ids[0] in {hit.passage.id for hit in found(q.question)}) for q in hundred]) >= 0.95
    several = [question for question in hundred if question.hops > 1]
    assert 0.20 <= share([all_gold_at_k(found(q.question), q.gold_ids, 5) for q in several]) <= 0.45
    chained = [question for question in several if question.type in CHAINED]
    assert share([all_gold_at_k(found(q.question), q.gold_ids, 5) for q in chained]) <= 0.1


def test_a_search_for_the_linking_entity_finds_the_rest() -> None:
    """Gate 4: a search for the name of each linking entity finds the later gold passages of 80 % of the questions."""
    chained = [question for question in made()[0].questions[:100] if question.type in CHAINED]
    complete = []
    for question in chained:
        ids = {hit.passage.id for fact in made()[1][question.id][1:] for hit in found(fact.names[0])}
        complete.append(float(set(question.gold_ids[1:]) <= ids))
    assert share(complete) >= 0.8


def test_passages_are_made_in_constant_memory() -> None:
    tracemalloc.start()
    try:
        peaks = []
        for passages in (1_000, 10_000):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert sum(1 for _ in world_passages(7, passages)) == passages
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert max(peaks) < 1_000_000  # bytes; 10,000 passages held would be about 7 million
    assert len({passage.id for passage in world_passages(7, 1_000)}) == 1_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"questions": 0}, "dataset.world.questions: expected 1 or more, found 0"),
        ({"seed": -1}, "dataset.world.seed: expected 0 or more, found -1"),
        ({"distractors": -5}, "dataset.world.distractors: expected 0 or more, found -5"),
        ({"questions": 1, "distractors": 10**8}, "a world has up to 13500000 passages"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        world(**options)  # type: ignore[arg-type]


def test_the_configuration_makes_a_world_of_any_size() -> None:
    options = ["dataset.world.questions=25", "dataset.world.seed=3", "dataset.world.distractors=10", "limit=20"]
    (data,) = build_datasets(load_config(["dataset=world", *options]))
    assert data == cut(world(questions=25, seed=3, distractors=10), limit=20)
    assert len(data.questions) == 20
    with pytest.raises(ConfigError, match=r"dataset\.world\.questions: .*greater than or equal to 1"):
        load_config(["dataset=world", "dataset.world.questions=0"])
    with pytest.raises(ConfigError, match=r"dataset\.world\.distractor: no such option; did you mean distractors"):
        load_config(["dataset=world", "+dataset.world.distractor=1"])
