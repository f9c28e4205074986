"""What Amber's content filter keeps and drops, read from the traces of its runs (Amber, section 5.2, Figure 2)."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rag_notes.config import Config
from rag_notes.events import Ask, Decision, Event, Found, Search, answered, searches
from rag_notes.methods.parse import parse_choice, parse_copied
from rag_notes.metrics.answer import tokens
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.metrics.stats import wilson
from rag_notes.papers.numbers import paper_cells
from rag_notes.running.records import Run
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study
from rag_notes.types import Question

_RATES = {  # what is counted, of which passages
    "accuracy": ("gold == useful", "gold == gold"),
    "precision": ("gold and useful", "useful"),
    "recall (gold kept)": ("gold and useful", "gold"),
    "specificity (other dropped)": ("not gold and not useful", "not gold"),
}
_PAPER = {"useful_kept": "recall (gold kept)", "useless_dropped": "specificity (other dropped)"}
_VERDICT = ["dataset", "method", "question_id", "type", "passage_id", "gold", "useful", "parse_failure"]


async def run(config: Config, *, progress: bool = True) -> Study:
    """Run Amber. Raises as `rag_notes.running.run.run_methods`."""
    one_repeat(config)
    return Study(config, await run_methods(config, progress=progress))


def chunk_verdicts(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each passage that the chunk filter judged in the first iteration, whose query is the question.

    Columns: dataset, method, question_id, type, passage_id, `gold` (whether it is a gold passage), `useful` (the
    filter's verdict) and `parse_failure` (then it counts as useless). Answers that failed and questions without known
    gold passages have no rows.
    """
    rows = []
    for run in runs:
        for method, question, search, events in _first_iterations(run):
            key, verdicts = (run.dataset, method, question.id, question.type), _verdicts(events)
            for hit, verdict in zip(search.hits, verdicts, strict=bool(verdicts)):
                rows.append((*key, hit.id, hit.id in question.gold_ids, verdict == "useful", verdict is None))
    return pd.DataFrame(rows, columns=_VERDICT).astype(dict.fromkeys(_VERDICT[5:], bool))


def filter_rates(
    verdicts: pd.DataFrame, by: str = "dataset", *, confidence: float = 0.95, resamples: int = 10_000
) -> pd.DataFrame:
    """Return how well the chunk filter's verdicts tell the gold passages, a row for each value of `by` and rate.

    Columns: `by`, rate, count, of, value, low, high (as `with_shares`), and `paper`: the least that Amber's text gives
    for its fine-tuned filter, on its own labels. The interval of F1 is the percentile bootstrap's over questions; those
    of the rates take the passages of a question for independent.
    """
    cells = paper_cells().query("paper == 'amber' and table == 'text'")
    paper = {_PAPER.get(row["metric"]): row["value"] / 100 for row in cells.to_dict("records")}
    rows: list[tuple[Any, ...]] = []
    scores = []
    for value, group in verdicts.groupby(by, sort=False):
        rows += [(value, rate, *(len(group.query(part)) for part in parts)) for rate, parts in _RATES.items()]
        rows.append((value, "F1", None, None))
        scores.append(_f1(group, confidence, resamples))
    table = with_shares(pd.DataFrame(rows, columns=[by, "rate", "count", "of"]), confidence)
    table.loc[table["rate"] == "F1", ["value", "low", "high"]] = scores
    return table.assign(paper=table["rate"].map(paper).astype(float))


def with_shares(table: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """Add the share `value` of `count` in `of`, between 0 and 1, with Wilson's interval; NaN of nothing."""
    table = table.astype({"count": "Int64", "of": "Int64"})
    pairs = zip(table["count"], table["of"].fillna(0), strict=True)
    bounds = [(k / n, *wilson(k, n, confidence)[:2]) if n else (math.nan,) * 3 for k, n in pairs]
    return table.join(pd.DataFrame(bounds, table.index, ["value", "low", "high"], dtype=float))


def _f1(verdicts: pd.DataFrame, confidence: float, resamples: int) -> list[float]:
    """Return F1 with its percentile bootstrap interval over questions, whose passages belong together."""
    parts = verdicts.assign(hits=verdicts["gold"] & verdicts["useful"], total=verdicts["gold"] * 1 + verdicts["useful"])
    counts = parts.groupby(["dataset", "method", "question_id"], sort=False)[["hits", "total"]].sum().to_numpy()
    drawn = np.random.default_rng(0).integers(len(counts), size=(resamples, len(counts)))
    hits, total = np.vstack([counts.sum(axis=0), counts[drawn].sum(axis=1)]).T
    scores = np.divide(2 * hits, total, out=np.full(len(hits), math.nan), where=total > 0)
    resampled = scores[1:][total[1:] > 0] if total.any() else scores
    return [float(scores[0]), *map(float, np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]))]


def sentence_filter(runs: Sequence[Run], confidence: float = 0.95) -> pd.DataFrame:
    """Return what the sentence filter did to the passages that it saw in the first iteration, by data set and `what`.

    `passages cut`: those of which a sentence was copied; the others stay whole, since the response could not be parsed.
    `words kept`: of all passages, and of those cut, without intervals, since words are no independent trials.
    `answers kept`: of the passages with a gold answer in their text, those that still have it. The other columns are
    those of `with_shares`. Published runs have no text, and so no rows.
    """
    rows: list[tuple[Any, ...]] = []
    for run in runs:
        for _, question, search, events in () if run.info.published else _first_iterations(run):
            verdicts = _verdicts(events) or ["useful"] * len(search.hits)
            hits = [hit for hit, verdict in zip(search.hits, verdicts, strict=True) if verdict == "useful"]
            responses = _responses(events, "amber_sentence_filter")
            for hit, response in zip(hits, responses, strict=bool(responses)):
                copied = parse_copied(hit.text, response, question.language)
                texts = ["\n".join(copied) if copied else hit.text, hit.text]
                words = [len(tokens(text, question.language)) for text in texts]
                answers = [answer_in_passages([text], question.answers, question.language) for text in texts]
                rows += [(run.dataset, "passages cut", bool(copied), 1), (run.dataset, "words kept", *words)]
                rows += [(run.dataset, "words kept of those cut", *words)] if copied else []
                rows += [(run.dataset, "answers kept", bool(answers[0]), 1)] if answers[1] else []
    counts = pd.DataFrame(rows, columns=["dataset", "what", "count", "of"]).astype({"count": int, "of": int})
    table = with_shares(counts.groupby(["dataset", "what"], sort=False).sum().reset_index(), confidence)
    bounds = ["low", "high"]
    return table.assign(**table[bounds].mask(table["what"].str.startswith("words")))


def _first_iterations(run: Run) -> Iterator[tuple[str, Question, Search, list[Event]]]:
    """Yield method, question, first search and the events before the next one, of answers with known gold passages."""
    samples = ((one.method, one.question, one.trace) for one in run.samples if one.error is None)
    for method, question, trace in _published(run) if run.info.published else samples:
        if question.gold_ids:
            start, end, *_ = [n for n, event in enumerate(trace) if isinstance(event, Search)] + [len(trace)]
            yield method, question, searches(trace)[0], trace[start + 1 : end]


def _published(run: Run) -> Iterator[tuple[str, Question, list[Event]]]:
    """Yield the answers of a published run by the words of its traces, with passages `gold` and `other`."""
    for row in run.frame().query("error.isna()").to_dict("records"):
        trace: list[Event] = []
        for name, mark, content in (re.split(r"([:=>]|$)", word, maxsplit=1) for word in row["trace"].split()):
            hits = [Found("gold" if digit == "1" else "other", "", "", 0.0) for digit in content]
            event = Decision(name, content) if mark == ">" else Ask(name, "", content)
            trace.append(Search("", len(hits), hits) if mark == ":" else event)
        gold_ids = ("gold",) if pd.notna(row.get("all_gold_first")) else ()
        yield row["method"], Question(row["question_id"], "", gold_ids=gold_ids, type=row["type"]), trace


def _responses(events: Sequence[Event], stage: str) -> list[str]:
    return [ask.response or "" for ask in answered(events) if ask.stage == stage]


def _verdicts(events: Sequence[Event]) -> list[str | None]:
    """Return the chunk filter's verdicts, by its threshold where it has one; None is one that cannot be read."""
    words = [parse_choice(response, ("useful", "useless")) for response in _responses(events, "amber_chunk_filter")]
    decided = [one.outcome for one in events if isinstance(one, Decision) and one.what == "amber_chunk_filter"]
    return [word and outcome for word, outcome in zip(words, decided, strict=True)] if decided else words
