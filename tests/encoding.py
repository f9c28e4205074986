"""Encoders without a model, for tests: a vector is the sum of what a hash makes of the words of a text."""

import hashlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rag_notes.retrieval import dense
from rag_notes.retrieval.encoders import Vectors
from rag_notes.types import Passage


@dataclass
class WordEncoder:
    """Equal words make texts similar. After `limit` batches the process is killed; `batches` has what was encoded.

    With `normalize=False` longer texts have longer vectors.
    """

    model: str = "words"
    instruction: str = ""
    normalize: bool = True
    limit: int = 10**9
    batches: list[list[str]] = field(default_factory=list)

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return np.stack([self._vector(self.instruction + query) for query in queries])

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        if len(self.batches) == self.limit:
            os.kill(os.getpid(), signal.SIGKILL)
        self.batches.append(list(texts))
        return np.stack([self._vector(text) for text in texts])

    def describe(self) -> dict[str, Any]:
        return {"model": self.model, "normalize": self.normalize, "query_instruction": self.instruction}

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(24, np.float32)
        for word in re.findall(r"\w+", text.lower()):
            seed = int.from_bytes(hashlib.sha256(f"{self.model} {word}".encode()).digest()[:8], "big")
            vector += np.random.default_rng(seed).standard_normal(24).astype(np.float32)
        length = (np.linalg.norm(vector) or 1) / (1 if self.normalize else len(text.split()) / 2)
        return np.asarray(vector / length, np.float32)


def corpus(size: int) -> list[Passage]:
    """Passages of 1 to 12 words of few, so that many texts are equal, with ids in no order."""
    rng = np.random.default_rng(size)
    ids = rng.permutation(10 * size)[:size].tolist()
    words = np.array(["heron", "kingfisher", "oak", "coffee", "canal", "glaze", "kiln", "river", "acorn", "milk"])
    lengths = rng.integers(1, 13, size).tolist()
    return [
        Passage(f"d{number}", str(rng.choice(words)), " ".join(rng.choice(words, length)))
        for number, length in zip(ids, lengths, strict=True)
    ]


if __name__ == "__main__":  # encode until killed: FOLDER, passages, batches
    folder, size, batches = sys.argv[1:]
    dense._CHUNK = 20
    dense.DenseRetriever(corpus(int(size)), encoder=WordEncoder(limit=int(batches)), batch_size=4, cache=folder)
