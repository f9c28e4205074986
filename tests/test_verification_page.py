"""The pages of the verification, its command, and the summary among the results."""

import asyncio
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from rag_notes.cli import main
from rag_notes.files import SHIPPED
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.page import (
    MARKERS,
    shown_claims,
    summary,
    verify,
    write_summary,
    write_verification,
)
from rag_notes.running.records import RecordError
from rag_notes.running.run_files import run_folders
from rag_notes.studies.verification import run
from tests.claims import changed, own, save, two
from tests.pages import EVIL, check_nothing_runs, read

RECORDING = SHIPPED / "data" / "recordings" / "mini.jsonl.xz"


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    runs = {**own(), "hotpotqa-tiny": two([1] * 9, [0] * 8 + [None], model="tiny")["a-run"]}
    return [save(run, tmp_path / "runs" / name) for name, run in runs.items()]


def test_the_page_has_every_claim_and_where_each_number_is_from(folders: list[Path], tmp_path: Path) -> None:
    assert run_folders(tmp_path / "runs") == sorted(folders)
    verification = verify(folders)
    html, text, claims, orders = write_verification(verification, tmp_path / "out")
    page = read(html)
    check_nothing_runs(page)
    captions = page.text("caption")
    assert captions[:2] == ["The papers' claims, on their data sets", "The papers' comparisons, tested on world"]
    assert captions[2] == "The runs"
    rows = ["".join(row) for row in page.text("tr")]
    (found,) = [
        row for row in rows if "hotpotqa-tiny @ c0ffeec0ffee" in row and "GPT-4o-mini" in row and "vanilla" in row
    ]
    for part in ("deepnote, section 5.1, Table 1", "+12.8 ± ", "tiny", "8 (1 failed)", "✓ agrees; other model", "bm25"):
        assert part in found
    unrun = sum(
        len(re.findall(r"<tr>", table))
        for table in re.findall(r"<details>.*?</details>", html.read_text("utf-8"), re.S)
    )
    assert unrun - 4 + len(shown_claims(verification.claims)) == len(paper_claims())  # a row of heads for each paper
    assert len(pd.read_csv(claims)) == len(paper_claims()) and set(pd.read_csv(orders)["our_model"]) == {"a", "b"}
    in_markdown = re.sub(r"\\(.)", r"\1", unescape(text.read_text("utf-8")))
    assert all(" ".join(cell.split()) in in_markdown for cell in set(page.text("td")))


def test_runs_left_aside_are_listed_apart(folders: list[Path], tmp_path: Path) -> None:
    failed = two([None] * 3, [None] * 3, model="misspelt")["a-run"]
    world = changed(failed, dataset=replace(failed.info.dataset, name="world"))
    folders = [*folders, save(world, tmp_path / "runs" / "world-misspelt")]
    verification = verify(folders)
    assert set(verification.orders["our_model"]) == {"a", "b"}
    why = "world-misspelt: 0 questions answered, 1 wanted; 6 answers failed"
    assert "HotpotQA with tiny (9 questions, 1 of 18 answers failed)" in summary(verification)
    assert f"Left aside: {why}." in summary(verification) and "with misspelt" not in summary(verification)
    page = read(write_verification(verification, tmp_path / "out")[0])
    (table,) = [text for text in page.text("table") if text.lstrip().startswith("Runs left aside")]
    assert "misspelt" in table and "6 answers failed" in table
    assert len(verify(folders, min_questions=10).runs) == 0


def test_the_same_runs_give_the_same_bytes(folders: list[Path], tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_verification(verify(folders), tmp_path / "one")]
    again = [path.read_bytes() for path in write_verification(verify(reversed(folders)), tmp_path / "two")]
    assert first == again


def test_nothing_that_a_run_says_is_markup(tmp_path: Path) -> None:
    run = changed(
        two([1, 0], [0, 0], model=f"model | {EVIL}")["a-run"],
        retriever={"name": f"__*{EVIL}*__"},
        status=f"[status](javascript:alert(1)) {EVIL}",
    )
    world = changed(own()["world-a"], llm={"model": f"# | {EVIL}"})
    folders = [save(run, tmp_path / "a run"), save(world, tmp_path / "<b>_mini_|`x`")]
    html, text, *_ = write_verification(verify(folders), tmp_path / "out")
    page = read(html)
    check_nothing_runs(page)
    assert not page.all("img")
    assert any("<script>document.title" in cell for cell in page.text("td"))
    lines = text.read_text("utf-8").splitlines()
    assert not [line for line in lines if "<script" in line or "<img" in line or re.search(r"(?<!\\)\]\(", line)]
    for i, line in enumerate(lines):  # the cells of a row are as many as the heads
        if set(line) == {"|", "-", " "}:
            table = [lines[i - 1], *(row for row in lines[i + 1 : i + 4] if row.startswith("|"))]
            assert {len(re.findall(r"(?<!\\)\|", row)) for row in table} == {line.count("|")}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run.json", "{", "Invalid JSON"),
        ("run.json", '{"dataset": {}}', "field dataset.name: Field required"),
        ("samples.jsonl", "half\n", "line 1: not a sample"),
    ],
)
def test_a_malformed_run_is_named(
    name: str, content: str, said: str, folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folders[0] / name).write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=said) as error:
        verify(folders)
    assert str(folders[0] / name) in str(error.value)
    assert main(["verify", *map(str, folders), "--out", str(tmp_path / "out")]) == 2
    assert str(folders[0] / name) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command(folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKERS[0]}\nold\n{MARKERS[1]}\nafter\n", encoding="utf-8")
    command = ["verify", *map(str, folders), "--out", str(tmp_path / "out"), "--readme", str(readme)]
    assert main(command) == 0
    text = summary(verify(folders)).strip()
    assert text in capsys.readouterr().out
    assert readme.read_text("utf-8") == f"before\n{MARKERS[0]}\n\n{text}\n\n{MARKERS[1]}\nafter\n"
    names = {"verification.html", "verification.md", "claims.csv", "orders.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert main(["verify", str(tmp_path / "nowhere")]) == 2
    assert "no such run" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["none", MARKERS[0], f"{MARKERS[1]}\n{MARKERS[0]}", "\n".join([*MARKERS, MARKERS[1]])])
def test_a_readme_without_its_markers_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"README\.md: needs the lines"):
        write_summary(path, "new")
    assert path.read_text("utf-8") == text


@pytest.mark.skipif(not RECORDING.exists(), reason=f"{RECORDING.relative_to(SHIPPED)} is not there")
def test_the_results_show_the_summary_of_the_recorded_and_published_runs(tmp_path: Path) -> None:
    verified = asyncio.run(run([f"runs={tmp_path}"], progress=False))
    assert {made.info.status for made in verified.runs} == {"finished"}
    shown = (SHIPPED / "docs" / "results.md").read_text("utf-8").split(MARKERS[0])[1].split(MARKERS[1])[0]
    assert shown.strip() == summary(verify(run_folders(tmp_path, published=True))).strip(), (
        "docs/results.md has drifted: in a fresh clone, rag-notes reproduce study=verification, then "
        "rag-notes verify --readme docs/results.md"
    )
