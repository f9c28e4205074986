"""Reading what models really write, one hand-made case a habit; and the prompt templates that they answer."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from rag_notes.config import build_templates, load_config
from rag_notes.methods.parse import (
    parse_choice,
    parse_final_answer,
    parse_labels,
    parse_lines,
    parse_new_question,
    parse_next_sentence,
    parse_sentences,
)
from rag_notes.prompts.templates import SETS, TemplateError, Templates, layout
from rag_notes.types import Language, Passage, Task
from tests.scripted import PROMPTS

VERDICTS: dict[str | None, list[str]] = {
    "true": [
        *('{"status": "True"}', "{'status': 'True'}", '{"status": true}', "{status: True}", '{"STATUS": "TRUE"}'),
        *('```\n{\n  "status": "True"\n}\n```', '{"status": "True.",}', '{"status": "True"', "{“status”：“True”}"),
        *("True", "**TRUE**", "True\nTrue", "状态：True", 'My verdict: {"status": "True"}. It is not False.'),
        *("The status is True because it names the town.", '{"status": "True", "reason": "what it says is not false"}'),
    ],
    "false": [
        *('```json\n{"status": "False"}\n```', '{"status": False}', '{"status": " false "}', '[{"status": "False"}]'),
        *('{"reason": "it is true that both name the town", "status": "False"}', "判断False，因为新笔记更短", "false."),
        *('{"reason": {"old": 1}, "status": "False"}', 'The note says {x} is true. {"status": "False"}'),
    ],
    None: [
        *("", "  \n", "{}", '{"status": ""}', '{"status": null}', '{"status": "True or False"}', "True or False?"),
        *('Old: {"status": "False"}\nNew: {"status": "True"}', "The claim is untrue; falsehood abounds.", "一样好。"),
    ],
}
CHOICES: dict[str | None, list[str]] = {
    "A": ['{"result": "A: everybody knows it"}', "a", "A is right.", "The answer is A because everybody knows it."],
    "B": ['{"result": "b"}', "(B)", "B: one fact", "**B**", "判断B，因为只查一个事实", "It takes one fact, so B."],
    "C": ["```json\n{'result': 'C'}\n```", '{"reason": "B was close", "result": "C"}', "C.", "Label: C"],
    None: [
        *("It takes a lookup of one fact.", "A lookup is needed.", "Hard to say. A Chinese town is meant."),  # articles
        *("A and B", '{"result": "A"}\n{"result": "C"}', '{"result": "A or B"}', '{"result": "D"}', '{"label": null}'),
        *("A-levels, vitamin-C and B2", ""),
    ],
}


@pytest.mark.parametrize(
    ("text", "choices", "field", "choice"),
    [
        *((text, ("true", "false"), "status", choice) for choice in VERDICTS for text in VERDICTS[choice]),
        *((text, ("A", "B", "C"), "result", choice) for choice in CHOICES for text in CHOICES[choice]),
    ],
)
def test_a_choice_is_read_leniently_and_never_guessed(
    text: str, choices: tuple[str, ...], field: str, choice: str | None
) -> None:
    assert parse_choice(text, choices, field) == choice


def test_a_choice_comes_back_as_it_was_offered_and_from_its_own_field() -> None:
    assert parse_choice("USELESS", ("useful", "Useless")) == "Useless"
    assert parse_choice('{"grade": 2, "result": 0}', ("0", "1", "2"), field="grade") == "2"
    assert parse_choice("useful, not useless", ("useful", "useless")) is None
    assert parse_choice("partly", ("partly", "partly [sic]")) == "partly"


UNCHANGED = [
    *('Who sang "Yesterday"?', '"Carmen" was written by whom?', "**Who** built it?", "1.5 million people live where?"),
    *("1984 was written by whom?", "-5 degrees were measured where?"),
]
PARIS = [
    *("The notes say so.\nfinal answer: <Paris>", "FINAL ANSWER : Paris", "**Final answer**: Paris"),
    *("**Final answer:** Paris", "Final answer: ** <Paris> **", "__Final answer:__ `Paris`", "### Final answer\nParis"),
    *("## **Final Answer**\n\n**Paris**", "Therefore, the final answer is: Paris", "Final answer: <Paris>."),
    *("Final answer: <Paris> (passage 1)", "Final answer: Rome\nFinal answer: Paris", "所以最终答案是：Paris"),
]
READ: dict[Any, list[tuple[str, Any]]] = {
    parse_lines: [  # bullets, numbers, stars and quotes go, and nothing of the text
        ("Who built it?\n\n  - Where?  \n", ["Who built it?", "Where?"]),
        ("1. Who?\n2) Where?\n(3) When?\n10.Why?", ["Who?", "Where?", "When?", "Why?"]),
        ("* Where?\n• When?\n**1. Who?**\n**Where?**", ["Where?", "When?", "Who?", "Where?"]),
        ('"Who?"\n1、谁写的？\n2. “在哪里？”', ["Who?", "谁写的？", "在哪里？"]),
        (" \n\t\n", []),
        *((text, [text]) for text in UNCHANGED),
    ],
    parse_final_answer: [  # what follows the last marker
        *((text, "Paris") for text in PARIS),
        ("Final answer: 3 < 5", "3 < 5"),
        ("Final answer: 10:30", "10:30"),
        ("**最终答案：**巴黎", "巴黎"),
        ("Final answer: The first.\nThe second.\n\nThe third.", "The first.\nThe second.\n\nThe third."),
        ("Final answer: <The first.\nThe second.>", "The first.\nThe second."),
        *((text, None) for text in ("Final answer: Paris\nFinal answer:", "Final answer: <>", "Final answer: **  **")),
        *((text, None) for text in ("Paris", "My final answer would need more passages.", "")),
    ],
    parse_new_question: [  # the line behind the last marker
        ("What is missing is his town.\nNew question: Where?", "Where?"),
        ("**New question:** Where?\nThat is what is missing.", "Where?"),
        ("new question : <Where?>", "Where?"),
        ("New question:\n1. Where?\n2. When?", "Where?"),
        ('New question: Who?\nBetter:\nNew question: "Where?"', "Where?"),
        ("新问题：他出生在哪里？", "他出生在哪里？"),
        *((text, None) for text in ("New question:", "A new question would be where he was born.")),
    ],
    parse_labels: [  # the two tags of each passage
        ("1. Useful, relevant, it names him", {1: (True, True)}),
        ("1) <useful><irrelevant>\n2) <useless><relevant>", {1: (True, False), 2: (False, True)}),
        ("[1] **useful**, **relevant**: it is not useless, irrelevant at first sight", {1: (True, True)}),
        ("Passage 12: useful and relevant", {12: (True, True)}),
        ("1. passage: On Ayr.\nlabel: useless, relevant\nreason: no date", {1: (False, True)}),
        ("2. useful, relevant\n2. useless, irrelevant", {2: (True, True)}),
        ("1. 有用，相关，说到了建造者\n段落2：无用、不相关", {1: (True, True), 2: (False, False)}),
        *((text, {}) for text in ("1. useful or useless, relevant or irrelevant", "1. useful", "useful, relevant", "")),
        *((text, {}) for text in ("1904 was the year. useful, relevant", "1. 没有用，无关", "1. 有用或无用，相关")),
    ],
}


@pytest.mark.parametrize(("parse", "text", "value"), [(parse, *case) for parse in READ for case in READ[parse]])
def test_what_models_write_is_read(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("Dr. Smith paid $3.5 million. He left.", "en", ["Dr. Smith paid $3.5 million.", "He left."]),
        ("J. R. R. Tolkien wrote it.", "en", ["J. R. R. Tolkien wrote it."]),
        ("no full stop\n\n  and a line of its own  ", "en", ["no full stop", "and a line of its own"]),
        ("建造者是谁？他出生在邓弗里斯。好", "zh", ["建造者是谁？", "他出生在邓弗里斯。", "好"]),
        (" \n\t\n", "en", []),
    ],
)
def test_sentences_end_at_full_stops_and_line_breaks(text: str, language: Language, sentences: list[str]) -> None:
    assert parse_sentences(text, language) == sentences
    assert parse_next_sentence(text, language) == next(iter(sentences), "")
    final = {"en": "Final answer: ", "zh": "最终答案："}[language] + text
    assert parse_next_sentence(final, language) == final.strip() or not sentences  # whole, if it has several


# Templates

OF_TRAINING = sorted(PROMPTS.glob("training/*/*.txt"))
WRITER = PROMPTS / "small" / "en" / "chain_of_note_writer.txt"  # which makes training data, worded for small models
FILES = sorted({*PROMPTS.glob("*/*/*.txt")} - {*OF_TRAINING, WRITER})


def body(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n---\n", 1)[1].strip()


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", [*FILES, *OF_TRAINING, WRITER], ids=lambda path: "/".join(path.parts[-3:]))
def test_every_template_can_be_filled_and_says_what_its_placeholders_are(path: Path) -> None:
    head, text = path.read_text(encoding="utf-8").split("\n---\n", 1)
    templates = Templates("papers" if path in OF_TRAINING else path.parents[1].name)
    language: Language = "zh" if path.parent.name == "zh" else "en"
    names = placeholders(text)
    prompt = templates.fill(path.stem, language, {name: f"<<{name}>>" for name in names})
    assert prompt == re.sub(r"\{(\w+)\}", r"<<\1>>", text.strip())
    assert {name for name in names if f"{name}:" not in head} == set()


def test_every_set_has_the_same_templates_with_the_same_placeholders_in_both_languages() -> None:
    paths = [(PROMPTS / name / language).glob("*.txt") for name in SETS for language in get_args(Language)]
    prompts = [{path.stem: placeholders(body(path)) for path in folder if path in FILES} for folder in paths]
    assert all(each == prompts[0] for each in prompts)
    assert sum(map(len, prompts)) == len(FILES)
    papers, small = Templates("papers"), Templates("small")
    assert (papers.names(), small.text(WRITER.stem)) == (small.names(), body(WRITER))
    assert placeholders(papers.text(WRITER.stem)) == placeholders(body(WRITER))


def test_values_are_laid_out_as_text_and_braces_in_them_are_not_filled_in_turn() -> None:
    assert [layout("as it is\n"), layout(["Who?", "Where?"]), layout([])] == ["as it is\n", "Who?\nWhere?", "(none)"]
    passages = [Passage("1", "Thomas Telford", "He was born in Glendinning."), Passage("2", "", "No title.")]
    filled = Templates().fill("answer_short", "en", {"context": passages, "question": "Where?"})
    assert "[1] Thomas Telford\nHe was born in Glendinning.\n\n[2] \nNo title.\n\nQuestion: Where?\n" in filled
    fields: dict[str, Any] = {"question": "What is {note}?", "note": "{queries}", "queries": ["{unknown}", r"\1 \g<0>"]}
    prompt = Templates("small").fill("note_query", "en", fields)
    for line in (
        "Question: What is {note}?",
        "Note so far:\n{queries}",
        "Questions asked before:\n{unknown}\n\\1 \\g<0>",
    ):
        assert f"{line}\n" in prompt


@pytest.mark.parametrize("language", get_args(Language))
def test_the_form_of_an_answer_has_the_words_of_the_answer_prompts_and_json_is_left_alone(language: Language) -> None:
    papers, notes = Templates("papers"), {"question": "Q", "best_note": "N0", "new_note": "N1"}
    for task, prompt in itertools.product(get_args(Task), ("answer", "direct")):
        assert papers.text(f"form_{task}", language) in papers.text(f"{prompt}_{task}", language)
    for prompt in (Templates(name).fill("note_judge", language, notes) for name in SETS):
        assert {json.loads(text)["status"] for text in re.findall(r"\{[^}]*\}", prompt)} == {"True", "False"}


def test_a_folder_of_ones_own_replaces_what_it_holds_of_the_set_that_it_names(tmp_path: Path) -> None:
    write(tmp_path, "en/answer_short", "# Typed in from the paper.\n---\n\nQ: {question}\n\n{context}\n\nA:\n\n")
    own, packaged = Templates(tmp_path), Templates()
    assert own.fill("answer_short", "en", {"question": "Who?", "context": "C"}) == "Q: Who?\n\nC\n\nA:"
    assert (own.text("answer_short", "zh"), own.name) == (packaged.text("answer_short", "zh"), tmp_path.name)
    assert dict(own.hashes().items() - packaged.hashes().items()).keys() == {"en/answer_short"}
    assert len(packaged.hashes()) == len(FILES) / len(SETS) + len(OF_TRAINING)
    write(tmp_path, "base", "small\n")
    write(tmp_path, "en/answer_short", f"# Another head.\n---\n{Templates('small').text('answer_short')}\n")
    assert Templates(tmp_path).hashes() == Templates("small").hashes()  # of the prompt, not of its head


def test_a_prompt_by_a_new_name_is_for_a_method_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, "en/one_note", "# The note of my method.\n---\nNote on {question}:")
    own = Templates(tmp_path)
    assert own.fill("one_note", "en", {"question": "Who?"}) == "Note on Who?:"
    assert list(own.hashes(["note_init", "one_note"])) == ["en/note_init", "en/one_note", "zh/note_init"]
    config = load_config([f"prompts={tmp_path}", "+stages.one_note.temperature=0.0"])  # it is a stage, too
    assert build_templates(config).name == tmp_path.name
    for name, language, fields, message in (
        ("one_note", "en", {"q": "Who?"}, r"en/one_note: missing \['question'\], unknown \['q'\]"),
        ("one_note", "zh", {"question": "谁？"}, r"no prompt zh/one_note\.txt"),
        ("answer_shrt", "en", {}, r"no prompt en/answer_shrt\.txt; did you mean \['en/answer_short'"),
        ("answer_short", "en", {"passages": "", "question": "Q"}, r"missing \['context'\], unknown \['passages'\]"),
    ):
        with pytest.raises(TemplateError, match=message):
            own.fill(name, language, fields)  # type: ignore[arg-type]
    with pytest.raises(TemplateError, match="no prompt is called note_inti"):
        own.hashes(["note_inti"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("en/answer_short", "# x\n---\n{context} {passages}", r"missing \['question'\], unknown \['passages'\]"),
        ("en/answer_short", "# x\n---\n", r"missing \['context', 'question'\], unknown none"),
        ("english/answer_short", "# x\n---\n{context}", "the folder of a language is called en or zh"),
        ("en/answer_short", "{context} {question}", "lines that start with #, a line ---, then the prompt"),
        ("en/answer_short", "no comment\n---\n{context} {question}", "comment lines that start with #"),
        ("base", "smal", "'smal' is not one of the sets papers, small"),
    ],
)
def test_a_template_that_does_not_fit_is_refused_with_its_path(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(TemplateError, match=message) as error:
        Templates(tmp_path)
    assert str(error.value).startswith(f"{path}: ")
    with pytest.raises(TemplateError, match=r"no such folder, and not one of the sets papers, small; .* hold en/"):
        Templates(tmp_path / "prompts")


def test_the_set_is_that_of_the_llm_unless_another_is_chosen() -> None:
    sets = {"llm=recorded": "small", "llm=local": "small", "llm=openai": "papers", "llm=openai prompts=small": "small"}
    sets |= {"llm=openai ~llm.prompts": "papers"}  # an LLM's file that says nothing of prompts
    for options, name in sets.items():
        config = load_config(options.split())
        assert (config.prompts, build_templates(config).name, config.llm.get("prompts")) == (name, name, None)
