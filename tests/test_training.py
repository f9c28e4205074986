"""Training, the whole way with a tiny random model: data, SFT, DPO, a kill, and what the trained model says."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.prompts.templates import Templates
from rag_notes.training.cards import read_examples
from rag_notes.training.content_filter import content_filter
from rag_notes.training.data import Batch, Data, make_examples, write_examples
from rag_notes.training.train import train
from rag_notes.types import InputError, Question
from tests.scripted import ScriptedLLM, ScriptedRetriever
from tests.tiny_model import need_training, write_tiny_model

need_training()
pytestmark = pytest.mark.timeout(600)
SMALL: dict[str, Any] = {"learning_rate": 0.01, "epochs": 3.0, "batch_size": 2, "dtype": "float32", "held_out": 0.25}
SMALL |= {"save_every": 2, "gradient_checkpointing": False}
LORA = {"lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.0}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def write_file(folder: Path, lines: Sequence[dict[str, Any]]) -> Path:
    """A file of examples with its card."""
    path = folder / "examples.jsonl"
    write_examples(path, Batch(questions=len(lines), examples=[("", line) for line in lines]), {"name": "hand"})
    return path


def example(number: int, length: int = 5, **responses: str) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"Say {'please ' * length}{number}:"}]
    messages = {name: [{"role": "assistant", "content": text}] for name, text in responses.items()}
    return {"stage": "note_init", "question_id": f"q{number}", "prompt": prompt, **messages}


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_file(tmp_path_factory.mktemp("labels"), [example(n, completion="yes") for n in range(8)])


def trained(objective: str, model: Path, data: Path, out: Path, **settings: Any) -> dict[str, Any]:
    options = SMALL | {"model": str(model), "data": str(data), "out": str(out)} | settings
    return train(objective=objective, **options)  # type: ignore[arg-type] # chosen by the test


def weights(folder: Path) -> str:
    (file,) = folder.glob("*.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("lora", [{}, LORA, LORA | {"merge": True}], ids=["all", "adapter", "merged"])
def test_sft_lowers_the_loss_on_what_was_held_out(
    tiny: Path, labels: Path, tmp_path: Path, lora: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    metrics = trained("sft", tiny, labels, out, **lora)
    assert (metrics["trained_on"], metrics["held_out"], metrics["steps"]) == (6, 2, 9)
    assert metrics["after"]["eval_loss"] < metrics["before"]["eval_loss"]
    assert len([entry["loss"] for entry in metrics["log"]]) == 9
    assert json.loads((out / "metrics.json").read_text()) == metrics
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["data"] == json.loads(Path(f"{labels}.card.json").read_text())
    assert recipe["settings"]["data_sha256"] == hashlib.sha256(labels.read_bytes()).hexdigest()
    files = {path.name for path in out.iterdir()}
    assert {"tokenizer.json", "chat_template.jinja"} <= files
    assert ("adapter_model.safetensors" if lora == LORA else "model.safetensors") in files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pth", ".pkl", "checkpoints"))]


@pytest.mark.parametrize("lora", [{}, LORA], ids=["all", "adapter"])
def test_dpo_prefers_the_chosen_responses(tiny: Path, tmp_path: Path, lora: dict[str, Any]) -> None:
    pairs = write_file(tmp_path, [example(n, chosen=f"good {n}", rejected=f"bad {n}") for n in range(8)])
    metrics = trained("dpo", tiny, pairs, tmp_path / "out", **lora)
    assert metrics["before"]["eval_rewards/margins"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["after"]["eval_rewards/margins"] > 0
    assert metrics["after"]["eval_rewards/accuracies"] == 1.0
    assert any("rewards/margins" in entry for entry in metrics["log"])


def test_adapters_of_the_last_blocks_leave_the_others_alone(tiny: Path, labels: Path, tmp_path: Path) -> None:
    import safetensors  # noqa: PLC0415

    trained("sft", tiny, labels, tmp_path / "out", **LORA, lora_layers=1, epochs=1.0)
    with safetensors.safe_open(tmp_path / "out" / "adapter_model.safetensors", "np") as tensors:
        blocks = {name.partition(".layers.")[2].partition(".")[0] for name in tensors.keys()}  # noqa: SIM118
    assert blocks == {"1"}  # of two


def test_what_is_longer_than_the_limit_is_left_out_and_counted(tiny: Path, tmp_path: Path) -> None:
    lines = [example(n, length=90 if n in (2, 5) else 1, completion="yes") for n in range(8)]
    data = write_file(tmp_path, lines)
    metrics = trained("sft", tiny, data, tmp_path / "out", max_length=100, **LORA)
    assert (metrics["examples"], metrics["too_long"], metrics["trained_on"]) == (8, {"note_init": 2}, 4)
    with pytest.raises(InputError, match=r"max_length=10 leaves 0 of 8 examples and held_out=0\.25 none of them"):
        trained("sft", tiny, data, tmp_path / "none", max_length=10)


def test_another_recipe_is_refused_and_a_finished_one_left_as_it_is(tiny: Path, labels: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    metrics = trained("sft", tiny, labels, out, epochs=1.0, **LORA)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.name != "recipe.json"}
    assert trained("sft", tiny, labels, out, epochs=1.0, **LORA) == metrics
    assert {path: path.stat().st_mtime_ns for path in before} == before
    message = r"another recipe: epochs \(was 1\.0, is 2\.0\), seed \(was 42, is 1\); name another folder with out="
    with pytest.raises(InputError, match=message):
        trained("sft", tiny, labels, out, epochs=2.0, seed=1, **LORA)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="is not empty and holds no training"):
        trained("sft", tiny, labels, tmp_path / "other")


def test_settings_and_models_that_do_not_fit_are_refused(tiny: Path, labels: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_size=3 is no multiple of device_batch_size times the devices, 2"):
        trained("sft", tiny, labels, tmp_path / "a", batch_size=3, device_batch_size=2)
    with pytest.raises(InputError, match=r"leaves 8 of 8 examples and held_out=0\.95 none of them to train on"):
        trained("sft", tiny, labels, tmp_path / "b", held_out=0.95)
    with pytest.raises(InputError, match="lora_layers=1 is about adapters; give lora_rank, too"):
        trained("sft", tiny, labels, tmp_path / "b", lora_layers=1)
    assert not list(tmp_path.iterdir())  # nothing is begun that could not be gone on with


KILLED = """
import json, os, signal, sys
import transformers
from rag_notes.training.train import train

save, (step, settings) = transformers.Trainer._save_rng_state, (int(sys.argv[1]), json.loads(sys.argv[2]))


def save_or_die(self, folder):
    if self.state.global_step == step:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, folder)


transformers.Trainer._save_rng_state = save_or_die
if step == 0:  # in the first evaluation
    transformers.Trainer.evaluate = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
train(objective="sft", **settings)
"""


@pytest.mark.parametrize("step", [0, 6])
def test_a_killed_training_goes_on_from_its_last_complete_checkpoint(
    tiny: Path, labels: Path, tmp_path: Path, step: int
) -> None:
    whole = trained("sft", tiny, labels, tmp_path / "whole", **LORA)
    out = tmp_path / "out"
    settings = SMALL | LORA | {"model": str(tiny), "data": str(labels), "out": str(out)}
    command = [sys.executable, "-c", KILLED, str(step), json.dumps(settings)]
    killed = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    saved = {path.name: (path / "trainer_state.json").exists() for path in (out / "checkpoints").glob("checkpoint-*")}
    complete = {"checkpoint-2": True, "checkpoint-4": True, "checkpoint-6": False}  # killed while it saved the last
    assert saved == (complete if step else {})
    assert trained("sft", tiny, labels, out, **LORA) == whole
    assert weights(out) == weights(tmp_path / "whole")


def test_a_trained_filter_says_what_its_examples_say(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers  # noqa: PLC0415

    questions = [Question(f"q{n}", f"Who is {n}?", ("x",), gold_ids=("z",)) for n in range(4)]
    data = Data(partial(content_filter, labels="gold", top_k=2), out="unused")
    retriever, llm = ScriptedRetriever(lambda _: ["a", "b"]), ScriptedLLM(lambda _: "never asked")
    batch = asyncio.run(make_examples(data, questions, retriever, llm, Templates("small")))
    path, out = tmp_path / "filter.jsonl", tmp_path / "out"
    write_examples(path, batch, {"name": "content_filter"})
    examples, _ = read_examples(path, ("completion",))
    options = [f"model={tiny}", f"out={out}", f"data={path}", "epochs=30", "learning_rate=0.01", "dtype=float32"]
    options += ["lora_rank=null", "held_out=0", "gradient_checkpointing=false"]
    assert main(["train", "content_filter", *options]) == 0
    assert f"{out}: 60 steps on 8 examples" in capsys.readouterr().out

    def response(folder: Path) -> str:
        network = transformers.AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        form = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
        prompt = tokenizer.apply_chat_template(examples[0]["prompt"], **form)
        whole = network.generate(**prompt, do_sample=False, max_new_tokens=40)
        return str(tokenizer.decode(whole[0][prompt["input_ids"].shape[1] :], skip_special_tokens=True))

    assert response(out) == examples[0]["completion"][0]["content"] == '{"result": "useless"}'
    assert response(tiny) != response(out)
