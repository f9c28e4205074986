"""The verification where a claim is about several data sets, or its metric is not a score of the answer alone."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rag_notes.papers.systems import system_of
from rag_notes.running.annotate import told_sha256
from rag_notes.running.quest_scores import quest_texts
from rag_notes.running.records import Condition, MethodInfo, Run
from tests.claims import changed, run_of, verdict
from tests.made import Scores, make_run


def test_an_average_weighs_its_data_sets_alike() -> None:
    def of(dataset: str, ours: Scores) -> Run:
        other = {"em": [0.0] * len(ours["em"])}
        return run_of(dataset, {"c": ("chain_of_note", "", ours), "r": ("retrieve_read", "", other)})

    runs = {
        "nq": of("nq_open", {"em": [1, 1, 1, 0]}),
        "tqa": of("triviaqa", {"em": [0] * 20}),
        "webq": of("webquestions", {"em": [1] * 2}),
    }
    claimed = {"method": "chain_of_note", "other": "retrieve_read", "dataset": "average", "metric": "em"}
    row = verdict(runs, **claimed)
    assert (row["ours"], row["n"]) == (pytest.approx(100 * (0.75 + 0 + 1) / 3), 26)
    del runs["tqa"]
    assert verdict(runs, **claimed)["reason"] == "no run of triviaqa"
    other = changed(of("triviaqa", {"em": [0]}), llm={"model": "tiny"})
    reason = "no one model, set of prompts and retriever has runs of nq_open, triviaqa, webquestions"
    assert verdict(runs | {"tqa": other}, **claimed)["reason"] == reason
    dense = changed(of("triviaqa", {"em": [0]}), retriever={"name": "dense"})
    assert verdict(runs | {"tqa": dense}, **claimed)["reason"] == reason


def test_an_average_is_of_runs_that_go_together_however_large_others_are() -> None:
    def of(dataset: str, questions: int, **info: Any) -> Run:
        right: Scores = {"em": [1.0] * questions}
        wrong: Scores = {"em": [0.0] * questions}
        methods = {"c": ("chain_of_note", "", right), "r": ("retrieve_read", "", wrong)}
        return changed(run_of(dataset, methods), **info)

    runs = {name: of(name, 8) for name in ("nq_open", "triviaqa", "webquestions")}
    larger = {"larger": of("nq_open", 9, llm={"model": "another"})}
    claimed = {"method": "chain_of_note", "other": "retrieve_read", "dataset": "average", "metric": "em"}
    row = verdict(runs | larger, **claimed)
    assert (row["verdict"], row["run"], row["n"]) == ("agrees", "nq_open, triviaqa, webquestions", 24)


def test_the_reject_rate_counts_questions_that_have_an_answer() -> None:
    scores: Scores = {"em": [1, 0, 0, 0], "rejected": [0, 1, 1, 0]}
    runs = {"a-run": run_of("realtimeqa", {"c": ("chain_of_note", "", scores)})}
    row = verdict(runs, kind="value", method="chain_of_note", dataset="realtimeqa", metric="reject", value=13.0)
    assert (row["ours"], row["n"]) == (50, 4)


def test_scores_of_ragquesteval_count_for_the_answers_they_are_about() -> None:
    system = system_of("vanilla", "", "crud")
    assert system.settings["top_k"] == 2  # the papers' setting on CRUD
    run = make_run("crud", {"vanilla": {"empty": [0.0, 0.0]}})
    run = changed(run, methods={"vanilla": MethodInfo(system.function, dict(system.settings), "0")})
    annotation = replace(
        make_run("crud", {"vanilla": {"empty": [0.0, 0.0]}}, condition=Condition(annotates="quest_eval")),
        samples=[
            replace(sample, answer=json.dumps({"scores": {"q_r": score, "t_f1": 0.25}}))
            for sample, score in zip(run.samples, (1.0, 0.0), strict=True)
        ],
    )
    about = {"sha256": told_sha256(run.samples, quest_texts)}
    annotation = changed(annotation, methods={"vanilla": MethodInfo("quest_eval", about, "0")})
    asked: dict[str, Any] = {"kind": "value", "method": "vanilla", "dataset": "crud", "metric": "q_r"}
    row = verdict({"a-run": run, "scores": annotation}, **asked)
    assert (row["ours"], row["n"], row["run"]) == (50, 2, "a-run")
    changed_answers = replace(run, samples=[replace(sample, answer="another") for sample in run.samples])
    row = verdict({"a-run": changed_answers, "scores": annotation}, **asked)
    assert row["reason"] == "the runs of crud do not have q_r"
