"""What the papers claim beside what runs give: which runs it takes, and how a notebook shows the verdicts."""

from collections.abc import Sequence
from functools import cached_property

import pandas as pd
from IPython.display import HTML, Markdown

from rag_notes.config import Config, build_methods, load_study
from rag_notes.files import here
from rag_notes.papers import page
from rag_notes.papers.forest import forest_figure
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.verdicts import NOT_RUN, RULES
from rag_notes.papers.verification import OWN, verify_orders
from rag_notes.report.figures import NotebookFigure
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.running.run_files import run_folders
from rag_notes.studies.base import Study, once

_VARIED = ("ablation", "thresholds", "top_k", "robustness")


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "Verification":
    """Run every method and every variant that the papers' tables vary, so that their claims meet a run of ours.

    Raises as `rag_notes.running.run.run_methods`.
    """
    runs: list[Run] = []
    for config, overrides in _parts(options):
        without = {name: method for name, method in build_methods(config).items() if name not in config.study.variants}
        for percent in dict.fromkeys(config.study.noise_percent) or (None,):
            if not runs or runs[-1].info.finished:
                methods = None if percent is None else without
                runs += await run_methods(config, overrides, methods=methods, noise_percent=percent, progress=progress)
    return Verification(load_study("verification", options), options, runs)


def parts(config: Config, options: Sequence[str] = ()) -> list[Config]:
    """The configurations that a study runs: its own, or all those that the verification takes its runs from."""
    return [part for part, _ in _parts(options)] if config.study.name == "verification" else [config]


def _parts(options: Sequence[str]) -> list[tuple[Config, list[str]]]:
    others = [option for option in options if not option.startswith("method=")]  # these have methods of their own
    varied = [(load_study(study, others), others) for study in _VARIED]
    return [(load_study("verification", options), list(options)), *varied]


class Verification(Study):
    """The papers' claims beside every run that lies in the runs' folder, those of this study among them."""

    @cached_property
    def verified(self) -> page.Verification:
        """Every claim and order with its verdict, as `rag_notes.papers.page.verify`."""
        return page.verify(run_folders(here() / self.config.runs, published=True), resamples=self.config.resamples)

    @once
    def table(self) -> pd.DataFrame:
        """The comparisons tested on `mini` and on each data set of the papers that was run."""
        runs, known = self.verified.runs, {OWN, *paper_claims()["dataset"]}
        datasets = sorted({run.dataset for run in runs.values()} & known)
        orders = [
            self.verified.orders if d == OWN else verify_orders(runs, dataset=d, resamples=self.config.resamples)
            for d in datasets
        ]
        return pd.concat(orders)

    def display(self) -> Markdown:
        """The verdicts counted by paper."""
        return Markdown(page.summary(self.verified))  # type: ignore[no-untyped-call]

    def display_rules(self) -> Markdown:
        """What each verdict means, and what it cannot."""
        rules = [f"- **{verdict}**: {rule}" for verdict, rule in RULES.items()]
        return Markdown("\n".join([*rules, "", *page.LIMITS]))  # type: ignore[no-untyped-call]

    def display_orders(self) -> HTML:
        """The papers' comparisons on `mini`, one a row."""
        return _without_index(page.shown_orders(self.verified.orders))

    def display_claims(self) -> HTML:
        """The papers' claims that were run on their own data sets, one a row."""
        return _without_index(page.shown_claims(self.verified.claims))

    def not_run(self) -> pd.DataFrame:
        """How many claims of each paper were not run, by reason."""
        claims = self.verified.claims
        return claims[claims["verdict"] == NOT_RUN].groupby(["reason", "paper"]).size().unstack(fill_value=0)

    def figure(self) -> NotebookFigure:
        """Our differences beside the papers'; saved with the comparisons."""
        return self.save(forest_figure(self.table()), self.table())


def _without_index(table: pd.DataFrame) -> HTML:
    return HTML(table.to_html(index=False))  # type: ignore[no-untyped-call]
