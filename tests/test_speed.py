"""The speed of a model: what it is from given calls, and how a live model is asked."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from rag_notes.cli import main
from rag_notes.llm.store import Response
from rag_notes.rates import load_speeds
from rag_notes.running.speed import fit_speed, measure_speed
from rag_notes.types import InputError
from tests.loopback import Loopback


def called(prompt: int, completion: int, seconds: float) -> Response:
    return Response("text", "stop", prompt, completion, seconds)


def test_a_speed_is_what_predicts_the_time_of_the_calls() -> None:
    exact = [called(read, wrote, 0.002 * read + 0.05 * wrote) for read, wrote in [(100, 1), (1000, 1), (400, 80)]]
    speed = fit_speed(exact)
    assert [speed.prompt, speed.completion] == pytest.approx([2000, 50000])
    assert speed.deviation == pytest.approx(0) and speed.calls == 3
    # Shares are fitted: a third as long again for one of three calls alike is met in the middle of the shares.
    assert fit_speed([*exact, *exact, called(400, 80, 9.6)]).deviation == pytest.approx(0, abs=0.05)


def test_calls_that_waited_for_another_try_do_not_count() -> None:
    exact = [called(read, wrote, 0.002 * read + 0.05 * wrote) for read, wrote in [(100, 1), (1000, 1), (400, 80)]]
    slow = replace(called(100, 1, 60.0), retries=1)
    assert fit_speed([*exact, slow]) == fit_speed(exact)
    with pytest.raises(InputError, match="2 of 3 calls went through at once; a speed needs three"):
        fit_speed([*exact[:2], slow])


def test_a_speed_that_the_calls_do_not_show_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be told from that of writing"):
        fit_speed([called(100, 10, 1.0), called(1000, 10, 0.9), called(4000, 10, 0.5)])  # reading more takes less


def test_a_live_model_is_asked_one_call_at_a_time_and_never_twice_the_same(tmp_path: Path) -> None:
    store = tmp_path / "responses.sqlite"
    with Loopback(tmp_path / "requests.log") as server:
        options = ["llm=openai", f"llm.base_url={server.base_url}", "llm.model=tiny", f"llm.store={store}"]
        with contextlib.suppress(InputError):  # what such a server takes for a token says nothing
            asyncio.run(measure_speed(options, progress=False))
        seen = server.seen()
    assert len(seen) == 17 == len({request.hash for request in seen})
    assert {request.simultaneous for request in seen} == {1}
    assert not store.exists()


def test_speeds_of_ones_own_stand_in_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = load_speeds()
    (tmp_path / "conf").mkdir()
    own = tmp_path / "conf" / "speeds.yaml"
    line = '{prompt: 10, completion: 200, date: "2026-01-31", source: "ours"}'
    own.write_text(f"mine: {line}\n{next(iter(shipped))}: {line}\n", encoding="utf-8")
    speeds = load_speeds()
    assert set(speeds) == {*shipped, "mine"}
    assert {speed.prompt for name, speed in speeds.items() if name in ("mine", next(iter(shipped)))} == {10}
    for bad, named in [("mine: {prompt: ten}\n", "mine: prompt"), ("- 1\n", "dictionary"), ("a: [\n", "expected")]:
        own.write_text(bad, encoding="utf-8")
        with pytest.raises(InputError, match=named) as refused:
            load_speeds()
        assert str(own) in str(refused.value)
        assert "a line is meant such as" in str(refused.value)


def test_recorded_responses_have_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speed"]) == 2
    assert "choose a model with llm=openai or local" in capsys.readouterr().err


def test_every_known_speed_says_where_it_comes_from() -> None:
    for model, speed in load_speeds().items():
        assert speed.prompt > 0 and speed.completion > 0 and speed.date and speed.source, model
