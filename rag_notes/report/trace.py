"""The work of a method on one question, step by step: searches, responses, notes, verdicts, and why it stopped."""

import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from rag_notes.events import Ask, Decision, Event, Note, ParseFailure, Search, Stop
from rag_notes.methods.about import label_of
from rag_notes.report.scores_table import ANSWER_METRICS
from rag_notes.running.records import Run
from rag_notes.running.samples import Sample
from rag_notes.types import InputError

Piece = tuple[Literal["same", "added", "dropped"], str]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True, slots=True)
class Trace:
    """An answer with all steps that led to it; a notebook shows it as HTML, a terminal as text.

    In a note, the sentences that the best note before it lacks are marked as added, and those that it loses as dropped.
    Passages, prompts and responses are folded.
    """

    sample: Sample

    def _repr_html_(self) -> str:
        return _TEMPLATES.get_template("trace.html").render(sample=self.sample)

    def __repr__(self) -> str:
        return _TEMPLATES.get_template("trace.txt").render(sample=self.sample).rstrip()


def show_trace(run: Run, method: str | None = None, question_id: str | None = None) -> Any:
    """Show what a method did on a question; which of the two is not named is chosen in the notebook.

    Raises InputError for a method or question that the run does not have, for a choice where ipywidgets is not
    installed, and for a run without traces.
    """
    questions = run.frame().drop_duplicates("question_id").set_index("question_id")["question"]
    for kind, name, names in (("method", method, run.methods), ("question", question_id, [*questions.index])):
        if name is not None and name not in names:
            some = textwrap.shorten(", ".join(names), 200, placeholder=" ...")
            raise InputError(f"no {kind} {name!r} in this run, which has {some}")
    if run.info.published:
        raise InputError("a published run has no traces; make the run yourself, its responses are recorded")
    if method is not None and question_id is not None:
        return Trace(run.sample(method, question_id))
    try:
        import ipywidgets  # noqa: PLC0415 - only notebooks have it
    except ImportError:
        raise InputError("name a method and a question, or install ipywidgets for a choice of both") from None
    return ipywidgets.interactive(
        lambda method, question: Trace(run.sample(method, question)),
        {"manual": False, "auto_display": True},
        method=[(label_of(name), name) for name in run.methods if method in (None, name)],
        question=[(f"{name}: {text}", name) for name, text in questions.items() if question_id in (None, name)],
    )


def compare_notes(best: str, note: str) -> list[Piece]:
    """Return the sentences and lines of both notes in reading order: same, added in `note`, dropped from `best`."""
    before, after = ([piece for text in _SENTENCE_END.split(note) if (piece := text.strip())] for note in (best, note))
    pieces: list[Piece] = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            pieces += [("dropped", text) for text in before[i:i_end]]
        pieces += [("same" if tag == "equal" else "added", text) for text in after[j:j_end]]
    return pieces


class _Step(NamedTuple):
    """An event as it is shown: a line, a badge, an aside in small print, folded texts, and the sentences of a note."""

    text: str
    badge: str = ""
    aside: str = ""
    folded: Sequence[tuple[str, str]] = ()
    note: Sequence[Piece] = ()


def _step(event: Event, best: str) -> _Step:
    match event:
        case Search():
            titles = "; ".join(hit.title or hit.id for hit in event.hits) or "nothing found"
            passages = [(f"{hit.title} ({hit.id}, {hit.score:.3f})", hit.text) for hit in event.hits]
            return _Step(f"search: {event.query}", aside=f"→ {titles}", folded=passages)
        case Ask(response=None):
            return _Step(f"ask {event.stage}", "✗ no response", folded=[("prompt", event.prompt)])
        case Ask():
            response = event.response or ""
            short = textwrap.shorten(response, 160, placeholder=" …") or "(empty)"
            text = f"ask {event.stage}" + ("" if event.stage in ("note_init", "note_update") else f": {short}")
            badge = "⚠ cut at the token limit" if event.finish_reason == "length" else ""
            tokens = f"{event.prompt_tokens} + {event.completion_tokens} tokens"
            return _Step(text, badge, tokens, [("prompt", event.prompt), ("response", response)])
        case Note():
            pieces: list[Piece] = compare_notes(best, event.text) if best else [("same", event.text or "(empty)")]
            return _Step("note", "✓ kept" if event.kept else "✗ rejected", note=pieces)
        case ParseFailure():
            return _Step("", f"⚠ the response of {event.stage} could not be read")
        case Decision():
            return _Step(f"decided {event.what}", event.outcome)
        case Stop():
            return _Step("stopped", event.reason)


def _sections(trace: Sequence[Event]) -> Iterator[tuple[str, list[_Step]]]:
    """Titles and steps, a section up to each note; a note is compared with the best one before it."""
    best, notes = "", 0
    steps: list[_Step] = []
    for event in trace:
        steps.append(_step(event, best))
        if isinstance(event, Note):
            yield f"Step {notes}" if notes else "Initial note", steps
            best = event.text if event.kept else best
            notes, steps = notes + 1, []
    if steps:
        yield "Answer" if notes else "Steps", steps


def _badges(sample: Sample) -> list[str]:
    scores = [(metric, sample.metrics[metric]) for metric in ANSWER_METRICS if metric in sample.metrics]
    words: dict[float, str] = {0: "✗ {}", 1: "✓ {}"}
    return [words.get(score, f"{{}} {score:.2f}").format(metric) for metric, score in scores]


def _summary(sample: Sample) -> str:
    counts = sample.counts
    passages = f"{counts.searches} searches, {counts.distinct_passages} distinct passages"
    tokens = counts.prompt_tokens + counts.completion_tokens
    return f"{label_of(sample.method)}: {passages}, {counts.calls} calls, {tokens} tokens"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(["html"]),
    trim_blocks=True,
    undefined=StrictUndefined,
)
_TEMPLATES.globals.update(badges=_badges, summary=_summary, sections=_sections)
