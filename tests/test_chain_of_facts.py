"""Where methods lose a chain of facts, in runs made up so that each question ends in another way."""

from collections.abc import Sequence

import pytest

from rag_notes.config import load_study
from rag_notes.events import Decision, Event, Found, Note, Search
from rag_notes.running.records import Run
from rag_notes.running.samples import Sample
from rag_notes.studies.chain_of_facts import OUTCOMES, ChainOfFacts
from rag_notes.types import Fact
from tests.made import ask, make_info, make_sample, row_of

DIRECTED = Fact("Kelm", "directed_by", "Ann Ro", "film", "Kelm was directed by Ann Ro.", ("Kelm",))
BORN = Fact("Ann Ro", "born_in", "Tis", "person", "Ann Ro was born in Tis.", ("Ann Ro",))
CHAINS = {"world": dict.fromkeys("abcdefg", (DIRECTED, BORN)) | {"nothing": ()}}
BOTH = f"{DIRECTED.sentence} {BORN.sentence}"


def search(query: str, *facts: Fact) -> Search:
    return Search(query, 5, [Found(fact.passage_id, fact.subject, fact.sentence, 1.0) for fact in facts])


FIRST = search("Where was the director of Kelm born?", DIRECTED)
SECOND = search("Ann Ro birthplace", BORN)
JUDGED = ask("note_judge", '{"status": "True"}')


def sample(question: str, *trace: Event, right: bool = False, method: str = "deepnote") -> Sample:
    return make_sample(method, question, {"acc": float(right)}, trace=trace)


SAMPLES = [
    sample("a", FIRST, SECOND, Note("nothing", kept=True), right=True),
    sample("b", search("?"), Note("nothing", kept=True)),
    sample("c", FIRST, search("director"), Note("nothing", kept=True)),
    sample("d", FIRST, search("Ann Ro"), Note("nothing", kept=True)),
    # The judge takes the worse note for the better one, then keeps the better one out.
    sample("e", FIRST, Note(DIRECTED.sentence, kept=True), SECOND, JUDGED, Note("nothing", kept=True), JUDGED),
    sample("f", FIRST, Note(DIRECTED.sentence, kept=True), SECOND, JUDGED, Note(BOTH, kept=True)),
    sample("g", FIRST, SECOND, method="ircot"),
    sample("nothing", FIRST, Note("nothing", kept=True)),
    make_sample("ircot", "a", {}, error="gone"),
]


def chain_of_facts(samples: Sequence[Sample], *methods: str) -> ChainOfFacts:
    config = load_study("chain_of_facts", ["resamples=200"])
    return ChainOfFacts(config, [Run(make_info("world", methods), samples)], CHAINS)


ALL = chain_of_facts(SAMPLES, "deepnote", "ircot")


def test_each_answer_ends_by_the_first_thing_that_went_wrong() -> None:
    answers = ALL.answers()
    assert dict(zip(answers["question_id"], answers["outcome"], strict=True)) == dict(
        zip("abcdefg", OUTCOMES, strict=True)
    )


def test_what_the_answer_was_made_from_is_the_last_note_kept_or_all_passages() -> None:
    answers = ALL.answers()
    rows = {name: row_of(answers, question_id=name) for name in "efg"}
    assert {name: (row["held"], row["tokens"], row["evidence"]) for name, row in rows.items()} == {
        "e": (0, 1, 0),
        "f": (2, 12, 12),
        "g": (2, 12, 12),
    }
    held = ALL.facts().query("quantity == 'held'")
    assert held[["method", "n"]].values.tolist() == [["deepnote", 6], ["ircot", 1]]
    assert held["mean"].tolist() == pytest.approx([2 / 12, 1])
    blank = [sample("a", FIRST, Note("", kept=True)), sample("f", FIRST, Note(BOTH, kept=True))]
    facts = chain_of_facts([*blank, sample("b", method="none")], "deepnote", "none").facts()
    # A blank note holds nothing and has no density; a method that read nothing is left out.
    assert facts[["method", "quantity", "n"]].values.tolist() == [
        *(["deepnote", "held", 2], ["deepnote", "tokens", 2], ["deepnote", "density", 1])
    ]


def test_a_compressed_summary_is_what_the_answer_was_made_from() -> None:
    summaries = [
        sample("a", FIRST, SECOND, Decision("summary", BORN.sentence), method="recomp"),
        sample("b", FIRST, SECOND, Decision("summary", BOTH), method="recomp"),
    ]
    answers = chain_of_facts(summaries, "recomp").answers()
    assert answers["outcome"].tolist() == ["fact dropped from the note", "answer wrong although the note has it"]
    assert answers["held"].tolist() == [1, 2]


def test_outcomes_are_counted_for_each_method_the_best_first() -> None:
    table = ALL.outcomes()
    assert table.groupby("method", sort=False)["questions"].sum().to_dict() == {"deepnote": 6, "ircot": 1}
    assert table.groupby("method")["share"].sum().tolist() == pytest.approx([1, 1])
    better = [sample("a", FIRST, right=True, method="vanilla"), sample("b", FIRST, right=True, method="vanilla")]
    compared = chain_of_facts([*SAMPLES[:6], *better], "deepnote", "vanilla").outcomes()
    assert list(compared["method"].unique()) == ["vanilla", "deepnote"]
    assert list(compared["outcome"].unique()) == list(OUTCOMES)


def test_the_judge_is_set_against_the_truth() -> None:
    row = row_of(ALL.judge(), method="deepnote")
    assert (row["questions"], row["verdicts"], row["mean"]) == (2, 2, 0.5)
    assert (row["said_true"], row["truly_better"], row["right_true"], row["right_false"]) == (2, 1, 1, 0)
