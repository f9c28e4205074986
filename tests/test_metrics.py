"""Marks of answers: cases by hand, SQuAD's rules implemented again, and rouge-score."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rouge_score import rouge_scorer

from rag_notes.metrics.answer import (
    REJECTION_PHRASES,
    REJECTION_WORDS,
    accuracy,
    accuracy_raw,
    exact_match,
    f1,
    is_rejection,
    normalize_answer,
    read_yes_no,
    score_answer,
    str_em,
    yes_no_accuracy,
)
from rag_notes.types import Language, QAPair, Question

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
WORDS = ["The", "a", "an", "the", "Eiffel", "Tower,", "tower", "U.S.", "(1999)", "1999", "café", "-", "'s", "theatre"]


def reference_tokens(text: str) -> list[str]:
    """SQuAD's normalisation word by word instead of by patterns: the articles are found by splitting at spaces."""
    stripped = "".join("" if char in PUNCTUATION else char for char in text.lower())
    return [word for word in stripped.split() if word not in {"a", "an", "the"}]


def reference_f1(pred: str, gold: str) -> float:
    """F1 from precision and recall, the overlap taken by crossing off one gold token a match."""
    gold_tokens, pred_tokens = reference_tokens(gold), reference_tokens(pred)
    left = list(gold_tokens)
    for token in pred_tokens:
        if token in left:
            left.remove(token)
    same = len(gold_tokens) - len(left)
    if same == 0:
        return 0.0
    precision, recall = same / len(pred_tokens), same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def random_pairs(count: int, seed: int) -> Iterator[tuple[str, str]]:
    rng = random.Random(seed)
    for _ in range(count):
        pred, gold = (" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) for _ in range(2))
        yield pred, gold


class SpaceTokenizer:
    def tokenize(self, text: str) -> list[str]:
        return text.split()


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("  The  Eiffel-Tower, (Paris)! ", "en", "eiffeltower paris"),
        ("a theatre an anthem", "en", "theatre anthem"),  # articles go as words, not as letters
        ("A.B.", "en", "ab"),  # punctuation goes before articles
        ("It’s “big”", "en", "it’s “big”"),  # SQuAD drops ASCII punctuation only
        ("“启明行动”，（2023年）！", "zh", "启明行动2023年"),
        ("约翰·史密斯《红楼梦》…", "zh", "约翰史密斯红楼梦"),
        ("Ａ＋Ｂ＝￥５％～", "zh", "ａｂ￥５"),  # full-width signs go, a currency sign is no punctuation
        ("，。", "en", "，。"),
    ],
)
def test_normalize_answer(text: str, language: Language, expected: str) -> None:
    assert normalize_answer(text, language) == expected


def test_short_answer_metrics_agree_with_a_reimplementation_of_squad_and_with_rouge_1() -> None:
    scores: Counter[str] = Counter()
    rouge = rouge_scorer.RougeScorer(["rouge1"], tokenizer=SpaceTokenizer())
    for pred, gold in random_pairs(3000, seed=1):
        p, g = reference_tokens(pred), reference_tokens(gold)
        if not g:
            continue
        em, token_f1 = exact_match(pred, [gold]), f1(pred, [gold])
        assert em == float(p == g)
        assert token_f1 == pytest.approx(reference_f1(pred, gold), abs=1e-12)
        assert token_f1 == pytest.approx(rouge.score(" ".join(g), " ".join(p))["rouge1"].fmeasure, abs=1e-12)
        assert accuracy(pred, [gold]) == float(" ".join(g) in " ".join(p))
        assert f1(pred, ["unrelated", gold]) == max(token_f1, f1(pred, ["unrelated"]))
        scores["em"] += em == 1
        scores["partial"] += 0 < token_f1 < 1
    assert (scores["em"] > 20, scores["partial"] > 500) == (True, True)  # the sample holds both kinds


def test_f1_by_hand() -> None:
    # prediction: barack obama senior (3 tokens); gold: barack obama (2); 2 shared: 2*2/(3+2) = 0.8
    assert f1("Barack Obama Senior", ["Barack Obama"]) == pytest.approx(0.8)
    # "new" stands twice in the gold and once in the prediction, so it is shared once: 2*2/(2+3) = 0.8
    assert f1("new york", ["new new york"]) == pytest.approx(0.8)
    # best over golds: 2*1/(1+2) = 2/3 against "Paris France", 0 against "Rome"
    assert f1("Paris", ["Rome", "Paris, France"]) == pytest.approx(2 / 3)
    assert f1("", ["Paris"]) == 0
    # Chinese: 清华大学 / 在 / 北京市 against 北京市: 2*1/(3+1); single characters would give 2*3/(8+3)
    assert f1("清华大学在北京市。", ["北京市"], language="zh") == pytest.approx(2 * 1 / (3 + 1))
    assert f1("《红楼梦》", ["红楼梦"], language="zh") == 1
    assert f1("红楼梦。", ["红楼梦"], language="en") == 0  # one token a string, and the full stop stays


def test_accuracy_normalised_and_raw_differ() -> None:
    assert (accuracy("It was the U.S.A.", ["USA"]), accuracy_raw("It was the U.S.A.", ["USA"])) == (1, 0)
    assert (accuracy("in the usa now", ["U.S.A."]), accuracy_raw("in the usa now", ["U.S.A."])) == (1, 0)
    assert (accuracy("Beat it", ["Eat"]), accuracy_raw("BEAT it", ["Eat"])) == (1, 1)  # characters, not words
    assert (accuracy("Rome", ["Paris"]), accuracy_raw("Rome", ["Paris"])) == (0, 0)
    assert accuracy("由《新华社》报道", ["新华社。"], language="zh") == 1


@pytest.mark.parametrize("metric", [exact_match, f1, accuracy])
def test_gold_of_articles_only_is_not_matched_by_everything(metric: Callable[[str, Sequence[str]], float]) -> None:
    assert [metric(pred, ["The The"]) for pred in ("", "Depeche Mode", "the the")] == [0, 0, 1]


@pytest.mark.parametrize("metric", [exact_match, f1, accuracy, accuracy_raw, yes_no_accuracy])
def test_unusable_golds_are_refused(metric: Callable[[str, Sequence[str]], float]) -> None:
    for golds, message in (([], "no gold answers"), (["yes", " "], "blank gold answer"), ("yes", "put it in a tuple")):
        with pytest.raises((ValueError, TypeError), match=message):
            metric("x", golds)


READINGS: dict[bool | None, list[str]] = {
    True: [
        # the start decides
        *("Yes", "**Yes**, because it is.", "Yes. There is no other reading.", "Final answer: Yes"),
        *("The city is older, so yes.", "是", "是的，他是。", "对的", "正确。", "答案是肯定的"),
    ],
    False: [
        *("no.", "No, although some say yes", "The answer is: no", "不是", "他不是医生", "不对。", "不，他没有去。"),
        *("否", "答案：否", "答案是否定的"),
    ],
    None: [
        *(
            "Perhaps yes, perhaps no",
            "Yes or no",
            "yes/no",
            "Nobody knows yesterday's notes",
            "No information is given.",
        ),
        *(
            "No answer",
            "No evidence. Yes",
            "It was painting No. 5",
            "Unknown",
            "",
            "是否如此？",
            "是不是他",
            "对于这个问题",
        ),
        *("但是", "无法确定是哪一个", "未知"),
    ],
}


@pytest.mark.parametrize(("text", "reading"), [(text, reading) for reading in READINGS for text in READINGS[reading]])
def test_yes_and_no_are_read_and_never_guessed(text: str, reading: bool | None) -> None:
    assert read_yes_no(text) is reading


def test_yes_no_accuracy() -> None:
    answers = (("Yes, he did.", "yes"), ("No.", "yes"), ("Paris", "no"), ("不是", "no"))  # neither is wrong
    assert [yes_no_accuracy(answer, [gold]) for answer, gold in answers] == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="'Paris' is neither yes nor no"):
        yes_no_accuracy("yes", ["Paris"])


ITALY, SPAIN = QAPair("When in Italy?", ("2001",)), QAPair("When in Spain?", ("2003",))
PAIRS = (QAPair("When in France?", ("14 July 1999", "July 1999")), ITALY, SPAIN)


def test_str_em_by_hand() -> None:
    two = "It came out in July 1999 in France and in 2001 in Italy."
    assert str_em(two, PAIRS) == pytest.approx(2 / 3)
    assert str_em(two + "\nSpain had it in 2003.", PAIRS) == 1
    # with its citations normalised but not taken out, the text would read "july 12 1999"
    assert str_em("July [1][2] 1999.", PAIRS[:1]) == 1
    assert str_em("In Italy it was never shown [2001].", PAIRS[1:2]) == 0  # a citation's number is no answer
    assert str_em("Italy [1, 3]: 2001", PAIRS[1:2]) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(*REJECTION_WORDS, *REJECTION_PHRASES, "Unknown.", "The answer is unknown.", "Answer: unknown"),
        *("It CANNOT  be determined from the passages.", "I don’t know", "文中未提及该人物。"),
    ],
)
def test_rejections(text: str) -> None:
    assert is_rejection(text)


@pytest.mark.parametrize("text", ["", "Paris", "no", "Unknown Mortal Orchestra", "The Tomb of the Unknown Soldier"])
def test_answers_are_no_rejections(text: str) -> None:
    assert not is_rejection(text)


def test_score_answer_by_task() -> None:
    short = Question("q1", "Who?", answers=("Barack Obama", "Obama"))
    blank = {"empty": 1, "em": 0, "f1": 0, "acc": 0, "acc_raw": 0, "rejected": 0}
    right = blank | {"empty": 0, "f1": pytest.approx(0.8), "acc": 1, "acc_raw": 1}
    assert (score_answer(short, "President Barack Obama"), score_answer(short, " ")) == (right, blank)
    assert score_answer(short, "unknown")["rejected"] == 1

    unanswerable = Question("q2", "Who?")
    assert score_answer(unanswerable, "Not mentioned") == {"empty": 0, "reject": 1, "rejected": 1}
    assert score_answer(unanswerable, "Obama") == {"empty": 0, "reject": 0, "rejected": 0}

    yes_no = Question("q3", "Is it?", answers=("no",), task="yes_no")
    assert score_answer(yes_no, "No, never.") == {"empty": 0, "yes_no_acc": 1, "yes_no_unread": 0}
    assert score_answer(yes_no, "Yes") == {"empty": 0, "yes_no_acc": 0, "yes_no_unread": 0}
    assert score_answer(yes_no, "") == {"empty": 1, "yes_no_acc": 0, "yes_no_unread": 1}

    long_form = Question("q4", "When?", qa_pairs=PAIRS, task="long_form")
    assert score_answer(long_form, "1999\n2001 [1], 2003") == {"empty": 0, "str_em": pytest.approx(2 / 3), "str_hit": 0}
    assert score_answer(long_form, "July 1999, 2001, 2003") == {"empty": 0, "str_em": 1, "str_hit": 1}

    news = Question("q5", "写新闻", task="news", language="zh")
    assert score_answer(news, "新闻") == {"empty": 0}
    marked = Question("q6", "哪里？", answers=("北京市",), task="news", language="zh")
    assert score_answer(marked, "“北京市”。") == {"empty": 0, "em": 1, "f1": 1, "acc": 1}


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (Question("q9", "Is it?", task="yes_no"), "no gold answers"),
        (Question("q9", "Is it?", answers=("maybe",), task="yes_no"), "neither yes nor no"),
        (Question("q9", "When?", task="long_form"), "no question pairs"),
        (Question("q9", "Who?", answers=("",)), "blank gold answer"),
    ],
)
def test_score_answer_names_the_question_it_cannot_mark(question: Question, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"question 'q9' \(task {question.task}\): .*{problem}"):
        score_answer(question, "x")


def test_chinese_words_are_cut_without_noise_or_a_shared_cache(tmp_path: Path) -> None:
    code = "from rag_notes.metrics.answer import f1; print(f1('北京市。', ['在北京市'], language='zh'))"
    environment = {"TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    settings: dict[str, Any] = {"cwd": Path(__file__).parents[1], "env": environment, "capture_output": True}
    run = subprocess.run([sys.executable, "-c", code], check=True, **settings)
    assert float(run.stdout) == pytest.approx(2 / 3)  # 北京市 against 在 / 北京市
    assert (run.stderr, list(tmp_path.iterdir())) == (b"", [])
