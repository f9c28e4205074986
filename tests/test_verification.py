"""The verification: verdicts worked by hand, and which run's method a claim means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import pytest

from rag_notes.events import Counts
from rag_notes.methods.deepnote import deepnote
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.systems import NotRunError, find_cells, left_out, same_model, settings_of, system_of
from rag_notes.papers.verdicts import order_verdict, value_verdict
from rag_notes.rates import load_speeds
from rag_notes.running.describe import describe_method
from rag_notes.running.records import Condition, Run
from tests.claims import changed, run_of, two, verdict
from tests.made import Scores

# --- verdicts


def test_an_order_that_holds_agrees() -> None:
    # Eight questions won, none lost: both extreme patterns of 2^8, and every resample of 1, ..., 1, 0, 0 is above 0.
    row = verdict(two([1] * 8 + [0, 1], [0] * 8 + [0, 1]))
    assert (row["ours"], row["n"], row["failed"]) == (80, 10, 0)
    assert row["p"] == 2 / 2**8 and 0 < row["low"] < 80 < row["high"]
    assert (row["verdict"], row["size"]) == ("agrees", "contradicted")  # 20 +- 5, our interval above it


def test_an_order_of_few_questions_does_not_agree_although_its_interval_excludes_0() -> None:
    row = verdict(two([1, 1, 1, 0.5], [0, 0, 0, 0]))
    assert row["low"] > 0 and row["p"] == 2 / 2**4
    assert row["verdict"] == "same direction, not significant"


def test_an_order_of_the_right_sign_that_may_be_0_is_not_significant() -> None:
    row = verdict(two([1, 1, 0, 0, 1], [0, 0, 1, 0, 1]))
    assert row["ours"] == pytest.approx(20) and row["low"] < 0 < row["high"]
    assert (row["verdict"], row["size"]) == ("same direction, not significant", "agrees")


@pytest.mark.parametrize(
    ("method", "other", "ours", "expected"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], 0, "inconclusive"),
        ([0, 1, 0, 0], [1, 0, 1, 0], -25, "inconclusive"),
        ([0] * 9, [1] * 8 + [0], -800 / 9, "contradicted"),
    ],
)
def test_an_order_that_is_not_ours_is_inconclusive_or_contradicted(
    method: list[float], other: list[float], ours: float, expected: str
) -> None:
    row = verdict(two(method, other))
    assert (row["verdict"], row["ours"]) == (expected, pytest.approx(ours))


def test_a_single_question_confirms_nothing() -> None:
    row = verdict(two([1], [0]))
    assert (row["verdict"], row["n"]) == ("same direction, not significant", 1) and math.isnan(row["low"])
    assert verdict(two([0], [1]))["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("theirs", "tolerance", "expected"),
    [(70.0, 5.0, "agrees"), (80.0, 5.0, "agrees"), (80.1, 5.0, "within interval"), (95.5, 1.0, "contradicted")],
)
def test_a_value_by_hand(theirs: float, tolerance: float, expected: str) -> None:
    # 15 of 20 right: Wilson's interval is (0.75 + 0.0960 -+ 1.96 sqrt(0.009375 + 0.0024)) / 1.1921 = 53.1 to 88.8
    row = verdict(two([1] * 15 + [0] * 5, [0] * 20), kind="value", value=theirs, tolerance=tolerance)
    assert (row["ours"], row["n"], row["verdict"]) == (75, 20, expected)
    assert (row["low"], row["high"]) == pytest.approx((53.13, 88.81), abs=0.01)
    assert row["size"] == "" and math.isnan(row["p"])


def test_the_rules_alone() -> None:
    assert value_verdict(59.2, 50, 60, 54.9, 4.3) == "agrees"  # 4.3000000000000043 in binary
    assert value_verdict(10, 5, 15, 15.1, 5) == "contradicted"
    assert order_verdict(1, 0.5, 2, 0.05) == "same direction, not significant"  # p has to be below .05
    assert order_verdict(1, 0.5, 2, 0.049) == "agrees"
    assert order_verdict(-1, -2, -0.5, 0.01) == "contradicted"
    assert order_verdict(0, 0, 0, 1) == order_verdict(-1, -2, -0.5, 0.2) == "inconclusive"
    assert order_verdict(0.1, -0.2, 0.3, 0.9, 0.04) == order_verdict(-0.1, -0.3, 0.2, 0.9, 0.04) == "equivalent"
    assert order_verdict(0.1, 0.05, 0.2, 0.01, 0.001) == "agrees"  # a small difference that was found


def test_failed_answers_are_left_out_and_counted() -> None:
    row = verdict(two([1, None, 1, 0], [0, 1, None, 0]))
    assert (row["n"], row["failed"], row["ours"]) == (2, 2, 50)
    row = verdict(two([1, None, 1, 0], [0] * 4), kind="value")
    assert (row["n"], row["failed"]) == (3, 1)


def test_the_model_is_named_and_another_one_is_marked() -> None:
    row = verdict(two([1] * 9, [0] * 9, model="gpt-4o mini"))
    assert (row["our_model"], row["same_model"]) == ("gpt-4o mini", True)
    row = verdict(two([1] * 9, [0] * 9, model="tiny"))
    assert (row["our_model"], row["same_model"], row["model"]) == ("tiny", False, "GPT-4o-mini")
    stages = {"stages": {"note_judge": {"model": "judge"}}}
    staged = {"a-run": changed(two([1], [0])["a-run"], llm={"model": "GPT-4o-mini"} | stages)}
    assert not same_model(staged["a-run"], "GPT-4o-mini")
    assert verdict(staged)["our_model"] == "GPT-4o-mini (note_judge: judge)"


def test_an_order_that_the_paper_itself_does_not_have_is_said() -> None:
    row = verdict(two([1, 0], [0, 1]), value=math.nan, tolerance=math.nan)
    assert (row["supported"], row["size"]) == (False, "")
    assert verdict({}, value=math.nan, metric="seconds")["supported"]


def test_average_seconds_and_cost_of_an_answer() -> None:
    scores: Scores = {"em": [1, 0], "f1": [1, 0.6], "acc": [1, 0.9], "cost": [0.25, 0.5]}
    none: Scores = {"em": [0, 0], "f1": [0, 0], "acc": [0, 0], "cost": [0.125, 0.25]}
    methods = {"d": ("deepnote", "", scores), "v": ("vanilla", "", none)}
    seconds = {"d": {"q0": 3.0, "q1": 4.0}, "v": {"q0": 1.0}}
    runs = {"a-run": run_of("hotpotqa", methods, seconds=seconds)}
    assert verdict(runs, metric="avg")["ours"] == pytest.approx(75)
    assert verdict(runs, metric="cost")["ours"] == pytest.approx(0.1875)
    row = verdict(runs, metric="seconds")
    assert (row["ours"], row["n"]) == (2.0, 1)
    known = replace(runs["a-run"].info, llm={"model": "Qwen2.5-Coder-1.5B-Instruct"})
    run = runs["a-run"]
    took = [replace(s, counts=replace(s.counts, prompt_tokens=1000 * (s.method == "d"))) for s in run.samples]
    row = verdict({"a-run": replace(run, info=known, samples=took)}, metric="seconds")
    assert (row["ours"], row["n"]) == (
        pytest.approx(load_speeds()[known.model].prompt / 1000),
        2,
    )  # not the time waited
    wrote = {"d": 500, "v": 0}
    unpriced = [
        replace(s, metrics={}, counts=Counts(calls=1, prompt_tokens=2000, completion_tokens=wrote[s.method]))
        for s in run.samples
    ]
    row = verdict({"a-run": replace(run, samples=unpriced)}, metric="cost")
    assert row["ours"] == pytest.approx(500 * 0.60 / 1e6)  # gpt-4o-mini: 60 cents for a million tokens written
    assert row["reason"] == "our model has no price: its tokens at that of gpt-4o-mini"
    untold = [replace(s, counts=replace(s.counts, calls=0)) for s in unpriced]  # of another program's file
    assert verdict({"a-run": replace(run, samples=untold)}, metric="cost")["verdict"] == "not run"
    row = verdict(runs, metric="t_f1")
    assert (row["verdict"], row["reason"]) == (
        "not run",
        "the runs of hotpotqa do not have t_f1 of both systems on the same questions",
    )


def searched(runs: Mapping[str, Run], corpus: str, selection: str = "all") -> dict[str, Run]:
    """The same runs with a search in every trace, of a corpus of this kind."""
    return {
        name: replace(
            changed(run, dataset=replace(run.info.dataset, corpus=corpus, selection=selection)),
            samples=[replace(sample, counts=Counts(searches=1)) for sample in run.samples],
        )
        for name, run in runs.items()
    }


def test_a_value_of_another_corpus_is_neither_confirmed_nor_refuted() -> None:
    runs = two([1] * 9, [0] * 9)
    for value in (100.0, 10.0):
        row = verdict(searched(runs, "pooled", "papers"), kind="value", value=value)
        assert (row["verdict"], row["corpus"], row["selection"]) == ("other corpus", "pooled", "papers")
    row = verdict(searched(runs, "given"), kind="value", value=100.0)
    assert (row["verdict"], row["corpus"], row["selection"]) == ("agrees", "given", "all")
    for passages, corpus, said in ((2_000_000, "part", "other corpus"), (5_000_000, "given", "agrees")):  # of 5,233,329
        corpora = {
            name: changed(run, retriever={"name": "bm25", "corpus": {"passages": passages}})
            for name, run in searched(runs, "given").items()
        }
        row = verdict(corpora, kind="value", value=100.0)
        assert (row["verdict"], row["corpus"]) == (said, corpus)
    assert verdict(runs, kind="value", value=100.0)["corpus"] == "none"  # nothing was searched
    row = verdict(searched(runs, "pooled"))
    assert (row["verdict"], row["size"], row["corpus"]) == ("agrees", "other corpus", "pooled")


def test_claims_about_acc_take_the_papers_own_containment() -> None:
    both: Scores = {"acc": [1, 1, 1, 1], "acc_raw": [1, 0, 1, 0], "em": [1, 1, 1, 1], "f1": [1, 1, 1, 1]}
    none: Scores = {name: [0] * 4 for name in both}
    runs = {"r": run_of("hotpotqa", {"d": ("deepnote", "", both), "v": ("vanilla", "", none)})}
    for kind in ("order", "value"):
        assert (verdict(runs, kind=kind)["ours"], verdict(runs, kind=kind)["reason"]) == (50, "")
    assert verdict(runs, metric="avg")["ours"] == pytest.approx(100 * 2.5 / 3)
    del runs["r"].samples[0].metrics["acc_raw"]
    row = verdict(runs)
    assert (row["ours"], row["reason"]) == (100, "acc is normalised: not every record has acc_raw")
    assert verdict(runs, metric="em")["reason"] == ""


def test_no_difference_can_be_found() -> None:
    row = verdict(two([1, 0] * 100, [0, 0, *([1, 0] * 99)]))
    assert (row["ours"], row["verdict"]) == (0.5, "equivalent") and row["p_equivalent"] < 0.05
    assert 1 < row["detectable"] < 2  # one question of 200 differs: 2.8 standard errors of 0.5 points
    seconds = {name: {f"q{i}": float(i % 2) for i in range(200)} for name in ("deepnote", "vanilla")}
    row = verdict({"a-run": changed(two([1] * 200, [0] * 200)["a-run"], seconds=seconds)}, metric="seconds")
    assert row["verdict"] == "inconclusive" and math.isnan(row["p_equivalent"])  # no margin for what is no score


# --- which run a claim means


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dataset": "musique"}, "no run of musique"),
        ({"dataset": "dnalign"}, "the claim is of no single data set"),
        ({"method": "deepnote_dpo"}, "no run of hotpotqa has deepnote trained.data=dnalign"),
        ({"method": "sail"}, "there is no method sail"),
        ({"method": "amber"}, "no run of hotpotqa has amber"),
        ({"setting": "max_step=1;max_failure=1"}, "no run of hotpotqa has deepnote max_step=1 max_failure=1"),
        ({"setting": "wings=2"}, "deepnote has no setting wings"),
        ({"setting": "without=doubt"}, "deepnote has no setting that leaves out doubt"),
        ({"setting": "retriever=dense"}, "no run of hotpotqa has deepnote retriever=dense"),
        ({"setting": "noise=40"}, "no run of hotpotqa with 40 % noise"),
    ],
)
def test_what_was_not_run_says_why(fields: dict[str, str], reason: str) -> None:
    for kind in ("order", "value"):
        row = verdict(two([1], [0]), kind=kind, **fields)
        assert (row["verdict"], row["reason"], row["run"]) == ("not run", reason, "")
        assert math.isnan(row["ours"]) and pd.isna(row["n"])


def test_a_variant_is_found_by_its_settings_not_by_its_name() -> None:
    methods = {
        "deepnote": ("deepnote", "max_step=2;max_failure=1", {"acc": [1, 1]}),
        "mine": ("deepnote", "", {"acc": [0, 0]}),
        "note_only": ("deepnote", "without=adaptive_retrieval", {"acc": [1, 0]}),
    }
    runs = {"r": run_of("hotpotqa", methods)}
    found = {
        setting: [cell.method for cell in find_cells(runs, "hotpotqa", system_of("deepnote", setting))]
        for setting in ("", "questions=50", "max_step=3;max_failure=2", "max_step=2;max_failure=1")
    }
    assert list(found.values()) == [["mine"], ["mine"], ["mine"], ["deepnote"]]
    row = verdict(runs, other="deepnote", other_setting="without=adaptive_retrieval")
    assert (row["our_method"], row["our_other"], row["ours"]) == ("mine", "note_only", -50)


@pytest.mark.parametrize(("named", "ours"), left_out().items())
def test_what_an_ablation_leaves_out_is_a_setting_of_ours(
    named: tuple[str, str], ours: tuple[str, dict[str, Any]]
) -> None:
    system = system_of(named[0], f"without={named[1]}")
    default = system_of(ours[0], "")
    changed = {name for name, value in system.settings.items() if default.settings[name] != value}
    assert system.function == default.function and changed == set(ours[1])


def test_every_claim_of_the_papers_means_a_system() -> None:
    claims = paper_claims()
    systems = {*zip(claims["method"], claims["setting"], strict=True)}
    systems |= {*zip(claims["other"], claims["other_setting"], strict=True)} - {("", "")}
    assert all(system_of(method, setting).function for method, setting in systems)


def test_a_setting_newer_than_a_run_was_as_it_is_by_default() -> None:
    runs = {"old": run_of("hotpotqa", {"a": ("adaptive_note", "", {"acc": [1]})})}
    del runs["old"].info.methods["a"].settings["reviewer"]
    assert find_cells(runs, "hotpotqa", system_of("adaptive_note", ""))
    with pytest.raises(NotRunError, match="reviewer=False"):
        find_cells(runs, "hotpotqa", system_of("adaptive_note", "without=amr"))


def test_retriever_and_noise_are_those_of_the_run() -> None:
    cells = {"d": ("deepnote", "", {"acc": [1, 1, 0]}), "v": ("vanilla", "", {"acc": [0, 1, 0]})}
    runs = {name: run_of("hotpotqa", cells) for name in ("bm25", "dense", "noise")}
    runs["dense"] = changed(runs["dense"], retriever={"name": "contriever"})
    runs["noise"] = changed(runs["noise"], condition=Condition(noise_percent=40))
    for setting, found in (("retriever=dense", ["dense"]), ("noise=40", ["noise"]), ("", ["bm25", "dense"])):
        assert [cell.folder for cell in find_cells(runs, "hotpotqa", system_of("deepnote", setting))] == found
    # About the retriever, two runs are compared that differ in it, and only then.
    row = verdict(runs, setting="retriever=dense", other="deepnote", other_setting="retriever=bm25")
    assert (row["run"], row["other_run"], row["ours"]) == ("dense", "bm25", 0)
    assert verdict(runs)["fitting"] == 2
    del runs["bm25"].info.methods["v"], runs["dense"].info.methods["d"]
    assert verdict(runs)["reason"] == "no two runs with the same model, prompts and retriever have the two systems"


@pytest.mark.parametrize(
    "differing",
    [{"llm": {"model": "other"}}, {"prompts": {"a": "0"}}, {"retriever": {"name": "other"}}, {"repeat": 1}],
    ids=str,
)
def test_two_runs_are_compared_where_nothing_else_differs(differing: dict[str, Any]) -> None:
    runs = {
        "one": run_of("hotpotqa", {"d": ("deepnote", "", {"acc": [1, 1, 1]})}),
        "two": run_of("hotpotqa", {"v": ("vanilla", "", {"acc": [0, 1]})}),
    }
    runs["one"] = changed(runs["one"], prompts={"a": "1", "of one": "2"})
    runs["two"] = changed(runs["two"], prompts={"a": "1", "of two": "3"})  # a run has the prompts of its methods alone
    row = verdict(runs)
    assert (row["run"], row["other_run"], row["n"], row["ours"]) == ("one", "two", 2, 50)
    runs["two"] = changed(runs["two"], **differing)
    assert verdict(runs)["verdict"] == "not run"


def test_the_run_with_the_papers_model_comes_first_then_the_one_with_most_questions() -> None:
    runs = {
        "a": two([1] * 9, [0] * 9, model="tiny")["a-run"],
        "b": two([0] * 3, [0] * 3)["a-run"],
        "c": two([0] * 4, [0] * 4)["a-run"],
        "d": two([0] * 4, [0] * 4)["a-run"],
    }
    for kind in ("order", "value"):
        row = verdict(dict(reversed(runs.items())), kind=kind)
        assert (row["run"], row["n"], row["same_model"]) == ("c", 4, True)
    assert verdict({"a": runs["a"], "b": runs["b"]}, model="another")["run"] == "a"


def test_of_as_many_common_questions_the_runs_of_these_alone_come_first() -> None:
    runs = {
        "again": run_of("hotpotqa", {"d": ("deepnote", "", {"acc": [0, 0, 0, 1, 1]})}),  # a longer recording
        "first": run_of("hotpotqa", {"d": ("deepnote", "", {"acc": [1, 1, 0]})}),
        "parts": run_of("hotpotqa", {"v": ("vanilla", "", {"acc": [0, 1, 0]})}),
    }
    row = verdict(runs)
    assert (row["run"], row["other_run"], row["n"], row["fitting"]) == ("first", "parts", 3, 2)
    del runs["first"]
    assert verdict(runs)["run"] == "again"


def test_settings_are_read() -> None:
    assert settings_of("max_step=1;without=cf+sf") == {"max_step": 1, "without": "cf+sf"}
    assert settings_of("") == {}


def test_the_settings_of_a_claim_are_those_that_a_run_records() -> None:
    described = describe_method(partial(deepnote, top_k=5, max_step=1, max_failure=1, queries="joined"))
    system = system_of("deepnote", "max_step=1;max_failure=1")
    assert (system.function, system.settings) == (described.function, described.settings)


def test_a_trained_system_is_found_in_runs_that_say_so_and_compared_with_the_model_it_was_trained_from() -> None:
    def of(llm: dict[str, str], scores: Sequence[float]) -> Run:
        return run_of("hotpotqa", {"deepnote": ("deepnote", "", {"acc": scores})}, llm=llm)

    base = of({"model": "Qwen-2.5-7B-Instruct"}, [0.0] * 8)
    trained = of({"model": "mine", "trained_on": "dnalign", "base": "Qwen-2.5-7B-Instruct"}, [1.0] * 8)
    stranger = of({"model": "other", "trained_on": "dnalign", "base": "another"}, [1.0] * 8)
    dpo = {"method": "deepnote_dpo", "other": "deepnote", "model": "Qwen-2.5-7B-Instruct"}
    row = verdict({"a": base, "b": trained}, **dpo)
    assert (row["verdict"], row["run"], row["other_run"], row["same_model"]) == ("agrees", "b", "a", True)
    assert verdict({"a": base, "c": stranger}, **dpo)["reason"].startswith("no two runs with the same model")
    assert verdict({"a": base}, **dpo)["reason"] == "no run of hotpotqa has deepnote trained.data=dnalign"
    plain = {"kind": "value", "method": "deepnote", "value": 100.0}
    assert verdict({"b": trained}, **plain)["reason"] == "no run of hotpotqa has deepnote"
    assert verdict({"b": trained}, **plain | {"method": "deepnote_dpo"})["ours"] == 100
