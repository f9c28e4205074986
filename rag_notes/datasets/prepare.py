"""From the official files of a corpus to its passages, in the plain corpus format, one passage in memory at a time.

What has been seen is kept in a temporary database on disk (16 bytes a passage and their index, about 40 bytes in all;
32 MB of it in memory), so that memory does not grow with the corpus. An earlier result is replaced when the new one is
whole, and the same files give the same bytes.
"""

import bz2
import hashlib
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import sentencex
from tqdm import tqdm

from rag_notes.datasets._build import Paragraph, folder_texts, name_of
from rag_notes.datasets._read import DataError, Record, lines_of, read_json_list, read_jsonl, records_of
from rag_notes.datasets.corpus_file import dpr_passages, passage_line
from rag_notes.datasets.multihop import wiki_paragraphs
from rag_notes.files import buffered, replacing
from rag_notes.types import Passage, Positive


class Prepared(NamedTuple):
    """What was written: the file, its passages, what was left out (repetitions, empty texts), its SHA-256.

    The checksum is also that by which an index knows its corpus; `expected` is the size of the papers' corpus.
    """

    path: Path
    passages: int
    repeated: int
    empty: int
    sha256: str
    expected: int | None


def hotpotqa_pool(out: str, paths: list[str], *, expected: int | None = None) -> Prepared:
    """Pool the distinct paragraphs of HotpotQA's question files (Yang et al., 2018)."""
    return _wiki_pool(out, paths, "", expected)


def twowikimultihopqa_pool(out: str, paths: list[str], *, expected: int | None = None) -> Prepared:
    """Pool the distinct paragraphs of 2WikiMultiHopQA's question files (Ho et al., 2020)."""
    return _wiki_pool(out, paths, " ", expected)


def _wiki_pool(out: str, paths: Sequence[str], glue: str, expected: int | None) -> Prepared:
    paragraphs = (
        paragraph
        for path in paths
        for record in read_json_list(path, "corpus.paths")
        for paragraph in wiki_paragraphs(record, glue=glue)
    )
    counts: Counter[str] = Counter()
    return _write(out, _distinct(paragraphs, counts), counts, expected)


def musique_pool(out: str, paths: list[str], *, expected: int | None = None) -> Prepared:
    """Pool the distinct paragraphs of MuSiQue's question files (Trivedi et al., 2022)."""
    paragraphs = (
        Paragraph(item.title("title"), item.title("paragraph_text"))
        for path in paths
        for record in read_jsonl(path, "corpus.paths")
        for item in record.objects("paragraphs")
    )
    counts: Counter[str] = Counter()
    return _write(out, _distinct(paragraphs, counts), counts, expected)


def hotpotqa_abstracts(out: str, path: str, *, expected: int | None = None) -> Prepared:
    """Take the introductory paragraphs of Wikipedia as HotpotQA released them (Yang et al., 2018, Appendix).

    `path` is a .tar.bz2 of .bz2 files of JSON Lines with `id`, `title` and `text`, a string or a list of sentences
    that begin with their space. Raises `DataError` on an id that occurs twice.
    """
    counts: Counter[str] = Counter()
    return _write(out, _abstracts(path, counts), counts, expected)


def _abstracts(path: str, counts: Counter[str]) -> Iterator[Passage]:
    seen = _Seen()
    for record in _tar_records(path):
        identifier, title = record.identifier("id"), record.title("title")
        if not seen.add(identifier):
            raise record.error("id", f"the passage id {identifier!r} is already used")
        text = record.title("text") if isinstance(record.values.get("text"), str) else _joined(record)
        if not text.strip():
            counts["empty"] += 1
            continue
        yield Passage(identifier, title, text.strip())


def _joined(record: Record) -> str:
    sentences = record.items("text")
    for index, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise record.error(f"text[{index}]", "expected a string")
    return "".join(sentences)


def _tar_records(path: str) -> Iterator[Record]:
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{Path(path).absolute()}: no such file; get it with `rag-notes download` or set corpus.path=PATH"
        )
    try:
        with tarfile.open(path, "r|bz2") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined] # it would remember all of them
                file = archive.extractfile(member) if member.name.endswith(".bz2") else None
                if file is not None:
                    place = f"{path}, {member.name}"
                    yield from records_of(lines_of(buffered(bz2.BZ2File(file)), place), place)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path}: cannot be read on ({error}); get the file anew") from None


def dpr(out: str, path: str, *, expected: int | None = None) -> Prepared:
    """Take the passages of 100 words of DPR's psgs_w100.tsv or .tsv.gz (Karpukhin et al., 2020), numbered from 1 on."""
    return _write(out, _numbered(path), Counter(), expected)


def _numbered(path: str) -> Iterator[Passage]:
    before = 0
    for place, passage in dpr_passages(path, "corpus.path"):
        # The official file counts its passages, which saves remembering 21 million ids.
        if not (passage.id.isdecimal() and len(passage.id) < 20 and int(passage.id) > before):
            raise DataError(f"{place}, field 'id': expected a number above {before}, found {passage.id!r}")
        before = int(passage.id)
        yield passage


def crud_news(out: str, path: str, *, chunk_size: Positive = 512, expected: int | None = None) -> Prepared:
    """Cut the news of CRUD-RAG's folder (Lyu et al., 2024), one a line, into chunks of whole sentences.

    A chunk has at most `chunk_size` characters; only a longer sentence is cut within. Adaptive-Note names a size of
    512 and no unit; CRUD-RAG's own code counts tokens of GPT-3.5, of which a Chinese character takes one or two.
    """
    texts = (
        Paragraph("", chunk) for _, text in folder_texts(path, "corpus.path") for chunk in chunks(text, chunk_size)
    )
    counts: Counter[str] = Counter()
    return _write(out, _distinct(texts, counts), counts, expected)


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


def _distinct(paragraphs: Iterable[Paragraph], counts: Counter[str]) -> Iterator[Passage]:
    """Name the paragraphs that have text and did not occur before; what is left out is counted."""
    seen = _Seen()
    for title, text, _ in paragraphs:
        if not text:
            counts["empty"] += 1
        elif not seen.add(f"{title}\0{text}"):
            counts["repeated"] += 1
        else:
            yield Passage(name_of(title, text, alone=False), title, text)


class _Seen:
    """A set on disk."""

    def __init__(self) -> None:
        # An empty name is a database of its own in the temporary folder, which vanishes with the process.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA cache_size = -32000")  # in KB
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, item: str) -> bool:
        """Add an item; False if it was there."""
        digest = hashlib.blake2b(item.encode(), digest_size=16).digest()
        try:
            return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1
        except sqlite3.OperationalError as error:
            raise OSError(f"the temporary folder (TMPDIR) cannot hold 40 bytes a passage: {error}") from None


def _write(out: str, passages: Iterable[Passage], counts: Counter[str], expected: int | None) -> Prepared:
    path, digest, number = Path(out), hashlib.sha256(), 0
    with replacing(path) as file:
        for passage in tqdm(passages, desc=path.parent.name, unit=" passages", disable=None):
            line = passage_line(passage).encode()
            digest.update(line)
            file.write(line)
            number += 1
        if not number:
            raise DataError(f"{out}: not written, the files hold no passage")
    return Prepared(path, number, counts["repeated"], counts["empty"], digest.hexdigest(), expected)
