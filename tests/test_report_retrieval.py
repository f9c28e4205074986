"""The table that compares retrievers, from hand-worked rankings and through the command."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.cli import main
from rag_notes.report.retrieval import retrieval_differences, retrieval_scores, retrieval_table
from rag_notes.types import Hit, Passage, Question

CORPUS = {
    "p1": Passage("p1", "Heron", "The heron waits for fish."),
    "p2": Passage("p2", "Oak", "Oaks drop acorns."),
    "p3": Passage("p3", "Kiln", "Fired at 1300 degrees."),
}
QUESTIONS = (
    Question("q1", "what waits", ("fish",), gold_ids=("p1",)),
    Question("q2", "what drops", ("acorns",), gold_ids=("p2", "p3")),
    Question("q3", "how hot", ("1300 degrees",), gold_titles=("Kiln",)),
    Question("q4", "unanswerable"),
)
RANKINGS = {"what waits": "p1 p2", "what drops": "p2 p1", "how hot": "p2 p3", "unanswerable": "p1 p2"}


class Given:
    """Ranks as RANKINGS says."""

    name = "given"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        return [[Hit(CORPUS[name], 1.0) for name in RANKINGS[query].split()][:top_k] for query in queries]

    def describe(self) -> dict[str, Any]:
        return {}


def test_scores_by_hand() -> None:
    found = retrieval_scores(QUESTIONS, Given(), 2)
    assert found["question_id"].tolist() == ["q1", "q2", "q3", "q4"]
    assert found["all_gold"].tolist()[:3] == [1.0, 0.0, 1.0]
    assert found["answer"].tolist()[:3] == [1.0, 1.0, 1.0]
    assert all(math.isnan(found[column][3]) for column in ("all_gold", "answer"))
    assert retrieval_scores(QUESTIONS, Given(), 1)["answer"].tolist()[:3] == [1.0, 1.0, 0.0]


def test_table_by_hand() -> None:
    """Wilson's interval of 2 of 3 is 20.8 to 93.9 %, of 3 of 3 it is 43.9 to 100 %."""
    table = retrieval_table({("birds", "given"): retrieval_scores(QUESTIONS, Given(), 2)}, 2)
    assert table.splitlines() == [
        "| data set | retriever | all-gold@2 | questions | answer@2 | questions |",
        "| --- | --- | --- | --- | --- | --- |",
        "| birds | given | 66.7 [20.8, 93.9] | 3 | 100.0 [43.9, 100.0] | 3 |",
    ]


def test_what_has_no_gold_has_no_share() -> None:
    table = retrieval_table({("birds", "given"): retrieval_scores(QUESTIONS[3:], Given())})
    assert table.splitlines()[-1] == "| birds | given | – | 0 | – | 0 |"


def test_the_command_compares_retrievers_with_their_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hybrid = f"hybrid retriever@retriever.second=bm25 retriever.second.stemming=false retriever.second.cache={tmp_path}"
    options = ["retrieval", "dataset=mini_zh", "--retriever", "bm25", "--retriever", hybrid, "--top-k", "2"]
    assert main(options) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[1] for row in rows[2:4]] == ["bm25", "hybrid"]
    assert rows[7].startswith("| mini_zh | hybrid - bm25 |")
    assert rows[0].startswith("| data set | retriever | all-gold@2 |")
    other = "bm25 retriever.stop_words=false"
    assert main(["retrieval", "dataset=mini_zh", "--retriever", "bm25", "--retriever", other]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[1] for row in rows[2:4]] == ["bm25", other]


def test_a_missing_package_ends_the_command_with_the_line_that_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["retrieval", "dataset=mini_zh", "--retriever", "dense"]) == 2
    assert "pip install 'rag-notes[dense]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retriever", "bm26"], "retriever=bm26: no such retriever; there is bm25"),
        (["--retriever", "bm25 retriever.k2=1"], "retriever.k2: no such option; did you mean retriever.k"),
        (["--top-k", "0"], "--top-k 0: must be at least 1"),
    ],
)
def test_bad_options_are_named(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert main(["retrieval", "dataset=mini_zh", *options]) == 2
    assert message in capsys.readouterr().err


def frame_of(all_gold: Sequence[float]) -> pd.DataFrame:
    ids = [f"q{number}" for number in range(len(all_gold))]
    return pd.DataFrame({"question_id": ids, "all_gold": all_gold, "answer": all_gold})


def test_retrievers_are_tested_against_each_other_by_hand() -> None:
    """b finds seven more than a and misses one of its: p = 2 (1 + 8) / 2^8; c has one more: p = 1."""
    a = [1.0] + [0.0] * 9
    b = [0.0] + [1.0] * 7 + [0.0] * 2
    c = [1.0, 1.0] + [0.0] * 8
    table = retrieval_differences({("birds", name): frame_of(of) for name, of in zip("abc", (a, b, c), strict=True)}, 2)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0][1] == "all-gold@2"
    assert [row[1] for row in rows[2:]] == ["b - a", "c - a", "c - b"]
    assert rows[2][2].startswith("60.0 [")
    assert rows[2][3:] == ["1 / 7", "10", f"{18 / 256:.3f}", f"{3 * 18 / 256:.3f}"]
    assert rows[3][3:] == ["0 / 1", "10", "1.000", "1.000"]
    # c - b: one question only c finds, six only b: 2 (1 + 7) / 2^7.
    assert rows[4][3:] == ["6 / 1", "10", f"{16 / 128:.3f}", f"{2 * 16 / 128:.3f}"]


def test_questions_without_gold_are_not_tested() -> None:
    table = retrieval_differences({("birds", name): frame_of([math.nan, math.nan]) for name in "ab"})
    assert len(table.splitlines()) == 2
