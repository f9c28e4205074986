"""Runs given away without a word of their data set: what stays, what is checked, and what is made of them."""

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import rag_notes as rn
from rag_notes.cli import main
from rag_notes.events import Ask, Decision, Event, Found, Note, ParseFailure, Search, Stop, count
from rag_notes.files import SHIPPED
from rag_notes.report.figures import save_figure
from rag_notes.report.tables import results
from rag_notes.running.annotate import told_sha256
from rag_notes.running.publish import check, publish, without_text
from rag_notes.running.quest_scores import quest_texts
from rag_notes.running.records import Condition, RecordError, Sample, SampleError, require_text
from rag_notes.running.run_files import PUBLISHED, load_run, write_info, write_samples
from rag_notes.studies.chain_of_facts import judged
from rag_notes.studies.knowledge_density import knowledge_density
from rag_notes.studies.robustness import noise_passages
from rag_notes.types import InputError, Question
from tests.made import make_info, make_run
from tests.plain import QUESTIONS, finished_run, run_folder

SECRET = "Ann Ro was born in the town of Tis, and nobody else was ever born there, as far as anybody knows"
TRACE: list[Event] = [
    Search(SECRET, 5, [Found("id of " + SECRET, SECRET, SECRET, 1.0)]),
    Ask("note_init", SECRET, SECRET, "stop", 7, 3, "0123456789abcdef" * 4, [(SECRET, -0.1)]),
    Note(SECRET, kept=True),
    Decision("summary", SECRET),
    Decision("complexity", "C"),
    ParseFailure("note_query"),
    Stop("max_step"),
]
QUESTION = Question("q", SECRET, (SECRET,), gold_titles=(SECRET,), gold_ids=(SECRET,), type="bridge", hops=2)
SAMPLES = [
    Sample("deepnote", QUESTION, "Tis", None, {"acc": 1.0}, count(TRACE), list(TRACE)),
    Sample("vanilla", QUESTION, SECRET, None, {"acc": 0.0}, count(TRACE), list(TRACE)),
    Sample("ircot", QUESTION, "", SampleError("LLMError", SECRET), {}, count([]), []),
]


def test_a_published_sample_has_its_scores_and_counts_and_no_text() -> None:
    for sample in SAMPLES:
        shown = without_text(sample)
        assert "Ann Ro" not in repr(shown) and "Tis," not in repr(shown)
        assert without_text(shown) == shown
        assert (shown.metrics, shown.counts, shown.method) == (sample.metrics, sample.counts, sample.method)
        assert (shown.question.id, shown.question.type, shown.question.hops) == ("q", "bridge", 2)
    short, long, failed = map(without_text, SAMPLES)
    assert short.answer == "Tis"
    assert long.answer.startswith("sha256:") and len(long.answer) == 23
    assert failed.error is not None and failed.error.kind == "LLMError"
    asked = short.trace[1]
    assert isinstance(asked, Ask) and (asked.stage, asked.key, asked.prompt_tokens) == (
        "note_init",
        "0123456789abcdef",
        7,
    )
    assert short.trace[4:] == TRACE[4:]


def test_found_and_gold_passages_can_be_told_apart_and_verdicts_in_a_word_be_read() -> None:
    responses = ['{"result": "useful"}', "Useless", '{"status": "True"}', "A useful town", "Tis", "", None]
    trace: list[Event] = [
        Search("a", 5, [Found("gold", "Ann", "born in Tis", 2.0), Found("other", "Ann", "born in Tis", 1.0)]),
        *(Ask("amber_chunk_filter", "", response) for response in responses),
    ]
    question = Question("q", "Where?", gold_ids=("gold", "not found"))
    shown = without_text(Sample("amber", question, "Tis", None, {}, count(trace), trace))
    search, *asked = shown.trace
    assert isinstance(search, Search)
    assert [hit.id in shown.question.gold_ids for hit in search.hits] == [True, False]
    assert [hit.score for hit in search.hits] == [2.0, 1.0] and "Tis" not in repr(search)
    read = [event.response for event in asked if isinstance(event, Ask)]
    assert read[:3] == responses[:3] and read[-1] is None
    assert all(response is not None and response.startswith("sha256:") for response in read[3:6])


def test_a_run_that_is_not_finished_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_info(tmp_path / "run", make_info("made", ["vanilla"], status="running"))
    with pytest.raises(RecordError, match="is not finished"):
        publish(tmp_path / "run", tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    options = finished_run(tmp_path)
    capsys.readouterr()
    return options


def test_tables_are_made_of_published_records_without_the_data_set(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *made]) == 0
    table = capsys.readouterr().out.splitlines()
    assert main(["publish", str(run_folder(tmp_path)), "--into", str(tmp_path / "results")]) == 0
    target = tmp_path / "results" / run_folder(tmp_path).name
    assert capsys.readouterr().out == f"{target}\n"
    packed = lzma.decompress((target / "samples.jsonl.xz").read_bytes())
    published = packed.decode() + (target / "run.json").read_text(encoding="utf-8")
    assert {path.name for path in target.iterdir()} == {"run.json", "samples.jsonl.xz"}
    assert not [
        word for one in QUESTIONS for word in (json.dumps(one["question"])[1:-1], "He was born") if word in published
    ]
    (tmp_path / "questions.jsonl").unlink()
    again = [*made, "from_records=true", f"runs={tmp_path / 'results'}"]
    assert main(["run", *again]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == table[:-1]  # all but the run's folder
    assert main(["run", *again, "method.vanilla.top_k=3"]) == 2
    error = capsys.readouterr().err
    assert "questions.jsonl" in error and "none is of this run" in error
    assert main(["run", *made]) == 2  # without from_records the file is needed


def test_a_table_of_a_study_has_its_index_as_columns(made: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", *made, "study=cost", "~study.variants", "--show", "display"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| data set | method | US dollars")
    assert [row.split(" | ")[1] for row in rows] == ["No retrieval", "Vanilla RAG"]


def test_a_table_of_scores_is_printed_as_markdown_and_a_figure_is_no_table(
    made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", *made, "study=main_results", "--show", "display"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| method | ") and "EM (n = 2) |" in head
    assert [row.split(" | ")[0] for row in rows[:2]] == ["| No retrieval", "| Vanilla RAG"]
    assert "Mean in % with its 95 % interval" in rows[-1]
    assert main(["tables", *made, "study=main_results", "--show", "figure"]) == 2
    assert "--show figure: this study has " in capsys.readouterr().err


def test_a_part_of_a_run_is_published(made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, into = str(run_folder(tmp_path)), str(tmp_path / "results")
    assert main(["publish", folder, "--into", into, "--method", "vanilla"]) == 0
    part, whole = load_run(tmp_path / "results" / run_folder(tmp_path).name), load_run(folder)
    assert part.methods == ["vanilla"] and [*part.samples] == [*map(without_text, whole.of("vanilla"))]
    assert (part.info.samples.done, part.info.samples.of) == (2, 2) and list(part.info.seconds) == ["vanilla"]
    assert main(["publish", folder, "--into", into, "--method", "deepnote"]) == 2
    assert "has no method deepnote; there is no_retrieval, vanilla" in capsys.readouterr().err
    assert main(["publish", folder, "--into", into, "--method", "no_retrieval"]) == 2
    assert "holds vanilla, too; name all methods at once, or delete it first" in capsys.readouterr().err
    assert main(["publish", folder, "--into", into]) == 0
    assert load_run(tmp_path / "results" / run_folder(tmp_path).name).methods == ["no_retrieval", "vanilla"]


def test_the_scores_of_ragquesteval_are_published_with_the_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("crud", {"vanilla": {"empty": [0.0, 0.0]}})
    about = {"vanilla": {"sha256": told_sha256(run.samples, quest_texts)}}
    scores = [json.dumps({"scores": {"q_gold": 1.0, "q_r": score}}) for score in (1.0, 0.5)]
    annotation = make_info("crud", about, condition=Condition(annotates="quest_eval"))
    folders = {name: tmp_path / name for name in ("run", "annotation", "other")}
    for folder in folders.values():
        folder.mkdir()
    write_info(folders["run"], run.info)
    write_samples(folders["run"] / "samples.jsonl", run.samples)
    write_info(folders["annotation"], annotation)
    write_samples(
        folders["annotation"] / "samples.jsonl",
        [replace(sample, answer=answer, metrics={}) for sample, answer in zip(run.samples, scores, strict=True)],
    )
    write_info(folders["other"], run.info)
    write_samples(folders["other"] / "samples.jsonl", [replace(sample, answer="another") for sample in run.samples])

    into = ["--into", str(tmp_path / "results")]
    assert main(["publish", str(folders["run"]), str(folders["annotation"]), *into]) == 0
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"run"}
    published = load_run(tmp_path / "results" / "run")
    assert [sample.metrics for sample in published.samples] == [
        {"empty": 0.0, "q_gold": 1.0, "q_r": 1.0},
        {"empty": 0.0, "q_gold": 1.0, "q_r": 0.5},
    ]
    capsys.readouterr()
    of_published = ["table", str(tmp_path / "results" / "run"), "--metric", "q_r"]
    assert main(of_published) == 0
    table = capsys.readouterr().out
    assert "| Vanilla RAG | 75.0 [50.0, 100.0] |" in table
    assert main(["table", str(folders["run"]), str(folders["annotation"]), "--metric", "q_r"]) == 0
    assert capsys.readouterr().out == table
    assert main(["publish", str(folders["other"]), str(folders["annotation"]), *into]) == 2
    assert "annotation: has RAGQuestEval's scores of other answers than those of " in capsys.readouterr().err
    # Of another model are other answers, which the annotation is not about.
    write_info(folders["other"], replace(run.info, llm={"model": "another"}))
    assert main(["publish", *map(str, folders.values()), *into]) == 0
    assert [sample.metrics for sample in load_run(tmp_path / "results" / "other").samples] == [{"empty": 0.0}] * 2
    assert main(["publish", str(folders["annotation"]), *into]) == 2
    assert "annotation: has RAGQuestEval's scores of another run's answers; name that run, too" in (
        capsys.readouterr().err
    )


def test_a_run_is_set_beside_a_published_one(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = publish(run_folder(tmp_path), tmp_path / "results")
    assert main(["run", *made, "--check", str(target)]) == 0
    assert "no_retrieval: 2 same\nvanilla: 2 same\n" in capsys.readouterr().out
    packed = target / "samples.jsonl.xz"
    first, second, *others = lzma.decompress(packed.read_bytes()).decode().splitlines(keepends=True)
    changed = [first.replace("Rouen", "Paris"), second.replace('"key":"', '"key":"x'), *others[:-1]]
    packed.write_bytes(lzma.compress("".join(changed).encode()))
    assert main(["run", *made, "--check", str(target)]) == 1
    out = capsys.readouterr().out
    assert "no_retrieval: 1 other answer\nno_retrieval: 1 other calls\n" in out
    assert "vanilla: 1 not published\nvanilla: 1 same\n" in out
    assert sum(check(load_run(run_folder(tmp_path)), target).values()) == 4


def test_what_was_published_unpacked_is_read_and_replaced(made: list[str], tmp_path: Path) -> None:
    target = publish(run_folder(tmp_path), tmp_path / "results")
    run, packed = load_run(target), (target / "samples.jsonl.xz").read_bytes()
    write_samples(target / "samples.jsonl", run.samples)
    (target / "samples.jsonl.xz").unlink()
    assert load_run(target).samples == run.samples
    assert publish(run_folder(tmp_path), tmp_path / "results") == target
    assert {path.name for path in target.iterdir()} == {"run.json", "samples.jsonl.xz"}
    assert (target / "samples.jsonl.xz").read_bytes() == packed


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no archive" + data])
def test_a_published_file_that_is_not_whole_is_named(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    target = publish(run_folder(tmp_path), tmp_path / "results")
    packed = target / "samples.jsonl.xz"
    packed.write_bytes(damage(packed.read_bytes()))
    assert main(["table", str(target)]) == 2
    error = capsys.readouterr().err
    assert f"{packed}: cannot be unpacked (" in error and "fetch or publish it again" in error
    publish(run_folder(tmp_path), tmp_path / "results")
    assert main(["table", str(target)]) == 0


def test_a_published_file_that_unpacks_to_too_much_is_refused(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = publish(run_folder(tmp_path), tmp_path / "results")
    monkeypatch.setattr("rag_notes.running.run_files._MAX_UNPACKED", 1000)
    assert main(["table", str(target)]) == 2
    assert "samples.jsonl.xz: unpacks to more than 1,000 bytes" in capsys.readouterr().err


def test_a_published_run_is_not_marked_anew(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = publish(run_folder(tmp_path), tmp_path / "results")
    before = {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()}
    assert main(["score", str(target)]) == 2
    assert "was published without the text" in capsys.readouterr().err
    assert {name: (target / name).read_bytes() for name in before} == before


def test_what_is_counted_from_texts_refuses_a_run_without_them(made: list[str], tmp_path: Path) -> None:
    published = load_run(publish(run_folder(tmp_path), tmp_path / "results"))
    require_text(load_run(run_folder(tmp_path)))
    for counted in (
        noise_passages,
        lambda runs: knowledge_density(runs, []),
        lambda runs: judged(runs, {}),
    ):
        with pytest.raises(InputError, match="was published without the text of passages, notes and responses"):
            counted([replace(published, info=replace(published.info, condition=Condition(noise_percent=0)))])


def test_what_the_project_publishes_is_without_text() -> None:
    for path in PUBLISHED.glob("*/samples.jsonl.xz"):
        for sample in load_run(path.parent).samples:
            assert sample == without_text(sample)


def test_the_figure_in_the_readme_is_that_of_the_published_runs(tmp_path: Path) -> None:
    folder = SHIPPED / "data" / "results"
    names = (
        "hotpotqa-Qwen2.5-Coder-1.5B-Instruct-4bf9df8956",
        "twowikimultihopqa-Qwen2.5-Coder-1.5B-Instruct-bd30b9dba8",
        "musique-Qwen2.5-Coder-1.5B-Instruct-fcc359233a",
    )
    runs = [rn.load(folder / name) for name in names]
    png, *_ = save_figure(rn.figure(*runs, metrics=["f1", "all_gold_seen"]), results(runs), tmp_path, "multihop")
    assert png.read_bytes() == (SHIPPED / "docs" / "img" / "multihop.png").read_bytes(), (
        "docs/img/multihop.png has drifted: draw it again as this test does"
    )
