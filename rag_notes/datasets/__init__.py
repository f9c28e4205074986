"""Data sets: one function a file format, from its path to a `Dataset`."""

from rag_notes.datasets.corpus import DataError
from rag_notes.datasets.formats import asqa, crud, flashrag, nq_open, plain, realtimeqa, squad, triviaqa, webquestions
from rag_notes.datasets.multi_hop import hotpotqa, ircot, musique, strategyqa, twowikimultihopqa
from rag_notes.extras import make_callable

__all__ = [
    "DataError", "asqa", "crud", "flashrag", "hotpotqa", "ircot", "musique", "nq_open", "plain", "realtimeqa", "squad",
    "strategyqa", "triviaqa", "twowikimultihopqa", "webquestions",
]  # fmt: skip

make_callable(__name__)
