"""Traces as a notebook and a terminal show them."""

from typing import Any
from xml.etree import ElementTree

import pytest

from rag_notes.events import Ask, Decision, Event, Note, ParseFailure, Stop
from rag_notes.report.trace import Trace, compare_notes, show_trace
from rag_notes.running.records import Run
from rag_notes.running.samples import Sample
from rag_notes.types import InputError
from tests.made import ask, make_info, make_sample, search

EVIL = '<script>alert("x")</script>'
NOTE, YEAR, CITY = "Ana made it. The year is open.", "Ana made it. It was 1994.", "Ana made it. The year is open. Rome."


@pytest.fixture
def sample() -> Sample:
    trace: list[Event] = [
        search(f"who? {EVIL}", f"Title {EVIL}", f"Passage {EVIL}", f"id {EVIL}"),
        ask("note_init", NOTE, f"prompt {EVIL}"),
        Note(NOTE, kept=True),
        ask("note_query", f"When? {EVIL}", f"prompt {EVIL}"),
        ask("note_judge", "perhaps", f"prompt {EVIL}"),
        ParseFailure("note_judge"),
        Note(YEAR, kept=False),
        search("Where?", "", "In Rome.", "id of Rome"),
        ask("note_update", f"{CITY} {EVIL}", f"prompt {EVIL}", "length"),
        Note(f"{CITY} {EVIL}", kept=True),
        Stop("max_step"),
        ask("answer_short", f"Rome {EVIL}", f"prompt {EVIL}"),
    ]
    metrics = {"em": 0.0, "f1": 0.4, "acc": 1.0, "empty": 0.0}
    texts: dict[str, Any] = {"question": f"Where? {EVIL}", "answer": f"Rome {EVIL}"}
    return make_sample("deepnote", "q1", metrics, gold=[f"Rome {EVIL}", "Roma"], trace=trace, **texts)


def test_a_trace_as_html_is_whole_and_escaped(sample: Sample) -> None:
    page = Trace(sample)._repr_html_()
    tags = {element.tag for element in ElementTree.fromstring(f"<div>{page}</div>").iter()}
    assert "details" in tags and "script" not in tags and EVIL not in page
    headings = [f"<h4>{heading}</h4>" for heading in ("Initial note", "Step 1", "Step 2", "Answer")]
    texts = ["✓ kept", "✗ rejected", "✗ em", "f1 0.40", "✓ acc", "could not be read", "cut at the token limit"]
    assert [text for text in headings + texts if text not in page] == []
    # Step 1 was rejected: step 2 is compared with the initial note.
    assert "<del>The year is open.</del>\n<ins>It was 1994.</ins>" in page
    assert "<span>The year is open.</span>\n<ins>Rome.</ins>" in page


def test_a_trace_as_text(sample: Sample) -> None:
    lines = repr(Trace(sample)).splitlines()
    assert lines[1].startswith("gold      Rome") and "[✗ em  f1 0.40  ✓ acc]" in lines[2]
    assert lines.index("Step 1") < lines.index("  note  [✗ rejected]") < lines.index("Step 2")
    for line in ("    - The year is open.", "    + It was 1994.", "    + Rome.", "  stopped  [max_step]"):
        assert lines.count(line) == 1
    assert "    → id of Rome" in lines  # a passage without a title goes by its id


def test_a_trace_of_a_failed_question() -> None:
    trace: list[Event] = [Ask("direct_short", "p"), Decision("the <b>next</b> step", "none")]
    failed = make_sample("no_retrieval", "q1", {}, answer="", error="stage direct_short: <timeout>", trace=trace)
    page = Trace(failed)._repr_html_()
    assert "✗ stage direct_short: &lt;timeout&gt;" in page and "no response" in page and "<h4>Steps</h4>" in page
    assert "decided the &lt;b&gt;next&lt;/b&gt; step" in page
    assert "error     stage direct_short: <timeout>" in repr(Trace(failed))


def test_traces_are_chosen_by_method_and_question(sample: Sample) -> None:
    run = Run(make_info("toy", ["deepnote", "vanilla"]), [sample, make_sample("vanilla", "q1", {"acc": 1.0})])
    assert show_trace(run, "deepnote", "q1").sample is sample
    picker = show_trace(run, question_id="q1")
    picker.update()
    assert picker.result.sample is sample
    picker.children[0].value = "vanilla"
    assert picker.result.sample.method == "vanilla"
    with pytest.raises(InputError, match="no method 'amber' in this run, which has deepnote"):
        show_trace(run, "amber", "q1")
    with pytest.raises(InputError, match="no question 'q9' in this run, which has q1"):
        show_trace(run, "deepnote", "q9")
    with pytest.raises(InputError, match="a published run has no traces"):
        show_trace(Run(make_info("toy", ["deepnote"], published=True), [sample]), "deepnote", "q1")


@pytest.mark.parametrize(
    ("best", "note", "pieces"),
    [
        ("", "A. B.", [("added", "A."), ("added", "B.")]),
        ("A.\n- b\n- c", "A.\n- c", [("same", "A."), ("dropped", "- b"), ("same", "- c")]),
        ("甲。乙。", "甲。丙。", [("same", "甲。"), ("dropped", "乙。"), ("added", "丙。")]),
        ("A.", "", [("dropped", "A.")]),
    ],
)
def test_notes_are_compared_sentence_by_sentence(best: str, note: str, pieces: list[tuple[str, str]]) -> None:
    assert compare_notes(best, note) == pieces
