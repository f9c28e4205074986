"""What a method's file says about the method: complete, true of the function, and there for any function."""

import re
import subprocess
import sys
from functools import partial
from typing import Any, get_args

import pytest
import yaml

from rag_notes.config import build_llm, build_methods, load_config
from rag_notes.files import SHIPPED
from rag_notes.methods.about import ANSWER_FORMAT, Family, about_of, label_of, settings_of
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag
from rag_notes.methods.recomp import extract, recomp
from rag_notes.options import CONF, choices
from rag_notes.prompts.templates import SETS, Templates
from rag_notes.types import Question

METHODS = build_methods(load_config([f"method=[{','.join(choices('method'))}]"]))


def load_corpus_file(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((CONF / "corpus" / f"{name}.yaml").read_text(encoding="utf-8"))
    return settings


def test_there_is_a_configuration_of_every_method() -> None:
    assert set(load_config(["llm=openai"]).method) == set(choices("method"))


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_says_of_itself_fits_its_settings_and_the_prompts_there_are(name: str) -> None:
    method = METHODS[name]
    about, settings = about_of(method), settings_of(method)
    assert about.label
    assert about.source
    assert about.family in get_args(Family)
    assert set(about.limits) <= set(settings)
    for part in about.parts.values():
        assert part
        others = settings_of(METHODS[part["method"]]) if "method" in part else settings
        assert set(part) - {"method"} <= set(others)
    assert about.calls is not None
    assert about.calls(settings) >= 1
    assert about.prompts is not None
    assert len(set(about.prompts)) == len(about.prompts)
    for chosen in SETS:
        templates = Templates(chosen)
        assert set(about.prompts) <= set(templates.names())
        takes_form = any("{form}" in templates.text(prompt) for prompt in about.prompts)
        assert takes_form == (set(ANSWER_FORMAT) <= set(about.prompts))


def test_no_two_methods_have_the_same_label() -> None:
    labels = [about_of(method).label for method in METHODS.values()]
    assert len(set(labels)) == len(labels)
    assert about_of(METHODS["chain_of_note"]).label == "Chain-of-Note"


def test_a_setting_that_makes_another_system_has_another_label() -> None:
    assert about_of(recomp).label == "RECOMP (TF-IDF)"
    assert about_of(partial(partial(recomp, compressor="abstractive"), top_k=3)).label == "RECOMP (abstractive)"
    assert about_of(METHODS["recomp_abstractive"]).label == "RECOMP (abstractive)"


def test_the_settings_are_those_given_and_the_defaults_of_the_others() -> None:
    given = settings_of(partial(deepnote, max_step=1))
    assert given["max_step"] == 1
    assert given["max_failure"] == 2
    calls = about_of(deepnote).calls
    assert calls is not None
    assert calls(given) == 5


async def one_note(rag: Rag, question: Question, *, top_k: int = 5) -> str:
    return ""


def test_a_function_that_says_nothing_has_its_name_and_no_bounds() -> None:
    for method in (one_note, partial(one_note, top_k=3)):
        about: Any = about_of(method)
        assert about.label == "one note"
        assert (about.limits, dict(about.parts), about.calls, about.prompts) == ((), {}, None, None)
    assert about_of(extract).label == "extract"  # not the method of its file


def test_the_methods_load_neither_figures_nor_tables_nor_classifiers() -> None:
    modules = [f"rag_notes.methods.{name}" for name in METHODS if name != "recomp_abstractive"]
    code = (
        f"import sys, {', '.join(modules)}; print([m for m in ('matplotlib', 'pandas', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_crud_runs_with_two_passages_a_search_and_chunks_of_512() -> None:
    """Adaptive-Note, Retriever & Corpus."""
    config = load_config(["preset=crud"])
    assert list(config.dataset) == ["crud"]
    assert config.dataset["crud"]["corpus"] == load_corpus_file("crud")["out"]
    assert load_corpus_file("crud")["chunk_size"] == 512
    searching = {name: settings for name, settings in config.method.items() if name != "no_retrieval"}
    assert {settings["top_k"] for settings in searching.values()} == {2}
    assert "adaptive_note" in searching


def test_chain_of_note_and_its_baselines_can_decode_greedily() -> None:
    """Chain-of-Note, Appendix A.4."""
    config = load_config(["preset=greedy"])
    llm = build_llm(config)
    for name in ("chain_of_note", "chain_of_thought", "retrieve_read"):
        assert llm.of(name).sampling["temperature"] == 0.0
    assert llm.of("answer_short").sampling["temperature"] == 0.1


def test_the_study_of_robustness_offers_unknown_to_all_in_the_same_words() -> None:
    config = load_config(["study=robustness", "method=[vanilla,retrieve_read,chain_of_note]"])
    offered = [name for name, settings in config.method.items() if settings.get("unknown")]
    assert offered == ["vanilla_unknown", "retrieve_read_unknown", "chain_of_note_unknown"]


def test_the_page_of_deviations_names_settings_as_they_are_by_default() -> None:
    page = (SHIPPED / "docs" / "papers.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+: \w+)`", page))
    defaults = [settings_of(method).items() for method in METHODS.values()]
    assert named >= {"queries: joined", "max_passages: null", "filter_query: question", "reviewer_memory: false"}
    assert named <= {f"{name}: {yaml.safe_dump(value).split()[0]}" for items in defaults for name, value in items}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("vanilla", "Vanilla RAG"),
        ("deepnote_2_1", "DeepNote (2-1)"),
        ("amber_without_chunk_filter", "Amber (without chunk filter)"),
        ("recomp", "RECOMP"),  # the settings say which, not the name
        ("recomp_abstractive", "RECOMP (abstractive)"),
        ("one_note", "one note"),
        ("rag_parse", "rag parse"),  # files of no method
        ("deep<note>", "deep<note>"),
        ("a.b", "a.b"),
        ("", ""),
    ],
)
def test_a_name_is_shown_as_its_methods_label_with_what_it_adds(name: str, label: str) -> None:
    assert label_of(name) == label
