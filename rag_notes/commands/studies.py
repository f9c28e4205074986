"""Commands that ask a model, or say what that will take."""

# ruff: noqa: PLC0415

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from inspect import Parameter, signature
from types import MethodType
from typing import TYPE_CHECKING

from rag_notes.config import (
    ConfigError,
    UnrecordedError,
    build_datasets,
    build_llm,
    build_methods,
    build_retriever,
    build_templates,
    load_config,
)
from rag_notes.files import here
from rag_notes.options import choices
from rag_notes.running.records import Run
from rag_notes.terminal import say

if TYPE_CHECKING:
    import pandas as pd


def config(args: argparse.Namespace) -> int:
    """Print the settings as YAML."""
    import yaml

    say(yaml.safe_dump(load_config(args.options).model_dump(), sort_keys=False, allow_unicode=True), end="")
    return 0


def run(args: argparse.Namespace) -> int:
    """Evaluate the chosen methods."""
    from rag_notes.report.scores_table import ScoresTable, in_lines, readable
    from rag_notes.report.tables import diagnostics, results
    from rag_notes.running.run import run_methods

    chosen = load_config(args.options)
    runs = asyncio.run(run_methods(chosen, args.options))
    table = results(
        runs,
        baseline=chosen.baseline,
        confidence=chosen.confidence,
        resamples=chosen.resamples,
        clusters=chosen.clusters,
    )
    say(f"{ScoresTable(table)}\n")
    say(in_lines(readable(diagnostics(runs))))
    for made in runs:
        say(made.folder)
    differing = _checked(runs, args.check) if args.check else 0
    return _outcome(runs) or int(differing > 0)


def _checked(runs: Sequence[Run], folder: str) -> int:
    """Print how the answers of the run of the same data set agree with published ones; returns how many do not."""
    from rag_notes.running.publish import check
    from rag_notes.running.run_files import read_info

    dataset = read_info(folder).dataset.name
    found = [run for run in runs if run.dataset == dataset]
    if not found:
        raise ConfigError(f"--check {folder}: is of {dataset}, which was not run; add dataset={dataset}")
    counted = check(found[0], folder)
    for (method, result), answers in sorted(counted.items()):
        say(f"{method}: {answers} {result}")
    return sum(answers for (_, result), answers in counted.items() if result != "same")


def speed(args: argparse.Namespace) -> int:
    """Measure how long the model computes for its tokens, and print the line for conf/speeds.yaml."""
    from datetime import UTC, datetime

    from rag_notes.running.speed import measure_speed

    model = load_config(args.options).llm["model"]
    found = asyncio.run(measure_speed(args.options))
    say(
        f"seconds of computing for a million tokens: {found.prompt:.0f} read, {found.completion:.0f} written "
        f"({found.calls} calls, one at a time; a call's time is {100 * found.deviation:.0f} % off these, at the median)"
    )
    date = datetime.now(UTC).date()
    numbers = f"prompt: {found.prompt:.0f}, completion: {found.completion:.0f}"
    say(f'{model}: {{{numbers}, date: "{date}", source: "server and machine"}}')
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Execute the notebook of a study, or of all."""
    from rag_notes.studies.notebook import reproduce_all, studies

    named = any(option.startswith("study=") for option in args.options)
    chosen = [args.options] if named else []
    for study in () if named else studies(args.options):
        try:
            load_config([f"study={study}", *args.options])
        except UnrecordedError as unrecorded:
            say(f"left out: {unrecorded}", file=sys.stderr)
        else:
            chosen.append([f"study={study}", *args.options])
    lacking = 0
    for notebook, missing in reproduce_all(chosen):
        lacking += missing
        shown = notebook.relative_to(here()) if notebook.is_relative_to(here()) else notebook
        say(f"{shown} and {notebook.with_suffix('.html').name}")
    say(f"figures: {load_config(args.options).figures}/")
    if lacking:
        say(f"{lacking} answers are lacking: the notebooks say why; retry_errors=true asks again", file=sys.stderr)
    return int(lacking > 0)


def tables(args: argparse.Namespace) -> int:
    """Print tables of a study, made by the methods of its class that are named."""
    from importlib import import_module

    from rag_notes.report.markdown import markdown
    from rag_notes.report.scores_table import ScoresTable

    module = import_module(f"rag_notes.studies.{load_config(args.options).study.name}")
    study = asyncio.run(module.run(args.options))
    made = {name: getattr(study, name) for name in dir(study) if not name.startswith("_")}
    known = [name for name, value in made.items() if isinstance(value, MethodType) and _is_table(value)]
    if unknown := [name for name in args.show if name not in known]:
        raise ConfigError(f"--show {unknown[0]}: this study has {', '.join(known)}")
    shown = [made[name]() for name in args.show]
    say("\n\n".join(one.to_markdown() if isinstance(one, ScoresTable) else markdown(_with_index(one)) for one in shown))
    return _outcome(study.runs)


def plan(args: argparse.Namespace) -> int:
    """Print what a study will take."""
    from rag_notes.studies import plan as planning
    from rag_notes.studies.verification import parts

    say(planning.plan_table(asyncio.run(planning.plan(*parts(load_config(args.options), args.options)))))
    return 0


def calls(args: argparse.Namespace) -> int:
    """Print how many calls each method makes, from stored responses."""
    from rag_notes.report.markdown import markdown
    from rag_notes.running.replay import calls_by_method, count_calls

    chosen = load_config(args.options)

    async def count() -> None:
        async with build_llm(chosen, offline=True) as llm:
            for dataset in build_datasets(chosen):
                retriever = build_retriever(chosen, dataset.corpus)
                counted = await count_calls(
                    build_methods(chosen), dataset.questions, retriever, llm, build_templates(chosen)
                )
                say(f"{dataset.name}\n\n{markdown(calls_by_method(counted))}\n")

    asyncio.run(count())
    return 0


def methods(args: argparse.Namespace) -> int:
    """Print the methods as a table in Markdown."""
    from rag_notes.report.markdown import markdown
    from rag_notes.report.methods import methods_frame

    say(markdown(methods_frame(build_methods(load_config([f"method=[{','.join(choices('method'))}]"])))))
    return 0


def quest_eval(args: argparse.Namespace) -> int:
    """Run RAGQuestEval."""
    from rag_notes.report.scores_table import in_lines
    from rag_notes.studies import quest_eval as study

    made = asyncio.run(study.run(args.options))
    say(f"{made.display()}\n")
    say(in_lines(made.diagnostics()))
    return _outcome(made.runs)


def _outcome(made: Sequence[Run]) -> int:
    """Say what failed, the most frequent first."""
    errors = Counter(
        f"{sample.error} ({sample.error.raised_in})" if sample.error.raised_in else str(sample.error)
        for each in made
        for sample in each.samples
        if sample.error is not None
    )
    if errors:
        answers = sum(len(each.samples) for each in made)
        say(f"{errors.total()} of {answers} answers failed, for example", file=sys.stderr)
        for text, count in errors.most_common(3):
            say(f"  {count} x {text}", file=sys.stderr)
        say("run again with retry_errors=true once the cause is mended", file=sys.stderr)
    if retries := sum(each.info.search_retries for each in made):
        say(f"{retries} searches failed for the moment and were sent again", file=sys.stderr)
    stopped = [each.info.status for each in made if not each.info.finished]
    for status in stopped:
        say(status, file=sys.stderr)
    return 1 if errors or stopped else 0


def _is_table(method: MethodType) -> bool:
    """Whether a study's method needs no argument and returns a table."""
    import pandas as pd

    from rag_notes.report.scores_table import ScoresTable

    called = signature(method)
    needed = any(parameter.default is Parameter.empty for parameter in called.parameters.values())
    return not needed and called.return_annotation in (pd.DataFrame, ScoresTable)


def _with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame.reset_index() if any(frame.index.names) else frame
