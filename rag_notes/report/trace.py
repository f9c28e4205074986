"""A method's work on one question, step by step, for reading: what was searched, noted, kept and answered, and why."""

import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from rag_notes.events import Ask, Decision, Event, Note, ParseFailure, Search, Stop
from rag_notes.report.tables import ANSWER_METRICS
from rag_notes.running.records import Run, Sample

Piece = tuple[Literal["same", "added", "dropped"], str]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")

# Colours are set with enough contrast for both themes, or mixed into whatever the page's own background is.
TRACE_CSS = """
.rag-trace {font: 14px/1.5 system-ui, sans-serif; max-width: 60rem}
.rag-trace dl {display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0}
.rag-trace dt {opacity: .7} .rag-trace dd {margin: 0}
.rag-trace section {border-left: 3px solid rgba(128,128,128,.45); padding: .1rem 0 .1rem .9rem; margin: .9rem 0}
.rag-trace h4 {margin: 0 0 .3rem; font-size: 1em}
.rag-trace details {margin: .25rem 0} .rag-trace summary {cursor: pointer}
.rag-trace pre, .rag-trace .note {white-space: pre-wrap; overflow-wrap: anywhere; background: rgba(128,128,128,.12);
 color: inherit; padding: .5rem .7rem; border-radius: 4px; margin: .25rem 0; font-size: .93em}
.rag-trace pre {font-family: ui-monospace, monospace}
.rag-trace ins {background: rgba(0,158,115,.28); text-decoration: none; border-bottom: 2px solid #009e73}
.rag-trace del {background: rgba(213,94,0,.18); opacity: .85}
.rag-trace .badge {display: inline-block; border: 1px solid; border-radius: 4px; padding: 0 .4rem; font-size: .86em}
.rag-trace .good {border-color: #009e73; background: rgba(0,158,115,.2)}
.rag-trace .bad {border-color: #d55e00; background: rgba(213,94,0,.2)}
.rag-trace .partly {border-color: #e69f00; background: rgba(230,159,0,.2)}
.rag-trace .stage {opacity: .7; font-size: .9em}
"""
"""The style of a trace, for a page with many of them; `render_trace` brings it along."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A sample that a notebook shows as HTML and a terminal as text."""

    sample: Sample

    def _repr_html_(self) -> str:
        return render_trace(self.sample)

    def __repr__(self) -> str:
        return _text(self.sample)


def show_trace(run_or_sample: Run | Sample, method: str = "", question_id: str = "") -> Trace:
    """Show what a method did on a question: a sample, or that of a run which `method` and `question_id` name.

    Raises KeyError where the run has no such sample.
    """
    return Trace(run_or_sample.sample(method, question_id) if isinstance(run_or_sample, Run) else run_or_sample)


def render_trace(sample: Sample) -> str:
    """Return a sample of a run as a fragment of HTML that stands alone, its scripts and markup all escaped.

    In a note, what the best note before it lacked is marked as added, and what it no longer has as dropped, sentence
    by sentence. Passages, prompts and responses are folded.
    """
    head = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in _head(sample))
    return f'<div class="rag-trace"><style>{TRACE_CSS}</style><dl>{head}</dl>{render_steps(sample)}</div>'


def render_steps(sample: Sample) -> str:
    """Return the steps alone, without style, for a page that has TRACE_CSS and tells of question and answer itself."""
    parts = []
    for title, events in _sections(sample.trace):
        parts.append(f"<section><h4>{escape(title)}</h4>")
        parts += [_event_html(event, best) for event, best in events]
        parts.append("</section>")
    return "".join(parts)


def render_answer(sample: Sample) -> str:
    """Return the answer with its marks as HTML, or the error in its place."""
    if sample.error is not None:
        return _badge("bad", f"✗ {sample.error}")
    answer = escape(sample.answer) or "<em>empty</em>"
    return f"<strong>{answer}</strong> {' '.join(_verdict_html(*verdict) for verdict in _verdicts(sample))}"


def compare_notes(best: str, note: str) -> list[Piece]:
    """Return the sentences and lines of both notes in reading order: same, added in `note`, dropped from `best`."""
    before, after = _sentences(best), _sentences(note)
    pieces: list[Piece] = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            pieces += [("same", text) for text in after[j:j_end]]
        else:
            pieces += [("dropped", text) for text in before[i:i_end]]
            pieces += [("added", text) for text in after[j:j_end]]
    return pieces


def _sentences(text: str) -> list[str]:
    return [stripped for piece in _SENTENCE_END.split(text) if (stripped := piece.strip())]


def _sections(trace: Sequence[Event]) -> Iterator[tuple[str, list[tuple[Event, str]]]]:
    """Titles and events, cut after each note; with each event goes the best note before it ("" for none)."""
    best, notes = "", 0
    events: list[tuple[Event, str]] = []
    for event in trace:
        events.append((event, best))
        if isinstance(event, Note):
            yield ("Initial note" if notes == 0 else f"Step {notes}"), events
            best = event.text if event.kept else best
            notes, events = notes + 1, []
    if events:
        yield ("Answer" if notes else "Steps"), events


def _head(sample: Sample) -> Iterator[tuple[str, str]]:
    yield "question", f"<strong>{escape(sample.question.question)}</strong>"
    yield "gold", escape(" | ".join(sample.gold)) or "<em>none: unanswerable</em>"
    yield "answer" if sample.error is None else "error", render_answer(sample)
    yield "method", f"{escape(sample.method)} · {escape(_counts(sample))}"


def _verdicts(sample: Sample) -> list[tuple[str, float]]:
    return [(metric, sample.metrics[metric]) for metric in ANSWER_METRICS if metric in sample.metrics]


def _verdict_html(metric: str, value: float) -> str:
    kind = "good" if value == 1 else "bad" if value == 0 else "partly"
    return _badge(kind, _verdict_text(metric, value))


def _verdict_text(metric: str, value: float) -> str:
    return f"✓ {metric}" if value == 1 else f"✗ {metric}" if value == 0 else f"{metric} {value:.2f}"


def _counts(sample: Sample) -> str:
    counts = sample.counts
    return (
        f"{counts.searches} searches, {counts.distinct_passages} distinct passages, "
        f"{counts.calls} calls, {counts.prompt_tokens + counts.completion_tokens} tokens"
    )


def _badge(kind: str, text: str) -> str:
    return f'<span class="badge {kind}">{escape(text)}</span>'


def _event_html(event: Event, best: str) -> str:
    match event:
        case Search():
            passages = "".join(
                f"<li><strong>{escape(hit.title)}</strong> <span class='stage'>{escape(hit.id)}, "
                f"{hit.score:.3f}</span><pre>{escape(hit.text)}</pre></li>"
                for hit in event.hits
            )
            return (
                f"<details><summary>Search <em>{escape(event.query)}</em> "
                f"<span class='stage'>{escape(_titles(event))}</span></summary><ol>{passages}</ol></details>"
            )
        case Ask():
            return _ask_html(event)
        case Note():
            badge = _badge("good", "✓ kept") if event.kept else _badge("bad", "✗ rejected")
            return f'<div>Note {badge}</div><div class="note">{_note_html(best, event.text)}</div>'
        case ParseFailure():
            return f"<div>{_badge('bad', '⚠ the response of ' + event.stage + ' could not be read')}</div>"
        case Stop():
            return f"<div>Stopped: {_badge('partly', event.reason)}</div>"
        case Decision():
            return f"<div>Decided {escape(event.what)}: {_badge('partly', event.outcome)}</div>"


def _ask_html(event: Ask) -> str:
    if event.response is None:
        return (
            f"<details><summary>Ask {escape(event.stage)} {_badge('bad', '✗ no response')}</summary>"
            f"<pre>{escape(event.prompt)}</pre></details>"
        )
    cut = f" {_badge('bad', '⚠ cut at the token limit')}" if event.finish_reason == "length" else ""
    shown = f" <code>{escape(_one_line(event.response))}</code>" if _is_shown(event.stage) else ""
    return (
        f"<details><summary>Ask {escape(event.stage)}{shown}{cut} <span class='stage'>{event.prompt_tokens} + "
        f"{event.completion_tokens} tokens</span></summary><div class='stage'>prompt</div>"
        f"<pre>{escape(event.prompt)}</pre><div class='stage'>response</div>"
        f"<pre>{escape(event.response)}</pre></details>"
    )


def _is_shown(stage: str) -> bool:
    """Whether a response is shown unfolded: all but the notes, which have their own event."""
    return stage not in ("note_init", "note_update")


def _note_html(best: str, note: str) -> str:
    if not note.strip():
        return "<em>empty</em>"
    if not best:
        return escape(note)
    tags = {"same": "", "added": "ins", "dropped": "del"}
    lines = []
    for kind, text in compare_notes(best, note):
        tag = tags[kind]
        lines.append(f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text))
    return "\n".join(lines)


def _titles(event: Search) -> str:
    return "→ " + ("; ".join(hit.title or hit.id for hit in event.hits) or "nothing found")


def _one_line(text: str, width: int = 160) -> str:
    return textwrap.shorten(text, width, placeholder=" …") or "(empty)"


def _text(sample: Sample) -> str:
    marks = "  ".join(_verdict_text(*verdict) for verdict in _verdicts(sample))
    lines = [
        f"question  {sample.question.question}",
        f"gold      {' | '.join(sample.gold) or '(none: unanswerable)'}",
        f"answer    {sample.answer or '(empty)'}  [{marks}]" if sample.error is None else f"error     {sample.error}",
        f"method    {sample.method}: {_counts(sample)}",
    ]
    for title, events in _sections(sample.trace):
        lines += ["", title]
        lines += [f"  {line}" for event, best in events for line in _event_text(event, best)]
    return "\n".join(lines)


def _event_text(event: Event, best: str) -> Iterator[str]:
    match event:
        case Search():
            yield f"search {event.query}"
            yield f"  {_titles(event)}"
        case Ask(stage=stage, response=None):
            yield f"ask {stage}: no response"
        case Ask(stage=stage, response=str(response)):
            shown = f": {_one_line(response)}" if _is_shown(stage) else ""
            cut = " (cut at the token limit)" if event.finish_reason == "length" else ""
            yield f"ask {stage}{shown}{cut}"
        case Note():
            yield f"note {'kept' if event.kept else 'rejected'}"
            signs = {"same": " ", "added": "+", "dropped": "-"}
            for kind, text in compare_notes(best, event.text):
                yield f"  {signs[kind]} {text}"
        case ParseFailure():
            yield f"PARSE FAILURE: response of {event.stage}"
        case Stop():
            yield f"stopped: {event.reason}"
        case Decision():
            yield f"decided {event.what}: {event.outcome}"
