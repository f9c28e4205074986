"""How much of what an answer is made from is evidence, and how good the answer is (DeepNote, section 5.3, Figure 3)."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from rag_notes.config import Config
from rag_notes.events import Note, answered, searches
from rag_notes.methods.parse import parse_copied, parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.answer import normalize_answer, tokens
from rag_notes.report.tables import ANSWER_METRICS
from rag_notes.running.annotate import annotate
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.running.samples import Sample
from rag_notes.studies.base import Study
from rag_notes.types import InputError, Language, Passage, Question

QUANTITIES = ["reference_tokens", "evidence_tokens", "density", "density_marked", "density_parsed", "performance"]
"""What is measured of an answer; all but the tokens are shares from 0 to 1."""

_NO_EVIDENCE = frozenset({"none", "无"})


async def run(config: Config, *, progress: bool = True) -> "KnowledgeDensity":
    """Run the methods and have the evidence marked in the reference of every answer, by the answering model.

    Raises InputError for a method whose reference is not defined, otherwise as `rag_notes.running.run.run_methods`.
    """
    one_repeat(config)
    runs = await run_methods(config, progress=progress)
    if runs[-1].info.finished:
        runs += await annotate(config, runs, "evidence", mark_evidence, reference_of, progress=progress)
    return KnowledgeDensity(config, runs)


class KnowledgeDensity(Study):
    """Length and density of the references, and how good the answers made from them are."""

    def answers(self) -> pd.DataFrame:
        """Return a row for each answer without error: its reference, the evidence marked in it, and its score.

        Tokens are what spaces separate and has a letter or digit, in Chinese jieba's words. `density` is evidence /
        reference tokens: 0 where the model named no evidence (`no_evidence`) and where its response could not be read
        (`parse_failure`), NaN for an empty reference and where the evidence could not be asked for. `density_parsed`
        leaves the parse failures out. `density_marked` is the paper's: the tokens of all that the model named as
        evidence, copied word for word or not. `performance` is the mean of the metrics of the question's task, 0 to 1.
        """
        rows, names = [], ["dataset", "method", "question_id"]
        samples = [((run.dataset, one.method, one.question.id), run, one) for run in self.runs for one in run.samples]
        marked = {key: sample for key, run, sample in samples if run.info.condition.annotates == "evidence"}
        for key, run, sample in samples:
            if run.info.condition.annotates is None and sample.error is None:
                rows.append(dict(zip(names, key, strict=True)) | _density(sample, marked.get(key)))
        return pd.DataFrame(rows, columns=[*names, *QUANTITIES, "parse_failure", "no_evidence"])

    def table(self) -> pd.DataFrame:
        """Return the mean of every quantity of `answers` with its interval, by method."""
        return self.means(self.answers(), QUANTITIES).rename(columns={"metric": "quantity"})


async def mark_evidence(
    references: Mapping[str, list[dict[str, str]] | str], rag: Rag, question: Question, *, sha256: str
) -> str:
    """Ask which sentences of the reference are evidence for the answer; return those that were copied, one a line.

    A response with no sentence of the reference in it, and that does not say that there is none, cannot be read: it
    gives no evidence and is recorded as a parse failure. Nothing is asked about an empty reference.
    """
    reference = references[question.id]
    texts = reference_texts(reference)
    if not texts:
        return ""
    context = reference if isinstance(reference, str) else [Passage(**passage) for passage in reference]
    response = (await rag.ask("evidence", context=context, question=question.question)).replace("**", "")
    copied = [sentence for text in texts for sentence in parse_copied(text, response, question.language)]
    if not copied and normalize_answer(response, question.language) not in _NO_EVIDENCE:
        rag.parse_failure("evidence")
    return "\n".join(dict.fromkeys(copied))


def reference_of(sample: Sample) -> list[dict[str, str]] | str:
    """Return what an answer was made from: the best note, or the passages (id, title, text) of the only search.

    Raises InputError for a method that neither writes notes nor searches just once.
    """
    notes = [event.text for event in sample.trace if isinstance(event, Note) and event.kept]
    queries = searches(sample.trace)
    if not notes and len(queries) != 1:
        raise InputError(
            f"{sample.method} made {len(queries)} searches and no note for {sample.question.id}: what it answered from "
            "is not known; choose methods that write notes or search once"
        )
    return notes[-1] if notes else [asdict(passage) for passage in queries[0].read]


def reference_texts(reference: list[dict[str, str]] | str) -> list[str]:
    """Return the texts whose words count: the note, or the passages without titles; without bullets and bold."""
    texts = [reference] if isinstance(reference, str) else [passage["text"] for passage in reference]
    return [text for text in map(_plain, texts) if text]


def _density(sample: Sample, marked: Sample | None) -> dict[str, Any]:
    language = sample.question.language
    reference = sum(_count(text, language) for text in reference_texts(reference_of(sample)))
    scores = [sample.metrics[metric] for metric in ANSWER_METRICS if metric in sample.metrics]
    performance = sum(scores) / len(scores) if scores else math.nan
    row = {"reference_tokens": reference, "performance": performance, "parse_failure": False, "no_evidence": False}
    if marked is None or marked.error is not None:
        return row
    evidence, failed = _count(marked.answer, language), bool(marked.counts.parse_failures)
    row |= {"evidence_tokens": evidence, "parse_failure": failed}
    if reference:
        text = "\n".join(_plain(ask.response or "") for ask in answered(marked.trace))
        none = failed or normalize_answer(text, language) in _NO_EVIDENCE
        row |= {"density": evidence / reference, "density_marked": 0 if none else _count(text, language) / reference}
        row |= {"density_parsed": math.nan if failed else row["density"], "no_evidence": not evidence and not failed}
    return row


def _plain(text: str) -> str:
    return "\n".join(parse_lines(text.replace("**", "")))


def _count(text: str, language: Language) -> int:
    return sum(any(char.isalnum() for char in token) for token in tokens(text, language))
