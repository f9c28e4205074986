"""Where each method loses a question's chain of facts, on a generated data set whose every fact is known."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import matplotlib as mpl
import pandas as pd

from rag_notes.config import Config, load_study
from rag_notes.datasets.plain import load_facts
from rag_notes.events import Decision, Event, Note, answered, searches
from rag_notes.files import here
from rag_notes.metrics.chain import Failure, fact_density, facts_held, failure, judge_agreement, verdicts
from rag_notes.metrics.stats import mean_interval
from rag_notes.report.cells import dataset_label, interval_text, method_label
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.pairs import method_pairs, pairs_table, told_apart
from rag_notes.report.scores_table import ScoresTable
from rag_notes.running.correctness import correctness
from rag_notes.running.records import Run, Sample, require_text
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once
from rag_notes.types import Fact

OUTCOMES: Sequence[Failure] = get_args(Failure)
"""How a question can end, in the order in which the figure stacks them."""

_JUDGE = "note_judge"  # the stage that compares a new note with the best one
_COLOURS = dict(
    zip(OUTCOMES, (PALETTE[0], "#8c3a00", PALETTE[1], "#f0a860", PALETTE[3], "#9a9a9a", "#cfcfcf"), strict=True)
)
_HATCHES = dict(zip(OUTCOMES, ("", "", "///", "...", "xxx", "", "\\\\\\"), strict=True))

Chains = Mapping[str, Mapping[str, tuple[Fact, ...]]]  # by data set and question id


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "ChainOfFacts":
    """Run every chosen method on a generated data set. Raises as `rag_notes.running.run.run_methods`."""
    config = load_study("chain_of_facts", options)
    return ChainOfFacts(config, options, await run_methods(config, options, progress=progress))


class ChainOfFacts(Study):
    """What became of the facts that each question needs, method by method."""

    @once
    def scores(self) -> pd.DataFrame:
        """The scores with intervals and tests, as `rag_notes.report.tables.results`."""
        return self.results()

    @once
    def answers(self) -> pd.DataFrame:
        """A row for each answer to a question that can be answered, as `chain_answers`."""
        return chain_answers(self.runs, chains(self.config))

    @once
    def table(self) -> pd.DataFrame:
        """How many questions ended how, as `outcomes`."""
        return outcomes(self.answers())

    @once
    def judge(self) -> pd.DataFrame:
        """The judge's verdicts on new notes against the truth, as `judged`."""
        return judged(self.runs, chains(self.config), **self.intervals)

    @once
    def pairs(self) -> pd.DataFrame:
        """Which methods can be told apart, and how small a difference would show, as `method_pairs` of each run."""
        return pd.concat([method_pairs(run, **self.intervals) for run in self.runs], ignore_index=True)

    def display_pairs(self) -> pd.DataFrame:
        """Every two methods: difference, verdict and smallest detectable difference, as `pairs_table`."""
        return pairs_table(self.pairs())

    def told_apart(self) -> pd.DataFrame:
        """A row a method: what it is better and worse than and what it is equivalent to, as `told_apart`."""
        return told_apart(self.pairs())

    def display_scores(self) -> ScoresTable:
        """The scores in %."""
        return ScoresTable(self.scores())

    def display(self) -> pd.DataFrame:
        """How many questions ended how, a row for each method."""
        table = self.table()
        table = table.assign(dataset=table["dataset"].map(dataset_label), method=table["method"].map(method_label))
        wide = table.pivot_table(index=["dataset", "method", "n"], columns="outcome", values="questions", sort=False)
        return wide[list(OUTCOMES)].astype(int).reset_index().rename(columns={"dataset": "data set"})

    def display_facts(self) -> pd.DataFrame:
        """What share of the facts the answer's source states, and how dense with them it is, as `fact_shares`."""
        return fact_shares(self.answers(), **self.intervals)

    def figure(self) -> NotebookFigure:
        """How the questions ended, a bar for each method; saved with the table."""
        return self.save(chain_figure(self.table()), self.table())


def chains(config: Config) -> Chains:
    """The facts that each question of the chosen data sets needs, which `facts.jsonl` beside the questions has."""
    worlds = config.dataset.values()
    return {world["name"]: load_facts(str(here() / Path(world["path"]).with_name("facts.jsonl"))) for world in worlds}


def chain_answers(runs: Sequence[Run], known: Chains) -> pd.DataFrame:
    """A row for each answer without error to a question that needs facts: what became of them.

    Columns: dataset, method, question_id, type, `outcome` (see `rag_notes.metrics.chain.failure`), `facts` that are
    needed, those `held` by what the answer was made from (the last note kept or, without notes, all passages read),
    its `tokens`, and those of them that are `evidence`, in sentences that state one of the facts.
    """
    rows = []
    for run, sample, facts in _with_facts(runs, known):
        source = _source(sample)
        found = [(search.query, [passage.id for passage in search.read]) for search in searches(sample.trace)]
        density = fact_density(facts, source)
        outcome = failure(facts, found, _notes(sample.trace), correct=correctness(sample) == "right")
        rows.append(
            [
                *(run.label, sample.method, sample.question.id, sample.question.type, outcome, len(facts)),
                *(sum(facts_held(facts, source)), density.tokens, density.evidence),
            ]
        )
    columns = ["dataset", "method", "question_id", "type", "outcome", "facts", "held", "tokens", "evidence"]
    return pd.DataFrame(rows, columns=columns)


def outcomes(answers: pd.DataFrame) -> pd.DataFrame:
    """Count how the questions of `chain_answers` ended: a row for each data set, method and outcome.

    Columns: dataset, method, outcome, `questions`, `n` (all of the method's) and `share`. Methods are in the order of
    their share of right answers, the highest first.
    """
    rows = []
    for dataset, of_dataset in answers.groupby("dataset", sort=False):
        ended = {
            method: Counter(of_method["outcome"]) for method, of_method in of_dataset.groupby("method", sort=False)
        }
        for method, counted in sorted(ended.items(), key=lambda item: -item[1]["right"] / item[1].total()):
            n = counted.total()
            rows += [[dataset, method, outcome, counted[outcome], n, counted[outcome] / n] for outcome in OUTCOMES]
    return pd.DataFrame(rows, columns=["dataset", "method", "outcome", "questions", "n", "share"])


def judged(runs: Sequence[Run], known: Chains, *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """Set the judge's verdicts on new notes against the truth: a row for each method that has its notes judged.

    A note is better than the best one if it states a needed fact more and has lost none. Columns: data set, method,
    questions, verdicts, `said True`, `truly better`, `rightly True`, `rightly False`, and `agreement (%)`: the share of
    a question's verdicts that are right, its mean over questions with its interval.
    """
    found: dict[tuple[str, str], list[Any]] = {}
    for run, sample, facts in _with_facts(runs, known):
        if any(ask.stage == _JUDGE for ask in answered(sample.trace)):
            found.setdefault((run.label, method_label(sample.method)), []).append(verdicts(facts, _notes(sample.trace)))
    rows = []
    for (dataset, method), of_questions in found.items():
        agreement = judge_agreement(verdict for of_question in of_questions for verdict in of_question)
        shares = [judge_agreement(one).agreed / len(one) for one in of_questions if one]
        mean = math.fsum(shares) / len(shares)
        low, high, _ = mean_interval(shares, confidence=confidence, resamples=resamples, proportion=False)
        rows.append(
            {
                "data set": dataset_label(str(dataset)),
                "method": method,
                "questions": len(shares),
                "verdicts": sum(agreement),
                "said True": agreement.said_true,
                "truly better": agreement.truly_better,
                "rightly True": agreement.right_true,
                "rightly False": agreement.right_false,
                "agreement (%)": interval_text(mean, low, high),
            }
        )
    return pd.DataFrame(rows)


def fact_shares(answers: pd.DataFrame, *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """Means over the answers of `chain_answers`, a row for each method, methods that read nothing left out.

    Columns: data set, method, n, `facts held (%)`, `tokens` of what the answer was made from, and `density (%)`: the
    share of these tokens in sentences that state a needed fact, over the answers made from any. Each mean has its
    interval.
    """
    rows = []
    for (dataset, method), of_method in answers.groupby(["dataset", "method"], sort=False):
        written = of_method[of_method["tokens"] > 0]
        if written.empty:
            continue
        quantities = {
            "facts held (%)": (of_method["held"] / of_method["facts"], 100),
            "tokens": (of_method["tokens"].astype(float), 1),
            "density (%)": (written["evidence"] / written["tokens"], 100),
        }
        names = {"data set": dataset_label(str(dataset)), "method": method_label(str(method))}
        row: dict[str, Any] = names | {"n": len(of_method)}
        for name, (values, scale) in quantities.items():
            low, high, _ = mean_interval(values.tolist(), confidence=confidence, resamples=resamples, proportion=False)
            row[name] = interval_text(float(values.mean()), low, high, scale=scale)
        rows.append(row)
    return pd.DataFrame(rows)


def chain_figure(table: pd.DataFrame) -> NotebookFigure:
    """Draw what `outcomes` gave: a bar of 100 % for each method, cut by how its questions ended; a panel a data set."""
    panels = {str(name): rows for name, rows in table.groupby("dataset", sort=False)} or {"(no answers)": table}
    heights = [0.55 + 0.24 * max(1, rows["method"].nunique()) for rows in panels.values()]
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(7.0, sum(heights) + 0.65), layout="constrained")
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (dataset, rows) in zip(grid, panels.items(), strict=True):
            wide = 100 * rows.pivot_table(index="method", columns="outcome", values="share", sort=False)
            left = pd.Series(0.0, index=wide.index)
            for outcome in OUTCOMES:
                share = wide[outcome] if outcome in wide else left * 0
                style = {"color": _COLOURS[outcome], "hatch": _HATCHES[outcome], "edgecolor": "white", "linewidth": 0.4}
                axes.barh(range(len(wide)), share, 0.72, left=left, label=outcome, **style)
                left = left + share
            axes.set_yticks(range(len(wide)), [method_label(str(method)) for method in wide.index])
            axes.set_ylim(len(wide) - 0.5, -0.5)  # the first method on top
            axes.set_xlim(0, 100)
            axes.tick_params(axis="y", length=0)
            n = sorted(set(rows["n"])) or [0]
            axes.set_title(dataset_label(dataset), loc="left", fontweight="bold")
            axes.set_xlabel(f"questions that can be answered (%), n = {n[0]}" + (f" to {n[-1]}" if len(n) > 1 else ""))
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=1.6)
    return figure


def _with_facts(runs: Sequence[Run], known: Chains) -> Iterable[tuple[Run, Sample, tuple[Fact, ...]]]:
    for run in runs:
        require_text(run)
        for sample in run.samples:
            facts = known[run.dataset][sample.question.id]
            if facts and sample.error is None:
                yield run, sample, facts


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
