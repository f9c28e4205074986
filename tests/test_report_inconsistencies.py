"""What does not add up in the papers' tables: the known findings, and planted ones."""

import subprocess
import sys

import pandas as pd
import pytest

from rag_notes.papers.inconsistencies import inconsistencies
from rag_notes.papers.numbers import corpus_sizes, paper_cells, paper_claims
from tests.made import row_of
from tests.test_report_paper import readme_table


def test_inconsistencies_are_those_that_the_readme_counts() -> None:
    found = inconsistencies()
    counted = [(check, paper, str(len(rows))) for (check, paper), rows in found.groupby(["check", "paper"], sort=False)]
    described = [(row[0], row[1], row[2]) for row in readme_table("| check | paper | findings | what |")]
    assert sorted(counted) == sorted(described)
    assert list(found.columns) == ["check", "paper", "where", "what", "printed", "other"]
    pd.testing.assert_frame_equal(found, inconsistencies())
    assert list(dict.fromkeys(found["paper"])) == ["deepnote", "adaptive_note", "amber", "chain_of_note"]


@pytest.mark.parametrize(
    ("check", "where", "printed", "other"),
    [
        ("average", "Table 1, DeepNote GPT-4o-mini: asqa avg", "32.2", "35.85"),
        ("average", "Table 2, + Chain-of-Note: average em", "50.46", "52.507"),
        ("gain", "Table 1, Δ DeepNote → Vanilla: asqa str_em", "4.3", "2.2"),
        ("corpus", "Table 10, # Documents in Corpus: twowikimultihopqa passages", "139416", "430225"),
        ("corpus", "Table 10, # Documents in Corpus: musique passages", "430139", "139416"),
        ("repeated", "amber twowikimultihopqa Qwen2-7b f1", "52.73", "42.73"),
        ("repeated", "hotpotqa population", "5042", "5024"),
        ("claim", "sections 1 and 3.4, claim chain-of-note-reject-gain-realtimeqa-reject-llama-2-7b", "10.5", "6.9"),
        ("share", "Table 3, Retrieve-Read 100%: webquestions em", "29.58", "29.569"),
        ("least", "text, section 5.1", "10", "-12.6"),
    ],
)
def test_known_inconsistencies(check: str, where: str, printed: str, other: str) -> None:
    found = inconsistencies()
    rows = found[(found["check"] == check) & (found["where"] == where)]
    assert (printed, other) in set(zip(rows["printed"], rows["other"], strict=True))


def test_the_command_prints_every_finding() -> None:
    command = [sys.executable, "-m", "rag_notes.papers.inconsistencies"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == "| check | paper | where | what | printed | other |"
    assert len(lines) == 2 + len(inconsistencies())


def test_rules_are_named() -> None:
    found = inconsistencies()
    asqa = found[(found["check"] == "average") & (found["paper"] == "deepnote")]
    assert set(asqa["what"]) == {"not mean(str_em, str_hit) but mean(musique avg, str_em, str_hit)"}
    gains = found[found["check"] == "gain"]
    assert set(gains["what"]) == {"not the gain over vanilla of Llama-3.1-70B-Instruct but of GPT-4o-mini"}
    swapped = row_of(found, printed="139416")
    assert swapped["what"] == "not the documented size; the nearest is 139416 of musique"
    twice = row_of(found, printed="52.73")
    assert twice["what"] == "Table 1 and Table 2 against Table 3 and Table 4"


def test_asqa_averages_by_both_rules() -> None:
    cells = paper_cells()
    of_deepnote = cells[(cells["paper"] == "deepnote") & ~cells["setting"].str.contains("minus=")]
    wide = of_deepnote.pivot_table(index=["table", "row"], columns=["dataset", "metric"], values="value")
    wide = wide[wide["asqa"]["avg"].notna()]
    both_rounded = 0.1 + 1e-9  # the parts and the mean are rounded to 0.1 each
    printed, str_em, str_hit = (wide["asqa"][metric] for metric in ("avg", "str_em", "str_hit"))
    with_musique = (printed - (wide["musique"]["avg"] + str_em + str_hit) / 3).abs() <= both_rounded
    plain = (printed - (str_em + str_hit) / 2).abs() <= both_rounded
    assert (len(wide), with_musique.sum(), (with_musique & plain).sum()) == (85, 82, 6)
    assert (
        sorted(row for _, row in wide[~with_musique].index) == ["FLARE", "RAT", "ReAct"] and plain[~with_musique].all()
    )


def test_no_share_of_500_questions_is_misread() -> None:
    cells = paper_cells()
    cells = cells[
        cells["paper"].isin(["deepnote", "adaptive_note"])
        & cells["metric"].isin(["em", "acc", "yes_no_acc"])
        & ~cells["setting"].str.contains("minus=")
    ]
    of_50 = cells["setting"].str.contains("questions=50")
    assert len(cells) == 704 and of_50.sum() == 18
    assert ((10 * cells["value"]).round() % 2 == 0).all()  # steps of 0.2 %
    assert ((10 * cells.loc[of_50, "value"]).round() % 20 == 0).all()  # steps of 2 %


def changed(cells: pd.DataFrame, value: float, **where: str) -> pd.DataFrame:
    """A copy with one cell changed."""
    copy = cells.copy()
    hit = pd.Series(True, index=copy.index)
    for column, is_ in where.items():
        hit &= copy[column] == is_
    assert hit.sum() == 1
    copy.loc[hit, "value"] = value
    return copy


@pytest.mark.parametrize(
    ("check", "value", "where", "what"),
    [
        (
            "average",
            58.9,
            {"row": "DeepNote GPT-4o-mini", "dataset": "hotpotqa", "metric": "avg"},
            "not mean(acc, f1, em)",
        ),
        (
            "average",
            39.92,
            {"row": "Retrieve-Read 100%", "dataset": "average", "metric": "em"},
            "not mean(nq_open, triviaqa, webquestions)",
        ),
        (
            "gain",
            9.1,
            {"row": "Ours (↑)", "dataset": "hotpotqa", "metric": "f1"},
            "not the gain over vanilla of gpt-3.5-turbo-0125",
        ),
        (
            "repeated",
            36.0,
            {"table": "A2", "row": "Vanilla: top-5", "metric": "em", "dataset": "twowikimultihopqa"},
            "Table",
        ),
        ("repeated", 44.2, {"table": "2", "row": "Ours w/o IIC&AMR", "dataset": "asqa", "metric": "str_em"}, "Table"),
        (
            "share",
            29.7,
            {"table": "1", "row": "NoR", "paper": "adaptive_note", "dataset": "twowikimultihopqa", "metric": "em"},
            "500",
        ),
        (
            "share",
            73.0,
            {"row": "DeepNote (3-1)", "metric": "acc"},
            "no whole number of 50 questions; the nearest is 36",
        ),
        ("bound", 40.0, {"table": "3", "row": "1-1", "dataset": "twowikimultihopqa", "metric": "f1"}, "above f1"),
        (
            "bound",
            19.0,
            {"table": "A1", "row": "Vanilla: top-10", "dataset": "asqa", "metric": "str_em"},
            "above str_em",
        ),
        ("corpus", 5233320, {"table": "10", "dataset": "hotpotqa", "metric": "passages"}, "5233329 of hotpotqa"),
        (
            "claim",
            44.0,
            {"table": "3", "row": "Ours: top-3", "paper": "amber", "dataset": "asqa", "metric": "str_em"},
            "",
        ),
        (
            "largest",
            10.6,
            {"row": "gain over earlier methods", "paper": "deepnote"},
            "largest gain over earlier methods",
        ),
    ],
)
def test_a_planted_error_is_found(check: str, value: float, where: dict[str, str], what: str) -> None:
    before = inconsistencies()
    after = inconsistencies(changed(paper_cells(), value, **where))
    known = set(before.itertuples(index=False, name=None))
    new = [row for row in after.to_dict("records") if tuple(row.values()) not in known]
    assert any(row["check"] == check and what in row["what"] for row in new), new


def test_rounding_is_no_inconsistency() -> None:
    before = len(inconsistencies())
    same = changed(paper_cells(), 57.2, table="1", row="DeepNote GPT-4o-mini", dataset="hotpotqa", metric="avg")
    added = inconsistencies(same)
    assert set(added.loc[added["check"] == "average", "printed"]).isdisjoint({"57.2"})
    assert len(added) == before + 1  # the same cell of Table 2 and others: 57.1


def test_numbers_of_another_model_are_found() -> None:
    cells = paper_cells()
    flare = cells[(cells["paper"] == "adaptive_note") & (cells["row"] == "FLARE") & (cells["dataset"] == "hotpotqa")]
    where = {"paper": "deepnote", "table": "1", "row": "FLARE", "dataset": "hotpotqa"}
    for metric, value in zip(flare["metric"], flare["value"], strict=True):
        cells = changed(cells, value, metric=metric, **where)
    found = inconsistencies(cells)
    copied = found[found["check"] == "copied"]
    assert any("gpt-3.5-turbo-0125" in what and "GPT-4o-mini" in what for what in copied["what"])


def test_wrong_claims_are_found() -> None:
    claims = paper_claims()
    name = "deepnote-over-vanilla-hotpotqa-f1-gpt-4o-mini"
    claims.loc[claims["id"] == name, "value"] = 21.1
    found = inconsistencies(claims=claims)
    row = row_of(found, where=f"section 5.1, Table 1, claim {name}")
    assert (row["check"], row["printed"], row["other"]) == ("claim", "21.1", "12.1")
    claims.loc[claims["id"] == name, "other"] = "recomp"
    with pytest.raises(ValueError, match=f"claim '{name}': the tables of deepnote have no cell 'recomp hotpotqa"):
        inconsistencies(claims=claims)


def test_a_difference_without_its_rows_is_an_error() -> None:
    cells = paper_cells()
    lone = cells[(cells["paper"] == "adaptive_note") & (cells["setting"] == "minus=vanilla")]
    with pytest.raises(ValueError, match=r"adaptive_note, Table 1, Ours .*: hotpotqa f1: a difference of rows"):
        inconsistencies(lone, paper_claims().iloc[:0], corpus_sizes())


def test_other_corpora_can_be_compared() -> None:
    swapped = corpus_sizes().assign(passages=lambda table: table["passages"].replace({139416: 430139, 430225: 139416}))
    found = inconsistencies(corpora=swapped)
    assert "corpus" not in set(found["check"])
