"""Data sets: one function a file format, from its path to a `Dataset`, and one that generates one."""

from rag_notes.datasets._read import DataError
from rag_notes.datasets.cloze import cloze
from rag_notes.datasets.long_form import asqa, crud
from rag_notes.datasets.multihop import hotpotqa, musique, strategyqa, twowikimultihopqa
from rag_notes.datasets.plain import plain
from rag_notes.datasets.releases import flashrag, ircot
from rag_notes.datasets.single_hop import nq_open, realtimeqa, squad, triviaqa, webquestions
from rag_notes.datasets.world import world
from rag_notes.listing import make_callable

__all__ = [
    "DataError",
    "asqa",
    "cloze",
    "crud",
    "flashrag",
    "hotpotqa",
    "ircot",
    "musique",
    "nq_open",
    "plain",
    "realtimeqa",
    "squad",
    "strategyqa",
    "triviaqa",
    "twowikimultihopqa",
    "webquestions",
    "world",
]

make_callable(__name__)
