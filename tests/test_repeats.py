import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rag_notes.config import ConfigError, build_datasets, build_methods, build_retriever, load_config
from rag_notes.report.scores import scores_markdown
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.site import write_report
from rag_notes.report.tables import counts, diagnostics, results
from rag_notes.running.records import Condition, MethodInfo, RecordError, Run
from rag_notes.running.repeats import pooled
from rag_notes.running.run import run_on
from rag_notes.running.run_files import load_runs
from rag_notes.types import InputError
from tests.made import make_run, row_of
from tests.scripted import ScriptedLLM

VANILLA: Sequence[Sequence[float]] = ([1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0])
DEEPNOTE: Sequence[Sequence[float | None]] = ([1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 0, None])


@pytest.fixture
def repeats() -> list[Run]:
    return [
        make_run("toy", {"vanilla": {"acc": a}, "deepnote": {"acc": b}}, repeat=repeat)
        for repeat, (a, b) in enumerate(zip(VANILLA, DEEPNOTE, strict=True))
    ]


def test_repeats_are_one_result_by_hand(repeats: list[Run]) -> None:
    table = results(repeats)
    row = row_of(table, method="vanilla", metric="acc")
    # The questions' means are 1, 1/3, 0 and 2/3, those of the repeats 2/4, 3/4 and 1/4.
    assert (row["n"], row["mean"]) == (4, 0.5)
    assert (row["repeats"], row["repeat_sd"], row["always"]) == (3, 0.25, 0.25)
    assert row["interval"] == "bca"
    row = row_of(table, method="deepnote", metric="acc")
    # One repeat has no answer to the last question: of the other three the means are 1, 1 and 1/3.
    assert (row["n"], row["n_paired"]) == (3, 3)
    assert row["mean"] == pytest.approx(7 / 9)
    assert (row["repeat_sd"], row["always"]) == (pytest.approx(math.sqrt(1 / 27)), pytest.approx(2 / 3))
    # Against vanilla's 1, 1/3 and 0 the differences are 0, 2/3 and 1/3: two of four patterns reach their sum.
    assert (row["difference"], row["p"]) == (pytest.approx(1 / 3), 0.5)


def test_tables_say_that_there_are_repeats(repeats: list[Run]) -> None:
    shown = ScoresTable(results(repeats))
    assert str(shown.wide.iloc[0, 0]).endswith("] sd 25.0, always 25.0")
    assert "Means over the repeats" in str(shown.caption)
    text = scores_markdown({f"run{run.info.repeat}": run for run in repeats}, ["acc"])
    assert text.count("| method |") == 1
    assert "questions, 3 repeats" in text
    assert "sd 25.0, always 25.0" in text
    assert "repeat" not in ScoresTable(results(repeats[:1])).to_html()


def test_counts_are_means_over_repeats_and_diagnostics_one_by_one(repeats: list[Run]) -> None:
    timed = [
        replace(run, info=replace(run.info, seconds={"vanilla": {"q0": 1.0 + run.info.repeat, "q1": 4.0}}))
        for run in repeats
    ]
    row = row_of(counts(timed, ["seconds"]), method="vanilla")
    assert (row["mean"], row["n"]) == (3.0, 2)  # 2 and 4
    assert list(diagnostics(repeats)["dataset"].unique()) == [f"toy, repeat {repeat}" for repeat in range(3)]


def test_what_is_no_repeat_is_not_pooled(repeats: list[Run]) -> None:
    first, second, _ = repeats
    with pytest.raises(InputError, match="two runs of 'toy'"):
        results([first, first])
    with pytest.raises(InputError, match="two runs of 'toy'"):
        results([first, replace(second, info=replace(second.info, llm={"model": "made", "temperature": 1}))])
    assert list(pooled({"a": first, "b": second, "c": first})) == ["a", "c"]


def test_repeats_of_other_code_or_prompts_are_refused(repeats: list[Run]) -> None:
    first, second, _ = repeats
    method = MethodInfo("made.vanilla", {}, "changed")
    changed = replace(second.info, methods=second.info.methods | {"vanilla": method})
    with pytest.raises(RecordError, match="repeats 0 and 1 of 'toy' were made with other code"):
        results([first, replace(second, info=changed)])
    prompted = [replace(run, info=replace(run.info, prompts={"en/x": str(run.info.repeat)})) for run in repeats]
    with pytest.raises(RecordError, match="other prompts"):
        results(prompted)


def test_a_report_has_the_repeats_as_one_and_one_by_one(repeats: list[Run], tmp_path: Path) -> None:
    page = write_report({f"run{run.info.repeat}": run for run in repeats}, tmp_path / "report").read_text("utf-8")
    assert "toy, all repeats <small>run0, run1, run2</small>" in page
    assert "sd 25.0, always 25.0" in page
    assert all(f"toy <small>run{repeat}</small>" in page for repeat in range(3))


def test_a_list_of_repeats_asks_anew_in_each_and_shows_one_table(tmp_path: Path) -> None:
    config = load_config([f"runs={tmp_path}", "dataset=mini", "limit=3", "method=[vanilla]", "repeat=[0,1]"])

    async def run() -> list[Run]:
        async with ScriptedLLM(lambda ask: f"answer {ask.repeat}") as llm:
            (dataset,) = build_datasets(config)
            place = (config, build_methods(config), dataset, build_retriever(config, dataset.corpus), llm, Condition())
            with pytest.raises(ConfigError, match=r"repeat=\[0, 1\]: one repeat at a time"):
                await run_on(*place, progress=False)
            return [await run_on(*place, repeat=repeat, progress=False) for repeat in config.repeat]

    runs = asyncio.run(run())
    assert [[sample.answer for sample in run.samples] for run in runs] == [["answer 0"] * 3, ["answer 1"] * 3]
    assert runs[0].folder != runs[1].folder
    assert row_of(results(runs), metric="acc")["repeats"] == 2
    assert "2 repeats" in scores_markdown(load_runs(str(run.folder) for run in runs))


def test_clusters_of_gold_are_taken_together_and_named() -> None:
    def asked(gold: str) -> Run:
        run = make_run("toy", {"vanilla": {"em": [1, 1, 0, 0]}, "deepnote": {"em": [1, 1, 1, 1]}})
        samples = [
            replace(sample, question=replace(sample.question, gold_ids=tuple(gold[int(sample.question.id[1])])))
            for sample in run.samples
        ]
        return replace(run, samples=samples)

    row = row_of(results([asked("aabb")], clusters=True), method="deepnote", metric="em")
    # Two clusters with differences that sum to 0 and 2: one sign to change, where there would be two by questions.
    assert (row["clusters"], row["p"], row["difference"]) == (2, 1.0, 0.5)
    assert row_of(results([asked("aabb")]), method="deepnote", metric="em")["p"] == 0.5
    apart = results([asked("abcd")], clusters=True)
    assert row_of(apart, method="vanilla", metric="em")["interval"] == "wilson"
    assert row_of(apart, method="vanilla", metric="em")["clusters"] == 4
    assert "by clusters of questions" in str(ScoresTable(apart).caption)
    assert "by clusters of questions" in scores_markdown({"a": asked("aabb")}, clusters=True)
