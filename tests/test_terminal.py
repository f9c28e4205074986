"""Texts of others reach a terminal as letters, and progress without a terminal is plain lines."""

from pathlib import Path

import pytest

from rag_notes.cli import main
from rag_notes.events import Event
from rag_notes.running.records import save_run
from rag_notes.running.samples import encode
from rag_notes.terminal import progress_bar, say, visible
from tests.made import ask, make_info, make_sample, search

STEERING = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202egnihton\u202c \r over"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("plain, 中文, é\n\ttabs and lines stay", "plain, 中文, é\n\ttabs and lines stay"),
        ("a\rb\r\nc", "a\\rb\nc"),
        ("\x00\x7f\x9b\x1b[2J", r"\x00\x7f\x9b\x1b[2J"),
        ("\u202eevil\u2066 half \ud83d", r"\u202eevil\u2066 half \ud83d"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, letters: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert visible(text) == letters
    say(text, 3)
    assert capsys.readouterr().out == f"{letters} 3\n"


def test_a_run_full_of_steering_texts_is_listed_and_shown_without_obeying_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace: list[Event] = [search(STEERING, STEERING, STEERING), ask("answer_short", STEERING, STEERING)]
    sample = make_sample("vanilla", "q", {"em": 0.0}, question=STEERING, answer=STEERING, gold=[STEERING], trace=trace)
    failed = make_sample("vanilla", "r", {}, error=STEERING)
    folder = tmp_path / "run"
    folder.mkdir()
    save_run(folder, make_info("made", ["vanilla"], status=f"stopped: {STEERING}"), map(encode, (sample, failed)))
    show = ["show", str(folder), "vanilla"]
    for arguments in (["runs", str(tmp_path)], [*show, "q"], [*show, "q", "--call", "1"], [*show, "r"]):
        assert main(arguments) == 0
        out = "".join(capsys.readouterr())
        assert r"\x1b[2J" in out and not set("\x1b\x9b\r\u202e") & set(out)
    assert main(["show", str(folder), STEERING, "q"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_progress_without_a_terminal_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for interval in (0.0, 3600.0):
        with progress_bar("cost · mini", 3, unit="answer", interval=interval) as bar:
            bar.set_postfix_str("2 calls", refresh=False)
            bar.update(3)
        lines = capsys.readouterr().err
        assert "\r" not in lines and all(line.startswith("… cost · mini: ") for line in lines.splitlines())
        assert ("… cost · mini: 3 of 3 answers" in lines and "2 calls" in lines) == (interval == 0)
