"""What studies share: the calls that each asked for, and those that no study before it had asked."""

from collections.abc import Iterable, Sequence

import pandas as pd

from rag_notes.events import answered
from rag_notes.report.markdown import markdown
from rag_notes.running.records import Run, Sample


def shared_calls(runs: Iterable[Run], order: Sequence[str] = ()) -> pd.DataFrame:
    """A row for each study that took part in these runs: what it asked for and what it added.

    Columns: study, `methods` (variants are methods, and each counts once a data set), `answers`, `calls` that these
    answers consist of, and `new`, those that no study before it had asked: what had to be made and paid. An answer that
    two runs of a study have counts once. Studies are in this order, others behind by name; the last row sums up, its
    `new` are all distinct calls.
    """
    by_study: dict[str, dict[tuple[str, str, str], Sample]] = {}
    for run in runs:
        for study in run.info.studies or ["(no study)"]:
            by_study.setdefault(study, {}).update({(run.label, *sample.key): sample for sample in run.samples})
    seen: set[str] = set()
    rows = []
    for study in sorted(by_study, key=lambda name: (order.index(name) if name in order else len(order), name)):
        answers = by_study[study]
        keys = [ask.key for sample in answers.values() for ask in answered(sample.trace)]
        methods = {(label, method) for label, method, _ in answers}
        rows.append([study, len(methods), len(answers), len(keys), len(set(keys) - seen)])
        seen.update(keys)
    table = pd.DataFrame(rows, columns=["study", "methods", "answers", "calls", "new"])
    total = pd.DataFrame([["all", *table.drop(columns="study").sum()]], columns=table.columns)
    return pd.concat([table, total], ignore_index=True)


def shared_table(table: pd.DataFrame) -> str:
    """What `shared_calls` gave as a table in Markdown, with the share of calls that were new."""
    share = [
        f"{100 * new / calls:.0f} %" if calls else "–" for new, calls in zip(table["new"], table["calls"], strict=True)
    ]
    shown = table.assign(study=table["study"].str.replace("_", " "), share=share)
    return markdown(shown.rename(columns={"calls": "calls asked for", "new": "of them new"}))
