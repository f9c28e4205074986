"""A report of more answers than a page should hold."""

from pathlib import Path
from typing import Any

import pytest

from rag_notes.report.site import write_report
from tests.made import make_run
from tests.pages import browse, check_links, needs_chromium, read
from tests.test_site import questions, status


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of more questions than the index lists by itself: q0 to q249, every third answered right."""
    scores: dict[str, Any] = {"vanilla": {"acc": [float(i % 3 == 0) for i in range(250)]}}
    return write_report({"long": make_run("toy", scores)}, tmp_path_factory.mktemp("long") / "out").parent


def test_the_index_of_a_long_report_stays_small(long: Path) -> None:
    page = read(long / "index.html")
    assert questions(page) == [f"q{i}" for i in range(100)]
    assert "ends after the first 100 questions" in page.text("noscript")[0]
    assert len(list(long.glob("runs/*/*.html"))) == 250 and check_links(long) > 500


@needs_chromium
def test_the_browser_reaches_every_answer_of_a_long_report(long: Path, tmp_path: Path) -> None:
    found = browse(long / "index.html", "#correctness=right", tmp_path)
    assert found.console == [] and status(found) == "84 of 250 answers, 84 of 250 questions"
    assert questions(found.page) == [f"q{i}" for i in range(0, 250, 3)]
    assert "hidden" in found.page.all("button", id="more")[0].attributes
    everything = browse(long / "index.html", "", tmp_path)
    assert len(questions(everything.page)) == 100  # and a button for the next
    assert "hidden" not in everything.page.all("button", id="more")[0].attributes
    assert questions(browse(long / "index.html", "#q=q249", tmp_path).page) == ["q249"]
