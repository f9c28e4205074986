"""What studies make of their runs: settings as curves, the fair top-k, costs and their front, cases side by side."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.config import ConfigError, load_study
from rag_notes.events import Counts, searches
from rag_notes.llm.client import Price
from rag_notes.report.curves import axis_label, count_label, curve_figure, with_settings
from rag_notes.report.figures import save_figure
from rag_notes.report.tables import counts, results
from rag_notes.running.records import Condition, MethodInfo, Progress, Run, Sample, SampleError
from rag_notes.running.run import run_methods
from rag_notes.studies import ablation, fair_top_k, main_results, prompts, top_k
from rag_notes.studies.base import Study, once, rn_options
from rag_notes.studies.case_studies import CaseStudies, SideBySide, answers, cases_figure, pick_cases
from rag_notes.studies.cost import Cost, costs_and_scores, pareto_figure, priced, timed
from rag_notes.studies.thresholds import Thresholds, by_setting
from tests.made import make_info, make_run, make_sample


def sample(method: str, number: int, acc: float, *, searches: int = 1, error: str | None = None) -> Sample:
    return make_sample(
        method,
        f"q{number}",
        {} if error else {"acc": acc, "f1": acc / 2},
        question=f"Question <{number}>?",
        answer="" if error else f"answer {acc:g}",
        error=error,
        counts=Counts(searches=searches, calls=2 * searches, prompt_tokens=1000, completion_tokens=100),
    )


def made_up(methods: dict[str, tuple[str, dict[str, Any]]], samples: list[Sample]) -> Run:
    described = {
        name: MethodInfo(f"rag_notes.methods.{function}.{function}", settings, "c")
        for name, (function, settings) in methods.items()
    }
    failed = sum(sample.error is not None for sample in samples)
    info = make_info("made_up", samples=Progress(len(samples), len(samples), failed))
    return Run(replace(info, methods=described), samples)


RUN = made_up(
    {
        "vanilla": ("vanilla", {"top_k": 5}),
        "deep": ("deepnote", {"top_k": 5, "max_step": 3, "max_failure": 2}),
        "deep_1_1": ("deepnote", {"top_k": 5, "max_step": 1, "max_failure": 1}),
        "am": ("amber", {"top_k": 5, "max_iterations": 2}),
    },
    [
        *(sample("vanilla", n, acc) for n, acc in enumerate([0, 1, 0, 1])),
        *(sample("deep", n, acc, searches=n + 1) for n, acc in enumerate([1, 1, 0, 1])),
        *(sample("deep_1_1", n, acc, searches=2) for n, acc in enumerate([1, 0, 0, 1])),
        *(sample("am", n, 0.0, error="no recorded response" if n else None) for n in range(4)),
    ],
)


LIMITS = {
    "deepnote": ["max_step", "max_failure"],
    "adaptive_note": ["collector_iterations", "invalid_updates"],
    "amber": ["max_iterations"],
}


def test_counts_are_means_with_intervals_over_the_questions_without_error() -> None:
    table = counts([RUN], ["searches", "cost"], resamples=500).set_index("method")
    assert list(table["metric"]) == ["searches"] * 4  # nothing is known of the cost
    assert dict(table["mean"]) == {"vanilla": 1.0, "deep": 2.5, "deep_1_1": 2.0, "am": 1.0}
    assert dict(table["n"]) == {"vanilla": 4, "deep": 4, "deep_1_1": 4, "am": 1}
    assert (table["low"]["vanilla"], table["high"]["vanilla"]) == (1.0, 1.0)  # a count, no share of right answers
    assert 1 < table["low"]["deep"] < 2.5 < table["high"]["deep"] < 4


def test_thresholds_are_named_as_in_the_papers_and_in_order() -> None:
    table = by_setting(results([RUN], baseline=None, resamples=200), [RUN], LIMITS)
    acc = table[table["metric"] == "acc"]
    assert list(zip(acc["family"], acc["setting"], acc["method"], strict=True)) == [
        ("deepnote", "1-1", "deep_1_1"),
        ("deepnote", "3-2", "deep"),
        ("amber", "2", "am"),
    ]
    assert "max_step" not in table.columns


def test_the_limits_are_those_that_the_variants_vary_in_the_papers_order() -> None:
    assert Thresholds(load_study("thresholds"), [], [RUN]).limits == LIMITS
    few = load_study("thresholds", ["method=[vanilla,deepnote]"])
    assert Thresholds(few, [], [RUN]).limits == {"deepnote": ["max_step", "max_failure"]}


def test_settings_stand_beside_the_scores() -> None:
    table = with_settings(results([RUN], baseline=None, resamples=200), [RUN], ["top_k", "max_step"])
    deep = table[(table["method"] == "deep_1_1") & (table["metric"] == "acc")].iloc[0]
    assert (deep["family"], deep["top_k"], deep["max_step"]) == ("deepnote", 5, 1)
    assert table.loc[table["method"] == "vanilla", "max_step"].isna().all()


def test_a_curve_has_a_panel_for_each_metric_and_a_line_for_each_family(tmp_path: Path) -> None:
    table = by_setting(results([RUN], baseline=None, resamples=200), [RUN], LIMITS)
    figure = curve_figure(table, "setting", "limits")
    assert [axes.get_ylabel() for axes in figure.axes] == ["F1 (%)", "Acc. (%)", "Avg. (%)"]
    assert figure.axes[0].get_xlabel() == "limits\nn = 1 to 4"
    acc = next(axes for axes in figure.axes if axes.get_ylabel() == "Acc. (%)")
    assert [label.get_text() for label in acc.get_xticklabels()] == ["1-1", "3-2", "2"]
    lines = {str(container.get_label()): container[0].get_ydata() for container in acc.containers}
    assert {name: [float(y) for y in ys] for name, ys in lines.items()} == {"DeepNote": [50.0, 75.0], "Amber": [0.0]}
    first = save_figure(figure, table, tmp_path / "a", "curve")
    again = save_figure(curve_figure(table, "setting", "limits"), table, tmp_path / "b", "curve")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    with pytest.raises(ValueError, match="nothing to draw"):
        curve_figure(table[:0], "setting", "limits")


def test_labels_say_unit_and_number_of_questions() -> None:
    assert (axis_label("acc"), axis_label("cost")) == ("Acc. (%)", "US dollars for 1,000 questions")
    assert count_label(pd.DataFrame({"n": [4, 4]})) == "n = 4"


def test_the_front_is_what_no_other_method_beats_in_both() -> None:
    costs = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.0, "e": 1.0}
    scores = {"a": 0.2, "b": 0.5, "c": 0.4, "d": 0.5, "e": 0.2}
    common = {"dataset": "made_up", "low": 0.0, "high": 1.0, "n": 4, "interval": ""}
    table = pd.DataFrame([common | {"method": m, "metric": "acc", "mean": s} for m, s in scores.items()])
    spent = pd.DataFrame([common | {"method": m, "metric": "calls", "mean": c} for m, c in costs.items()])
    points = costs_and_scores(table, spent, "acc")
    assert set(points.loc[points["front"], "method"]) == {"a", "b", "e"}  # c and d are beaten by b; a and e are equal
    figure = pareto_figure(points, "acc", "at a price")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "e", "b", "c", "d"]  # by cost
    marks = [line for line in figure.axes[1].lines if line.get_marker() == "o"]
    filled = {line.get_ydata()[0] for line in marks if line.get_markerfacecolor() != "white"}  # type: ignore[index]
    assert filled == {0, 1, 2} and figure.legends[0].get_title().get_text() == "at a price"
    with pytest.raises(ValueError, match="nothing to draw"):
        pareto_figure(points[:0], "acc")


def test_tokens_are_priced_where_the_model_has_no_price_of_its_own() -> None:
    (run,) = priced([RUN], Price(1.0, 10.0))
    cost = {sample.key: sample.metrics.get("cost") for sample in run.samples}
    assert cost["deep", "q0"] == pytest.approx(0.002)
    assert cost["am", "q1"] is None  # it failed
    own = Run(RUN.info, [replace(RUN.samples[0], metrics={"cost": 7.0})])
    assert priced([own], Price(1.0, 1.0))[0].samples[0].metrics["cost"] == 7.0
    assert all("cost" not in sample.metrics for sample in RUN.samples)  # what was given is as it was


def test_computing_is_the_tokens_at_the_speed_of_a_model() -> None:
    run = timed(RUN, Price(2000.0, 50000.0))
    sample = next(sample for sample in run.samples if sample.key == ("deep", "q0"))
    read, written = sample.counts.prompt_tokens, sample.counts.completion_tokens
    assert read and written and sample.metrics["computing"] == pytest.approx(read * 0.002 + written * 0.05)
    assert all(("computing" in sample.metrics) == (sample.error is None) for sample in run.samples)


def test_cases_are_picked_by_correctness_and_shown_side_by_side() -> None:
    assert pick_cases(RUN) == ["q0", "q1", "q3"]  # two, two and three of four are right; none of q2
    assert pick_cases(RUN, 1) == ["q0"]
    assert pick_cases(RUN.only(["am"])) == ["q0", "q1", "q2", "q3"]
    table = answers(RUN, ["q0", "q1"])
    assert table.loc["q0", "deep"] == "right: answer 1"
    assert table.loc["q0", "vanilla"] == "wrong: answer 0"
    assert table.loc["q1", "am"] == "error: no recorded response"
    figure = cases_figure(RUN, ["q0", "q1"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Vanilla RAG", "deep", "deep 1 1", "am"]
    assert [line.get_marker() for line in figure.axes[0].lines] == ["x", "o", "o", "x", "o", "o", "x", "s"]
    with pytest.raises(ValueError, match="nothing to draw"):
        cases_figure(RUN, [])
    page = SideBySide(RUN, ["vanilla", "deep_1_1"], "q0")._repr_html_()
    assert page.index("<h3>Vanilla RAG</h3>") < page.index("<h3>deep 1 1</h3>")
    assert "Question &lt;0&gt;?" in page
    assert "<0>" not in page
    with pytest.raises(KeyError, match="q9"):
        answers(RUN, ["q9"])


def test_cases_that_the_data_set_lacks_are_left_out_and_without_any_they_are_picked() -> None:
    config = load_study("case_studies")
    assert CaseStudies(config, [], [RUN], ["q1", "bridge-02"]).shown == ["q1"]
    assert CaseStudies(config, [], [RUN], []).shown == ["q0", "q1", "q3"]
    (trace,) = CaseStudies(config, [], [RUN], ["q1"]).traces()
    assert [line for line in repr(trace).splitlines() if line in RUN.methods] == RUN.methods


def test_the_fair_k_is_the_mean_number_of_passages_that_the_adaptive_method_read(tmp_path: Path) -> None:
    options = [f"runs={tmp_path}", "dataset=mini", "resamples=100", "limit=8"]
    (adaptive,) = asyncio.run(run_methods(load_study("fair_top_k", options), options, progress=False))
    read = [sample.counts.distinct_passages for sample in adaptive.of("adaptive_note")]
    fair = max(5, round(math.fsum(read) / len(read)))
    study = asyncio.run(fair_top_k.run(options, progress=False))
    (run,) = study.runs
    ks = sorted({5, (5 + fair) // 2, fair, fair + 2})
    assert run.methods == ["vanilla", "adaptive_note", *(f"vanilla_k{k}" for k in ks)]
    assert [run.info.methods[f"vanilla_k{k}"].settings["top_k"] for k in ks] == ks
    assert max(len(searches(sample.trace)[0].hits) for sample in run.of(f"vanilla_k{fair}")) == fair
    points = study.points()
    assert dict(zip(points["method"], points["passages"], strict=True))["vanilla"] == 5
    assert set(points["baseline"]) == {"adaptive_note"}


def test_an_ablated_method_is_tested_against_the_whole_one(tmp_path: Path) -> None:
    options = [f"runs={tmp_path}", f"figures={tmp_path / 'figures'}", "limit=3", "resamples=100"]
    study = asyncio.run(ablation.run([*options, "method=[vanilla,deepnote]"], progress=False))
    assert study.whole == ["deepnote"]
    table = study.table("deepnote")
    assert set(table["method"]) == {"vanilla", "deepnote", "deepnote_without_adaptive_retrieval"}
    assert set(table["baseline"]) == {"deepnote"}
    study.figure("deepnote")
    name = "ablation-deepnote-world-Qwen2.5-Coder-1.5B-Instruct"
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        f"{name}.{kind}" for kind in ("csv", "pdf", "png")
    ]


def test_each_retriever_has_a_table_and_lines_of_its_own(tmp_path: Path) -> None:
    options = [f"runs={tmp_path}", "limit=2", "resamples=100", "method=[vanilla]"]
    study = asyncio.run(top_k.run(options, progress=False))
    assert list(study.by_retriever) == ["bm25"]
    assert set(study.points()["line"]) == {"vanilla"}
    two = top_k.TopK(study.config, options, study.runs * 2, {"bm25": study.runs, "other": study.runs})
    assert sorted(set(two.points()["line"])) == ["vanilla, bm25", "vanilla, other"]
    assert set(two.display().reset_index()["method"]) == {"Vanilla RAG, bm25", "Vanilla RAG, other"}


def test_each_number_of_passages_is_compared_with_the_baseline_that_has_as_many() -> None:
    scores = {
        "vanilla": [0.0] * 8,
        "deep": [1.0] * 8,
        "vanilla_k3": [1.0] * 8,
        "deep_k3": [1.0] * 8,
        "deep_k7": [1.0] * 8,
    }
    run = make_run("made", {name: {"f1": values} for name, values in scores.items()})
    ks = {"vanilla": 5, "deep": 5, "vanilla_k3": 3, "deep_k3": 3, "deep_k7": 7}
    methods = {name: MethodInfo(f"made.{name}", {"top_k": k}, "c") for name, k in ks.items()}
    run = replace(run, info=replace(run.info, methods=methods))
    study = top_k.TopK(load_study("top_k"), [], [run], {"bm25": [run]})
    points: Any = study.points()[study.points()["metric"] == "f1"].set_index("method")
    assert points["baseline"].to_dict() == {
        "vanilla_k3": "vanilla_k3",
        "deep_k3": "vanilla_k3",
        "vanilla": "vanilla",
        "deep": "vanilla",
        "deep_k7": "",
    }
    shown: Any = study.display().xs("F1", level="metric").droplevel("data set")
    assert shown.columns.tolist() == ["3 passages", "5 passages", "7 passages"]
    assert shown.loc["deep"].tolist() == ["100.0 [67.6, 100.0]", "100.0 [67.6, 100.0]*", "100.0 [67.6, 100.0]"]
    assert shown.loc["Vanilla RAG", "7 passages"] == "–"


def test_the_trace_shown_is_of_a_question_that_only_the_method_answers() -> None:
    study = main_results.MainResults(load_study("main_results"), [], [RUN])
    assert study.trace("deep", "vanilla").sample.key == ("deep", "q0")
    assert study.trace("vanilla", "deep").sample.key == ("vanilla", "q0")  # there is none: the first of all
    assert study.trace("react", "vanilla").sample.method == "am"


def test_a_study_shows_its_runs_and_says_what_it_lacks() -> None:
    evil = "<script>alert(1)</script>"
    info = replace(RUN.info, condition=Condition(noise_percent=40), samples=Progress(10, 16, 3), status=evil)
    study = Study(load_study("main_results"), [], [RUN, Run(info)])
    assert study.overview().to_dict("list") == {
        "data set": ["made_up", "made_up"],
        "condition": ["", "noise40"],
        "model": ["made", "made"],
        "methods": ["vanilla, deep, deep_1_1, am"] * 2,
        "answers": ["16 of 16", "10 of 16"],
        "errors": [3, 3],
        "status": ["finished", evil],
    }
    assert study.lacking == 3 + 3 + 6
    assert "&lt;script&gt;" in study._repr_html_()
    assert "<script>" not in study._repr_html_()
    assert repr(study).startswith("main_results\n")
    assert "noise40" in repr(study)


def test_a_table_is_worked_out_once_and_what_a_caller_does_to_it_stays_with_the_caller() -> None:
    made: list[int] = []

    class Counting(Study):
        @once
        def table(self) -> pd.DataFrame:
            made.append(1)
            return pd.DataFrame({"a": [1]})

    study = Counting(load_study("main_results"), [], [])
    changed = study.table()
    changed["a"] = 2
    assert (study.table()["a"].tolist(), made) == ([1], [1])


def test_the_parameters_of_a_notebook_stand_behind_its_options() -> None:
    assert rn_options() == []
    assert rn_options(["seed=1"], dataset="mini", llm="openai", limit=3, retriever="bm25") == [
        *("seed=1", "dataset=[mini]", "llm=openai", "limit=3", "retriever=bm25")
    ]
    options = rn_options(["limit=50", "dataset=musique"], dataset=["mini", "mini_zh"], limit=3)
    config = load_study("main_results", options)
    assert (list(config.dataset), config.limit) == (["mini", "mini_zh"], 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": "limit=3"}, r'options: a list of texts is meant, such as \["limit=50"\] \(given: \'limit=3\'\)'),
        ({"options": [3]}, "options: a list of texts is meant"),
        ({"dataset": "mini,musique"}, r"dataset: a name or a list of names.*given: 'mini,musique'"),
        ({"dataset": [1]}, "dataset: a name or a list of names"),
        ({"llm": ["openai"]}, r"llm: one name is meant, such as \"openai\" \(given: \['openai'\]\)"),
        ({"retriever": "bm25 retriever.k1=2"}, "retriever: one name is meant"),
        ({"limit": "3"}, "limit: a whole number of at least 1 is meant"),
        ({"limit": 0}, "limit: a whole number of at least 1 is meant"),
    ],
)
def test_a_parameter_of_another_type_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rn_options(**given)


def test_the_study_of_prompts_refuses_one_set() -> None:
    with pytest.raises(ConfigError, match="prompts=small: this study runs papers and small"):
        asyncio.run(prompts.run(["prompts=small"], progress=False))


def test_a_cost_study_of_failures_alone_shows_empty_tables() -> None:
    error = SampleError("LLMError", "gone")
    failed = replace(RUN, samples=[replace(one, error=error, metrics={}, trace=[]) for one in RUN.samples])
    study = Cost(load_study("cost", ["resamples=100"]), [], [failed], "acc", "")
    assert study.display().empty
    assert study.display_equal_tokens().empty
