"""Encoders without a model, for tests: a vector is the sum of what a hash makes of the words of a text."""

import hashlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_notes.retrieval.encoders import Encoded, Vectors
from rag_notes.retrieval.vectors import encode_corpus
from rag_notes.types import Passage


class WordEncoder:
    """Equal words make texts similar; batches and requests are counted, `limit` cuts texts after so many words."""

    def __init__(self, dimensions: int = 24, *, model: str = "words", limit: int = 1000, instruction: str = "") -> None:
        self.dimensions, self.model, self.limit, self.instruction = dimensions, model, limit, instruction
        self.batches: list[list[str]] = []

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return np.stack([self._vector(self.instruction + query) for query in queries])

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        self.batches.append(list(texts))
        truncated = sum(len(re.findall(r"\w+", text)) > self.limit for text in texts)
        return Encoded(np.stack([self._vector(text) for text in texts]), truncated)

    def describe(self) -> dict[str, Any]:
        return {
            "encoder": "words",
            "model": self.model,
            "dimensions": self.dimensions,
            "query_instruction": self.instruction,
        }

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(self.dimensions, np.float32)
        for word in re.findall(r"\w+", text.lower())[: self.limit]:
            seed = int.from_bytes(hashlib.sha256(f"{self.model} {word}".encode()).digest()[:8], "big")
            vector += np.random.default_rng(seed).standard_normal(self.dimensions).astype(np.float32)
        return np.asarray(vector / (np.linalg.norm(vector) or 1), np.float32)


class DyingEncoder(WordEncoder):
    """Kills its process with SIGKILL instead of encoding the batch after `alive`."""

    def __init__(self, alive: int) -> None:
        super().__init__()
        self.alive = alive

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        if len(self.batches) == self.alive:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_passages(texts)


def corpus(size: int) -> list[Passage]:
    """Passages of 1 to 12 words of few, so that many texts are equal, with ids in no order."""
    rng = np.random.default_rng(size)
    names = rng.permutation(10 * size)[:size].tolist()
    words = np.array(["heron", "kingfisher", "oak", "coffee", "canal", "glaze", "kiln", "river", "acorn", "milk"])
    lengths = rng.integers(1, 13, size).tolist()
    return [
        Passage(f"d{name}", str(rng.choice(words)), " ".join(rng.choice(words, length)))
        for name, length in zip(names, lengths, strict=True)
    ]


if __name__ == "__main__":  # encode until killed: FOLDER, passages, then batches, or "rename"
    folder, size, when = sys.argv[1:]
    if when == "rename":
        replace = Path.replace

        def dying(self: Path, target: Path) -> Path:
            if target.name == "vectors.npy":
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(self, target)

        Path.replace = dying  # type: ignore[assignment,method-assign]
    encoder = WordEncoder() if when == "rename" else DyingEncoder(int(when))
    encode_corpus(corpus(int(size)), encoder, folder, batch_size=4, progress=False)
