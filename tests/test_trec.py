import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rag_notes.cli import main
from rag_notes.events import Event
from rag_notes.report.trec import rankings_of, write_trec
from rag_notes.running.records import Run
from rag_notes.running.run_files import write_info, write_samples
from rag_notes.types import InputError, Question
from tests.made import make_run, search

pytest.importorskip("ir_measures", reason="needs the extra trec: pip install -e '.[trec]'")

QUESTIONS = (
    Question("q0", "Who?", gold_ids=("a", "b")),
    Question("q1", "Where?", gold_titles=("New York",)),
    Question("q2", "Unanswerable?"),
)


@pytest.fixture
def run() -> Run:
    made = make_run("toy", {"vanilla": {"em": [1, 1, 1]}, "no_retrieval": {"em": [1, None, 1]}})
    traces: list[list[Event]] = [
        [search("Who?", "T", "x", "c"), search("Who else?", "T", "x", "a"), search("again", "T", "x", "c")],
        [search("Where?", "New York", "x", "n")],
        [search("Un?", "T", "x", "c")],
    ]
    samples = [
        replace(sample, question=QUESTIONS[i % 3], trace=traces[i] if sample.method == "vanilla" else [])
        for i, sample in enumerate(made.samples)
    ]
    return replace(made, samples=samples)


def test_files_and_measures_by_hand(run: Run, tmp_path: Path) -> None:
    table = write_trec(run.questions, rankings_of(run), tmp_path / "trec").set_index("ranking")
    assert (tmp_path / "trec" / "qrels").read_text() == "q0 0 a 1\nq0 0 b 1\nq1 0 New%20York 1\n"
    assert (tmp_path / "trec" / "vanilla-all.run").read_text().splitlines() == [
        "q0 Q0 c 1 1.000000 vanilla-all",
        "q0 Q0 a 2 0.500000 vanilla-all",
        "q1 Q0 New%20York 1 1.000000 vanilla-all",
        "q2 Q0 c 1 1.000000 vanilla-all",
    ]
    assert list(table.index) == ["vanilla-first", "vanilla-all"]  # what does not search has no ranking
    assert dict(table.loc["vanilla-first"]) == {"n": 2, "nDCG@10": 0.5, "RR": 0.5, "R@5": 0.5, "R@1000": 0.5, "AP": 0.5}
    # q0: of gold a and b, a at rank 2: DCG 1 / log2(3) of 1 + 1 / log2(3), RR 1/2, recall 1/2, AP (1/2) / 2.
    gain = 1 / math.log2(3)
    assert table.loc["vanilla-all", "nDCG@10"] == pytest.approx((gain / (1 + gain) + 1) / 2)
    assert list(table.loc["vanilla-all"])[2:] == pytest.approx([0.75, 0.75, 0.75, 0.625])


def test_the_commands_write_them(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_info(folder, run.info)
    write_samples(folder / "samples.jsonl", run.samples)
    assert main(["trec", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "vanilla-all" in capsys.readouterr().out
    assert (tmp_path / "out" / "measures.csv").read_text().startswith("ranking,n,nDCG@10,RR,")
    assert main(["retrieval", "dataset=mini", "--trec", str(tmp_path / "found")]) == 0
    assert (tmp_path / "found" / "mini" / "bm25.run").stat().st_size


def test_without_gold_or_package_the_error_says_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no question has gold passages"):
        write_trec(QUESTIONS[2:], rankings_of(run), tmp_path)
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(InputError, match=r"ir_measures is not installed, .* pip install 'rag-notes\[trec\]'"):
        write_trec(QUESTIONS, rankings_of(run), tmp_path)
