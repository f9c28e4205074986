"""The report of runs: what its pages hold, that nothing in them runs, and how they behave in a browser."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rag_notes.events import Counts, Event
from rag_notes.report import site
from rag_notes.report.page import places
from rag_notes.report.site import trace_links, write_report
from rag_notes.running.correctness import correctness
from rag_notes.running.records import RecordError, Run, Sample, SampleError
from tests.made import ask, make_info, make_sample, search
from tests.pages import (
    EVIL,
    Opened,
    Page,
    browse,
    check_links,
    check_nothing_runs,
    evil_run,
    needs_chromium,
    read,
    short,
)

METHODS = ["no_retrieval", "vanilla", "deepnote"]


def toy_run(**info: Any) -> Run:
    """Three methods on four questions; what each answered and retrieved is written out here."""
    answers = {  # question: gold, then acc by method
        "river-1": ("Which river flows through Rouen?", "Seine", (0, 1, 1)),
        "city-1": ("Where was Géricault born?", "Rouen", (0, 0, 1)),
        "city-2": ("Where did Bizet die?", "Bougival", (0, 0, 0)),
        "year-1": ("When was the Menai Suspension Bridge opened?", "1826", (1, 1, 1)),
    }
    samples: list[Sample] = []
    for i, method in enumerate(METHODS):
        for question_id, (question, gold, accs) in answers.items():
            trace: list[Event] = [ask("answer_short", gold if accs[i] else "Paris", f"PROMPTWORD {question}")]
            if method != "no_retrieval":
                trace.insert(0, search(question, f"About {gold}", f"The Seine valley: {gold}."))
            counts = Counts(searches=len(trace) - 1, calls=1, prompt_tokens=100 * i)
            fields: dict[str, Any] = {"question": question, "gold": [gold], "type": question_id[:-2], "trace": trace}
            answer = gold if accs[i] else "Paris"
            samples.append(short(method, question_id, accs[i], answer=answer, counts=counts, **fields))
    failed = SampleError("LLMError", "no answer")
    samples[1] = replace(samples[1], error=failed, metrics={}, answer="")  # no_retrieval on city-1
    samples[10] = replace(samples[10], counts=replace(samples[10].counts, truncated=1, prompt_tokens=5000))  # deepnote
    return Run(make_info("toy", METHODS, **({"llm": {"model": "tiny"}} | info)), samples)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report({"toy-tiny": toy_run()}, tmp_path_factory.mktemp("report") / "out").parent


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {f"run {EVIL}": evil_run(), "second": evil_run()}
    return write_report(runs, tmp_path_factory.mktemp("evil") / "out").parent


def answers(page: Page) -> list[tuple[str, str]]:
    """Method and correctness of every answer that is listed and not hidden, in the order of the page."""
    return [
        (row.attributes["data-method"], row.attributes["data-correctness"])
        for row in page.all("li")
        if "data-method" in row.attributes and "hidden" not in row.attributes
    ]


def questions(page: Page) -> list[str]:
    """The ids of the questions that are not hidden, in the order of the page."""
    return [
        re.sub(r" · .*", "", "".join(element.text).strip().splitlines()[0])
        for element in page.all("article")
        if "hidden" not in element.attributes
    ]


def test_every_link_leads_somewhere(report: Path, evil: Path) -> None:
    assert check_links(report) > 4 * 3 * 2
    assert check_links(evil) > 2 * 4 * 2 * 2


def test_the_index_has_the_results_and_every_answer(report: Path) -> None:
    page = read(report / "index.html")
    (table,) = page.text("table", class_="results")
    # no_retrieval answered 1 of 3 (one failed), vanilla 2 of 4, deepnote 3 of 4, by EM, F1, Acc. and their average
    assert [table.count(mean) for mean in ("33.3", "50.0", "75.0")] == [4, 4, 4]
    assert "EMn = 4" in table and "33.3[6.1, 79.2] n = 3" in table
    assert Counter(answers(page)) == {
        ("no_retrieval", "right"): 1,
        ("no_retrieval", "wrong"): 2,
        ("no_retrieval", "error"): 1,
        ("vanilla", "right"): 2,
        ("vanilla", "wrong"): 2,
        ("deepnote", "right"): 3,
        ("deepnote", "wrong"): 1,
    }
    assert questions(page) == ["river-1", "city-1", "city-2", "year-1"]
    assert "(acc = 1)" in page.text("dl", class_="says")[0]
    (filters,) = page.all("form")
    assert "hidden" in filters.attributes  # without scripts there is a list, and no filter that does nothing
    assert not page.all("p", class_="warning")[1:]  # the one for readers without scripts


def test_counts_of_the_table_are_those_of_the_answers_and_link_to_them(report: Path) -> None:
    page = read(report / "index.html")
    links = {link.attributes["href"]: "".join(link.text) for link in page.all("a") if "aria-label" in link.attributes}
    place = json.loads((report / "report.json").read_text())["runs"][0]["place"]
    counted = {
        f"#run={place}&method={method}&correctness={quote(name)}": str(count)
        for (method, name), count in Counter((s.method, correctness(s)) for s in toy_run().samples).items()
    }
    assert links == counted


def test_a_page_of_a_question_has_the_traces_of_all_methods(report: Path) -> None:
    links = trace_links(report, "toy-tiny", toy_run())
    assert len(links) == 12
    path, _, anchor = links["deepnote", "city-1"].partition("#")
    page = read(report / path)
    assert page.text("h1") == ["Where was Géricault born?"]
    assert [each.attributes["id"] for each in page.all("section", class_="trace")] == [
        places(METHODS)[method] for method in METHODS
    ]
    (section,) = page.all("section", id=anchor)
    assert "The Seine valley: Rouen." in "".join(section.text) and "PROMPTWORD" in "".join(section.text)
    assert "no answer" in page.text("section", class_="trace")[0]
    assert [link.attributes["href"] for rel in ("prev", "next") for link in page.all("a", rel=rel)] == [
        "0001-river-1.html",
        "0003-city-2.html",
    ]


def test_all_text_is_text(evil: Path) -> None:
    pages = {path: read(path) for path in evil.rglob("*.html")}
    assert len(pages) == 1 + 2 * 4
    for path, page in pages.items():
        check_nothing_runs(page, scripts=1 + 2 if path.name == "index.html" else 0)
        (policy,) = [meta.attributes["content"] for meta in page.all("meta") if "http-equiv" in meta.attributes]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    index = "".join(pages[evil / "index.html"].all("html")[0].text)
    for text in ("model ", "run ", "Who? ", "answer ", "refused: ", "type ", "limit=", "../"):
        assert f"{text}{EVIL}" in index
    assert "toy <b>&\"'" in index and "deep <script>\"'{{" in index
    question = next(page for path, page in pages.items() if path.name.startswith("0001"))
    shown = "".join(question.all("html")[0].text)
    for text in ("query ", "title ", "passage ", "note ", "reason ", "stage ", "response ", "prompt ", "answer "):
        assert f"{text}{EVIL}" in shown


def test_names_of_files_are_tame(evil: Path) -> None:
    for path in evil.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", path.name), path


def test_the_texts_for_the_search_are_a_script_of_plain_ascii(report: Path, evil: Path) -> None:
    (path,) = report.glob("runs/*/text.js")
    place, strings, rows = json.loads(path.read_text("ascii").removeprefix("ragNotesText(...").removesuffix(");\n"))
    assert place == path.parent.name and len(rows) == 12
    assert len(set(strings)) == len(strings)
    # The answers of city-1 come fourth to sixth; vanilla searched, no prompt is kept.
    assert {strings[i] for i in rows[4]} == {
        *("Where was Géricault born?", "About Rouen", "The Seine valley: Rouen.", "answer_short", "Paris"),
    }
    assert not any("PROMPTWORD" in text for text in strings)
    for each in evil.glob("runs/*/text.js"):
        raw = each.read_bytes()
        assert b"<" not in raw and raw.isascii()


def test_the_same_runs_give_the_same_bytes(tmp_path: Path, report: Path) -> None:
    again = write_report({"toy-tiny": toy_run()}, tmp_path / "elsewhere" / "again").parent
    names = sorted(path.relative_to(report) for path in report.rglob("*"))
    assert names == sorted(path.relative_to(again) for path in again.rglob("*"))
    for name in names:
        assert (report / name).is_dir() or (report / name).read_bytes() == (again / name).read_bytes(), name


def test_a_report_is_replaced_and_what_lies_beside_it_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = toy_run()
    write_report({"a": run, "b": run}, out)
    (out / "comparison.html").write_text("mine", encoding="utf-8")
    fewer = Run(run.info, [sample for sample in run.samples if sample.question.id != "year-1"])
    write_report({"a": fewer}, out)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["comparison.html", "index.html", "report.json", "runs", "script.js", "style.css"]
    )
    assert [path.name for path in (out / "runs").iterdir()] == ["1-a"]
    assert not list((out / "runs" / "1-a").glob("*year-1*"))
    assert check_links_beside(out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def check_links_beside(out: Path) -> bool:
    (out / "comparison.html").unlink()
    return check_links(out) > 0


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run = toy_run()
    write_report({"a": run}, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def full(_: Path, text: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(site, "write_atomically", full)
    with pytest.raises(OSError, match="no space left"):
        write_report({"b": run}, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RecordError, match=r"run: holds something else than a report; name another folder"):
        write_report({"a": toy_run()}, tmp_path / "run")
    with pytest.raises(RecordError, match=r"run\.json: is a file; a report is a folder"):
        write_report({"a": toy_run()}, tmp_path / "run" / "run.json")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


def test_bad_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="empty: the run has no samples yet"):
        write_report({"empty": Run(toy_run().info)}, tmp_path / "out")
    with pytest.raises(ValueError, match="baseline 'react' is not in the run of 'toy'"):
        write_report({"a": toy_run()}, tmp_path / "out", baseline="react")
    assert not list(tmp_path.iterdir())


def test_a_run_without_scores_or_end_says_so(tmp_path: Path) -> None:
    run = toy_run(status="stopped: spending limit <5>")
    unscored = Run(run.info, [make_sample("vanilla", "q", {"empty": 0.0})])
    page = read(write_report({"a": unscored}, tmp_path / "out"))
    assert "not finished: stopped: spending limit <5>" in page.text("p", class_="warning")[0]
    assert any("No figure" in text for text in page.text("p"))
    assert answers(page) == [("vanilla", "unscored")]


def test_links_are_of_a_report_of_the_run_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = toy_run()
    with pytest.raises(RecordError, match=r"out: no report here; make one of it with `rag-notes report RUN"):
        trace_links(out, "a", run)
    write_report({"a": run, "b": run}, out)
    assert trace_links(out, "b", run)["vanilla", "city-2"] == "runs/2-b/0003-city-2.html#2-vanilla"
    with pytest.raises(RecordError, match="a report of a, b, not of c"):
        trace_links(out, "c", run)
    other = Run(run.info, [replace(run.samples[0], answer="another"), *run.samples[1:]])
    with pytest.raises(RecordError, match="its report of a is of another state of that run"):
        trace_links(out, "a", other)
    (out / "report.json").write_text('{"runs": 3}', encoding="utf-8")
    with pytest.raises(RecordError, match="not the list of a report's runs"):
        trace_links(out, "a", run)


@pytest.fixture
def opened(report: Path, tmp_path: Path) -> Any:
    def open_index(fragment: str) -> Opened:
        found = browse(report / "index.html", fragment, tmp_path)
        assert found.console == []
        return found

    return open_index


def status(found: Opened) -> str:
    (element,) = found.page.all("p", id="shown")
    return "".join(element.text)


@needs_chromium
def test_the_browser_shows_all_answers_and_their_counts(opened: Any) -> None:
    found = opened("")
    assert status(found) == "12 of 12 answers, 4 of 4 questions"
    assert "hidden" not in found.page.all("form")[0].attributes
    counts = {
        re.sub(r"\s+", " ", "".join(label.text)).strip()
        for label in found.page.all("label", class_="choice")
        if label.text
    }
    assert {
        "✓ right 6",
        "✗ wrong 5",
        "? parse failure 0",
        "⚠ error 1",
        "Vanilla RAG 4",
        "a response was cut 1",
    } <= counts


@needs_chromium
@pytest.mark.parametrize(
    ("fragment", "expected", "shown"),
    [
        ("#correctness=wrong&method=deepnote", [("deepnote", "wrong")], ["city-2"]),
        (
            "#correctness=error&correctness=right&method=no_retrieval",
            [("no_retrieval", "error"), ("no_retrieval", "right")],
            ["city-1", "year-1"],
        ),
        ("#flag=truncated", [("deepnote", "wrong")], ["city-2"]),
        ("#q=gericault&method=vanilla", [("vanilla", "wrong")], ["city-1"]),  # without its accent
        ("#q=%22did+bizet%22+PARIS&method=vanilla", [("vanilla", "wrong")], ["city-2"]),  # a phrase and a word
        ("#q=%22die+bizet%22", [], []),  # a phrase, and the words stand the other way round
        ("#q=valley", [], []),  # in passages only
        ("#q=valley+bizet&in=steps", [("vanilla", "wrong"), ("deepnote", "wrong")], ["city-2"]),
        ("#q=promptword&in=steps", [], []),
    ],
)
def test_the_browser_filters(opened: Any, fragment: str, expected: list[tuple[str, str]], shown: list[str]) -> None:
    found = opened(fragment)
    assert answers(found.page) == expected
    assert questions(found.page) == shown
    assert status(found).startswith(f"{len(expected)} of 12 answers, ")


@needs_chromium
def test_a_choice_counts_what_it_would_show(opened: Any) -> None:
    found = opened("#correctness=wrong&method=vanilla")
    labels = ["".join(label.text).split() for label in found.page.all("label", class_="choice")]
    by_name = {words[-2]: words[-1] for words in labels if words[-1].isdigit()}
    # Other methods as they would add to the wrong answers of vanilla, other answers of vanilla alone.
    assert (by_name["retrieval"], by_name["RAG"], by_name["DeepNote"]) == ("2", "2", "1")
    assert (by_name["right"], by_name["wrong"], by_name["error"]) == ("2", "2", "0")


@needs_chromium
@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("hardest", ["city-2", "city-1", "river-1", "year-1"]),
        ("tokens", ["city-2", "river-1", "city-1", "year-1"]),
    ],
)
def test_the_browser_sorts(opened: Any, sort: str, expected: list[str]) -> None:
    assert questions(opened(f"#sort={sort}").page) == expected


@needs_chromium
def test_a_link_to_what_is_not_there_says_so(opened: Any) -> None:
    found = opened("#method=react&method=vanilla&correctness=wrong&sort=nonsense")
    assert status(found) == "2 of 12 answers, 2 of 4 questions. Not in this report: method react"
    assert questions(found.page) == ["city-1", "city-2"]


@needs_chromium
def test_evil_text_does_nothing_in_the_browser(evil: Path, tmp_path: Path) -> None:
    index = browse(evil / "index.html", f"#q={quote(EVIL)}&in=steps&method=%3Cimg+src%3Dx%3E&correctness=", tmp_path)
    assert index.console == []
    check_nothing_runs(index.page, scripts=1 + 2 + 2)  # its own, and the answers and texts of both runs
    assert index.page.text("title")[0] == f"toy <b>&\"' · model {EVIL}"
    assert status(index).endswith("Not in this report: correctness , method <img src=x>")
    page = next(evil.glob("runs/1-*/0001*.html"))
    question = browse(page, "#1-plain", tmp_path)
    assert question.console == []
    check_nothing_runs(question.page)
    assert question.page.text("h1") == [f"Who? {EVIL}"]


@needs_chromium
def test_evil_text_is_found(evil: Path, tmp_path: Path) -> None:
    query = quote(f'"passage {EVIL.split(chr(34), maxsplit=1)[0]}"')
    found = browse(evil / "index.html", f"#q={query}&in=steps", tmp_path)
    # Of two runs, both methods on the two questions for which they searched.
    assert len(answers(found.page)) == 2 * 2 * 2 and found.console == []
    assert {text[:8] for text in found.page.text("p", class_="found")} == {"passage "}
    assert all("<img src=x" in text for text in found.page.text("p", class_="found"))
