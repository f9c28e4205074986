"""Several runs from one command: the same files whichever launcher runs them, and a worker that dies is made good."""

import sys
from pathlib import Path

import pytest
import yaml

from rag_notes.cli import main
from rag_notes.running.records import load_run
from tests.loopback import Loopback

WORKERS = {
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "ray": [
        "hydra/launcher=ray",
        "+hydra.launcher.ray.init.num_cpus=2",
        "+hydra.launcher.ray.init.include_dashboard=false",
    ],
}
MORTAL = """
import os
import signal
from pathlib import Path


async def mortal(rag, question):
    passages = await rag.search(question.question, 1)
    answer = await rag.answer(passages)
    marker = Path("died")
    if question.id == "bridge-02" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
"""


@pytest.fixture(params=sorted(WORKERS))
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of two workers."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "200")  # Ray gives up after 30 on a busy machine
    pytest.importorskip(f"hydra_plugins.hydra_{request.param}_launcher", reason=f"needs the extra `{request.param}`")
    return WORKERS[request.param]


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder / "runs"


def contents(runs: Path) -> dict[str, bytes]:
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.glob("*/*") if path.is_file()}


def test_two_workers_write_what_one_process_writes(
    workers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["dataset=mini,mini_zh", "method.deepnote.max_step=1,2", "method=[vanilla,deepnote]", "limit=3"]
    one = enter(tmp_path / "one", monkeypatch)
    assert main(["run", "--multirun", *options, "resamples=100"]) == 0
    two = enter(tmp_path / "two", monkeypatch)
    assert main(["run", "-m", *options, "resamples=100", *workers]) == 0
    assert len(contents(one)) == 4 * 3  # run.json, samples.jsonl and the lock of each
    assert contents(two) == contents(one)
    steps = [load_run(folder).info.methods["deepnote"].settings["max_step"] for folder in one.iterdir()]
    assert sorted(steps) == [1, 1, 2, 2]


def test_a_worker_that_dies_is_made_good_by_the_same_command_and_workers_share_what_is_asked(
    workers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = enter(tmp_path / "mortal", monkeypatch)
    (tmp_path / "mortal" / "my_methods.py").write_text(MORTAL, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with Loopback(tmp_path / "log") as server:
        options = [
            *("dataset=mini", "limit=3,4", "method=[vanilla]", "+method.mortal._target_=my_methods.mortal"),
            *("method.vanilla.top_k=1", "llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}"),
            *("resamples=100", *workers),
        ]
        retried = "hydra/launcher=ray" in workers  # by Ray itself
        assert main(["run", "--multirun", *options]) == (0 if retried else 1)
        assert ("what is done is kept, the same command goes on" in capfd.readouterr().err) != retried
        before = len(server.seen())
        assert main(["run", "--multirun", *options]) == 0
        asked = [seen.hash for seen in server.seen()]
    done = [load_run(folder).info.samples for folder in runs.iterdir()]
    assert sorted((samples.done, samples.errors) for samples in done) == [(6, 0), (8, 0)]
    assert len(set(asked)) == 4  # both methods and both runs ask the same of four questions
    assert len(set(asked[before:])) == len(asked[before:])


def test_a_job_that_fails_gives_its_exit_code_and_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = enter(tmp_path / "one", monkeypatch)
    assert main(["run", "-m", "dataset=mini", "limit=1", "method=deepnote,vanilla", "resamples=100"]) == 2
    assert "baseline=vanilla is not among the methods ['deepnote']" in capsys.readouterr().err
    assert [list(load_run(folder).info.methods) for folder in runs.iterdir()] == [["vanilla"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["dataset=mini,hotpot"], "dataset=hotpot: no such dataset; there is hotpotqa"),
        (["limt=1,2"], "limt: no such option; did you mean limit"),
        (["limit=1,2", "hydra/launcher=nope"], "Could not find 'hydra/launcher/nope'"),
    ],
)
def test_what_cannot_be_composed_is_refused_before_any_job(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = enter(tmp_path / "one", monkeypatch)
    assert main(["run", "-m", *options]) == 2
    assert message in capsys.readouterr().err
    assert not runs.exists()


def test_cfg_job_shows_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cfg", "job", "dataset=mini", "limit=4"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert main(["config", "dataset=mini", "limit=4"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == shown
    assert shown["dataset"]["mini"]["limit"] == 4
