"""Several runs from one command: the same files whichever launcher runs them, and a worker that dies is made good."""

import subprocess
import sys
from pathlib import Path

import pytest

from rag_notes.running.records import load_run
from tests.loopback import Loopback

RAY = ("num_cpus=2", "include_dashboard=false")
WORKERS = {
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "ray": ["hydra/launcher=ray", *(f"+hydra.launcher.ray.init.{option}" for option in RAY)],
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
    command = [str(Path(sys.executable).with_name("rag-notes")), "run", "--multirun", "resamples=100", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    return done.returncode, done.stderr


def contents(runs: Path) -> dict[str, bytes]:
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.glob("*/*") if path.is_file()}


def test_two_workers_write_what_one_process_writes(workers: list[str], tmp_path: Path) -> None:
    options = ["dataset=mini,mini_zh", "method.deepnote.max_step=1,2", "method=[vanilla,deepnote]", "limit=3"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert multirun(one, *options)[0] == multirun(two, *options, *workers)[0] == 0
    assert len(contents(one / "runs")) == 4 * 2  # run.json and samples.jsonl of each
    assert contents(two / "runs") == contents(one / "runs")
    steps = [load_run(folder).info.methods["deepnote"].settings["max_step"] for folder in (one / "runs").iterdir()]
    assert sorted(steps) == [1, 1, 2, 2]


def test_a_worker_that_dies_is_made_good_by_the_same_command_and_workers_share_what_is_asked(
    workers: list[str], tmp_path: Path
) -> None:
    (tmp_path / "my_methods.py").write_text(MORTAL, encoding="utf-8")
    with Loopback(tmp_path / "log") as server:
        options = [
            *("dataset=mini", "limit=3,4", "method=[vanilla]", "+method.mortal._target_=my_methods.mortal"),
            *("method.vanilla.top_k=1", "llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}", *workers),
        ]
        retried = "hydra/launcher=ray" in workers  # by Ray itself
        code, message = multirun(tmp_path, *options)
        assert code == (0 if retried else 1)
        assert ("what is done is kept, the same command goes on" in message) != retried
        before = len(server.seen())
        assert multirun(tmp_path, *options)[0] == 0
        hashes = [seen.hash for seen in server.seen()]
    frames = [load_run(run).frame() for run in (tmp_path / "runs").iterdir()]
    assert sorted((len(frame), int(frame["error"].count())) for frame in frames) == [(6, 0), (8, 0)]
    assert len(set(hashes)) == 4  # both methods and both runs ask the same of four questions
    assert len(set(hashes[before:])) == len(hashes[before:])


@pytest.mark.parametrize(
    ("options", "message", "runs"),
    [
        # a job that fails gives its exit code, and the others are done
        (["dataset=mini,world", "limit=1", "method=vanilla", "offset=10,10000"], "offset=10000", 2),
        (["dataset=mini,hotpot"], "dataset=hotpot: no such dataset; there is hotpotqa", 0),  # before any job
        (["limt=1,2"], "limt: no such option; did you mean limit", 0),
        (["limit=1,2", "hydra/launcher=nope"], "Could not find 'hydra/launcher/nope'", 0),
    ],
)
def test_a_mistake_is_said_with_its_exit_code(options: list[str], message: str, runs: int, tmp_path: Path) -> None:
    code, said = multirun(tmp_path, *options)
    assert (code, len(list(tmp_path.glob("runs/*")))) == (2, runs), said
    assert message in said
