"""Noise robustness: the chosen methods on gold and noise passages in fixed ratios (Chain-of-Note, section 3.3)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rag_notes.config import Config, ConfigError
from rag_notes.records import Run
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.noise import ControlledNoise, controllable
from rag_notes.study import Change, run_study
from rag_notes.types import Dataset


async def run_noise(config: Config, given: Sequence[str] = (), *, progress: bool = True) -> list[Run]:
    """Evaluate the chosen methods on each chosen data set at each noise ratio of the study: a run for each of both.

    A run's data set is called after the ratio (`mini-noise40`) and has the questions that `controllable` leaves. Raises
    ConfigError where a data set has none or the study names no ratio, otherwise as `rag_notes.study.run_study`.
    """
    if not config.study.noise_percent:
        raise ConfigError("study.noise_percent: no noise ratio is named; take study=robustness")
    runs: list[Run] = []
    for change in noise_changes(config):
        runs += await run_study(config, given, change=change, progress=progress)
        if runs[-1].info["status"] != "finished":
            break
    return runs


def noise_changes(config: Config) -> list[Change]:
    """What puts each noise ratio of the study in the place of a data set and its retriever; none where it has none."""
    return [partial(with_noise, noise_percent=percent) for percent in dict.fromkeys(config.study.noise_percent)]


def with_noise(dataset: Dataset, retriever: Retriever, *, noise_percent: int) -> tuple[Dataset, ControlledNoise]:
    """A data set's controllable questions, with its retriever made to return so much noise."""
    questions = tuple(controllable(dataset))
    if not questions:
        raise ConfigError(
            f"dataset {dataset.name}: no question has gold passages in the corpus; choose another data set"
        )
    noisy = replace(dataset, name=f"{dataset.name}-noise{noise_percent}", questions=questions)
    return noisy, ControlledNoise(retriever, noisy, noise_percent)
