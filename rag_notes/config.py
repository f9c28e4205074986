"""Composes conf/ with Hydra, checks every option against the signature it belongs to, and builds the parts."""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from rag_notes.datasets.corpus import CorpusFile
from rag_notes.datasets.selection import cut
from rag_notes.files import here, here_or_shipped
from rag_notes.llm.client import LLM
from rag_notes.llm.errors import encodable
from rag_notes.options import CONF, choices, explain
from rag_notes.prompts.templates import Templates
from rag_notes.rates import load_prices
from rag_notes.retrieval.base import IndexedRetriever, Retriever
from rag_notes.retrieval.noise import NoiseFrom
from rag_notes.targets import TargetError, load_target
from rag_notes.types import Dataset, InputError, NonNegative, Passage, Positive, Repeats

OmegaConf.register_new_resolver("shipped", here_or_shipped, replace=True)
INDEXED = (  # the retrievers that `rag-notes index` is for
    "rag_notes.retrieval.bm25.bm25",
    "rag_notes.retrieval.elastic.elasticsearch",
    "rag_notes.retrieval.elastic_knn.elasticsearch_knn",
)
_OF_MODEL = ("served_as", "prompt_price", "completion_price")  # settings of an LLM that are true of one model alone


class ConfigError(InputError):
    """An option that does not exist or does not fit; the message names it and what would."""


class UnrecordedError(ConfigError):
    """A study whose responses no recording has; the message says how to run it."""


class Study(BaseModel):
    """A study: its name, the notebook that tells it, and the variants of methods that it adds to them.

    A variant has a name of its own and the settings that differ from its `method`; it is left out where that method is
    not among those chosen. `noise_percent` are the shares of noise among the passages that the study controls,
    `noise_from` says which passages are gold: the annotated ones, or those of the retrieved list. `datasets` are the
    only ones that it can be made of; empty, it is made of any.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    notebook: str
    trainings: list[str] = []
    variants: dict[str, dict[str, Any]] = {}
    noise_percent: list[Annotated[int, Field(ge=0, le=100)]] = []
    noise_from: NoiseFrom = "annotated"
    datasets: list[str] = []


class Trained(BaseModel):
    """What the model was trained on, as `rag-notes training-data` calls it, and the model that it was trained from.

    `hybrid` and `retrieve_read` are Chain-of-Note's training data of these systems.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    data: Literal["dnalign", "content_filter", "chain_of_note", "retrieve_read", "hybrid"] | None = None
    base: str | None = None


class Config(BaseModel):
    """The resolved configuration: the chosen parts as plain settings, checked, and the options of the whole."""

    model_config = ConfigDict(extra="forbid", strict=True)

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
    retry_errors: bool
    from_records: bool
    baseline: str | None
    confidence: Annotated[float, Field(gt=0, lt=1)]
    resamples: Positive
    clusters: bool
    runs: str
    figures: str


def load_config(overrides: Sequence[str] = ()) -> Config:
    """Compose `conf/config.yaml` with Hydra overrides such as `llm=openai` or `method.deepnote.max_step=2`.

    Raises ConfigError where an override names something unknown (with the nearest names) or has the wrong type.
    """
    if bad := [override for override in overrides if encodable(override) != override]:
        raise ConfigError(f"{bad[0]!r}: not valid UTF-8, which records need")
    composed = _compose("config", overrides)
    unrecorded = composed["llm"].pop("unrecorded", [])
    composed["llm"].pop("prompts", None)  # the set that fits this LLM: what config.prompts is where nothing else is set
    try:
        config = Config.model_validate(composed)
    except ValidationError as error:
        raise ConfigError(_problems(error, "", Config)) from None
    if other := [name for name in config.dataset if config.study.datasets and name not in config.study.datasets]:
        only = ", ".join(config.study.datasets)
        raise ConfigError(f"dataset={other[0]}: the study {config.study.name} is made of {only} alone")
    if (config.trained.data is None) != (config.trained.base is None):
        raise ConfigError(
            "trained: name both what the model was trained on and the model that it was trained from, as llm.model has "
            "that one: trained.data=dnalign trained.base=NAME"
        )
    if config.trained.base is not None and {config.trained.base} == {of.get("model") for of in _models(config)}:
        raise ConfigError(
            f"llm.model={config.trained.base}: is trained.base; give the model that was trained its own name, in "
            "llm.model or, where it answers in some stages alone, in +stages.NAME.model"
        )
    if config.study.name in unrecorded:
        raise UnrecordedError(
            f"study={config.study.name}: its responses are not recorded; run it with a model that is asked, such as "
            f"llm=openai, or with recordings of your own: llm.recordings=[FILE] llm.unrecorded=[]"
        )
    config.study.variants = {name: of for name, of in config.study.variants.items() if name not in unrecorded}
    _add_variants(config)
    for name, settings in config.dataset.items():
        _check(f"dataset.{name}", settings, then=cut)
    for name, settings in config.method.items():
        where = f"study.variants.{name}" if name in config.study.variants else f"method.{name}"
        _check(where, settings, passed=2)
        if not inspect.iscoroutinefunction(_target(settings)):
            raise ConfigError(f"{where}._target_: a method is an async function of (rag, question) and its settings")
    _check("retriever", config.retriever, passed=1)
    _check("llm", config.llm)
    for name in config.stages:
        if name not in (known := build_templates(config).names()):
            near = get_close_matches(name, known, n=3, cutoff=0.4)
            raise ConfigError(f"stages.{name}: no such stage" + (f"; did you mean {', '.join(near)}?" if near else ""))
        _check(f"stages.{name}", _stage(config, name))
    if config.baseline is not None and config.baseline not in config.method:
        raise ConfigError(
            f"baseline={config.baseline} is not among the methods {list(config.method)}; add it, name another one, or "
            "compare with none: baseline=null"
        )
    return config


def load_study(name: str, options: Sequence[str] = ()) -> Config:
    """Compose the configuration of a study, whichever one the options name. Raises ConfigError as `load_config`."""
    return load_config([f"study={name}", *(option for option in options if not option.startswith("study="))])


def _add_variants(config: Config) -> None:
    """Put the study's variants behind the methods, each with its method's settings but for its own."""
    chosen = dict(config.method)
    for name, settings in config.study.variants.items():
        where, method = f"study.variants.{name}", settings.get("method")
        if method not in choices("method"):
            near = get_close_matches(str(method), choices("method"), n=3, cutoff=0.4)
            raise ConfigError(f"{where}.method: {method!r} is no method" + (f"; did you mean {near}?" if near else ""))
        if name in chosen:
            raise ConfigError(f"{where}: a method has this name; give the variant another one")
        if method in chosen:
            config.method[name] = chosen[method] | {key: value for key, value in settings.items() if key != "method"}


def build_datasets(config: Config) -> list[Dataset]:
    """The chosen data sets, each cut by its `offset` and `limit`."""
    with _in_place():
        return [_dataset(settings) for settings in config.dataset.values()]


def _dataset(settings: Mapping[str, Any]) -> Dataset:
    arguments = _settings(settings)
    part = {name: arguments.pop(name) for name in ("offset", "limit") if name in arguments}
    return cut(_target(settings)(**arguments), **part)


def build_retriever(config: Config, corpus: Sequence[Passage]) -> Retriever:
    """The chosen retriever over `corpus`."""
    with _in_place():
        retriever: Retriever = _target(config.retriever)(corpus, **_arguments(config.retriever))
    return retriever


def build_corpora(config: Config) -> Iterator[Iterable[Passage]]:
    """The corpus of each chosen data set; a file with a passage a line is read as it is iterated, never held."""
    for name, settings in config.dataset.items():
        path = settings.get("corpus")
        if path is not None and Path(path).suffix in CorpusFile.SUFFIXES:
            yield CorpusFile(str(here() / path), f"dataset.{name}.corpus")
        else:
            with _in_place():
                corpus = _dataset(settings).corpus
            yield corpus


def build_indexed_retriever(config: Config, corpus: Iterable[Passage]) -> IndexedRetriever:
    """As `build_retriever`, over a corpus that may be a file.

    Raises ConfigError where the chosen retriever needs no `rag-notes index`.
    """
    if config.retriever["_target_"] not in INDEXED:
        raise ConfigError(
            "this retriever indexes a corpus by itself on first use, or is made of others that have a command each: "
            "rag-notes index retriever=elasticsearch, rag-notes index retriever=elasticsearch_knn"
        )
    with _in_place():
        retriever: IndexedRetriever = _target(config.retriever)(corpus, **_arguments(config.retriever))
    return retriever


def build_llm(config: Config, *, offline: bool = False) -> LLM:
    """The chosen LLM, to be entered with `async with`, with those of single stages; offline only their stores answer.

    A price comes from conf/prices.yaml where none is set.
    """
    llm = _build_llm(config.llm)
    llm.stages = {name: _build_llm(_stage(config, name)) for name in config.stages}
    if config.trained.data is not None:
        llm.trained = {"trained_on": config.trained.data, "base": config.trained.base}
    if offline:
        for each in (llm, *llm.stages.values()):
            each.base_url = None
    return llm


def _models(config: Config) -> list[dict[str, Any]]:
    """The settings of every model: the main one's, and those of stages."""
    return [config.llm, *(_stage(config, name) for name in config.stages)]


def _stage(config: Config, name: str) -> dict[str, Any]:
    """The settings of the LLM for a stage: those of the main one, but for what is set.

    Another model does not inherit what is told of the main one: the name by which it is served, and its prices.
    """
    stage = config.stages[name]
    if "_target_" in stage:
        return stage
    if stage.get("model", config.llm["model"]) == config.llm["model"]:
        return config.llm | stage
    return {key: value for key, value in config.llm.items() if key not in _OF_MODEL} | stage


def _build_llm(chosen: Mapping[str, Any]) -> LLM:
    settings = _settings(chosen)
    if settings.get("prompt_price") is None and settings.get("completion_price") is None:
        price = load_prices().get(settings["model"])
        if price is not None:
            settings |= {"prompt_price": price.prompt, "completion_price": price.completion}
    with _in_place():
        llm: LLM = _target(chosen)(**settings)
    return llm


def build_templates(config: Config) -> Templates:
    """The chosen prompt templates."""
    with _in_place():
        return Templates(config.prompts)


def build_methods(config: Config) -> dict[str, Callable[..., Awaitable[str]]]:
    """The chosen methods with their settings, by name."""
    return {name: partial(_target(settings), **_settings(settings)) for name, settings in config.method.items()}


def load_corpus(overrides: Sequence[str]) -> Callable[[], Any]:
    """Compose `conf/prepare.yaml` with overrides such as `corpus=musique`, and return the preparation to call.

    Raises ConfigError as `load_config` does.
    """
    return partial(call, load_settings("corpus", overrides, root="prepare"))


def prepared_corpus(overrides: Sequence[str]) -> CorpusFile:
    """The passages that `load_corpus` writes, or has written; raises as that does."""
    return CorpusFile(str(here() / load_settings("corpus", overrides, root="prepare")["out"]), "corpus.out")


def load_settings(group: str, overrides: Sequence[str], root: str | None = None, **check: Any) -> dict[str, Any]:
    """The checked settings of the choice of a group that overrides such as `+training=dnalign` name and change.

    `root` is the file of conf/ to compose, `check` how a target is called. Raises ConfigError as `load_config` does.
    """
    settings: dict[str, Any] = _compose(root, overrides)[group]
    _check(group, settings, **check)
    return settings


def _compose(root: str | None, overrides: Sequence[str]) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            composed = OmegaConf.to_container(compose(root, list(overrides)), resolve=True)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(explain(error, overrides)) from None
    return composed  # type: ignore[return-value] # a file of conf/ has names and values


def call(settings: Mapping[str, Any]) -> Any:
    """Call the target of settings with them."""
    with _in_place():
        return _target(settings)(**_settings(settings))


def _target(settings: Mapping[str, Any]) -> Callable[..., Any]:
    return load_target(settings.get("_target_"))


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "_target_"}


def _arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with every part among them built; one that its owner calls itself is given as a partial."""
    parameters = inspect.signature(_target(settings)).parameters
    arguments = _settings(settings)
    for name, value in arguments.items():
        if _is_part(value):
            part = partial(_target(value), **_arguments(value))
            arguments[name] = part if _passed(parameters[name].annotation) else part()
    return arguments


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and "_target_" in value


def _passed(annotation: Any) -> int:
    """With how many arguments the owner of a part calls it: those of its `Callable`; 0 where it takes what is built."""
    return len(get_args(annotation)[0]) if get_origin(annotation) is Callable else 0


def _check(where: str, settings: Mapping[str, Any], *, passed: int = 0, then: Callable[..., Any] | None = None) -> None:
    """Check settings against the annotated arguments of their target: the signature is the schema.

    The first `passed` arguments are not settings: they are given when the target is called. `then` is called with what
    the target returns and with settings of its own.
    """
    try:
        target = _target(settings)
    except TargetError as error:
        raise ConfigError(f"{where}._target_: {error}") from None
    parameters = list(inspect.signature(target).parameters.items())[passed:]
    if then is not None:
        parameters += list(inspect.signature(then).parameters.items())[1:]
    fields: dict[str, Any] = {}
    for name, parameter in parameters:
        annotation, value = parameter.annotation, settings.get(name)
        if _passed(annotation) or getattr(annotation, "_is_protocol", False):
            if isinstance(value, Mapping) and _is_part(value):
                _check(f"{where}.{name}", value, passed=_passed(annotation))
            elif name in settings:
                raise ConfigError(f"{where}.{name}: needs a part, settings with their own _target_ (given: {value!r})")
            annotation = Any
        fields[name] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
    model = create_model(where, __config__=ConfigDict(extra="forbid", strict=True), **fields)
    try:
        model.model_validate(_settings(settings))
    except ValidationError as error:
        raise ConfigError(_problems(error, f"{where}.", model)) from None


def _problems(error: ValidationError, prefix: str, model: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        text = f"{prefix}{name}: {problem['msg']} (given: {problem['input']!r})"
        if problem["type"] == "missing":
            text = f"{prefix}{name}: is required and not set"
        elif problem["type"] == "extra_forbidden":
            near = get_close_matches(name, model.model_fields, n=3, cutoff=0.4)
            text = f"{prefix}{name}: no such option" + (f"; did you mean {', '.join(near)}?" if near else "")
        lines.append(text)
    return "\n".join(lines)


@contextlib.contextmanager
def _in_place() -> Iterator[None]:
    """Relative paths in settings are those of `here`."""
    with contextlib.chdir(here()):
        yield
