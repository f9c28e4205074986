"""The samples of real data sets, which belong to their authors and are no part of this repository.

`RAG_NOTES_SAMPLES` names their folder (default: `shared/data` beside the repository); tests that need one are skipped
where it is not there, or the sample is not. Their paths, such as `hotpotqa/dev_distractor.sample200.json`, are in the
tests. What a test asserts of a sample holds for just that sample.
"""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SAMPLES = (REPOSITORY / os.environ.get("RAG_NOTES_SAMPLES", "../shared/data")).resolve()


def samples(path: str) -> Path:
    """The file or folder at this path among the samples; skips the test where there is none."""
    found = SAMPLES / path
    if not found.exists():
        pytest.skip(f"{found} is not here (RAG_NOTES_SAMPLES names the folder of samples)")
    return found
