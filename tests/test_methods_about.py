"""What a method's file says about the method: complete, true of the function, and there for any function."""

import subprocess
import sys
from functools import partial
from typing import Any, get_args

import pytest

from rag_notes.config import build_methods, choices, load_config
from rag_notes.methods.about import ANSWER_FORMAT, Family, about_of, settings_of
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag
from rag_notes.methods.recomp import extract, recomp
from rag_notes.prompts.templates import SETS, Templates
from rag_notes.types import Question

METHODS = build_methods(load_config())


def test_there_is_a_configuration_of_every_method() -> None:
    assert set(METHODS) == set(choices("method"))


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
