"""Where each method loses a question's chain of facts, on a generated data set whose every fact is known."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import pandas as pd

from rag_notes.config import Config
from rag_notes.datasets.world import world_chains
from rag_notes.events import Decision, Event, Note, answered, searches
from rag_notes.metrics.chain import Failure, fact_density, facts_held, failure, judge_agreement, verdicts
from rag_notes.metrics.stats import mean_interval
from rag_notes.report.pairs import method_pairs
from rag_notes.report.rows import described
from rag_notes.running.records import Run, Sample
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, means
from rag_notes.types import Fact

OUTCOMES: Sequence[Failure] = get_args(Failure)
"""How a question can end, in the order in which a figure stacks them."""

_JUDGE = "note_judge"  # the stage that compares a new note with the best one

Chains = Mapping[str, Mapping[str, tuple[Fact, ...]]]
"""The facts that a question needs, by data set and question id."""


async def run(config: Config, *, progress: bool = True) -> "ChainOfFacts":
    """Run every chosen method on a generated data set. Raises as `rag_notes.running.run.run_methods`."""
    return ChainOfFacts(config, await run_methods(config, progress=progress))


class ChainOfFacts(Study):
    """What became of the facts that each question needs, method by method."""

    def answers(self) -> pd.DataFrame:
        """Return a row for each answer to a question that can be answered, as `chain_answers`."""
        return chain_answers(self.runs, chains(self.config))

    def outcomes(self) -> pd.DataFrame:
        """Return how many questions ended how, as `outcomes`."""
        return described(outcomes(self.answers()), self.runs)

    def facts(self) -> pd.DataFrame:
        """Return the shares of facts held, the tokens and the density of what answers were made from, with intervals.

        `held` is the share of needed facts that it states, `density` the share of its tokens in sentences that state
        one (knowledge density, DeepNote, section 5.3, without asking a model). Methods that read nothing are left out.
        """
        rows = self.answers()
        rows = rows[rows.groupby(["dataset", "method"])["tokens"].transform("max") > 0]
        rows = rows.assign(
            held=rows["held"] / rows["facts"], density=rows["evidence"] / rows["tokens"].replace(0, pd.NA)
        )
        quantities = ["held", "tokens", "density"]
        return described(means(rows, ["dataset", "method"], quantities, proportion=False, **self.intervals), self.runs)

    def judge(self) -> pd.DataFrame:
        """Return the judge's verdicts on new notes against the truth, as `judged`."""
        return described(judged(self.runs, chains(self.config), **self.intervals), self.runs)

    def pairs(self) -> pd.DataFrame:
        """Return which methods differ, and how small a difference would show, as `method_pairs` of each run."""
        return pd.concat([method_pairs(run, **self.intervals) for run in self.runs], ignore_index=True)


def chains(config: Config) -> Chains:
    """Return the facts that each question of the chosen generated data sets needs."""
    worlds = config.dataset.values()
    return {settings["name"]: world_chains(settings["seed"], settings["questions"]) for settings in worlds}


def chain_answers(runs: Sequence[Run], facts_of: Chains) -> pd.DataFrame:
    """Return a row for each answer without error to a question that needs facts: what became of them.

    Columns: dataset, method, question_id, type, `outcome` (see `rag_notes.metrics.chain.failure`), `facts` that are
    needed, those `held` by what the answer was made from (the last note kept or, without notes, all passages read),
    its `tokens`, and those of them that are `evidence`, in sentences that state one of the facts.
    """
    rows = []
    for run, sample, facts, correct in _with_facts(runs, facts_of):
        source = _source(sample)
        read = [(search.query, [passage.id for passage in search.read]) for search in searches(sample.trace)]
        density = fact_density(facts, source)
        outcome = failure(facts, read, _notes(sample.trace), correct=correct)
        names = [run.label, sample.method, sample.question.id, sample.question.type]
        rows.append([*names, outcome, len(facts), sum(facts_held(facts, source)), density.tokens, density.evidence])
    columns = ["dataset", "method", "question_id", "type", "outcome", "facts", "held", "tokens", "evidence"]
    return pd.DataFrame(rows, columns=columns)


def outcomes(answers: pd.DataFrame) -> pd.DataFrame:
    """Count how the questions of `chain_answers` ended: a row for each data set, method and outcome.

    Columns: dataset, method, outcome, `questions`, `n` (all of the method's) and `share`. The method with the most
    right answers comes first.
    """
    answers = answers.assign(outcome=pd.Categorical(answers["outcome"], OUTCOMES))
    table = answers.groupby(["dataset", "method"], sort=False)["outcome"].value_counts(sort=False).rename("questions")
    table = table.reset_index()
    table["n"] = table.groupby(["dataset", "method"])["questions"].transform("sum")
    table["share"] = table["questions"] / table["n"]
    right = table[table["outcome"] == "right"].set_index(["dataset", "method"])["share"].rename("right")
    table = table.join(right, on=["dataset", "method"])
    order = {"by": ["dataset", "right"], "ascending": [True, False]}
    return table.sort_values(**order, kind="stable", ignore_index=True).drop(columns="right")


def judged(runs: Sequence[Run], facts_of: Chains, **settings: Any) -> pd.DataFrame:
    """Return the judge's verdicts on new notes against the truth, a row for each method that has its notes judged.

    A note is better than the best one if it states a needed fact more and has lost none. Columns: dataset, method,
    questions, verdicts, `said_true`, `truly_better`, `right_true`, `right_false`, and the `mean` agreement with its
    interval: the share of a question's verdicts that are right, averaged over the questions.
    """
    by_method: dict[tuple[str, str], list[Any]] = {}
    for run, sample, facts, _ in _with_facts(runs, facts_of):
        if any(ask.stage == _JUDGE for ask in answered(sample.trace)):
            by_method.setdefault((run.label, sample.method), []).append(verdicts(facts, _notes(sample.trace)))
    rows = []
    for (dataset, method), questions in by_method.items():
        agreement = judge_agreement(verdict for question in questions for verdict in question)
        shares = [judge_agreement(question).agreed / len(question) for question in questions if question]
        low, high, _ = mean_interval(shares, proportion=False, **settings)
        row = {"dataset": dataset, "method": method, "questions": len(shares), "verdicts": sum(agreement)}
        row |= {"said_true": agreement.said_true, "truly_better": agreement.truly_better}
        row |= {"right_true": agreement.right_true, "right_false": agreement.right_false}
        rows.append(row | {"mean": sum(shares) / len(shares), "low": low, "high": high})
    return pd.DataFrame(rows)


def _with_facts(runs: Sequence[Run], facts_of: Chains) -> Iterator[tuple[Run, Sample, tuple[Fact, ...], bool]]:
    for run in runs:
        frame = run.frame().set_index(["method", "question_id"])
        correct = (frame["correctness"] == "right").to_dict()
        for sample in run.samples:
            facts = facts_of[run.dataset][sample.question.id]
            if facts and sample.error is None:
                yield run, sample, facts, correct[sample.method, sample.question.id]


def _notes(trace: Sequence[Event]) -> list[tuple[str, bool]]:
    """The notes written, and whether each was kept; a blank one of a method that found nothing to write one from.

    What RECOMP makes of the passages is one too: the answer is made from it, and not from them.
    """
    notes = [(event.text, event.kept) for event in trace if isinstance(event, Note)]
    notes += [(event.outcome, True) for event in trace if isinstance(event, Decision) and event.what == "summary"]
    return notes or [("", True)] * any(ask.stage.startswith("amber_") for ask in answered(trace))


def _source(sample: Sample) -> list[str]:
    """What an answer was made from: the last note kept or, without notes, the passages read."""
    kept = [text for text, is_kept in _notes(sample.trace) if is_kept]
    read = {passage.id: passage.text for search in searches(sample.trace) for passage in search.read}
    return kept[-1:] or list(read.values())
