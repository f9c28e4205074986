"""Half a surrogate pair, which no file can hold, in whatever a run has to do with."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rag_notes.events import Ask
from rag_notes.methods.rag import Rag
from rag_notes.methods.vanilla import vanilla
from rag_notes.retrieval.base import RetrieverError
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.running.run_files import load_run
from rag_notes.types import Hit, InputError, Question
from tests.loopback import Loopback
from tests.rivers import CORPUS, QUESTIONS, run_in


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log", delay=0.004) as running:
        yield running


@pytest.fixture(scope="module")
def retriever() -> BM25:
    return bm25(CORPUS, cache=None)


HALF = "half \ud83d of a pair"


async def with_half_a_pair(rag: Rag, question: Question) -> str:
    rag.note(f"{question.id}: {HALF}", kept=True)
    if question.id == "q1":
        raise RuntimeError(HALF)
    if question.id == "q2":
        return await rag.ask_text("any", f"{HALF}: {question.question}")
    return HALF


def test_half_a_surrogate_pair_in_an_answer_a_note_a_prompt_or_an_error_costs_neither_answer_nor_run(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    run = run_in(tmp_path, server.base_url, retriever, questions=QUESTIONS[:3], methods=[with_half_a_pair])
    assert run.info.status == "finished"
    assert [str(sample.error) for sample in run.samples] == ["None", "RuntimeError: half \ufffd of a pair", "None"]
    assert run.samples[0].answer == "half \ufffd of a pair"
    asked = run.samples[2].trace[-1]
    assert isinstance(asked, Ask)
    assert asked.prompt.startswith("half \ufffd of a pair: On which river")
    assert run.samples[2].answer
    assert load_run(tmp_path).samples == run.samples
    again = run_in(tmp_path, None, retriever, questions=QUESTIONS[:3], methods=[with_half_a_pair])
    assert again.samples == run.samples


class Failing(BM25):
    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise RetrieverError(HALF)


def test_half_a_surrogate_pair_in_what_ends_a_run_is_told_and_kept(tmp_path: Path) -> None:
    failing = bm25(CORPUS, cache=None)
    failing.__class__ = Failing
    with pytest.raises(RetrieverError):
        run_in(tmp_path, None, failing, questions=QUESTIONS[:1], methods=[vanilla])
    assert load_run(tmp_path).info.status == "stopped: half \ufffd of a pair"


def test_half_a_surrogate_pair_in_a_question_is_refused_before_anything_is_asked(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    seen = len(server.seen())
    with pytest.raises(InputError, match=r"question 'odd': expected valid Unicode, found half of a surrogate pair"):
        run_in(tmp_path, server.base_url, retriever, questions=[QUESTIONS[0], Question("odd", HALF, ("x",))])
    assert len(server.seen()) == seen
    assert list(tmp_path.iterdir()) == []
