"""Files of training examples with their data cards: written, known by them, read again."""

import json
from pathlib import Path

import pytest

from rag_notes.training.dnalign import dnalign
from rag_notes.training.examples import (
    Example,
    Made,
    card_of,
    read_examples,
    write_examples,
)
from rag_notes.types import InputError
from tests.pairs import DNALIGN, NINE, made, rewrite


def test_the_file_is_known_by_its_card_and_the_same_every_time(tmp_path: Path) -> None:
    result = made(dnalign, DNALIGN, temperatures=NINE, top_ps=NINE)
    path = tmp_path / "folder" / "pairs.jsonl"
    card = write_examples(path, result, {"name": "dnalign"})
    written = path.read_bytes(), (tmp_path / "folder" / "pairs.jsonl.card.json").read_bytes()
    assert json.loads(written[1]) == card
    assert (card["name"], card["questions"], card["sizes"]["note_init"], card["dropped"]) == ("dnalign", 1, 1, {})
    assert write_examples(path, made(dnalign, DNALIGN, temperatures=NINE, top_ps=NINE), {"name": "dnalign"}) == card
    assert (path.read_bytes(), path.with_name("pairs.jsonl.card.json").read_bytes()) == written
    examples, read = read_examples(path, ("chosen", "rejected"))
    assert (len(examples), read) == (4, card)


def test_a_file_that_cannot_be_trained_on_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with pytest.raises(InputError, match=r"pairs\.jsonl: no such file; `rag-notes training-data` makes"):
        read_examples(path, ("chosen", "rejected"))
    with pytest.raises(InputError, match=r"no examples came of 1 questions \(note_init: \{'all the same': 1\}\)"):
        script = DNALIGN | {"note_init": "one", "answer_short": "one"}
        nothing = made(dnalign, script, temperatures=NINE, top_ps=NINE)
        nothing.dropped.pop("answer_short")
        write_examples(path, nothing, {})
    write_examples(path, made(dnalign, DNALIGN, temperatures=NINE, top_ps=NINE), {})
    with pytest.raises(InputError, match=r"line 1: has no completion, which this training needs"):
        read_examples(path, ("completion",))
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Dumfries", "Leeds"), encoding="utf-8")
    with pytest.raises(InputError, match=r"is not the file of its card pairs\.jsonl\.card\.json"):
        read_examples(path, ("chosen", "rejected"))
    rewrite(path, text.replace("note 3", "note 2"))
    with pytest.raises(InputError, match=r"pairs\.jsonl, line 2: chosen and rejected are the same"):
        read_examples(path, ("chosen", "rejected"))
    rewrite(path, "")
    with pytest.raises(InputError, match="has no examples"):
        read_examples(path, ("chosen", "rejected"))


def test_examples_with_the_line_ends_of_unicode_are_read_back(tmp_path: Path) -> None:
    path, text = tmp_path / "e.jsonl", "one\u2028two\u0085three"
    example = Example("s", "q", [{"role": "user", "content": text}], {"completion": text})
    write_examples(path, Made(questions=1, examples=[example]), {"name": "made"})
    (read,) = read_examples(path, ("completion",))[0]
    assert read["completion"][0]["content"] == text
    card_of(path).write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"e\.jsonl\.card\.json: is no JSON"):
        read_examples(path, ("completion",))
