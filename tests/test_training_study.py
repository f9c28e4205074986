"""Trainings read again, given away, and set beside the runs of their models, from files and runs worked by hand."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.config import load_study
from rag_notes.events import Decision, Event, Found, ParseFailure, Search
from rag_notes.running.records import RecordError, Run
from rag_notes.running.run_files import write_info, write_samples
from rag_notes.running.trainings import card_rows, load_training, publish_training
from rag_notes.studies.training import TrainingStudy, before_and_after, curves_figure, run
from rag_notes.types import Question
from tests.made import ask, make_run, make_sample

CARD = {
    "name": "content_filter",
    "sizes": {"amber_chunk_filter": 4},
    "dropped": {"amber_chunk_filter": {"gold passages are unknown": 2}, "amber_sentence_filter": {"no gold answer": 1}},
    "sha256": "0" * 64,
    "settings": {"scorer": "/home/me/models/base", "top_k": 5},
    "tests": ["dataset=hotpotqa dataset.hotpotqa.path=/home/me/secret.json"],
}
RECIPE = {
    "settings": {
        "base_model": "/home/me/models/base",
        "objective": "sft",
        "lora_rank": 16,
        "learning_rate": 1e-4,
        "epochs": 1.0,
    },
    "versions": {"torch": "2"},
    "data": CARD,
}
METRICS = {
    "examples": 5,
    "trained_on": 4,
    "held_out": 8,
    "too_long": {},
    "before": {"eval_loss": 2.0, "eval_rewards/accuracies": 0.5},
    "after": {"eval_loss": 0.5, "eval_rewards/accuracies": 0.75, "eval_only": 1.0},
    "steps": 2,
    "log": [{"loss": 3.0, "rewards/accuracies": 0.5}, {"loss": 1.0, "rewards/accuracies": 1.0}],
}


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    folder = tmp_path / "filter"
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps(RECIPE), encoding="utf-8")
    (folder / "metrics.json").write_text(json.dumps(METRICS), encoding="utf-8")
    return folder


def filtered(model: str, verdicts: str, **llm: Any) -> Run:
    """Amber on two questions with two passages each, of which the first is gold; a verdict is `+` or `-`."""
    samples = []
    for i in range(2):
        question = Question(f"q{i}", "?", ("gold",), gold_ids=("a",))
        hits = [Found(name, "", "", 1.0) for name in "ab"]
        said = ["useful" if verdict == "+" else "useless" for verdict in verdicts[2 * i : 2 * i + 2]]
        trace: list[Event] = [
            Search("?", 2, hits),
            *(ask("amber_chunk_filter", json.dumps({"result": one})) for one in said),
        ]
        sample = make_sample("amber", f"q{i}", {"acc": float(verdicts[2 * i : 2 * i + 2] == "+-")}, trace=trace)
        samples.append(replace(sample, question=question))
    made = make_run("made", {"amber": {"acc": [1.0]}}, llm={"model": model, "temperature": 0.0} | llm)
    return replace(made, samples=samples)


BEFORE = filtered("base", "++++")
AFTER = filtered(
    "base", "+-+-", trained_on="content_filter", base="base", stages={"amber_chunk_filter": {"model": "x"}}
)


def test_runs_are_paired_with_those_of_the_model_before() -> None:
    hotter = filtered("base", "++++", temperature=1.0)
    other = filtered("another", "++++")
    alone = filtered("dpo", "++++", trained_on="dnalign", base="nobody")
    unfinished = replace(BEFORE, info=replace(BEFORE.info, status="running"))
    (pair,) = before_and_after([other, hotter, unfinished, alone, AFTER, BEFORE])
    assert (pair.data, pair.before, pair.after, pair.label) == ("content_filter", BEFORE, AFTER, "made, content filter")
    settings = {"amber": replace(BEFORE.info.methods["amber"], settings={"top_k": 3})}
    assert before_and_after([replace(BEFORE, info=replace(BEFORE.info, methods=settings)), AFTER]) == []


def test_a_trained_filter_may_have_a_threshold() -> None:
    methods = {"amber": replace(AFTER.info.methods["amber"], settings={"chunk_threshold": 0.05})}
    decided = [
        replace(sample, trace=[*sample.trace, *(Decision("amber_chunk_filter", "useful") for _ in "ab")])
        for sample in AFTER.samples
    ]
    lower = Run(replace(AFTER.info, methods=methods), decided)
    pairs = before_and_after([lower, BEFORE, AFTER])
    assert [pair.label for pair in pairs] == ["made, content filter", "made, content filter, threshold 0.05"]
    study = TrainingStudy(load_study("training", ["resamples=200"]), [], [], [], pairs)
    kept = study.verdicts().groupby("dataset", sort=False)["useful"].sum().to_dict()
    assert kept == {"made, before": 4, "made, after": 2, "made, after, threshold 0.05": 4}
    assert set(study.table()["trained_on"]) == {"content_filter", "content_filter, threshold 0.05"}


def test_two_filters_and_two_settings_of_a_method_are_told_apart() -> None:
    def whole(run: Run, **stages: Any) -> Run:
        settings = {"amber": replace(run.info.methods["amber"], settings={"top_k": 5, "agents": True})}
        return replace(run, info=replace(run.info, methods=settings, llm=run.info.llm | stages))

    def trained_with(model: str) -> dict[str, Any]:
        return {"stages": {"amber_chunk_filter": {"model": model}, "amber_sentence_filter": {"model": model}}}

    runs = [BEFORE, AFTER, whole(BEFORE), whole(AFTER, **trained_with("base-second"))]
    pairs = before_and_after(runs)
    assert [pair.label for pair in pairs] == ["made, content filter, second", "made, content filter, x"]
    study = TrainingStudy(load_study("training", ["resamples=200"]), [], [], [], pairs)
    names = ["made, second, before", "made, second, after", "made, x, before", "made, x, after"]
    assert study.display_filter()["data set"].tolist() == names
    assert study.verdicts().groupby("dataset").size().to_dict() == dict.fromkeys(names, 4)
    pairs = before_and_after([*runs, whole(AFTER)])
    assert [pair.trained_on for pair in pairs if "x" in pair.variant] == [
        "content_filter, x",
        "content_filter, x, top_k=5, agents=True",
    ]


def test_before_and_after_by_hand() -> None:
    pairs = before_and_after([BEFORE, AFTER])
    study = TrainingStudy(load_study("training", ["resamples=200"]), [], [BEFORE, AFTER], [], pairs)
    rates: Any = study.filter_rates().set_index(["dataset", "rate"])
    assert rates.loc[("made, before", "specificity (other dropped)"), ["count", "of"]].tolist() == [0, 2]
    assert rates.loc[("made, after", "specificity (other dropped)"), ["count", "of"]].tolist() == [2, 2]
    assert rates.loc[("made, after", "recall (gold kept)"), ["count", "of"]].tolist() == [2, 2]
    before, after = study.display_filter().to_dict("records")
    assert (before["data set"], before["passages"], before["gold"]) == ("made, before", 4, 2)
    assert before["specificity (other dropped)"] == "0.0 [0.0, 65.8]"  # Wilson's interval of 0 of 2
    assert after["recall (gold kept)"] == "100.0 [34.2, 100.0]"
    shown: Any = study.display()
    (row,) = shown[shown["metric"] == "Acc."].to_dict("records")
    assert (row["data set"], row["trained on"], row["n"]) == ("made", "content_filter", 2)
    assert (row["before"], row["after"]) == ("0.0", "100.0")
    assert "searches" not in set(shown["metric"])  # one for every question, before and after


def test_declined_questions_are_counted_before_and_after() -> None:
    def answered(run: Run, *declined: float) -> Run:
        samples = [
            replace(sample, metrics=sample.metrics | {"rejected": rejected})
            for sample, rejected in zip(run.samples, declined, strict=True)
        ]
        return replace(run, samples=samples)

    pairs = before_and_after([answered(BEFORE, 1.0, 0.0), answered(AFTER, 0.0, 0.0)])
    study = TrainingStudy(load_study("training", []), [], [], [], pairs)
    # Wilson's interval of 1 and of 0 of 2.
    assert study.declined().values.tolist() == [
        ["made", "content_filter", "Amber", 2, "50.0 [9.5, 90.5]", "0.0 [0.0, 65.8]"]
    ]
    unknown = TrainingStudy(load_study("training", []), [], [], [], before_and_after([BEFORE, AFTER]))
    assert unknown.declined().empty


def test_responses_that_could_not_be_read_are_counted_by_stage_before_and_after() -> None:
    failed = [replace(sample, trace=[*sample.trace, ParseFailure("amber_chunk_filter")]) for sample in BEFORE.samples]
    one = [failed[0], BEFORE.samples[1]]
    pairs = before_and_after([replace(BEFORE, samples=failed), AFTER])
    study = TrainingStudy(load_study("training", []), [], [], [], pairs)
    # Wilson's intervals of 2 and of 0 of the four passages.
    row = ["made", "content_filter", "Amber", "amber_chunk_filter", 4, 4, "50.0 [15.0, 85.0]", "0.0 [0.0, 49.0]"]
    assert study.parse_failures().values.tolist() == [row]
    pairs = before_and_after([BEFORE, replace(AFTER, samples=one)])
    study = TrainingStudy(load_study("training", []), [], [], [], pairs)
    assert study.parse_failures().iloc[0, -2:].tolist() == ["0.0 [0.0, 49.0]", "25.0 [4.6, 69.9]"]
    assert TrainingStudy(study.config, [], [], [], before_and_after([BEFORE, AFTER])).parse_failures().empty


def test_trainings_are_tabulated(trained: Path, tmp_path: Path) -> None:
    config = load_study("training", [f"figures={tmp_path}"])
    study = TrainingStudy(config, [], [], [load_training(trained)], [])
    (recipe,) = study.recipes().to_dict("records")
    assert (recipe["training"], recipe["objective"], recipe["parameters"]) == ("filter", "SFT", "LoRA 16")
    assert study.data().values.tolist() == [
        ["filter", "amber_chunk_filter", 4, 2],
        ["filter", "amber_sentence_filter", 0, 1],
    ]
    assert study.dropped().values.tolist() == [
        ["filter", "amber_chunk_filter", "gold passages are unknown", 2],
        ["filter", "amber_sentence_filter", "no gold answer", 1],
    ]
    measured = {row[1]: row[2:] for row in study.held_out().values.tolist()}
    assert measured["loss"] == [8, "2.000", "0.500"]
    # Wilson's interval of 4 and of 6 of 8.
    assert measured["rewards, accuracies"] == [8, "50.0 [21.5, 78.5]", "75.0 [40.9, 92.9]"]
    assert "only" not in measured
    study.figure()
    assert {path.suffix for path in tmp_path.glob("training-*")} == {".png", ".pdf", ".csv"}


def test_a_study_without_trainings_and_runs_says_so(tmp_path: Path) -> None:
    config = load_study("training", [f"figures={tmp_path}"])
    study = TrainingStudy(config, [], [], [], [])
    tables = (study.recipes, study.data, study.dropped, study.held_out, study.display, study.display_filter)
    assert all(table().empty for table in tables)
    assert study.filter_rates().empty
    (text,) = study.figure().texts
    assert "no training" in text.get_text()


def test_runs_and_trainings_are_read_and_nothing_is_run(trained: Path, tmp_path: Path) -> None:
    for name, one in (("before", BEFORE), ("after", AFTER)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        write_info(folder, one.info)
        write_samples(folder / "samples.jsonl", one.samples)
    options = [f"runs={tmp_path / 'runs'}", f"study.trainings=[{trained}]"]
    study = asyncio.run(run(options))
    assert [one.name for one in study.trainings] == ["filter"]
    assert [pair.label for pair in study.pairs if pair.before.dataset == "made"] == ["made, content filter"]
    assert len([one for one in study.runs if one.dataset == "made"]) == 2
    published = asyncio.run(run([*options, "dataset=hotpotqa"]))  # came with the project
    assert {pair.before.dataset for pair in published.pairs} == {"hotpotqa"}
    assert asyncio.run(run([*options, "dataset=musique"])).pairs == []
    by_method = asyncio.run(run([*options, "dataset=twowikimultihopqa", "method=deepnote", "baseline=null"]))
    assert {name for pair in by_method.pairs for name in pair.after.methods} == {"deepnote"}
    with pytest.raises(RecordError, match=r"recipe\.json: no such file; name a folder that `rag-notes train` wrote"):
        asyncio.run(run([f"study.trainings=[{tmp_path}]"]))


def test_a_training_is_given_away_without_paths(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(trained), "--into", str(tmp_path / "none"), "--method", "amber"]) == 2
    assert not (tmp_path / "none").exists()
    assert main(["publish", str(trained), "--into", str(tmp_path / "results")]) == 0
    target = tmp_path / "results" / "trainings" / "filter"
    assert capsys.readouterr().out == f"{target}\n"
    assert "/home/me" not in "".join(path.read_text(encoding="utf-8") for path in target.iterdir())
    given = load_training(target)
    assert given.settings["base_model"] == "base" and given.card["settings"] == {"scorer": "base", "top_k": 5}
    assert given.metrics == METRICS and card_rows(given.card) == card_rows(CARD)
    (target / "recipe.json").write_text(
        json.dumps(RECIPE).replace("/home/me/models/base", "owner/base"), encoding="utf-8"
    )
    again = load_training(publish_training(target, tmp_path / "again"))
    assert again.settings["base_model"] == again.card["settings"]["scorer"] == "owner/base"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("recipe.json", "{", "recipe.json: is no JSON"),
        ("recipe.json", "[]", "recipe.json: expected an object, found list"),
        ("recipe.json", "{}", "has no settings, versions, data; `rag-notes train` writes it"),
        ("metrics.json", '{"before": {}}', "is not finished; the command that began it finishes it"),
    ],
)
def test_a_folder_that_holds_no_finished_training_is_named(trained: Path, name: str, text: str, says: str) -> None:
    (trained / name).write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=says):
        load_training(trained)


def test_a_curve_has_a_panel_for_each_training_and_measure(trained: Path) -> None:
    config = load_study("training", [])
    figure = TrainingStudy(config, [], [], [load_training(trained)], [])
    curves = figure.curves()
    assert curves["measure"].value_counts().to_dict() == {"loss": 2, "rewards/accuracies": 2}
    assert [axes.get_ylabel() for axes in curves_figure(curves).axes] == ["loss", "reward accuracy"]
