"""Every choice composes and fits its code; every mistake is refused with the names that would do."""

import asyncio
import inspect
from pathlib import Path

import pytest

from rag_notes.config import build_datasets, build_llm, build_methods, build_retriever, load_config
from rag_notes.files import SHIPPED, here
from rag_notes.llm.completion import Price
from rag_notes.llm.store import ResponseStore
from rag_notes.options import CONF, choices
from rag_notes.parts import ConfigError
from rag_notes.rates import load_prices
from rag_notes.retrieval.bm25 import BM25
from rag_notes.types import InputError
from tests.composed import composed, target

GIVEN = {"dataset": 0, "method": 2, "retriever": 1, "llm": 0}  # arguments that are no settings: rag, question, corpus
EMPTY = inspect.Parameter.empty
FILES = [path for group in GIVEN for path in sorted((CONF / group).glob("*.yaml"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}={file.stem}")
def test_every_choice_composes_and_its_target_takes_it(file: Path) -> None:
    group = file.parent.name
    settings = composed(group, file.stem)
    function = target(settings)
    del settings["_target_"]
    inspect.signature(function).bind(*[None] * GIVEN[group], **settings)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("dataset.mini.limit=0", "dataset.mini.limit: Input should be greater than or equal to 1"),
        ("dataset.mini.offset=-1", "dataset.mini.offset: Input should be greater than or equal to 0"),
        ("dataset.mini.limit=all", "dataset.mini.limit: Input should be a valid integer"),
    ],
)
def test_a_part_of_the_questions_that_cannot_be_is_refused(option: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(["dataset=mini", option])


@pytest.mark.parametrize("study", choices("study"))
def test_every_study_composes_and_has_its_notebook(study: str) -> None:
    settings = load_config([f"study={study}"]).study
    assert settings.name == study
    assert (SHIPPED / settings.notebook).is_file()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}={file.stem}")
def test_the_defaults_in_conf_are_those_of_the_signature(file: Path) -> None:
    settings = composed(file.parent.name, file.stem)
    parameters = list(inspect.signature(target(settings)).parameters.values())[GIVEN[file.parent.name] :]
    names = {parameter.name for parameter in parameters}
    if file.parent.name == "llm":  # each source of answers shows the part of the settings that it needs
        parameters = [
            p for p in parameters if p.name in settings and p.name not in ("base_url", "concurrency", "timeout")
        ]
        names &= set(settings)
    assert set(settings) - {"_target_"} == names
    # What a data set is read from has no default worth having; what was recorded is as it was recorded; a variant of a
    # method or retriever is there for its other settings.
    variant = file.parent.name in {"method", "retriever"} and file.stem != target(settings).__name__
    if file.parent.name != "dataset" and file.stem != "recorded" and not variant:
        parts = {name for name, value in settings.items() if isinstance(value, dict) and "_target_" in value}
        values = {p.name: p.default for p in parameters if p.default is not EMPTY and p.name not in parts}
        defaults = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        assert {name: settings[name] for name in defaults} == defaults


def test_a_study_adds_variants_of_the_methods_chosen_with_all_their_settings() -> None:
    variant = "+study.variants.short={method: deepnote, max_step: 1}"
    config = load_config(["method=[vanilla,deepnote]", "method.deepnote.top_k=3", variant])
    assert list(config.method) == ["vanilla", "deepnote", "short"]
    assert config.method["short"] == config.method["deepnote"] | {"max_step": 1}
    assert config.method["short"]["top_k"] == 3
    assert list(load_config(["method=[vanilla]", variant]).method) == ["vanilla"]


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("short={method: deepnot}", "study.variants.short.method: 'deepnot' is no method; did you mean deepnote"),
        ("short={max_step: 1}", "study.variants.short.method: None is no method"),
        ("vanilla={method: deepnote}", "study.variants.vanilla: a method has this name"),
        ("short={method: deepnote, max_stp: 1}", "study.variants.short.max_stp: no such option; did you mean max_step"),
        ("short={method: deepnote, max_step: x}", "study.variants.short.max_step: Input should be a valid integer"),
    ],
)
def test_a_variant_that_does_not_fit_is_refused(variant: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config([f"+study.variants.{variant}"])
    assert message in str(refused.value)


def test_what_lies_in_the_current_folder_comes_before_what_is_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = load_config(["dataset=mini"])
    assert shipped.dataset["mini"]["path"] == str(SHIPPED / "data/mini/questions.jsonl")
    assert str(SHIPPED / "data/recordings/mini.jsonl.xz") in shipped.llm["recordings"]
    own = tmp_path / "data" / "mini" / "questions.jsonl"
    own.parent.mkdir(parents=True)
    own.write_text('{"id": "mine", "question": "Who?"}\n', encoding="utf-8")
    (dataset,) = build_datasets(load_config(["dataset=mini"]))
    assert [question.id for question in dataset.questions] == ["mine"]


def test_a_notebook_opened_in_notebooks_has_the_paths_of_the_folder_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SHIPPED / "notebooks")  # where Jupyter starts its kernel
    assert here() == SHIPPED
    own = ["dataset=plain", "dataset.plain.path=data/mini/questions.jsonl", "dataset.plain.corpus=null"]
    assert build_datasets(load_config(own))[0].questions


def test_the_default_is_the_generated_world_from_recordings() -> None:
    config = load_config()
    assert list(config.dataset) == ["world"]
    assert config.llm["_target_"] == "rag_notes.llm.client.LLM"
    assert list(config.method)[-1] == "amber"
    assert set(config.method) == set(choices("method"))


def test_options_reach_what_they_name() -> None:
    config = load_config(
        [
            "dataset=[mini,musique]",
            "limit=5",
            "offset=2",
            "dataset.musique.limit=7",
            "method=[vanilla,deepnote]",
            "method.deepnote.max_step=2",
            "method.deepnote.queries=separate",
            "retriever.memory_mb=20",
            "confidence=0.9",
        ]
    )
    cuts = {name: (settings["offset"], settings["limit"]) for name, settings in config.dataset.items()}
    assert cuts == {"mini": (2, 5), "musique": (2, 7)}
    assert (config.limit, config.offset, config.confidence, config.retriever["memory_mb"]) == (5, 2, 0.9, 20)
    methods = build_methods(config)
    assert list(methods) == ["vanilla", "deepnote"]
    settings = inspect.signature(methods["deepnote"]).parameters
    assert {name: settings[name].default for name in ("top_k", "max_step", "max_failure", "queries")} == {
        "top_k": 5,
        "max_step": 2,
        "max_failure": 2,
        "queries": "separate",
    }


def test_the_parts_are_built_wherever_one_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(["dataset=mini", "limit=3", "offset=1", "retriever.cache=null"])
    (dataset,) = build_datasets(config)
    assert (dataset.name, len(dataset.questions)) == ("mini", 3)
    assert [question.id for question in dataset.questions] == ["bridge-02", "bridge-03", "bridge-04"]
    retriever = build_retriever(config, dataset.corpus)
    assert isinstance(retriever, BM25)
    assert len(retriever.search(["Carmen"], 2)[0]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["method.deepnote.max_stp=2"],
            "method.deepnote.max_stp: no such option; did you mean method.deepnote.max_step",
        ),
        (["+method.deepnote.max_stp=2"], "method.deepnote.max_stp: no such option; did you mean max_step"),
        (["llm.tempature=0.2"], "llm.tempature: no such option; did you mean llm.temperature"),
        (["limt=3"], "limt: no such option; did you mean limit"),
        (["datset=mini"], "datset: no such option; did you mean dataset"),
        (["+anything=1"], "anything: no such option"),
        (["nonsense"], "nonsense: no such option"),
        (["dataset=hotpot"], "dataset=hotpot: no such dataset; there is hotpotqa"),
        (["dataset=[mini,hotpot]"], "dataset=hotpot: no such dataset; there is hotpotqa"),
        (["method=[vanilla,deepnot]"], "method=deepnot: no such method; there is deepnote"),
        (["retriever=qqq"], "retriever=qqq: no such retriever; there is bge_base_en"),
        (["llm=opnai"], "llm=opnai: no such llm; there is openai"),
        (["study=main_result"], "study=main_result: no such study; there is main_results"),
        (["method.deepnote.max_step=two"], "method.deepnote.max_step: Input should be a valid integer (given: 'two')"),
        (["method.vanilla.top_k=3.5"], "method.vanilla.top_k: Input should be a valid integer (given: 3.5)"),
        (["method.vanilla.top_k=null"], "method.vanilla.top_k: Input should be a valid integer (given: None)"),
        (["method.deepnote.queries=both"], "Input should be 'joined' or 'separate' (given: 'both')"),
        (["dataset=mini", "dataset.mini.path=3"], "dataset.mini.path: Input should be a valid string (given: 3)"),
        (
            ["retriever=dense", "retriever.encoder.poling=cls"],
            "retriever.encoder.poling: no such option; did you mean retriever.encoder.pooling",
        ),
        (
            ["retriever=hybrid", "+retriever.second.encoder.poling=cls"],
            "retriever.second.encoder.poling: no such option; did you mean pooling",
        ),
        (["retriever=dense", "retriever.encoder.pooling=max"], "retriever.encoder.pooling: Input should be 'cls',"),
        (
            ["retriever=dense", "retriever.encoder.max_length=0"],
            "retriever.encoder.max_length: Input should be greater",
        ),
        (["retriever=dense", "retriever.encoder=bge"], "retriever.encoder: needs a part, settings with their own"),
        (["retriever=dense", "~retriever.encoder"], "retriever.encoder: is required and not set"),
        (["retriever=dense", "~retriever.encoder.model"], "retriever.encoder.model: is required and not set"),
        (["retriever=dense", "retriever.dtype=float8"], "retriever.dtype: Input should be 'float16' or 'float32'"),
        (
            ["retriever=dense", "+retriever.search_parameters.nprobe=many"],
            "retriever.search_parameters.nprobe: Input should be a valid integer (given: 'many')",
        ),
        (
            ["retriever=hybrid", "retriever.second.encoder._target_=rag_notes.nope.Encoder"],
            "retriever.second.encoder._target_: 'rag_notes.nope.Encoder' cannot be imported",
        ),
        (
            ["retriever=hybrid", "retriever@retriever.second=bge"],
            "retriever=bge: no such retriever; there is bge_base_",
        ),
        (["retriever.language=de"], "retriever.language: Input should be 'auto', 'en' or 'zh' (given: 'de')"),
        (["retriever.stemming=yes please"], "retriever.stemming: Input should be a valid boolean"),
        (["llm.temperature=hot"], "llm.temperature: Input should be a valid number (given: 'hot')"),
        (["limit=ten"], "limit: Input should be a valid integer (given: 'ten')"),
        (["method.deepnote=3"], "method.deepnote: Input should be a valid dictionary (given: 3)"),
        (["dataset=mini", "~dataset.mini.path"], "dataset.mini.path: is required and not set"),
        (["method=[]"], "method: is required and not set"),
        (
            ["method.vanilla._target_=rag_notes.methods.nope"],
            "method.vanilla._target_: 'rag_notes.methods.nope' cannot",
        ),
        (["method=[deepnote]", "baseline=vanilla"], "baseline=vanilla is not among the methods ['deepnote']; add it"),
        (["llm=openai,local"], "llm=openai,local: one is meant; a run for each of them: rag-notes run --multirun"),
        (["method=vanilla,deepnote"], "method=vanilla,deepnote: several stand in brackets: method=[vanilla,deepnote]"),
        (["dataset=mini,musique"], "dataset=mini,musique: several stand in brackets: dataset=[mini,musique]"),
        (["llm.model=\udc80"], "'llm.model=\\udc80': not valid UTF-8"),
        (
            ["trained.data=dnalign"],
            "trained: name the data and the model before training",
        ),
        (
            ["llm.model=x", "trained.data=dnalign", "trained.base=x"],
            "llm.model=x: is trained.base; name the trained model",
        ),
        (
            ["llm.model=x", "trained.data=content_filter", "trained.base=x", "+stages.amber_chunk_filter.max_tokens=9"],
            "or +stages.NAME.model of one stage",
        ),
        (["trained.data=dna"], "trained.data: Input should be 'dnalign', 'content_filter', 'chain_of_note'"),
        (["method.mine.top_k=3"], "method.mine._target_: name the function that it is, as MODULE.FUNCTION"),
    ],
)
def test_a_mistake_is_refused_with_what_would_do(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(options)
    assert message in str(error.value)
    assert len(str(error.value)) < 400


def test_one_method_alone_is_compared_with_none() -> None:
    assert load_config(["method=deepnote"]).baseline is None


def test_every_mistake_of_one_part_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(["method.deepnote.max_step=two", "method.deepnote.top_k=x"])
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == [
        "method.deepnote.top_k",
        "method.deepnote.max_step",
    ]


def test_a_table_of_prices_that_is_no_yaml_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "conf" / "prices.yaml"
    file.parent.mkdir()
    file.write_text("mine: {prompt: 1\nother: [", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r'prices\.yaml", line 2, column 6.*a line is meant such as NAME'):
        load_prices()


def test_the_price_table_is_dated_and_used_for_its_models_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not a key")
    for price in load_prices().values():
        assert 0 < price.prompt < price.completion
        assert len(price.date) == len("2024-01-31")
        assert price.source

    def price_of(*options: str) -> Price | None:
        return build_llm(load_config(["llm=openai", f"llm.store={tmp_path / 's.sqlite'}", *options])).price

    assert price_of() == Price(0.15, 0.60)
    assert price_of("llm.model=gpt-4o") == Price(2.5, 10.0)
    assert price_of("llm.prompt_price=1", "llm.completion_price=2") == Price(1, 2)
    assert price_of("llm.model=my-own") is None
    with pytest.raises(ValueError, match="max_cost needs the price of 'my-own'"):
        price_of("llm.model=my-own", "llm.max_cost=5")
    with pytest.raises(ValueError, match="set both llm"):
        price_of("llm.prompt_price=1")


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    options = ["llm=openai", f"llm.store={tmp_path / 's.sqlite'}", "llm.api_key_variable=MY_KEY"]
    with pytest.raises(InputError, match="set the environment variable MY_KEY"):
        asyncio.run(build_llm(load_config(options)).__aenter__())
    own = build_llm(load_config([*options, "llm.base_url=http://127.0.0.1:8000/v1", "llm.model=mine"]))
    assert (own.model, own.base_url) == ("mine", "http://127.0.0.1:8000/v1")


def test_recordings_are_read_and_the_network_is_forbidden(tmp_path: Path) -> None:
    ResponseStore(":memory:").export_jsonl(tmp_path / "empty.jsonl.xz")
    llm = build_llm(load_config([f"llm.recordings=[{tmp_path / 'empty.jsonl.xz'}]", "llm.model=gpt-4o"]))
    assert (llm.base_url, len(llm.store), llm.price) == (None, 0, Price(2.5, 10.0))
