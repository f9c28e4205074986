"""Generate the data set `world`: questions on an invented world, its passages, and the facts that answer the questions.

`python data/world/generate.py` writes questions.jsonl, passages.jsonl and facts.jsonl beside this file again, byte for
byte. `--seed 11 --out data/world11` writes another world, `--distractors` adds passages of which no question is asked.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from questions import SCHEDULE, FactQuestion, region_questions
from region import PASSAGES, REGIONS, region

from rag_notes.datasets.corpus import passage_line
from rag_notes.types import Passage


def generate(out: Path, *, questions: int = 300, seed: int = 7, distractors: int = 0) -> None:
    """Write so many questions of the world of a seed into the folder `out`, with all passages of their regions.

    The world of a seed is a row of regions that never mention one another; the questions are on the first of them, and
    `distractors` adds so many passages of the regions behind these. So a smaller world is the beginning of a larger
    one. Raises ValueError where a world has fewer questions or passages.
    """
    items, regions = world_questions(seed, questions)
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "questions.jsonl", (_json(asdict(item.question)) for item in items))
    _write(out / "facts.jsonl", (_json({"id": i.question.id, "facts": list(map(asdict, i.facts))}) for i in items))
    _write(out / "passages.jsonl", map(passage_line, world_passages(seed, regions * PASSAGES + distractors)))


def world_questions(seed: int, number: int) -> tuple[list[FactQuestion], int]:
    """The first questions of a world with their facts, and how many regions they are on."""
    items: list[FactQuestion] = []
    for index in range(min(REGIONS, number)):
        items += region_questions(seed, index, region(seed, index))
        if len(items) >= number:
            return items[:number], index + 1
    raise ValueError(f"a world has 1 to about {REGIONS * len(SCHEDULE)} questions, not {number}")


def world_passages(seed: int, number: int) -> Iterator[Passage]:
    """The first passages of a world, one region in memory at a time."""
    if number > REGIONS * PASSAGES:
        raise ValueError(f"a world has up to {REGIONS * PASSAGES} passages, not {number}")
    return islice(chain.from_iterable(region(seed, index).passages for index in count()), number)


def _json(record: dict[str, Any]) -> str:
    """The record as one line, without the fields that are empty."""
    fields = {name: value for name, value in record.items() if value or name == "facts"}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--distractors", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    generate(**vars(parser.parse_args()))
