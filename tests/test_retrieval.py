import hashlib
import math
import random
import re
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.config import ConfigError, load_config
from rag_notes.datasets import corpus_file
from rag_notes.datasets.corpus_file import CorpusFile, check_ids, passage_line
from rag_notes.retrieval import bm25 as module
from rag_notes.retrieval.base import Retriever, corpus_checksum
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import Hit, Passage

ROOT = Path(__file__).parents[1]

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


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def plain_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def lengths_of_lucene() -> list[int]:
    """The length that each value of Lucene's byte stands for (org.apache.lucene.util.SmallFloat, byte4ToInt)."""
    decoded = [0, 1, 2, 3, 4, 5, 6, 7] + [(8 + byte % 8) << (byte // 8 - 1) for byte in range(8, 256 - 24)]
    return [*range(24), *(24 + length for length in decoded)]


def kept_by_lucene(length: int) -> int:
    table = lengths_of_lucene()
    return table[bisect_right(table, length) - 1]


def plain_bm25(
    documents: list[list[str]],
    query: list[str],
    k1: float = 1.2,
    b: float = 0.75,
    kept: Callable[[int], int] = kept_by_lucene,
) -> list[float]:
    """Lucene's BM25 straight from its formula, in double precision."""
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in query:
            frequency = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            if counts[term]:
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * kept(len(document)) / mean))
        scores.append(score)
    return scores


def random_corpus(size: int, seed: int) -> list[Passage]:
    """Passages over few words, so that many scores tie, with ids in no order."""
    rng = random.Random(seed)
    names = rng.sample(range(10 * size), size)
    return [
        Passage(f"d{name}", rng.choice("vwxyz"), " ".join(rng.choices("vwxyz", k=rng.randint(0, 4)))) for name in names
    ]


def build(corpus: Sequence[Passage], **settings: Any) -> BM25:
    return bm25(corpus, cache=None, **settings)


# tokenizer


def test_words_are_cut_as_lucene_cuts_them() -> None:
    words = Tokenizer(stemming=False, stop_words=False)
    assert words("Obama's don't, U.S. a:b x.1 snake_case") == ["obama", "don't", "u.s", "a:b", "x", "1", "snake_case"]
    assert words("3.5 1,794 3,a well-known ’tis the dogs’") == [
        "3.5",
        "1,794",
        "3",
        "a",
        "well",
        "known",
        "tis",
        "the",
        "dogs",
    ]


def test_words_are_stemmed_by_porters_first_algorithm() -> None:
    assert Tokenizer()("generously skies dying news") == ["gener", "ski", "dy", "new"]


def test_english_terms_are_lower_case_stemmed_words_without_stop_words() -> None:
    assert Tokenizer()("The Runners were running, in 1999!") == ["runner", "were", "run", "1999"]
    assert Tokenizer(stemming=False)("The Runners were running") == ["runners", "were", "running"]
    assert Tokenizer(stop_words=False)("in the Water") == ["in", "the", "water"]


def test_accents_stay_and_compatibility_forms_are_unified() -> None:
    assert Tokenizer(stemming=False)("Cafe\u0301 café ＡＢＣ ﬁsh cafe") == ["café", "café", "abc", "fish", "cafe"]


def test_chinese_is_cut_into_words_and_english_inside_takes_the_english_route() -> None:
    terms = Tokenizer("zh")("研究人员用Transformers模型处理the天文图像")
    assert {"研究", "人员", "transform", "模型", "图像"} <= set(terms)
    assert "the" not in terms
    assert "transformers" in Tokenizer("zh", stemming=False)("用Transformers模型")


def test_chinese_stop_words_can_be_kept() -> None:
    assert "我们" not in Tokenizer("zh")("我们喜欢青瓷")
    assert "我们" in Tokenizer("zh", stop_words=False)("我们喜欢青瓷")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("text", ["", "  \n", "?!…。"])
def test_text_without_a_word_has_no_terms(language: str, text: str) -> None:
    assert Tokenizer(language)(text) == []  # type: ignore[arg-type]


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ValueError, match="'fr'"):
        Tokenizer("fr")  # type: ignore[arg-type]


def test_the_chinese_segmenter_is_silent_and_writes_nothing(tmp_path: Path) -> None:
    code = "from rag_notes.retrieval.tokenize import Tokenizer; assert Tokenizer('zh')('大运河连接北京与杭州')"
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": ""}
    # -W ignore: jieba's source has escapes that the compiler warns of, once, where no compiled file is kept.
    arguments = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr, list(tmp_path.iterdir())) == (0, "", "", [])


# search


@pytest.mark.parametrize("longest", [4, 60, 4000])
def test_scores_are_those_of_an_independent_bm25_of_lucene(longest: int) -> None:
    rng = random.Random(longest)
    corpus = [
        Passage(f"d{n}", "", " ".join(rng.choices("vwxyz", (1, 2, 4, 8, 80), k=rng.randint(0, longest))))
        for n in range(80)
    ]
    documents = [plain_words(passage.text) for passage in corpus]
    retriever = build(corpus, stemming=False, stop_words=False)
    for query in ("v", "w x", "z z y", "x unknown v", "v v v w"):
        scores = plain_bm25(documents, query.split())
        ranked = sorted((-round(score, 12), passage.id) for passage, score in zip(corpus, scores, strict=True) if score)
        found = retriever.search([query], 100)[0]
        assert ids(found) == [name for _, name in ranked]
        assert [hit.score for hit in found] == pytest.approx([-score for score, _ in ranked], rel=1e-9)
        assert retriever.search([query], 5)[0] == found[:5]


def test_lengths_are_kept_as_in_lucene() -> None:
    assert [module._kept(length) for length in range(200_000)] == [kept_by_lucene(n) for n in range(200_000)]


def test_a_hand_worked_score() -> None:
    corpus = [Passage("a", "", "red red blue"), Passage("b", "", "blue")]
    [[hit]] = build(corpus).search(["red"], 2)
    # N 2, df 1: idf ln(1 + 1.5 / 1.5) = ln 2; tf 2, length 3, mean 2: 2 / (2 + 1.2 * (0.25 + 0.75 * 1.5))
    assert hit.passage is corpus[0]
    assert hit.score == pytest.approx(math.log(2) * 2 / 3.65, rel=1e-12)
    [[twice]] = build(corpus).search(["red, red!"], 2)
    assert twice.score == 2 * hit.score


@pytest.mark.parametrize("top_k", [1, 2, 3, 7, 20, 200])
def test_hits_are_exactly_the_best_with_ties_by_id(top_k: int) -> None:
    corpus = random_corpus(60, seed=2)
    retriever = build(corpus, stop_words=False)
    tied_at_the_border = False
    for query in ("v", "w", "x y"):
        everything = retriever.search([query], len(corpus))[0]
        assert everything == sorted(everything, key=lambda hit: (-hit.score, hit.passage.id))
        assert retriever.search([query], top_k)[0] == everything[:top_k]
        borders = {hit.score for hit in everything[top_k - 1 : top_k + 1]}
        tied_at_the_border |= len(everything) > top_k and len(borders) == 1
    assert tied_at_the_border or top_k > 7


def test_many_ties_are_all_told_apart_by_id() -> None:
    names = [f"{number:03}" for number in range(500)]
    random.Random(1).shuffle(names)
    retriever = build([Passage(name, "", "same words") for name in names])
    assert ids(retriever.search(["words"], 3)[0]) == ["000", "001", "002"]


def test_the_order_of_the_corpus_does_not_matter() -> None:
    corpus = random_corpus(80, seed=5)
    found = [build(order, stop_words=False).search(["v w x", "y"], 30) for order in (corpus, corpus[::-1])]
    assert found[0] == found[1]


def test_neither_threads_nor_segments_change_ranking_or_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    words = [f"w{number}" for number in range(30)]
    corpus = [Passage(f"d{n}", "", " ".join(rng.choices(words, k=rng.randint(0, 80)))) for n in range(1000)]
    queries = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(100)]
    found, segments = [], set()
    for threads, commit in ((1, 10**6), (1, 130), (4, 10**6), (3, 70)):
        monkeypatch.setattr(module, "_THREADS", threads)
        monkeypatch.setattr(module, "_COMMIT", commit)
        retriever = bm25(corpus, cache=str(tmp_path / f"{threads}-{commit}"))
        segments.add(retriever._searcher.num_segments)
        found.append(retriever.search(queries, 5))
    assert len(segments) > 1
    assert all(other == found[0] for other in found)


def test_only_matching_passages_are_returned() -> None:
    retriever = build(BIRDS)
    assert ids(retriever.search(["Where do fish swim?"], 4)[0]) == ["p1", "p2"]
    assert all(hit.score > 0 for hit in retriever.search(["water oak"], 4)[0])


def test_title_counts_and_stems_meet() -> None:
    assert ids(build(BIRDS).search(["Herons", "oaks café"], 1)[0]) == ["p1"]
    assert set(ids(build(BIRDS).search(["oak café"], 9)[0])) == {"p3", "p4"}


def test_queries_with_nothing_known_get_no_hits() -> None:
    assert build(BIRDS).search(["", "  ", "the of", "zebra", "fish"], 1)[:4] == [[], [], [], []]
    assert build(BIRDS).search([], 5) == []


def test_the_signs_of_a_query_language_mean_nothing() -> None:
    queries = ['"acorns', "(acorns]", "title: acorns", "acorns^2 AND", "+acorns -drop*", "acorns~1 \\", "[a TO acorns}"]
    assert [ids(hits)[:1] for hits in build(BIRDS).search(queries, 3)] == [["p3"]] * len(queries)


def test_bad_arguments_of_search_are_refused() -> None:
    retriever: Retriever = build(BIRDS)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["fish"], 0)
    with pytest.raises(TypeError, match="list of queries"):
        retriever.search("fish", 1)


def test_a_batch_gives_what_single_queries_give_also_from_threads(tmp_path: Path) -> None:
    corpus = [passage for passage in random_corpus(60, seed=3) if passage.text]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(map(passage_line, corpus)), encoding="utf-8")
    retriever = bm25(CorpusFile(str(path), "corpus"), stop_words=False, cache=str(tmp_path / "cache"))
    queries = ["v w", "x", "y z z", "w", "nothing"] * 20
    batch = retriever.search(queries, 5)
    assert batch == [retriever.search([query], 5)[0] for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: retriever.search([query], 5)[0], queries)) == batch


def test_chinese_retrieval() -> None:
    retriever = build(CHINESE)
    assert retriever.tokenizer.language == "zh"
    found = retriever.search(["青瓷的釉色是什么？", "大运河有多少公里", "transformer", "水稻"], 1)
    assert [ids(hits) for hits in found] == [["z1"], ["z2"], ["z3"], []]


def test_the_language_is_that_of_most_letters() -> None:
    assert build(BIRDS).tokenizer.language == "en"
    assert build((*BIRDS, CHINESE[0])).tokenizer.language == "en"
    assert build(CHINESE, language="en").tokenizer.language == "en"


def test_a_passage_without_words_is_never_found() -> None:
    corpus = [Passage("a", "", ""), Passage("b", "", "fish"), Passage("c", "", "...")]
    assert ids(build(corpus).search(["fish"], 3)[0]) == ["b"]


@pytest.mark.parametrize("cached", [True, False])
def test_corpora_that_cannot_be_indexed_are_refused(tmp_path: Path, cached: bool) -> None:
    cache = str(tmp_path) if cached else None
    with pytest.raises(ValueError, match=r"set dataset\.<name>\.corpus"):
        bm25([], cache=cache)
    with pytest.raises(ValueError, match="no passage of the corpus has a word"):
        bm25([Passage("a", "", "the...")], cache=cache)
    with pytest.raises(ValueError, match="id 'p1' is already used"):
        bm25([BIRDS[0], BIRDS[1], BIRDS[0]], cache=cache)


# on disk


def test_checksum_is_that_of_canonical_lines_in_order() -> None:
    line = '{"id":"z","title":"é","text":"a \\"b\\"\\n"}\n'
    assert corpus_checksum([Passage("z", "é", 'a "b"\n')]) == hashlib.sha256(line.encode()).hexdigest()
    assert corpus_checksum(BIRDS) != corpus_checksum(BIRDS[::-1])


@pytest.mark.parametrize("corpus", [BIRDS, CHINESE], ids=["en", "zh"])
def test_an_index_on_disk_finds_what_one_in_memory_does(tmp_path: Path, corpus: tuple[Passage, ...]) -> None:
    in_memory = build(corpus)
    queries = ["water fish", "oaks", "青瓷", "大运河北京", "?"]
    for done in (f"{len(corpus)} of them indexed now", "all there"):
        on_disk = bm25(corpus, cache=str(tmp_path))
        assert on_disk.build_index().endswith(f": {len(corpus)} passages, {done}")
        assert on_disk.search(queries, 3) == in_memory.search(queries, 3)
        assert on_disk.describe() == in_memory.describe()


LINES = {
    "jsonl": [passage_line(passage) for passage in BIRDS],
    "blank lines, CRLF and a byte order mark": [
        "\ufeff",
        *(f"\n{passage_line(passage)[:-1]}\r\n \n" for passage in BIRDS),
    ],
    "tsv": ["id\ttext\ttitle\n", *(f"{passage.id}\t{passage.text}\t{passage.title}\n" for passage in BIRDS)],
}


@pytest.mark.parametrize("form", LINES)
def test_passages_of_a_file_are_read_where_they_lie(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"corpus.{'tsv' if form == 'tsv' else 'jsonl'}"
    path.write_text("".join(LINES[form]), encoding="utf-8", newline="")
    corpus, expected = CorpusFile(str(path), "corpus"), build(BIRDS)
    assert (tuple(corpus), tuple(corpus[:]), len(corpus)) == (BIRDS, BIRDS, 4)
    for cache in (None, str(tmp_path / "cache"), str(tmp_path / "cache")):
        retriever = bm25(corpus, cache=cache)
        assert retriever.search(["water fish", "oak"], 3) == expected.search(["water fish", "oak"], 3)
        assert retriever.describe() == expected.describe()
    assert size_of(tmp_path / "cache", "swallowed") == 0


def size_of(folder: Path, text: str) -> int:
    """How many files hold a text."""
    return sum(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_file_that_holds_an_id_twice_or_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = tmp_path / "corpus.jsonl", str(tmp_path / "cache")
    path.write_text("".join(map(passage_line, [*BIRDS, BIRDS[2]])), encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 5: the passage id 'p3' is already used"):
        bm25(CorpusFile(str(path), "corpus"), cache=cache)
    path.write_text("".join(map(passage_line, BIRDS)), encoding="utf-8")
    fill = module._fill

    def change(*arguments: Any, **options: Any) -> Any:
        seen = fill(*arguments, **options)
        path.write_text("".join(map(passage_line, BIRDS[:3])), encoding="utf-8")
        return seen

    monkeypatch.setattr(module, "_fill", change)
    with pytest.raises(ValueError, match="changed while it was indexed"):
        bm25(CorpusFile(str(path), "corpus"), cache=cache)
    monkeypatch.undo()
    assert bm25(CorpusFile(str(path), "corpus"), cache=cache).describe()["corpus"]["passages"] == 3


def test_ids_are_checked_in_parts_that_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_file, "_BLOCK", 7)
    corpus = random_corpus(100, seed=4)
    assert check_ids(corpus) == 100
    assert check_ids(corpus[:7]) == 7
    assert check_ids([]) == 0
    for place in (1, 50, 100):
        with pytest.raises(ValueError, match=f"the passage id '{corpus[0].id}' is already used"):
            check_ids([*corpus[:place], corpus[0], *corpus[place:]])


def test_the_cache_is_used_and_knows_corpus_and_settings(tmp_path: Path) -> None:
    cache = str(tmp_path / "deep" / "cache")
    first = bm25(BIRDS, cache=cache)
    [entry] = Path(cache).iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in (entry / "index").glob("*.*")}
    again = bm25(list(BIRDS), cache=cache)
    assert again.search(["water fish"], 3) == first.search(["water fish"], 3)
    assert {path.name: path.stat().st_mtime_ns for path in (entry / "index").glob("*.*")} == before
    bm25(BIRDS, cache=cache, stop_words=False)
    bm25(BIRDS, cache=cache, stemming=False)
    bm25(BIRDS[:3], cache=cache)
    assert len(list(Path(cache).iterdir())) == 4
    bm25(BIRDS, cache=cache, memory_mb=20)
    assert len(list(Path(cache).iterdir())) == 4


def test_an_index_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bm25(BIRDS, cache=str(tmp_path))
    monkeypatch.setattr(module, "version", lambda package: f"another {package}")
    assert "4 of them indexed now" in bm25(BIRDS, cache=str(tmp_path)).build_index()


def damages() -> dict[str, Callable[[Path], object]]:
    def the(entry: Path, suffix: str) -> Path:
        [path] = (entry / "index").glob(f"*.{suffix}")
        return path

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def unfinished(entry: Path, text: str) -> None:
        (entry / "meta.json").unlink()
        (entry / "index" / "meta.json").write_text(text)

    return {
        "postings cut": lambda entry: the(entry, "idx").write_bytes(b""),
        "one bit of the postings": lambda entry: flip(the(entry, "idx")),
        "one bit of the terms": lambda entry: flip(the(entry, "term")),
        "one bit of the lengths": lambda entry: flip(the(entry, "fast")),
        "no terms": lambda entry: the(entry, "term").unlink(),
        "no index": lambda entry: shutil.rmtree(entry / "index"),
        "meta cut": lambda entry: (entry / "meta.json").write_text('{"corpus": "'),
        "meta empty": lambda entry: (entry / "meta.json").write_text("{}"),
        "meta a list": lambda entry: (entry / "meta.json").write_text("[1]"),
        "unfinished, and no JSON": lambda entry: unfinished(entry, "{"),
        "unfinished, and nothing": lambda entry: unfinished(entry, ""),
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages().keys())
def test_a_damaged_cache_entry_is_rebuilt_with_a_warning(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    expected = bm25(BIRDS, cache=str(tmp_path)).search(["water fish"], 3)
    [entry] = tmp_path.iterdir()
    damage(entry)
    with pytest.warns(RuntimeWarning, match=f"the index in {entry} is damaged"):
        assert bm25(BIRDS, cache=str(tmp_path)).search(["water fish"], 3) == expected
    assert "all there" in bm25(BIRDS, cache=str(tmp_path)).build_index()
    assert sorted(path.name for path in entry.iterdir()) == ["index", "lock", "meta.json"]


KILLED = """
import os, pathlib, signal, sys
from rag_notes.retrieval import bm25 as module
from rag_notes.types import Passage

class Deadly(list):
    def __iter__(self):
        for passage in list.__iter__(self):
            die()
            yield passage

def die():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def replace(self, target):
    os.kill(os.getpid(), signal.SIGKILL)

module._COMMIT = 50
corpus = Deadly(Passage(f"d{i * 7919 % 600:03}", "", f"word{i % 7} word{i % 11} common") for i in range(600))
for number, passages in enumerate(sys.argv[2].split(",")):
    child = os.fork()
    if not child:
        left = int(passages)
        if not left:
            pathlib.Path.replace = replace
        module.bm25(corpus, cache=f"{sys.argv[1]}/{number}")
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def test_indexing_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    monkeypatch.setattr(module, "_COMMIT", 50)
    corpus = [Passage(f"d{i * 7919 % 600:03}", "", f"word{i % 7} word{i % 11} common") for i in range(600)]
    queries = [f"word{n} word{n + 3} common" for n in range(8)]
    expected = repr(build(corpus).search(queries, 20))
    # One passage to see whether there is any, 200 for the language, 600 for each of checksum, checksum, ids, indexing
    # and again the checksum; the last two kills come when the index is about to be declared whole.
    points = [rng.randint(1, 3201) for _ in range(6)] + [rng.randint(2002, 2601) for _ in range(12)] + [0, 0]
    arguments = [sys.executable, "-c", KILLED, str(tmp_path), ",".join(map(str, points))]
    done = subprocess.run(
        arguments, env={"PYTHONPATH": str(ROOT), "PATH": ""}, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.split() == ["9"] * 20
    indexed = []
    for number in range(20):
        assert not list((tmp_path / str(number)).glob("*/meta.json"))
        retriever = bm25(corpus, cache=str(tmp_path / str(number)))
        assert repr(retriever.search(queries, 20)) == expected
        assert "all there" in bm25(corpus, cache=str(tmp_path / str(number))).build_index()
        indexed.append(int(retriever.build_index().split()[3]))
    assert indexed[-2:] == [0, 0]
    assert len(set(indexed)) > 5  # what was committed was not done again


PROCESS = """
import sys
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Passage
corpus = [Passage(str(i), "", f"word{i % 7} word{i % 11} common") for i in range(300)]
print("ready", flush=True)
sys.stdin.readline()
hits = bm25(corpus, cache=sys.argv[1]).search(["word3 word5 common"], 4)[0]
print([(hit.passage.id, hit.score) for hit in hits])
"""


def test_processes_that_build_at_once_agree_and_leave_one_entry(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", PROCESS, str(tmp_path / "cache")],
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed), "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2, 3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(outputs) == 1
    assert "'" in outputs.pop()
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_one_command_indexes_an_official_file_and_a_data_set_that_names_the_passages_finds_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, out, questions = tmp_path / "psgs_w100.tsv", tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    lines = ["id\ttext\ttitle", "1\tHerons wade.\tHeron", "2\tOaks drop acorns.\tOak"]
    questions.write_text('{"id": "q", "question": "Which acorn dropped?", "gold_ids": ["2"]}\n', encoding="utf-8")
    cache = f"retriever.cache={tmp_path / 'cache'}"
    command = ["index", "corpus=wikipedia_2018", f"corpus.path={raw}", f"corpus.out={out}", cache]
    assert main(command) == 2
    assert f"{raw}: no such file" in capsys.readouterr().err
    raw.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for said in (f"{out}: 2 passages, sha256 .*2 passages, 2 of them indexed now", "^[^,]*2 passages, all there"):
        assert main(command) == 0
        assert re.search(said, capsys.readouterr().out, re.DOTALL)
    data = ["dataset=plain", f"dataset.plain.path={questions}", f"dataset.plain.corpus={out}", cache]
    assert main(["index", *data]) == 0
    assert "all there" in capsys.readouterr().out
    assert main(["retrieval", *data, "--top-k", "1"]) == 0
    assert "| 100.0 [20.7, 100.0] | 1 |" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["retriever.k1=0.9", "retriever.b=0"])
def test_the_constants_of_the_formula_are_no_settings(option: str) -> None:
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        load_config([option])
    with pytest.raises(ConfigError, match=r"retriever\.memory_mb"):
        load_config(["retriever.memory_mb=3"])
