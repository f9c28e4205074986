"""Searches as TREC run and qrels files, with the measures of `ir-measures` beside them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from rag_notes.events import searches
from rag_notes.extras import needed
from rag_notes.files import slug, write_atomically
from rag_notes.report.csv_file import write_csv
from rag_notes.running.records import Run
from rag_notes.types import InputError, Passage, Question

MEASURES = ("nDCG@10", "RR", "R@5", "R@1000", "AP")
"""The measures, as `ir-measures` names them."""

Ranking = Mapping[str, Sequence[str]]  # by question id, the documents found, best first


def by_title(question: Question) -> bool:
    """Whether a question's gold passages are named by title, so that its documents are titles."""
    return not question.gold_ids and bool(question.gold_titles)


def documents(question: Question, passages: Iterable[Passage]) -> list[str]:
    """What the gold of a question calls these passages, by id or by title, each once."""
    titles = by_title(question)
    return list(dict.fromkeys(passage.title if titles else passage.id for passage in passages))


def rankings_of(run: Run) -> dict[str, Ranking]:
    """The rankings of each method that searches: of its first search, and of all, in the order of the searches.

    A question that failed, or for which nothing was searched, has none.
    """
    rankings: dict[str, dict[str, list[str]]] = {}
    for sample in run.samples:
        made = searches(sample.trace) if sample.error is None else []
        for part, read in (("first", made[:1]), ("all", made)):
            found = documents(sample.question, [passage for search in read for passage in search.read])
            if made:
                rankings.setdefault(f"{sample.method}-{part}", {})[sample.question.id] = found
    return dict(rankings)


def write_trec(questions: Sequence[Question], rankings: Mapping[str, Ranking], out: str | Path) -> pd.DataFrame:
    """Write `qrels`, `NAME.run` of each ranking and `measures.csv` into a folder; returns a row of measures for each.

    Gold passages have relevance 1. The score of a line is 1 / rank, which keeps our order where a program sorts by it;
    what a file of columns cannot hold in a name is percent-encoded. Measures are means over the `n` questions with gold
    that the ranking has. Raises InputError where no question has gold, and where `ir-measures` is not installed.
    """
    ir = needed("ir_measures", "trec")
    gold = {q.id: dict.fromkeys(q.gold_ids or q.gold_titles, 1) for q in questions if q.gold_ids or q.gold_titles}
    if not gold:
        raise InputError("no question has gold passages, which qrels are made of; name a run of another data set")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "qrels", _lines((q, "0", d, "1") for q, of in gold.items() for d in of))
    rows = []
    for name, ranking in rankings.items():
        scored = {id_: {d: 1 / rank for rank, d in enumerate(found, 1)} for id_, found in ranking.items()}
        lines = (
            (id_, "Q0", document, str(rank), f"{score:.6f}", slug(name))
            for id_, of in scored.items()
            for rank, (document, score) in enumerate(of.items(), 1)
        )
        write_atomically(out / f"{slug(name)}.run", _lines(lines))
        wanted = {id_: gold[id_] for id_ in scored if id_ in gold}
        values = (
            ir.calc_aggregate([ir.parse_measure(measure) for measure in MEASURES], wanted, scored) if wanted else {}
        )
        by_name = {str(measure): value for measure, value in values.items()}
        rows.append({"ranking": name, "n": len(wanted)} | {measure: by_name.get(measure) for measure in MEASURES})
    table = pd.DataFrame(rows, columns=["ranking", "n", *MEASURES])
    write_csv(table, out / "measures.csv")
    return table


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(" ".join(quote(cell, safe="/:,;()'&+!@#*=?-._~") for cell in row) + "\n" for row in rows)
