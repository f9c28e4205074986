"""Where methods lose a chain of facts, in runs made up so that each question ends in another way."""

import asyncio
from pathlib import Path

import pytest

from rag_notes.config import ConfigError, load_study
from rag_notes.events import Decision, Event, Found, Note, Search
from rag_notes.files import SHIPPED
from rag_notes.report.figures import save_figure
from rag_notes.running.records import Run, Sample
from rag_notes.studies import chain_of_facts
from rag_notes.studies.chain_of_facts import (
    OUTCOMES,
    chain_answers,
    chain_figure,
    chains,
    fact_shares,
    judged,
    outcomes,
)
from rag_notes.types import Fact
from tests.made import ask, make_info, make_sample, row_of

DIRECTED = Fact("Kelm", "directed_by", "Ann Ro", "film", "Kelm was directed by Ann Ro.", ("Kelm",))
BORN = Fact("Ann Ro", "born_in", "Tis", "person", "Ann Ro was born in Tis.", ("Ann Ro",))
KNOWN = {"world": dict.fromkeys("abcdefg", (DIRECTED, BORN)) | {"nothing": ()}}
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
RUN = Run(make_info("world", ["deepnote", "ircot"]), SAMPLES)


def test_each_answer_ends_by_the_first_thing_that_went_wrong() -> None:
    answers = chain_answers([RUN], KNOWN)
    assert dict(zip(answers["question_id"], answers["outcome"], strict=True)) == dict(
        zip("abcdefg", (*OUTCOMES[:4], *OUTCOMES[4:]), strict=True)
    )


def test_what_the_answer_was_made_from_is_the_last_note_kept_or_all_passages() -> None:
    answers = chain_answers([RUN], KNOWN)
    found = {name: row_of(answers, question_id=name) for name in "efg"}
    assert {name: (row["held"], row["tokens"], row["evidence"]) for name, row in found.items()} == {
        "e": (0, 1, 0),
        "f": (2, 12, 12),
        "g": (2, 12, 12),
    }
    shares = fact_shares(answers, resamples=200)
    assert shares[["method", "n"]].values.tolist() == [["DeepNote", 6], ["IRCoT", 1]]
    assert shares["facts held (%)"].str.split().str[0].tolist() == ["16.7", "100.0"]  # 2 of 12 facts
    blank = answers.assign(tokens=answers["tokens"].where(answers["question_id"] != "f", 0))
    assert fact_shares(blank, resamples=200)["n"].tolist() == [6, 1]  # a blank note is one that holds nothing
    nothing = answers.assign(tokens=answers["tokens"].where(answers["method"] != "ircot", 0))
    assert fact_shares(nothing, resamples=200)["method"].tolist() == ["DeepNote"]


def test_a_compressed_summary_is_what_the_answer_was_made_from() -> None:
    made = [
        sample("a", FIRST, SECOND, Decision("summary", BORN.sentence), method="recomp"),
        sample("b", FIRST, SECOND, Decision("summary", BOTH), method="recomp"),
    ]
    answers = chain_answers([Run(make_info("world", ["recomp"]), made)], KNOWN)
    assert answers["outcome"].tolist() == ["fact dropped from the note", "answer wrong although the note has it"]
    assert answers["held"].tolist() == [1, 2]


def test_outcomes_are_counted_for_each_method_the_best_first() -> None:
    table = outcomes(chain_answers([RUN], KNOWN))
    assert table.groupby("method", sort=False)["questions"].sum().to_dict() == {"deepnote": 6, "ircot": 1}
    assert table.groupby("method")["share"].sum().tolist() == pytest.approx([1, 1])
    better = [sample("a", FIRST, right=True, method="vanilla"), sample("b", FIRST, right=True, method="vanilla")]
    both = chain_answers([Run(make_info("world", ["deepnote", "vanilla"]), [*SAMPLES[:6], *better])], KNOWN)
    assert list(dict.fromkeys(outcomes(both)["method"])) == ["vanilla", "deepnote"]


def test_the_judge_is_set_against_the_truth() -> None:
    (row,) = judged([RUN], KNOWN, resamples=200).to_dict("records")
    assert (row["method"], row["questions"], row["verdicts"]) == ("DeepNote", 2, 2)
    assert (row["said True"], row["truly better"], row["rightly True"], row["rightly False"]) == (2, 1, 1, 0)
    assert row["agreement (%)"].startswith("50.0")


def test_the_figure_has_a_bar_for_each_method_that_reaches_all(tmp_path: Path) -> None:
    table = outcomes(chain_answers([RUN], KNOWN))
    figure = chain_figure(table)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["DeepNote", "IRCoT"]
    boxes = [bar.get_extents().transformed(axes.transData.inverted()) for bar in axes.patches]
    ends = {round(box.y0 + box.height / 2): box.x1 for box in boxes}
    assert ends == pytest.approx({0: 100, 1: 100})
    assert all(path.stat().st_size for path in save_figure(figure, table, tmp_path, "chain"))


def test_the_facts_are_those_of_the_world_that_was_asked() -> None:
    assert list(chains(load_study("chain_of_facts"))) == ["world"]
    assert len(chains(load_study("chain_of_facts"))["world"]) == 300


def test_the_figure_in_the_pages_is_that_of_the_recordings(tmp_path: Path) -> None:
    options = [f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}"]
    asyncio.run(chain_of_facts.run(options, progress=False)).figure()
    (made,) = (tmp_path / "figures").glob("*.png")
    assert made.read_bytes() == (SHIPPED / "docs" / "img" / "chain_of_facts.png").read_bytes(), (
        "docs/img/chain_of_facts.png has drifted: rag-notes reproduce study=chain_of_facts, then copy its figure there"
    )


def test_other_data_are_refused() -> None:
    with pytest.raises(ConfigError, match="dataset=mini: the study chain_of_facts is made of world alone"):
        asyncio.run(chain_of_facts.run(["dataset=mini"]))
