"""Runs without the text of their data set, as a frame: what may be given away where questions and passages may not."""

import hashlib
import io
import lzma
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from rag_notes.events import Ask, Counts, Decision, Event, Found, Note, ParseFailure, Search, answered
from rag_notes.files import SHIPPED, write_atomically
from rag_notes.running.quest_scores import with_quest_scores
from rag_notes.running.records import Progress, Run, RunInfo, load_run
from rag_notes.running.samples import AGAIN, RecordError, Sample, SampleError
from rag_notes.types import InputError, Question

PUBLISHED = SHIPPED / "data" / "results"
"""The folder of the runs that come with the project: a table a data set, and `runs.json` with the settings."""

SHORT = 60
"""Characters up to which an answer is published as it is."""

VERDICTS = ("useful", "useless", "true", "false")
"""The responses that are published as they are, without the braces and keys around them."""

_WORDS = 3  # up to which the outcome of a decision is a label, and no text
_TEXTS = ("run", "model", "method", "question_id", "cluster", "type", "task", "answer", "error_kind", "correctness")
_TEXTS += ("trace", "requests")
_COUNTS = tuple(Counts.__dataclass_fields__)


def without_text(run: Run) -> Run:
    """The run as it is published: its frame without the text of questions, gold answers, passages and errors.

    Of answers over `SHORT` characters there is a hash. `trace` has a word for each event: a stage with its verdict
    (`VERDICTS`), a search with a 1 for each gold passage; `requests` is a hash of the keys of all calls.
    """
    if run.info.published:
        return run
    frame = run.frame()
    answers = [text if len(text) <= SHORT else _digest(text) for text in frame["answer"]]
    words = pd.DataFrame(
        [
            (sample.method, sample.question.id, _words(sample), _digest(" ".join(ask.key[:16] for ask in asks)))
            for sample in run.samples
            for asks in [answered(sample.trace)]
        ],
        columns=["method", "question_id", "trace", "requests"],
    )
    frame = frame.assign(question="", gold="", answer=answers).merge(words, "left", ["method", "question_id"])
    frame["error"] = frame["error"].where(frame["error"].isna(), "(not published)")
    # Paths and addresses are the user's own.
    return _published(replace(run.info, endpoint="", published=True), frame, run.folder)


def publish(
    folders: Sequence[str | Path], into: str | Path = PUBLISHED, methods: Sequence[str] | None = None
) -> list[str]:
    """Write runs without text to the tables below `into`; returns the runs' names.

    With `methods` their part alone is written, and the usage stays that of the run. Runs of RAGQuestEval among the
    folders give their scores to the answers that they are about. Raises RecordError as
    `rag_notes.running.records.load_run`, and for a run that is not finished or lacks a method; InputError where others
    of its methods are published there already, and where an annotation is of other answers.
    """
    runs = {Path(folder).resolve().name: load_run(folder) for folder in folders}
    for name, run in runs.items():
        if not run.info.finished:
            raise RecordError(f"{name}: is not finished ({run.info.status}); {AGAIN}")
    scored = with_quest_scores(runs)
    answers = {name: run for name, run in scored.items() if run.info.condition.annotates is None}
    if len(answers) < len(runs) and all(answers[name] is runs[name] for name in answers):
        raise InputError("RAGQuestEval's scores are of the answers of another run; name that run, too")
    infos = _read_infos(Path(into))
    for name, run in answers.items():
        chosen = [name for name in run.methods if methods is None or name in methods]
        if lacking := sorted({*(methods or ())} - {*chosen}):
            raise RecordError(f"{name}: has no method {lacking[0]}; there is {', '.join(run.methods)}")
        if name in infos and (lost := sorted(infos[name].methods.keys() - set(chosen))):
            raise InputError(f"{into}: {name} has {', '.join(lost)} there, too; name all methods at once")
        part = without_text(run.only(chosen))
        frame = part.frame()
        progress = Progress(len(frame), len(frame), int(frame["error"].notna().sum()))
        infos[name] = replace(part.info, samples=progress)
        _write_table(Path(into), run.dataset, name, frame)
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(infos.items()))), indent=1)
    write_atomically(Path(into) / "runs.json", text.decode() + "\n")
    return list(answers)


def published_runs(folder: str | Path = PUBLISHED) -> list[Run]:
    """The published runs, by name; `run.folder.name` is the name. Raises RecordError where a table is malformed."""
    folder = Path(folder)
    infos = _read_infos(folder)
    tables = {dataset: _read_table(folder, dataset) for dataset in {info.dataset.name for info in infos.values()}}
    runs = []
    for name, info in infos.items():
        rows = tables[info.dataset.name]
        frame = rows[rows["run"] == name].drop(columns="run").reset_index(drop=True)
        lacking = [column for column in frame if column not in (*_TEXTS, *_COUNTS) and frame[column].isna().all()]
        condition = info.condition
        frame = frame.drop(columns=[column for column in lacking if column != "seconds"]).assign(
            dataset=Run(info).label, model=info.model, noise_percent=condition.noise_percent, repeat=info.repeat
        )
        frame["error_kind"] = frame["error_kind"].where(frame["error_kind"] != "", None)
        frame["error"] = frame["error_kind"].where(frame["error_kind"].isna(), "(not published)")
        first = ["dataset", "model", "noise_percent", "repeat", "method", "question_id", "cluster", "type", "hops"]
        first += ["task", "question", "gold", "answer", "error", "error_kind", "correctness"]
        frame = frame.assign(question="", gold="")
        frame = frame[[*first, *(column for column in frame if column not in first)]]
        runs.append(_published(info, frame, folder / name))
    return runs


def check(run: Run, published: Run) -> Counter[tuple[str, str]]:
    """Compare a run's answers with published ones of the same questions and methods.

    Returns how many there are by method and result: `same`, `other answer`, `other calls` (the same answer, by other
    requests), `not published`, and `not run`.
    """
    columns = ["method", "question_id", "answer", "error_kind", "requests"]
    pairs = (
        without_text(run)
        .frame()[columns]
        .merge(
            published.frame()[columns], "outer", ["method", "question_id"], suffixes=("", "_published"), indicator=True
        )
    )
    results = []
    for pair in pairs.fillna("").itertuples():
        if pair._merge != "both":
            results.append("not published" if pair._merge == "left_only" else "not run")
        elif (pair.answer, pair.error_kind) != (pair.answer_published, pair.error_kind_published):
            results.append("other answer")
        else:
            results.append("same" if pair.requests == pair.requests_published else "other calls")
    return Counter(zip(pairs["method"], results, strict=True))


@dataclass(frozen=True)
class _PublishedSamples:
    """The samples of a published frame, their traces without text; passages are called `gold` and `other`."""

    frame: pd.DataFrame

    def __iter__(self) -> Iterator[Sample]:
        scores = [name for name in self.frame if name not in (*_TEXTS, *_COUNTS, "seconds", "tokens", *_NO_SCORES)]
        for row in self.frame.to_dict("records"):
            gold = ("gold",) if pd.notna(row.get("all_gold_first")) else ()
            names = ("task", "type", "hops")
            yield Sample(
                row["method"],
                Question(row["question_id"], "", gold_ids=gold, **{name: row[name] for name in names}),
                row["answer"],
                None if pd.isna(row["error"]) else SampleError(row["error_kind"], row["error"]),
                {name: row[name] for name in scores if pd.notna(row[name])},
                Counts(**{name: row[name] for name in _COUNTS}),
                [_event(word) for word in row["trace"].split()],
                row["seconds"],
            )


_NO_SCORES = ("dataset", "noise_percent", "repeat", "hops", "question", "gold", "error")


def _published(info: RunInfo, frame: pd.DataFrame, folder: Path | None) -> Run:
    return Run(info, _PublishedSamples(frame), folder, frame)


def _words(sample: Sample) -> str:
    return " ".join(filter(None, (_word(event, sample.question) for event in sample.trace)))


def _word(event: Event, question: Question) -> str:
    match event:
        case Search():
            return "search:" + "".join(str(int(hit.id in question.gold_ids)) for hit in event.hits)
        case Ask():
            words = re.findall(r"\w+", (event.response or "").casefold())
            verdict = words and words[-1] in VERDICTS and set(words[:-1]) <= {"result", "status"}
            return f"{event.stage}={words[-1]}" if verdict else event.stage
        case ParseFailure():
            return f"!{event.stage}"
        case Decision() if len(event.outcome.split()) <= _WORDS:
            return f"{event.what}>{'_'.join(event.outcome.split())}"
        case Note():
            return "note:kept" if event.kept else "note:dropped"
    return ""


def _event(word: str) -> Event:
    kind, _, content = word.partition(":")
    if kind == "search":
        hits = [Found("gold" if digit == "1" else "other", "", "", 0.0) for digit in content]
        return Search("", len(hits), hits)
    if kind == "note":
        return Note("", kept=content == "kept")
    if word.startswith("!"):
        return ParseFailure(word[1:])
    if ">" in word:
        what, _, outcome = word.partition(">")
        return Decision(what, outcome.replace("_", " "))
    stage, _, verdict = word.partition("=")
    return Ask(stage, "", verdict)


def _digest(text: str) -> str:
    """`sha256:` and the first 16 hexadecimal digits of a text's hash; what has this form stays as it is."""
    if re.fullmatch(r"sha256:[0-9a-f]{16}", text):
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read_infos(folder: Path) -> dict[str, RunInfo]:
    path = folder / "runs.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, RunInfo])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: not the settings of published runs ({error}); fetch it again") from None


def _read_table(folder: Path, dataset: str) -> pd.DataFrame:
    path = folder / f"{dataset}.csv.xz"
    try:
        with lzma.open(path) as file:
            content = file.read()
        names = pd.read_csv(io.BytesIO(content), nrows=0).columns
        texts: Mapping[str, Any] = {name: str for name in names if name in _TEXTS}
        missing = {name: [""] for name in names if name not in texts}
        return pd.read_csv(
            io.BytesIO(content), dtype=texts, keep_default_na=False, na_values=missing, float_precision="round_trip"
        )
    except (FileNotFoundError, lzma.LZMAError, EOFError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); fetch or publish it again") from None


def _write_table(folder: Path, dataset: str, name: str, frame: pd.DataFrame) -> None:
    """Put the rows of a run into the table of its data set, in the place of those that it has there."""
    path = folder / f"{dataset}.csv.xz"
    rows = frame.drop(columns=["dataset", "question", "gold", "error"])
    rows.insert(0, "run", name)
    if path.exists():
        others = _read_table(folder, dataset)
        rows = pd.concat([others[others["run"] != name], rows]).sort_values("run", kind="stable")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(rows.to_csv(index=False, lineterminator="\n").encode(), preset=9))
