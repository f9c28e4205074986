"""Runs without the text of their data set, as frames: what may be given away where questions and passages may not."""

import hashlib
import io
import lzma
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pandas as pd

from rag_notes.events import Ask, Decision, Event, ParseFailure, Search, answered
from rag_notes.files import SHIPPED, write_atomically
from rag_notes.running.annotate import with_quest_scores
from rag_notes.running.records import KEY, Run, RunInfo, load_run
from rag_notes.running.samples import AGAIN, RecordError
from rag_notes.types import InputError, Question

PUBLISHED = SHIPPED / "data" / "results"
"""The folder of the runs that come with the project: a table for each data set, and `runs.json` with the settings."""

_SHORT = 60  # characters up to which an answer is published as it is
_VERDICTS = ("useful", "useless", "true", "false")  # responses published as they are, without braces and keys
_TEXTS = ["run", "model", *KEY, "cluster", "type", "task", "answer", "error_kind", "correctness", "trace", "requests"]


def without_text(run: Run) -> Run:
    """Return the run as it is published: a frame without the text of questions, gold answers, passages and errors.

    An answer over 60 characters is a hash. The column `trace` has a word for each event: `search:01000`, 1 for a gold
    passage; `stage` of a call, with a verdict as in `stage=useful`; `!stage` of a response that could not be read;
    `stage>outcome` of a decision by rule. `requests` is a hash of the keys of the requests.
    """
    if run.info.published:
        return run
    rows = []
    for sample in run.samples:
        words = filter(None, (_word(event, sample.question) for event in sample.trace))
        requests = " ".join(ask.key[:16] for ask in answered(sample.trace))
        rows.append((sample.method, sample.question.id, " ".join(words), _digest(requests)))
    frame = _blank(run.frame()).merge(pd.DataFrame(rows, columns=[*KEY, "trace", "requests"]), "left", KEY)
    frame["answer"] = [answer if len(answer) <= _SHORT else _digest(answer) for answer in frame["answer"]]
    return Run(replace(run.info, published=True), (), run.folder, frame)


def publish(
    folders: Sequence[str | Path], into: str | Path = PUBLISHED, methods: Sequence[str] | None = None
) -> list[str]:
    """Write runs without text to the tables in `into`, with `methods` these alone; returns the runs' names.

    Runs of RAGQuestEval among the folders give their scores to the answers that they are about. Raises RecordError as
    `rag_notes.running.records.load_run`, and for a run that is not finished; InputError where it lacks a method.
    """
    runs = [load_run(Path(folder).resolve()) for folder in folders]
    for run in runs:
        if not run.info.finished:
            raise RecordError(f"{run.folder}: is not finished ({run.info.status}); {AGAIN}")
    infos, names = _read_infos(Path(into)), []
    for run in with_quest_scores(runs):
        names.append(name := Path(run.folder or "").name)
        if unknown := sorted({*(methods or ())} - {*run.methods}):
            raise InputError(f"{name}: has no method {unknown[0]}; there is {', '.join(run.methods)}")
        part = without_text(run.only(methods or run.methods))
        _write_table(Path(into) / f"{run.dataset}.csv.xz", name, part.frame())
        infos[name] = part.info
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(infos.items()))), indent=1)
    write_atomically(Path(into) / "runs.json", text.decode() + "\n")
    return names


def published_runs(folder: str | Path = PUBLISHED) -> list[Run]:
    """Return the published runs, in the order of their names, `run.folder.name`. Raises RecordError as it reads."""
    infos = _read_infos(Path(folder))
    datasets = {info.dataset.name for info in infos.values()}
    tables = {name: _read_table(Path(folder) / f"{name}.csv.xz").groupby("run") for name in datasets}
    return [
        Run(info, (), Path(folder) / name, _frame(info, tables[info.dataset.name].get_group(name)))
        for name, info in infos.items()
    ]


def published_like(run: Run) -> Run:
    """Return the published run of the same questions, condition and model that has most of a run's methods.

    Raises InputError where there is none.
    """
    setups = [(other, other.info.dataset.sha256, other.info.condition, other.info.llm) for other in published_runs()]
    setup = [run.info.dataset.sha256, run.info.condition, run.info.llm]
    alike = [other for other, *other_setup in setups if other_setup == setup]
    if not alike:
        raise InputError(f"no run of {run.label} with these questions and this model is published")
    return max(alike, key=lambda other: len({*other.methods} & {*run.methods}))


def check(run: Run, published: Run) -> Counter[tuple[str, str]]:
    """Compare a run's answers with published ones of the same questions and methods.

    Returns how many there are by method and result: `same`, `other answer`, `other calls` (the same answer, by other
    requests), `not published`, and `not run`.
    """
    columns = ["answer", "error_kind", "requests"]
    ours, others = (side.frame().set_index(KEY)[columns].fillna("") for side in (without_text(run), published))
    index = ours.index.union(others.index)
    same = ours.reindex(index) == others.reindex(index)
    result = pd.Series("same", index)
    result[~same["requests"]] = "other calls"
    result[~(same["answer"] & same["error_kind"])] = "other answer"
    result[~index.isin(ours.index)] = "not run"
    result[~index.isin(others.index)] = "not published"
    return Counter(zip(index.get_level_values("method"), result, strict=True))


def _word(event: Event, question: Question) -> str:
    match event:
        case Search():
            return "search:" + "".join(str(int(hit.id in question.gold_ids)) for hit in event.hits)
        case Ask():
            words = re.findall(r"\w+", (event.response or "").casefold())
            is_verdict = words and words[-1] in _VERDICTS and set(words[:-1]) <= {"result", "status"}
            return f"{event.stage}={words[-1]}" if is_verdict else event.stage
        case ParseFailure():
            return f"!{event.stage}"
        case Decision() if len(event.outcome.split()) <= 3:  # a label, no text
            return "_".join(f"{event.what}>{event.outcome}".split())
    return ""


def _digest(text: str) -> str:
    """Return the start of a text's hash; what is such a hash stays as it is."""
    return text if re.fullmatch(r"sha256:\w{16}", text) else f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _blank(frame: pd.DataFrame) -> pd.DataFrame:
    error = frame["error_kind"].notna().map({True: "(not published)", False: None})
    return frame.assign(question="", gold="", error=error)


def _frame(info: RunInfo, rows: pd.DataFrame) -> pd.DataFrame:
    blank = Run(info).frame()
    unknown = [name for name in rows if rows[name].isna().all() and name not in (*blank, "trace", "requests")]
    frame = rows.drop(columns=["run", *unknown]).reset_index(drop=True)
    settings = {"dataset": Run(info).label, "noise_percent": info.condition.noise_percent}
    frame = _blank(frame.assign(**settings, error_kind=frame["error_kind"].mask(frame["error_kind"] == "")))
    first = [*blank.loc[:, :"correctness"]]
    return frame[[*first, *frame.columns.difference(first, sort=False)]]


def _read_infos(folder: Path) -> dict[str, RunInfo]:
    try:
        return msgspec.json.decode((folder / "runs.json").read_bytes(), type=dict[str, RunInfo])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RecordError(f"{folder / 'runs.json'}: not the settings of runs ({error}); fetch it again") from None


def _read_table(path: Path) -> pd.DataFrame:
    try:
        content = lzma.decompress(path.read_bytes())
        columns = content.partition(b"\n")[0].decode().split(",")
        missing = {name: [""] for name in columns if name not in _TEXTS}
        types = dict.fromkeys(_TEXTS, str)
        return pd.read_csv(io.BytesIO(content), dtype=types, keep_default_na=False, na_values=missing)
    except (FileNotFoundError, lzma.LZMAError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); fetch or publish it again") from None


def _write_table(path: Path, name: str, frame: pd.DataFrame) -> None:
    """Put the rows of a run into a table, in the place of those that it has there."""
    rows = frame.drop(columns=["dataset", "question", "gold", "error"])
    rows.insert(0, "run", name)
    if path.exists():
        others = _read_table(path)
        rows = pd.concat([others[others["run"] != name], rows]).sort_values("run", kind="stable")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(rows.to_csv(index=False, lineterminator="\n").encode(), preset=9))
