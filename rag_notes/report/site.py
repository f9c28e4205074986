"""A report of runs as a folder of pages that a browser opens from disk, without a server, a network or a build.

A page for each question holds its traces, so that pages stay small, work without scripts and can be linked, printed and
shared one by one. The index lists the first questions as HTML; its script lists, filters and sorts all of them, from a
script with the answers of each run (`answers.js`), as a page from disk may load scripts but no data. So is what the
search in the traces needs (`text.js`, loaded on the first such search).
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from rag_notes.events import Ask, Decision, Event, Note, ParseFailure, Search, Stop
from rag_notes.files import write_atomically
from rag_notes.report.cells import method_label
from rag_notes.report.figures import main_figure, save_figure
from rag_notes.report.page import TEMPLATES, places, question_article, render, sound, style, title_of, tokens
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.tables import diagnostics, results
from rag_notes.running.correctness import correctness, flags, meanings
from rag_notes.running.records import Key, RecordError, Run, Sample
from rag_notes.running.repeats import pooled
from rag_notes.running.run_files import sample_line
from rag_notes.types import InputError

_FIRST = 100  # questions that the index lists without its script
_OURS = ("runs", "style.css", "script.js", "index.html", "report.json")  # in this order: the last one says it is whole


def write_report(runs: Mapping[str, Run], out: str | Path, *, baseline: str | None = None) -> Path:
    """Write a report of runs by name into the folder `out` and return its index.html; the same runs, the same bytes.

    It has the results of all repeats of a run as one, and for each run the results with intervals, how many answers are
    right, a figure, what it took and its settings, and for every question a page with the traces of all methods.
    Differences are taken to `baseline` (default: vanilla where a run has it, otherwise none). An earlier report in
    `out` is replaced, other files beside it stay. Raises RecordError where `out` holds anything but a report or a run
    has no samples, ValueError where a run lacks the baseline.
    """
    out = Path(out)
    if not runs:
        raise InputError("a report needs at least one run")
    for name, run in runs.items():
        if not run.samples:
            raise RecordError(f"{name}: the run has no samples yet; finish it with `rag-notes run`")
    _check_ours(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        run_places = places(runs)
        views = [
            _write_run(run, name, part / "runs" / run_places[name], title_of(runs.values()), baseline, len(runs) > 1)
            for name, run in runs.items()
        ]
        means = meanings(sample for run in runs.values() for sample in run.samples)
        listed = [(view, question) for view in views for question in view.questions]
        index = render(
            "index.html",
            title=title_of(runs.values()),
            runs=views,
            repeated=[
                (
                    run.label,
                    ", ".join(name for name, one in runs.items() if any(one is part for part in run.repeats)),
                    _results_view(_results(run, baseline)),
                )
                for run in pooled(runs).values()
                if run.repeats
            ],
            first=listed[:_FIRST],
            more=len(listed) > _FIRST,
            methods=list(dict.fromkeys(method for run in runs.values() for method in run.methods)),
            means=means,
        )
        manifest = {"runs": [{"name": name, "place": run_places[name], "sha256": _digest(runs[name])} for name in runs]}
        write_atomically(part / "style.css", style())
        write_atomically(part / "script.js", (TEMPLATES / "report.js").read_text(encoding="utf-8"))
        write_atomically(part / "index.html", index)
        write_atomically(part / "report.json", json.dumps(manifest, indent=1) + "\n")
        _install(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return out / "index.html"


def trace_links(folder: str | Path, name: str, run: Run) -> dict[Key, str]:
    """Where the report in `folder` has the traces of a run that it knows by this name: paths within it, by sample.

    Raises RecordError where the folder has no report, or not one of this run as it is now.
    """
    path = Path(folder) / "report.json"
    remedy = f"make one of it with `rag-notes report RUN... --out {folder}`"
    try:
        known = {entry["name"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))["runs"]}
    except FileNotFoundError:
        raise RecordError(f"{folder}: no report here; {remedy}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: not the list of a report's runs ({error!r}); {remedy}") from None
    if name not in known:
        raise RecordError(f"{folder}: a report of {', '.join(known)}, not of {name}; {remedy}")
    if known[name]["sha256"] != _digest(run):
        raise RecordError(f"{folder}: its report of {name} is of another state of that run; {remedy}")
    folder, pages, anchors = f"runs/{known[name]['place']}", question_pages(run), places(run.methods)
    return {
        (method, question): quote(f"{folder}/{pages[question]}.html") + f"#{anchors[method]}"
        for method, question in run.keys
    }


def question_pages(run: Run) -> dict[str, str]:
    """The names of the pages of a run's questions, by question id, without their ending."""
    return places(dict.fromkeys(question for _, question in run.keys), digits=4)


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question of a run with its samples, in the order of the run's methods, and the name of its page."""

    id: str
    page: str
    samples: Sequence[Sample]

    @property
    def first(self) -> Sample:
        """Any of the samples: what they say of the question is the same."""
        return self.samples[0]


@dataclass(frozen=True, slots=True)
class RunView:
    """What the index shows of a run."""

    name: str
    place: str
    run: Run
    questions: list[QuestionView]
    anchors: dict[str, str]  # of the methods, on the page of a question
    correctness: list[dict[str, Any]]
    results: dict[str, Any]
    figure: dict[str, Any] | None
    took: pd.DataFrame
    provenance: dict[str, str]
    info: str


def _write_run(run: Run, name: str, folder: Path, title: str, baseline: str | None, several: bool) -> RunView:
    folder.mkdir(parents=True)
    table = _results(run, baseline)
    correct = _correctness_rows(run)
    view = RunView(
        name=name,
        place=folder.name,
        run=run,
        questions=_questions(run),
        anchors=places(run.methods),
        correctness=correct,
        results=_results_view(table),
        figure=_write_figure(table, folder),
        took=diagnostics([run]).drop(columns="dataset").assign(method=list(map(method_label, run.methods))),
        provenance=_provenance(run, sum(row["counts"]["error"] for row in correct)),
        info=json.dumps(asdict(replace(run.info, seconds={})), indent=1, ensure_ascii=False),
    )
    neighbours = [None, *view.questions, None]
    for i, question in enumerate(view.questions):
        page = render(
            "question.html", title=title, view=view, q=question, before=neighbours[i], after=neighbours[i + 2]
        )
        (folder / f"{question.page}.html").write_text(page, encoding="utf-8")
    answers = [_answers(view, question, several) for question in view.questions]
    write_atomically(folder / "answers.js", _script("ragNotesAnswers", view.place, answers))
    write_atomically(folder / "text.js", _text_script(view))
    return view


def _questions(run: Run) -> list[QuestionView]:
    order = {method: i for i, method in enumerate(run.methods)}
    by_question: dict[str, list[int]] = {}
    for place, (_, question_id) in enumerate(run.keys):
        by_question.setdefault(question_id, []).append(place)
    pages = question_pages(run)
    return [
        QuestionView(
            question_id, pages[question_id], run.at(sorted(places, key=lambda place: order[run.keys[place][0]]))
        )
        for question_id, places in by_question.items()
    ]


def _answers(view: RunView, question: QuestionView, several: bool) -> list[Any]:
    """A question as the index lists it, what a search in it finds, and of each answer by what it is chosen."""
    asked = question.first
    head = [question.id, asked.question.type, *([view.name] * several), asked.question.question]
    rows = [
        [
            *(sample.method, correctness(sample), flags(sample), sample.counts.searches, tokens(sample)),
            *(
                view.run.seconds(sample) or 0,
                f"{method_label(sample.method)}\n{sample.error or sample.answer or 'empty'}",
            ),
        ]
        for sample in question.samples
    ]
    article = question_article(view=view, q=question, several=several)
    return [article, "\n".join([*head, " | ".join(asked.gold) or "none: unanswerable"]), rows]


def _correctness_rows(run: Run) -> list[dict[str, Any]]:
    rows = []
    for method in run.methods:
        found = [correctness(sample) for sample in run.of(method)]
        rows.append({"method": method, "n": len(found), "counts": Counter(found)})
    return rows


def _results(run: Run, baseline: str | None) -> pd.DataFrame:
    return results([run], baseline="vanilla" if baseline is None and "vanilla" in run.methods else baseline)


def _results_view(table: pd.DataFrame) -> dict[str, Any]:
    """The results as the notebook's table prints them: a column a metric, in each cell the mean and the rest of it."""
    shown = ScoresTable(table)
    columns = [tuple(column[1:]) for column in shown.wide.columns]
    rows = [(method, [cell.partition(" ")[::2] for cell in cells]) for method, *cells in shown.wide.itertuples()]
    return {"columns": columns, "rows": rows, "caption": shown.caption}


def _write_figure(table: pd.DataFrame, folder: Path) -> dict[str, Any] | None:
    try:
        figure = main_figure(table)
    except ValueError:  # no answer metric: nothing to draw, which the page says
        return None
    save_figure(figure, table, folder, "results")
    return {"width": round(96 * figure.get_figwidth()), "height": round(96 * figure.get_figheight())}


def _provenance(run: Run, failed: int) -> dict[str, str]:
    """What determined the run, a line each; the whole of run.json is shown below it."""
    info = run.info
    dirty = ", with changes not committed" if info.git.get("dirty") else ""
    found = {
        "status": info.status,
        "data set": f"{info.dataset.questions} questions of {run.label} ({info.dataset.selection}), "
        f"{info.dataset.corpus} corpus, sha256 {info.dataset.sha256[:12]}",
        "answers": f"{info.samples.done} of {info.samples.of}, {failed} failed",
        "model": _pairs(info.llm),
        "endpoint": info.endpoint,
        "retriever": _pairs(info.retriever),
        "code": f"{info.git['commit'][:12]}{dirty}" if info.git else "unknown",
        "versions": _pairs(info.versions),
        "options given": " ".join(info.overrides) or "none",
    }
    if info.half_written:
        found["left out"] = "a half-written last line of samples.jsonl"
    return found


def _pairs(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in settings.items()
    )


def _text_script(view: RunView) -> str:
    """A script that hands over the texts of a run's traces, each once, and for each answer which of them it has."""
    numbers: dict[str, int] = {}
    rows = [
        sorted({numbers.setdefault(text, len(numbers)) for text in _texts(sample.trace)})
        for question in view.questions
        for sample in question.samples
    ]
    return _script("ragNotesText", view.place, list(numbers), rows)


def _script(function: str, *arguments: Any) -> str:
    """A call in ASCII and without "<": what a script or a page would take for something else is escaped."""
    data = json.dumps(arguments, separators=(",", ":")).replace("<", "\\u003c")
    return f"{function}(...{data});\n"


def _texts(trace: Iterable[Event]) -> Iterator[str]:
    """All text of a trace but that of prompts, which repeat the passages and notes."""
    for event in trace:
        match event:
            case Ask(stage=stage, response=response):
                texts = [stage, response or ""]
            case Search(query=query, hits=hits):
                texts = [query, *(text for hit in hits for text in (hit.id, hit.title, hit.text))]
            case Note(text=text):
                texts = [text]
            case ParseFailure(stage=stage):
                texts = [stage]
            case Stop(reason=reason):
                texts = [reason]
            case Decision(what=what, outcome=outcome):
                texts = [what, outcome]
        yield from (sound(text) for text in texts if text.strip())


def _digest(run: Run) -> str:
    """A hash of the samples, in whatever order."""
    digest = hashlib.sha256()
    for sample in run.at(sorted(range(len(run.keys)), key=run.keys.__getitem__)):
        digest.update(sample_line(sample).encode())
    return digest.hexdigest()


def _check_ours(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise RecordError(f"{out}: is a file; a report is a folder, name another one")
    if out.is_dir() and any(out.iterdir()) and not (out / "report.json").is_file():
        raise RecordError(f"{out}: holds something else than a report; name another folder")


def _install(part: Path, out: Path) -> None:
    """Put what was written to `part` in the place of an earlier report; what else lies in `out` stays there."""
    out.mkdir(exist_ok=True)
    for name in _OURS:
        new, old = part / name, out / name
        if old.is_dir():
            old.rename(part / f"old {name}")
        new.replace(old)
