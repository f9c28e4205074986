"""Prompt templates: the package's own are consistent, a user's fit or are refused, and filling adds nothing."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from rag_notes.config import build_templates, load_config
from rag_notes.prompts.templates import PACKAGED, SETS, TemplateError, Templates, layout
from rag_notes.types import Language, Passage, Task
from tests.scripted import PROMPTS

TRAINING = sorted(PROMPTS.glob("training/*/*.txt"))
WRITERS = [path for path in PROMPTS.glob("*/*/*.txt") if path.parts[-3:] == ("small", "en", "chain_of_note_writer.txt")]
FILES = sorted(path for path in PROMPTS.glob("*/*/*.txt") if path not in TRAINING + WRITERS)


def body(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n---\n", 1)[1].strip()


def placeholders(text: str) -> set[str]:
    return {match[1] for match in re.finditer(r"\{(\w+)\}", text)}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def name_of(path: Path) -> str:
    return str(path.relative_to(PROMPTS).with_suffix(""))


@pytest.mark.parametrize("path", FILES + TRAINING + WRITERS, ids=name_of)
def test_every_template_can_be_filled_and_says_what_its_placeholders_are(path: Path) -> None:
    language: Language = "zh" if path.parent.name == "zh" else "en"
    names = placeholders(body(path))
    templates = Templates("papers" if path in TRAINING else path.parents[1].name)
    prompt = templates.fill(path.stem, language, {name: f"<<{name}>>" for name in names})
    assert all(prompt.count(f"<<{name}>>") == body(path).count("{" + name + "}") > 0 for name in names)
    assert not placeholders(prompt)
    head = path.read_text(encoding="utf-8").split("\n---\n", 1)[0]
    assert {name for name in names if f"{name}:" not in head} == set()


def test_every_set_has_the_same_templates_with_the_same_placeholders_in_both_languages() -> None:
    found = {
        path: {file.stem: placeholders(body(file)) for file in path.glob("*.txt") if file in FILES}
        for path in PROMPTS.glob("*/*")
        if path.is_dir() and path.parent.name != "training"
    }
    assert {(path.parent.name, path.name) for path in found} == {(name, of) for name in SETS for of in ("en", "zh")}
    assert all(prompts == found[PROMPTS / "papers" / "en"] for prompts in found.values())
    assert sum(len(prompts) for prompts in found.values()) == len(FILES)


def test_a_prompt_that_makes_training_data_may_be_worded_for_small_models() -> None:
    (writer,) = WRITERS
    assert Templates("small").text(writer.stem) == body(writer)
    assert Templates("papers").text(writer.stem) == body(PROMPTS / "training" / "en" / writer.name)
    assert placeholders(Templates("small").text(writer.stem)) == placeholders(Templates("papers").text(writer.stem))
    assert set(Templates("small").names()) == set(Templates("papers").names())


def test_the_same_answer_prompt_takes_passages_and_notes() -> None:
    passages = [Passage("1", "Thomas Telford", "He was born in Glendinning."), Passage("2", "", "No title.")]
    fields = {"question": "Where?"}
    laid_out = "[1] Thomas Telford\nHe was born in Glendinning.\n\n[2] \nNo title."
    filled = Templates().fill("answer_short", "en", {"context": passages, **fields})
    assert filled == Templates().fill("answer_short", "en", {"context": laid_out, **fields})
    assert laid_out + "\n\nQuestion: Where?\n" in filled


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("task", get_args(Task))
def test_prompts_that_end_otherwise_ask_for_an_answer_in_the_words_of_the_answer_prompts(
    task: Task, language: Language
) -> None:
    papers = Templates("papers")
    form = papers.text(f"form_{task}", language)
    assert form in papers.text(f"answer_{task}", language)
    assert form in papers.text(f"direct_{task}", language)


def test_values_are_laid_out_as_text() -> None:
    assert layout("as it is\n") == "as it is\n"
    assert layout(["Who?", "Where?"]) == "Who?\nWhere?"
    assert layout([]) == layout((), "en") == "(none)"
    assert layout([], "zh") == "（无）"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("chosen", SETS)
def test_json_in_a_prompt_is_left_alone(chosen: str, language: Language) -> None:
    prompt = Templates(chosen).fill("note_judge", language, {"question": "Q", "best_note": "N0", "new_note": "N1"})
    assert {json.loads(found)["status"] for found in re.findall(r"\{[^}]*\}", prompt)} == {"True", "False"}


def test_braces_in_a_value_are_not_filled_in_turn() -> None:
    fields = {"question": "What is {note}?", "note": "{queries} and {question}", "queries": ["{unknown}", r"\1 \g<0>"]}
    prompt = Templates("small").fill("note_query", "en", fields)
    assert "Question: What is {note}?\n" in prompt
    assert "Note so far:\n{queries} and {question}\n" in prompt
    assert "Questions asked before:\n{unknown}\n\\1 \\g<0>\n" in prompt


def test_an_unknown_prompt_or_field_is_refused_by_name() -> None:
    templates = Templates()
    with pytest.raises(TemplateError, match=r"no prompt en/answer_shrt\.txt; did you mean \['en/answer_short'"):
        templates.fill("answer_shrt", "en", {})
    with pytest.raises(TemplateError, match=r"en/answer_short: missing \['context'\], unknown \['passages'\]"):
        templates.fill("answer_short", "en", {"passages": [], "question": "Q"})
    with pytest.raises(TemplateError, match=r"en/answer_short: missing none, unknown \['more'\]"):
        templates.fill("answer_short", "en", {"context": "", "question": "Q", "more": ""})


def test_a_folder_of_ones_own_replaces_what_it_holds(tmp_path: Path) -> None:
    write(tmp_path, "en/answer_short", "# Typed in from the paper.\n---\n\nQ: {question}\n\n{context}\n\nA:\n\n")
    own, packaged = Templates(tmp_path), Templates()
    assert own.fill("answer_short", "en", {"question": "Who?", "context": "C"}) == "Q: Who?\n\nC\n\nA:"
    fields = {"question": "谁？", "context": "C"}
    assert own.fill("answer_short", "zh", fields) == packaged.fill("answer_short", "zh", fields)
    differ = {name for name, digest in own.hashes().items() if packaged.hashes()[name] != digest}
    assert differ == {"en/answer_short"}
    assert len(packaged.hashes()) == len(FILES) / len(SETS) + len(TRAINING)
    assert (own.name, packaged.name) == (tmp_path.name, "papers")


def test_what_a_folder_lacks_comes_from_the_set_that_it_names(tmp_path: Path) -> None:
    write(tmp_path, "en/answer_short", "# x\n---\n{question} {context}")
    (tmp_path / "base.txt").write_text("small\n", encoding="utf-8")
    own, small = Templates(tmp_path).hashes(), Templates("small").hashes()
    assert {name for name in own if own[name] != small[name]} == {"en/answer_short"}
    (tmp_path / "base.txt").write_text("smal", encoding="utf-8")
    with pytest.raises(TemplateError, match=r"base\.txt: 'smal' is not one of the sets papers, small"):
        Templates(tmp_path)


def test_a_prompt_by_a_new_name_is_for_a_method_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, "en/one_note", "# The note of my method.\n---\nNote on {question}:")
    own = Templates(tmp_path)
    assert own.fill("one_note", "en", {"question": "Who?"}) == "Note on Who?:"
    assert "one_note" in own.names()
    with pytest.raises(TemplateError, match=r"en/one_note: missing \['question'\], unknown \['q'\]"):
        own.fill("one_note", "en", {"q": "Who?"})
    with pytest.raises(TemplateError, match=r"no prompt zh/one_note\.txt"):
        own.fill("one_note", "zh", {"question": "谁？"})


def test_the_hashes_can_be_those_of_some_prompts_alone(tmp_path: Path) -> None:
    write(tmp_path, "en/one_note", "# x\n---\n{question}")
    own = Templates(tmp_path)
    some = own.hashes(["note_init", "one_note"])
    assert list(some) == ["en/note_init", "en/one_note", "zh/note_init"]
    assert some.items() <= own.hashes().items()
    with pytest.raises(TemplateError, match="no prompt is called note_inti"):
        own.hashes(["note_inti"])


def test_the_hash_is_of_the_prompt_and_not_of_its_head(tmp_path: Path) -> None:
    write(
        tmp_path,
        "en/answer_short",
        f"# Another comment.\n---\n{body(PACKAGED / 'papers' / 'en' / 'answer_short.txt')}\n",
    )
    assert Templates(tmp_path).hashes() == Templates().hashes()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("en/answer_short", "# x\n---\n{context} {passages}", r"missing: \['question'\], unknown: \['passages'\]"),
        ("en/answer_short", "# x\n---\n{context} {question} {note}", r"missing: none, unknown: \['note'\]"),
        ("en/answer_short", "# x\n---\n", r"missing: \['context', 'question'\], unknown: none"),
        ("english/answer_short", "# x\n---\n{context}", r"the folder of a language is called en or zh"),
        ("en/answer_short", "{context} {question}", "lines that start with #, a line ---, then the prompt"),
        ("en/answer_short", "no comment\n---\n{context} {question}", "comment lines that start with #"),
    ],
)
def test_a_template_that_does_not_fit_is_refused_with_its_path(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(TemplateError, match=message) as error:
        Templates(tmp_path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TemplateError, match="no such folder, and not one of the sets papers, small; a folder should hold en/"
    ):
        Templates(tmp_path / "prompts")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], "small"),  # the recorded responses are to these
        (["llm=local"], "small"),
        (["llm=openai"], "papers"),
        (["llm=openai", "~llm.prompts"], "papers"),  # an LLM's file that says nothing of prompts
        (["llm=openai", "prompts=small"], "small"),
        (["llm=recorded", "prompts=papers"], "papers"),
    ],
)
def test_the_set_is_that_of_the_llm_unless_another_is_chosen(options: list[str], name: str) -> None:
    config = load_config(options)
    assert (config.prompts, build_templates(config).name) == (name, name)
    assert "prompts" not in config.llm


def test_a_folder_can_be_chosen_and_a_stage_is_a_prompt_of_the_chosen_folder(tmp_path: Path) -> None:
    write(tmp_path, "en/one_note", "# x\n---\n{question}")
    config = load_config([f"prompts={tmp_path}", "+stages.one_note.temperature=0.0"])
    assert build_templates(config).name == tmp_path.name
