"""Marks of an answer (`answer`) and what can be concluded from them (`stats`)."""

from rag_notes.metrics.answer import (
    REJECTION_PHRASES,
    REJECTION_WORDS,
    accuracy,
    accuracy_raw,
    exact_match,
    f1,
    is_rejection,
    normalize_answer,
    read_yes_no,
    score_answer,
    str_em,
    str_hit,
    yes_no_accuracy,
)
from rag_notes.metrics.stats import (
    Interval,
    PairedDifference,
    holm,
    mean_interval,
    paired_difference,
    smallest_detectable,
    wilson,
)

__all__ = [
    "REJECTION_PHRASES",
    "REJECTION_WORDS",
    "Interval",
    "PairedDifference",
    "accuracy",
    "accuracy_raw",
    "exact_match",
    "f1",
    "holm",
    "is_rejection",
    "mean_interval",
    "normalize_answer",
    "paired_difference",
    "read_yes_no",
    "score_answer",
    "smallest_detectable",
    "str_em",
    "str_hit",
    "wilson",
    "yes_no_accuracy",
]
