"""What studies compute from runs: their parameters, settings, the fair top-k, costs and their front, cases, noise."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.config import load_study
from rag_notes.events import Counts, searches
from rag_notes.llm.completion import Price
from rag_notes.parts import ConfigError
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, Run
from rag_notes.studies.base import RUNS_MIME, Study, study
from rag_notes.studies.case_studies import CaseStudies, pick_cases
from rag_notes.studies.cost import COSTS, Cost, on_front, with_costs
from rag_notes.studies.robustness import Robustness, paper_noise
from rag_notes.studies.thresholds import Thresholds
from rag_notes.studies.top_k import TopK
from tests.made import make_info, make_sample, row_of, search


def vary(methods: dict[str, tuple[str, dict[str, Any]]], scores: dict[str, list[float | None]]) -> Run:
    """A run of methods, each of a function with its settings, and their accuracy by question (None: failed)."""
    samples = [
        make_sample(
            method,
            f"q{number}",
            {} if score is None else {"acc": score, "f1": score / 2},
            question=f"Question <{number}>?",
            answer="" if score is None else f"answer {score:g}",
            error="no recorded response" if score is None else None,
            counts=Counts(searches=2 if method == "deep" else 1, prompt_tokens=1000, completion_tokens=100),
        )
        for method, values in scores.items()
        for number, score in enumerate(values)
    ]
    infos = {name: MethodInfo(f"made.{function}", settings) for name, (function, settings) in methods.items()}
    count = max(map(len, scores.values()))
    return Run(replace(make_info("made_up"), dataset=DatasetInfo("made_up", count, "0"), methods=infos), samples)


RUN = vary(
    {
        "vanilla": ("vanilla", {"top_k": 5}),
        "deep": ("deepnote", {"top_k": 5, "max_step": 3, "max_failure": 2}),
        "deep_1_1": ("deepnote", {"top_k": 5, "max_step": 1, "max_failure": 1}),
        "am": ("amber", {"top_k": 5, "max_iterations": 2}),
    },
    {"vanilla": [0, 1, 0, 1], "deep": [1, 1, 0, 1], "deep_1_1": [1, 0, 0, 1], "am": [0, None, None, None]},
)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dataset": "world x"}, "dataset=world x: no such dataset; there is world"),
        ({"dataset": 3}, "dataset=3: no such dataset"),
        ({"llm": 3}, "llm=3: no such llm; there is local, openai, recorded"),
        ({"limit": "many"}, r"limit: .* \(given: 'many'\)"),
        ({"limit": 0}, r"limit: .* \(given: 0\)"),
        ({"metrc": "f1"}, "cost.metrc: no such option; did you mean metric"),
        ({"metric": 1}, r"metric: Input should be a valid string \(given: 1\)"),
        ({"model_priced": "nothing"}, "model_priced: 'nothing' is not in conf/prices.yaml"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_in_one_line(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        asyncio.run(study("cost", **parameters))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("costs", {}, "no such study; there is cost"),
        ("quickstart", {}, "study=quickstart: has no runs of its own; open notebooks/00_quickstart.ipynb"),
        ("fair_top_k", {"adaptive": "react"}, "adaptive: 'react' is not among"),
        ("fair_top_k", {"options": ["method=[vanilla]"]}, "method=.vanilla,amber."),
        ("top_k", {"retrievers": ["bm52"]}, "retriever=bm52: no such retriever; there is bm25"),
        ("robustness", {"options": ["study.noise_percent=[]"]}, "no noise ratio is named"),
        ("chain_of_facts", {"dataset": "mini"}, "dataset=mini: the study chain_of_facts is made of world alone"),
        ("case_studies", {"dataset": "mini", "limit": 2, "question_ids": ["q1"]}, "question_ids: mini has no 'q1'"),
    ],
)
def test_a_study_that_cannot_be_made_is_refused(
    name: str, parameters: dict[str, Any], message: str, tmp_path: Path
) -> None:
    options = parameters.pop("options", [])
    with pytest.raises(ConfigError, match=message):
        asyncio.run(study(name, f"runs={tmp_path}", *options, progress=False, **parameters))


def test_parameters_win_over_options(tmp_path: Path) -> None:
    options = ["limit=5", "method=[vanilla]", f"runs={tmp_path}"]
    results = asyncio.run(study("main_results", *options, dataset=["mini", "world"], limit=2, progress=False))
    assert [(run.dataset, len(run.frame())) for run in results.runs] == [("mini", 2), ("world", 2)]
    assert asyncio.run(study("main_results", *options, dataset="mini", progress=False)).runs[0].dataset == "mini"


def test_a_study_shows_its_runs_and_counts_missing_answers(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    noisy = replace(RUN.only(["vanilla"]).info, condition=Condition(noise_percent=40), status=evil)
    results = Study(load_study("main_results", [f"figures={tmp_path}"]), [RUN, Run(noisy, RUN.of("vanilla")[:3])])
    overview = results.overview()
    assert overview[["condition", "answers", "missing", "status"]].values.tolist() == [
        ["", 16, 3, "finished"],
        ["noise40", 3, 1, evil],
    ]
    assert results._repr_mimebundle_() == {RUNS_MIME: {"missing": 4}}
    assert "<script>" not in results._repr_html_()
    assert repr(results).startswith("main_results\n")
    assert results.diagnostics()["errors"].tolist() == ["0", "0", "0", "3", "0"]


def test_an_ablated_method_is_tested_against_the_whole_one(tmp_path: Path) -> None:
    options = [f"runs={tmp_path}", "limit=3", "resamples=100", "method=[vanilla,deepnote]"]
    table = asyncio.run(study("ablation", *options, progress=False)).table()
    assert set(table["whole"]) == set(table["baseline"]) == {"deepnote"}
    assert set(table["method"]) == {"vanilla", "deepnote", "deepnote_without_adaptive_retrieval"}


def test_thresholds_are_named_as_in_the_papers() -> None:
    names = {"vanilla": "vanilla", "deep": "deepnote", "deep_1_1": "deepnote_1_1", "am": "amber_2"}
    frame = RUN.frame().replace({"method": names})
    info = replace(RUN.info, methods={names[name]: method for name, method in RUN.info.methods.items()})
    config = load_study("thresholds", ["resamples=100", "method=[vanilla,deepnote,amber]"])
    points = Thresholds(config, [replace(RUN, info=info, table=frame)]).points("acc").set_index("method")
    assert points["setting"].to_dict() == {
        **{"amber_2": "2", "deepnote_1_1": "1-1", "deepnote": "3-2", "vanilla": "Vanilla RAG"}
    }
    assert (points["mean"]["deepnote"], points["searches_mean"]["deepnote"]) == (75, 2)


def test_the_fair_k_is_the_mean_number_of_passages_that_the_adaptive_method_read(tmp_path: Path) -> None:
    options = [f"runs={tmp_path}", "resamples=100"]
    fair_top_k = asyncio.run(study("fair_top_k", *options, dataset="mini", limit=8, progress=False))
    (run,) = fair_top_k.runs
    table = fair_top_k.table()
    fair = max(5, round(row_of(table, method="adaptive_note", metric="f1")["passages"]))
    ks = sorted({5, (5 + fair) // 2, fair, fair + 2})
    assert run.methods == ["vanilla", "adaptive_note", *(f"vanilla_k{k}" for k in ks)]
    assert [run.info.methods[f"vanilla_k{k}"].settings["top_k"] for k in ks] == ks
    assert max(len(searches(sample.trace)[0].hits) for sample in run.of(f"vanilla_k{fair}")) == fair
    assert set(table["baseline"]) == {"adaptive_note"}


def test_each_number_of_passages_is_compared_with_the_baseline_that_has_as_many() -> None:
    ks = {"vanilla": 5, "deep": 5, "vanilla_k3": 3, "deep_k3": 3, "deep_k7": 7}
    run = vary({name: (name.partition("_")[0], {"top_k": k}) for name, k in ks.items()}, {name: [0, 1] for name in ks})
    top_k = TopK(load_study("top_k", ["resamples=100"]), [run, run], {"bm25": [run], "other": [run]})
    table = top_k.table().query("metric == 'f1' and retriever == 'bm25'").set_index("method")
    assert table["baseline"].to_dict() == {
        **{"vanilla": "vanilla", "deep": "vanilla", "deep_k7": ""},
        **{"vanilla_k3": "vanilla_k3", "deep_k3": "vanilla_k3"},
    }
    assert set(top_k.table()["line"]) == {"vanilla, bm25", "vanilla, other", "deep, bm25", "deep, other"}


def test_the_front_is_what_no_other_method_beats_in_both() -> None:
    front = on_front(pd.Series([1.0, 2.0, 2.0, 3.0, 1.0]), pd.Series([0.2, 0.5, 0.4, 0.5, 0.2]))
    assert front.tolist() == [True, True, False, False, True]  # the second beats the third and fourth


def test_answers_cost_their_tokens_where_the_model_has_no_price() -> None:
    frame = with_costs(RUN.frame(), Price(1.0, 10.0), Price(2000.0, 50000.0))
    assert frame["cost"].tolist() == pytest.approx([0.002] * 16)
    assert frame["computing"].tolist() == pytest.approx([1000 * 0.002 + 100 * 0.05] * 16)
    priced = with_costs(RUN.frame().assign(cost=7.0), Price(1.0, 1.0), Price(1.0, 1.0))
    assert set(priced["cost"]) == {7.0}


def test_costs_stand_beside_the_score() -> None:
    run = replace(RUN, table=with_costs(RUN.frame(), Price(1.0, 10.0), Price(1.0, 1.0)))
    table: Any = Cost(load_study("cost", ["resamples=100"]), [run], "acc").table().set_index("method")
    assert table.loc["deep", [COSTS["cost"][0], "mean", "n"]].tolist() == [2.0, 75.0, 4]
    assert table["front"].to_dict() == {"am": False, "deep": True, "deep_1_1": False, "vanilla": False}


def test_methods_at_equal_tokens_by_hand() -> None:
    acc: dict[str, list[float | None]] = {
        **{"vanilla": [0, 0, 0, 1, 0, 0, 0, 0], "vote_3": [1, 0, 0, 1, 0, 0, 0, 0]},
        **{"vote_5": [1, 1, 0, 1, 0, 0, 0, 0], "deepnote": [1] * 8, "none": [0] * 8},
    }
    samples = {"vanilla": 1, "vote_3": 3, "vote_5": 5}
    methods = {name: ("vanilla", {"samples": samples[name]}) if name in samples else (name, {}) for name in acc}
    run = vary(methods, acc)
    tokens = {"vanilla": 10, "vote_3": 30, "vote_5": 50, "deepnote": 45, "none": 5}
    run = replace(run, table=run.frame().assign(tokens=lambda frame: frame["method"].map(tokens)))
    table = Cost(load_study("cost"), [run], "acc").equal_tokens()
    assert list(table["method"]) == ["deepnote"]  # no vote is as cheap as the other one
    row = row_of(table, method="deepnote")
    assert (row["vote"], row["samples"], row["tokens"], row["vote_tokens"], row["n"]) == ("vote_3", 3, 45, 30, 8)
    # Better on six questions, worse on none: two of 2^6 patterns.
    assert (row["difference"], row["p"], row["p_holm"]) == (0.75, 2 / 64, 2 / 64)
    assert row["low"] > 0


def test_cases_are_picked_by_correctness() -> None:
    frame = RUN.frame()
    assert pick_cases(frame) == ["q0", "q1", "q3"]  # two, two and three of four are right; none of q2
    assert pick_cases(frame, 1) == ["q0"]
    assert pick_cases(frame[frame["method"] == "am"]) == ["q0", "q1", "q2", "q3"]
    table = CaseStudies(load_study("case_studies"), [RUN], ["q0", "q1"]).answers()
    assert [table.loc["q0", "deep"], table.loc["q0", "vanilla"]] == ["right: answer 1", "wrong: answer 0"]
    assert table.loc["q1", "am"] == "error: no recorded response"


def noisy(percent: int, scores: dict[str, list[float | None]], passages: str) -> Run:
    """A run of methods with these F1 scores (None: failed), which read these passages; g and h are gold."""
    samples = []
    for method, values in scores.items():
        for number, score in enumerate(values):
            metrics = {} if score is None else {"f1": score, "all_gold_first": float({"g", "h"} <= set(passages))}
            trace = [search("?", name, f"Text of {name}.", name) for name in passages]
            hits = [hit for event in trace for hit in event.hits]
            sample = make_sample(method, f"q{number}", metrics, error="gone" if score is None else None)
            question = replace(sample.question, gold_ids=("g", "h"))
            samples.append(replace(sample, question=question, trace=[replace(trace[0], hits=hits)]))
    return Run(make_info("made", list(scores), condition=Condition(percent)), samples)


CLEAN = noisy(0, {"vanilla": [1, 1, 1, 1], "chain_of_note": [1, 1, 1, None]}, "gh")
NOISY = noisy(100, {"vanilla": [0, 0, 0, 1], "chain_of_note": [1, 1, 0, 0]}, "xy")


def test_scores_by_noise_and_the_passages_behind_them() -> None:
    robustness = Robustness(load_study("robustness", ["resamples=100"]), [NOISY, CLEAN])
    f1: Any = robustness.table().query("metric == 'f1'").set_index(["noise_percent", "method"])
    assert set(f1["dataset"]) == {"made"}
    assert f1["mean"].tolist() == [1.0, 1.0, 0.25, 0.5]
    assert f1["n"].tolist() == [4, 3, 4, 4]
    passages: Any = robustness.passages().set_index(["noise_percent", "method"])
    columns = ["gold", "noise", "all_gold", "questions"]
    assert passages.loc[(0, "chain_of_note"), columns].tolist() == [2, 0, 1, 3]
    assert passages.loc[(100, "vanilla"), columns].tolist() == [0, 2, 0, 4]


def test_a_loss_is_paired_by_question_and_stands_beside_the_papers() -> None:
    losses: Any = Robustness(load_study("robustness", ["resamples=100"]), [NOISY, CLEAN]).losses().set_index("method")
    assert losses.loc["vanilla", ["change", "n"]].tolist() == [-0.75, 4]
    assert losses.loc["chain_of_note", ["change", "n"]].tolist() == [pytest.approx(-1 / 3), 3]
    assert losses.loc["vanilla", "p"] == 0.25  # 2 of the 8 sign patterns of three losses
    # Table 3 of Chain-of-Note: its average F1 is 77.06 without noise and 57.55 with nothing else; it has no vanilla.
    assert losses.loc["chain_of_note", "paper"] == pytest.approx((57.55 - 77.06) / 100)
    assert math.isnan(losses.loc["vanilla", "paper"])
    assert paper_noise().groupby("method")["noise_percent"].apply(sorted).tolist() == [[0, 20, 40, 60, 80, 100]] * 2
