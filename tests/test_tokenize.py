"""Terms of queries and passages, as Lucene makes them."""

import subprocess
import sys
from pathlib import Path

import pytest

from rag_notes.retrieval.tokenize import Tokenizer


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


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("text", ["", "  \n", "?!…。"])
def test_text_without_a_word_has_no_terms(language: str, text: str) -> None:
    assert Tokenizer(language)(text) == []  # type: ignore[arg-type]


def test_the_chinese_segmenter_is_silent_and_writes_nothing(tmp_path: Path) -> None:
    code = "from rag_notes.retrieval.tokenize import Tokenizer; assert Tokenizer('zh')('大运河连接北京与杭州')"
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""}
    # -W ignore: jieba's source has escapes that the compiler warns of, once, where no compiled file is kept.
    arguments = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr, list(tmp_path.iterdir())) == (0, "", "", [])
