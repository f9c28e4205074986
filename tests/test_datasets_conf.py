"""Every file of conf/dataset instantiates a loader with arguments that the loader has."""

import importlib
import inspect
from pathlib import Path

import pytest
import yaml

from rag_notes import datasets

FILES = sorted((Path(__file__).parents[1] / "conf" / "dataset").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_config_fits_its_loader(file: Path) -> None:
    assert file.read_text(encoding="utf-8").splitlines()[0] == f"# @package dataset.{file.stem}"
    options = yaml.safe_load(file.read_text(encoding="utf-8"))
    module, _, function = options.pop("_target_").rpartition(".")
    signature = inspect.signature(getattr(importlib.import_module(module), function))
    assert set(options) == {*signature.parameters, "offset", "limit"}
    assert options["name"] == file.stem
    # One setting cuts all data sets alike.
    assert (options["offset"], options["limit"]) == ("${offset}", "${limit}")
    for option in ("setting", "split", "task", "questions"):
        if option in options:
            assert options[option] == signature.parameters[option].default
    assert all(
        value is None or value.removeprefix("${shipped:").startswith("data/")
        for value in (options.get("path"), options.get("corpus"), options.get("search_results"))
    )


def test_every_loader_has_a_config() -> None:
    targets = {yaml.safe_load(file.read_text(encoding="utf-8"))["_target_"] for file in FILES}
    assert targets == {f"rag_notes.datasets.{name}" for name in datasets.__all__ if name != "DataError"}


def test_data_sets_are_read_without_what_is_built_on_them() -> None:
    folder = Path(datasets.__file__).parent
    built_on_them = ("retrieval", "methods", "llm", "report", "config", "study", "evaluate")
    imported = {line for file in folder.glob("*.py") for line in file.read_text(encoding="utf-8").splitlines()}
    assert not [line for line in imported for name in built_on_them if f"rag_notes.{name}" in line]
