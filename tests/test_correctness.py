from typing import Any

import pytest

from rag_notes.events import Counts, Note, ParseFailure
from rag_notes.running.correctness import correctness, flags, meanings
from tests.made import make_sample

UNREAD = [ParseFailure("chain_of_note")]
JUDGED = [ParseFailure("note_judge"), Note("n", kept=False)]


@pytest.mark.parametrize(
    ("metrics", "fields", "expected"),
    [
        ({"acc": 1.0, "em": 0.0, "f1": 0.4, "empty": 0.0}, {}, "right"),
        ({"acc": 0.0, "em": 0.0, "f1": 0.9, "empty": 0.0}, {}, "wrong"),
        ({"acc": 0.0, "empty": 1.0}, {"answer": " "}, "parse failure"),
        ({"yes_no_acc": 1.0, "yes_no_unread": 0.0, "empty": 0.0}, {}, "right"),
        ({"yes_no_acc": 0.0, "yes_no_unread": 0.0, "empty": 0.0}, {}, "wrong"),
        ({"yes_no_acc": 0.0, "yes_no_unread": 1.0, "empty": 0.0}, {}, "parse failure"),
        ({"str_em": 0.5, "str_hit": 0.0, "empty": 0.0}, {}, "wrong"),
        ({"str_em": 1.0, "str_hit": 1.0, "empty": 0.0}, {}, "right"),
        ({"reject": 1.0, "rejected": 1.0, "empty": 0.0}, {}, "right"),
        ({"reject": 0.0, "rejected": 0.0, "empty": 0.0}, {}, "wrong"),
        ({"empty": 0.0}, {}, "unscored"),
        ({}, {"error": "refused"}, "error"),
        # What a response without its marker gave is right if it is right: the counts are those of the table.
        ({"acc": 1.0, "empty": 0.0}, {"trace": UNREAD}, "right"),
        ({"acc": 0.0, "empty": 0.0}, {"trace": UNREAD}, "parse failure"),
        ({"acc": 0.0, "empty": 0.0}, {"trace": JUDGED}, "wrong"),
    ],
)
def test_correctness(metrics: dict[str, float], fields: dict[str, Any], expected: str) -> None:
    assert correctness(make_sample("m", "q", metrics, **fields)) == expected


def test_flags_are_apart_from_correctness() -> None:
    sample = make_sample("m", "q", {"acc": 1.0}, counts=Counts(parse_failures=2, empty_responses=1))
    assert correctness(sample) == "right" and flags(sample) == ["parse_failures", "empty_responses"]
    assert flags(make_sample("m", "q", {})) == []


def test_meanings_are_those_of_the_tasks_at_hand() -> None:
    short, yes_no = make_sample("m", "a", {"acc": 0.0}), make_sample("m", "b", {"yes_no_acc": 1.0})
    assert "acc = 1" in meanings([short])["right"] and "yes_no_acc" not in meanings([short])["right"]
    assert meanings([short, yes_no])["right"].count(" = 1)") == 2
    assert list(meanings([short])) == ["right", "wrong", "parse failure", "error"]
    failed = make_sample("m", "c", {}, error="no")
    assert meanings([failed])["right"] == "no answer was scored"
    assert list(meanings([short, make_sample("m", "d", {})]))[-1] == "unscored"
