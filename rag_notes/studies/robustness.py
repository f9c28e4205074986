"""Noise and unknown robustness, beside the paper's (Chain-of-Note, sections 3.3 and 3.4, Tables 3 and 4)."""

import pandas as pd

from rag_notes.config import Config, build_methods
from rag_notes.events import searches
from rag_notes.metrics.stats import paired_difference
from rag_notes.papers.numbers import paper_cells
from rag_notes.parts import ConfigError
from rag_notes.retrieval.noise import is_gold
from rag_notes.running.records import Run
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study


async def run(config: Config, *, progress: bool = True) -> "Robustness":
    """Run the methods at each noise ratio of the study, then with the passages that the retriever finds.

    Raises ConfigError where the study names no ratio, otherwise as `rag_notes.running.run.run_methods`.
    """
    one_repeat(config)
    if not config.study.noise_percent:
        raise ConfigError("study.noise_percent: no noise ratio is named; name some, such as [0,50,100]")
    return Robustness(config, await run_with_noise(config, progress=progress))


async def run_with_noise(config: Config, *, progress: bool) -> list[Run]:
    """Run the methods at each noise ratio of the study, if it has any, and without controlled noise."""
    # The variants may decline a question, which noise does not vary: every question of the noisy runs has an answer.
    methods = {name: method for name, method in build_methods(config).items() if name not in config.study.variants}
    runs: list[Run] = []
    for percent in (*dict.fromkeys(config.study.noise_percent), None):
        if all(run.info.finished for run in runs):
            chosen = None if percent is None else methods
            runs += await run_methods(config, methods=chosen, noise_percent=percent, progress=progress)
    return runs


class Robustness(Study):
    """Scores against noise, and the share of unanswerable questions that are declined."""

    @property
    def noisy(self) -> list[Run]:
        """The runs with controlled noise."""
        return [run for run in self.runs if run.info.condition.noise_percent is not None]

    @property
    def plain(self) -> list[Run]:
        """The runs with the passages that the retriever finds."""
        return [run for run in self.runs if run.info.condition.noise_percent is None]

    def table(self) -> pd.DataFrame:
        """Return the scores of the runs with noise by `noise_percent`, with intervals and tests."""
        table = self.results(self.noisy, self.config.baseline)
        parts = table["dataset"].str.extract(r"(?P<dataset>.*)-noise(?P<noise_percent>\d+)$")
        table = table.assign(dataset=parts["dataset"], noise_percent=parts["noise_percent"].astype(int))
        return table.sort_values(["dataset", "noise_percent"], kind="stable", ignore_index=True)

    def passages(self) -> pd.DataFrame:
        """Return the mean numbers of `gold` and `noise` passages that questions were asked with, by noise.

        `all_gold` and `answer` are the shares of questions with all gold passages and with a gold answer among them:
        the most that reading alone could reach.
        """
        rows = []
        for run in self.noisy:
            for sample in run.samples:
                if sample.error is None:
                    gold = [is_gold(sample.question, passage) for passage in searches(sample.trace)[0].read]
                    shares = [sample.metrics.get(name) for name in ("all_gold_first", "answer_in_passages_first")]
                    names = (run.dataset, run.info.condition.noise_percent, sample.method)
                    rows.append((*names, sum(gold), len(gold) - sum(gold), *shares))
        keys = ["dataset", "noise_percent", "method"]
        table = pd.DataFrame(rows, columns=[*keys, "gold", "noise", "all_gold", "answer"])
        groups = table.groupby(keys, sort=False)
        return groups.mean().assign(questions=groups.size()).reset_index()

    def losses(self, metric: str = "f1") -> pd.DataFrame:
        """Return what each method loses from the least to the most noise, and what the paper's lost, from -1 to 1.

        `change` is the score at the most noise minus that at the least, over the `n` questions answered at both, with
        interval and p of the paired test (not corrected). `paper` is that of Table 3 between 0 and 100 %.
        """
        paper = paper_noise(metric).pivot(index="method", columns="noise_percent", values="mean")
        paper = paper.reindex(columns=[0, 100])
        frame = pd.concat([run.frame().assign(dataset=run.dataset) for run in self.noisy])
        least, most = frame["noise_percent"].min(), frame["noise_percent"].max()
        rows = []
        for (dataset, method), answers in frame.groupby(["dataset", "method"], sort=False):
            wide = answers.pivot(index="question_id", columns="noise_percent", values=metric)[[least, most]]
            pairs = wide.loc[answers["question_id"].unique()].dropna()  # the bootstrap depends on the order
            if len(pairs):
                change = paired_difference(pairs[most].tolist(), pairs[least].tolist(), **self.intervals)
                rows.append((dataset, method, change.mean, change.low, change.high, change.p, change.n))
        table = pd.DataFrame(rows, columns=["dataset", "method", "change", "low", "high", "p", "n"])
        return table.assign(paper=table["method"].map((paper[100] - paper[0]) / 100))


def paper_noise(metric: str = "f1") -> pd.DataFrame:
    """Return Table 3 of Chain-of-Note in one metric: the mean of its three data sets in %, by `noise_percent`."""
    cells = paper_cells().query("paper == 'chain_of_note' and table == '3' and dataset == 'average'")
    cells = cells[(cells["metric"] == metric) & cells["setting"].str.fullmatch(r"noise=\d+")]
    percent = cells["setting"].str.removeprefix("noise=").astype(int)
    return cells.assign(noise_percent=percent, mean=cells["value"])[["method", "model", "noise_percent", "mean"]]
