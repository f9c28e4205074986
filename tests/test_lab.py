"""`import rag_notes as rn`: what a notebook or a script of one's own does with it."""

import asyncio
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rag_notes as rn
from rag_notes.config import ConfigError
from rag_notes.lab import Lab
from rag_notes.running.records import Run
from tests.plain import plain_options, record_what_was_asked

ROOT = Path(__file__).parents[1]


async def parrot(rag: rn.Rag, question: rn.Question, *, word: str = "Rouen") -> str:
    return rag.note(word, kept=True)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return rn.open("plain", *plain_options(tmp_path))


def run(lab: Lab, *arguments: Any) -> Run:
    return asyncio.run(lab.run(*arguments))


def test_a_lab_says_what_is_in_it(lab: Lab) -> None:
    assert repr(lab) == "Lab('plain': 2 questions, 1 passages, bm25, tiny)"
    assert lab.question("two").question == "Where did Bizet die?"
    assert [hit.passage.id for hit in lab.search("Where was Géricault born?")] == ["p"]


def test_methods_run_by_name_and_as_functions_of_ones_own(lab: Lab, tmp_path: Path) -> None:
    failed = run(lab, ["vanilla"])
    assert failed.info.samples.errors == 2  # nothing is recorded yet
    record_what_was_asked(tmp_path)
    both = run(rn.open("plain", *plain_options_kept(tmp_path)), ["vanilla", parrot])
    assert both.methods == ["vanilla", "parrot"]
    assert [sample.metrics["em"] for sample in both.samples] == [1, 0, 1, 0]
    assert both.folder is not None
    assert rn.load(both.folder) == both


def plain_options_kept(folder: Path) -> Sequence[str]:
    """The options again, with the recording as it is."""
    kept = (folder / "recording.jsonl").read_bytes()
    options = plain_options(folder)
    (folder / "recording.jsonl").write_bytes(kept)
    return options


def test_questions_are_chosen_by_number_or_id_and_methods_may_be_named_otherwise(lab: Lab) -> None:
    first = run(lab, {"polly": parrot}, 1)
    assert [sample.key for sample in first.samples] == [("polly", "one")]
    other = run(lab, [parrot], ["two"])
    assert [sample.key for sample in other.samples] == [("parrot", "two")]


def test_what_there_is_not_is_named_with_what_there_is(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no method is called 'deepnot'; there is no_retrieval, .*deepnote"):
        run(lab, ["deepnot"])
    with pytest.raises(ConfigError, match=r"plain has no question 'three'; its first ones are one, two"):
        run(lab, [parrot], ["one", "three"])
    with pytest.raises(ConfigError, match=r"dataset=hotpot: no such dataset; there is hotpotqa"):
        rn.open("hotpot")
    with pytest.raises(ConfigError, match="a lab has one data set"):
        rn.open("[plain,mini]", *plain_options(tmp_path))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        rn.nothing  # noqa: B018


def test_a_run_is_shown_as_table_figure_trace_and_comparison(lab: Lab) -> None:
    made = run(lab, {"vanilla": parrot, "other": parrot})
    table = rn.table(made).to_html()
    assert "Vanilla RAG<" in table
    assert "50.0" in table
    assert "differs from Vanilla RAG" in table
    assert "differs from" not in rn.table(made.only(["other"])).to_html()
    assert rn.figure(made)._repr_png_()[0].startswith(b"\x89PNG")
    panels = [axes.get_xlabel().split("\n")[0] for axes in rn.figure(made, metrics=["f1"]).axes]
    assert panels == ["F1 (%)"]
    trace = rn.trace(made, "other", "two")
    assert "note kept\n    + Rouen" in repr(trace)
    assert "Where did Bizet die?" in trace._repr_html_()
    with pytest.raises(KeyError, match="no sample of 'other' on 'three'"):
        rn.trace(made, "other", "three")
    comparison = rn.compare(made, made, "vanilla", "other")
    (em,) = comparison.table[comparison.table["metric"] == "em"].to_dict("records")
    assert em["difference"] == 0


def in_a_process_of_its_own(code: str, folder: Path | None = None) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder or ROOT).stdout


def test_importing_loads_neither_tables_nor_figures() -> None:
    slow = "{'pandas', 'matplotlib', 'scipy', 'sklearn', 'torch', 'openai', 'tantivy'}"
    assert in_a_process_of_its_own(f"import sys, rag_notes; print({slow} & set(sys.modules))") == "set()\n"


def example(page: str) -> str:
    """The first method in Python on a page."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return next(block for block in blocks if "async def" in block).partition("\nrun = await")[0]


def test_the_method_of_the_readme_runs_when_pasted_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "pasted.py").write_text(example("README.md"), encoding="utf-8")
    script = f"""
        import asyncio, sys
        sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]
        import pasted
        from tests.scripted import play
        method = next(value for value in vars(pasted).values() if asyncio.iscoroutinefunction(value))
        played = play(method, lambda ask: f"from {{ask.stage}}")
        print(played.answer, played.log)
    """
    out = in_a_process_of_its_own(textwrap.dedent(script), tmp_path)
    assert out == "from answer_short ['search', 'note_init', 'answer_short']\n"
