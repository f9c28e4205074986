"""The studies, one file each that computes their frames."""

from rag_notes.extras import make_callable

make_callable(__name__)
