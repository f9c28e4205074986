"""What a study will take is known before anything is spent, and nothing is asked to find it out."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.config import load_config
from rag_notes.studies.plan import Plan, plan
from rag_notes.studies.verification import parts
from tests.loopback import Loopback


def rows(planned: Plan) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in planned.table.to_dict("records")]


def options(server: Loopback | None, folder: Path, *more: str) -> list[str]:
    url = "http://127.0.0.1:9/v1" if server is None else server.base_url
    return [
        *("dataset=mini", "limit=6", "method=[vanilla,deepnote]", "retriever.cache=null"),
        *(
            "llm=openai",
            "llm.model=tiny",
            f"llm.base_url={url}",
            f"llm.store={folder / 'store.sqlite'}",
            "llm.concurrency=4",
        ),
        *more,
    ]


def test_an_empty_store_is_planned_from_the_recordings(tmp_path: Path) -> None:
    price = ["llm.prompt_price=1", "llm.completion_price=2"]
    planned = asyncio.run(plan(load_config(options(None, tmp_path, *price))))
    vanilla, deepnote = rows(planned)
    assert (vanilla["at_most"], vanilla["expected"], vanilla["stored"], vanilla["to_make"]) == (6, 6, 0, 6)
    assert (deepnote["at_most"], deepnote["stored"], deepnote["complete"]) == (66, 0, 0)
    recorded = asyncio.run(plan(load_config(["dataset=mini", "method=[vanilla,deepnote]"])))
    assert deepnote["expected"] == pytest.approx(6 * rows(recorded)[1]["expected"] / 54)
    assert vanilla["cost"] == pytest.approx(
        (vanilla["prompt_tokens"] + 2 * vanilla["completion_tokens"]) / 1e6, rel=1e-2
    )
    assert math.isnan(deepnote["seconds"])  # no response of this model to time by
    assert 0.5 < planned.distinct < 1
    assert {row["expected_from"] for row in rows(planned)} == {"mini"}


def test_a_plan_needs_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    chosen = ["dataset=mini", "limit=2", "method=[vanilla]", "llm=openai", f"llm.store={tmp_path / 'store.sqlite'}"]
    stage = "+stages.answer_short.model=gpt-4o"
    assert main(["plan", *chosen, stage]) == 0
    printed = capsys.readouterr().out
    assert "| expected from |" in printed
    assert "mini: it is the mean of the recordings on mini" in printed
    assert main(["calls", *chosen]) == 0
    assert main(["run", *chosen, f"runs={tmp_path / 'runs'}"]) == 2
    assert "llm=openai needs a key: set the environment variable OPENAI_API_KEY" in capsys.readouterr().err


def test_what_is_stored_is_not_planned_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Loopback(tmp_path / "log", judge="True") as server:
        run = options(server, tmp_path, f"runs={tmp_path / 'runs'}", "resamples=100")
        assert main(["run", *run, "limit=2"]) == 0
        made = len(server.seen())
        half = asyncio.run(plan(load_config(run)))
        assert main(["plan", *run]) == 0
        assert len(server.seen()) == made
    vanilla, deepnote = rows(half)
    assert (vanilla["complete"], vanilla["stored"], vanilla["to_make"]) == (2, 2, 4)
    assert (deepnote["complete"], deepnote["stored"], deepnote["expected"], deepnote["to_make"]) == (2, 22, 66, 44)
    assert deepnote["seconds"] > 0
    assert deepnote["expected_from"] == "store"
    printed = capsys.readouterr().out
    assert "| mini | DeepNote | 6 | 2 | 66 | 66 | 22 | 44 |" in printed
    assert "| all |  | 12 | 4 | 72 | 72 | 24 | 48 |" in printed


def test_methods_that_share_calls_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "dataset=mini", "method=[vanilla]", "+study.variants.same={method: vanilla}"]) == 0
    assert "of the calls known of them, 50 % are distinct" in capsys.readouterr().out


def test_a_method_without_a_bound_or_recording_has_none_in_the_plan(tmp_path: Path) -> None:
    variant = "+study.variants.long={method: deepnote, max_step: 30, max_failure: 30}"
    planned = asyncio.run(plan(load_config(options(None, tmp_path, variant))))
    long = rows(planned)[2]
    assert (long["at_most"], long["expected"], long["stored"]) == (6 * 92, 6 * 92, 0)  # nothing known: the bound
    assert math.isnan(long["prompt_tokens"])
    assert long["expected_from"] == "bound"


def test_each_noise_ratio_is_planned() -> None:
    planned = asyncio.run(
        plan(load_config(["study=robustness", "dataset=mini", "limit=6", "study.noise_percent=[0,100]"]))
    )
    (questions,) = {row["questions"] for row in rows(planned) if row["dataset"] != "mini"}
    methods = ("vanilla", "retrieve_read", "chain_of_note")
    unknown = {"mini": [f"{name}_unknown" for name in methods], "mini-noise0": [], "mini-noise100": []}
    assert [(row["dataset"], row["method"], row["expected"], row["to_make"]) for row in rows(planned)] == [
        (dataset, method, number, 0)
        for dataset, number in (("mini", 6), ("mini-noise0", questions), ("mini-noise100", questions))
        for method in (*methods, *unknown[dataset])
    ]


def test_a_new_model_at_a_noise_ratio_is_planned_from_the_recordings_at_that_ratio(tmp_path: Path) -> None:
    options = ["study=robustness", "dataset=mini", "limit=6", "study.noise_percent=[100]", "method=[vanilla]"]
    model = [
        "llm=openai",
        "llm.model=tiny",
        "llm.base_url=http://127.0.0.1:9/v1",
        f"llm.store={tmp_path / 'store.sqlite'}",
    ]
    noisy = rows(asyncio.run(plan(load_config([*options, *model]))))[-1]
    assert (noisy["stored"], noisy["to_make"]) == (0, noisy["questions"])
    assert noisy["prompt_tokens"] > 0


def test_the_verification_is_planned_with_the_studies_that_it_repeats_each_method_once() -> None:
    options = ["study=verification", "dataset=mini", "limit=1"]
    planned = rows(asyncio.run(plan(*parts(load_config(options), options))))
    keys = [(row["dataset"], row["method"]) for row in planned]
    assert len(set(keys)) == len(keys)
    assert {("mini", "amber"), ("mini", "deepnote_2_1"), ("mini-noise40", "chain_of_note")} <= set(keys)
    assert sum(dataset == "mini" for dataset, _ in keys) > 20


@pytest.mark.parametrize(("study", "calls"), [("knowledge_density", 6 * 3), ("fair_top_k", 6 * 3)])
def test_calls_that_depend_on_others_are_said(study: str, calls: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"study={study}", "limit=6"]) == 0
    assert f"Further calls depend on what these give: at most {calls}, for " in capsys.readouterr().out
