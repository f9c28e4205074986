"""Trainings read again, given away, and set beside the runs of their models, from files and runs worked by hand."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rag_notes
from rag_notes.cli import main
from rag_notes.config import load_study
from rag_notes.events import Decision, Event, Found, ParseFailure, Search
from rag_notes.files import SHIPPED
from rag_notes.methods.adaptive_rag import classify
from rag_notes.running.records import Run
from rag_notes.studies.content_filter import filter_rates
from rag_notes.studies.training import TrainingStudy, before_and_after, run
from rag_notes.training.cards import load_training, publish_training
from rag_notes.types import InputError, Question
from tests.made import ask, make_run, make_sample

CARD = {
    "name": "content_filter",
    "sizes": {"amber_chunk_filter": 4},
    "dropped": {"amber_chunk_filter": {"gold passages are unknown": 2}, "amber_sentence_filter": {"no gold answer": 1}},
    "sha256": "0" * 64,
    "settings": {"scorer": "/home/me/models/base", "top_k": 5},
    "tests": ["dataset=hotpotqa dataset.hotpotqa.path=/home/me/secret.json"],
}
SETTINGS = {"base_model": "/home/me/models/base", "objective": "sft", "lora_rank": 16}
RECIPE = {"settings": SETTINGS, "versions": {"torch": "2"}, "data": CARD}
METRICS = {
    **{"examples": 5, "trained_on": 4, "held_out": 8, "too_long": {}, "steps": 2},
    "before": {"eval_loss": 2.0, "eval_rewards/accuracies": 0.5},
    "after": {"eval_loss": 0.5, "eval_rewards/accuracies": 0.75, "eval_only": 1.0},
    "log": [{"loss": 3.0, "rewards/accuracies": 0.5}, {"loss": 1.0, "rewards/accuracies": 1.0}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "filter"
    path.mkdir()
    (path / "recipe.json").write_text(json.dumps(RECIPE), encoding="utf-8")
    (path / "metrics.json").write_text(json.dumps(METRICS), encoding="utf-8")
    return path


def filtered(model: str, verdicts: str, **llm: Any) -> Run:
    """Amber on two questions with two passages each, of which the first is gold; a verdict is `+` or `-`."""
    samples = []
    for i in range(2):
        question = Question(f"q{i}", "?", ("gold",), gold_ids=("a",))
        words = ["useful" if verdict == "+" else "useless" for verdict in verdicts[2 * i : 2 * i + 2]]
        asks = [ask("amber_chunk_filter", json.dumps({"result": word})) for word in words]
        trace: list[Event] = [Search("?", 2, [Found(name, "", "", 1.0) for name in "ab"]), *asks]
        sample = make_sample("amber", f"q{i}", {"acc": float(words == ["useful", "useless"])}, trace=trace)
        samples.append(replace(sample, question=question))
    llm = {"model": model, "temperature": 0.0} | llm
    return replace(make_run("made", {"amber": {"acc": [1.0]}}, llm=llm), samples=samples)


BEFORE = filtered("base", "++++")
STAGES = {"amber_chunk_filter": {"model": "x"}}
AFTER = filtered("base", "+-+-", trained_on="content_filter", base="base", stages=STAGES)


def study_of(*runs: Run, trainings: Any = ()) -> TrainingStudy:
    return TrainingStudy(load_study("training", ["resamples=200"]), [], list(trainings), before_and_after(runs))


def with_settings(original: Run, llm: Any = None, **settings: Any) -> Run:
    methods = {"amber": replace(original.info.methods["amber"], settings=settings)}
    return replace(original, info=replace(original.info, methods=methods, llm=original.info.llm | (llm or {})))


def with_samples(original: Run, *changes: dict[str, Any]) -> Run:
    pairs = zip(original.samples, changes, strict=True)
    return replace(original, samples=[replace(sample, **change) for sample, change in pairs])


def test_runs_are_paired_with_those_of_the_model_before() -> None:
    hotter = filtered("base", "++++", temperature=1.0)
    other = filtered("another", "++++")
    alone = filtered("dpo", "++++", trained_on="dnalign", base="nobody")
    unfinished = replace(BEFORE, info=replace(BEFORE.info, status="running"))
    (pair,) = before_and_after([other, hotter, unfinished, alone, AFTER, BEFORE])
    assert (pair.data, pair.before, pair.after, pair.trained_on) == ("content_filter", BEFORE, AFTER, "content_filter")
    assert before_and_after([with_settings(BEFORE, top_k=3), AFTER]) == []


def test_filters_with_a_threshold_two_filters_and_two_settings_are_told_apart() -> None:
    decisions = [Decision("amber_chunk_filter", "useful")] * 2
    lower = with_samples(AFTER, *({"trace": [*sample.trace, *decisions]} for sample in AFTER.samples))
    study = study_of(with_settings(lower, chunk_threshold=0.05), BEFORE, AFTER)
    assert {pair.trained_on for pair in study.pairs} == {"content_filter", "content_filter, threshold 0.05"}
    useful = study.verdicts().groupby("dataset", sort=False)["useful"].sum().to_dict()
    assert useful == {"made, before": 4, "made, after": 2, "made, after, threshold 0.05": 4}
    second = {"stages": {"amber_chunk_filter": {"model": "base-second"}, "amber_sentence_filter": {"model": "base"}}}
    settings: dict[str, Any] = {"top_k": 5, "agents": True}
    runs = [BEFORE, AFTER, with_settings(BEFORE, **settings), with_settings(AFTER, second, **settings)]
    study = study_of(*runs)
    assert [pair.variant for pair in study.pairs] == ["second", "x"]
    names = ["made, second, before", "made, second, after", "made, x, before", "made, x, after"]
    assert study.verdicts().groupby("dataset", sort=False).size().to_dict() == dict.fromkeys(names, 4)
    twins = [pair.trained_on for pair in before_and_after([*runs, with_settings(AFTER, **settings)])]
    assert len(set(twins)) == 3
    assert [name.rpartition(", ")[0] for name in twins if "x" in name] == ["content_filter, x"] * 2


def test_before_and_after_by_hand() -> None:
    study = study_of(BEFORE, AFTER)
    rates: Any = filter_rates(study.verdicts(), resamples=100).set_index(["dataset", "rate"])
    assert rates.loc[("made, before", "specificity (other dropped)"), ["count", "of"]].tolist() == [0, 2]
    assert rates.loc[("made, after", "specificity (other dropped)"), ["count", "of"]].tolist() == [2, 2]
    assert rates.loc[("made, after", "recall (gold kept)"), ["count", "of"]].tolist() == [2, 2]
    table: Any = study.table().set_index("metric")
    assert table.loc["acc", ["dataset", "n", "mean_a", "mean_b"]].tolist() == ["made", 2, 0.0, 1.0]
    assert table.loc["searches", "ties"] == 2


def test_declined_questions_and_parse_failures_are_counted_before_and_after() -> None:
    key = ["made", "content_filter", "amber"]
    runs = [with_samples(BEFORE, {"metrics": {"rejected": 1.0}}, {"metrics": {"rejected": 0.0}})]
    runs.append(with_samples(AFTER, *[{"metrics": {"rejected": 0.0}}] * 2))
    table = study_of(*runs).declined().round(3)
    # Wilson's interval of 1 and of 0 of 2.
    assert table.values.tolist() == [[*key, "before", 1, 2, 0.5, 0.095, 0.905], [*key, "after", 0, 2, 0, 0, 0.658]]
    failed = [{"trace": [*sample.trace, ParseFailure("amber_chunk_filter")]} for sample in BEFORE.samples]
    table = study_of(with_samples(BEFORE, *failed), AFTER).parse_failures().round(3)
    # Wilson's intervals of 2 and of 0 of the four passages.
    key.append("amber_chunk_filter")
    assert table.values.tolist() == [[*key, "before", 2, 4, 0.5, 0.15, 0.85], [*key, "after", 0, 4, 0, 0, 0.49]]
    table = study_of(BEFORE, with_samples(AFTER, failed[0], {})).parse_failures().round(3)
    assert table[["value", "low", "high"]].values.tolist() == [[0, 0, 0.49], [0.25, 0.046, 0.699]]
    assert study_of(BEFORE, AFTER).declined().empty and study_of(BEFORE, AFTER).parse_failures().empty


def test_trainings_are_tabulated(folder: Path) -> None:
    nothing = study_of()
    assert all(rows().empty for rows in (nothing.curves, nothing.held_out, nothing.table, nothing.verdicts))
    study = study_of(trainings=[load_training(folder)])
    table: Any = study.held_out().round(3).set_index(["measure", "when"])
    assert table.loc["loss", "value"].tolist() == [2.0, 0.5]
    # Wilson's interval of 4 and of 6 of 8.
    shares = table.loc["rewards/accuracies", ["n", "value", "low", "high"]].values.tolist()
    assert shares == [[8, 0.5, 0.215, 0.785], [8, 0.75, 0.409, 0.929]]
    assert "only" not in set(study.held_out()["measure"])
    assert study.curves()["measure"].value_counts().to_dict() == {"loss": 2, "rewards/accuracies": 2}


def test_published_runs_and_trainings_are_read_by_data_set_and_method(folder: Path, tmp_path: Path) -> None:
    def study(*options: str) -> TrainingStudy:
        return asyncio.run(run(load_study("training", [f"runs={tmp_path}", *options])))

    assert {pair.data for pair in study().pairs} == {"chain_of_note", "content_filter", "dnalign"}
    assert {pair.before.dataset for pair in study("dataset=hotpotqa").pairs} == {"hotpotqa"}
    pairs = study("dataset=twowikimultihopqa", "method=deepnote").pairs
    assert {name for pair in pairs for name in pair.after.methods} == {"deepnote"}
    one = study(f"study.trainings=[{folder}]", "dataset=musique")
    assert (one.pairs, [training["name"] for training in one.trainings]) == ([], ["filter"])
    with pytest.raises(InputError, match=r"recipe\.json: no such file; `rag-notes train` writes it"):
        study(f"study.trainings=[{tmp_path}]")


def test_the_published_curves_and_verdicts_are_as_they_were(tmp_path: Path) -> None:
    study = asyncio.run(run(load_study("training", [f"runs={tmp_path}"])))
    golden = Path(__file__).with_name("golden")
    pd.testing.assert_frame_equal(study.curves(), pd.read_csv(golden / "training.csv"), rtol=1e-5, check_dtype=False)
    verdicts = pd.read_csv(golden / "training-filter.csv", keep_default_na=False).drop(columns="passage_id")
    pd.testing.assert_frame_equal(study.verdicts().drop(columns="passage_id"), verdicts, check_dtype=False)


def test_a_training_is_published_without_paths(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(folder), "--into", str(tmp_path / "none"), "--method", "amber"]) == 2
    assert not (tmp_path / "none").exists()
    assert main(["publish", str(folder), "--into", str(tmp_path / "results")]) == 0
    target = tmp_path / "results" / "trainings" / "filter"
    assert capsys.readouterr().out == f"{target}\n"
    assert "/home/me" not in "".join(path.read_text(encoding="utf-8") for path in target.iterdir())
    training = load_training(target)
    assert training["settings"]["base_model"] == "base" and training["metrics"] == METRICS
    card = {name: value for name, value in CARD.items() if name != "tests"}
    assert training["data"] == card | {"settings": {"scorer": "base", "top_k": 5}}
    recipe = json.dumps(RECIPE).replace("/home/me/models/base", "owner/base")
    (target / "recipe.json").write_text(recipe, encoding="utf-8")
    again = load_training(publish_training(target, tmp_path / "again"))
    assert again["settings"]["base_model"] == again["data"]["settings"]["scorer"] == "owner/base"
    (folder / "metrics.json").write_text('{"before": {}}', encoding="utf-8")
    with pytest.raises(InputError, match="is not finished; run the command that began it again"):
        load_training(folder)


def test_the_labels_of_the_guide_are_the_cheapest_strategy_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = {"all": "111", "one search": "011", "many": "001", "odd": "010", "none": "000", "heart": "100"}
    methods = ("no_retrieval", "vanilla", "ircot", "deepnote")
    samples = [
        make_sample(method, question, {"acc": float(mark)}, question=question)
        for question, marks in outcomes.items()
        for method, mark in zip(methods, marks + "1", strict=True)
    ]
    scored = replace(make_run("made", {method: {"acc": [1.0]} for method in methods}), samples=samples)
    guide = (SHIPPED / "docs" / "training.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rag_notes, "load", lambda _: scored, raising=False)
    exec(guide.partition("```python\n")[2].partition("```")[0], {})
    lines = (tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()
    labels = {"all": "A", "heart": "A", "one search": "B", "odd": "B", "many": "C", "none": "C"}
    assert (lines[0], dict(line.split(",") for line in lines[1:])) == ("question,label", labels)
    assert classify("all of it?", "labels.csv") in {"A", "B", "C"}
