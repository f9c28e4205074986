from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rag_notes.events import Ask, Decision, Event, Note, ParseFailure, Stop
from rag_notes.report.trace import Trace, compare_notes, render_trace, show_trace
from rag_notes.running.records import Run, Sample
from tests.made import ask, make_info, make_sample, search

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def sample() -> Sample:
    trace: list[Event] = [
        search(f"who? {EVIL}", f"Title {EVIL}", f"Passage {EVIL}", "id of " + f"Title {EVIL}"),
        ask("note_init", "Ana made it. The year is open.", f"prompt of note_init {EVIL}"),
        Note("Ana made it. The year is open.", kept=True),
        ask("note_query", "When?", f"prompt of note_query {EVIL}"),
        search("When?", "Second", "In 1994.", "id of " + "Second"),
        ask("note_update", "Ana made it. It was 1994.", f"prompt of note_update {EVIL}"),
        ask("note_judge", f"perhaps {EVIL}", f"prompt of note_judge {EVIL}"),
        ParseFailure("note_judge"),
        Note("Ana made it. It was 1994.", kept=False),
        ask("note_query", "Where?", f"prompt of note_query {EVIL}"),
        search("Where?", "", "In Rome.", "id of " + ""),
        ask("note_update", f"Ana made it. The year is open. Rome. {EVIL}", f"prompt of note_update {EVIL}", "length"),
        ask("note_judge", '{"status": "True"}', f"prompt of note_judge {EVIL}"),
        Note(f"Ana made it. The year is open. Rome. {EVIL}", kept=True),
        Stop("max_step"),
        ask("answer_short", f"Rome {EVIL}", f"prompt of answer_short {EVIL}"),
    ]
    return make_sample(
        "deepnote",
        "q1",
        {"em": 0.0, "f1": 0.4, "acc": 1.0, "empty": 0.0},
        question=f"Where? {EVIL}",
        gold=[f"Rome {EVIL}", "Roma"],
        answer=f"Rome {EVIL}",
        trace=trace,
    )


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not the open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_trace_escapes_everything(sample: Sample) -> None:
    page = render_trace(sample)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == [] and "script" not in parser.seen
    escaped = page.count("&lt;script&gt;")
    # question, gold, answer; query, title, text; 8 prompts; the judge's and the answer's response folded and unfolded;
    # the last update's response and note; the title once more in the fold's summary
    assert escaped == 3 + 3 + 9 + 4 + 2 + 1


def test_trace_as_html(sample: Sample) -> None:
    page = Trace(sample)._repr_html_()
    assert page == render_trace(sample)
    for heading in ("Initial note", "Step 1", "Step 2", "Answer"):
        assert f"<h4>{heading}</h4>" in page
    assert page.count("✓ kept") == 2 and page.count("✗ rejected") == 1
    assert "✗ em" in page and "f1 0.40" in page and "✓ acc" in page
    assert "the response of note_judge could not be read" in page and "cut at the token limit" in page
    assert "max_step" in page
    # Step 1 was rejected: step 2 is compared with the initial note.
    assert "<del>The year is open.</del>\n<ins>It was 1994.</ins>" in page
    assert "The year is open.\n<ins>Rome.</ins>" in page


def test_trace_as_text(sample: Sample) -> None:
    lines = repr(Trace(sample)).splitlines()
    assert lines[1].startswith("gold      Rome") and "[✗ em  f1 0.40  ✓ acc]" in lines[2]
    assert lines.index("Step 1") < lines.index("  note rejected") < lines.index("Step 2")
    for line in ("    - The year is open.", "    + It was 1994.", "    + Rome.", "  stopped: max_step"):
        assert lines.count(line) == 1
    assert "    → id of " in lines  # a passage without a title goes by its id


def test_trace_of_a_failed_question() -> None:
    trace = [Ask("direct_short", "p")]
    failed = make_sample("no_retrieval", "q1", {}, answer="", error="stage direct_short: <timeout>", trace=trace)
    page = render_trace(failed)
    assert "✗ stage direct_short: &lt;timeout&gt;" in page and "no response" in page and "<h4>Steps</h4>" in page
    assert "error     stage direct_short: <timeout>" in repr(Trace(failed))
    decided = replace(failed, trace=[Decision("the <b>next</b> step", f"none {EVIL}")])
    assert "Decided the &lt;b&gt;next&lt;/b&gt; step" in render_trace(decided) and "<script>" not in render_trace(
        decided
    )
    assert "decided the <b>next</b> step: none <script>" in repr(Trace(decided))


def test_show_trace(sample: Sample) -> None:
    run = Run(make_info("toy", ["deepnote"]), [sample])
    assert show_trace(run, "deepnote", "q1").sample is sample
    assert show_trace(sample).sample is sample
    with pytest.raises(KeyError, match="no sample of 'deepnote' on 'q9'"):
        show_trace(run, "deepnote", "q9")


@pytest.mark.parametrize(
    ("best", "note", "pieces"),
    [
        ("", "A. B.", [("added", "A."), ("added", "B.")]),
        ("A. B.", "A. B.", [("same", "A."), ("same", "B.")]),
        ("A.\n- b\n- c", "A.\n- c", [("same", "A."), ("dropped", "- b"), ("same", "- c")]),
        ("甲。乙。", "甲。丙。", [("same", "甲。"), ("dropped", "乙。"), ("added", "丙。")]),
        ("A.", "", [("dropped", "A.")]),
    ],
)
def test_compare_notes(best: str, note: str, pieces: list[tuple[str, str]]) -> None:
    assert compare_notes(best, note) == pieces
