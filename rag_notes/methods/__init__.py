"""The methods, one async function a file."""

from rag_notes.extras import make_callable

make_callable(__name__)
