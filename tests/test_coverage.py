"""What of the papers the commands here make again: every table and figure, the counts, the page."""

import re
from pathlib import Path

import pytest

from rag_notes.config import load_config
from rag_notes.files import SHIPPED
from rag_notes.papers.coverage import (
    Coverage,
    Item,
    coverage_markdown,
    coverage_table,
    load_coverage,
    unmeasured_claims,
)
from rag_notes.papers.numbers import PAPERS, paper_cells

NUMBERED = {  # what each paper has, by its captions
    "deepnote": [*(f"Figure {n}" for n in range(1, 7)), *(f"Table {n}" for n in range(1, 24))],
    "adaptive_note": [
        *(f"Figure {n}" for n in (1, 2, "A1")),
        *(f"Table {n}" for n in (1, 2, 3, 4, "A1", "A2", "A3", "A4", "A5")),
    ],
    "amber": [*(f"Figure {n}" for n in (1, 2, 3)), *(f"Table {n}" for n in range(1, 7))],
    "chain_of_note": [*(f"Figure {n}" for n in (1, 2, 3)), *(f"Table {n}" for n in range(1, 7))],
}


def items(name: str) -> list[str]:
    """`Tables 12 to 18` one by one."""
    kind, first, *rest = re.findall(r"\w+", name)
    if not rest:
        return [name]
    kind = kind.removesuffix("s")
    if rest[0] == "and":
        return [f"{kind} {first}", f"{kind} {rest[1]}"]
    return [f"{kind} {number}" for number in range(int(first), int(rest[1]) + 1)]


def test_every_table_and_figure_has_one_line_and_a_command_or_a_reason() -> None:
    coverage = load_coverage()
    for paper in PAPERS:
        named = [name for item in coverage.items if item.paper == paper for name in items(item.item)]
        assert sorted(named) == sorted(NUMBERED[paper])
    assert all(item.commands or item.drawing or item.missing for item in coverage.items)
    printed = set(zip(paper_cells()["paper"], paper_cells()["table"], strict=True))
    lines = {(item.paper, item.item.removeprefix("Table ")) for item in coverage.items}
    assert {(paper, table) for paper, table in printed if table != "text"} <= lines


def test_every_claim_can_be_measured_some_with_a_model_that_is_trained_first() -> None:
    coverage = load_coverage()
    assert unmeasured_claims(coverage).empty
    for item in coverage.items:
        item.commands = [command for command in item.commands if "trained.data" not in command]
    lacking = unmeasured_claims(coverage)
    assert lacking.groupby("paper").size().to_dict() == {"deepnote": 36, "chain_of_note": 13}
    trained = {"deepnote_dpo", "chain_of_note_hybrid"}
    assert all(trained & {row["method"], row["other"]} for row in lacking.to_dict("records"))


def test_a_number_is_filled_where_the_command_runs_its_system_on_its_data_set() -> None:
    def counted(command: str) -> tuple[int, int]:
        item = Item(paper="adaptive_note", item="Table 4", shows="top-k", commands=[command])
        (row,) = coverage_table(Coverage(items=[item])).to_dict("records")
        assert (row["cells"], row["claims"]) == (36, 12)
        return row["filled"], row["measured"]

    command = "reproduce study=top_k dataset=[hotpotqa,twowikimultihopqa,asqa]"
    assert counted(command) == (36, 12)
    assert counted("reproduce study=top_k dataset=[hotpotqa]") == (12, 4)
    # Without the variants k = 5 alone is there, which no comparison of two k can rest on.
    assert counted("reproduce study=main_results dataset=[hotpotqa,twowikimultihopqa,asqa]") == (12, 0)
    assert counted("methods") == (0, 0)


@pytest.mark.parametrize(
    "command", sorted({c for item in load_coverage().items for c in item.commands if c[:3] in ("rep", "run")})
)
def test_commands_are_valid_with_a_model_that_is_asked(command: str) -> None:
    assert load_config([*command.split()[1:], "llm=openai"]).method


def test_the_page_is_what_the_command_prints() -> None:
    assert coverage_markdown().strip() in Path(SHIPPED / "docs" / "coverage.md").read_text(encoding="utf-8")
