"""What each command of `rag-notes` does; modules that load slowly are imported by the command that needs them."""

# ruff: noqa: PLC0415

import argparse
import asyncio
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rag_notes.config import (
    ConfigError,
    UnrecordedError,
    build_corpora,
    build_datasets,
    build_indexed_retriever,
    build_llm,
    build_methods,
    build_retriever,
    build_templates,
    load_config,
    load_corpus,
    prepared_corpus,
)
from rag_notes.files import here, write_atomically
from rag_notes.llm.store import ResponseStore
from rag_notes.options import choices
from rag_notes.running.records import Run, load_run, load_runs, run_folders
from rag_notes.terminal import say

if TYPE_CHECKING:
    from rag_notes.datasets.prepare import Prepared


def config(args: argparse.Namespace) -> int:
    """Print the settings as YAML."""
    import yaml

    say(yaml.safe_dump(load_config(args.options).model_dump(), sort_keys=False, allow_unicode=True), end="")
    return 0


def run(args: argparse.Namespace) -> int:
    """Evaluate the chosen methods."""
    from rag_notes.report.tables import diagnostics, results, results_table
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
    say(results_table(table).data.to_string())  # type: ignore[attr-defined] # pandas-stubs leave it out
    say(diagnostics(runs).to_string(index=False))
    for made in runs:
        say(made.folder)
    differing = _checked(runs, args.check) if args.check else 0
    return _outcome(runs) or int(differing > 0)


def _checked(runs: Sequence[Run], folder: str) -> int:
    """Print how the answers of the run of the same data set agree with published ones; returns how many do not."""
    from rag_notes.running.publish import check
    from rag_notes.running.records import read_info

    dataset = read_info(folder).dataset.name
    found = [run for run in runs if run.dataset == dataset]
    if not found:
        raise ConfigError(f"--check {folder}: is of {dataset}, which was not run; add dataset={dataset}")
    counted = check(found[0], folder)
    for (method, result), answers in sorted(counted.items()):
        say(f"{method}: {answers} {result}")
    return sum(answers for (_, result), answers in counted.items() if result != "same")


def publish(args: argparse.Namespace) -> int:
    """Write runs without a word of their data set."""
    from rag_notes.running.publish import publish as publish_run

    say(*(publish_run(folder, args.into) for folder in args.runs), sep="\n")
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

    module = import_module(f"rag_notes.studies.{load_config(args.options).study.name}")
    study = asyncio.run(module.run(args.options))
    known = [name for name in dir(study) if not name.startswith("_") and callable(getattr(study, name))]
    if unknown := [name for name in args.show if name not in known]:
        raise ConfigError(f"--show {unknown[0]}: this study has {', '.join(known)}")
    say("\n\n".join(markdown(getattr(study, name)()) for name in args.show))
    return int(study.lacking > 0)


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
    from rag_notes.studies import quest_eval as study

    made = asyncio.run(study.run(args.options))
    say(made.table().to_string(index=False, float_format="{:.3f}".format))
    return _outcome(made.runs)


def download(args: argparse.Namespace) -> int:
    """Fetch official files, or list them."""
    from rag_notes import downloads

    table = downloads.load_downloads(args.table)
    if not args.options:
        say(downloads.overview(table, args.into))
        return 0
    failures = downloads.download(downloads.chosen(table, args.options), args.into, largest=table.largest)
    if failures:
        say(f"{len(failures)} files are missing, see above; the same command continues", file=sys.stderr)
    return int(bool(failures))


def prepare(args: argparse.Namespace) -> int:
    """Make a corpus's passages."""
    _say_prepared(load_corpus(args.options)())
    return 0


def _say_prepared(made: "Prepared") -> None:
    say(f"{made.path}: {made.passages:,} passages, sha256 {made.sha256}")
    say(f"left out: {made.repeated:,} repeated, {made.empty:,} without text")
    if made.expected not in (None, made.passages):
        say(f"the papers' corpus has {made.expected:,} passages, this one {made.passages - made.expected:+,}")


def index(args: argparse.Namespace) -> int:
    """Index a corpus."""
    prepared = [option for option in args.options if re.match(r"corpus[.=]", option)]
    if prepared and any(re.match(r"dataset[.=]", option) for option in args.options):
        raise ConfigError("name a prepared corpus or data sets to index, not both: corpus=... or dataset=...")
    chosen = load_config([option for option in args.options if option not in prepared])
    if prepared and not Path(prepared_corpus(prepared).path).is_file():
        _say_prepared(load_corpus(prepared)())
    for corpus in [prepared_corpus(prepared)] if prepared else build_corpora(chosen):
        say(build_indexed_retriever(chosen, corpus).build_index())
    return 0


def retrieval(args: argparse.Namespace) -> int:
    """Compare retrievers."""
    from rag_notes.report.retrieval import retrieval_differences, retrieval_scores, retrieval_table
    from rag_notes.report.trec import write_trec

    if args.top_k < 1:
        raise ConfigError(f"--top-k {args.top_k}: must be at least 1")
    asked = args.retriever or ["bm25"]
    configs = [load_config([*args.options, *shlex.split(f"retriever={text}")]) for text in asked]
    first, firsts = configs[0], Counter(text.partition(" ")[0] for text in asked)
    scores = {}
    for dataset in build_datasets(first):
        for text, chosen in zip(asked, configs, strict=True):
            choice = text.partition(" ")[0]
            label = choice if firsts[choice] == 1 else text  # of two with one name, the settings tell which is which
            retriever = build_retriever(chosen, dataset.corpus)
            scores[dataset.name, label] = retrieval_scores(dataset.questions, retriever, args.top_k)
        if args.trec:
            found = {
                label: dict(zip(frame["question_id"], frame["found"], strict=True))
                for (of, label), frame in scores.items()
                if of == dataset.name
            }
            say(write_trec(dataset.questions, found, Path(args.trec) / dataset.name).to_string(index=False))
    say(retrieval_table(scores, args.top_k, confidence=first.confidence, resamples=first.resamples))
    if len(configs) > 1:
        say(f"\n{retrieval_differences(scores, args.top_k, confidence=first.confidence, resamples=first.resamples)}")
    return 0


def store(args: argparse.Namespace) -> int:
    """Export, import or verify a store, or drop responses from it."""
    if args.action == "drop" and not args.file + args.question:
        raise ConfigError("store drop needs keys, or --question TEXT that prompts contain")
    if args.action in ("export", "import") and len(args.file) != 1:
        raise ConfigError(f"store {args.action} needs a file, for example recording.jsonl.xz")
    opened = ResponseStore(args.store)
    bad: list[str] = []
    if args.action == "export":
        say(f"{opened.export_jsonl(args.file[0])} responses written to {args.file[0]}")
    elif args.action == "import":
        added, present, unchecked = opened.import_jsonl(args.file[0])
        say(f"{added} responses added, {present} were there already" + f", {unchecked} unchecked" * bool(unchecked))
    elif args.action == "drop":
        say(f"{opened.drop(args.file, args.question)} responses dropped")
    else:
        bad = opened.verify()
        say(f"{len(opened)} responses, {len(bad)} changed after they were stored", *bad, sep="\n")
    return int(bool(bad))


def complexity(args: argparse.Namespace) -> int:
    """Label questions for Adaptive-RAG's classifier."""
    from rag_notes.methods.adaptive_rag import LABELS
    from rag_notes.methods.complexity import cross_validate
    from rag_notes.running.silver_labels import STRATEGIES, silver_labels

    labels, unanswered = silver_labels([load_run(folder) for folder in args.runs])
    out = Path(args.out)
    write_atomically(out, labels.to_csv(index=False, lineterminator="\n"))
    say(f"{len(labels)} labels written to {out}, {unanswered} questions left out that no strategy answers")
    for label, strategy in zip(LABELS, STRATEGIES, strict=True):
        say(f"  {label} ({strategy}): {(labels['label'] == label).sum()}")
    try:
        accuracy, most_frequent, table = cross_validate(labels, args.language)
    except ValueError as error:
        say(f"not cross-validated: {error}")
        return 0
    say(f"cross-validated accuracy {accuracy:.3f}, always the most frequent label {most_frequent:.3f}")
    say(table.rename_axis(index="true", columns="predicted").to_string())
    return 0


def runs(args: argparse.Namespace) -> int:
    """List the runs in a folder, the latest first."""
    import pandas as pd

    from rag_notes.running.records import read_info

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
    from rag_notes.report.scores import scores_markdown

    chosen = load_config()
    found = load_runs(args.runs or run_folders(here() / chosen.runs))
    intervals = (chosen.confidence, chosen.resamples)
    print(scores_markdown(found, args.metric, chosen.baseline, *intervals, clusters=args.clusters))
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

    stale = {file: changed for file in args.files if (changed := renew(file, main, check=args.check))}
    for file, changed in stale.items():
        say(f"{file}: {'would change' if args.check else 'changed'}: {'; '.join(changed)}")
    return int(args.check and bool(stale))


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
