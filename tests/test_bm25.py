"""BM25: terms, rankings and scores beside an independent implementation, and indexes on disk that survive a kill."""

import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.datasets.corpus import CorpusFile, passage_line
from rag_notes.retrieval import bm25 as module
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import Passage
from tests.corpora import BIRDS, CHINESE, build, ids, plain_bm25, plain_words, random_corpus

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""}


# terms


@pytest.mark.parametrize(
    ("tokenizer", "text", "terms"),
    [  # words are cut as Lucene cuts them
        (Tokenizer("en", False, False), "Obama's don't, U.S. a:b x.1 snake_case", "obama don't u.s a:b x 1 snake_case"),
        (Tokenizer("en", False, False), "3.5 1,794 3,a well-known ’tis dogs’", "3.5 1,794 3 a well known tis dogs"),
        (Tokenizer(), "The Runners were running, in 1999!", "runner were run 1999"),
        (Tokenizer(), "generously skies dying news", "gener ski dy new"),  # Porter's first algorithm
        (Tokenizer(stemming=False, stop_words=False), "The Runners were running", "the runners were running"),
        # accents stay and compatibility forms are unified
        (Tokenizer(stemming=False), "Cafe\u0301 café ＡＢＣ ﬁsh cafe", "café café abc fish cafe"),
        # Chinese is cut into words, and English inside takes the English route
        (Tokenizer("zh"), "研究人员用Transformers模型处理the天文图像", "研究 人员 transform 模型 天文 图像"),
        *((Tokenizer(language), text, "") for language in ("en", "zh") for text in ("", "  \n", "?!…。")),
    ],
)
def test_terms(tokenizer: Tokenizer, text: str, terms: str) -> None:
    assert tokenizer(text) == terms.split()


def test_the_chinese_segmenter_is_silent_and_writes_nothing(tmp_path: Path) -> None:
    code = "from rag_notes.retrieval.tokenize import Tokenizer; assert Tokenizer('zh')('大运河连接北京与杭州')"
    # -W ignore: jieba's source has escapes that the compiler warns of, once, where no compiled file is kept.
    command, environment = [sys.executable, "-W", "ignore", "-c", code], ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    assert not subprocess.check_output(command, env=environment, stderr=subprocess.STDOUT)
    assert not list(tmp_path.iterdir())


# rankings


@pytest.mark.parametrize("longest", [4, 4000])  # a short length is exact, a long one is kept in a byte as in Lucene
def test_scores_are_those_of_an_independent_bm25_of_lucene(longest: int) -> None:
    rng = random.Random(longest)
    lengths = [rng.randint(0, longest) for _ in range(80)]
    corpus = [
        Passage(f"d{n}", "", " ".join(rng.choices("vwxyz", (1, 2, 4, 8, 80), k=length)))
        for n, length in enumerate(lengths)
    ]
    documents = [plain_words(passage.text) for passage in corpus]
    retriever: Retriever = build(corpus, stemming=False, stop_words=False)
    for query in ("v", "w x", "z z y", "x unknown v", "v v v w"):
        scores = plain_bm25(documents, query.split())
        ranked = sorted((-round(score, 12), passage.id) for passage, score in zip(corpus, scores, strict=True) if score)
        (hits,) = retriever.search([query], 100)
        assert ids(hits) == [name for _, name in ranked]
        assert [hit.score for hit in hits] == pytest.approx([-score for score, _ in ranked], rel=1e-9)


def test_hits_are_exactly_the_best_with_ties_by_id() -> None:
    corpus = random_corpus(60, seed=2)
    retriever = build(corpus, stop_words=False)
    for query in ("v", "w", "x y"):
        (ranking,) = retriever.search([query], len(corpus))
        assert ranking == sorted(ranking, key=lambda hit: (-hit.score, hit.passage.id))
        assert len({hit.score for hit in ranking}) < len(ranking)
        assert all(retriever.search([query], top_k) == [ranking[:top_k]] for top_k in (1, 2, 3, 7, 20, 200))


def test_neither_threads_nor_segments_change_ranking_or_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, path = random.Random(3), tmp_path / "corpus.jsonl"
    words = [f"w{number}" for number in range(30)]
    corpus = [Passage(f"d{n}", "", " ".join(rng.choices(words, k=rng.randint(1, 80)))) for n in range(1000)]
    path.write_text("".join(map(passage_line, corpus)), encoding="utf-8")
    queries = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(100)]
    rankings, segments = [], set()
    for threads, commit in ((1, 10**6), (1, 130), (4, 10**6), (3, 70)):
        monkeypatch.setattr(module, "_THREADS", threads)
        monkeypatch.setattr(module, "_COMMIT", commit)
        retriever = bm25(CorpusFile(str(path), "corpus"), cache=str(tmp_path / f"{threads}-{commit}"))
        segments.add(retriever._searcher.num_segments)
        rankings.append(retriever.search(queries, 5))
    assert len(segments) > 1
    with ThreadPoolExecutor(8) as pool:  # of searches
        rankings.append(list(pool.map(lambda query: retriever.search([query], 5)[0], queries)))
    assert all(other == rankings[0] for other in rankings)


def test_queries_of_any_kind_and_their_errors() -> None:
    retriever = build(BIRDS)
    assert retriever.search(["", "  ", "the of", "zebra", "fish"], 1)[:4] == [[], [], [], []]
    assert retriever.search([], 5) == []
    # the signs of a query language mean nothing
    queries = ['"acorns', "(acorns]", "title: acorns", "acorns^2 AND", "+acorns -drop*", "acorns~1 \\", "[a TO acorns}"]
    assert [ids(hits)[:1] for hits in retriever.search(queries, 3)] == [["p3"]] * len(queries)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["fish"], 0)
    with pytest.raises(TypeError, match="list of queries"):
        retriever.search("fish", 1)
    chinese = build(CHINESE).search(["青瓷的釉色是什么？", "大运河有多少公里", "transformer", "水稻"], 1)
    assert [ids(hits) for hits in chinese] == [["z1"], ["z2"], ["z3"], []]


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([], r"set dataset\.<name>\.corpus"),
        ([Passage("a", "", "the...")], "no passage of the corpus has a word"),
        ([*BIRDS, BIRDS[0]], "id 'p1' is already used"),
    ],
)
def test_corpora_that_cannot_be_indexed_are_refused(tmp_path: Path, corpus: list[Passage], message: str) -> None:
    for cache in (None, str(tmp_path)):
        with pytest.raises(ValueError, match=message):
            bm25(corpus, cache=cache)


# indexes on disk


@pytest.mark.parametrize("form", ["jsonl", "tsv", "passages"])
def test_an_index_on_disk_finds_what_one_in_memory_does(tmp_path: Path, form: str) -> None:
    path, in_memory, corpus = tmp_path / f"corpus.{form}", build(BIRDS), BIRDS
    if form != "passages":  # which are read where they lie
        lines = [f"{passage.id}\t{passage.text}\t{passage.title}\n" for passage in BIRDS]
        lines = ["id\ttext\ttitle\n", *lines] if form == "tsv" else [passage_line(passage) for passage in BIRDS]
        path.write_text("".join(lines), encoding="utf-8")
        corpus = CorpusFile(str(path), "corpus")  # type: ignore[assignment]
    for summary in ("4 of them indexed now", "all there"):
        on_disk = bm25(corpus, cache=str(tmp_path / "cache"))
        assert on_disk.build_index().endswith(f": 4 passages, {summary}")
        assert on_disk.search(["water fish", "oaks", "?"], 3) == in_memory.search(["water fish", "oaks", "?"], 3)
        assert on_disk.describe() == in_memory.describe()
    files = [file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert not any(b"swallowed" in content for content in files)


def test_a_file_that_holds_an_id_twice_or_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = tmp_path / "corpus.jsonl", str(tmp_path / "cache")
    path.write_text("".join(map(passage_line, [*BIRDS, BIRDS[2]])), encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 5: the passage id 'p3' is already used"):
        bm25(CorpusFile(str(path), "corpus"), cache=cache)
    path.write_text("".join(map(passage_line, BIRDS)), encoding="utf-8")
    fill = module._fill

    def change(*arguments: Any) -> Any:
        size = fill(*arguments)
        path.write_text("".join(map(passage_line, BIRDS[:3])), encoding="utf-8")
        return size

    monkeypatch.setattr(module, "_fill", change)
    with pytest.raises(ValueError, match="changed while it was indexed"):
        bm25(CorpusFile(str(path), "corpus"), cache=cache)
    monkeypatch.undo()
    assert bm25(CorpusFile(str(path), "corpus"), cache=cache).describe()["corpus"]["passages"] == 3


def test_the_cache_knows_corpus_settings_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "deep" / "cache"
    changes: list[tuple[Any, dict[str, Any]]] = [(BIRDS, {}), (BIRDS, {"stop_words": False}), (BIRDS[:3], {})]
    for corpus, options in [*changes, (BIRDS, {"stemming": False})]:
        assert "indexed now" in bm25(corpus, cache=str(cache), **options).build_index()
    assert "all there" in bm25(list(BIRDS), cache=str(cache), memory_mb=20).build_index()
    monkeypatch.setattr(module, "version", lambda package: f"another {package}")
    assert "4 of them indexed now" in bm25(BIRDS, cache=str(cache)).build_index()
    assert len(list(cache.iterdir())) == 5


@pytest.mark.parametrize("damaged", ["meta.json", "index/meta.json"])
def test_a_damaged_index_is_an_error_that_says_what_to_delete(tmp_path: Path, damaged: str) -> None:
    bm25(BIRDS, cache=str(tmp_path))
    [folder] = tmp_path.iterdir()
    (folder / damaged).write_text('{"corpus": "')
    with pytest.raises(ValueError, match=f"{folder}: the index is damaged .*; delete this folder to index again"):
        bm25(BIRDS, cache=str(tmp_path))


KILLED = """
import os, signal, sys
from rag_notes.retrieval import bm25 as module
from tests.test_bm25 import numbered

class Deadly(list):
    def __iter__(self):
        for passage in list.__iter__(self):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield passage

module._COMMIT = 50
corpus = Deadly(numbered(600))
for left in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        module.bm25(corpus, cache=f"{sys.argv[1]}/{left}")
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def numbered(size: int) -> list[Passage]:
    return [Passage(f"d{i * 7919 % size:03}", "", f"word{i % 7} word{i % 11} common") for i in range(size)]


def test_indexing_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, queries = numbered(600), [f"word{n} word{n + 3} common" for n in range(8)]
    monkeypatch.setattr(module, "_COMMIT", 50)
    expected = build(corpus).search(queries, 20)
    # 200 passages for the language, then 600 for each of checksum, ids, size, indexing and again the checksum.
    points = [100, 1500, *range(2010, 2601, 59), 3199]
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", KILLED, str(tmp_path), *map(str, points)]
    assert subprocess.check_output(command, env=ENVIRONMENT, text=True).split() == ["9"] * len(points)
    indexed = []
    for point in points:
        assert not list((tmp_path / str(point)).glob("*/meta.json"))
        retriever = bm25(corpus, cache=str(tmp_path / str(point)))
        assert retriever.search(queries, 20) == expected
        assert "all there" in bm25(corpus, cache=str(tmp_path / str(point))).build_index()
        indexed.append(int(retriever.build_index().split()[3]))
    assert (indexed[0], indexed[-1]) == (600, 0)
    assert len(set(indexed)) > 5  # what was committed was not done again


def test_one_command_indexes_an_official_file_and_a_data_set_that_names_the_passages_finds_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, out, questions = tmp_path / "psgs_w100.tsv", tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    questions.write_text('{"id": "q", "question": "Which acorn dropped?", "gold_ids": ["2"]}\n', encoding="utf-8")
    cache = f"retriever.cache={tmp_path / 'cache'}"
    command = ["index", "corpus=wikipedia_2018", f"corpus.path={raw}", f"corpus.out={out}", cache]
    assert main(command) == 2
    assert f"{raw}: no such file" in capsys.readouterr().err
    raw.write_text("id\ttext\ttitle\n1\tHerons wade.\tHeron\n2\tOaks drop acorns.\tOak\n", encoding="utf-8")
    for output in (f"{out}: 2 passages, sha256 .*2 passages, 2 of them indexed now", "^[^,]*2 passages, all there"):
        assert main(command) == 0
        assert re.search(output, capsys.readouterr().out, re.DOTALL)
    data = ["dataset=plain", f"dataset.plain.path={questions}", f"dataset.plain.corpus={out}", cache]
    assert main(["index", *data]) == 0
    assert "all there" in capsys.readouterr().out
    assert main(["retrieval", *data, "--top-k", "1"]) == 0
    assert "100.0 [20.7, 100.0]" in capsys.readouterr().out
