"""Pages as a parser and as a browser sees them, and a run full of text that would like to be markup."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from rag_notes.events import Counts, Note, Stop
from rag_notes.running.records import Run, Sample
from tests.made import ask, make_info, make_sample, search

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to open the pages with")

EVIL = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> "
    "\"double\" 'single' `tick` javascript:alert(1) {{ 7*7 }} {% raw %} ${x} }{ \u2028 \u2029 <!-- ]]> &amp; &lt;"
)
VOID = {"meta", "link", "br", "img", "input", "rect", "line", "circle"}


class Element(NamedTuple):
    """A tag with its attributes and the text within it."""

    tag: str
    attributes: dict[str, str]
    text: list[str]


class Page(HTMLParser):
    """A parsed page; fails where a tag is closed that is not the open one."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, [])
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """The elements of a tag with these attributes (`class_` and the like for reserved words: one of its words)."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [
            element
            for element in self.elements
            if element.tag == tag
            and all(value in element.attributes.get(name, "").split(" ") for name, value in wanted.items())
        ]

    def text(self, tag: str, **attributes: str) -> list[str]:
        """The text of the elements of a tag with these attributes."""
        return ["".join(element.text) for element in self.all(tag, **attributes)]


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def check_links(root: Path) -> int:
    """Every link of every page below `root` leads to a file below it, and to a place in it; returns their number."""
    pages = {path: read(path) for path in root.rglob("*.html")}
    count = 0
    for path, page in pages.items():
        for element in page.elements:
            for name in ("href", "src"):
                link = element.attributes.get(name)
                if link is None or "=" in urlsplit(link).fragment:
                    continue
                parts = urlsplit(link)
                assert not parts.scheme and not parts.netloc, link
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                assert target.is_relative_to(root.resolve()) and target.is_file(), link
                if parts.fragment:
                    ids = [each.attributes.get("id") for each in pages[target].elements]
                    assert ids.count(unquote(parts.fragment)) == 1, link
                count += 1
    return count


def check_nothing_runs(page: Page, scripts: int = 0) -> None:
    """No script but those that the page itself has, no handler, no link that is not one."""
    assert len(page.all("script")) == scripts
    for element in page.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), element
            if name in ("href", "src"):
                assert re.match(r"[\w./#]", value) and not urlsplit(value).scheme, element


class Opened(NamedTuple):
    """A page after its scripts ran: its elements and what the console said."""

    page: Page
    console: list[str]


def browse(path: Path, fragment: str, profile: Path) -> Opened:
    """Open a file in headless Chromium, with `profile` as the folder of its own."""
    assert CHROMIUM is not None
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=5000 --dump-dom"
    )
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={profile}", f"{path.as_uri()}{fragment}"]
    environment = os.environ | {"XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)}
    done = subprocess.run(command, capture_output=True, timeout=300, check=True, env=environment)
    console = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if ":CONSOLE:" in line]
    return Opened(Page(done.stdout.decode("utf-8")), console)


def short(method: str, question_id: str, acc: float, **fields: Any) -> Sample:
    """A sample of a short question that contains the gold answer, or does not."""
    metrics = {"em": acc, "f1": acc, "acc": acc, "empty": float(fields.get("answer") == "")}
    return make_sample(method, question_id, metrics, **fields)


def evil_run() -> Run:
    """Two methods on four questions, every text of them evil: right, wrong, unreadable and failed answers."""
    methods = ["plain", "deep <script>\"'{{"]
    ids = [f"../{EVIL}", "Q 2", "q-2", "問"]
    samples = []
    for method in methods:
        texts: dict[str, Any] = {"question": f"Who? {EVIL}", "gold": [EVIL, "b"], "type": f"type {EVIL}"}
        trace = [
            search(f"query {EVIL}", f"title {EVIL}", f"passage {EVIL}"),
            ask("note_init", f"note {EVIL}", f"prompt {EVIL}"),
            Note(f"note {EVIL}", kept=True),
            Stop(f"reason {EVIL}"),
            ask(f"stage {EVIL}", f"response {EVIL}"),
        ]
        counts = Counts(2, 2, 2, 2, 2, 2, 2, 2, 2)
        samples += [
            short(method, ids[0], 1.0, answer=f"answer {EVIL}", trace=trace, counts=counts, **texts),
            short(method, ids[1], 0.0, trace=trace, question="Géricault's birthplace?"),
            short(method, ids[2], 0.0, answer="", trace=[ask("answer_short", "")]),
            make_sample(method, ids[3], {}, answer="", error=f"refused: {EVIL}", question="誰？"),
        ]
    settings: dict[str, dict[str, Any]] = {method: {"top_k": 5} for method in methods}
    info = make_info("toy <b>&\"'", settings, llm={"model": f"model {EVIL}"}, overrides=[f"limit={EVIL}"])
    return Run(info, samples)
