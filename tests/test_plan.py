"""What a study will take is known before anything is spent, and nothing is asked to find it out."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_config
from rag_notes.running.run import run_methods
from rag_notes.studies.plan import plan
from tests.loopback import Loopback


def options(server: Loopback | None, folder: Path, *more: str) -> list[str]:
    url = "http://127.0.0.1:9/v1" if server is None else server.base_url
    llm = ["llm=openai", "llm.model=tiny", f"llm.base_url={url}", f"llm.store={folder / 'store.sqlite'}"]
    return ["dataset=mini", "limit=6", "method=[vanilla,deepnote]", "retriever.cache=null", *llm, *more]


def rows(*chosen: str) -> list[dict[str, Any]]:
    return [
        {str(name): value for name, value in row.items()}
        for row in asyncio.run(plan(load_config(list(chosen)))).table.to_dict("records")
    ]


def test_an_empty_store_is_planned_from_the_recordings(tmp_path: Path) -> None:
    vanilla, deepnote = rows(*options(None, tmp_path, "llm.prompt_price=1", "llm.completion_price=2"))
    assert (vanilla["at_most"], vanilla["expected"], vanilla["stored"], vanilla["to_make"]) == (6, 6, 0, 6)
    assert (deepnote["at_most"], deepnote["stored"], deepnote["complete"]) == (66, 0, 0)
    recorded = rows("dataset=mini", "method=[vanilla,deepnote]")[1]
    assert (recorded["complete"], recorded["to_make"], recorded["seconds"]) == (54, 0, 0)
    assert deepnote["expected"] == pytest.approx(6 * recorded["expected"] / 54)
    assert vanilla["cost"] == pytest.approx((vanilla["prompt_tokens"] + 2 * vanilla["completion_tokens"]) / 1e6, 1e-2)
    assert math.isnan(deepnote["seconds"])  # no response of this model to time by
    assert {vanilla["expected_from"], deepnote["expected_from"]} == {"mini"}


def test_what_is_stored_is_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)  # a plan needs none
    with Loopback(tmp_path / "log", judge="True") as server:
        chosen = options(server, tmp_path, f"runs={tmp_path / 'runs'}")
        asyncio.run(run_methods(load_config([*chosen, "limit=2"]), progress=False))
        requests = len(server.seen())
        planned = asyncio.run(plan(load_config(chosen)))
        assert len(server.seen()) == requests
    vanilla, deepnote = planned.table.to_dict("records")
    assert (vanilla["complete"], vanilla["stored"], vanilla["to_make"]) == (2, 2, 4)
    assert (deepnote["complete"], deepnote["stored"], deepnote["expected"], deepnote["to_make"]) == (2, 22, 66, 44)
    assert deepnote["seconds"] > 0 and deepnote["expected_from"] == "store"
    lines = [" ".join(line.split()[:8]) for line in str(planned).splitlines()]
    assert {"mini DeepNote 6 2 66 66 22 44", "all – 12 4 72 72 24 48"} <= {*lines}
    assert not (tmp_path / "runs" / "mini").exists() and len(list((tmp_path / "runs").iterdir())) == 1


def test_a_method_without_a_recording_is_planned_by_its_bound(tmp_path: Path) -> None:
    variant = "+study.variants.long={method: deepnote, max_step: 30, max_failure: 30}"
    long = rows(*options(None, tmp_path, variant))[2]
    assert (long["at_most"], long["expected"], long["stored"]) == (6 * 92, 6 * 92, 0)
    assert math.isnan(long["prompt_tokens"]) and long["expected_from"] == "bound"


@pytest.mark.parametrize("recorded", [True, False])
def test_each_noise_ratio_is_planned(tmp_path: Path, recorded: bool) -> None:
    chosen = ["study=robustness", "dataset=mini", "limit=6", "study.noise_percent=[0,100]", "baseline=null"]
    chosen += [] if recorded else options(None, tmp_path)[3:]
    planned = rows(*chosen, "method=[chain_of_note]")
    names = [("mini", "Chain-of-Note"), ("mini", "Chain-of-Note (unknown)")]
    names += [("mini-noise0", "Chain-of-Note"), ("mini-noise100", "Chain-of-Note")]
    assert [(row["dataset"], row["method"]) for row in planned] == names
    assert all(row["stored"] == (row["questions"] if recorded else 0) for row in planned)
    assert all(row["to_make"] == row["questions"] - row["stored"] for row in planned)
    assert recorded or all(row["prompt_tokens"] > 0 and row["expected_from"] == "mini" for row in planned)


@pytest.mark.parametrize(("study", "calls"), [("knowledge_density", 6 * 3), ("fair_top_k", 6 * 3)])
def test_calls_that_depend_on_others_are_said(study: str, calls: int) -> None:
    planned = asyncio.run(plan(load_config([f"study={study}", "limit=6"])))
    assert f"Further calls depend on these: at most {calls}, for " in str(planned)
