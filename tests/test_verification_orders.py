"""The papers' orders on a data set of our own, and the figure of them."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rag_notes.papers.forest import forest_figure
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.verdicts import count_verdicts
from rag_notes.papers.verification import usable, verify_claims, verify_orders
from rag_notes.running.records import Condition
from tests.claims import changed, claim, own, run_of, two
from tests.made import row_of


def test_the_orders_of_a_paper_are_one_row_for_each_model_of_ours() -> None:
    claims = pd.DataFrame(
        [
            claim(),
            claim(dataset="musique", value=7.5, model="Qwen2-7b", source="section 5", setting="questions=50"),
            claim(dataset="musique", value=math.nan, model="Qwen2-7b"),
            claim(metric="seconds", value=math.nan),
            claim(kind="value"),
        ]
    )
    orders = verify_orders(own(), claims)
    assert list(orders["our_model"]) == ["a", "a", "b", "b"]
    row = row_of(orders, our_model="a", metric="acc")
    assert (row["claimed"], row["unsupported"], row["datasets"]) == (3, 1, "hotpotqa, musique")
    assert (row["models"], row["source"], row["about"]) == ("GPT-4o-mini, Qwen2-7b", "Table 1; section 5", "answers")
    assert (row["least"], row["most"], row["ours"], row["run"]) == (7.5, 20, 100, "world-a")
    assert (row["p"], row["p_holm"], row["verdict"]) == (2 / 2**8, 2 / 2**8, "agrees")  # seconds were not tested
    assert row_of(orders, our_model="b", metric="acc")["verdict"] == "same direction, not significant"
    assert row_of(orders, our_model="b", metric="seconds")["about"] == "cost and time"
    counts = count_verdicts(orders, ["our_model"])
    shown = ["our_model", "rows", "agrees", "same direction, not significant", "not run"]
    assert counts[shown].to_numpy().tolist() == [["a", 2, 1, 0, 1], ["b", 2, 0, 1, 1], ["all", 4, 1, 1, 2]]
    assert counts.drop(columns=shown).to_numpy().sum() == 0


def test_runs_without_enough_answers_and_annotations_are_left_aside() -> None:
    runs = own()
    failed = run_of("world", {"deepnote": ("deepnote", "", {"acc": [None] * 3})}, model="misspelt")
    runs |= {"failed": failed, "empty": replace(failed, samples=[])}
    runs["noted"] = changed(runs["world-a"], condition=Condition(annotates="evidence"), llm={"model": "c"})
    used, aside = usable(runs)
    assert list(used) == ["world-a", "world-b"] and list(aside) == ["empty", "failed", "noted"]
    assert aside["failed"] == "0 questions answered, 1 wanted; 3 answers failed"
    claims = pd.DataFrame([claim()])
    assert list(verify_orders(used, claims)["our_model"]) == ["a", "b"]
    assert list(usable(runs, 3)[0]) == ["world-a"]
    assert usable(runs, 9)[0] == {}


def test_without_runs_everything_is_not_run() -> None:
    claims, orders = verify_claims({}), verify_orders({})
    assert len(claims) == len(paper_claims()) and set(claims["verdict"]) == set(orders["verdict"]) == {"not run"}
    assert set(orders["our_model"]) == {""}
    with pytest.raises(ValueError, match="no comparison by f1 was run"):
        forest_figure(orders)


def test_the_orders_of_a_data_set_of_the_papers_are_those_claimed_of_it() -> None:
    claims = pd.DataFrame([claim(), claim(dataset="musique", metric="em")])
    (row,) = verify_orders(two([1, 1], [0, 0]), claims, dataset="hotpotqa").to_dict("records")
    assert (row["metric"], row["claimed"], row["ours"]) == ("acc", 1, 100)


def test_the_figure_has_a_block_a_model_with_a_line_for_every_order_that_was_run() -> None:
    figure = forest_figure(verify_orders(own()), metric="acc")
    titles = [part.get_suptitle() for part in figure.subfigs]
    assert titles == ["DeepNote paper, tested with a", "DeepNote paper, tested with b", ""]
    assert [axes.get_title() for axes in figure.axes] == ["world\nn = 8", "world\nn = 2"]
    for axes in figure.axes:
        assert [text.get_text() for text in axes.get_yticklabels()] == ["DeepNote > Vanilla RAG"]
    (legend,) = figure.subfigs[-1].legends
    assert legend.get_title().get_text() == "Acc.: first - second system (points)"


def test_a_row_of_the_figure_is_a_comparison_and_a_column_a_data_set() -> None:
    row = verify_orders(own(), pd.DataFrame([claim()])).iloc[:1]
    others = ["vanilla", "flare", "react"]
    orders = [row.assign(dataset=name, other=other) for name in ("hotpotqa", "musique") for other in others]
    figure = forest_figure(pd.concat(orders[1:]), metric="acc")  # the first was not run on HotpotQA
    left, right = figure.axes
    assert [axes.get_title().splitlines()[0] for axes in (left, right)] == ["HotpotQA", "MuSiQue"]
    assert [text.get_text() for text in left.get_yticklabels()] == [
        *("DeepNote > Vanilla RAG", "DeepNote > FLARE", "DeepNote > ReAct")
    ]
    drawn = [
        [float(np.ravel(line.get_ydata())[0]) for line in axes.lines if line.get_marker() not in ("none", "None")]
        for axes in figure.axes
    ]
    assert drawn == [[1.5, 2.5], [0.5, 1.5, 2.5]]


def test_a_block_of_the_figure_has_at_most_25_rows_and_4_columns_and_no_label_leaves_the_page() -> None:
    row = verify_orders(own(), pd.DataFrame([claim()])).iloc[:1]
    longest = row.assign(other="deepnote", setting="without=adaptive_retrieval")
    settings = [f"without=adaptive_retrieval+init_note+part {number}" for number in range(27)]
    datasets = ("hotpotqa", "musique", "nq_open", "triviaqa", "world")
    figure = forest_figure(
        pd.concat(longest.assign(other_setting=of, dataset=dataset) for dataset in datasets for of in settings),
        metric="acc",
    )
    assert [len(axes.get_yticks()) for axes in figure.axes] == [14] * 4 + [13] * 4 + [14, 13]
    figure.draw_without_rendering()
    for label in figure.axes[0].get_yticklabels():
        assert label.get_text().startswith("DeepNote: w/o adaptive retrieval >\nw/o adaptive retrieval+init")
        assert label.get_window_extent().x0 >= 0
