"""Questions made from a corpus: a sentence is taken out of its passage and is to find it again."""

import json
from pathlib import Path

import pytest

from rag_notes import datasets
from rag_notes.cli import main
from rag_notes.types import Passage, Question

HERON = "The heron waits in the shallows. Its neck is folded like a spring. It eats fish."
TIDE = "潮水每天涨落两次，渔民们都知道。月亮的引力是主要原因，太阳也有影响。"
ALONE = "One sentence has nothing left when it is taken out. \n\n "


def corpus(folder: Path, *texts: str) -> str:
    path = folder / "passages.jsonl"
    lines = (json.dumps({"id": f"p{number}", "title": "", "text": text}) for number, text in enumerate(texts))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_a_sentence_becomes_the_question_and_the_rest_of_its_passage_the_gold(tmp_path: Path) -> None:
    data = datasets.cloze(corpus(tmp_path, HERON, ALONE), shortest=25)
    (question,) = data.questions
    taken = {"The heron waits in the shallows.", "Its neck is folded like a spring."}  # "It eats fish." is too short
    assert question.question in taken
    assert question == Question("p0", question.question, gold_ids=("p0",), type="cloze")
    (other,) = taken - {question.question}
    assert list(data.corpus) == [Passage("p0", "", f"{other} It eats fish."), Passage("p1", "", ALONE)]


def test_every_long_sentence_can_be_drawn_and_a_seed_draws_the_same_ones(tmp_path: Path) -> None:
    path = corpus(tmp_path, *[HERON] * 40)
    data = datasets.cloze(path)
    assert {question.question for question in data.questions} == {
        "The heron waits in the shallows.",
        "Its neck is folded like a spring.",
    }
    assert datasets.cloze(path) == data
    assert datasets.cloze(path, seed=1) != data


def test_chinese_sentences_end_with_their_own_full_stop(tmp_path: Path) -> None:
    data = datasets.cloze(corpus(tmp_path, TIDE), language="zh", shortest=10)
    (question,), (passage,) = data.questions, data.corpus
    assert (question.language, len(question.question) > 10, len(passage.text) > 10) == ("zh", True, True)
    assert {question.question + passage.text, passage.text + question.question} >= {TIDE}


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("p.csv", "", r"dataset.cloze.path=.*p.csv: expected a file that ends in .jsonl, .tsv or .txt"),
        ("p.jsonl", '{"id": "a", "text": "x"}\n{"id": "a"}', r"p.jsonl, line 2, field 'text'"),
        (
            "p.jsonl",
            '{"id": "a", "text": "Too short. So is this."}',
            r"p.jsonl: holds no questions; .* set dataset.cloze.path=PATH",
        ),
    ],
)
def test_a_corpus_that_makes_no_questions_is_an_error(tmp_path: Path, file: str, content: str, said: str) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(datasets.DataError, match=said):
        datasets.cloze(str(tmp_path / file))


def test_a_corpus_that_is_not_there_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone.jsonl: no such file.*dataset.cloze.path"):
        datasets.cloze(str(tmp_path / "gone.jsonl"))


def test_retrievers_are_compared_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = corpus(tmp_path, "Herons fish at dawn. Herons rest at noon.", "Owls hunt by night. Owls hear every mouse.")
    options = [f"dataset.cloze.path={path}", "dataset.cloze.shortest=10", f"retriever.cache={tmp_path}"]
    assert main(["retrieval", "dataset=cloze", *options, "--retriever", "bm25"]) == 0
    table = capsys.readouterr().out
    assert "| cloze | bm25 | 100.0 [" in table
    assert table.rstrip().endswith("| 2 | – | 0 |")
