"""The methods, one async function a file."""

from rag_notes.listing import make_callable

make_callable(__name__)
