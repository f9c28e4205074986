"""The methods, one async function a file."""

from rag_notes.methods.adaptive_note import adaptive_note
from rag_notes.methods.adaptive_rag import adaptive_rag
from rag_notes.methods.amber import amber
from rag_notes.methods.chain_of_note import chain_of_note
from rag_notes.methods.chain_of_thought import chain_of_thought
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.flare import flare
from rag_notes.methods.ircot import ircot
from rag_notes.methods.no_retrieval import no_retrieval
from rag_notes.methods.rat import rat
from rag_notes.methods.react import react
from rag_notes.methods.recomp import recomp
from rag_notes.methods.retrieve_read import retrieve_read
from rag_notes.methods.self_rag import self_rag
from rag_notes.methods.self_refine import self_refine
from rag_notes.methods.self_rerank import self_rerank
from rag_notes.methods.vanilla import vanilla

__all__ = [
    "adaptive_note",
    "adaptive_rag",
    "amber",
    "chain_of_note",
    "chain_of_thought",
    "deepnote",
    "flare",
    "ircot",
    "no_retrieval",
    "rat",
    "react",
    "recomp",
    "retrieve_read",
    "self_rag",
    "self_refine",
    "self_rerank",
    "vanilla",
]
