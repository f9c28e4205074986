import hashlib
import json
import math
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

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


def plain_bm25(documents: list[list[str]], query: list[str], k1: float, b: float) -> list[float]:
    """Lucene's BM25 straight from its formula, in double precision."""
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in query:
            frequency = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            if counts[term]:
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


def random_corpus(size: int, seed: int) -> list[Passage]:
    """Passages over few words, so that many scores tie, with ids in no order."""
    rng = random.Random(seed)
    names = rng.sample(range(10 * size), size)
    return [
        Passage(f"d{name}", rng.choice("vwxyz"), " ".join(rng.choices("vwxyz", k=rng.randint(0, 4)))) for name in names
    ]


# tokenizer


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


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 0.0), (0.0, 1.0)])
def test_scores_are_those_of_an_independent_bm25(k1: float, b: float) -> None:
    corpus = random_corpus(40, seed=1)
    documents = [plain_words(f"{passage.title} {passage.text}") for passage in corpus]
    retriever = BM25.build(corpus, k1=k1, b=b, tokenizer=Tokenizer(stemming=False, stop_words=False))
    for query in ("v", "w x", "z z y", "x unknown v"):
        expected = {
            passage.id: score
            for passage, score in zip(corpus, plain_bm25(documents, query.split(), k1, b), strict=True)
            if score > 0
        }
        found = {hit.passage.id: hit.score for hit in retriever.search([query], 100)[0]}
        assert found == pytest.approx(expected, rel=1e-5)


def test_a_hand_worked_score() -> None:
    corpus = [Passage("a", "", "red red blue"), Passage("b", "", "blue")]
    [[hit]] = BM25.build(corpus).search(["red"], 2)
    # N 2, df 1: idf ln(1 + 1.5 / 1.5) = ln 2; tf 2, length 3, mean 2: 2 / (2 + 1.2 * (0.25 + 0.75 * 1.5))
    assert hit.passage is corpus[0]
    assert hit.score == pytest.approx(math.log(2) * 2 / 3.65, rel=1e-6)


@pytest.mark.parametrize("top_k", [1, 2, 3, 7, 20, 200])
def test_hits_are_exactly_the_best_with_ties_by_id(top_k: int) -> None:
    corpus = random_corpus(60, seed=2)
    retriever = BM25.build(corpus, tokenizer=Tokenizer(stop_words=False))
    tied_at_the_border = False
    for query in ("v", "w", "x y"):
        everything = retriever.search([query], len(corpus))[0]
        assert everything == sorted(everything, key=lambda hit: (-hit.score, hit.passage.id))
        assert retriever.search([query], top_k)[0] == everything[:top_k]
        borders = {hit.score for hit in everything[top_k - 1 : top_k + 1]}
        tied_at_the_border |= len(everything) > top_k and len(borders) == 1
    assert tied_at_the_border or top_k > 7


def test_the_order_of_the_corpus_does_not_matter_to_ties() -> None:
    corpus = [Passage(name, "", "same words") for name in ("c", "a", "d", "b")]
    for order in (corpus, corpus[::-1]):
        assert ids(BM25.build(order).search(["words"], 3)[0]) == ["a", "b", "c"]


def test_only_matching_passages_are_returned() -> None:
    retriever = BM25.build(BIRDS)
    assert ids(retriever.search(["Where do fish swim?"], 4)[0]) == ["p1", "p2"]
    assert all(hit.score > 0 for hit in retriever.search(["water oak"], 4)[0])


def test_title_counts_and_stems_meet() -> None:
    assert ids(BM25.build(BIRDS).search(["Herons", "oaks café"], 1)[0]) == ["p1"]
    assert set(ids(BM25.build(BIRDS).search(["oak café"], 9)[0])) == {"p3", "p4"}


def test_queries_with_nothing_known_get_no_hits() -> None:
    assert BM25.build(BIRDS).search(["", "  ", "the of", "zebra", "fish"], 1)[:4] == [[], [], [], []]
    assert BM25.build(BIRDS).search([], 5) == []


def test_bad_arguments_of_search_are_refused() -> None:
    retriever: Retriever = BM25.build(BIRDS)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["fish"], 0)
    with pytest.raises(TypeError, match="list of queries"):
        retriever.search("fish", 1)


def test_a_batch_gives_what_single_queries_give_also_from_threads() -> None:
    retriever = BM25.build(random_corpus(50, seed=3), tokenizer=Tokenizer(stop_words=False))
    queries = ["v w", "x", "y z z", "w", "nothing"] * 20
    batch = retriever.search(queries, 5)
    assert batch == [retriever.search([query], 5)[0] for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: retriever.search([query], 5)[0], queries)) == batch


def test_chinese_retrieval() -> None:
    retriever = bm25(CHINESE, cache=None)
    assert retriever.tokenizer.language == "zh"
    found = retriever.search(["青瓷的釉色是什么？", "大运河有多少公里", "transformer", "水稻"], 1)
    assert [ids(hits) for hits in found] == [["z1"], ["z2"], ["z3"], []]


def test_the_language_is_that_of_most_letters() -> None:
    assert bm25(BIRDS, cache=None).tokenizer.language == "en"
    assert bm25((*BIRDS, CHINESE[0]), cache=None).tokenizer.language == "en"
    assert bm25(CHINESE, language="en", cache=None).tokenizer.language == "en"


def test_a_passage_without_words_is_never_found() -> None:
    corpus = [Passage("a", "", ""), Passage("b", "", "fish"), Passage("c", "", "...")]
    assert ids(BM25.build(corpus).search(["fish"], 3)[0]) == ["b"]


def test_corpora_that_cannot_be_indexed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set dataset\.<name>\.corpus"):
        bm25([], cache=str(tmp_path))
    with pytest.raises(ValueError, match="no passage of the corpus has a word"):
        BM25.build([Passage("a", "", "the...")])
    with pytest.raises(ValueError, match="have the id 'p1'"):
        BM25.build([BIRDS[0], BIRDS[1], BIRDS[0]])


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.5), (math.inf, 0.5), (1.2, 1.1), (math.nan, 0.5), (1.2, math.nan)])
def test_parameters_out_of_range_are_refused(k1: float, b: float) -> None:
    with pytest.raises(ValueError, match="0 <= b <= 1"):
        BM25.build(BIRDS, k1=k1, b=b)


# on disk


def test_checksum_is_that_of_canonical_lines_in_order() -> None:
    line = '{"id":"z","title":"é","text":"a \\"b\\"\\n"}\n'
    assert corpus_checksum([Passage("z", "é", 'a "b"\n')]) == hashlib.sha256(line.encode()).hexdigest()
    assert corpus_checksum(BIRDS) != corpus_checksum(BIRDS[::-1])


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("corpus", [BIRDS, CHINESE], ids=["en", "zh"])
def test_a_loaded_index_is_the_saved_one(tmp_path: Path, corpus: tuple[Passage, ...], given: bool, mmap: bool) -> None:
    tokenizer = Tokenizer("zh" if corpus is CHINESE else "en", stop_words=False)
    built = BM25.build(corpus, k1=0.9, b=0.4, tokenizer=tokenizer)
    built.save(tmp_path / "index")
    loaded = BM25.load(tmp_path / "index", corpus if given else None, settings=built.settings, mmap=mmap)
    assert (tuple(loaded.passages), loaded.settings, loaded.tokenizer) == (corpus, built.settings, tokenizer)
    queries = ["water fish", "oaks", "青瓷", "大运河北京", "?"]
    assert loaded.search(queries, 3) == built.search(queries, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_loading_for_other_passages_or_settings_is_refused(tmp_path: Path) -> None:
    built = BM25.build(BIRDS)
    built.save(tmp_path / "index")
    with pytest.raises(ValueError, match=f"{corpus_checksum(BIRDS)}.*{corpus_checksum(BIRDS[:3])}"):
        BM25.load(tmp_path / "index", BIRDS[:3])
    other = BM25.build(BIRDS, k1=2.0).settings
    with pytest.raises(ValueError, match=r"'k1': 1\.2.*'k1': 2\.0"):
        BM25.load(tmp_path / "index", settings=other)


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    BM25.build(BIRDS).save(tmp_path / "index")
    meta = json.loads((tmp_path / "index" / "meta.json").read_text())
    meta["settings"]["versions"]["jieba"] = "0.1"
    (tmp_path / "index" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=r"'jieba': '0\.1'.*'jieba': '0\.42"):
        BM25.load(tmp_path / "index")


def test_saving_over_something_is_refused_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="remove it"):
        BM25.build(BIRDS).save(tmp_path / "index")
    assert [path.name for path in tmp_path.rglob("*")] == ["index", "mine"]


def test_the_cache_is_used_and_knows_corpus_and_settings(tmp_path: Path) -> None:
    cache = str(tmp_path / "deep" / "cache")
    first = bm25(BIRDS, cache=cache)
    [entry] = Path(cache).iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in entry.iterdir()}
    again = bm25(list(BIRDS), cache=cache)
    assert again.search(["water fish"], 3) == first.search(["water fish"], 3)
    assert {path.name: path.stat().st_mtime_ns for path in entry.iterdir()} == before
    bm25(BIRDS, cache=cache, k1=0.9)
    bm25(BIRDS, cache=cache, stemming=False)
    bm25(BIRDS[:3], cache=cache)
    assert len(list(Path(cache).iterdir())) == 4


def damages() -> dict[str, Callable[[Path], object]]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    return {
        "scores cut": lambda entry: (entry / "data.csc.index.npy").write_bytes(b"\x93NUMPY"),
        "one bit of the scores": lambda entry: flip(entry / "data.csc.index.npy"),
        "no vocabulary": lambda entry: (entry / "terms.txt").unlink(),
        "no meta": lambda entry: (entry / "meta.json").unlink(),
        "meta cut": lambda entry: (entry / "meta.json").write_text('{"corpus": "'),
        "meta empty": lambda entry: (entry / "meta.json").write_text("{}"),
        "meta a list": lambda entry: (entry / "meta.json").write_text("[1]"),
        "unknown setting": lambda entry: (entry / "meta.json").write_text(
            (entry / "meta.json").read_text().replace('"stemming"', '"stemmer"')
        ),
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages().keys())
def test_a_damaged_cache_entry_is_rebuilt_with_a_warning(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    expected = bm25(BIRDS, cache=str(tmp_path)).search(["water fish"], 3)
    [entry] = tmp_path.iterdir()
    good = {path.name: path.read_bytes() for path in entry.iterdir()}
    damage(entry)
    with pytest.warns(RuntimeWarning, match="damaged and is built again"):
        assert bm25(BIRDS, cache=str(tmp_path)).search(["water fish"], 3) == expected
    assert {path.name: path.read_bytes() for path in entry.iterdir()} == good
    assert list(tmp_path.iterdir()) == [entry]


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


def test_the_bytes_on_disk_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    for seed in (1, 2):
        environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed), "PATH": ""}
        arguments = [sys.executable, "-c", PROCESS, str(tmp_path / str(seed))]
        subprocess.run(arguments, env=environment, input="\n", capture_output=True, text=True, check=True)
    first, second = (
        {str(path.relative_to(tmp_path / seed)): path.read_bytes() for path in (tmp_path / seed).rglob("*.*")}
        for seed in ("1", "2")
    )
    assert len(first) >= 6
    assert first == second


def test_a_vocabulary_on_disk_is_the_dictionary_it_was_made_of(tmp_path: Path) -> None:
    draw = random.Random(7)
    terms = dict.fromkeys(
        "".join(draw.choices("aab\u00e9\u4e2d\U0001f600\x00", k=draw.randint(1, 5))) for _ in range(3000)
    )
    numbers = {term: number for number, term in enumerate(terms)}
    write_vocabulary(tmp_path, numbers.items())
    vocabulary = Vocabulary(tmp_path)
    assert dict(vocabulary.items()) == numbers
    assert {term: vocabulary.get(term) for term in numbers} == numbers
    assert [vocabulary.get(term) for term in ("", "b" * 9, "A", "\uffff")] == [None] * 4
