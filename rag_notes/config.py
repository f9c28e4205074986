"""Composes conf/ with Hydra, checks every option, and builds the parts that are chosen."""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, Field

from rag_notes.datasets.corpus import cut
from rag_notes.files import here, here_or_shipped
from rag_notes.llm.client import LLM
from rag_notes.llm.errors import encodable
from rag_notes.options import CONF, choices, did_you_mean, explain, with_new_methods
from rag_notes.parts import ConfigError, bound, call, check, target_of, validated
from rag_notes.prompts.templates import Templates
from rag_notes.rates import load_prices
from rag_notes.retrieval.base import IndexedRetriever, Retriever
from rag_notes.retrieval.cached import cached
from rag_notes.retrieval.noise import NoiseFrom
from rag_notes.types import Dataset, NonNegative, Passage, Positive, Repeats

OmegaConf.register_new_resolver("shipped", here_or_shipped, replace=True)
_MODEL_ONLY = ("served_as", "prompt_price", "completion_price")  # settings of an LLM that are true of one model alone


class Study(BaseModel, extra="forbid", strict=True):
    """A study: its name, its notebook, and the variants of methods that it adds.

    A variant has the settings that differ from its `method`, and is left out where that is not chosen. `noise_from`
    says which passages are gold: annotated or retrieved ones. `datasets` are those that fit; empty, all.
    """

    name: str
    notebook: str
    trainings: list[str] = []
    variants: dict[str, dict[str, Any]] = {}
    noise_percent: list[Annotated[int, Field(ge=0, le=100)]] = []
    noise_from: NoiseFrom = "annotated"
    datasets: list[str] = []


class Trained(BaseModel, extra="forbid", strict=True):
    """What the model was trained on, as `rag-notes training-data` calls it, and the model that it was trained from."""

    data: Literal["dnalign", "content_filter", "chain_of_note", "retrieve_read", "hybrid"] | None = None
    base: str | None = None


class Config(BaseModel, extra="forbid", strict=True):
    """The resolved configuration: the chosen parts as plain settings, checked, and the options of the whole."""

    dataset: dict[str, dict[str, Any]]
    retriever: dict[str, Any]
    llm: dict[str, Any]
    stages: dict[str, dict[str, Any]]
    trained: Trained
    method: dict[str, dict[str, Any]]
    study: Study
    limit: Positive | None
    offset: NonNegative
    prompts: str
    repeat: Repeats
    baseline: str | None
    confidence: Annotated[float, Field(gt=0, lt=1)]
    resamples: Positive
    clusters: bool
    runs: str
    figures: str
    options: list[str] = []


def load_config(options: Sequence[str] = ()) -> Config:
    """Compose `conf/config.yaml` with options such as `llm=openai` or `method.deepnote.max_step=2`.

    Raises ConfigError where an option names something unknown (with the nearest names) or has the wrong type.
    """
    composed = _compose("config", options)
    composed["llm"].pop("prompts", None)  # the set that fits this LLM: what config.prompts is where nothing else is set
    config = validated(Config, composed)
    study = config.study
    if unfit := [name for name in config.dataset if study.datasets and name not in study.datasets]:
        raise ConfigError(f"dataset={unfit[0]}: the study {study.name} is made of {', '.join(study.datasets)} alone")
    _add_variants(config)
    _check_parts(config)
    if config.baseline not in config.method:
        if config.baseline is not None and any(option.startswith("baseline=") for option in options):
            raise ConfigError(f"baseline={config.baseline} is not among the methods {list(config.method)}; add it")
        config.baseline = None  # by default differences are to vanilla RAG, where it is among the methods
    config.options = [*options]
    return config


def load_study(name: str, options: Sequence[str] = ()) -> Config:
    """Compose the configuration of a study, whichever one the options name. Raises ConfigError as `load_config`."""
    return load_config([f"study={name}", *(option for option in options if not option.startswith("study="))])


def _add_variants(config: Config) -> None:
    """Put the study's variants behind the methods, each with its method's settings but for its own."""
    chosen, names = dict(config.method), choices("method")
    for name, settings in config.study.variants.items():
        where, method = f"study.variants.{name}", settings.get("method")
        if method not in names:
            raise ConfigError(f"{where}.method: {method!r} is no method{did_you_mean(str(method), names)}")
        if name in chosen:
            raise ConfigError(f"{where}: a method has this name; give the variant another one")
        if method in chosen:
            config.method[name] = chosen[method] | {key: value for key, value in settings.items() if key != "method"}


def _check_parts(config: Config) -> None:
    data, base = config.trained.data, config.trained.base
    if (data is None) != (base is None):
        raise ConfigError("trained: name the data and the model before training: trained.data=NAME trained.base=NAME")
    models = [config.llm, *(_stage_settings(config, name) for name in config.stages)]
    if base is not None and all(settings.get("model") == base for settings in models):
        advice = "name the trained model, or +stages.NAME.model of one stage"
        raise ConfigError(f"llm.model={base}: is trained.base; {advice}")
    for name, settings in config.dataset.items():
        check(f"dataset.{name}", settings, after=cut)
    for name, settings in config.method.items():
        where = f"study.variants.{name}" if name in config.study.variants else f"method.{name}"
        check(where, settings, passed=2)
        if not inspect.iscoroutinefunction(target_of(settings)):
            raise ConfigError(f"{where}._target_: a method is an async function of (rag, question) and its settings")
    check("retriever", config.retriever, passed=1)
    check("llm", config.llm)
    for name in config.stages:
        if name not in (stages := build_templates(config).names()):
            raise ConfigError(f"stages.{name}: no such stage{did_you_mean(name, stages)}")
        check(f"stages.{name}", _stage_settings(config, name))


def build_datasets(config: Config) -> list[Dataset]:
    """Read the chosen data sets, each cut by its `offset` and `limit`."""
    datasets = []
    for settings in config.dataset.values():
        part = {name: settings[name] for name in ("offset", "limit") if name in settings}
        datasets.append(cut(call({name: settings[name] for name in settings.keys() - part.keys()}), **part))
    return datasets


def build_retriever(config: Config, corpus: Sequence[Passage]) -> Retriever:
    """Make the chosen retriever over `corpus`; a slow one stores what it finds in the file of the response store."""
    store = config.llm.get("store")
    return cached(call(config.retriever, corpus), store and here() / store)


def build_indexed_retriever(config: Config, corpus: Iterable[Passage]) -> IndexedRetriever:
    """Make the chosen retriever over a corpus that may be a file. Raises ConfigError where it needs no index."""
    target = target_of(config.retriever)
    if not hasattr(target if inspect.isclass(target) else inspect.signature(target).return_annotation, "build_index"):
        commands = "rag-notes index retriever=bm25, retriever=elasticsearch or retriever=elasticsearch_knn"
        text = "this retriever encodes a corpus on first use, or is made of others that have a command each"
        raise ConfigError(f"{text}: {commands}")
    retriever: IndexedRetriever = call(config.retriever, corpus)
    return retriever


def build_llm(config: Config, *, offline: bool = False) -> LLM:
    """Make the chosen LLM with those of single stages; offline only what is stored is answered.

    A price comes from conf/prices.yaml where none is set.
    """
    llm = _build_llm(config.llm)
    llm.stages = {name: _build_llm(_stage_settings(config, name)) for name in config.stages}
    if config.trained.data is not None:
        llm.trained = {"trained_on": config.trained.data, "base": config.trained.base}
    for each in (llm, *llm.stages.values()) if offline else ():
        each.base_url = None
    return llm


def _stage_settings(config: Config, name: str) -> dict[str, Any]:
    """Return the settings of the LLM for a stage: what is set, and what the main one has for it."""
    stage, main = config.stages[name], config.llm
    if "_target_" in stage:
        return stage
    without = _MODEL_ONLY if stage.get("model", main["model"]) != main["model"] else ()
    return {key: value for key, value in main.items() if key not in without} | stage


def _build_llm(settings: Mapping[str, Any]) -> LLM:
    price = load_prices().get(settings["model"])
    if price is not None and settings.get("prompt_price") is None and settings.get("completion_price") is None:
        settings = {**settings, "prompt_price": price.prompt, "completion_price": price.completion}
    llm: LLM = call(settings)
    return llm


def build_templates(config: Config) -> Templates:
    """Read the chosen prompt templates."""
    with contextlib.chdir(here()):
        return Templates(config.prompts)


def build_methods(config: Config) -> dict[str, Callable[..., Awaitable[str]]]:
    """Return the chosen methods with their settings, by name."""
    return {name: build_method(config, name, {}) for name in config.method}


def build_method(config: Config, name: str, changes: Mapping[str, Any]) -> Callable[..., Awaitable[str]]:
    """Return a method with its settings but for some changes. Raises ConfigError where one does not fit."""
    chosen = config if name in config.method else load_config([f"method={name}"])
    settings = {**chosen.method[name], **changes}
    check(f"method.{name}", settings, passed=2)
    return bound(settings)


def load_settings(group: str, options: Sequence[str], root: str | None = None, **call_form: Any) -> dict[str, Any]:
    """Return the checked settings of a group's choice, which options such as `+training=dnalign` name and change.

    `root` is the file of conf/ to compose, `call_form` how a target is called, as in `check`. Raises ConfigError as
    `load_config`.
    """
    settings: dict[str, Any] = _compose(root, options)[group]
    check(group, settings, **call_form)
    return settings


def _compose(root: str | None, options: Sequence[str]) -> dict[str, Any]:
    if undecodable := [option for option in options if encodable(option) != option]:
        raise ConfigError(f"{undecodable[0]!r}: not valid UTF-8, which records need")
    with hydra_of_conf(options):
        composed: Any = OmegaConf.to_container(compose(root, with_new_methods(options)), resolve=True)
    return dict(composed)


@contextlib.contextmanager
def hydra_of_conf(options: Sequence[str]) -> Iterator[Any]:
    """Give Hydra, with conf/ to compose. Raises ConfigError where it refuses an option."""
    GlobalHydra.instance().clear()  # of the multirun that this is a job of
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            yield GlobalHydra.instance().hydra
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # the last: a number for a choice
        raise ConfigError(explain(error, options)) from None
