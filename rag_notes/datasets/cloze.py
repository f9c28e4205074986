"""Questions made from a corpus alone, to compare retrievers where no data set tells the gold passages."""

import hashlib
from dataclasses import replace

import sentencex

from rag_notes.datasets._build import Entry, build, read_corpus
from rag_notes.types import Dataset, Language, Name, NonNegative, Passage, Positive, Question


def cloze(
    path: str,
    *,
    name: Name = "cloze",
    language: Language = "en",
    shortest: Positive = 20,
    seed: NonNegative = 0,
) -> Dataset:
    """Take a sentence out of each passage of a corpus: it is the question, and what is left of the passage its gold.

    This is the inverse cloze task (Lee et al., Latent Retrieval for Weakly Supervised Open Domain Question Answering,
    2019, section 4), here as a test, with every sentence taken out. It tells retrievers apart by whether they find what
    a sentence belongs to, which is not yet what answers a question; it has no answers. A sentence has at least
    `shortest` characters, and `seed` draws it; a passage without such a one, or of one sentence, stays as it is and
    has no question. `path` is a corpus as every data set takes it (.jsonl, .tsv, .txt or a folder); it is held in
    memory. Raises `DataError` on another ending, a malformed line and an id that occurs twice.
    """
    passages, entries = [], []
    for passage in read_corpus(path, f"dataset.{name}.path"):
        question, rest = _taken_out(passage, language, shortest, seed)
        passages.append(rest)
        if question:
            made = Question(passage.id, question, gold_ids=(passage.id,), type="cloze", language=language)
            entries.append(Entry(f"{path}, passage {len(passages)}", made))
    return build(name, path, entries, passages)


def _taken_out(passage: Passage, language: Language, shortest: int, seed: int) -> tuple[str, Passage]:
    """A sentence and the passage without it; no sentence and the passage as it is where none can be taken."""
    sentences = list(sentencex.segment(language, passage.text))
    long_enough = [number for number, sentence in enumerate(sentences) if len(sentence.strip()) >= shortest]
    if not long_enough:
        return "", passage
    draw = int(hashlib.sha256(f"{seed}\0{passage.id}".encode()).hexdigest(), 16)
    sentence = sentences.pop(long_enough[draw % len(long_enough)])
    rest = "".join(sentences).strip()
    return (sentence.strip(), replace(passage, text=rest)) if rest else ("", passage)
