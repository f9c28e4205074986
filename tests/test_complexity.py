"""Silver labels, their file, and the classifier trained on them, against hand-made runs and an independent count."""

import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from rag_notes.methods.complexity import classify, cross_validate, read_labels
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.running.records import Run, Sample
from rag_notes.running.silver_labels import silver_labels
from tests.made import changed, make_info, make_sample

METHODS = ("no_retrieval", "vanilla", "ircot")


def sample(method: str, question: str, right: float, error: str | None = None) -> Sample:
    return make_sample(method, question, {} if error else {"acc": right, "em": 0.0}, question=question, error=error)


def run(outcomes: dict[str, str], methods: tuple[str, ...] = METHODS, dataset: str = "made") -> Run:
    """A run by question: for each method in turn 1 (right), 0 (wrong) or x (failed)."""
    samples = [
        sample(method, question, float(mark == "1"), "no answer" if mark == "x" else None)
        for question, marks in outcomes.items()
        for method, mark in zip(methods, marks, strict=True)
    ]
    return Run(make_info(dataset, methods), samples)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


# Silver labels


def test_the_cheapest_strategy_that_answers_is_the_label_and_what_has_none_is_counted() -> None:
    first = run({"all": "111", "one search": "011", "many": "001", "odd": "010", "none": "000", "heart": "100"})
    second = run({"failed": "x01", "lost": "xx0"}, dataset="other")
    labels, unanswered = silver_labels([first, second])
    assert list(labels.columns) == ["question", "label"]
    assert dict(zip(labels["question"], labels["label"], strict=True)) == {
        "all": "A",
        "one search": "B",
        "many": "C",
        "odd": "B",
        "heart": "A",
        "failed": "C",
    }
    assert unanswered == 2
    assert len(labels) == 6


def test_other_methods_of_the_run_do_not_count() -> None:
    methods = ("deepnote", *METHODS)
    labels, unanswered = silver_labels([run({"q": "1001", "r": "1000"}, methods)])
    assert labels.to_dict("records") == [{"question": "q", "label": "C"}]
    assert unanswered == 1


def test_an_answer_that_is_only_partly_right_does_not_count() -> None:
    made = run({"q": "001"})
    made = changed(made, 1, metrics={"str_hit": 0.5, "str_em": 1.0})
    assert silver_labels([made])[0]["label"].tolist() == ["C"]
    made = changed(made, 1, metrics={"yes_no_acc": 1.0})
    assert silver_labels([made])[0]["label"].tolist() == ["B"]


def test_missing_methods_are_named_with_the_run() -> None:
    made = run({"q": "11"}, ("vanilla", "deepnote"), dataset="musique")
    with pytest.raises(ValueError, match=r"musique lacks no_retrieval, ircot; .*method=\[no_retrieval,vanilla,ircot\]"):
        silver_labels([run({"q": "111"}), made])


def test_nothing_gives_no_labels() -> None:
    labels, unanswered = silver_labels([run({"q": "000"})])
    assert (list(labels.columns), len(labels), unanswered) == (["question", "label"], 0, 1)


def test_what_no_strategy_answers_gets_the_label_of_its_data_set() -> None:
    """Adaptive-RAG, section 3.2: B in a single-hop data set, C in a multi-hop one."""
    runs = [run({name: "000", f"{name}, answered": "100"}, dataset=name) for name in ("squad", "musique", "strategyqa")]
    labels, left_out = silver_labels(runs)
    assert dict(zip(labels["question"], labels["label"], strict=True)) == {
        "squad": "B",
        "musique": "C",
        **{f"{name}, answered": "A" for name in ("squad", "musique", "strategyqa")},
    }
    assert left_out == 1


# The file of labels


def test_labels_are_read_as_they_are_written(tmp_path: Path) -> None:
    questions = ['Who, "really", built it?', "NA", "谁建的？", "two\nlines", ""]
    table = pd.DataFrame({"question": questions, "label": ["A", "B", "C", "A", "B"]})
    path = tmp_path / "labels.csv"
    for encoding in ("utf-8", "utf-8-sig"):  # as spreadsheets write it
        table.to_csv(path, index=False, encoding=encoding)
        assert read_labels(str(path)).equals(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the columns question,label, found none"),
        ("question;label\nQ?;A\n", "expected the columns question,label, found question;label"),
        ("label,question\nA,Q?\n", "found label,question"),
        ("question,label\nQ?,A\nR?,D\n", "line 3: label 'D' is none of A, B, C"),
        ("question,label\nQ?,\n", "line 2: label '' is none of A, B, C"),
        ("question,label\nQ?,a\n", "line 2: label 'a' is none of A, B, C"),
        ("question,label\nWho, then?,A\nQ?,B\n", "line 2: 3 fields instead of 2; a question with a comma needs quotes"),
        ("question,label\nQ?,A\n\nR?,B\n", "line 3: 0 fields instead of 2"),
        ('question,label\n"two\nlines",A\nR?,D\n', "line 4: label 'D'"),
        ('question,label\n"Q?,A\n', "not CSV in UTF-8"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", text)
    with pytest.raises(ValueError, match=rf"^{re.escape(path)}.*{re.escape(message)}"):
        read_labels(path)


def test_a_file_that_is_missing_or_in_another_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.csv: no such file of labels; make one with `rag-notes complexity RUN"):
        read_labels(str(tmp_path / "none.csv"))
    (tmp_path / "labels.csv").write_bytes("question,label\nGéricault?,A\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"labels\.csv: not CSV in UTF-8"):
        read_labels(str(tmp_path / "labels.csv"))


# The classifier

COLOURS = [f"What is the colour of {thing}?" for thing in ("grass", "milk", "blood", "coal", "snow", "gold")]
WRITERS = [f"Who wrote {work}?" for work in ("Emma", "Ulysses", "Dracula", "Carmen", "Faust", "Kim")]
FILMS = [f"Was the director of {film} born before its star?" for film in ("Alien", "Jaws", "Heat", "Tron", "Ran", "M")]


def labelled(path: Path, rows: dict[str, str]) -> str:
    pd.DataFrame({"question": list(rows), "label": list(rows.values())}).to_csv(path, index=False)
    return str(path)


def test_a_question_is_left_out_of_the_training_of_its_own_classifier(tmp_path: Path) -> None:
    rows = dict.fromkeys(COLOURS, "A") | dict.fromkeys(WRITERS, "B")
    odd = COLOURS[0]
    wrong = labelled(tmp_path / "wrong.csv", rows | {odd: "C"})  # the only C: whoever trains on it learns it by heart
    vectors = CountVectorizer().fit([*rows])
    cheating = LogisticRegression(class_weight="balanced").fit(
        vectors.transform([*rows]), [*(rows | {odd: "C"}).values()]
    )
    assert cheating.predict(vectors.transform([odd])) == ["C"]
    assert classify(odd, wrong) == "A"
    assert classify("What is the colour of tar?", wrong) in {"A", "C"}
    assert [classify(question, wrong) for question in [*COLOURS[1:], *WRITERS]].count("C") < len(COLOURS)


def test_questions_are_told_apart_by_their_words_in_either_language(tmp_path: Path) -> None:
    labels = labelled(
        tmp_path / "en.csv", dict.fromkeys(COLOURS, "A") | dict.fromkeys(WRITERS, "B") | dict.fromkeys(FILMS, "C")
    )
    assert classify("What is the colour of ink?", labels) == "A"
    assert classify("Who wrote Candide?", labels) == "B"
    assert classify("Was the director of Jaws II born before its star?", labels) == "C"
    rows = {f"{thing}是什么颜色？": "A" for thing in ("草", "牛奶", "雪")} | {
        f"谁写了{work}？": "B" for work in ("红楼梦", "家", "子夜")
    }
    assert [classify(q, labelled(tmp_path / "zh.csv", rows), "zh") for q in ("煤是什么颜色？", "谁写了茶馆？")] == [
        "A",
        "B",
    ]


def test_a_file_written_anew_is_read_anew(tmp_path: Path) -> None:
    rows = dict.fromkeys(COLOURS, "A") | dict.fromkeys(WRITERS, "B")
    path = labelled(tmp_path / "labels.csv", rows)
    assert classify("Who wrote Candide?", path) == "B"
    labelled(tmp_path / "labels.csv", {question: {"A": "B", "B": "A"}[label] for question, label in rows.items()})
    assert classify("Who wrote Candide?", path) == "A"


def test_a_classifier_needs_two_labels_beside_the_question(tmp_path: Path) -> None:
    path = labelled(tmp_path / "labels.csv", dict.fromkeys(COLOURS, "A") | {WRITERS[0]: "B"})
    assert classify(COLOURS[0], path) in {"A", "B"}
    with pytest.raises(ValueError, match=r"labels\.csv: fewer than two labels occur beside 'Who wrote Emma\?'"):
        classify(WRITERS[0], path)
    with pytest.raises(ValueError, match="fewer than two labels occur"):
        classify("New?", write(tmp_path / "empty.csv", "question,label\n"))
    with pytest.raises(ValueError, match=r"needs method\.adaptive_rag\.labels=FILE"):
        classify("New?", None)


def independent_tfidf(train: list[str], test: list[str]) -> tuple[Any, Any]:
    """Words and word pairs by tf-idf with smoothed idf and unit length, written out."""
    tokenizer = Tokenizer("en", stop_words=False)

    def terms(text: str) -> Counter[str]:
        words = tokenizer(text)
        return Counter([*words, *(f"{one} {two}" for one, two in pairwise(words))])

    counted = [terms(text) for text in train]
    names = sorted({term for counts in counted for term in counts})
    df = {name: sum(name in counts for counts in counted) for name in names}
    idf = {name: math.log((1 + len(train)) / (1 + df[name])) + 1 for name in names}

    def matrix(rows: list[Counter[str]]) -> Any:
        values = np.array([[counts[name] * idf[name] for name in names] for counts in rows])
        return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)

    return matrix(counted), matrix([terms(text) for text in test])


def test_cross_validation_trains_on_the_other_folds_alone() -> None:
    texts = [
        *COLOURS,
        *WRITERS,
        *FILMS,
        *(f"What is the author of {n} called?" for n in ("Emma", "Kim", "She", "Nana", "Lolita")),
    ]
    names = ["A"] * 6 + ["B"] * 6 + ["C"] * 6 + ["B", "C", "A", "B", "C"]
    right, confusion = 0, Counter[tuple[str, str]]()
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(texts, names):
        seen, unseen = independent_tfidf([texts[i] for i in train], [texts[i] for i in test])
        model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(seen, [names[i] for i in train])
        for index, predicted in zip(test, model.predict(unseen), strict=True):
            right += predicted == names[index]
            confusion[names[index], predicted] += 1
    accuracy, most_frequent, table = cross_validate(pd.DataFrame({"question": texts, "label": names}))
    assert accuracy == pytest.approx(right / 23)
    assert 0.4 < accuracy < 1
    assert most_frequent == pytest.approx(8 / 23)
    assert (list(table.index), list(table.columns)) == (["A", "B", "C"], ["A", "B", "C"])
    assert {
        (true, said): table.loc[true, said] for true in "ABC" for said in "ABC" if table.loc[true, said]
    } == confusion


def test_cross_validation_needs_as_many_questions_of_each_label_as_folds() -> None:
    table = pd.DataFrame({"question": [*COLOURS, *WRITERS[:4]], "label": ["A"] * 6 + ["C"] * 4})
    with pytest.raises(ValueError, match="label C has 4 questions; 5 folds need as many each"):
        cross_validate(table)
    accuracy, most_frequent, counted = cross_validate(table, folds=4)
    assert (accuracy, most_frequent, counted.to_numpy().tolist()) == (1.0, 0.6, [[6, 0], [0, 4]])
    assert list(counted.columns) == ["A", "C"]
    for few in (table[:6], table[:0]):
        with pytest.raises(ValueError, match="of 3 labels occur; a classifier needs at least two"):
            cross_validate(few)
