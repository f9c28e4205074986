"""Pages in Markdown whose blocks commands fill."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rag_notes import cli
from rag_notes.pages import renew

ROOT = Path(__file__).parents[1]
PAGE = """\
# A page

before <!-- rag-notes within a line --> stays

<!-- rag-notes say "two words" -->

old

<!-- end -->

between

<!-- rag-notes say first && rag-notes say second -->
<!-- end -->
after
"""


def say(arguments: Sequence[str]) -> int:
    """A command line that prints what it is given, after the name of its command; `fail` ends with code 2."""
    print("| said |\n| --- |\n|", *arguments[1:], "|")
    return 2 if arguments[0] == "fail" else 0


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_blocks_are_filled_and_the_rest_stays(page: Path) -> None:
    changed = renew(page, say)
    assert changed == ['rag-notes say "two words"', "rag-notes say first && rag-notes say second"]
    assert (
        page.read_text("utf-8")
        == """\
# A page

before <!-- rag-notes within a line --> stays

<!-- rag-notes say "two words" -->

| said |
| --- |
| two words |

<!-- end -->

between

<!-- rag-notes say first && rag-notes say second -->

| said |
| --- |
| second |

<!-- end -->
after
"""
    )


def test_a_page_that_is_up_to_date_is_not_written(page: Path) -> None:
    renew(page, say)
    before = page.stat().st_mtime_ns, page.stat().st_ino, page.read_bytes()
    assert renew(page, say) == []
    assert (page.stat().st_mtime_ns, page.stat().st_ino, page.read_bytes()) == before


def test_check_names_what_has_drifted_and_changes_nothing(page: Path) -> None:
    renew(page, say)
    drifted = page.read_text("utf-8").replace("| second |", "| typed by hand |")
    page.write_text(drifted, encoding="utf-8")
    assert renew(page, say, check=True) == ["rag-notes say first && rag-notes say second"]
    assert page.read_text("utf-8") == drifted


def test_the_commands_of_a_block_find_an_empty_folder_of_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_NOTES_RUNS", "mine")
    seen: list[Path] = []
    found: list[list[str]] = []

    def main(arguments: Sequence[str]) -> int:
        seen.append(Path(os.environ["RAG_NOTES_RUNS"]))
        found.append([path.name for path in seen[-1].iterdir()])
        (seen[-1] / "run").touch()
        return 0

    renew(page, main)
    assert seen[0] != seen[1] == seen[2] and not any(folder.exists() for folder in seen)
    assert found == [[], [], ["run"]]  # what a block's first command made, its next one finds
    assert os.environ["RAG_NOTES_RUNS"] == "mine"


def test_an_option_that_the_command_does_not_know_is_named_with_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- rag-notes table --no-such-option -->\nold\n<!-- end -->\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md: rag-notes table --no-such-option ended with code 2"):
        renew(page, cli.main)
    assert "old" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no block", "has no block; one begins with"),
        ("<!-- rag-notes say x -->\nno end\n", "has no block"),
        ("<!-- rag-notes fail x -->\n<!-- end -->\n", "rag-notes fail x ended with code 2"),
        ("<!-- rag-notes say x && fail y -->\n<!-- end -->\n", "'fail y' in a marker is no command of rag-notes"),
        ("<!-- rag-notes say x && -->\n<!-- end -->\n", "'' in a marker is no command of rag-notes"),
        ("<!-- rag-notes fail x && rag-notes say y -->\n<!-- end -->\n", "rag-notes fail x ended with code 2"),
    ],
)
def test_a_page_that_cannot_be_written_is_named_and_left(text: str, message: str, page: Path) -> None:
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as raised:
        renew(page, say)
    assert str(page) in str(raised.value)
    assert page.read_text("utf-8") == text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- rag-notes methods -->\nold\n<!-- end -->\n", encoding="utf-8")
    assert cli.main(["pages", "--check", str(page)]) == 1
    assert capsys.readouterr().out == f"{page}: would change: rag-notes methods\n"
    assert cli.main(["pages", str(page)]) == 0
    assert "| notes | `deepnote` | DeepNote |" in page.read_text("utf-8")
    assert capsys.readouterr().out == f"{page}: changed: rag-notes methods\n"
    assert cli.main(["pages", "--check", str(page)]) == 0
    page.write_text("nothing to fill", encoding="utf-8")
    assert cli.main(["pages", str(page)]) == 2
    assert "has no block" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/findings.md"])
def test_the_numbers_of_our_pages_are_what_their_commands_print(name: str) -> None:
    changed = renew(ROOT / name, cli.main, check=True)
    assert changed == [], f"{name} has drifted: rag-notes pages {name}"
