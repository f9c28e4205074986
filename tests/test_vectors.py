"""The vector file: the same bytes whatever happened on the way, and never another's vectors."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rag_notes.retrieval.base import corpus_checksum
from rag_notes.retrieval.encoders import Encoded
from rag_notes.retrieval.vectors import differences, encode_corpus, open_vectors, passage_text
from rag_notes.types import Passage
from tests.encoding import WordEncoder, corpus

ROOT = Path(__file__).parents[1]
FILES = ("meta.json", "vectors.npy")


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_every_passage_has_its_own_vector_in_the_order_of_the_corpus(tmp_path: Path) -> None:
    passages, encoder = corpus(50), WordEncoder()
    file = encode_corpus(passages, encoder, tmp_path, batch_size=8, progress=False)
    expected = WordEncoder().encode_passages([passage_text(passage) for passage in passages]).vectors
    assert isinstance(file.vectors, np.memmap)
    assert file.vectors.dtype == np.float32
    np.testing.assert_array_equal(file.vectors, expected)
    assert file.meta["corpus"] == {"passages": 50, "sha256": corpus_checksum(passages)}
    assert file.meta["encoder"] == {"encoder": "words", "model": "words", "dimensions": 24}


def test_batches_are_of_similar_length_the_longest_first(tmp_path: Path) -> None:
    encoder = WordEncoder()
    encode_corpus(corpus(50), encoder, tmp_path, batch_size=8, progress=False)
    lengths = [len(text) for batch in encoder.batches for text in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert [len(batch) for batch in encoder.batches] == [8, 8, 8, 8, 8, 8, 2]


def test_a_second_opening_encodes_nothing(tmp_path: Path) -> None:
    first = encode_corpus(corpus(20), WordEncoder(), tmp_path, progress=False)
    encoder = WordEncoder(instruction="find ")  # of queries: it does not change the passages
    second = encode_corpus(corpus(20), encoder, tmp_path, progress=False)
    assert encoder.batches == []
    np.testing.assert_array_equal(first.vectors, second.vectors)


def test_float16_takes_half_the_space_and_is_close(tmp_path: Path) -> None:
    single = encode_corpus(corpus(40), WordEncoder(), tmp_path / "32", progress=False)
    half = encode_corpus(corpus(40), WordEncoder(), tmp_path / "16", dtype="float16", progress=False)
    assert half.vectors.dtype == np.float16
    assert 2 * half.vectors.nbytes == single.vectors.nbytes
    np.testing.assert_array_equal(half.vectors, single.vectors.astype(np.float16))


def test_what_was_cut_is_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passages = corpus(40)
    cut = sum(len(passage_text(passage).split()) > 9 for passage in passages)
    file = encode_corpus(passages, WordEncoder(limit=9), tmp_path, batch_size=8)
    assert 0 < cut < 40
    assert file.meta["truncated"] == cut
    assert f"{cut} truncated" in capsys.readouterr().err


@pytest.mark.parametrize(("killed", "lost"), [("1", 0), ("22", 20), ("43", 40), ("rename", 48)])
def test_a_killed_encoding_goes_on_to_the_same_bytes(tmp_path: Path, killed: str, lost: int) -> None:
    """50 batches with a checkpoint after every fourth: at most that many are encoded again."""
    command = [sys.executable, "-m", "tests.encoding", str(tmp_path / "killed"), "200", killed]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    with pytest.raises(FileNotFoundError):
        open_vectors(tmp_path / "killed")
    encoder = WordEncoder()
    encode_corpus(corpus(200), encoder, tmp_path / "killed", batch_size=4, progress=False)
    assert len(encoder.batches) == 50 - lost
    encode_corpus(corpus(200), WordEncoder(), tmp_path / "whole", batch_size=4, progress=False)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "killed").iterdir()} <= {*FILES, "lock"}


def test_a_killed_encoding_of_another_corpus_is_not_gone_on_with(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.encoding", str(tmp_path), "200", "20"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    with pytest.raises(ValueError, match=r"corpus\.passages: 200, but 199 is asked for"):
        encode_corpus(corpus(200)[:-1], WordEncoder(), tmp_path, batch_size=4, progress=False)
    with pytest.raises(ValueError, match="batch_size: 4, but 8 is asked for"):
        encode_corpus(corpus(200), WordEncoder(), tmp_path, batch_size=8, progress=False)


@pytest.mark.parametrize(
    ("encoder", "passages", "dtype", "message"),
    [
        (WordEncoder(model="other"), corpus(20), "float32", "encoder.model: 'words', but 'other' is asked for"),
        (WordEncoder(12), corpus(20), "float32", "encoder.dimensions: 24, but 12 is asked for"),
        (WordEncoder(), corpus(20)[1:], "float32", "corpus.passages: 20, but 19 is asked for"),
        (WordEncoder(), corpus(20)[::-1], "float32", "corpus.sha256: '[0-9a-f]{64}', but '[0-9a-f]{64}' is asked for"),
        (WordEncoder(), corpus(20), "float16", "dtype: 'float32', but 'float16' is asked for"),
    ],
)
def test_vectors_of_another_corpus_or_model_are_refused_with_the_difference(
    tmp_path: Path, encoder: WordEncoder, passages: list[Passage], dtype: str, message: str
) -> None:
    encode_corpus(corpus(20), WordEncoder(), tmp_path, progress=False)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        encode_corpus(passages, encoder, tmp_path, dtype=dtype, progress=False)  # type: ignore[arg-type]
    assert str(tmp_path) in str(error.value)
    assert files(tmp_path) == before


def test_differences_are_named_with_both_sides() -> None:
    assert differences({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": 4}) == [
        "a.c: 2, but 5 is asked for",
        "e: None, but 4 is asked for",
        "d: 3, but None is asked for",
    ]


def cut_vectors(folder: Path) -> None:
    path = folder / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-100])


def change_vectors(folder: Path) -> None:
    path = folder / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


def cut_meta(folder: Path) -> None:
    path = folder / "meta.json"
    path.write_text(path.read_text()[:50])


def empty_meta(folder: Path) -> None:
    (folder / "meta.json").write_text("{}")


@pytest.mark.parametrize("damage", [cut_vectors, change_vectors, cut_meta, empty_meta])
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    encode_corpus(corpus(20), WordEncoder(), tmp_path, progress=False)
    damage(tmp_path)
    with pytest.raises(ValueError, match=r"(vectors\.npy|meta\.json) is damaged.*; delete .* to encode again"):
        encode_corpus(corpus(20), WordEncoder(), tmp_path, progress=False)


def test_a_half_written_unfinished_file_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.encoding", str(tmp_path), "200", "20"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    part = tmp_path / "vectors.npy.part"
    part.write_bytes(part.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"vectors\.npy\.part is damaged"):
        encode_corpus(corpus(200), WordEncoder(), tmp_path, batch_size=4, progress=False)


class BadEncoder(WordEncoder):
    """Gives the longest passage something that cannot be stored."""

    def __init__(self, value: float = 1.0, *, shorter: int = 0) -> None:
        super().__init__()
        self.value, self.shorter = value, shorter

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        vectors = super().encode_passages(texts).vectors.copy()
        if len(self.batches) == 2:
            vectors[0, 3] = self.value
            vectors = vectors[:, self.shorter :]
        return Encoded(vectors)


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, "float32"), (np.inf, "float32"), (1e6, "float16")])
def test_a_vector_that_is_not_finite_is_refused_by_its_passage(tmp_path: Path, value: float, dtype: str) -> None:
    passages = corpus(20)
    ninth = sorted(passages, key=lambda passage: -len(passage_text(passage)))[8]
    with pytest.raises(ValueError, match=f"vector of passage '{ninth.id}' is not finite in {dtype}; store float32"):
        encode_corpus(passages, BadEncoder(value), tmp_path, dtype=dtype, batch_size=8, progress=False)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        open_vectors(tmp_path)


def test_an_encoder_that_changes_its_dimensions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shape \(8, 20\), expected \(8, 24\)"):
        encode_corpus(corpus(20), BadEncoder(shorter=4), tmp_path, batch_size=8, progress=False)


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = type("usage", (), {"free": 100})
    monkeypatch.setattr("rag_notes.retrieval.vectors.shutil.disk_usage", lambda path: full)
    with pytest.raises(OSError, match=r"need 0\.00 GB of disk, 0\.00 GB are free"):
        encode_corpus(corpus(20), WordEncoder(), tmp_path, progress=False)


def test_what_is_written_says_what_it_was_made_of(tmp_path: Path) -> None:
    encode_corpus(corpus(20), WordEncoder(), tmp_path, progress=False)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert set(meta) == {"encoder", "corpus", "dtype", "truncated", "sha256"}
