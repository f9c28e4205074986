"""Runs without the text of their data set, as frames: what may be given away where questions and passages may not."""

import hashlib
import io
import lzma
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pandas as pd

from rag_notes.events import Ask, Counts, Decision, Event, ParseFailure, Search, answered
from rag_notes.files import SHIPPED, write_atomically
from rag_notes.running.quest_scores import with_quest_scores
from rag_notes.running.records import Progress, Run, RunInfo, load_run
from rag_notes.running.samples import AGAIN, RecordError
from rag_notes.types import InputError, Question

PUBLISHED = SHIPPED / "data" / "results"
"""The folder of the runs that come with the project: a table for each data set, and `runs.json` with the settings."""

SHORT = 60
"""Characters up to which an answer is published as it is."""

VERDICTS = ("useful", "useless", "true", "false")
"""The responses that are published as they are, without the braces and keys around them."""

_TEXTS = (
    *("run", "model", "method", "question_id", "cluster", "type", "task", "answer", "error_kind", "correctness"),
    *("trace", "requests"),
)
_KEY = ["method", "question_id"]


def without_text(run: Run) -> Run:
    """Return the run as it is published: a frame without the text of questions, gold answers, passages and errors.

    An answer over `SHORT` characters is a hash. The column `trace` has a word for each event, see `_word`; `requests`
    is a hash of the keys of the requests.
    """
    if run.info.published:
        return run
    frame = run.frame().assign(question="", gold="")
    frame["answer"] = [answer if len(answer) <= SHORT else _digest(answer) for answer in frame["answer"]]
    frame["error"] = frame["error_kind"].notna().map({True: "(not published)", False: None})
    rows = []
    for sample in run.samples:
        words = filter(None, (_word(event, sample.question) for event in sample.trace))
        requests = " ".join(ask.key[:16] for ask in answered(sample.trace))
        rows.append((sample.method, sample.question.id, " ".join(words), _digest(requests)))
    frame = frame.merge(pd.DataFrame(rows, columns=[*_KEY, "trace", "requests"]), "left", _KEY)
    return Run(replace(run.info, published=True), (), run.folder, frame)


def publish(
    folders: Sequence[str | Path], into: str | Path = PUBLISHED, methods: Sequence[str] | None = None
) -> list[str]:
    """Write runs without text to the tables in `into`, with `methods` these alone; returns the runs' names.

    Runs of RAGQuestEval among the folders give their scores to the answers that they are about. Raises RecordError as
    `rag_notes.running.records.load_run`, and for a run that is not finished; InputError where it lacks a method.
    """
    runs = {Path(folder).resolve().name: load_run(folder) for folder in folders}
    infos = _read_infos(Path(into))
    names = []
    for name, run in with_quest_scores(runs).items():
        if not run.info.finished:
            raise RecordError(f"{name}: is not finished ({run.info.status}); {AGAIN}")
        if run.info.condition.annotates is None:
            if unknown := sorted({*(methods or ())} - {*run.methods}):
                raise InputError(f"{name}: has no method {unknown[0]}; there is {', '.join(run.methods)}")
            part = without_text(run.only(methods or run.methods))
            _write_table(Path(into) / f"{run.dataset}.csv.xz", name, part.frame())
            size = len(part.frame())
            progress = Progress(size, size, int(part.frame()["error"].notna().sum()))
            infos[name] = replace(part.info, samples=progress)
            names.append(name)
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
    setup = (run.info.dataset.sha256, run.info.condition, run.info.llm)
    alike = [
        other
        for other in published_runs()
        if (other.info.dataset.sha256, other.info.condition, other.info.llm) == setup
    ]
    if not alike:
        raise InputError(f"no run of {run.label} with these questions and this model is published")
    return max(alike, key=lambda other: len({*other.methods} & {*run.methods}))


def check(run: Run, published: Run) -> Counter[tuple[str, str]]:
    """Compare a run's answers with published ones of the same questions and methods.

    Returns how many there are by method and result: `same`, `other answer`, `other calls` (the same answer, by other
    requests), `not published`, and `not run`.
    """
    columns = [*_KEY, "answer", "error_kind", "requests"]
    sides = [side.frame()[columns].fillna("") for side in (without_text(run), published)]
    pairs = sides[0].merge(sides[1], "outer", _KEY, suffixes=("", "_published"), indicator="side")
    result = pairs["side"].map({"left_only": "not published", "right_only": "not run", "both": "same"}).astype(str)
    result[(result == "same") & (pairs["requests"] != pairs["requests_published"])] = "other calls"
    for name in ("answer", "error_kind"):
        result[pairs["side"].eq("both") & (pairs[name] != pairs[f"{name}_published"])] = "other answer"
    return Counter(zip(pairs["method"], result, strict=True))


def _word(event: Event, question: Question) -> str:
    """One word: `search:01000`, 1 for a gold passage; `stage` of a call, with a verdict as in `stage=useful`; `!stage`
    of a response that could not be read; `stage>outcome` of a decision by rule; nothing for notes and stops.
    """
    match event:
        case Search():
            return "search:" + "".join(str(int(hit.id in question.gold_ids)) for hit in event.hits)
        case Ask():
            words = re.findall(r"\w+", (event.response or "").casefold())
            is_verdict = words and words[-1] in VERDICTS and set(words[:-1]) <= {"result", "status"}
            return f"{event.stage}={words[-1]}" if is_verdict else event.stage
        case ParseFailure():
            return f"!{event.stage}"
        case Decision() if len(event.outcome.split()) <= 3:  # a label, no text
            return "_".join(f"{event.what}>{event.outcome}".split())
    return ""


def _digest(text: str) -> str:
    """`sha256:` and the first 16 hexadecimal digits of a text's hash; what has this form stays as it is."""
    return text if re.fullmatch(r"sha256:\w{16}", text) else f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _frame(info: RunInfo, rows: pd.DataFrame) -> pd.DataFrame:
    """The frame of a run from its rows in a table, as `Run.frame`."""
    counts = [field.name for field in fields(Counts)]
    unknown = [name for name in rows if name not in (*_TEXTS, *counts, "seconds") and rows[name].isna().all()]
    frame = rows.drop(columns=["run", *unknown]).assign(question="", gold="").reset_index(drop=True)
    frame["error_kind"] = frame["error_kind"].mask(frame["error_kind"] == "")
    frame["error"] = frame["error_kind"].notna().map({True: "(not published)", False: None})
    condition = info.condition
    frame = frame.assign(
        dataset=Run(info).label, model=info.model, noise_percent=condition.noise_percent, repeat=info.repeat
    )
    first = ["dataset", "model", "noise_percent", "repeat", "method", "question_id", "cluster", "type", "hops"]
    first += ["task", "question", "gold", "answer", "error", "error_kind", "correctness"]
    return frame[[*first, *frame.columns.difference(first, sort=False)]]


def _read_infos(folder: Path) -> dict[str, RunInfo]:
    try:
        return msgspec.json.decode((folder / "runs.json").read_bytes(), type=dict[str, RunInfo])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{folder / 'runs.json'}: not the settings of runs ({error}); fetch it again") from None


def _read_table(path: Path) -> pd.DataFrame:
    try:
        content = lzma.decompress(path.read_bytes())
        columns = content.partition(b"\n")[0].decode().split(",")
        return pd.read_csv(
            io.BytesIO(content),
            dtype=dict.fromkeys(_TEXTS, str),
            keep_default_na=False,
            na_values={name: [""] for name in columns if name not in _TEXTS},
        )
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
