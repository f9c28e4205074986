"""HTML pages from templates that escape everything by themselves, and what the pages of reports have in common."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rag_notes.report.cells import method_label
from rag_notes.report.tables import ANSWER_METRICS, METRIC_LABELS
from rag_notes.report.trace import TRACE_CSS, render_answer, render_steps
from rag_notes.running.correctness import FLAGS, SIGNS, correctness, flags
from rag_notes.running.records import Run, Sample

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **context: Any) -> str:
    """Fill a template of `templates/`; what comes in is escaped unless it is Markup. Raises where anything is missing.

    Lone surrogates, which a line of samples.jsonl may spell and no file can hold, come out as they are spelt there.
    """
    return sound(_environment().get_template(template).render(context))


def question_article(**context: Any) -> str:
    """A question as the index of a report lists it."""
    module: Any = _environment().get_template("parts.html").module
    return sound(str(module.article(**context)))


def style() -> Markup:
    """The style of every page: that of the traces and that of the reports."""
    return Markup(TRACE_CSS + (TEMPLATES / "report.css").read_text(encoding="utf-8"))


def sound(text: str) -> str:
    """The text with lone surrogates written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def places(names: Iterable[str], digits: int = 1) -> dict[str, str]:
    """A place in a folder or page for each name: its number, and as much of the name as any file system takes."""
    slugs = {name: re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:60].rstrip("-") for name in names}
    return {name: f"{i:0{digits}}-{slug}".rstrip("-") for i, (name, slug) in enumerate(slugs.items(), 1)}


def title_of(runs: Iterable[Run]) -> str:
    """What a page about these runs is called: their data sets and their models."""
    runs = list(runs)
    datasets = dict.fromkeys(run.label for run in runs)
    models = dict.fromkeys(run.info.model for run in runs)
    return f"{', '.join(datasets)} · {', '.join(models)}"


def scores(sample: Sample) -> str:
    """The answer's scores in a line."""
    marks = [(metric, sample.metrics[metric]) for metric in ANSWER_METRICS if metric in sample.metrics]
    return " · ".join(f"{METRIC_LABELS[metric]} {value:.2f}".removesuffix(".00") for metric, value in marks)


def tokens(sample: Sample) -> int:
    """Prompt and completion tokens of all calls."""
    return sample.counts.prompt_tokens + sample.counts.completion_tokens


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "correctness": correctness,
        "label": method_label,
        "flags": flags,
        "scores": scores,
        "tokens": tokens,
        "steps": lambda sample: Markup(render_steps(sample)),
        "answer": lambda sample: Markup(render_answer(sample)),
        "number": lambda value: f"{value:,}",
    }
    environment.globals |= {"SIGNS": SIGNS, "FLAGS": FLAGS}
    return environment
