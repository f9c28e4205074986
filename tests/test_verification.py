"""The papers' comparisons tested by runs: verdicts by hand, which run's method a claim is about, and the rows."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.config import load_study
from rag_notes.events import Counts
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.systems import SIDES, comparison_label, system_of
from rag_notes.papers.verification import VERDICTS, comparisons, counts, verdict, verify
from rag_notes.rates import load_speeds
from rag_notes.running.annotate import Subjects, quest_texts
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, Run
from rag_notes.studies.verification import parts
from tests.made import Scores, make_run, row_of

QWEN = "Qwen-2.5-7B-Instruct"


def run_of(
    dataset: str, methods: Mapping[str, tuple[str, str, Scores]], *, name: str = "a-run", metric: str = "", **info: Any
) -> Run:
    """A run with these methods by name: method and setting of a claim, and scores."""
    run = make_run(dataset, {method: scores for method, (_, _, scores) in methods.items()})
    systems = {name: system_of(*claimed, dataset, metric) for name, (*claimed, _) in methods.items()}
    infos = {name: MethodInfo(system.function, dict(system.settings)) for name, system in systems.items()}
    fields: dict[str, Any] = {"llm": {"model": "GPT-4o-mini"}, "dataset": DatasetInfo(dataset, 9, "0")}
    fields["methods"] = infos
    return replace(run, folder=Path(name), info=replace(run.info, **fields | info))


def changed(run: Run, name: str = "", **info: Any) -> Run:
    """The same run with another name or description."""
    return replace(run, folder=Path(name or str(run.folder)), info=replace(run.info, **info))


def two(method: Sequence[float | None], other: Sequence[float | None], dataset: str = "hotpotqa", **info: Any) -> Run:
    """A run with these accuracies of DeepNote and of vanilla RAG."""
    methods = {"deepnote": ("deepnote", "", {"acc": method}), "vanilla": ("vanilla", "", {"acc": other})}
    return run_of(dataset, methods, **info)


def claim(**fields: Any) -> dict[str, Any]:
    base = {"paper": "deepnote", "source": "Table 1", "kind": "order", "method": "deepnote", "other": "vanilla"}
    base |= {"setting": "", "other_setting": "", "dataset": "hotpotqa", "model": "GPT-4o-mini", "metric": "acc"}
    numbers = {"value": 20.0, "tolerance": 5.0}
    return base | numbers | ({"other": ""} if fields.get("kind") == "value" else {}) | fields


def row(*runs: Run, **fields: Any) -> dict[Any, Any]:
    """The row of one claim, verified by these runs."""
    (verified,) = verify(runs, pd.DataFrame([claim(**fields)])).to_dict("records")
    return verified


def test_a_comparison_by_hand() -> None:
    # Eight questions won, none lost: both extreme patterns of 2^8, and every resample of 1, ..., 1, 0, 0 is above 0.
    result = row(two([1] * 8 + [0, 1, None], [0] * 8 + [0, 1, 1]))  # the last one failed
    assert (result["mean"], result["score"], result["other_score"], result["n"]) == pytest.approx((80, 90, 10, 10))
    assert result["p"] == result["p_holm"] == 2 / 2**8 and 0 < result["low"] < 80 < result["high"]
    assert (result["verdict"], result["label"]) == ("agrees", "DeepNote – Vanilla RAG")
    assert row(two([0] * 9, [1] * 9))["verdict"] == "contradicted"
    assert row(two([1, 1, 1, 0.5], [0] * 4))["verdict"] == "undecided"  # p = 2/2^4, although its interval excludes 0
    assert row(two([1], [0]))["verdict"] == "undecided" and math.isnan(row(two([1], [0]))["low"])
    near = row(two([1, 0] * 100, [0, 0, *([1, 0] * 99)]))
    assert (near["mean"], near["verdict"]) == (0.5, "equivalent") and 1 < near["detectable"] < 2


def test_holm_corrects_over_the_rows_of_a_paper_alone() -> None:
    scores = {name: {"acc": [score] * 8, "em": [score] * 8} for name, score in (("deepnote", 1), ("vanilla", 0))}
    run = run_of("hotpotqa", {name: (name, "", scores[name]) for name in scores})
    claims = [claim(), claim(metric="em"), claim(metric="f1"), claim(paper="amber", model="Llama3-8b")]
    p = [2 * 2 / 2**8, 2 * 2 / 2**8, math.nan, 2 / 2**8]  # two tests of deepnote, f1 not being run, and one of amber
    assert verify([run], pd.DataFrame(claims))["p_holm"].tolist() == pytest.approx(p, nan_ok=True)


RULE: dict[str, Any] = {
    **{"supported": 1, "other": "vanilla", "method": "deepnote", "metric": "f1", "mean": 1.0, "low": 0.5, "high": 2.0},
    **{"p_holm": 0.049, "p_equivalent": 0.9, "score": 40.0, "other_score": 39.0, "corpus": "given"},
    **{"same_model": False, "theirs": 1.0, "tolerance": 0.0, "extra": False},
}


def test_the_rules() -> None:
    rules: list[tuple[dict[str, Any], str]] = [
        ({}, "agrees"),
        ({"p_holm": 0.05}, "undecided"),
        ({"mean": -1.0, "low": -2.0, "high": -0.5}, "contradicted"),
        ({"low": -0.5, "p_equivalent": 0.04}, "equivalent"),
        ({"low": -0.5, "p_equivalent": 0.04, "score": 8.0, "other_score": 7.0}, "undecided"),  # a floor
        ({"supported": 0}, "unsupported"),
        ({"mean": math.nan}, "not run"),
        ({"method": "no_retrieval"}, "other model"),  # what a model knows by itself
        ({"method": "no_retrieval", "same_model": True}, "agrees"),
        ({"method": "no_retrieval", "same_model": True, "extra": True}, "other model"),
        ({"method": "no_retrieval", "metric": "cost"}, "agrees"),
        ({"other": ""}, "other model"),
        ({"other": "", "corpus": "pooled", "same_model": True}, "other corpus"),
        # 59.2 - 54.9 is 4.3000000000003.
        ({"other": "", "same_model": True, "mean": 59.2, "theirs": 54.9, "tolerance": 4.3}, "agrees"),
    ]
    for fields, expected in rules:
        assert verdict(RULE | fields) == expected, fields


def test_a_single_number_by_hand() -> None:
    # 15 of 20 right: Wilson's interval is (0.75 + 0.0960 -+ 1.96 sqrt(0.009375 + 0.0024)) / 1.1921 = 53.1 to 88.8
    run = two([1] * 15 + [0] * 5, [0] * 20)
    result = row(run, kind="value", value=70.0, tolerance=5.0)
    assert (result["mean"], result["n"], result["verdict"]) == (75, 20, "agrees") and math.isnan(result["p"])
    assert (result["low"], result["high"]) == pytest.approx((53.13, 88.81), abs=0.01)
    assert [row(run, kind="value", value=value)["verdict"] for value in (80.1, 95.5)] == ["undecided", "contradicted"]
    assert row(changed(run, llm={"model": "tiny"}), kind="value", value=70.0)["verdict"] == "other model"
    claims = [claim(kind="value", model=model, value=value) for model, value in ((QWEN, 10.0), ("GPT-4o-mini", 75.0))]
    (result,) = verify([run], pd.DataFrame(claims)).to_dict("records")
    assert (result["theirs"], result["least"], result["verdict"]) == (75, 10, "agrees")  # of the model that was run


@pytest.mark.parametrize(("passages", "corpus"), [(2_000_000, "part"), (5_000_000, "given"), (900, "pooled")])
def test_a_number_of_another_corpus_is_neither_confirmed_nor_refuted(passages: int, corpus: str) -> None:
    run = two([1] * 9, [0] * 9)
    assert row(run, kind="value", value=100.0)["corpus"] == "none"  # nothing was searched
    run = replace(run, samples=[replace(sample, counts=Counts(searches=1)) for sample in run.samples])
    retriever = {"name": "bm25", "corpus": {"passages": passages}}  # of 5,233,329 in the papers
    dataset = replace(run.info.dataset, corpus="pooled" if corpus == "pooled" else "given")
    run = changed(run, dataset=dataset, retriever=retriever)
    result = row(run, kind="value", value=100.0)
    assert (result["corpus"], result["verdict"]) == (corpus, "agrees" if corpus == "given" else "other corpus")
    assert (row(run)["corpus"], row(run)["verdict"]) == (corpus, "agrees")  # a comparison may carry over


def test_seconds_and_cost_of_an_answer() -> None:
    costs: tuple[Scores, Scores] = ({"cost": [0.25, 0.5]}, {"cost": [0.125, 0.25]})
    run = run_of("hotpotqa", {"d": ("deepnote", "", costs[0]), "v": ("vanilla", "", costs[1])})
    seconds = {("d", "q0"): 3.0, ("d", "q1"): 4.0, ("v", "q0"): 1.0}
    run = replace(run, samples=[replace(s, seconds=seconds.get((s.method, s.question.id))) for s in run.samples])
    assert row(run, metric="cost")["mean"] == pytest.approx(0.1875)
    assert row(run, metric="cost")["remark"] == "of our implementations"
    assert (row(run, metric="seconds")["mean"], row(run, metric="seconds")["n"]) == (2.0, 1)
    model = "Qwen2.5-Coder-1.5B-Instruct"  # whose speed is known: not the time waited
    took = [replace(s, counts=Counts(calls=1, prompt_tokens=1000 * (s.method == "d"))) for s in run.samples]
    fast = replace(changed(run, llm={"model": model}), samples=took)
    assert row(fast, metric="seconds")["mean"] == pytest.approx(load_speeds()[model].prompt / 1000)
    counted = {"d": Counts(calls=1, completion_tokens=500), "v": Counts(calls=1)}
    unpriced = [replace(sample, metrics={}, counts=counted[sample.method]) for sample in run.samples]
    cost = row(replace(run, samples=unpriced), metric="cost")["mean"]
    assert cost == pytest.approx(500 * 0.60 / 1e6)  # gpt-4o-mini: 60 cents for a million tokens written
    assert row(run, metric="t_f1")["reason"] == "the runs of hotpotqa do not have t_f1 of the same questions"


def test_acc_is_of_strings_that_are_not_normalised_and_rejects_of_methods_that_were_offered_unknown() -> None:
    scores: Scores = {"acc": [1, 1], "acc_raw": [1, 0], "em": [1, 1], "f1": [1, 1]}
    run = run_of("hotpotqa", {"d": ("deepnote", "", scores), "v": ("vanilla", "", {name: [0, 0] for name in scores})})
    results = [row(run), row(run, kind="value"), row(run, metric="avg")]
    assert [result["mean"] for result in results] == pytest.approx([50, 50, 250 / 3])
    older = [replace(s, metrics={name: s.metrics[name] for name in ("acc", "em", "f1")}) for s in run.samples]
    assert row(replace(run, samples=older))["mean"] == 100
    rejected: Scores = {"rejected": [0, 1, 1, 0]}
    runs = [run_of("realtimeqa", {name: ("chain_of_note", "", rejected)}, metric=name) for name in ("reject", "acc")]
    fields = {"kind": "value", "method": "chain_of_note", "dataset": "realtimeqa", "metric": "reject"}
    assert (row(*runs, **fields)["mean"], row(*runs, **fields)["our_method"]) == (50, "reject")
    assert row(runs[1], **fields)["reason"] == "no run of realtimeqa has Chain-of-Note"


def test_an_average_weighs_its_data_sets_alike_and_is_of_runs_that_go_together() -> None:
    def run_with(dataset: str, right: Scores, **info: Any) -> Run:
        wrong = {"em": [0.0] * len(right["em"])}
        methods = {"c": ("chain_of_note", "", right), "r": ("retrieve_read", "", wrong)}
        return run_of(dataset, methods, name=dataset, **info)

    runs = [run_with("nq_open", {"em": [1, 1, 1, 0]}), run_with("triviaqa", {"em": [0] * 20})]
    runs.append(run_with("webquestions", {"em": [1, 1]}))
    larger = run_with("nq_open", {"em": [1] * 9}, llm={"model": "another"})
    average = {"method": "chain_of_note", "other": "retrieve_read", "dataset": "average", "metric": "em"}
    result = row(replace(larger, folder=Path("larger")), *runs, **average)
    assert (result["mean"], result["n"]) == (pytest.approx(175 / 3), 26) and result["run"].startswith("nq_open,")
    assert row(*runs[:2], **average)["reason"] == "no run of webquestions"
    other = run_with("webquestions", {"em": [0]}, retriever={"name": "dense"})
    reason = "no one model, set of prompts and retriever has runs of nq_open, triviaqa, webquestions"
    assert row(*runs[:2], other, **average)["reason"] == reason


def test_scores_of_ragquesteval_count_for_the_answers_they_are_about() -> None:
    run = run_of("crud", {"vanilla": ("vanilla", "", {"empty": [0.0, 0.0]})})
    assert run.info.methods["vanilla"].settings["top_k"] == 2  # the papers' setting on CRUD
    judge = MethodInfo("quest_eval", {"sha256": Subjects(list(run.samples), quest_texts).sha256})
    judged = changed(run, "judged", methods={"vanilla": judge}, condition=Condition(annotates="quest_eval"))
    answers = [json.dumps({"scores": {"q_r": score}}) for score in (1.0, 0.0)]
    samples = [replace(sample, answer=answer) for sample, answer in zip(run.samples, answers, strict=True)]
    result = row(run, replace(judged, samples=samples), kind="value", method="vanilla", dataset="crud", metric="q_r")
    assert (result["mean"], result["n"]) == (50, 2)


def test_what_was_not_run_says_why() -> None:
    for fields, reason in (
        ({"dataset": "musique"}, "no run of musique"),
        ({"method": "deepnote_dpo"}, "no run of hotpotqa has DeepNote (dpo)"),
        ({"method": "sail"}, "there is no method sail"),
        ({"setting": "max_step=1;max_failure=1"}, "no run of hotpotqa has DeepNote 1-1"),
        ({"setting": "wings=2"}, "deepnote has no setting wings"),
        ({"setting": "without=doubt"}, "deepnote has no setting that leaves out doubt"),
        ({"setting": "retriever=dense"}, "no run of hotpotqa has DeepNote retriever dense"),
        ({"setting": "noise=40"}, "no run of hotpotqa with 40 % noise"),
    ):
        result = row(two([1], [0]), **fields)
        assert (result["verdict"], result["reason"]) == ("not run", reason)


def test_a_method_is_found_by_its_settings_not_by_its_name() -> None:
    methods = {
        "deepnote": ("deepnote", "max_step=2;max_failure=1", {"acc": [1, 1]}),
        "mine": ("deepnote", "", {"acc": [0, 0]}),
        "note_only": ("deepnote", "without=adaptive_retrieval", {"acc": [1, 0]}),
    }
    run = run_of("hotpotqa", methods)
    for setting, name in (("", "mine"), ("questions=50", "mine"), ("max_step=2;max_failure=1", "deepnote")):
        assert row(run, kind="value", setting=setting)["our_method"] == name
    result = row(run, other="deepnote", other_setting="without=adaptive_retrieval")
    assert (result["our_method"], result["our_other"], result["mean"]) == ("mine", "note_only", -50)
    old = run_of("hotpotqa", {"a": ("adaptive_note", "", {"acc": [1]})})
    del old.info.methods["a"].settings["reviewer"]  # a setting newer than the run was as it is by default
    assert row(old, kind="value", method="adaptive_note")["mean"] == 100
    assert row(old, kind="value", method="adaptive_note", setting="without=amr")["verdict"] == "not run"


def test_retriever_and_noise_are_those_of_the_run() -> None:
    bm25 = two([1, 1, 0], [0, 1, 0], name="bm25")
    dense = changed(bm25, "dense", retriever={"name": "contriever"})
    noisy = changed(bm25, "noise", condition=Condition(noise_percent=40))
    for setting, name in (("retriever=dense", "dense"), ("noise=40", "noise"), ("", "bm25")):
        assert row(bm25, dense, noisy, kind="value", setting=setting)["run"] == name
    result = row(bm25, dense, setting="retriever=dense", other="deepnote", other_setting="retriever=bm25")
    assert (result["run"], result["other_run"], result["mean"]) == ("dense", "bm25", 0)
    assert row(bm25.only(["deepnote"]), dense.only(["vanilla"]))["reason"].startswith("no two runs with the same model")


def test_two_runs_are_compared_where_nothing_else_differs() -> None:
    first = run_of("hotpotqa", {"d": ("deepnote", "", {"acc": [1, 1, 1]})}, prompts={"a": "1", "of first": "2"})
    second = run_of("hotpotqa", {"v": ("vanilla", "", {"acc": [0, 1]})}, name="second", prompts={"a": "1", "b": "3"})
    result = row(first, second)
    assert (result["run"], result["other_run"], result["n"], result["mean"]) == ("a-run", "second", 2, 50)
    others: list[dict[str, Any]] = [{"llm": {"model": "x"}}, {"prompts": {"a": "0"}}, {"retriever": {}}, {"repeat": 1}]
    assert all(row(first, changed(second, **other))["verdict"] == "not run" for other in others)


def test_the_papers_model_comes_first_then_most_questions_then_fewest_other_answers() -> None:
    runs = [two([1] * 9, [0] * 9, name="tiny", llm={"model": "gpt-4o tiny"}), two([0] * 3, [0] * 3, name="three")]
    runs += [two([0] * 4, [0] * 4, name=name, llm={"model": "gpt-4o mini"}) for name in ("four", "again")]
    results = [row(*runs, kind=kind) for kind in ("order", "value")]
    assert all((result["run"], result["n"], result["same_model"]) == ("four", 4, True) for result in results)
    assert row(*runs[:2], model="another")["run"] == "tiny"
    long = run_of("hotpotqa", {"d": ("deepnote", "", {"acc": [0, 0, 0, 1, 1]})}, name="long")
    short = run_of("hotpotqa", {"d": ("deepnote", "", {"acc": [1, 1, 0]})}, name="short")
    other = run_of("hotpotqa", {"v": ("vanilla", "", {"acc": [0, 1, 0]})}, name="other")
    assert (row(long, short, other)["run"], row(long, other)["run"]) == ("short", "long")


def test_a_trained_system_is_compared_with_the_model_it_was_trained_from_and_a_stand_in_is_marked() -> None:
    def run_with(name: str, score: float, **llm: Any) -> Run:
        methods = {method: (method, "", {"acc": [score] * 8}) for method in ("deepnote", "amber", "vanilla")}
        return run_of("hotpotqa", methods, name=name, llm=llm)

    base = run_with("base", 0, model=QWEN)
    trained = run_with("trained", 1, model="mine", trained_on="dnalign", base=QWEN)
    dpo = {"method": "deepnote_dpo", "other": "deepnote", "model": QWEN}
    result = row(base, trained, **dpo)
    assert (result["mean"], result["run"], result["other_run"], result["same_model"]) == (100, "trained", "base", True)
    stranger = run_with("stranger", 1, model="other", trained_on="dnalign", base="another")
    assert all(math.isnan(row(*runs, **dpo)["mean"]) for runs in ([base, stranger], [base]))
    assert row(trained, kind="value")["verdict"] == "not run"  # DeepNote itself is not trained
    staged = run_with("staged", 1, model=QWEN, stages={"judge": {"model": "x"}})
    assert not row(staged, kind="value", model=QWEN)["same_model"]
    amber = {"paper": "amber", "method": "amber", "model": QWEN}
    assert (row(base, **amber)["remark"], row(base)["remark"]) == ("prompted, not trained", "")
    assert row(run_with("filters", 1, model="mine", trained_on="content_filter", base=QWEN), **amber)["remark"] == ""


def test_every_claim_is_in_exactly_one_row_and_names_systems_of_ours() -> None:
    claims, rows = paper_claims(), comparisons()
    key = ["paper", "dataset", "method", "setting", "other", "other_setting", "metric"]
    for _, setting in SIDES:
        claims[setting] = claims[setting].str.replace(r";?questions=\d+", "", regex=True)
    assert not rows.duplicated(key).any() and len(claims.merge(rows, on=key)) == len(claims) == rows["claims"].sum()
    sides = {(row[method], row[setting]) for row in rows.to_dict("records") for method, setting in SIDES if row[method]}
    assert all(system_of(*side).function for side in sides)
    unsupported = rows[(rows["supported"] == 0) & (rows["metric"] == "cost")]
    assert unsupported["label"].tolist() == ["No retrieval – Vanilla RAG"]  # cheaper in the paper's own Table 9
    limits = claim(other="deepnote", other_setting="max_step=3;max_failure=2")
    assert comparison_label(limits) == "DeepNote: whole – 3-2"
    noise = claim(setting="noise=40", other_setting="noise=40")
    assert comparison_label(noise) == "DeepNote – Vanilla RAG, both 40 % noise"


def test_on_a_data_set_of_ours_the_claims_of_all_data_sets_are_one_row() -> None:
    claims = [claim(), claim(dataset="musique", value=7.5, model=QWEN, setting="questions=50"), claim(kind="value")]
    table = verify([two([1] * 8, [0] * 8, dataset="world")], pd.DataFrame(claims), extra_datasets=["world"])
    result = row_of(table, dataset="world")
    assert (result["claims"], result["printed"]) == (2, f"hotpotqa GPT-4o-mini: 20; musique {QWEN}: 7.5")
    assert (result["least"], result["most"], result["mean"], result["verdict"]) == (7.5, 20, 100, "agrees")
    assert counts(table).to_dict("index")["deepnote", "answers"] == {"agrees": 1, "not run": 3, "all": 4}
    assert set(verify([], extra_datasets=["world"])["verdict"]) == {"not run", "unsupported"} < set(VERDICTS)


def test_the_study_runs_what_the_studies_with_variants_run() -> None:
    config = load_study("verification", ["dataset=mini", "limit=1", "method=[vanilla]", "method.vanilla.top_k=3"])
    assert [part.study.name for part in parts(config)][1:] == ["ablation", "thresholds", "top_k", "robustness"]
    assert all(part.limit == 1 and part.method["vanilla"]["top_k"] == 3 for part in parts(config))
    assert [*config.method] == ["vanilla"] and "deepnote" in parts(config)[1].method
