"""From the official files of a corpus to its passages, in the plain corpus format, one passage in memory at a time."""

import bz2
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import sentencex
from tqdm import tqdm

from rag_notes.datasets import corpus
from rag_notes.datasets.multi_hop import Support, wiki_paragraphs
from rag_notes.files import checksum_of, part_of, replacing
from rag_notes.types import Passage, Positive

Layout = Literal["hotpotqa", "twowikimultihopqa", "musique"]


class _Contexts(msgspec.Struct):  # of HotpotQA and 2WikiMultiHopQA
    context: list[tuple[corpus.Text, list[str]]]


class _Supports(msgspec.Struct):  # of MuSiQue
    paragraphs: list[Support]


def question_paragraphs(out: str, paths: list[str], *, layout: Layout, expected: int | None = None) -> str:
    """Pool the distinct paragraphs of the question files of a data set, also of those without answers."""
    return _write(out, (paragraph for path in paths for paragraph in _paragraphs(path, layout)), expected)


def _paragraphs(path: str, layout: Layout) -> Iterator[Passage]:
    if layout == "musique":
        for _, record in corpus.read_records(path, _Supports, "corpus.paths"):
            yield from (Passage("", paragraph.title, paragraph.paragraph_text) for paragraph in record.paragraphs)
    else:
        for _, contexts in corpus.read_records(path, _Contexts, "corpus.paths"):
            yield from wiki_paragraphs(contexts.context, "" if layout == "hotpotqa" else " ")


class _Abstract(msgspec.Struct):
    id: corpus.Id
    title: str
    text: str | list[str]


def hotpotqa_abstracts(out: str, path: str, *, expected: int | None = None) -> str:
    """Take the introductory paragraphs of Wikipedia as HotpotQA released them, a .tar.bz2 (Yang et al., 2018)."""
    return _write(out, _abstracts(path), expected)


def _abstracts(path: str) -> Iterator[Passage]:
    try:
        with tarfile.open(corpus.existing(path, "corpus.path"), "r|bz2") as archive:
            for member in archive:
                if member.name.endswith(".bz2") and (file := archive.extractfile(member)):
                    for location, line in corpus.locate_lines(bz2.BZ2File(file), f"{path}, {member.name}"):
                        record = corpus.decode(line, _Abstract, location)
                        yield Passage(str(record.id), record.title, "".join(record.text).strip())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise corpus.DataError(f"{path}: cannot be read on ({error}); get the file anew") from None


def dpr(out: str, path: str, *, expected: int | None = None) -> str:
    """Take the passages of 100 words of DPR's psgs_w100.tsv or .tsv.gz (Karpukhin et al., 2020)."""
    return _write(out, iter(corpus.CorpusFile(path, "corpus.path")), expected)  # whose length nobody has to count


def crud_news(out: str, path: str, *, chunk_size: Positive = 512, expected: int | None = None) -> str:
    """Cut the news of CRUD-RAG's folder (Lyu et al., 2024), one a line, into chunks of whole sentences.

    A chunk has at most `chunk_size` characters; only a longer sentence is cut within. Adaptive-Note names a size of
    512 and no unit; CRUD-RAG's own code counts tokens of GPT-3.5, of which a Chinese character takes one or two.
    """
    texts = corpus.read_texts(path, "corpus.path")
    return _write(out, (Passage("", "", chunk) for text in texts for chunk in chunks(text, chunk_size)), expected)


def chunks(text: str, size: int) -> Iterator[str]:
    """Cut a Chinese text into pieces of at most `size` characters that end with a sentence where one fits."""
    chunk = ""
    for sentence in sentencex.segment("zh", text):
        if len(chunk) + len(sentence.rstrip()) > size and chunk:
            yield chunk.strip()
            chunk = ""
        chunk += sentence
        while len(chunk.rstrip()) > size:
            yield chunk[:size].strip()
            chunk = chunk[size:]
    if chunk.strip():
        yield chunk.strip()


def _write(out: str, passages: Iterable[Passage], expected: int | None) -> str:
    """Write the passages that have text, and of those without an id each once, named by its content; say how many."""
    path, left_out, names = Path(out), Counter[str](), set[str]()
    with replacing(path) as file:
        for passage in tqdm(passages, desc=path.parent.name, unit=" passages", disable=None):
            name = passage.id or corpus.passage_name(passage.title, passage.text, unique=False)
            if not passage.text or name in names:
                left_out["repeated" if passage.text else "empty"] += 1
                continue
            if not passage.id:
                names.add(name)
            file.write(corpus.passage_line(Passage(name, passage.title, passage.text)).encode())
        file.flush()
        written = corpus.check_ids(corpus.CorpusFile(str(part_of(path)), "corpus.out"))
        if not written:
            raise corpus.DataError(f"{out}: not written, the files hold no passage")
    papers = "" if expected is None else f"; the papers count {expected:,}"
    counts = f"left out: {left_out['repeated']:,} repeated, {left_out['empty']:,} empty{papers}"
    return f"{path}: {written:,} passages, sha256 {checksum_of(path)}; {counts}"
