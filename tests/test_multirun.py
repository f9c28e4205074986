"""Several runs from one command: the same files whichever launcher runs them, and a worker that dies is made good."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rag_notes.running.run_files import load_run

from rag_notes.cli import main
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


def multirun(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and stderr of the command in a process of its own: Hydra sets up logging for the whole of it."""
    folder.mkdir(exist_ok=True)
    command = [str(Path(sys.executable).with_name("rag-notes")), "run", "--multirun", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    return done.returncode, done.stderr


def contents(runs: Path) -> dict[str, bytes]:
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.glob("*/*") if path.is_file()}


def test_two_workers_write_what_one_process_writes(workers: list[str], tmp_path: Path) -> None:
    options = ["dataset=mini,mini_zh", "method.deepnote.max_step=1,2", "method=[vanilla,deepnote]", "limit=3"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert multirun(one, *options, "resamples=100")[0] == 0
    assert multirun(two, *options, "resamples=100", *workers)[0] == 0
    assert len(contents(one / "runs")) == 4 * 3  # run.json, samples.jsonl and the lock of each
    assert contents(two / "runs") == contents(one / "runs")
    steps = [load_run(folder).info.methods["deepnote"].settings["max_step"] for folder in (one / "runs").iterdir()]
    assert sorted(steps) == [1, 1, 2, 2]


def test_a_worker_that_dies_is_made_good_by_the_same_command_and_workers_share_what_is_asked(
    workers: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "mortal"
    folder.mkdir()
    (folder / "my_methods.py").write_text(MORTAL, encoding="utf-8")
    with Loopback(tmp_path / "log") as server:
        options = [
            *("dataset=mini", "limit=3,4", "method=[vanilla]", "+method.mortal._target_=my_methods.mortal"),
            *("method.vanilla.top_k=1", "llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}"),
            *("resamples=100", *workers),
        ]
        retried = "hydra/launcher=ray" in workers  # by Ray itself
        code, told = multirun(folder, *options)
        assert code == (0 if retried else 1)
        assert ("what is done is kept, the same command goes on" in told) != retried
        before = len(server.seen())
        assert multirun(folder, *options)[0] == 0
        asked = [seen.hash for seen in server.seen()]
    done = [load_run(run).info.samples for run in (folder / "runs").iterdir()]
    assert sorted((samples.done, samples.errors) for samples in done) == [(6, 0), (8, 0)]
    assert len(set(asked)) == 4  # both methods and both runs ask the same of four questions
    assert len(set(asked[before:])) == len(asked[before:])


def test_a_job_that_fails_gives_its_exit_code_and_the_others_are_done(tmp_path: Path) -> None:
    code, told = multirun(tmp_path, "dataset=mini", "limit=1", "method=deepnote,vanilla", "resamples=100")
    assert code == 2
    assert "baseline=vanilla is not among the methods ['deepnote']" in told
    assert [list(load_run(folder).info.methods) for folder in (tmp_path / "runs").iterdir()] == [["vanilla"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["dataset=mini,hotpot"], "dataset=hotpot: no such dataset; there is hotpotqa"),
        (["limt=1,2"], "limt: no such option; did you mean limit"),
        (["limit=1,2", "hydra/launcher=nope"], "Could not find 'hydra/launcher/nope'"),
    ],
)
def test_what_cannot_be_composed_is_refused_before_any_job(options: list[str], message: str, tmp_path: Path) -> None:
    code, told = multirun(tmp_path, *options)
    assert code == 2
    assert message in told
    assert not (tmp_path / "runs").exists()


def test_cfg_job_shows_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cfg", "job", "dataset=mini", "limit=4"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert main(["config", "dataset=mini", "limit=4"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == shown
    assert shown["dataset"]["mini"]["limit"] == 4
