"""Commands about finished runs, and those that write pages."""

# ruff: noqa: PLC0415

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rag_notes.config import (
    ConfigError,
    load_config,
)
from rag_notes.files import here
from rag_notes.running.records import RunInfo
from rag_notes.running.run_files import load_run, load_runs, read_info, run_folders
from rag_notes.terminal import say
from rag_notes.types import InputError


def publish(args: argparse.Namespace) -> int:
    """Write runs, or trainings without their weights, without a word of their data set."""
    from rag_notes.running.publish import publish as publish_run
    from rag_notes.training.cards import RECIPE, publish_training

    trainings = [folder for folder in args.runs if (Path(folder) / RECIPE).is_file()]
    if trainings and args.method:
        raise InputError(f"{trainings[0]}: is a training, which has no methods to choose from; leave out --method")
    about = {folder: read_info(folder) for folder in args.runs if folder not in trainings}
    annotations = [folder for folder, info in about.items() if info.condition.annotates == "quest_eval"]
    runs = {
        folder: [path for path in annotations if _answered(about[path]) == _answered(info)]
        for folder, info in about.items()
        if folder not in annotations
    }
    if unused := [path for path in annotations if not any(path in of_it for of_it in runs.values())]:
        raise InputError(f"{unused[0]}: has RAGQuestEval's scores of another run's answers; name that run, too")
    for folder in trainings:
        say(publish_training(folder, args.into))
    for folder, of_it in runs.items():
        say(publish_run(folder, args.into, args.method, of_it))
    return 0


def _answered(info: RunInfo) -> tuple[object, ...]:
    """What a run and RAGQuestEval's run of its answers have in common."""
    return info.dataset.name, info.llm, info.repeat


def runs(args: argparse.Namespace) -> int:
    """List the runs in a folder, the latest first."""
    import pandas as pd

    from rag_notes.running.run_files import read_info

    below = Path(args.folder) if args.folder else here() / load_config().runs
    rows = []
    for file in sorted(below.glob("*/run.json"), key=lambda path: -path.stat().st_mtime):
        info = read_info(file.parent)
        rows.append(
            {
                "run": file.parent.name,
                "studies": ", ".join(info.studies),
                "data set": info.dataset.name,
                "condition": str(info.condition),
                "model": info.model,
                "prompts": info.prompt_set,
                "methods": len(info.methods),
                "answers": f"{info.samples.done} of {info.samples.of}",
                "errors": info.samples.errors,
                "status": info.status[:40],
                "date": datetime.fromtimestamp(file.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M"),
            }
        )
    say(pd.DataFrame(rows).to_string(index=False) if rows else f"{below}: no runs; make one with `rag-notes run`")
    return 0


def show(args: argparse.Namespace) -> int:
    """Show a trace, or one of its calls in full."""
    from rag_notes.events import answered
    from rag_notes.report.trace import Trace

    found = load_run(args.run)
    if args.method not in found.methods:
        raise ConfigError(f"{args.run}: has no method {args.method!r}; there is {', '.join(found.methods)}")
    by_id = {sample.question.id: sample for sample in found.of(args.method)}
    if args.question not in by_id:
        raise ConfigError(f"{args.run}: has no question {args.question!r}, for example {', '.join(list(by_id)[:5])}")
    sample = by_id[args.question]
    asked = answered(sample.trace)
    if args.call is None:
        say(Trace(sample))
        for number, ask in enumerate(asked, 1):
            say(f"call {number}: {ask.stage}, key {ask.key}")
        return 0
    if not 1 <= args.call <= len(asked):
        raise ConfigError(f"--call {args.call}: there are {len(asked)} calls")
    ask = asked[args.call - 1]
    say(f"stage {ask.stage}\nkey {ask.key}\n\n{ask.prompt}\n\n--- response ({ask.finish_reason})\n\n{ask.response}")
    return 0


def score(args: argparse.Namespace) -> int:
    """Mark answers anew by the metrics as they are now, and say how many changed."""
    from rag_notes.running.evaluate import rescore_run

    for folder in args.runs:
        made = rescore_run(folder)
        if made is None:
            say(f"{folder}: annotates other answers and has no scores")
        else:
            say(f"{folder}: {made[0]} answers marked, {made[1]} of them otherwise than before")
    return 0


def report(args: argparse.Namespace) -> int:
    """Write a report of runs."""
    from rag_notes.report.site import write_report

    say(write_report(load_runs(args.runs), args.out, baseline=args.baseline))
    return 0


def shared(args: argparse.Namespace) -> int:
    """Count what studies share."""
    from rag_notes.studies.notebook import studies
    from rag_notes.studies.shared import shared_calls, shared_table

    say(shared_table(shared_calls(load_runs(args.runs).values(), studies())))
    return 0


def table(args: argparse.Namespace) -> int:
    """Print the scores of runs."""
    from rag_notes.report.scores import differences_markdown, scores_markdown

    chosen = load_config()
    found = load_runs([*(args.runs or run_folders(here() / chosen.runs)), *args.beside])
    if args.baseline and not any(args.baseline in run.methods for run in found.values()):
        had = ", ".join(dict.fromkeys(name for run in found.values() for name in run.methods))
        raise InputError(f"--baseline {args.baseline}: no run has this method; there is {had or 'none'}")
    baseline, intervals = args.baseline or chosen.baseline, (chosen.confidence, chosen.resamples)
    text_of = differences_markdown if args.differences else scores_markdown
    print(text_of(found, args.metric, baseline, *intervals, clusters=args.clusters))
    return 0


def verify(args: argparse.Namespace) -> int:
    """Set the papers' claims beside runs."""
    from rag_notes.papers import page

    below = here() / load_config().runs
    verification = page.verify(args.runs or run_folders(below, published=True))
    text = page.summary(verification)
    written = page.write_verification(verification, args.out or below / "verification")
    if args.readme:
        page.write_summary(args.readme, text)
        written.append(Path(args.readme))
    say(text, *written, sep="\n")
    return 0


def pages(args: argparse.Namespace, main: Callable[[Sequence[str]], int]) -> int:
    """Renew pages in Markdown, or say which would change."""
    from rag_notes.pages import renew

    stale = False
    for file in args.files:  # each is said before the next, which may fail
        if changed := renew(file, main, check=args.check):
            say(f"{file}: {'would change' if args.check else 'changed'}: {'; '.join(changed)}")
            stale = True
    return int(args.check and stale)


def coverage(args: argparse.Namespace) -> int:
    """Say which table and figure of the papers has a command here."""
    from rag_notes.papers.coverage import coverage_markdown

    say(coverage_markdown())
    return 0


def inconsistencies(args: argparse.Namespace) -> int:
    """List what does not add up in the papers' tables."""
    from rag_notes.papers.inconsistencies import inconsistencies as found
    from rag_notes.report.markdown import markdown

    say(markdown(found()))
    return 0
