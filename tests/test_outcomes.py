from typing import Any

import pytest

from rag_notes.report import outcome
from rag_notes.running.correctness import flags, meanings
from tests.test_report import make_sample

UNREADABLE = [{"event": "unreadable", "stage": "chain_of_note"}]
JUDGED = [{"event": "unreadable", "stage": "note_judge"}, {"event": "note", "text": "n", "kept": False}]


@pytest.mark.parametrize(
    ("metrics", "fields", "expected"),
    [
        ({"acc": 1.0, "em": 0.0, "f1": 0.4, "empty": 0.0}, {}, "right"),
        ({"acc": 0.0, "em": 0.0, "f1": 0.9, "empty": 0.0}, {}, "wrong"),
        ({"acc": 0.0, "empty": 1.0}, {"answer": " "}, "unreadable"),
        ({"yes_no_acc": 1.0, "yes_no_unread": 0.0, "empty": 0.0}, {}, "right"),
        ({"yes_no_acc": 0.0, "yes_no_unread": 0.0, "empty": 0.0}, {}, "wrong"),
        ({"yes_no_acc": 0.0, "yes_no_unread": 1.0, "empty": 0.0}, {}, "unreadable"),
        ({"str_em": 0.5, "str_hit": 0.0, "empty": 0.0}, {}, "wrong"),
        ({"str_em": 1.0, "str_hit": 1.0, "empty": 0.0}, {}, "right"),
        ({"reject": 1.0, "rejected": 1.0, "empty": 0.0}, {}, "right"),
        ({"reject": 0.0, "rejected": 0.0, "empty": 0.0}, {}, "wrong"),
        ({"empty": 0.0}, {}, "unmarked"),
        ({}, {"error": "LLMError: refused"}, "error"),
        # What a response without its marker gave is right if it is right: the counts are those of the table.
        ({"acc": 1.0, "empty": 0.0}, {"trace": UNREADABLE}, "right"),
        ({"acc": 0.0, "empty": 0.0}, {"trace": UNREADABLE}, "unreadable"),
        ({"acc": 0.0, "empty": 0.0}, {"trace": JUDGED}, "wrong"),
    ],
)
def test_outcome(metrics: dict[str, float], fields: dict[str, Any], expected: str) -> None:
    assert outcome(make_sample("m", "q", metrics, **fields)) == expected


def test_flags_are_apart_from_the_outcome() -> None:
    sample = make_sample("m", "q", {"acc": 1.0}, counts={"unreadable": 2, "truncated": 0, "empty_responses": 1})
    assert outcome(sample) == "right" and flags(sample) == ["unreadable", "empty_responses"]
    assert flags(make_sample("m", "q", {})) == []


def test_meanings_are_those_of_the_tasks_at_hand() -> None:
    short, yes_no = make_sample("m", "a", {"acc": 0.0}), make_sample("m", "b", {"yes_no_acc": 1.0})
    assert "acc = 1" in meanings([short])["right"] and "yes_no_acc" not in meanings([short])["right"]
    assert meanings([short, yes_no])["right"].count(" = 1)") == 2
    assert list(meanings([short])) == ["right", "wrong", "unreadable", "error"]
    failed = make_sample("m", "c", {}, error="no")
    assert meanings([failed])["right"] == "no answer was marked"
    assert list(meanings([short, make_sample("m", "d", {})]))[-1] == "unmarked"
