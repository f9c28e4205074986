"""Tables of scores, counts and diagnostics: hand-worked cases, and what notebooks and terminals show of them."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from rag_notes.events import Counts
from rag_notes.methods.vanilla import vanilla
from rag_notes.report.rows import described, difference_rows, score_rows
from rag_notes.report.scores_table import WIDTH, as_text, readable
from rag_notes.report.tables import ScoresTable, counts, diagnostics, methods_frame, results, scores_table
from rag_notes.running.records import Run
from rag_notes.running.samples import SampleError
from rag_notes.types import InputError
from tests.made import Scores, changed, make_info, make_run, make_sample, row_of, shown_cell


def test_results_by_hand(toy: Run) -> None:
    row = row_of(results([toy]), method="deepnote", metric="em")
    assert (row["dataset"], row["n"], row["mean"], row["interval"]) == ("toy", 4, 0.75, "wilson")
    # Wilson, 3 of 4, z = 1.96: (0.75 + 0.4802 -+ 1.96 * sqrt(0.0469 + 0.0600)) / 1.9604
    assert (row["low"], row["high"]) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    # On q0 to q3 the differences are 0, 1, 1, 0: two of the four sign patterns are as far from 0.
    assert (row["difference"], row["p"], row["n_paired"]) == (0.5, 0.5, 4)
    assert (row["wins"], row["ties"], row["losses"]) == (2, 2, 0)
    # Two methods are compared: 2 * 0.5 = 1, and no_retrieval's p is 1.
    assert (row["p_holm"], row["significant"]) == (1.0, False)
    worse = row_of(results([toy]), method="no_retrieval", metric="em")
    assert (worse["difference"], worse["wins"], worse["ties"], worse["losses"]) == (-0.2, 0, 4, 1)


def test_results_have_an_order_an_average_and_retrieval(toy: Run) -> None:
    table = results([toy])
    assert list(table["metric"].unique()) == ["em", "f1", "avg", "all_gold_first"]
    assert list(table[table["metric"] == "em"]["method"]) == toy.methods
    assert list(table[table["metric"] == "all_gold_first"]["method"]) == ["vanilla", "deepnote"]
    average = row_of(table, method="deepnote", metric="avg")
    assert average["mean"] == pytest.approx((0.75 + 3.2 / 4) / 2)
    assert math.isnan(average["low"]) and math.isnan(average["p"]) and average["n"] == 4
    baseline = row_of(table, method="vanilla", metric="f1")
    assert math.isnan(baseline["p_holm"]) and not baseline["significant"] and pd.isna(baseline["wins"])


def test_results_correct_for_the_methods_compared_on_one_data_set_and_metric() -> None:
    zeros: Scores = {"em": [0.0] * 10}
    ones: Scores = {"em": [1.0] * 10}
    three = make_run("three", {"vanilla": zeros, "deepnote": ones, "react": zeros, "flare": ones})
    table = results([make_run("one", {"vanilla": zeros, "deepnote": ones}), three])
    p = 2 / 2**10  # all ten differences are 1: only the patterns of one sign are as far from 0
    assert list(table["p_holm"].dropna()) == pytest.approx([p, 3 * p, 1.0, 3 * p])
    assert list(table["significant"]) == [False, True, False, True, False, True]
    assert not results([three], confidence=0.995)["significant"].any()  # 3p = 0.0059 is not below 0.005


def test_results_of_what_failed_and_of_what_cannot_be_answered() -> None:
    run = make_run("toy", {"vanilla": {"em": [1, 0]}, "deepnote": {"em": [None, None]}})
    row = row_of(results([run]), method="deepnote")
    assert (row["n"], row["n_paired"], row["significant"]) == (0, 0, False)
    assert math.isnan(row["mean"]) and math.isnan(row["p"])
    assert results([make_run("toy", {"vanilla": {"em": [None]}})]).empty
    run = make_run("toy", {"vanilla": {"em": [1, 0], "acc_raw": [0, 0], "f1": [1.0, 0.5]}})
    run = replace(run, samples=[*run.samples, make_sample("vanilla", "unanswerable", {"reject": 0.0})])
    assert row_of(results([run]), metric="avg")["mean"] == pytest.approx((0.5 + 0.75) / 2)
    assert row_of(results([run]), metric="reject")["n"] == 1


def test_results_name_what_does_not_fit(toy: Run) -> None:
    assert results([toy], baseline=None)["p"].isna().all()
    with pytest.raises(InputError, match="baseline 'bm25' is not in the run of 'toy'"):
        results([toy], baseline="bm25")
    with pytest.raises(InputError, match="two runs of 'toy'"):
        results([toy, toy])
    with pytest.raises(InputError, match=r"no answer has the metric 'rouge'; there is em, f1"):
        scores_table([toy], metrics=["rouge"])
    with pytest.raises(InputError, match="answers have no column 'colour'"):
        scores_table([toy], by="colour")


def test_settings_distinguish_runs(toy: Run) -> None:
    other = replace(toy, info=replace(toy.info, llm={"model": "other"}, prompt_set="papers"))
    names = ["toy, made, prompts small", "toy, other, prompts papers"]
    for table in (results([toy, other]), counts([toy, other], ["calls"]), diagnostics([toy, other])):
        assert list(table["dataset"].unique()) == names


def test_repeats_are_one_result_by_hand() -> None:
    vanilla_scores: list[Scores] = [{"acc": [1, 0, 0, 1]}, {"acc": [1, 1, 0, 1]}, {"acc": [1, 0, 0, 0]}]
    note_scores: list[Scores] = [{"acc": [1, 1, 0, 1]}, {"acc": [1, 1, 1, 1]}, {"acc": [1, 1, 0, None]}]
    pairs = enumerate(zip(vanilla_scores, note_scores, strict=True))
    repeats = [make_run("toy", {"vanilla": a, "deepnote": b}, repeat=number) for number, (a, b) in pairs]
    table = results(repeats)
    row = row_of(table, method="vanilla", metric="acc")
    # The questions' means are 1, 1/3, 0 and 2/3, those of the repeats 2/4, 3/4 and 1/4.
    assert (row["n"], row["mean"], row["interval"]) == (4, 0.5, "bca")
    assert (row["repeats"], row["repeat_sd"], row["always"]) == (3, 0.25, 0.25)
    row = row_of(table, method="deepnote", metric="acc")
    # One repeat has no answer to the last question: of the other three the means are 1, 1 and 1/3.
    assert (row["n"], row["n_paired"], row["mean"]) == (3, 3, pytest.approx(7 / 9))
    assert (row["repeat_sd"], row["always"]) == (pytest.approx(math.sqrt(1 / 27)), pytest.approx(2 / 3))
    # Against vanilla's 1, 1/3 and 0 the differences are 0, 2/3 and 1/3: two of four patterns reach their sum.
    assert (row["difference"], row["p"]) == (pytest.approx(1 / 3), 0.5)
    assert "sd 25.0, always 25.0" in repr(scores_table(repeats)) and "sd:" in scores_table(repeats).caption
    assert list(diagnostics(repeats)["dataset"].unique()) == [f"toy, repeat {repeat}" for repeat in range(3)]


def test_clusters_widen_intervals_by_hand() -> None:
    run = make_run("toy", {"vanilla": {"em": [1.0] * 4 + [0.0] * 4}})
    for number, sample in enumerate(run.samples):
        run = changed(run, number, question=replace(sample.question, gold_ids=(f"p{number // 4}",)))
    row = results([run], clusters=True).iloc[0]
    # Two clusters, one all right and one all wrong: resamples have the mean 0, 0.5 or 1.
    assert (row["clusters"], row["low"], row["high"], row["interval"]) == (2, 0, 1, "cluster bca")
    assert results([run]).iloc[0]["interval"] == "wilson"
    assert "clusters of questions" in scores_table([run], clusters=True).caption


def test_counts_and_diagnostics_by_hand() -> None:
    miss = SampleError("RecordingMissError", "no recorded response")
    samples = [
        make_sample("m", "a", {"em": 1.0, "cost": 0.25}, counts=Counts(searches=1, calls=2, parse_failures=1)),
        make_sample("m", "b", {"em": 0.0, "cost": 0.5}, counts=Counts(searches=4, calls=4), answer=" "),
        make_sample("m", "c", {}, counts=Counts(searches=9, parse_failures=2), answer="", error=miss),
        make_sample("m", "d", {}, answer="", error="refused"),
        make_sample("free", "a", {"em": 1.0}),
    ]
    run = Run(make_info("toy", ["m", "free"]), samples)
    row = row_of(diagnostics([run]), method="m")
    assert (row["questions"], row["errors"], row["not_recorded"], row["empty"]) == (4, 2, 1, 1)
    assert (row["parse_failures"], row["searches"], row["calls"], row["cost"]) == (3, 2.5, 3.0, 0.75)
    assert math.isnan(row["seconds"]) and math.isnan(row_of(diagnostics([run]), method="free")["cost"])
    table = counts([run], ["searches", "cost"], resamples=100)
    means = [["m", "searches", 2.5, 2], ["free", "searches", 0.0, 1], ["m", "cost", 0.375, 2]]
    assert table[["method", "metric", "mean", "n"]].values.tolist() == means
    shown = readable(diagnostics([run]))
    assert shown.loc[("toy", "m"), "cost"] == "0.75" and shown.loc[("toy", "free"), "cost"] == "–"
    assert "seconds" not in shown  # unknown of both


def test_missing_answers_are_in_the_caption() -> None:
    miss = SampleError("RecordingMissError", "no recorded response")
    samples = [make_sample("vanilla", f"q{number}", {"em": 1.0}) for number in range(12)]
    samples += [make_sample("one_note", f"q{number}", {"em": 1.0}) for number in range(7)]
    samples += [make_sample("one_note", f"q{number}", {}, error=miss) for number in range(7, 12)]
    samples += [make_sample("amber", "q0", {}, error="stage answer_short: <b>")]
    table = scores_table([Run(make_info("toy", ["vanilla", "one_note", "amber"]), samples)])
    assert '5 of 12 answers of one_note are missing: not recorded; use llm="openai".' in table.caption
    assert "1 of 1 answers of amber are missing: stage answer_short: <b>." in table.caption
    assert "<b>" not in table._repr_html_() and "answer_short: &lt;b&gt;" in table._repr_html_()
    nothing = scores_table([make_run("toy", {"vanilla": {"em": [None]}})])
    assert repr(nothing).startswith("(empty)") and "No question was answered" in nothing._repr_html_()


def test_a_table_is_short_grouped_by_family_and_escaped() -> None:
    scores: Scores = {metric: [1.0, 0.0, 1.0] for metric in ("em", "f1", "acc", "all_gold_first", "all_gold_seen")}
    methods: dict[str, Scores] = {"deepnote": scores, "vanilla": scores, "<own>": scores}
    table = scores_table([make_run("hotpotqa", methods)])
    assert [column[0] for column in table.wide.columns] == ["F1", "Acc.", "All gold, all searches"]
    assert table.caption.startswith("HotpotQA. In %, with 95 % intervals. * differs from Vanilla RAG")
    assert "<own>" not in table._repr_html_() and "&lt;own&gt;" in table._repr_html_()
    assert table._repr_html_() == scores_table([make_run("hotpotqa", methods)])._repr_html_()
    assert [column[0] for column in scores_table([make_run("toy", methods)], metrics=["em"]).wide.columns] == ["EM"]
    lines = repr(scores_table([make_run("toy", methods)], metrics=["em", "f1"])).splitlines()
    assert lines[0].split() == ["EM", "F1"] and max(map(len, lines)) <= WIDTH


def test_a_table_by_a_column_of_the_frame() -> None:
    types = ("bridge", "bridge", "comparison", "comparison")
    samples = [make_sample("m", f"q{i}", {"f1": float(i % 2)}, type=kind) for i, kind in enumerate(types)]
    wide = scores_table([Run(make_info("toy", ["m"]), samples)], by="type").wide
    assert [*wide.columns] == [("bridge", "F1", "n = 2"), ("comparison", "F1", "n = 2")]
    assert list(wide.iloc[0]) == ["50.0 [9.5, 90.5]"] * 2  # Wilson, 1 of 2


def test_cells_are_marked_by_hand() -> None:
    table = results([make_run("toy", {"vanilla": {"em": [0.0] * 10}, "deepnote": {"em": [1.0] * 9 + [None]}})])
    # Wilson's bounds for 0 of 10 and 9 of 9: 3.8415 / 13.8415 and 9 / 12.8415
    assert shown_cell(table, "vanilla", "EM") == "0.0 [0.0, 27.8]"
    assert shown_cell(table, "deepnote", "EM") == "100.0 [70.1, 100.0]* n = 9"
    ones: Scores = {"em": [1.0] * 4 + [0.0] * 44}
    table = results([make_run("toy", {"vanilla": {"em": [0.0] * 48}, "deepnote": ones, "amber": {"em": [0.0] * 48}})])
    row = row_of(table, method="deepnote")
    assert row["difference_low"] > 0 and row["p"] == 2 / 2**4  # four questions differ, all in one direction
    assert shown_cell(table, "deepnote", "EM").endswith("]†") and "the test decides" in ScoresTable(table).caption
    assert "†" not in repr(ScoresTable(table[table["method"] != "deepnote"]))


def test_rows_of_figures_by_hand() -> None:
    zeros: Scores = {"f1": [0.0] * 10}
    run = make_run("toy", {"vanilla": zeros, "deepnote": {"f1": [1.0] * 10}, "no_retrieval": zeros})
    table = described(results([run]), [run])
    scores = score_rows(table, "f1")
    assert list(scores["kind"]) == ["baseline", "better", "no significant difference"]
    assert list(scores["mean"]) == [0, 100, 0] and set(scores["panel"]) == {"F1 (%)"}
    assert list(scores["label"]) == ["Vanilla RAG", "DeepNote", "No retrieval"]
    assert list(scores["family"]) == ["Baseline", "Notes", "Baseline"]
    differences = difference_rows(table, "f1")
    assert list(differences["mean"]) == [0, 100, 0] and differences["low"].iloc[0] == 0
    assert set(differences["panel"]) == {"F1, difference to Vanilla RAG (points)"}


def test_methods_are_listed_by_family() -> None:
    frame = methods_frame({"mine": row_of, "vanilla": vanilla})
    assert list(frame["method"]) == ["vanilla", "mine"] and list(frame["calls at most"]) == [1, ""]
    assert as_text(frame.astype(str)).splitlines()[1].startswith("0  baseline")
