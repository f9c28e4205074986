"""The work of a method on one question, step by step: searches, responses, notes, verdicts, and why it stopped."""

import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from rag_notes.events import Ask, Decision, Event, Note, ParseFailure, Search, Stop
from rag_notes.methods.about import label_of
from rag_notes.report.scores_table import ANSWER_METRICS
from rag_notes.running.records import Run
from rag_notes.running.samples import Sample
from rag_notes.types import InputError

Piece = tuple[Literal["same", "added", "dropped"], str]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_SIGNS = {"same": " ", "added": "+", "dropped": "-"}

# Colours have enough contrast in light and dark themes, or are mixed into the page's own background.
_CSS = """<style>
.rag-trace {font: 14px/1.5 system-ui, sans-serif; max-width: 60rem}
.rag-trace dl {display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0}
.rag-trace dt, .rag-trace small {opacity: .7} .rag-trace dd {margin: 0}
.rag-trace section {border-left: 3px solid rgba(128,128,128,.45); padding: .1rem 0 .1rem .9rem; margin: .9rem 0}
.rag-trace h4 {margin: 0 0 .3rem; font-size: 1em}
.rag-trace details {margin: .25rem 0} .rag-trace summary {cursor: pointer}
.rag-trace pre, .rag-trace .note {white-space: pre-wrap; overflow-wrap: anywhere; background: rgba(128,128,128,.12);
 color: inherit; padding: .5rem .7rem; border-radius: 4px; margin: .25rem 0; font-size: .93em}
.rag-trace ins {background: rgba(0,158,115,.28); text-decoration: none; border-bottom: 2px solid #009e73}
.rag-trace del {background: rgba(213,94,0,.18); opacity: .85}
.rag-trace b {font-weight: normal; border: 1px solid; border-radius: 4px; padding: 0 .4rem; font-size: .86em}
.rag-trace .good {border-color: #009e73; background: rgba(0,158,115,.2)}
.rag-trace .bad {border-color: #d55e00; background: rgba(213,94,0,.2)}
.rag-trace .partly {border-color: #e69f00; background: rgba(230,159,0,.2)}
</style>"""

Badge = tuple[Literal["good", "bad", "partly"], str]


@dataclass(frozen=True, slots=True)
class Trace:
    """An answer with all steps that led to it; a notebook shows it as HTML, a terminal as text.

    In a note, the sentences that the best note before it lacks are marked as added, and those that it loses as dropped.
    Passages, prompts and responses are folded. With `others`, of the same question, one is open at a time.
    """

    sample: Sample
    others: Sequence[Sample] = ()

    def _repr_html_(self) -> str:
        page = _html(self.sample)
        if self.others:
            group = escape(f"trace of {self.sample.question.id}")
            heads = {each.method: f"{escape(label_of(each.method))} {_answer_html(each)}" for each in self._samples}
            tabs = [f"<summary>{heads[each.method]}</summary>{_html(each)}</details>" for each in self._samples]
            page = f'<details name="{group}" open="">' + f'<details name="{group}">'.join(tabs)
        return f'{_CSS}<div class="rag-trace">{page}</div>'

    def __repr__(self) -> str:
        return "\n\n\n".join(map(_text, self._samples))

    @property
    def _samples(self) -> Sequence[Sample]:
        return self.sample, *self.others


def show_trace(run: Run, method: str | Sequence[str] | None = None, question_id: str | None = None) -> Any:
    """Show what a method did on a question, or several methods beside each other, all of the run by default.

    Without a question there is a picker of methods and questions. Raises InputError for a method or question that the
    run does not have, for a picker where ipywidgets is not installed, and for a run without traces.
    """
    frame = run.frame()
    methods = [method] if isinstance(method, str) else list(method or run.methods)
    if unknown := [name for name in methods if name not in run.methods]:
        raise InputError(f"no method {unknown[0]!r} in this run, which has {', '.join(run.methods)}")
    if run.info.published:
        raise InputError("a published run has no traces; make the run yourself, its responses are recorded")
    if question_id is None:
        return _picker(run, methods, frame.drop_duplicates("question_id"))
    if question_id not in set(frame["question_id"]):
        first = ", ".join(frame["question_id"].unique()[:5])
        raise InputError(f"no question {question_id!r} in this run, which has {first}, ...")
    samples = [run.sample(name, question_id) for name in methods]
    return Trace(samples[0], samples[1:])


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


def _picker(run: Run, methods: Sequence[str], questions: Any) -> Any:
    try:
        import ipywidgets  # noqa: PLC0415 - only notebooks have it
    except ImportError:
        raise InputError("name a method and a question, or install ipywidgets for a picker of both") from None
    options = [(f"{row.question_id}: {row.question}", row.question_id) for row in questions.itertuples()]
    method = ipywidgets.Dropdown(options=[(label_of(name), name) for name in methods], description="method")
    question = ipywidgets.Dropdown(options=options, description="question", layout={"width": "60rem"})
    page = ipywidgets.HTML()

    def show(_: Any = None) -> None:
        page.value = Trace(run.sample(method.value, question.value))._repr_html_()

    for choice in (method, question):
        choice.observe(show, "value")
    show()
    return ipywidgets.VBox([method, question, page])


@dataclass(slots=True)
class _Step:
    """An event as it is shown: a line, a badge, an aside in small print, folded texts, and the sentences of a note."""

    text: str
    badge: Badge | None = None
    aside: str = ""
    folded: list[tuple[str, str]] = field(default_factory=list)
    note: list[Piece] | None = None


def _step(event: Event, best: str) -> _Step:
    match event:
        case Search():
            titles = "; ".join(hit.title or hit.id for hit in event.hits) or "nothing found"
            passages = [(f"{hit.title} ({hit.id}, {hit.score:.3f})", hit.text) for hit in event.hits]
            return _Step(f"search: {event.query}", None, f"→ {titles}", passages)
        case Ask(response=None):
            return _Step(f"ask {event.stage}", ("bad", "✗ no response"), "", [("prompt", event.prompt)])
        case Ask():
            response = event.response or ""
            short = textwrap.shorten(response, 160, placeholder=" …") or "(empty)"
            text = f"ask {event.stage}" + ("" if event.stage in ("note_init", "note_update") else f": {short}")
            badge: Badge | None = ("bad", "⚠ cut at the token limit") if event.finish_reason == "length" else None
            tokens = f"{event.prompt_tokens} + {event.completion_tokens} tokens"
            return _Step(text, badge, tokens, [("prompt", event.prompt), ("response", response)])
        case Note():
            badge = ("good", "✓ kept") if event.kept else ("bad", "✗ rejected")
            pieces: list[Piece] = compare_notes(best, event.text) if best else [("same", event.text or "(empty)")]
            return _Step("note", badge, note=pieces)
        case ParseFailure():
            return _Step("", ("bad", f"⚠ the response of {event.stage} could not be read"))
        case Decision():
            return _Step(f"decided {event.what}", ("partly", event.outcome))
        case Stop():
            return _Step("stopped", ("partly", event.reason))


def _sentences(text: str) -> list[str]:
    return [stripped for piece in _SENTENCE_END.split(text) if (stripped := piece.strip())]


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


def _badges(sample: Sample) -> Iterator[Badge]:
    for metric, value in ((metric, sample.metrics[metric]) for metric in ANSWER_METRICS if metric in sample.metrics):
        if value in (0, 1):
            yield ("good", f"✓ {metric}") if value else ("bad", f"✗ {metric}")
        else:
            yield "partly", f"{metric} {value:.2f}"


def _counts(sample: Sample) -> str:
    counts = sample.counts
    tokens = counts.prompt_tokens + counts.completion_tokens
    passages = f"{counts.searches} searches, {counts.distinct_passages} distinct passages"
    return f"{label_of(sample.method)}: {passages}, {counts.calls} calls, {tokens} tokens"


def _badge_html(badge: Badge | None) -> str:
    return f' <b class="{badge[0]}">{escape(badge[1])}</b>' if badge else ""


def _answer_html(sample: Sample) -> str:
    if sample.error is not None:
        return _badge_html(("bad", f"✗ {sample.error}"))
    return f"<strong>{escape(sample.answer) or '(empty)'}</strong>{''.join(map(_badge_html, _badges(sample)))}"


def _html(sample: Sample) -> str:
    head = {
        "question": f"<strong>{escape(sample.question.question)}</strong>",
        "gold": escape(" | ".join(sample.gold)) or "<em>none: unanswerable</em>",
        "answer" if sample.error is None else "error": _answer_html(sample),
        "method": escape(_counts(sample)),
    }
    parts = ["<dl>", *(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in head.items()), "</dl>"]
    for title, steps in _sections(sample.trace):
        parts += [f"<section><h4>{title}</h4>", *map(_step_html, steps), "</section>"]
    return "".join(parts)


def _step_html(step: _Step) -> str:
    line = f"{escape(step.text)}{_badge_html(step.badge)} <small>{escape(step.aside)}</small>"
    tags = {"same": "span", "added": "ins", "dropped": "del"}
    if step.note is not None:
        note = "\n".join(f"<{tags[kind]}>{escape(text)}</{tags[kind]}>" for kind, text in step.note)
        return f'<div>{line}</div><div class="note">{note}</div>'
    texts = "".join(f"<small>{escape(name)}</small><pre>{escape(text)}</pre>" for name, text in step.folded)
    return f"<details><summary>{line}</summary>{texts}</details>" if texts else f"<div>{line}</div>"


def _text(sample: Sample) -> str:
    marks = "  ".join(text for _, text in _badges(sample))
    lines = [
        f"question  {sample.question.question}",
        f"gold      {' | '.join(sample.gold) or '(none: unanswerable)'}",
        f"answer    {sample.answer or '(empty)'}  [{marks}]" if sample.error is None else f"error     {sample.error}",
        f"method    {_counts(sample)}",
    ]
    for title, steps in _sections(sample.trace):
        lines += ["", title]
        for step in steps:
            lines.append("  " + "  ".join(filter(None, [step.text, step.badge and f"[{step.badge[1]}]"])))
            lines += [f"    {step.aside}"] if step.aside.startswith("→") else []
            lines += [f"    {_SIGNS[kind]} {line}" for kind, text in step.note or () for line in text.splitlines()]
    return "\n".join(lines)
