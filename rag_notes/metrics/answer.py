"""Marks of an answer against its gold answers; every score lies between 0 and 1.

Pure functions of strings. Where a function takes `golds`, the best of the gold answers counts; no gold answer, or a
blank one, is a ValueError, and a bare string in their place a TypeError.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import jieba

from rag_notes.types import InputError, Language, QAPair, Question

REJECTION_WORDS = (
    *("unknown", "unanswerable", "no answer", "noanswer", "not answerable", "n/a"),
    *("不清楚", "不确定"),
)
"""Answers that decline when they are the whole answer; inside a longer one they may well be part of a name."""

REJECTION_PHRASES = (
    *("is unknown", "are unknown", "remains unknown", "not known", "not mentioned", "not specified", "not stated"),
    *("not provided", "not given", "not available", "not enough information", "insufficient information"),
    *("no information", "no mention", "no evidence", "cannot be determined", "can't be determined"),
    *("could not be determined", "cannot be answered", "can't be answered", "cannot determine", "can't determine"),
    *("cannot answer", "can't answer", "unable to determine", "unable to answer", "impossible to determine"),
    *("do not mention", "don't mention", "does not mention", "doesn't mention", "do not provide", "does not provide"),
    *("do not specify", "does not specify", "do not know", "don't know"),
    *("未知", "不知道", "未提及", "没有提到", "没有提及", "没有相关信息", "信息不足"),
    *("无法确定", "不能确定", "无法判断", "无法推断", "无法回答", "无法得知"),
)
"""Phrases that decline wherever they stand in an answer."""

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_DROP_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROP_FULL_WIDTH_SYMBOLS = str.maketrans("", "", "".join(chr(ord(char) + 0xFEE0) for char in string.punctuation))
_CITATION = re.compile(r"\s*\[\d+(?:\s*,\s*\d+)*\]")
_HAN = re.compile(r"[\u4e00-\u9fff]")

_POLARITY = {"yes": True, "是": True, "对": True, "正确": True, "肯定": True}
_POLARITY |= {"no": False, "否": False, "否定": False, "错误": False}
_ANSWER_LEAD = re.compile(
    r"^\W*(?:(?:so|thus|therefore|hence)\W+)?(?:the\s+)?(?:final\s+)?answer(?:\s+is\b)?\W*|^\W*(?:最终)?答案(?:是|为)?\W*",
)
# Naming both sides asks the question again instead of answering it.
_BOTH_SIDES = re.compile(
    r"\byes(?:\s*/\s*|\s+(?:or\s+|and\s+)?)no\b|\bno(?:\s*/\s*|\s+(?:or\s+|and\s+)?)yes\b"
    r"|是不是|对不对|是或不是|是或否|是/否|是否",
)
_NEGATED_YES = re.compile(r"不是|不对|不正确|并非|不(?=\W|$)")


def normalize_answer(text: str, language: Language = "en") -> str:
    """Return the text in lower case without punctuation, without a/an/the and with single spaces.

    English drops ASCII punctuation only, as SQuAD's scorer does (Rajpurkar et al., 2016, section 6.1), so that a curly
    quote stays; Chinese also drops full-width and every other Unicode punctuation.
    """
    plain = text.lower().translate(_DROP_ASCII_PUNCTUATION)
    if language == "zh":
        plain = "".join(char for char in plain if not unicodedata.category(char).startswith("P"))
        plain = plain.translate(_DROP_FULL_WIDTH_SYMBOLS)
    return " ".join(_ARTICLE.sub(" ", plain).split())


def tokens(text: str, language: Language = "en") -> list[str]:
    """Return the tokens of a text: what spaces separate; in Chinese, jieba's."""
    return [token for token in _segmenter().cut(text) if not token.isspace()] if language == "zh" else text.split()


def exact_match(pred: str, golds: Sequence[str], *, language: Language = "en") -> float:
    """Return 1.0 if the normalised prediction equals a normalised gold answer, else 0.0 (SQuAD).

    A gold answer of nothing but articles and punctuation ("The The") is compared in raw lower case instead.
    """
    _check_golds(golds)
    return float(any(_equal(pred, gold, language) for gold in golds))


def f1(pred: str, golds: Sequence[str], *, language: Language = "en") -> float:
    """Return the best F1 of the tokens that the normalised prediction shares with a gold answer (SQuAD)."""
    _check_golds(golds)
    return max(_f1_one(pred, gold, language) for gold in golds)


def accuracy(pred: str, golds: Sequence[str], *, language: Language = "en") -> float:
    """Return 1.0 if the normalised prediction contains a normalised gold answer, else 0.0.

    Containment is that of characters, as in the field's toolkits: "no" is contained in "unknown".
    """
    _check_golds(golds)
    normal_golds = [normalize_answer(gold, language) for gold in golds]
    is_contained = any(normal and normal in normalize_answer(pred, language) for normal in normal_golds)
    return float(is_contained or any(_equal(pred, gold, language) for gold in golds))


def accuracy_raw(pred: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the prediction in lower case contains a gold answer in lower case, nothing else normalised."""
    _check_golds(golds)
    return float(any(gold.lower() in pred.lower() for gold in golds))


def read_yes_no(text: str) -> bool | None:
    """Read yes (True) or no (False) from an answer in English or Chinese; None if it says neither or both.

    The answer's start decides ("Yes, ...", "The answer is: no", "不是，..."). Failing that, an answer that does not
    decline is searched for yes and no, and counts if only one of the two occurs. "No information" and the other
    `REJECTION_PHRASES` are not read as no, nor is "no answer"; "yes or no" and 是否 are read as neither.
    """
    if _is_rejection_word(text):
        return None
    # What is taken out leaves a neutral word behind: the word after it is not the answer's start.
    plain = _plain(_NEGATED_YES.sub(" 否 ", _BOTH_SIDES.sub(" whether ", _without_lead(text))))
    readings = _polarities(_rejection_phrases().sub(" declined ", plain))
    if readings and readings[0] is not None:
        return readings[0]
    polarities = {reading for reading in readings if reading is not None}
    return polarities.pop() if len(polarities) == 1 and not is_rejection(text) else None


def yes_no_accuracy(pred: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the yes or no read from the prediction is that of a gold answer, else 0.0 (also if none was read).

    Raises ValueError for a gold answer that is neither yes nor no.
    """
    _check_golds(golds)
    gold_readings = [read_yes_no(gold) for gold in golds]
    if None in gold_readings:
        unread = golds[gold_readings.index(None)]
        raise InputError(f"gold answer {unread!r} is neither yes nor no; write it as one of them")
    return float(read_yes_no(pred) in gold_readings)


def str_em(pred: str, qa_pairs: Sequence[QAPair], *, language: Language = "en") -> float:
    """Return the share of question pairs of which the prediction, without citations, contains a short answer.

    Source: ALCE (Gao et al., 2023), correctness on ASQA. Raises ValueError if there are no pairs.
    """
    if not qa_pairs:
        raise InputError("no question pairs; str_em needs at least one with its short answers")
    text = _CITATION.sub("", pred)
    return sum(accuracy(text, pair.answers, language=language) for pair in qa_pairs) / len(qa_pairs)


def is_rejection(text: str) -> bool:
    """Tell whether a short answer declines: it is one of `REJECTION_WORDS` or contains one of `REJECTION_PHRASES`.

    A long answer that declines in part ("Paris; the year is not mentioned") counts too, and a blank one does not.
    """
    return _is_rejection_word(text) or bool(_rejection_phrases().search(_plain(text)))


def score_answer(question: Question, prediction: str) -> dict[str, float]:
    """Return the metrics that apply to the question's task, by name.

    Every task: `empty` (1.0 for a blank prediction). short: `em`, `f1`, `acc` (normalised containment), `acc_raw` and
    `rejected`; without gold answers (unanswerable) `reject` and `rejected`. yes_no: `yes_no_acc` and `yes_no_unread`.
    long_form: `str_em`, and `str_hit`, 1.0 where every pair has its answer. news: `em`, `f1`, `acc` if it has gold
    answers. Raises ValueError naming the question if its gold answers do not fit its task.
    """
    scores = {"empty": float(not prediction.strip())}
    language, golds = question.language, question.answers
    try:
        if question.task in ("short", "news") and golds:
            scores["em"] = exact_match(prediction, golds, language=language)
            scores["f1"] = f1(prediction, golds, language=language)
            scores["acc"] = accuracy(prediction, golds, language=language)
        match question.task:
            case "short":
                rejected = float(is_rejection(prediction))
                scores |= {"acc_raw": accuracy_raw(prediction, golds)} if golds else {"reject": rejected}
                scores["rejected"] = rejected
            case "yes_no":
                scores["yes_no_acc"] = yes_no_accuracy(prediction, golds)
                scores["yes_no_unread"] = float(read_yes_no(prediction) is None)
            case "long_form":
                scores["str_em"] = str_em(prediction, question.qa_pairs, language=language)
                scores["str_hit"] = float(scores["str_em"] == 1)
    except ValueError as error:
        raise InputError(f"question {question.id!r} (task {question.task}): {error}") from error
    return scores


def _check_golds(golds: Sequence[str]) -> None:
    if isinstance(golds, str):
        raise TypeError(f"gold answers must be a sequence of strings, not the string {golds!r}; put it in a tuple")
    if not golds:
        raise InputError("no gold answers; give at least one")
    if not all(gold.strip() for gold in golds):
        raise InputError(f"blank gold answer among {tuple(golds)!r}; drop it from the data set")


def _equal(pred: str, gold: str, language: Language) -> bool:
    if normal_gold := normalize_answer(gold, language):
        return normalize_answer(pred, language) == normal_gold
    return pred.strip().lower() == gold.strip().lower()


def _f1_one(pred: str, gold: str, language: Language) -> float:
    if _equal(pred, gold, language):
        return 1.0
    pred_tokens, gold_tokens = (tokens(normalize_answer(text, language), language) for text in (pred, gold))
    shared = (Counter(pred_tokens) & Counter(gold_tokens)).total()
    return 2 * shared / (len(pred_tokens) + len(gold_tokens)) if shared else 0.0


@cache
def _segmenter() -> jieba.Tokenizer:
    # jieba's own start-up logs to stderr and reads and writes a marshal file of fixed name in the shared temporary
    # folder, where anyone may have put it; filling in the frequencies here does neither.
    segmenter = jieba.Tokenizer()
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


def _plain(text: str) -> str:
    """Lower case, apostrophes closed up ("can't" is "cant"), all else that is no letter or digit a space."""
    return " ".join(re.sub(r"[\W_]+", " ", re.sub(r"['’]", "", text.lower())).split())


def _without_lead(text: str) -> str:
    return _ANSWER_LEAD.sub("", text.lower(), count=1)


def _is_rejection_word(text: str) -> bool:
    return _plain(_without_lead(text)) in {_plain(word) for word in REJECTION_WORDS}


@cache
def _rejection_phrases() -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(_plain(phrase) for phrase in REJECTION_PHRASES)})(?![a-z0-9])")


def _polarities(plain: str) -> list[bool | None]:
    """Read every word of a text as `_plain` left it: True for yes, False for no, None for any other word."""
    words = pairwise([*tokens(plain, "zh" if _HAN.search(plain) else "en"), ""])
    is_number = re.compile(r"no \d+").fullmatch  # "No. 5"
    return [None if is_number(f"{word} {following}") else _POLARITY.get(word) for word, following in words]
