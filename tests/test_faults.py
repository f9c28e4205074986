"""The short form of `make torture`: runs through random faults end as a run without them, and pay nothing twice."""

from pathlib import Path

import pytest

from rag_notes.llm import faults
from tests.loopback import FAULTS
from tests.torture import METHODS, together, torture


@pytest.mark.filterwarnings("ignore:.* answered; if it is the same:RuntimeWarning")  # one of the faults
@pytest.mark.parametrize("rate", [0.3, 0.6])
def test_a_run_among_faults_ends_like_one_without(rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "PAUSES", (0.001, 0.01))
    made = torture(tmp_path, rate, seed=4, limit=2, timeout=3.0)
    assert made.answers == 2 * len(METHODS)
    assert made.faults.total() > 10
    assert len(made.faults) > len(FAULTS) // 2, "too few kinds of faults were met to tell anything"
    assert (made.same, made.twice) == (True, 0)
    if rate == 0.6:
        assert made.starts > 1, "no run had to be continued: nothing is shown of that"


def test_two_processes_on_one_store_pay_nothing_twice(tmp_path: Path) -> None:
    answered, twice, same = together(tmp_path, limit=1, rate=0.0, processes=2)
    assert answered > 10
    assert (twice, same) == (0, True)
