"""The short form of `make torture`: runs through faults and kills end as a run without them, and pay nothing twice."""

from pathlib import Path

import pytest

from tests.loopback import FAULTS
from tests.torture import torture


@pytest.mark.filterwarnings("ignore:.* answered; if it is the same:RuntimeWarning")  # one of the faults
@pytest.mark.parametrize(("rate", "processes", "kills"), [(0.3, 1, 0), (0.6, 1, 0), (0.0, 2, 0), (0.0, 2, 3)])
def test_a_run_among_faults_and_kills_ends_like_one_without(
    rate: float, processes: int, kills: int, tmp_path: Path
) -> None:
    outcome = torture(tmp_path, limit=2, rate=rate, seed=4, processes=processes, kills=kills)
    assert (outcome.same, outcome.twice) == (True, 0)
    assert outcome.answered > 20
    assert outcome.kills == kills
    assert rate == 0 or len(outcome.faults) > len(FAULTS) // 2, "too few kinds of faults were met to tell anything"
    assert outcome.starts <= 2 or rate > 0.3
