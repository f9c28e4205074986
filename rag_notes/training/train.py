"""Trains a model on examples with TRL and PEFT: supervised, or by direct preference optimization (DPO)."""

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
from rag_notes.training.cards import METRICS, RECIPE, read_examples, write_json
from rag_notes.training.likelihood import weights_checksum
from rag_notes.types import InputError, NonNegative, Positive

_RESPONSES = {"sft": ("completion",), "dpo": ("chosen", "rejected")}
_PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


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
    """Train `model` on the examples of the file `data`, write the result to the folder `out`, and return the metrics.

    `batch_size` examples make a step, `device_batch_size` of them at once on each device. `lora_rank` trains adapters
    on all linear layers of weights of `dtype`, or of the last `lora_layers` blocks alone; `merge` adds them to the
    weights in the end. Without it all parameters are trained in single precision, with `dtype` as mixed precision on a
    GPU. Examples longer than `max_length` tokens are left out and counted; those of a share `held_out` of the questions
    are measured before and after instead. The same command continues from the last of the checkpoints, which are
    written every `save_every` steps. `out` gets the model or adapter, its tokenizer, recipe.json and metrics.json.
    Raises InputError where the examples or the model do not fit, or the folder holds another recipe.
    """
    settings: dict[str, Any] = {"objective": objective, "beta": beta, "learning_rate": learning_rate, "epochs": epochs}
    settings |= {"batch_size": batch_size, "device_batch_size": device_batch_size, "max_length": max_length}
    settings |= {"lora_rank": lora_rank, "lora_layers": lora_layers, "lora_alpha": lora_alpha, "merge": merge}
    settings |= {"lora_dropout": lora_dropout, "held_out": held_out, "dtype": dtype, "seed": seed}
    settings |= {"gradient_checkpointing": gradient_checkpointing}
    folder, responses = Path(out), _RESPONSES[objective]
    main = int(os.environ.get("RANK", "0")) == 0  # of several processes, the one that writes
    at_once = device_batch_size * int(os.environ.get("WORLD_SIZE", "1"))
    if batch_size % at_once:
        raise InputError(f"batch_size={batch_size} is no multiple of device_batch_size times the devices, {at_once}")
    if lora_layers is not None and lora_rank is None:
        raise InputError(f"lora_layers={lora_layers} is about adapters; give lora_rank, too, or leave it out")
    examples, card = read_examples(Path(data), responses)
    tokenizer = needed("transformers", "train").AutoTokenizer.from_pretrained(model)
    short = [example for example in examples if _length(example, tokenizer, responses) <= max_length]
    questions = list(dict.fromkeys(example["question_id"] for example in short))
    trained_on = set(questions[: len(questions) - math.ceil(held_out * len(questions))])
    training, testing = (
        [one for one in short if (one["question_id"] in trained_on) == learn] for learn in (True, False)
    )
    if not training:
        raise InputError(
            f"{data}: max_length={max_length} leaves {len(short)} of {len(examples)} examples and held_out={held_out} "
            "none of them to train on; change one of the two"
        )
    if main:
        base = {"base_model": model, "base_model_sha256": weights_checksum(model), "data_sha256": card["sha256"]}
        _begin(folder, settings | base, card)
    metrics: dict[str, Any] = {}
    if (folder / METRICS).exists():
        metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    if "after" in metrics:
        return metrics
    steps = {"gradient_accumulation_steps": batch_size // at_once, "save_steps": save_every}
    trainer = _trainer(model, tokenizer, (training, testing), folder, settings, **steps)
    if not metrics:
        too_long = Counter(one["stage"] for one in examples) - Counter(one["stage"] for one in short)
        metrics = {"examples": len(examples), "too_long": too_long, "trained_on": len(training)}
        metrics |= {"held_out": len(testing), "before": _without_times(trainer.evaluate()) if testing else {}}
        if main:
            write_json(folder / METRICS, metrics)
    trainer.train(resume_from_checkpoint=_last_checkpoint(folder / "checkpoints"))
    metrics["after"] = _without_times(trainer.evaluate()) if testing else {}
    if merge and lora_rank is not None:
        trainer.model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    trainer.save_model(str(folder))
    log = [entry for entry in map(_without_times, trainer.state.log_history) if "loss" in entry]
    metrics |= {"steps": trainer.state.global_step, "log": log}
    if main:
        write_json(folder / METRICS, metrics)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / "training_args.bin").unlink(missing_ok=True)  # pickled, and recipe.json says the same
    return metrics


def _length(example: Mapping[str, Any], tokenizer: Any, responses: Sequence[str]) -> int:
    """Return the tokens of an example with the longest of its responses."""
    texts = [tokenizer.apply_chat_template(example["prompt"] + example[name], tokenize=False) for name in responses]
    return max(len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"])


def _begin(folder: Path, settings: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Write the recipe of a new folder, or check that the training in it has the same one."""
    file = folder / RECIPE
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))["settings"]
        if changed := sorted(name for name in settings if before.get(name) != settings[name]):
            differ = ", ".join(f"{name} (was {before.get(name)!r}, is {settings[name]!r})" for name in changed)
            raise InputError(f"{folder}: holds a training with another recipe: {differ}; name another folder with out=")
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty and holds no training; name another folder with out=")
    versions = {name: str(needed(name, "train").__version__) for name in _PACKAGES}
    write_json(file, {"settings": settings, "versions": versions, "data": card})


def _trainer(
    model: str, tokenizer: Any, parts: Sequence[Any], folder: Path, settings: Mapping[str, Any], **steps: int
) -> Any:
    torch, transformers, trl, peft, datasets = (needed(name, "train") for name in _PACKAGES[:5])
    # All parameters are trained in single precision: bfloat16 rounds steps as small as these away. Adapters are, too.
    precision, gpu, rank = getattr(torch, settings["dtype"]), torch.cuda.is_available(), settings["lora_rank"]
    weights = torch.float32 if rank is None else precision
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=weights, use_safetensors=True)
    blocks = network.config.num_hidden_layers
    frozen = "|".join(map(str, range(blocks - (settings["lora_layers"] or blocks))))
    lora = {"r": rank, "lora_alpha": settings["lora_alpha"], "lora_dropout": settings["lora_dropout"]}
    lora |= {"target_modules": "all-linear", "exclude_modules": rf"\D*\.(?:{frozen})\..*" if frozen else None}
    arguments = {name: settings[name] for name in ("learning_rate", "gradient_checkpointing", "seed")} | steps
    arguments |= {"num_train_epochs": settings["epochs"], "data_seed": settings["seed"]}
    arguments |= {f"per_device_{part}_batch_size": settings["device_batch_size"] for part in ("train", "eval")}
    arguments |= {"output_dir": str(folder / "checkpoints"), "save_total_limit": 2, "logging_steps": 1}
    arguments |= {"use_cpu": not gpu, "bf16": gpu and precision == torch.bfloat16}
    arguments["max_length"] = None  # what is too long has been left out
    objective = settings["objective"].upper()
    if objective == "DPO":
        arguments["beta"] = settings["beta"]
    columns = ["prompt", *_RESPONSES[settings["objective"]]]
    tables = [datasets.Dataset.from_list(part).select_columns(columns) if part else None for part in parts]
    return getattr(trl, f"{objective}Trainer")(
        network,
        args=getattr(trl, f"{objective}Config")(**arguments),
        train_dataset=tables[0],
        eval_dataset=tables[1],
        processing_class=tokenizer,
        peft_config=peft.LoraConfig(task_type="CAUSAL_LM", **lora) if rank else None,
    )


def _last_checkpoint(folder: Path) -> str | None:
    """Return the last complete checkpoint, whose state is written last; an incomplete one is written again."""
    states = [file for file in folder.glob("checkpoint-*/trainer_state.json") if file.read_bytes().endswith(b"}\n")]
    return max((str(file.parent) for file in states), key=lambda name: int(name.rpartition("-")[2]), default=None)


def _without_times(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an entry of the log is the same each time that the recipe is trained, continued or not."""
    return {name: value for name, value in entry.items() if not re.search(r"time|per_second|num_tokens", name)}
