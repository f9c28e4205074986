from html.parser import HTMLParser
from typing import Any

import pytest

from rag_notes.report import Trace, render_trace, show_trace
from rag_notes.report.trace import compare_notes
from rag_notes.running.records import Run, Sample
from tests.test_report import make_sample

EVIL = '<script>alert("x")</script>'


def ask(stage: str, response: str, finish_reason: str = "stop") -> dict[str, Any]:
    event = {"event": "ask", "stage": stage, "prompt": f"prompt of {stage} {EVIL}", "response": response}
    return event | {"finish_reason": finish_reason, "prompt_tokens": 7, "completion_tokens": 3, "key": "k"}


def search(query: str, title: str, text: str) -> dict[str, Any]:
    hit = {"id": f"id of {title}", "title": title, "text": text, "score": 1.5}
    return {"event": "search", "query": query, "top_k": 1, "hits": [hit]}


@pytest.fixture
def sample() -> Sample:
    trace = [
        search(f"who? {EVIL}", f"Title {EVIL}", f"Passage {EVIL}"),
        ask("note_init", "Ana made it. The year is open."),
        {"event": "note", "text": "Ana made it. The year is open.", "kept": True},
        ask("note_query", "When?"),
        search("When?", "Second", "In 1994."),
        ask("note_update", "Ana made it. It was 1994."),
        ask("note_judge", f"perhaps {EVIL}"),
        {"event": "unreadable", "stage": "note_judge"},
        {"event": "note", "text": "Ana made it. It was 1994.", "kept": False},
        ask("note_query", "Where?"),
        search("Where?", "", "In Rome."),
        ask("note_update", f"Ana made it. The year is open. Rome. {EVIL}", "length"),
        ask("note_judge", '{"status": "True"}'),
        {"event": "note", "text": f"Ana made it. The year is open. Rome. {EVIL}", "kept": True},
        {"event": "stop", "reason": "max_step"},
        ask("answer_short", f"Rome {EVIL}"),
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
    call = {"event": "ask", "stage": "direct_short", "prompt": "p"}
    failed = make_sample("no_retrieval", "q1", {}, answer="", error="stage direct_short: <timeout>", trace=[call])
    page = render_trace(failed)
    assert "✗ stage direct_short: &lt;timeout&gt;" in page and "no response" in page and "<h4>Steps</h4>" in page
    assert "error     stage direct_short: <timeout>" in repr(Trace(failed))
    with pytest.raises(ValueError, match="unknown event 'jump'"):
        render_trace(failed | {"trace": [{"event": "jump"}]})


def test_show_trace(sample: Sample) -> None:
    run = Run({"dataset": {"name": "toy"}, "settings": {"methods": {"deepnote": {}}}}, [sample])
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
