"""Writes the tables of docs/results.md, and docs/img/multihop.png: python docs/make.py; --check only says what differs.

A block begins with <!-- make NAME --> and ends with <!-- end -->; NAME is a function of this file. The picture of the
chain of facts is that of `rag-notes reproduce study=chain_of_facts`.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import rag_notes as rn
from rag_notes.methods.about import label_of
from rag_notes.papers import verification as papers
from rag_notes.report.rows import described, score_rows
from rag_notes.report.tables import METRIC_LABELS, results
from rag_notes.running.publish import published_runs
from rag_notes.running.records import Run

PAGE = Path(__file__).with_name("results.md")
MULTIHOP = {"hotpotqa": "HotpotQA", "twowikimultihopqa": "2WikiMultiHopQA", "musique": "MuSiQue"}


def scores(runs: Sequence[Run], metrics: Sequence[str], names: dict[str, str] | None = None) -> pd.DataFrame:
    """Methods by data sets and metrics: mean and interval in %, a star for a significant difference to vanilla."""
    table = results(runs)
    table = table[table["metric"].isin(metrics) & (table["n"] > 0)]
    heads = {}
    for dataset in table["dataset"].unique():
        for metric in metrics:
            rows = table[(table["dataset"] == dataset) & (table["metric"] == metric)].set_index("method")
            if rows.empty:
                continue
            cells = [
                f"{100 * row.mean:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]{'*' if row.significant else ''}"
                for row in rows[["mean", "low", "high", "significant"]].itertuples(index=False, name="Row")
            ]
            title = f"{names[dataset]}, " if names else ""
            heads[f"{title}{METRIC_LABELS[metric]} (n = {rows['n'].max()})"] = pd.Series(cells, rows.index)
    wide = pd.DataFrame(heads).reindex(list(runs[0].methods)).dropna(how="all").fillna("–")
    return wide.rename(index=label_of).rename_axis("method").reset_index()


async def world(options: Sequence[str]) -> pd.DataFrame:
    study = await rn.study("main_results", *options, progress=False)
    return scores(study.runs, ["acc", "yes_no_acc", "str_em", "reject", "all_gold_first", "all_gold_seen"])


async def chain_of_facts(options: Sequence[str]) -> pd.DataFrame:
    study = await rn.study("chain_of_facts", *options, progress=False)
    table = study.outcomes()
    wide = table.pivot_table(index="method", columns="outcome", values="questions", sort=False, observed=False)
    wide = wide.fillna(0).astype(int)
    return wide.rename(index=label_of).reset_index()


def multihop_runs() -> list[Run]:
    runs = [run for run in published_runs() if run.info.dataset.questions == 100 and "ircot" in run.methods]
    return [next(run for run in runs if run.dataset == name) for name in MULTIHOP]


async def multihop(_: Sequence[str]) -> pd.DataFrame:
    return scores(multihop_runs(), ["f1", "all_gold_seen"], MULTIHOP)


def draw_multihop(folder: Path) -> None:
    """Draw F1 and all gold after all searches of six methods on three data sets of the papers."""
    runs = multihop_runs()
    table = described(results(runs), runs).replace({"dataset": MULTIHOP})
    rows = pd.concat([score_rows(table, "f1"), score_rows(table, "all_gold_seen")])
    note = "Lines: 95 % intervals. Colours: paired test against vanilla RAG, p\u00a0<\u00a0.05 after Holm."
    (folder / "multihop.png").write_bytes(rn.forest(rows, group="dataset", note=note, width=5)._repr_png_()[0])


async def verification(options: Sequence[str]) -> pd.DataFrame:
    study = await rn.study("verification", *options, progress=False)
    return papers.counts(study.table()).reset_index()


def markdown(table: pd.DataFrame) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def main(check: bool) -> int:
    """Renew the blocks of the page; returns 1 where one differs and nothing is to be written."""
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        options = [f"runs={folder}", f"figures={folder}"]
        for name in re.findall(r"<!-- make (\w+) -->", page):
            text = markdown(asyncio.run(globals()[name](options)))
            block = rf"(<!-- make {name} -->\n).*?(<!-- end -->)"
            renewed = re.sub(block, lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page, flags=re.DOTALL)  # noqa: B023
            if renewed != page:
                print(f"{PAGE.name}: {name} {'differs' if check else 'written'}")
                if check:
                    return 1
            page = renewed
    if not check:
        PAGE.write_text(page, encoding="utf-8")
        draw_multihop(PAGE.with_name("img"))
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
