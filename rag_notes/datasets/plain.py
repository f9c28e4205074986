"""A data set of one's own: JSON Lines whose keys are the fields of `Question`, `Passage` and `Fact`."""

import dataclasses
from difflib import get_close_matches

import msgspec

from rag_notes.datasets.corpus import DataError, PassageRecord, T, decode, read_corpus, read_lines, read_records
from rag_notes.datasets.selection import Entry, build
from rag_notes.types import Dataset, Fact, Name, Passage, Question


def plain(path: str, *, name: Name = "plain", corpus: str | None = None) -> Dataset:
    """Read one's own data; `DataError` on keys that are no fields, and gold ids or titles that the corpus has not."""
    option = f"dataset.{name}.corpus"
    records = [(location, decode_strictly(line, Question, Question, location)) for location, line in read_lines(path)]
    if corpus is not None:
        gold = {key for _, question in records for key in (*question.gold_ids, *question.gold_titles)}
        lines = read_lines(corpus, option)
        passages = (decode_strictly(line, PassageRecord, Passage, location) for location, line in lines)
        names = {key for passage in passages for key in (str(passage.id), passage.title) if key in gold}
        for location, question in records:
            if missing := [key for key in (*question.gold_ids, *question.gold_titles) if key not in names]:
                raise DataError(f"{location}, `gold_ids` and `gold_titles`: {corpus} has no {missing[0]!r}")
    entries = (Entry(question) for _, question in records)
    return build(name, path, entries, () if corpus is None else read_corpus(corpus, option))


def decode_strictly(line: str, kind: type[T], fields: type[Question | Passage], location: str) -> T:
    """Decode a line of JSON. Raises DataError with the nearest field for a key that is none of the fields."""
    names = [field.name for field in dataclasses.fields(fields)]
    for key in decode(line, dict[str, msgspec.Raw], location):
        if key not in names:
            nearest = get_close_matches(key, names, n=1, cutoff=0)[0]
            raise DataError(f"{location}: `{key}` is not a field, did you mean `{nearest}`? ({', '.join(names)})")
    return decode(line, kind, location)


class _Facts(msgspec.Struct):
    id: str
    facts: tuple[Fact, ...]


def load_facts(path: str) -> dict[str, tuple[Fact, ...]]:
    """Read the facts that each question needs, by its id, in the order of its hops; a line has `id` and `facts`."""
    return {record.id: record.facts for _, record in read_records(path, _Facts)}
