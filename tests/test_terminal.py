"""Texts of others reach a terminal as letters, a figure as they are and a spreadsheet as no formula."""

import csv
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from rag_notes.report.csv_file import write_csv
from rag_notes.report.curves import curve_figure
from rag_notes.running.run_files import write_info, write_samples

from rag_notes.cli import main
from rag_notes.events import Event
from rag_notes.report.figures import main_figure, save_figure
from rag_notes.report.tables import results
from rag_notes.terminal import PROGRESS_LINE, progress_bar, say, visible
from tests.made import ask, make_info, make_run, make_sample, search

STEERING = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202egnihton\u202c \r over \ud83d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 中文, é\n\ttabs and lines stay", "plain, 中文, é\n\ttabs and lines stay"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb\r\nc", "a\\rb\nc"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert visible(text) == shown
    say(text, 3)
    assert capsys.readouterr().out == f"{shown} 3\n"


def test_a_run_full_of_steering_texts_is_listed_and_shown_without_obeying_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = STEERING.replace("\ud83d", "")  # which no file can hold
    trace: list[Event] = [search(evil, evil, evil), ask("answer_short", evil, evil)]
    samples = [
        make_sample("vanilla", "q", {"em": 0.0}, question=evil, answer=evil, gold=[evil], trace=trace),
        make_sample("vanilla", "r", {}, error=evil),
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    write_info(folder, make_info("made", ["vanilla"], status=f"stopped: {evil}"))
    write_samples(folder / "samples.jsonl", samples)
    for arguments in (
        ["runs", str(tmp_path)],
        ["show", str(folder), "vanilla", "q"],
        ["show", str(folder), "vanilla", "q", "--call", "1"],
        ["show", str(folder), "vanilla", "r"],
    ):
        assert main(arguments) == 0
        out = "".join(capsys.readouterr())
        assert r"\x1b[2J" in out
        assert not set("\x1b\x9b\r\u202e") & set(out)
    assert main(["show", str(folder), evil, "q"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and "$" in text.get_text()]


def test_a_dollar_sign_in_a_name_is_drawn_as_one(tmp_path: Path) -> None:
    broken = r"under $\frac{ a$ dollar"  # as mathematics it could not be drawn at all
    run = make_run(broken, {broken: {"em": [1.0, 0.0, 1.0]}, "$x_1$": {"em": [1.0, 1.0, 1.0]}})
    table = results([run], baseline=broken, resamples=50)
    paper = pd.DataFrame([{"dataset": broken, "method": "$x_1$", "metric": "em", "theirs": 50.0}])
    with_paper = main_figure(table, paper=paper.assign(paper="$a$", model=broken))
    curve = curve_figure(table.assign(family=table["method"], x=1.0), "x", broken)
    for number, figure in enumerate((main_figure(table), with_paper, curve)):
        save_figure(figure, table, tmp_path, f"figure{number}")
        assert texts(figure)
        assert not any(text.get_parse_math() for text in texts(figure))
    assert mpl.rcParams["text.parse_math"] is True  # of other people's figures nothing is changed


def test_no_cell_of_a_csv_file_is_a_formula_and_numbers_stay(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "=name": ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "plain", None],
            "text": ["-1.5", "+2", "-", "a=b", "–", "-1.5 [-2, 3]", ""],
            "number": [-1.5, 2.0, 1 / 3, float("nan"), -1e-9, 0.0, 1.0],
            "count": pd.array([1, -2, None, 4, 5, 6, 7], dtype="Int64"),
        }
    )
    rows = list(csv.reader(write_csv(frame, tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["'=name", "text", "number", "count"]
    columns = [list(column) for column in zip(*rows[1:], strict=True)]
    assert columns[0] == ["'=1+1", "'+x", "'-x", "'@SUM(A1)", "'\tx", "plain", ""]
    assert columns[1] == ["-1.5", "+2", "'-", "a=b", "–", "'-1.5 [-2, 3]", ""]
    assert columns[2] == ["-1.5", "2", "0.333333", "", "-1e-09", "0", "1"]
    assert columns[3] == ["1", "-2", "", "4", "5", "6", "7"]


def test_progress_without_a_terminal_is_plain_lines_that_a_page_can_leave_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for interval in (0.0, 3600.0):
        with progress_bar("cost · mini", 3, initial=1, unit="answer", interval=interval) as bar:
            bar.set_postfix_str("2 calls", refresh=False)
            bar.update(2)
        told = capsys.readouterr().err
        assert "\r" not in told and PROGRESS_LINE.sub("", told) == ""
        assert ("cost · mini: 3 of 3 answers" in told and "2 calls" in told) == (interval == 0)
