"""The papers' cells and claims in data/paper/."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rag_notes.files import SHIPPED
from rag_notes.papers.inconsistencies import inconsistencies
from rag_notes.papers.numbers import beside_paper, corpus_sizes, paper_cells, paper_claims, paper_results, paper_table
from rag_notes.report.tables import results
from tests.made import make_run, row_of

README = (SHIPPED / "data" / "paper" / "README.md").read_text(encoding="utf-8")
TEXTS = Path(__file__).parents[2] / "shared" / "papers"
CELL = ["paper", "method", "dataset", "model", "setting", "metric"]
PERCENT = {
    *("acc", "avg", "em", "f1", "q_r", "recall", "reject", "str_em", "str_hit", "t_f1", "t_p", "t_r", "yes_no_acc"),
    *("useful_kept", "useless_dropped"),
}
COUNTS = {"passages", "population", "questions", "samples"}


def readme_table(header: str) -> list[list[str]]:
    """The rows of the README's table with this header."""
    lines = README.split(header, 1)[1].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in lines[: lines.index("")]]
    assert rows
    return rows


# --- cells


def test_rows_and_cells_of_every_table() -> None:
    counted = [
        (paper, table, str(cells["row"].nunique()), str(len(cells)))
        for (paper, table), cells in paper_cells().groupby(["paper", "table"], sort=False)
    ]
    described = [(row[0], row[1], row[3], row[4]) for row in readme_table("| paper | table | what | rows | cells |")]
    assert sorted(counted) == sorted(described)


def test_cells_are_well_formed() -> None:
    cells = paper_cells()
    assert not cells.duplicated(["table", "row", *CELL]).any()
    datasets = {path.stem for path in (SHIPPED / "conf" / "dataset").glob("*.yaml")}
    assert set(cells["dataset"]) <= datasets | {"average", "dnalign", ""}
    methods = {path.stem for path in (SHIPPED / "conf" / "method").glob("*.yaml")}
    # IRCoT and RECOMP are compared by their properties only (DeepNote, Table 11).
    unprinted = {"ircot", "recomp", "recomp_abstractive"}
    assert methods - set(cells["method"]) == unprinted
    assert set(cells["metric"]) == PERCENT | COUNTS | {"cost", "seconds", ""}
    assert all(re.fullmatch(r"([a-z_]+=[^=;]+(;|$))*", setting) for setting in cells["setting"])
    assert not cells["setting"].str.endswith(";").any()


def test_values_are_in_range() -> None:
    cells = paper_cells()
    assert cells["value"].notna().all()
    scores = cells[cells["metric"].isin(PERCENT)]
    is_gain = scores["setting"].str.contains("minus=")
    assert scores.loc[~is_gain, "value"].between(0, 100).all()
    gains = scores.loc[is_gain, "value"]
    assert gains.between(-0.5, 30).all() and (gains < 0).sum() == 1
    counts = cells.loc[cells["metric"].isin(COUNTS), "value"]
    assert (counts > 0).all() and (counts % 1 == 0).all()
    assert cells.loc[cells["metric"] == "cost", "value"].between(1e-6, 1e-2).all()
    assert cells.loc[cells["metric"] == "seconds", "value"].between(0.5, 60).all()
    # decimals as the papers print them: 1 in %, 2 in Chain-of-Note's LLaMa-2 rows and for some of Amber's F1
    of_scores = scores.groupby("paper")["decimals"].agg(["min", "max"])
    assert of_scores.loc[["deepnote", "adaptive_note"]].to_numpy().tolist() == [[1, 1], [1, 1]]
    assert (of_scores["max"] <= 2).all()


@pytest.mark.parametrize(
    ("paper", "table", "method", "model", "dataset", "setting", "metric", "value"),
    [
        ("deepnote", "1", "deepnote_dpo", "Llama-3.1-8B-Instruct", "musique", "", "avg", 22.0),
        ("deepnote", "1", "deepnote", "Llama-3.1-70B-Instruct", "hotpotqa", "minus=vanilla", "f1", 13.6),
        ("deepnote", "2", "deepnote", "GPT-4o-mini", "asqa", "without=adaptive_retrieval", "str_hit", 21.0),
        ("deepnote", "4", "deepnote_dpo", "Qwen-2.5-7B-Instruct", "musique", "max_step=2;max_failure=2", "f1", 23.9),
        ("deepnote", "7", "vanilla", "Llama-3.1-70B-Instruct", "strategyqa", "top_k=7", "yes_no_acc", 76.4),
        ("deepnote", "8", "deepnote", "Llama-3.1-70B-Instruct", "musique", "retriever=dense", "em", 26.0),
        ("deepnote", "9", "rat", "GPT-4o-mini", "twowikimultihopqa", "questions=50", "cost", 9.82e-4),
        ("deepnote", "10", "", "", "hotpotqa", "", "passages", 5233329),
        ("adaptive_note", "1", "adaptive_note", "gpt-3.5-turbo-0125", "crud", "", "t_f1", 36.6),
        ("adaptive_note", "1", "adaptive_note", "Llama3-8b", "asqa", "minus=vanilla", "str_hit", 4.0),
        ("adaptive_note", "A2", "vanilla", "gpt-3.5-turbo-0125", "twowikimultihopqa", "top_k=9", "em", 37.8),
        ("amber", "1", "amber", "gpt-3.5-turbo-instruct", "asqa", "", "str_hit", 26.3),
        ("amber", "2", "amber", "Llama3-8b", "twowikimultihopqa", "without=am", "f1", 41.63),
        ("amber", "4", "amber", "Qwen2-7b", "hotpotqa", "max_iterations=2", "f1", 50.08),
        ("chain_of_note", "2", "chain_of_thought", "GPT-4-1106", "webquestions", "", "acc", 58.4),
        ("chain_of_note", "3", "chain_of_note", "LLaMa-2-7B", "triviaqa", "noise=0;minus=retrieve_read", "f1", -0.5),
        ("chain_of_note", "Figure 3", "chain_of_note_hybrid", "LLaMa-2-7B", "nq_open", "noise=20", "em", 70.1),
    ],
)
def test_cells(
    paper: str, table: str, method: str, model: str, dataset: str, setting: str, metric: str, value: float
) -> None:
    where = dict(zip(("table", *CELL), (table, paper, method, dataset, model, setting, metric), strict=True))
    assert row_of(paper_cells(), **where)["value"] == value


def by_tabs(columns: int) -> Callable[[str], list[str]]:
    """The numbers in the last `columns` cells of a line."""

    def numbers(line: str) -> list[str]:
        cells = [re.sub(r"</?\w+>|\\uparrow|[()↑\s]", "", cell) for cell in line.split("\t")]
        tail = cells[-columns:] if len(cells) > columns else []
        return [c.replace(",", "") for c in tail if re.fullmatch(r"\d+\.\d+(E-\d+)?|\d{1,3}(,\d{3})+|\d{2,}", c)]

    return numbers


def by_pattern(pattern: str) -> Callable[[str], list[str]]:
    return lambda line: [number.replace(",", "") for number in re.findall(pattern, line)]


DECIMALS = by_pattern(r"-?\d+\.\d+")
PRINTED = [
    ("deepnote", "1", "<i>LLMs without", "Table 1: ", by_tabs(16)),
    ("deepnote", "2", "<i>GPT-4o-mini</i>", "Table 2: ", by_tabs(16)),
    ("deepnote", "3", "# Sample\t", "Table 3: ", by_tabs(5)),
    ("deepnote", "4", "LLMs\tMax Step", "Table 4: ", by_tabs(16)),
    ("deepnote", "5", "<i>Qwen-2.5-7B-instruct", "Table 5: ", by_tabs(16)),
    ("deepnote", "6", "Table 5: ", "Table 6: ", by_tabs(16)),
    ("deepnote", "7", "Table 6: ", "Table 7: ", by_tabs(16)),
    ("deepnote", "8", "Table 7: ", "Table 8: ", by_tabs(12)),
    ("deepnote", "9", "Methods\tAPI Cost", "Table 9: ", by_tabs(6)),
    ("deepnote", "10", "# Samples used", "Table 10: ", by_tabs(5)),
    ("adaptive_note", "1", "No Retrieval (NoR)", "Table 1: ", by_tabs(12)),
    ("adaptive_note", "2", "Ours w/o IIC&AMR\t", "Table 2: ", by_tabs(6)),
    ("adaptive_note", "3", "CI-IU", "Table 3: ", by_tabs(6)),
    ("adaptive_note", "4", "Table 3: ", "Table 4: ", by_tabs(6)),
    ("adaptive_note", "A1", "top-<i>k</i>", "Table A1: ", by_tabs(2)),
    ("adaptive_note", "A2", "Table A1: ", "Table A2: ", by_tabs(2)),
    ("adaptive_note", "A5", "Golden Answer: ", "Table A5: ", by_pattern(r"\d,\d{3}")),
    ("amber", "1", "No Retrieval\t", "439", by_tabs(12)),
    ("amber", "2", "metrix\t", "Table 2: ", by_tabs(8)),
    ("amber", "3", "top-k\t(acc)", "Table 3: ", by_tabs(9)),
    ("amber", "4", "max-iter\t", "Table 4: ", by_tabs(7)),
    ("chain_of_note", "1", "NQ 3,610", "Table 1: ", by_pattern(r"\d[\d,.]+")),
    ("chain_of_note", "2", "Backbone language model: LLaMa", "Table 2: ", DECIMALS),
    ("chain_of_note", "3", "Retrieve-Read100%", "Table 3: ", DECIMALS),
    ("chain_of_note", "4", "Retrieve-Read (Shi et al., 2023c) 15.6", "Table 4: ", DECIMALS),
    ("chain_of_note", "5", "Retrieve-Read 0.6104", "Table 5: ", DECIMALS),
    ("chain_of_note", "Figure 3", "34.354.361", "304050", by_pattern(r"\d\d\.\d")),
]


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not here")
@pytest.mark.parametrize(("paper", "table", "first", "end", "numbers"), PRINTED)
def test_cells_are_those_of_the_text(
    paper: str, table: str, first: str, end: str, numbers: Callable[[str], list[str]]
) -> None:
    lines = (TEXTS / f"{paper.replace('_', '-')}.txt").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    stop = next(i for i, line in enumerate(lines) if i > start and line.startswith(end))
    printed = [number for line in lines[start:stop] for number in numbers(line)]
    cells = paper_cells()
    ours = cells[(cells["paper"] == paper) & (cells["table"] == table)]
    assert list(ours["value"]) == [float(number) for number in printed]
    if table != "9":
        assert list(ours["decimals"]) == [len(number.partition(".")[2]) for number in printed]


def test_every_table_is_compared_with_the_text() -> None:
    cells = paper_cells()
    tables = cells.loc[cells["table"] != "text", ["paper", "table"]].drop_duplicates()
    assert set(tables.itertuples(index=False, name=None)) == {(paper, table) for paper, table, *_ in PRINTED}


# --- main results


def test_main_results() -> None:
    table = paper_results()
    assert table.groupby("paper").size().to_dict() == {
        "deepnote": 19 * 16,
        "adaptive_note": 11 * 12 + 2 * 8,
        "amber": 15 * 12,
        "chain_of_note": 4 * 8 + 4 * 4,
    }
    assert not table.duplicated(CELL).any()
    only = paper_results("GPT-4o-mini")
    assert len(only) == 8 * 16 and set(only["paper"]) == {"deepnote"}


def test_beside_paper() -> None:
    run = make_run("hotpotqa", {"vanilla": {"em": [1, 0], "f1": [1, 0.5]}, "deepnote": {"em": [1, 1], "f1": [1, 1]}})
    table = results([run])
    row = row_of(beside_paper(table, "GPT-4o-mini"), method="vanilla", metric="em")
    assert (row["ours"], row["n"], row["theirs"], row["paper"], row["table"]) == (50, 2, 40.0, "deepnote", "1")
    assert row["difference"] == pytest.approx(10.0)
    # vanilla: four models in DeepNote (em, f1, avg), three in Adaptive-Note (em, f1) and Amber (f1); deepnote: four
    assert len(beside_paper(table)) == 4 * 3 + 3 * 2 + 3 + 4 * 3
    unknown = beside_paper(results([make_run("mine", {"vanilla": {"em": [1, 0]}})]))
    assert unknown.empty and list(unknown.columns) == list(beside_paper(table).columns)
    with pytest.raises(ValueError, match="no paper has results of model 'GPT-9'"):
        beside_paper(table, "GPT-9")


def test_the_paper_table_has_ours_with_its_interval_and_a_column_for_each_model() -> None:
    run = make_run("hotpotqa", {"vanilla": {"em": [1, 0], "f1": [1, 0.5]}, "deepnote": {"em": [1, 1], "f1": [1, 1]}})
    table = paper_table(beside_paper(results([run]))).data  # type: ignore[attr-defined]
    assert list(table.index) == [
        ("hotpotqa", metric, method) for metric in ("EM", "F1", "Avg.") for method in ("Vanilla RAG", "DeepNote")
    ]
    row = table.loc["hotpotqa", "EM", "Vanilla RAG"]
    assert (row["ours", ""], row["ours", "n"], row["deepnote", "GPT-4o-mini"]) == ("50.0 [9.5, 90.5]", "2", "40.0")
    assert table.loc[("hotpotqa", "EM", "DeepNote"), ("amber", "Llama3-8b")] == "–"
    assert table.columns.is_unique


def test_the_paper_table_says_where_a_cell_is_printed_with_two_numbers() -> None:
    paper = beside_paper(results([make_run("hotpotqa", {"vanilla": {"em": [1, 0]}})]), "GPT-4o-mini")
    em = paper[paper["metric"] == "em"]
    twice = paper_table(pd.concat([em, em, em.assign(theirs=41.0)])).data  # type: ignore[attr-defined]
    assert twice["deepnote", "GPT-4o-mini"].tolist() == ["40.0 / 41.0"]


def test_without_cells_of_a_paper_the_table_says_so() -> None:
    page = paper_table(beside_paper(results([make_run("mine", {"vanilla": {"em": [1, 0]}})]))).to_html()
    assert "No paper has these data sets." in page
    assert "min-width" in page  # of the caption, which is otherwise as narrow as its empty table


# --- claims


def sizes() -> dict[tuple[str, str, str], int]:
    cells = paper_cells()
    counts = cells[cells["metric"] == "questions"]
    keys = zip(
        counts["paper"], counts["dataset"], counts["setting"].str.extract("set=([a-z]+)", expand=False), strict=True
    )
    return {
        (paper, dataset, "full" if pd.isna(kind) else kind): int(value)
        for (paper, dataset, kind), value in zip(keys, counts["value"], strict=True)
    }


def test_claims_are_well_formed() -> None:
    claims = paper_claims()
    assert claims["id"].is_unique and not claims.duplicated([*CELL, "kind", "other", "other_setting", "source"]).any()
    assert claims["id"].str.fullmatch(r"[a-z0-9-]+").all()
    assert set(claims["kind"]) == {"value", "order"}
    is_order = claims["kind"] == "order"
    assert (claims.loc[is_order, "other"] != "").all()
    assert (claims.loc[~is_order, ["other", "other_setting"]] == "").all(axis=None)
    assert claims.loc[~is_order, "value"].notna().all()
    assert (claims["value"].isna() == claims["tolerance"].isna()).all()
    assert (claims["statement"].str.len() <= 100).all() and (claims["source"] != "").all()


def test_claims_agree_with_their_cells_but_for_those_reported() -> None:
    cells = paper_cells()
    cells = cells[cells["table"] != "text"]
    values = cells.drop_duplicates(CELL).set_index(CELL)["value"]  # the first table that has the cell
    disagree = set()
    for claim in paper_claims().to_dict("records"):
        place = [claim[column] for column in CELL]
        difference = values[tuple(place)]
        if claim["kind"] == "order":
            place[1], place[4] = claim["other"], claim["other_setting"]
            difference -= values[tuple(place)]
        is_wrong = not math.isnan(claim["value"]) and abs(difference - claim["value"]) > 10 ** -claim["decimals"] + 1e-9
        if is_wrong or (claim["kind"] == "order" and difference <= 0):
            disagree.add(claim["id"])
        elif math.isnan(claim["value"]):
            assert claim["metric"] in ("cost", "seconds"), claim["id"]
        if claim["kind"] == "value":
            assert difference == claim["value"], claim["id"]
    found = inconsistencies()
    reported = found.loc[found["check"] == "claim", "where"].str.extract(r"claim ([a-z0-9-]+)$", expand=False)
    assert len(disagree) == 35 and disagree == set(reported)


def test_claims_have_every_main_result_of_the_own_methods() -> None:
    main = paper_results()
    is_own = main["method"].str.removesuffix("_dpo") == main["paper"]
    cells = main[is_own & (main["metric"] != "avg") & (main["dataset"] != "average")]
    claims = paper_claims()
    claimed = claims[(claims["kind"] == "value") & (claims["dataset"] != "realtimeqa")]
    assert sorted(zip(*(claimed[key] for key in CELL), strict=True)) == sorted(
        zip(*(cells[key] for key in CELL), strict=True)
    )


def test_claims_have_an_order_of_each_kind_of_study() -> None:
    claims = paper_claims()
    row = row_of(claims, id="deepnote-over-vanilla-hotpotqa-f1-gpt-4o-mini")
    assert (row["kind"], row["method"], row["other"], row["value"]) == ("order", "deepnote", "vanilla", 12.1)
    fair = row_of(claims, id="adaptive-note-fair-top-k-9-twowikimultihopqa-f1-gpt-3-5-turbo-0125")
    assert (fair["setting"], fair["other_setting"], fair["value"]) == ("top_k=5", "top_k=9", 11.1)
    reject = row_of(claims, id="chain-of-note-reject-gain-realtimeqa-reject-llama-2-7b")
    assert (reject["metric"], reject["value"]) == ("reject", 10.5)
    settings = set(claims["setting"]) | set(claims["other_setting"])
    for kind in ("without=", "top_k=", "max_step=", "noise=", "retriever=", "collector_iterations=", "questions="):
        assert any(kind in setting for setting in settings), kind


def test_tolerances_follow_the_rule() -> None:
    cells = paper_cells()
    values = cells[cells["table"] != "text"].drop_duplicates(CELL).set_index(CELL)["value"]
    asked = sizes()
    sets = ("nq_open", "triviaqa", "webquestions")
    for claim in paper_claims().dropna(subset="tolerance").to_dict("records"):
        variance = 0.0
        for method, setting in (("method", "setting"), ("other", "other_setting")):
            if claim["kind"] == "value" and method == "other":
                continue
            kind = "subset" if "noise" in claim[setting] else "full"
            n = asked.get((claim["paper"], claim["dataset"], kind), 500)
            if claim["dataset"] == "average":
                n = sum(asked[claim["paper"], name, kind] for name in sets)
            if "questions=50" in claim[setting]:
                n = 50
            place = (claim["paper"], claim[method], claim["dataset"], claim["model"], claim[setting], claim["metric"])
            share = values[place] / 100
            variance += share * (1 - share) / n
        assert claim["tolerance"] == pytest.approx(196 * math.sqrt(variance), abs=0.05 + 1e-9), claim["id"]


def test_a_caller_cannot_change_the_data() -> None:
    for read in (paper_cells, paper_claims, corpus_sizes):
        first = read()
        first.iloc[:, 0] = "changed"
        assert "changed" not in set(read().iloc[:, 0])
