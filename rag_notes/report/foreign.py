"""Answers of other programs as a run: FlashRAG's, the authors' of Adaptive-Note and DeepNote, Inspect's logs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rag_notes.events import Counts
from rag_notes.extras import needed
from rag_notes.metrics.answer import normalize_answer
from rag_notes.metrics.score import score
from rag_notes.running.records import IMPORTED, Condition, DatasetInfo, MethodInfo, Progress, Run, RunInfo, Sample
from rag_notes.types import InputError, Language, Question


class _Answer(NamedTuple):
    question: str
    gold: tuple[str, ...]
    text: str


def read_foreign(path: str | Path, beside: Run | None = None) -> Run:
    """Read a file of answers as a run of one method, `flashrag`, `authors` or `inspect`, marked by our metrics.

    FlashRAG writes `intermediate_data.json`, the authors a line a question with `output` and a last line of scores,
    Inspect `.eval` or `.json` logs. With `beside` each answer belongs to that run's question of the same normalised
    text; one whose text there is none of, or that several have on either side, keeps an id of its own that says so, and
    so stands among what a comparison leaves out. Raises InputError naming file, entry and field of what does not fit.
    """
    path = Path(path)
    form, answers = _read(path)
    known: dict[str, list[Question]] = {}
    for question in [] if beside is None else beside.questions:
        known.setdefault(_key(question.question, question.language), []).append(question)
    languages: set[Language] = {question.language for of in known.values() for question in of} or {"en"}
    texts = [next((key for lang in languages if (key := _key(a.question, lang)) in known), a.question) for a in answers]
    samples = []
    for number, (answer, text) in enumerate(zip(answers, texts, strict=True), 1):
        ours = known.get(text, [])
        if len(ours) == 1 and texts.count(text) == 1:
            question = ours[0]
        else:
            why = "" if beside is None else " (no question has this text)" if not ours else " (several have this text)"
            question = Question(f"{path.name}:{number}{why}", answer.question, answer.gold)
        metrics = score(question, answer.text, [])
        samples.append(Sample(form, question, answer.text, None, metrics, Counts(), []))
    info = RunInfo(
        dataset=DatasetInfo(path.stem, len(samples), ""),
        condition=Condition(),
        methods={form: MethodInfo(form, {}, "")},
        retriever={},
        llm={"model": ""},
        prompt_set="",
        prompts={},
        status=IMPORTED,
        samples=Progress(len(samples), len(samples)),
        endpoint=path.name,
    )
    if beside is not None:
        info = replace(info, dataset=beside.info.dataset, condition=beside.info.condition)
    return Run(info, samples)


def _key(text: str, language: Language) -> str:
    return normalize_answer(text, language)


def _read(path: Path) -> tuple[str, list[_Answer]]:
    """The name of the form and the answers of a file."""
    if path.suffix == ".eval":
        return "inspect", _inspect(path)
    try:
        text = path.read_text(encoding="utf-8")
        read = [json.loads(line) for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else None
        entries = json.loads(text) if read is None else read
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; name a run's folder or a file of answers") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON, or with .jsonl not JSON lines ({error}); name a file of answers") from None
    if isinstance(entries, dict) and {"eval", "version"} <= entries.keys():
        return "inspect", _inspect(path)
    if not isinstance(entries, list) or not entries:
        raise InputError(
            f"{path}: expected FlashRAG's intermediate_data.json (a list of items), the authors' .jsonl, or a log of "
            "Inspect (.eval, .json)"
        )
    if path.suffix == ".jsonl":
        if isinstance(entries[-1], dict) and "output" not in entries[-1]:
            entries.pop()  # the scores of all
        return "authors", [_of_authors(path, number, entry) for number, entry in enumerate(entries, 1)]
    return "flashrag", [_of_flashrag(path, number, entry) for number, entry in enumerate(entries, 1)]


def _of_flashrag(path: Path, number: int, entry: Any) -> _Answer:
    where = f"{path}, item {number}"
    output = _field(where, entry, "output", Mapping)
    gold = _texts(where, "golden_answers", _field(where, entry, "golden_answers", list))
    text = _field(where, output, "pred", str, "output.pred")
    return _Answer(_field(where, entry, "question", str), gold, text)


def _of_authors(path: Path, number: int, entry: Any) -> _Answer:
    where = f"{path}, line {number}"
    name = "question" if isinstance(entry, Mapping) and "question" in entry else "query"
    given = _field(where, entry, "answer", (str, list))
    gold = _texts(where, "answer", given if isinstance(given, list) else [given])
    question = _field(where, entry, name, str, "question")
    return _Answer(question, gold, _field(where, entry, "output", str))


def _inspect(path: Path) -> list[_Answer]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a log of Inspect")
    log = needed("inspect_ai.log", "inspect").read_eval_log(str(path))
    answers = []
    for sample in log.samples or []:
        asked = sample.input if isinstance(sample.input, str) else sample.input[-1].text
        gold = (sample.target,) if isinstance(sample.target, str) else tuple(sample.target)
        if sample.error is None:
            answers.append(_Answer(asked, gold, sample.output.completion))
    if not answers:
        raise InputError(f"{path}: a log without a sample that has an answer; name that of a finished evaluation")
    return answers


def _field(where: str, entry: Any, name: str, kind: Any, called: str = "") -> Any:
    if not isinstance(entry, Mapping) or name not in entry:
        raise InputError(f"{where}: field {called or name} is missing")
    if not isinstance(entry[name], kind):
        raise InputError(f"{where}: field {called or name} is {str(entry[name])[:40]!r}, which is of another type")
    return entry[name]


def _texts(where: str, name: str, values: Iterable[Any]) -> tuple[str, ...]:
    flat = [text for value in values for text in (value if isinstance(value, list) else [value])]
    if not all(isinstance(text, str) for text in flat):
        raise InputError(f"{where}: field {name} holds something that is no text")
    return tuple(flat)
