"""Small corpora, in English, Chinese and drawn at random, files of them, and an independent BM25 to rank them by."""

import json
import math
import random
import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.types import Hit, Passage

BIRDS = (
    Passage("p1", "Heron", "The heron stands in shallow water and waits for fish."),
    Passage("p2", "Kingfisher", "A kingfisher dives into the water; the fish is swallowed head first."),
    Passage("p3", "Oak", "Oaks drop acorns in autumn."),
    Passage("p4", "Café", "Coffee is served with milk."),
)
CHINESE = (
    Passage("z1", "青瓷", "青瓷在窑炉中烧成，釉色青绿。"),
    Passage("z2", "京杭大运河", "大运河连接北京与杭州，全长约1794公里。"),
    Passage("z3", "机器学习", "研究人员用Transformers模型处理天文图像。"),
)


def write(path: Path, content: Any) -> str:
    """A list as a JSON list or as lines, by the file's name; bytes as they are."""
    if isinstance(content, list) and path.suffix == ".jsonl":
        content = "\n".join(json.dumps(record, ensure_ascii=False) for record in content)
    content = content if isinstance(content, (bytes, str)) else json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def pack(folder: Path, kind: str, files: dict[str, bytes]) -> str:
    """An archive beside the folder, of a kind that shutil knows."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, content)
    return shutil.make_archive(str(folder), kind, folder)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def random_corpus(size: int, seed: int) -> list[Passage]:
    """Passages over few words, so that many scores tie, with ids in no order."""
    rng = random.Random(seed)
    names = rng.sample(range(10 * size), size)
    return [
        Passage(f"d{name}", rng.choice("vwxyz"), " ".join(rng.choices("vwxyz", k=rng.randint(0, 4)))) for name in names
    ]


def build(corpus: Sequence[Passage], **settings: Any) -> BM25:
    return bm25(corpus, cache=None, **settings)


def plain_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


# The length that each value of Lucene's byte stands for (org.apache.lucene.util.SmallFloat, byte4ToInt).
_DECODED = [*range(8), *((8 + byte % 8) << (byte // 8 - 1) for byte in range(8, 256 - 24))]
_LENGTHS = [*range(24), *(24 + length for length in _DECODED)]


def plain_bm25(documents: list[list[str]], query: list[str], k1: float = 1.2, b: float = 0.75) -> list[float]:
    """Lucene's BM25 straight from its formula, in double precision."""
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        length = _LENGTHS[bisect_right(_LENGTHS, len(document)) - 1]
        for term in query:
            frequency = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            if counts[term]:
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * length / mean))
        scores.append(score)
    return scores
