"""Scores as notebooks, terminals and pages show them."""

from dataclasses import replace
from pathlib import Path

import pytest

from rag_notes.cli import main
from rag_notes.events import Counts
from rag_notes.report.cells import dataset_label
from rag_notes.report.scores import differences_markdown, scores_markdown
from rag_notes.report.scores_table import ScoresTable, in_lines, readable
from rag_notes.report.tables import RESULT_METRICS, RETRIEVAL_METRICS, counts, diagnostics, results
from rag_notes.running.records import Condition, Run
from rag_notes.types import InputError
from tests.claims import save
from tests.made import Scores, make_info, make_run, make_sample, shown_cell


def test_scores_table_in_html() -> None:
    run = make_run("<b>", {"vanilla": {"em": [0.0] * 10}, "deep<note>": {"em": [1.0] * 9 + [None]}})
    table = results([run])
    # Wilson's bounds for 0 of 10 and 9 of 9: 3.8415 / 13.8415 and 9 / 12.8415
    assert shown_cell(table, "vanilla", ("<b>", "EM")) == "0.0 [0.0, 27.8]"
    assert shown_cell(table, "deep<note>", ("<b>", "EM")) == "100.0 [70.1, 100.0]* n = 9"
    page = ScoresTable(table).to_html()
    assert page.index("Vanilla RAG") < page.index("deep&lt;note&gt;")
    assert "deep&lt;note&gt;" in page and "deep<note>" not in page
    assert page == ScoresTable(results([run])).to_html()
    for said in ("95 %", "9 to 10", "differs from Vanilla RAG", "p < 0.05", "Wilson", "sign-flip", "Holm"):
        assert said in page


def test_scores_table_of_a_terminal_by_hand(toy: Run) -> None:
    assert repr(ScoresTable(results([toy]))).splitlines()[:13] == [
        "data set                     toy",
        "metric                        EM                    F1   Avg.",
        "questions                  n = 5                 n = 5  n = 5",
        "method",
        "No retrieval                 0.0                  20.0   10.0",
        "                     [0.0, 43.4]           [0.0, 40.0]",
        "Vanilla RAG                 20.0                  30.0   25.0",
        "                     [3.6, 62.4]           [0.0, 80.0]",
        "DeepNote                    75.0                  80.0   77.5",
        "              [30.1, 95.4] n = 4  [40.0, 100.0]† n = 4  n = 4",
        "",
        "data set                        toy",
        "metric       All gold, first search",
    ]


def test_scores_table_has_one_group_of_metrics_at_a_time_and_fits() -> None:
    metrics = (*RESULT_METRICS, *RETRIEVAL_METRICS)
    scores: Scores = {metric: [0.5, 1.0, 0.0] for metric in metrics}
    failed: Scores = {metric: [1.0, None, None] for metric in metrics}
    methods = {"vanilla": scores, "self_rag": scores, "deepnote": failed}
    table = ScoresTable(results([make_run(name, methods) for name in ("toy", "another_data_set")], resamples=100))
    lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 100
    heads = [line for line in lines if line.startswith("metric ")]
    assert [("Acc." in head or "EM" in head, "All gold" in head) for head in heads].count((True, True)) == 0
    pages = table.to_html().split("<table")[1:]
    assert [page.count("n = 3</th>") for page in pages] == [9, 9, 6]
    assert ["</caption>" in page for page in pages] == [False, False, True]


def test_runs_of_several_models_stand_beside_each_other(toy: Run) -> None:
    other = replace(toy, info=replace(toy.info, llm={"model": "other"}, prompt_set="papers"))
    table = results([toy, other])
    names = ["toy, made, prompts small", "toy, other, prompts papers"]
    assert list(table["dataset"].unique()) == names
    assert list(counts([toy, other], ["calls"])["dataset"].unique()) == names
    assert list(diagnostics([toy, other])["dataset"].unique()) == names
    assert list(
        results([replace(toy, info=replace(toy.info, retriever={"name": "dense"})), toy])["dataset"].unique()
    ) == [
        "toy, dense",
        "toy, bm25",
    ]


def test_scores_in_markdown_by_hand(toy: Run) -> None:
    only = scores_markdown({"a": toy}, ["em", "all_gold_first"], resamples=100)
    # Wilson's bounds for 1 of 5 and 3 of 4; what has a lower n than its column's head says so
    assert only.splitlines()[:4] == [
        "toy, made, prompts small, 0 questions",
        "",
        "| method | EM (n = 5) | All gold, first search (n = 5) |",
        "| --- | --- | --- |",
    ]
    assert "| Vanilla RAG | 20.0 [3.6, 62.4] | 60.0 [23.1, 88.2] |" in only
    assert "| DeepNote | 75.0 [30.1, 95.4] n = 4 |" in only and "| No retrieval | 0.0 [0.0, 43.4] | – |" in only


def test_scores_in_markdown_are_a_table_for_each_run_with_answers_of_its_own() -> None:
    ones: Scores = {"em": [1.0] * 10}
    runs = {
        "first": make_run("toy", {"vanilla": {"em": [0.0] * 10}, "deepnote_2_1": ones}),
        "second": make_run("toy", {"deepnote": ones}),  # without the baseline nothing is compared
        "marks": make_run("toy", {"vanilla": ones}, condition=Condition(annotates="evidence")),
    }
    text = scores_markdown(runs, resamples=100)
    titles = [line for line in text.splitlines() if line.startswith("toy")]
    assert titles == [f"toy, made, prompts small, 0 questions, {name}" for name in ("first", "second")]
    assert "| DeepNote (2-1) | 100.0 [72.2, 100.0]* |" in text and "| DeepNote | 100.0 [72.2, 100.0] |" in text
    with pytest.raises(InputError, match="no answer has the metric 'f1'; there is em"):
        scores_markdown(runs, ["f1"])
    with pytest.raises(InputError, match="no runs with scores"):
        scores_markdown({"marks": runs["marks"]})


def test_differences_of_all_runs_are_one_table_with_the_baseline_first() -> None:
    half = [1.0, 0.0] * 10
    runs = {
        "first": make_run("toy", {"deepnote": {"em": [1.0] * 20}, "vanilla": {"em": half}}),
        "second": make_run("hotpotqa", {"vanilla": {"em": half, "f1": half}, "amber": {"em": half, "f1": half}}),
    }
    lines = differences_markdown(runs, ["em", "f1"], resamples=100).splitlines()
    assert lines[0] == "Points above or below Vanilla RAG, whose row has its scores in %. made, prompts small"
    assert lines[2] == "| method | toy, EM (n = 20) | HotpotQA, EM (n = 20) | HotpotQA, F1 (n = 20) |"
    assert lines[4].startswith("| Vanilla RAG | 50.0 [29.9, 70.1] | 50.0 [")
    deepnote, amber = lines[5].split(" | "), lines[6].split(" | ")
    assert (deepnote[0], amber[0]) == ("| DeepNote", "| Amber")
    assert deepnote[1].startswith("+50.0 [+") and deepnote[1].endswith("]*")
    assert (deepnote[2:], amber[1:]) == (["–", "– |"], ["–", "+0.0 [+0.0, +0.0]", "+0.0 [+0.0, +0.0] |"])


def test_differences_without_their_baseline_are_refused() -> None:
    run = make_run("toy", {"deepnote": {"em": [1.0]}})
    with pytest.raises(InputError, match="baseline 'vanilla' is not in the run of 'toy'"):
        differences_markdown({"a": run})
    with pytest.raises(InputError, match="name one with --baseline METHOD"):
        differences_markdown({"a": run}, baseline=None)
    with pytest.raises(InputError, match="no answer has the metric 'f1'; there is em"):
        differences_markdown({"a": run}, ["f1"], "deepnote")


def test_what_a_run_took_is_rounded_with_its_units_and_fits() -> None:
    samples = [
        make_sample("vanilla", "a", {"em": 1.0, "cost": 0.00025}, counts=Counts(calls=1, prompt_tokens=1234)),
        make_sample("vanilla", "b", {"em": 0.0, "cost": 0.0005}, counts=Counts(calls=2, prompt_tokens=1235)),
    ]
    table = readable(diagnostics([Run(make_info("toy", ["vanilla"]), samples)]))
    (row,) = table.reset_index().to_dict("records")
    assert (row["data set"], row["method"]) == ("toy", "Vanilla RAG")
    assert (row["calls a question"], row["prompt tokens a question"]) == ("1.5", "1,234")  # half to even
    assert (row["US dollars in all"], row["seconds waited a question"], row["questions"]) == ("0.0008", "–", "2")
    lines = in_lines(table).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("Vanilla RAG" in line for line in lines) == sum("data set" in line for line in lines) > 1


def test_the_command_takes_another_baseline_and_refuses_one_that_no_run_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores: dict[str, Scores] = {"retrieve_read": {"em": [0.0] * 10}, "chain_of_note": {"em": [1.0] * 10}}
    folder = str(save(make_run("nq_open", scores), tmp_path / "a-run"))
    assert main(["table", folder]) == 0
    assert "| Chain-of-Note | 100.0 [72.2, 100.0] |" in capsys.readouterr().out
    assert main(["table", folder, "--baseline", "retrieve_read"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("NQ, made") and "| Chain-of-Note | 100.0 [72.2, 100.0]* |" in text
    assert main(["table", folder, "--baseline", "vanilla"]) == 2
    assert "no run has this method; there is retrieve_read, chain_of_note" in capsys.readouterr().err


def test_data_sets_have_their_own_names() -> None:
    assert dataset_label("twowikimultihopqa") == "2WikiMultiHopQA"
    assert dataset_label("nq_open-noise60") == "NQ-noise60"
    assert dataset_label("musique, before") == "MuSiQue, before"
    assert dataset_label("mini_zh") == "mini_zh" and dataset_label("<b>") == "<b>"
