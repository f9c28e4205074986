"""Names and numbers as tables and figures print them."""

import math
import re
from collections.abc import Mapping

ANSWER_METRICS = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit", "reject")
"""The metrics of an answer, in the order of every table and figure; a data set has those of its questions' tasks."""

RETRIEVAL_METRICS = ("all_gold_first", "all_gold_seen", "answer_in_passages_seen")
"""The metrics of the passages of the first search (`_first`) and of all searches (`_seen`)."""

QUEST_METRICS = ("q_r", "t_p", "t_r", "t_f1", "q_gold")
"""The metrics of RAGQuestEval, for answers that it was run on (`rag_notes.studies.quest_eval`)."""

METRIC_LABELS: Mapping[str, str] = {
    **{"em": "EM", "f1": "F1", "acc": "Acc.", "acc_raw": "Acc. (raw)", "yes_no_acc": "Yes/no acc."},
    **{"str_em": "str-EM", "str_hit": "str-hit", "reject": "Reject", "avg": "Avg."},
    **{"all_gold_first": "All gold, first search", "all_gold_seen": "All gold, all searches"},
    **{"answer_in_passages_seen": "Answer found, all searches"},
    **{"q_r": "Q-R", "t_p": "T-P", "t_r": "T-R", "t_f1": "T-F1", "q_gold": "Questions kept"},
}
"""The metrics in the order of every table and figure, as these print them."""

_DATASETS = {
    **{"asqa": "ASQA", "crud": "CRUD", "hotpotqa": "HotpotQA", "musique": "MuSiQue", "nq_open": "NQ"},
    **{"realtimeqa": "RealTimeQA", "squad": "SQuAD", "strategyqa": "StrategyQA", "triviaqa": "TriviaQA"},
    **{"twowikimultihopqa": "2WikiMultiHopQA", "webquestions": "WebQuestions"},
}


def interval_text(mean: float, low: float, high: float, *, scale: float = 100.0, spec: str = ".1f") -> str:
    """A mean with its interval, as `26.5 [14.6, 43.1]`: without interval where `low` is NaN, `–` where `mean` is."""
    if math.isnan(mean):
        return "–"
    interval = "" if math.isnan(low) else f" [{scale * low:{spec}}, {scale * high:{spec}}]"
    return f"{scale * mean:{spec}}{interval}"


def dataset_label(name: str) -> str:
    """The printed name of a data set, or of the data set in a run's label."""
    return re.sub(r"^\w+", lambda match: _DATASETS.get(match[0], match[0]), name)
