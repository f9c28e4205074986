"""Runs without a word of their data set: what may be given away where the questions and passages may not."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rag_notes.events import Ask, Decision, Event, Note, Search
from rag_notes.running.quest_scores import with_quest_scores
from rag_notes.running.records import Progress, RecordError, Run, Sample, SampleError
from rag_notes.running.run_files import PACKED, SAMPLES, load_run, read_info, write_info, write_samples
from rag_notes.types import InputError, Question

SHORT = 60
"""Characters up to which an answer is published as it is."""

VERDICTS = ("useful", "useless", "true", "false")
"""What a response may say, with the braces and keys around it, to be published as it is."""

_WORDS = 3  # up to which the outcome of a decision is a label, and no text


def publish(
    folder: str | Path, into: str | Path, methods: Sequence[str] | None = None, annotations: Sequence[str | Path] = ()
) -> Path:
    """Write a run without text to a folder of the same name below `into`; returns it.

    What stays: ids of questions, methods, settings, metrics, counts, decisions, seconds, tokens, keys of requests,
    verdicts in a word (`VERDICTS`), and answers of up to `SHORT` characters. Of every other text there is a hash, see
    `digest`, of ids of passages too, so that found and gold ones can be told apart. With `methods` their part alone is
    written, and the usage stays that of the run. With `annotations`, runs of RAGQuestEval, the answers have their
    scores, which nobody could count again without text. Raises RecordError as `rag_notes.running.run_files.load_run`,
    and for a run that is not finished or lacks a method; InputError where others of its methods are published there
    already, and where an annotation is of other answers.
    """
    run = _finished(folder)
    for annotation in annotations:
        run = _annotated(folder, run, annotation)
    if methods:
        if lacking := [name for name in methods if name not in run.methods]:
            raise RecordError(f"{folder}: has no method {lacking[0]}; there is {', '.join(run.methods)}")
        run = _part(run, methods)
    target = Path(into) / Path(folder).resolve().name
    if (target / "run.json").exists() and (lost := sorted(set(read_info(target).methods) - set(run.methods))):
        raise InputError(f"{target}: holds {', '.join(lost)}, too; name all methods at once, or delete it first")
    target.mkdir(parents=True, exist_ok=True)
    write_samples(target / PACKED, map(without_text, run.samples))
    (target / SAMPLES).unlink(missing_ok=True)  # as earlier versions published it
    # Paths and addresses are the user's own.
    write_info(target, replace(run.info, overrides=[], endpoint="", published=True))
    return target


def _finished(folder: str | Path) -> Run:
    run = load_run(folder)
    if not run.info.finished:
        raise RecordError(f"{folder}: is not finished ({run.info.status}); the command that began it finishes it")
    return run


def _annotated(folder: str | Path, run: Run, annotation: str | Path) -> Run:
    scored = with_quest_scores({"run": run, "annotation": _finished(annotation)})["run"]
    if scored is run:
        raise InputError(f"{annotation}: has RAGQuestEval's scores of other answers than those of {folder}")
    return scored


def _part(run: Run, methods: Sequence[str]) -> Run:
    part = run.only(methods)
    errors = sum(sample.error is not None for sample in part.samples)
    done = Progress(len(part.samples), len(part.samples), errors)
    seconds = {name: part.info.seconds[name] for name in methods if name in part.info.seconds}
    return replace(part, info=replace(part.info, samples=done, seconds=seconds))


def without_text(sample: Sample) -> Sample:
    """A sample as it is published."""
    asked = sample.question
    error = sample.error and SampleError(sample.error.kind, "(not published)")
    return replace(
        sample,
        question=Question(
            asked.id,
            "",
            gold_ids=tuple(map(digest, asked.gold_ids)),
            task=asked.task,
            type=asked.type,
            hops=asked.hops,
            language=asked.language,
        ),
        answer=sample.answer if len(sample.answer) <= SHORT else digest(sample.answer),
        error=error,
        trace=[_without_text(event) for event in sample.trace],
    )


def digest(text: str) -> str:
    """`sha256:` and the first 16 hexadecimal digits of a text's hash; what has this form stays as it is."""
    if re.fullmatch(r"sha256:[0-9a-f]{16}", text):
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def check(run: Run, folder: str | Path) -> Counter[tuple[str, str]]:
    """Set a run's answers beside published ones of the same questions and methods.

    Returns how many by method and result: `same`, `other answer`, `other calls` (the same answer, by other requests or
    responses), `not published`, and `not run`. Raises RecordError as `rag_notes.running.run_files.load_run`.
    """
    published = {sample.key: sample for sample in load_run(folder).samples}
    mine = {sample.key: without_text(sample) for sample in run.samples}
    return Counter(
        (key[0], _compared(mine.get(key), published.get(key))) for key in [*published, *(mine.keys() - published)]
    )


def _compared(mine: Sample | None, published: Sample | None) -> str:
    if mine is None or published is None:
        return "not published" if published is None else "not run"
    if mine.answer != published.answer or mine.error != published.error:
        return "other answer"
    return "same" if _calls(mine.trace) == _calls(published.trace) else "other calls"


def _calls(trace: Sequence[Event]) -> list[tuple[str, str | None]]:
    return [(event.key, event.response) for event in trace if isinstance(event, Ask)]


def _shown(response: str | None) -> str | None:
    """A response as it is published: a verdict in a word, its hash otherwise."""
    if response is None:
        return None
    words = re.findall(r"\w+", response.casefold())
    verdict = words and words[-1] in VERDICTS and set(words[:-1]) <= {"result", "status"}
    return response if verdict else digest(response)


def _without_text(event: Event) -> Event:
    match event:
        case Ask():
            return replace(event, prompt="", response=_shown(event.response), key=event.key[:16], logprobs=None)
        case Search():
            hits = [replace(hit, id=digest(hit.id), title="", text="") for hit in event.hits]
            return replace(event, query=digest(event.query), hits=hits)
        case Note():
            return replace(event, text=digest(event.text))
        case Decision() if len(event.outcome.split()) > _WORDS:
            return replace(event, outcome=digest(event.outcome))
    return event
