"""A method is one file, its prompts and its entry in conf/method: everything else has it without being told."""

import asyncio
import importlib
import shutil
from pathlib import Path

import matplotlib.text
import pytest

from rag_notes import config, options
from rag_notes.cli import main
from rag_notes.config import load_config
from rag_notes.options import CONF
from rag_notes.prompts import templates
from rag_notes.report.figures import forest
from rag_notes.report.rows import score_rows
from rag_notes.studies.base import study
from rag_notes.studies.plan import plan
from tests.loopback import Loopback

METHOD = '''\
"""Spiral: ask again and again what is still missing (nobody's paper)."""

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Spiral RAG",
    source="nobody's paper, section 0",
    family="notes",
    limits=("turns",),
    calls=lambda s: s["turns"] + 1,
    prompts=("spiral", *ANSWER),
)


async def spiral(rag: Rag, question: Question, *, turns: Positive = 2) -> str:
    """Search with what was written so far."""
    text = question.question
    for _ in range(turns):
        text = await rag.ask("spiral", context=await rag.search(text, 2), question=question.question)
    return await rag.answer(text)
'''
PROMPT = "# Nobody's table.\n---\n{context}\n\nWhat is missing to answer {question}\n"


@pytest.fixture
def spiral(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project with the method's file, its prompts and its configuration added, and nothing else."""
    (tmp_path / "spiral.py").write_text(METHOD, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    shutil.copytree(CONF, tmp_path / "conf")
    entry = "# @package method.spiral\n_target_: spiral.spiral\nturns: 2   # section 0\n"
    (tmp_path / "conf" / "method" / "spiral.yaml").write_text(entry, encoding="utf-8")
    for module in (config, options):
        monkeypatch.setattr(module, "CONF", tmp_path / "conf")
    shutil.copytree(templates.PACKAGED, tmp_path / "prompts")
    for name in templates.SETS:
        for language in ("en", "zh"):
            (tmp_path / "prompts" / name / language / "spiral.txt").write_text(PROMPT, encoding="utf-8")
    monkeypatch.setattr(templates, "PACKAGED", tmp_path / "prompts")


@pytest.mark.usefixtures("spiral")
def test_every_table_plan_study_and_figure_has_a_new_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    assert "| notes | `spiral` | Spiral RAG | nobody's paper, section 0 | 3 |" in capsys.readouterr().out
    with Loopback(tmp_path / "log") as server:
        options = [
            *("dataset=mini", "limit=3", "method=[vanilla,spiral]", "retriever.cache=null", "resamples=100"),
            "+study.variants.spiral_1={method: spiral, turns: 1}",
            *("llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}", f"llm.store={tmp_path / 'store'}"),
            *(f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}"),
        ]
        chosen = load_config(["study=thresholds", *options])
        planned = asyncio.run(plan(chosen)).table.set_index("method")
        assert planned["at_most"][["spiral", "spiral_1"]].tolist() == [3 * 3, 3 * 2]
        results = asyncio.run(study("thresholds", *options, progress=False))
    assert results.overview()["missing"].tolist() == [0]
    points = results.points().query("function == 'spiral'")
    assert set(points["setting"]) == {"1", "2"}
    figure = forest(score_rows(results.table(), "f1"), group="family")
    assert any("Spiral RAG" in text.get_text() for text in figure.findobj(matplotlib.text.Text))
