"""The papers' cells and claims in data/paper/, against the papers' text, their own sums and `data/paper/README.md`."""

import math
import os
import re
from pathlib import Path

import pandas as pd
import pytest

from rag_notes.files import SHIPPED
from rag_notes.papers.numbers import beside_paper, paper_cells, paper_claims, paper_results, paper_table
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
PRINTED = {  # by paper and table: the lines where it begins and ends, and its columns or a pattern of its numbers
    "deepnote": {
        **{"1": ("<i>LLMs without", "Table 1: ", 16), "2": ("<i>GPT-4o-mini</i>", "Table 2: ", 16)},
        **{"3": ("# Sample\t", "Table 3: ", 5), "4": ("LLMs\tMax Step", "Table 4: ", 16)},
        **{"5": ("<i>Qwen-2.5-7B-instruct", "Table 5: ", 16), "6": ("Table 5: ", "Table 6: ", 16)},
        **{"7": ("Table 6: ", "Table 7: ", 16), "8": ("Table 7: ", "Table 8: ", 12)},
        **{"9": ("Methods\tAPI Cost", "Table 9: ", 6), "10": ("# Samples used", "Table 10: ", 5)},
    },
    "adaptive_note": {
        **{"1": ("No Retrieval (NoR)", "Table 1: ", 12), "2": ("Ours w/o IIC&AMR\t", "Table 2: ", 6)},
        **{"3": ("CI-IU", "Table 3: ", 6), "4": ("Table 3: ", "Table 4: ", 6)},
        **{"A1": ("top-<i>k</i>", "Table A1: ", 2), "A2": ("Table A1: ", "Table A2: ", 2)},
        "A5": ("Golden Answer: ", "Table A5: ", r"\d,\d{3}"),
    },
    "amber": {
        **{"1": ("No Retrieval\t", "439", 12), "2": ("metrix\t", "Table 2: ", 8)},
        **{"3": ("top-k\t(acc)", "Table 3: ", 9), "4": ("max-iter\t", "Table 4: ", 7)},
    },
    "chain_of_note": {
        **{"1": ("NQ 3,610", "Table 1: ", r"\d[\d,.]+"), "2": ("Backbone language model: LLaMa", "Table 2: ", ANY)},
        **{"3": ("Retrieve-Read100%", "Table 3: ", ANY), "5": ("Retrieve-Read 0.6104", "Table 5: ", ANY)},
        "4": ("Retrieve-Read (Shi et al., 2023c) 15.6", "Table 4: ", ANY),
        "Figure 3": ("34.354.361", "304050", r"\d\d\.\d"),
    },
}


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
    first, end, columns = PRINTED[paper][table]
    lines = (TEXTS / f"{paper.replace('_', '-')}.txt").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    stop = next(i for i, line in enumerate(lines) if i > start and line.startswith(end))
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
    assert {(paper, table) for paper in PRINTED for table in PRINTED[paper]} == {
        (row[0], row[1]) for row in described if row[1] != "text"
    }
    assert not cells.duplicated(["table", "row", *CELL]).any() and cells["value"].notna().all()
    datasets = {path.stem for path in (SHIPPED / "conf" / "dataset").glob("*.yaml")}
    assert set(cells["dataset"]) <= datasets | {"average", "dnalign", ""}
    methods = {path.stem for path in (SHIPPED / "conf" / "method").glob("*.yaml")}
    assert methods - set(cells["method"]) == {"ircot", "recomp", "recomp_abstractive"}  # whose numbers none prints
    assert set(cells["metric"]) == PERCENT | COUNTS | {"cost", "seconds", ""}
    assert all(re.fullmatch(r"(([a-z_]+=[^=;]+)(;(?!$)|$))*", setting) for setting in cells["setting"])
    scores, is_gain = cells["metric"].isin(PERCENT), cells["setting"].str.contains("minus=")
    assert cells.loc[scores & ~is_gain, "value"].between(0, 100).all()
    assert cells.loc[cells["metric"] == "cost", "value"].between(1e-6, 1e-2).all()


def test_our_scores_stand_beside_the_papers() -> None:
    run = make_run("hotpotqa", {"vanilla": {"em": [1, 0], "f1": [1, 0.5]}, "deepnote": {"em": [1, 1], "f1": [1, 1]}})
    beside = beside_paper(results([run]))
    row = row_of(beside, method="vanilla", metric="em", model="GPT-4o-mini")
    assert (row["ours"], row["n"], row["theirs"], row["paper"], row["difference"]) == (50, 2, 40.0, "deepnote", 10)
    # vanilla: four models in DeepNote (em, f1, avg), three in Adaptive-Note (em, f1) and Amber (f1); deepnote: four
    assert len(beside) == 4 * 3 + 3 * 2 + 3 + 4 * 3
    with pytest.raises(ValueError, match="no paper has results of model 'GPT-9'"):
        beside_paper(results([run]), "GPT-9")
    twice = beside[(beside["metric"] == "em") & (beside["model"] == "GPT-4o-mini")].assign(theirs=41.0)
    table = paper_table(pd.concat([beside, twice]))
    methods = [(metric, method) for metric in ("EM", "F1", "Avg.") for method in ("Vanilla RAG", "DeepNote")]
    assert list(table.index) == [("hotpotqa", *names) for names in methods]
    shown = table.loc[("hotpotqa", "EM", "Vanilla RAG")]
    assert (shown["ours", ""], shown["ours", "n"]) == ("50.0 [9.5, 90.5]", "2")
    assert (shown["deepnote", "GPT-4o-mini"], shown["adaptive_note", "Qwen2-7b"] != "–") == ("40.0 / 41.0", True)
    assert table.loc[("hotpotqa", "EM", "DeepNote"), ("amber", "Llama3-8b")] == "–"
    assert paper_table(beside_paper(results([make_run("mine", {"vanilla": {"em": [1, 0]}})]))).empty


def test_claims_are_well_formed_and_have_every_main_result_of_the_papers_own_methods() -> None:
    claims, main = paper_claims(), paper_results()
    assert claims["id"].is_unique and set(claims["kind"]) == {"value", "order"}
    assert ((claims["other"] != "") == (claims["kind"] == "order")).all()
    assert (claims["value"].isna() == claims["tolerance"].isna()).all() and (claims["source"] != "").all()
    is_own = main["method"].str.removesuffix("_dpo") == main["paper"]
    own = main[is_own & (main["metric"] != "avg") & (main["dataset"] != "average")]
    values = claims[(claims["kind"] == "value") & (claims["dataset"] != "realtimeqa")]
    assert sorted(values[CELL].itertuples(index=False)) == sorted(own[CELL].itertuples(index=False))


def test_claims_agree_with_their_cells_but_for_those_of_the_readme_and_have_tolerances_by_its_rule() -> None:
    cells = paper_cells()
    values = cells.query("table != 'text'").drop_duplicates(CELL).set_index(CELL)["value"]  # of the first table
    sizes = {(row.paper, row.dataset, "set=subset" in row.setting): row.value
             for row in cells[cells["metric"] == "questions"].itertuples()}  # fmt: skip
    sets = ("nq_open", "triviaqa", "webquestions")
    disagreeing = []
    for claim in paper_claims().to_dict("records"):
        sides = [(claim["method"], claim["setting"]), (claim["other"], claim["other_setting"])]
        first, *other = [values[claim["paper"], method, claim["dataset"], claim["model"], setting, claim["metric"]]
                         for method, setting in sides if method]  # fmt: skip
        difference = first - sum(other)
        is_off = abs(difference - claim["value"]) > 10 ** -claim["decimals"] + 1e-9  # not where there is no value
        if is_off or (other and difference <= 0):
            disagreeing.append(claim["paper"])
        if math.isnan(claim["tolerance"]):
            continue
        variance = 0.0
        for value, (_, setting) in zip([first, *other], sides, strict=False):
            key = (claim["paper"], claim["dataset"], "noise" in setting)
            of_sets = [(claim["paper"], name, "noise" in setting) for name in sets if claim["dataset"] == "average"]
            n = sum(map(sizes.__getitem__, of_sets)) or sizes.get(key, 500)
            variance += value / 100 * (1 - value / 100) / (50 if "questions=50" in setting else n)
        assert claim["tolerance"] == pytest.approx(196 * math.sqrt(variance), abs=0.05 + 1e-9), claim["id"]
    listed = {row[1]: int(row[2]) for row in readme_table("| check | paper | findings | what |") if row[0] == "claim"}
    assert {paper: disagreeing.count(paper) for paper in listed} == listed and len(disagreeing) == 35
