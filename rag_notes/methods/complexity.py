"""How complex a question is (Adaptive-RAG): a classifier trained on labels of questions."""

import csv
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rag_notes.methods.adaptive_rag import LABELS
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import InputError, Language

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

# scikit-learn is imported where it is used: it loads slowly, and every run loads this module.


def read_labels(path: str) -> pd.DataFrame:
    """Read a file of labels (CSV with the columns question and label). Raises ValueError naming what is wrong."""
    if not Path(path).is_file():
        raise InputError(
            f"{Path(path).absolute()}: no such file of labels; make one with `rag-notes complexity RUN --out {path}`"
        )
    rows = []
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            if (header := next(reader, [])) != ["question", "label"]:
                raise InputError(f"{path}: expected the columns question,label, found {','.join(header) or 'none'}")
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if len(row) != 2:
                    raise InputError(f"{where}: {len(row)} fields instead of 2; a question with a comma needs quotes")
                if row[1] not in LABELS:
                    raise InputError(f"{where}: label {row[1]!r} is none of {', '.join(LABELS)}")
                rows.append(row)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not CSV in UTF-8 ({error})") from None
    return pd.DataFrame(rows, columns=["question", "label"])


def make_classifier(language: Language = "en") -> "Pipeline":
    """An untrained classifier: words and word pairs of the question, logistic regression with balanced labels."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    tokenizer = Tokenizer(language, stop_words=False)  # who, which and before say much about a question
    words = TfidfVectorizer(tokenizer=tokenizer, token_pattern=None, lowercase=False, ngram_range=(1, 2))
    return make_pipeline(words, LogisticRegression(class_weight="balanced", max_iter=1000))


def classify(question: str, labels: str | None, language: Language = "en") -> str:
    """The label that a classifier trained on the file `labels` gives a question.

    A question that is labelled itself is left out of the training of the classifier that it gets. Raises ValueError
    where the file is missing or malformed, or has fewer than two labels without the question.
    """
    if labels is None:
        raise InputError("the trained classifier needs method.adaptive_rag.labels=FILE (see `rag-notes complexity`)")
    table = read_labels(labels)
    others = table[table["question"] != question]
    if others["label"].nunique() < 2:
        raise InputError(f"{labels}: fewer than two labels occur beside {question!r}; a classifier needs two")
    return str(_trained(tuple(others["question"]), tuple(others["label"]), language).predict([question])[0])


@cache
def _trained(questions: tuple[str, ...], labels: tuple[str, ...], language: Language) -> "Pipeline":
    return make_classifier(language).fit(questions, labels)


def cross_validate(
    labels: pd.DataFrame, language: Language = "en", folds: int = 5
) -> tuple[float, float, pd.DataFrame]:
    """Accuracy of the classifier on questions it was not trained on, that of the most frequent label, and a table.

    Stratified folds with a fixed shuffle; the table counts questions by true label (rows) and predicted label. Raises
    ValueError where a label has fewer questions than there are folds, or fewer than two labels occur.
    """
    from sklearn.metrics import confusion_matrix  # noqa: PLC0415
    from sklearn.model_selection import StratifiedKFold, cross_val_predict  # noqa: PLC0415

    counts = labels["label"].value_counts()
    if len(counts) < 2:
        raise InputError(f"{len(counts)} of {len(LABELS)} labels occur; a classifier needs at least two")
    if counts.min() < folds:
        raise InputError(f"label {counts.idxmin()} has {counts.min()} questions; {folds} folds need as many each")
    folded = StratifiedKFold(folds, shuffle=True, random_state=0)
    predicted = cross_val_predict(make_classifier(language), labels["question"], labels["label"], cv=folded)
    names = [label for label in LABELS if label in counts]
    table = pd.DataFrame(confusion_matrix(labels["label"], predicted, labels=names), index=names, columns=names)
    return float(np.mean(predicted == labels["label"])), float(counts.max() / counts.sum()), table
