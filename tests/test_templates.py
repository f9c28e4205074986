"""Prompt templates: the package's own are consistent, a user's fit or are refused, and filling adds nothing."""

import json
import re
from pathlib import Path

import pytest

from rag_notes.prompts.templates import PACKAGED, TemplateError, Templates, layout
from rag_notes.types import Language, Passage
from tests.scripted import PROMPTS

FILES = sorted(PROMPTS.glob("*/*.txt"))


def body(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n---\n", 1)[1].strip()


def placeholders(text: str) -> set[str]:
    return {match[1] for match in re.finditer(r"\{(\w+)\}", text)}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_template_can_be_filled_and_says_what_its_placeholders_are(path: Path) -> None:
    language: Language = "zh" if path.parent.name == "zh" else "en"
    names = placeholders(body(path))
    prompt = Templates().fill(path.stem, language, {name: f"<<{name}>>" for name in names})
    assert all(prompt.count(f"<<{name}>>") == body(path).count("{" + name + "}") > 0 for name in names)
    assert not placeholders(prompt)
    head = path.read_text(encoding="utf-8").split("\n---\n", 1)[0]
    assert {name for name in names if f"{name}:" not in head} == set()


def test_english_and_chinese_have_the_same_templates_with_the_same_placeholders() -> None:
    english, chinese = (
        {path.stem: placeholders(body(path)) for path in FILES if path.parent.name == name} for name in ("en", "zh")
    )
    assert english == chinese
    assert {path.parent.name for path in FILES} == {"en", "zh"}


def test_the_same_answer_prompt_takes_passages_and_notes() -> None:
    passages = [Passage("1", "Thomas Telford", "He was born in Glendinning."), Passage("2", "", "No title.")]
    fields = {"question": "Where?"}
    laid_out = "[1] Thomas Telford\nHe was born in Glendinning.\n\n[2] \nNo title."
    filled = Templates().fill("answer_short", "en", {"context": passages, **fields})
    assert filled == Templates().fill("answer_short", "en", {"context": laid_out, **fields})
    assert filled.startswith(laid_out + "\n\nQuestion: Where?\n")


def test_values_are_laid_out_as_text() -> None:
    assert layout("as it is\n") == "as it is\n"
    assert layout(["Who?", "Where?"]) == "Who?\nWhere?"
    assert layout([]) == layout((), "en") == "(none)"
    assert layout([], "zh") == "（无）"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_json_in_a_prompt_is_left_alone(language: Language) -> None:
    prompt = Templates().fill("note_judge", language, {"question": "Q", "best_note": "N0", "new_note": "N1"})
    assert {json.loads(found)["status"] for found in re.findall(r"\{[^}]*\}", prompt)} == {"True", "False"}


def test_braces_in_a_value_are_not_filled_in_turn() -> None:
    fields = {"question": "What is {note}?", "note": "{queries} and {question}", "queries": ["{unknown}", r"\1 \g<0>"]}
    prompt = Templates().fill("note_query", "en", fields)
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
    assert len(packaged.hashes()) == len(FILES)


def test_the_hash_is_of_the_prompt_and_not_of_its_head(tmp_path: Path) -> None:
    write(tmp_path, "en/answer_short", f"# Another comment.\n---\n{body(PACKAGED / 'en' / 'answer_short.txt')}\n")
    assert Templates(tmp_path).hashes() == Templates().hashes()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("en/answer_short", "# x\n---\n{context} {passages}", r"missing: \['question'\], unknown: \['passages'\]"),
        ("en/answer_short", "# x\n---\n{context} {question} {note}", r"missing: none, unknown: \['note'\]"),
        ("en/answer_short", "# x\n---\n", r"missing: \['context', 'question'\], unknown: none"),
        ("en/answer_shrt", "# x\n---\n{context} {question}", r"'en/answer_shrt'; did you mean \['en/answer_short'"),
        ("english/answer_short", "# x\n---\n{context}", r"no prompt is called 'english/answer_short'"),
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
    with pytest.raises(TemplateError, match="no such folder; it should hold en/answer_short"):
        Templates(tmp_path / "prompts")
