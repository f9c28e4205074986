"""Where each method loses a question's chain of facts, on a generated data set whose every fact is known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pandas as pd

from rag_notes.config import Config
from rag_notes.datasets.formats import load_facts
from rag_notes.events import Decision, Event, Note, answered, searches
from rag_notes.files import here
from rag_notes.metrics.chain import Failure, fact_density, facts_held, failure, verdicts
from rag_notes.report.rows import described
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.running.samples import Sample, correctness
from rag_notes.studies.base import Study
from rag_notes.types import Fact

OUTCOMES: Sequence[Failure] = get_args(Failure)
"""How a question can end, in the order in which a figure stacks them."""


async def run(config: Config, *, progress: bool = True) -> "ChainOfFacts":
    """Run every chosen method on a generated data set. Raises as `rag_notes.running.run.run_methods`."""
    paths = {name: here() / Path(settings["path"]) for name, settings in config.dataset.items()}
    chains = {name: load_facts(str(path.with_name("facts.jsonl"))) for name, path in paths.items()}
    return ChainOfFacts(config, await run_methods(config, progress=progress), chains)


@dataclass(frozen=True, eq=False, repr=False)
class ChainOfFacts(Study):
    """What became of the facts that each question needs, method by method; `chains` has them by data set and id."""

    chains: Mapping[str, Mapping[str, tuple[Fact, ...]]]

    def answers(self) -> pd.DataFrame:
        """Return a row for each answer without error to a question that needs facts: what became of them.

        `outcome` is that of `rag_notes.metrics.chain.failure`, `facts` are those needed, `held` those that the answer's
        source states (the last note kept or, without notes, all passages read), `tokens` those of the source, and
        `evidence` those of them in sentences that state one of the facts.
        """
        rows = []
        for run, sample, facts in self._samples():
            notes, all_searches = _notes(sample.trace), searches(sample.trace)
            passages = {passage.id: passage.text for search in all_searches for passage in search.read}
            source = [text for text, is_kept in notes if is_kept][-1:] or list(passages.values())
            queries = [(search.query, [passage.id for passage in search.read]) for search in all_searches]
            outcome = failure(facts, queries, notes, correct=correctness(sample) == "right")
            names = (run.label, sample.method, sample.question.id, sample.question.type)
            evidence, total = fact_density(facts, source)
            rows.append((*names, outcome, len(facts), sum(facts_held(facts, source)), total, evidence))
        columns = ["dataset", "method", "question_id", "type", "outcome", "facts", "held", "tokens", "evidence"]
        return pd.DataFrame(rows, columns=columns)

    def outcomes(self) -> pd.DataFrame:
        """Return how many questions ended how: a row for each method and outcome, the best method first.

        `questions` is their number, `n` that of all questions of the method, `share` the quotient.
        """
        counts = self.answers().groupby(["dataset", "method"], sort=False)["outcome"].value_counts()
        wide = counts.unstack(fill_value=0).reindex(columns=[*OUTCOMES], fill_value=0)
        wide = wide.assign(n=wide.sum(axis=1), best=lambda wide: wide["right"] / wide["n"]).reset_index()
        wide = wide.sort_values(["dataset", "best"], ascending=[True, False], kind="stable")
        table = wide.melt(["dataset", "method", "n"], [*OUTCOMES], "outcome", "questions")
        return described(table.assign(share=table["questions"] / table["n"]), self.runs)

    def facts(self) -> pd.DataFrame:
        """Return the shares of facts held, the tokens and the density of what answers were made from, with intervals.

        `held` is the share of needed facts that it states, `density` the share of its tokens in sentences that state
        one (knowledge density, DeepNote, section 5.3, without asking a model). Methods that read nothing are left out.
        """
        rows = self.answers()
        rows = rows[rows.groupby(["dataset", "method"])["tokens"].transform("max") > 0]
        density = rows["evidence"] / rows["tokens"].where(rows["tokens"] > 0)
        rows = rows.assign(held=rows["held"] / rows["facts"], density=density)
        return self.means(["held", "tokens", "density"], rows).rename(columns={"metric": "quantity"})

    def judge(self) -> pd.DataFrame:
        """Return the judge's verdicts on new notes against the truth, a row for each method that has its notes judged.

        A note is better than the best one if it states a needed fact more and has lost none. `mean` is the agreement
        with its interval: the share of a question's verdicts that are right, averaged over the questions.
        """
        keys = ["dataset", "method", "question_id"]
        rows = [
            (run.label, sample.method, sample.question.id, *verdict)
            for run, sample, facts in self._samples()
            if any(ask.stage == "note_judge" for ask in answered(sample.trace))
            for verdict in verdicts(facts, _notes(sample.trace))
        ]
        table = pd.DataFrame(rows, columns=[*keys, "said_true", "truly_better"])
        said, truth = table["said_true"], table["truly_better"]
        table = table.assign(right=said == truth, right_true=said & truth, right_false=~(said | truth))
        shares = table.groupby(keys, sort=False)["right"].mean().reset_index()
        sums = table.groupby(keys[:2])[["said_true", "truly_better", "right_true", "right_false"]].sum()
        sums.insert(0, "verdicts", table.groupby(keys[:2]).size())
        means = self.means(["right"], shares).rename(columns={"n": "questions"})
        return means.drop(columns=["metric", "interval"]).join(sums, on=keys[:2])

    def _samples(self) -> Iterator[tuple[Run, Sample, tuple[Fact, ...]]]:
        for run in self.runs:
            for sample in run.samples:
                facts = self.chains[run.dataset][sample.question.id]
                if facts and sample.error is None:
                    yield run, sample, facts


def _notes(trace: Sequence[Event]) -> list[tuple[str, bool]]:
    """The notes written, and whether each was kept; a blank one of a method that found nothing to write one from.

    What RECOMP makes of the passages is one too: the answer is made from it, and not from them.
    """
    notes = [(event.text, event.kept) for event in trace if isinstance(event, Note)]
    notes += [(event.outcome, True) for event in trace if isinstance(event, Decision) and event.what == "summary"]
    return notes or [("", True)] * any(ask.stage.startswith("amber_") for ask in answered(trace))
