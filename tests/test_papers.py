"""The papers' cells and claims in data/paper/, against the papers' text, their own sums and `data/paper/README.md`."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from rag_notes.files import SHIPPED
from rag_notes.papers.numbers import beside_paper, paper_cells, paper_claims, paper_results
from rag_notes.report.tables import results
from tests.made import make_run, row_of

README = (SHIPPED / "data" / "paper" / "README.md").read_text(encoding="utf-8")
TEXTS = Path(os.environ.get("RAG_NOTES_SAMPLES", Path(__file__).parents[1] / "../shared/data")).parent / "papers"
CELL = ["paper", "method", "dataset", "model", "setting", "metric"]
PERCENT = {
    *("acc", "avg", "em", "f1", "q_r", "recall", "reject", "str_em", "str_hit", "t_f1", "t_p", "t_r", "yes_no_acc"),
    *("useful_kept", "useless_dropped"),
}
COUNTS = {"passages", "population", "questions", "samples"}
ANY = r"-?\d+\.\d+"
PRINTED: dict[str, dict[str, tuple[Any, ...]]] = {  # where a table begins; its columns or a pattern; where it ends
    "deepnote": {
        "1": ("<i>LLMs without", 16), "2": ("<i>GPT-4o-mini</i>", 16), "3": ("# Sample\t", 5),
        "4": ("LLMs\tMax Step", 16), "5": ("<i>Qwen-2.5-7B-instruct", 16), "6": ("Table 5: ", 16),
        "7": ("Table 6: ", 16), "8": ("Table 7: ", 12), "9": ("Methods\tAPI Cost", 6), "10": ("# Samples used", 5),
    },
    "adaptive_note": {
        "1": ("No Retrieval (NoR)", 12), "2": ("Ours w/o IIC&AMR\t", 6), "3": ("CI-IU", 6), "4": ("Table 3: ", 6),
        "A1": ("top-<i>k</i>", 2), "A2": ("Table A1: ", 2), "A5": ("Golden Answer: ", r"\d,\d{3}"),
    },
    "amber": {
        "1": ("No Retrieval\t", 12, "439"), "2": ("metrix\t", 8), "3": ("top-k\t(acc)", 9), "4": ("max-iter\t", 7),
    },
    "chain_of_note": {
        "1": ("NQ 3,610", r"\d[\d,.]+"), "2": ("Backbone language model: LLaMa", ANY), "3": ("Retrieve-Read100%", ANY),
        "4": ("Retrieve-Read (Shi et al., 2023c) 15.6", ANY), "5": ("Retrieve-Read 0.6104", ANY),
        "Figure 3": ("34.354.361", r"\d\d\.\d", "304050"),
    },
}  # fmt: skip


def readme_table(header: str) -> list[list[str]]:
    """The rows of the README's table with this header."""
    lines = README.split(header, 1)[1].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines[: (*lines, "").index("")]]


def numbers_of(line: str, columns: int | str) -> list[str]:
    """The numbers of a line of a paper: those of the last columns, or those that a pattern finds."""
    if isinstance(columns, str):
        return [number.replace(",", "") for number in re.findall(columns, line)]
    cells = [re.sub(r"</?\w+>|\\uparrow|[()↑\s]", "", cell) for cell in line.split("\t")]
    tail = cells[-columns:] if len(cells) > columns else []
    return [c.replace(",", "") for c in tail if re.fullmatch(r"\d+\.\d+(E-\d+)?|\d{1,3}(,\d{3})+|\d{2,}", c)]


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not here")
@pytest.mark.parametrize(("paper", "table"), [(paper, table) for paper in PRINTED for table in PRINTED[paper]])
def test_cells_are_those_of_the_papers_text(paper: str, table: str) -> None:
    first, columns, *end = PRINTED[paper][table]
    lines = (TEXTS / f"{paper.replace('_', '-')}.txt").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    stop = next(i for i, line in enumerate(lines) if i > start and line.startswith(*end or [f"Table {table}: "]))
    printed = [number for line in lines[start:stop] for number in numbers_of(line, columns)]
    ours = paper_cells().query("paper == @paper and table == @table")
    assert list(ours["value"]) == [float(number) for number in printed]
    if table != "9":
        assert list(ours["decimals"]) == [len(number.partition(".")[2]) for number in printed]


def test_cells_are_complete_and_well_formed() -> None:
    cells = paper_cells()
    counted = cells.groupby(["paper", "table"], sort=False)["row"].agg(["nunique", "size"]).astype(str).reset_index()
    described = [(row[0], row[1], row[3], row[4]) for row in readme_table("| paper | table | what | rows | cells |")]
    assert sorted(counted.itertuples(index=False, name=None)) == sorted(described)
    printed = {(paper, table) for paper in PRINTED for table in PRINTED[paper]}
    assert printed == {row[:2] for row in described if row[1] != "text"}
    assert not cells.duplicated(["table", "row", *CELL]).any() and cells["value"].notna().all()
    datasets = {path.stem for path in (SHIPPED / "conf" / "dataset").glob("*.yaml")}
    assert set(cells["dataset"]) <= datasets | {"average", "dnalign", ""}
    methods = {path.stem for path in (SHIPPED / "conf" / "method").glob("*.yaml")}
    assert methods - set(cells["method"]) == {"ircot", "recomp", "recomp_abstractive"}  # whose numbers none prints
    assert set(cells["metric"]) == PERCENT | COUNTS | {"cost", "seconds", ""}
    assert all(re.fullmatch(r"(([a-z_]+=[^=;]+)(;(?!$)|$))*", setting) for setting in cells["setting"])
    scores = cells[cells["metric"].isin(PERCENT) & ~cells["setting"].str.contains("minus=")]
    assert scores["value"].between(0, 100).all()


def test_our_scores_stand_beside_the_papers() -> None:
    run = make_run("hotpotqa", {"vanilla": {"em": [1, 0], "f1": [1, 0.5]}, "deepnote": {"em": [1, 1], "f1": [1, 1]}})
    beside = beside_paper(results([run]))
    row = row_of(beside, method="vanilla", metric="em", model="GPT-4o-mini")
    assert (row["ours"], row["n"], row["theirs"], row["paper"], row["difference"]) == (50, 2, 40.0, "deepnote", 10)


def test_claims_are_well_formed_and_have_every_main_result_of_the_papers_own_methods() -> None:
    claims, main = paper_claims(), paper_results()
    assert claims["id"].is_unique and set(claims["kind"]) == {"value", "order"}
    assert ((claims["other"] != "") == (claims["kind"] == "order")).all()
    assert (claims["value"].isna() == claims["tolerance"].isna()).all() and (claims["source"] != "").all()
    is_own = main["method"].str.removesuffix("_dpo") == main["paper"]
    scores = main[is_own & (main["metric"] != "avg") & (main["dataset"] != "average")]
    values = claims[(claims["kind"] == "value") & (claims["dataset"] != "realtimeqa")]
    assert sorted(values[CELL].itertuples(index=False)) == sorted(scores[CELL].itertuples(index=False))


def test_claims_agree_with_their_cells_but_for_those_that_the_readme_counts() -> None:
    values = paper_cells().query("table != 'text'").drop_duplicates(CELL).set_index(CELL)["value"]  # of the first table
    disagreeing = []
    for claim in paper_claims().to_dict("records"):
        sides = [(claim["method"], claim["setting"]), (claim["other"], claim["other_setting"])]
        first, *other = [values[claim["paper"], method, claim["dataset"], claim["model"], setting, claim["metric"]]
                         for method, setting in sides if method]  # fmt: skip
        difference = first - sum(other)
        is_off = abs(difference - claim["value"]) > 10 ** -claim["decimals"] + 1e-9  # not where there is no value
        if is_off or (other and difference <= 0):
            disagreeing.append(claim["paper"])
    listed = {row[1]: int(row[2]) for row in readme_table("| check | paper | findings | what |") if row[0] == "claim"}
    assert {paper: disagreeing.count(paper) for paper in listed} == listed and len(disagreeing) == 35
