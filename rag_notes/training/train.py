"""Trains a model on examples with TRL and PEFT: supervised, or by direct preference optimization (DPO)."""

import importlib.metadata
import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rag_notes.extras import needed
from rag_notes.files import DiskFullError, write_atomically
from rag_notes.training.examples import read_examples
from rag_notes.training.likelihood import load_tokenizer, weights_checksum
from rag_notes.types import InputError, NonNegative, Positive

_RESPONSES = {"sft": ("completion",), "dpo": ("chosen", "rejected")}
_FULL = ("No space left", "Disk quota", "File too large", "PytorchStreamWriter failed writing", "unexpected pos")
_VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate")
_NEEDED = (*_VERSIONS, "datasets")


def train(
    *,
    objective: Literal["sft", "dpo"],
    model: str,
    data: str,
    out: str,
    learning_rate: Annotated[float, Field(gt=0)],
    epochs: Annotated[float, Field(gt=0)],
    batch_size: Positive,
    device_batch_size: Positive = 1,
    beta: Annotated[float, Field(gt=0)] = 0.1,
    lora_rank: Positive | None = None,
    lora_layers: Positive | None = None,
    lora_alpha: Positive = 32,
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05,
    merge: bool = False,
    max_length: Positive = 4096,
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.05,
    dtype: Literal["bfloat16", "float32"] = "bfloat16",
    gradient_checkpointing: bool = True,
    save_every: Positive = 50,
    seed: NonNegative = 42,
) -> dict[str, Any]:
    """Train `model` on the examples of the file `data`, write what came of it to the folder `out`, and return metrics.

    `batch_size` examples make a step, `device_batch_size` of them at once on each device. `lora_rank` trains adapters
    on all linear layers of weights of `dtype` (None: all parameters, in single precision, with `dtype` as mixed
    precision on a GPU), of the last `lora_layers` blocks alone where it is given, which saves the way back through the
    others; `merge` adds them to the weights in the end. `max_length` is in tokens:
    longer examples are left out and counted, none is cut. The examples of a share `held_out` of the questions are not
    trained on, and measured before and after. A checkpoint is kept every `save_every` steps: the same command goes on
    from the last whole one, and a finished folder is left as it is.

    `out` gets the model or adapter (safetensors), its tokenizer, recipe.json (settings, versions, data card) and
    metrics.json. Raises InputError where the examples or the model do not fit, or the folder holds another recipe;
    DiskFullError where there is no room.
    """
    settings = {name: value for name, value in locals().items() if name not in ("model", "data", "out", "save_every")}
    for package in _NEEDED:
        needed(package, "train")
    examples, card = read_examples(Path(data), _RESPONSES[objective])
    tokenizer, folder = load_tokenizer(model), Path(out)
    devices = int(os.environ.get("WORLD_SIZE", "1"))
    if batch_size % (device_batch_size * devices):
        raise InputError(
            f"batch_size={batch_size} is no multiple of device_batch_size={device_batch_size} on {devices} devices"
        )
    if lora_layers is not None and lora_rank is None:
        raise InputError(f"lora_layers={lora_layers} is about adapters; give lora_rank, too, or leave it out")
    whole, too_long = _whole(examples, tokenizer, _RESPONSES[objective], max_length)
    if not whole:
        raise InputError(f"{data}: all {len(examples)} examples are longer than max_length={max_length} tokens")
    training, testing = _split(whole, held_out)
    if not training:
        raise InputError(f"{data}: held_out={held_out} leaves nothing to train on; lower it")
    main = int(os.environ.get("RANK", "0")) == 0  # of several processes, the one that writes
    if main:
        base = {"base_model": model, "base_model_sha256": weights_checksum(model), "data_sha256": card["sha256"]}
        _take_up(folder, settings | base, card)
    metrics_file = folder / "metrics.json"
    metrics = json.loads(metrics_file.read_text(encoding="utf-8")) if metrics_file.exists() else {}
    if "after" in metrics:
        return dict(metrics)
    adapter = {"r": lora_rank, "lora_alpha": lora_alpha, "lora_dropout": lora_dropout}
    try:
        trainer = _trainer(
            objective,
            model,
            tokenizer,
            training,
            testing,
            lora=None if lora_rank is None else adapter,
            lora_layers=lora_layers,
            beta=beta,
            dtype=dtype,
            output_dir=str(folder / "checkpoints"),
            learning_rate=learning_rate,
            num_train_epochs=epochs,
            per_device_train_batch_size=device_batch_size,
            per_device_eval_batch_size=device_batch_size,
            gradient_accumulation_steps=batch_size // (device_batch_size * devices),
            gradient_checkpointing=gradient_checkpointing,
            save_steps=save_every,
            seed=seed,
        )
        sizes = {"examples": len(examples), "too_long": too_long, "trained_on": len(training), "held_out": len(testing)}
        if "before" not in metrics:
            metrics = sizes | {"before": _results(trainer.evaluate()) if testing else {}}
            _write(metrics_file, metrics, main=main)
        trainer.train(resume_from_checkpoint=_last_checkpoint(folder / "checkpoints"))
        after = _results(trainer.evaluate()) if testing else {}
        _save(trainer, folder, merge=merge and lora_rank is not None)
        if main:
            tokenizer.save_pretrained(folder)
    except Exception as error:  # safetensors and torch have errors of their own for a full disk
        if not any(mark in str(error) for mark in _FULL):
            raise
        raise DiskFullError(
            f"{folder}: the disk is full or its quota is used up ({error}); make room and run the same command again"
        ) from error
    log = [entry for entry in map(_results, trainer.state.log_history) if "loss" in entry]
    metrics |= {"after": after, "steps": trainer.state.global_step, "log": log}
    _write(metrics_file, metrics, main=main)
    if main:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return metrics


def _take_up(folder: Path, recipe: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Begin a folder, or check that what it holds is of the same recipe, where anything of it was trained."""
    file = folder / "recipe.json"
    if (folder / "metrics.json").exists() and file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))["settings"]
        if changed := sorted(name for name in recipe if before.get(name) != recipe[name]):
            differ = ", ".join(f"{name} (was {before.get(name)!r}, is {recipe[name]!r})" for name in changed)
            raise InputError(f"{folder}: holds a training with another recipe: {differ}; name another folder with out=")
        return
    nothing = {file, *folder.glob("checkpoints")}  # left by a training that was killed in its first evaluation
    if folder.exists() and (any(path not in nothing for path in folder.iterdir()) or any(folder.glob("checkpoints/*"))):
        raise InputError(f"{folder}: is not empty and holds no training; name another folder with out=")
    versions = {name: importlib.metadata.version(name) for name in _VERSIONS}
    text = json.dumps({"settings": recipe, "versions": versions, "data": card}, indent=1, ensure_ascii=False)
    write_atomically(file, text + "\n")


def _whole(
    examples: Sequence[dict[str, Any]], tokenizer: Any, responses: Sequence[str], max_length: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The examples that fit into `max_length` tokens, and how many do not, by stage."""
    kept, too_long = [], Counter[str]()
    for example in examples:
        texts = [tokenizer.apply_chat_template(example["prompt"] + example[name], tokenize=False) for name in responses]
        if max(len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]) > max_length:
            too_long[example["stage"]] += 1
        else:
            kept.append(example)
    return kept, dict(sorted(too_long.items()))


def _split(examples: Sequence[dict[str, Any]], held_out: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The examples to train on, and those of the last questions, a share `held_out` of all."""
    questions = list(dict.fromkeys(example["question_id"] for example in examples))
    last = set(questions[len(questions) - math.ceil(held_out * len(questions)) :])
    parts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for example in examples:
        parts[example["question_id"] in last].append(
            {name: value for name, value in example.items() if name not in ("stage", "question_id")}
        )
    return parts


def _trainer(
    objective: str,
    model: str,
    tokenizer: Any,
    training: list[dict[str, Any]],
    testing: list[dict[str, Any]],
    *,
    lora: Mapping[str, Any] | None,
    lora_layers: int | None,
    beta: float,
    dtype: str,
    **settings: Any,
) -> Any:
    import datasets  # noqa: PLC0415
    import peft  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import trl  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    settings |= {
        "use_cpu": not torch.cuda.is_available(),
        "bf16": dtype == "bfloat16" and torch.cuda.is_available(),
        "data_seed": settings["seed"],
        "max_length": None,  # nothing is cut: what is too long has been left out
        "logging_steps": 1,
        "save_total_limit": 2,
        "eval_strategy": "no",
        "report_to": "none",
    }
    # All parameters are kept in single precision: bfloat16 rounds steps as small as these away. Adapters are, too.
    held = torch.float32 if lora is None else getattr(torch, dtype)
    trained = AutoModelForCausalLM.from_pretrained(model, dtype=held, use_safetensors=True)
    frozen = range(0 if lora_layers is None else _blocks(trained, lora_layers) - lora_layers)
    parts = {
        "processing_class": tokenizer,
        "train_dataset": datasets.Dataset.from_list(training),
        "eval_dataset": datasets.Dataset.from_list(testing) if testing else None,
        "peft_config": lora
        and peft.LoraConfig(
            **lora,
            target_modules="all-linear",
            exclude_modules=rf"\D*\.(?:{'|'.join(map(str, frozen))})\..*" if frozen else None,
            task_type="CAUSAL_LM",
        ),
    }
    if objective == "sft":
        return trl.SFTTrainer(trained, args=trl.SFTConfig(**settings), **parts)
    return trl.DPOTrainer(trained, args=trl.DPOConfig(beta=beta, **settings), **parts)


def _blocks(model: Any, least: int) -> int:
    count: int = model.config.num_hidden_layers
    if least > count:
        raise InputError(f"lora_layers={least}: the model has {count} blocks; give at most so many, or leave it out")
    return count


def _last_checkpoint(folder: Path) -> str | None:
    """The last checkpoint that is whole: its state is written last. One that is not is written anew."""
    whole = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*") if _is_whole(path)}
    return str(whole[max(whole)]) if whole else None


def _is_whole(checkpoint: Path) -> bool:
    try:
        return "global_step" in json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _save(trainer: Any, folder: Path, *, merge: bool) -> None:
    """Save the model, or its adapter, as safetensors alone."""
    if merge:
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        if trainer.is_world_process_zero():
            merged.save_pretrained(folder)
        return
    trainer.save_model(str(folder))
    (folder / "training_args.bin").unlink(missing_ok=True)  # pickled, and recipe.json says the same


def _write(path: Path, metrics: Mapping[str, Any], *, main: bool) -> None:
    if main:
        write_atomically(path, json.dumps(metrics, indent=1) + "\n")


def _results(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What of an entry of the log is the same in every run of the recipe, resumed or not: times are not."""
    return {name: value for name, value in entry.items() if not re.search(r"time|per_second|num_tokens", name)}
