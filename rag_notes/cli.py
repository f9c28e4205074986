"""The command `rag-notes`: a function for each command, whose docstring and arguments are its help."""

import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rag_notes.config import (
    ConfigError,
    build_datasets,
    build_indexed_retriever,
    build_retriever,
    call,
    load_config,
    load_corpus,
    load_settings,
)
from rag_notes.files import SHIPPED, here
from rag_notes.llm.client import LLMError
from rag_notes.options import CONF, GROUPS, choices, explain
from rag_notes.retrieval.base import RetrieverError
from rag_notes.terminal import say
from rag_notes.types import InputError, Passage

# What only one command needs is imported in it: every command starts quickly.
# ruff: noqa: PLC0415

_EXAMPLES = """\
options are name=value, for example
  dataset=hotpotqa limit=50          the first 50 questions of one data set
  dataset=[mini,musique]             several data sets
  method=[vanilla,deepnote]          these methods only
  method.deepnote.max_step=2         one setting of a method
  llm=openai llm.model=gpt-4o-mini   a model behind an API; the key is read from OPENAI_API_KEY
  llm=openai llm.base_url=http://127.0.0.1:8000/v1 llm.model=NAME   your own server
  llm.max_cost=5                     stop cleanly when 5 dollars are spent
  retriever=elasticsearch            BM25 in a server or cluster, after rag-notes index
every setting and its default: rag-notes config"""
_COMMANDS: dict[str, tuple[Callable[..., int], Sequence["_Argument"]]] = {}
_Argument = tuple[tuple[str, ...], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit code: 0 done, 1 some questions failed or the run stopped, 2 bad input, 3 an error of this program.
    """
    parser = _parser()
    typed, rest = parser.parse_known_args(arguments)
    if unknown := [word for word in rest if word.startswith("-") or not hasattr(typed, "options")]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    settings = vars(typed)
    if rest:  # options behind a flag, which argparse takes in one piece only
        settings["options"] = [*settings["options"], *rest]
    function: Callable[..., int] = settings.pop("function")
    try:
        return function(**settings)
    except (InputError, LLMError, RetrieverError, ImportError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader of the output, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        text: object = error
        if isinstance(error, OSError) and isinstance(error.filename, str):  # the system's own error
            text = f"{Path(error.filename).absolute()}: {error.strerror}"
        say(f"rag-notes: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("rag-notes: interrupted; the same command continues where it stopped", file=sys.stderr)
        return 130
    except Exception:  # no fault of the user's: where it happened is what helps
        say(traceback.format_exc(), end="", file=sys.stderr)
        say("rag-notes: this is an error of the program, not of what was typed", file=sys.stderr)
        return 3


def _argument(*names: str, **settings: Any) -> _Argument:
    return names, settings


def _command(*arguments: _Argument) -> Callable[[Callable[..., int]], Callable[..., int]]:
    def register(function: Callable[..., int]) -> Callable[..., int]:
        _COMMANDS[function.__name__.strip("_").replace("_", "-")] = function, arguments
        return function

    return register


def _parser() -> argparse.ArgumentParser:
    groups = "\n".join(f"  {group:<10}{', '.join(choices(group))}" for group in GROUPS)
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="rag-notes",
        description="Compare note-based adaptive RAG with its baselines: run methods, reproduce studies.",
        epilog=f"names that options can choose\n{groups}",
        formatter_class=plain,
    )
    parser.add_argument("--version", action="version", version=f"rag-notes {version('rag-notes')}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (function, arguments) in _COMMANDS.items():
        text = str(function.__doc__)
        examples = _EXAMPLES if _OPTIONS in arguments else None
        added = subparsers.add_parser(name, help=text, description=text, epilog=examples, formatter_class=plain)
        added.set_defaults(function=function)
        for names, settings in arguments:
            added.add_argument(*names, **settings)
    return parser


_OPTIONS = _argument("options", nargs="*", metavar="name=value")
_RUN = _argument("run", metavar="RUN", help="a run's folder, for example runs/NAME")


@_command(_OPTIONS)
def reproduce(options: Sequence[str]) -> int:
    """Execute the notebook of a study, study=NAME or study=FILE.ipynb, or of all: tables, figures and pages"""
    from rag_notes.studies.notebook import reproduce as execute_notebooks

    missing = 0
    for notebook, missing_answers in execute_notebooks(options):
        missing += missing_answers
        say(f"{_relative(notebook)} and {notebook.with_suffix('.html').name}")
    if missing:
        say(f"{missing} answers are missing: the notebooks say why; the same command asks again", file=sys.stderr)
    return int(missing > 0)


def _relative(path: Path) -> Path:
    return path.relative_to(here()) if path.is_relative_to(here()) else path


@_command(
    _OPTIONS,
    _argument("-m", "--multirun", action="store_true", help="a run for each value: dataset=mini,asqa limit=5,9"),
    _argument("--check", action="store_true", help="say how many answers agree with the published run of them"),
)
def run(options: Sequence[str], multirun: bool, check: bool) -> int:
    """Evaluate methods on questions, without a notebook; the same command goes on where it stopped"""
    if multirun:
        if check:
            raise ConfigError("--check: not with --multirun, which makes several runs; check each by itself")
        return _multirun(options)
    from rag_notes.report.scores_table import as_text, readable
    from rag_notes.report.tables import diagnostics, scores_table
    from rag_notes.running.run import run_methods

    config = load_config(options)
    runs = asyncio.run(run_methods(config))
    intervals: dict[str, Any] = {"confidence": config.confidence, "resamples": config.resamples}
    say(scores_table(runs, baseline=config.baseline, clusters=config.clusters, **intervals), end="\n\n")
    say(as_text(readable(diagnostics(runs))))
    say(*(_relative(run.folder) for run in runs if run.folder), sep="\n")
    return _outcome(runs) or (_check(runs) if check else 0)


def _check(runs: Sequence[Any]) -> int:
    """Say how many answers of runs agree with the published ones; returns 1 where some do not."""
    from rag_notes.running.publish import check, published_like

    counts = sum((check(run, published_like(run)) for run in runs), Counter())
    for (method, result), answers in sorted(counts.items()):
        say(f"{method}: {answers} {result}")
    return int(any(result != "same" for _, result in counts))


def _multirun(options: Sequence[str]) -> int:
    """Run `rag-notes run` for each combination of the options that list several values, as Hydra's launcher says.

    Returns the exit code of the first job that did not end well. Raises ConfigError for options that Hydra refuses.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    typed, sys.argv = sys.argv, ["rag-notes", "--multirun", *options]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises what it would otherwise print before it exits
    try:
        hydra.main(str(CONF), "config", "1.3")(partial(_job, Path.cwd()))()
    except JobError as error:
        return int(error.args[0])
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, options)) from None
    except Exception as error:  # of a launcher, whichever it is: what a job has to say it says itself
        say(f"rag-notes: the launcher lost a job ({type(error).__name__}: {error})", file=sys.stderr)
        say("rag-notes: what is done is kept, the same command goes on", file=sys.stderr)
        return 1
    finally:
        sys.argv = typed
        GlobalHydra.instance().clear()
    return 0


class JobError(Exception):
    """A job of a multirun did not end well; its exit code."""


def _job(folder: Path, _: Any) -> None:
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    options = list(HydraConfig.get().overrides.task)
    GlobalHydra.instance().clear()  # the job composes its settings anew
    with contextlib.chdir(folder):  # a worker may have been started elsewhere
        code = main(["run", *options])
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise JobError(code)


def _outcome(runs: Sequence[Any]) -> int:
    """Say which answers failed, the most frequent error first, and which runs stopped; returns the exit code."""
    import pandas as pd

    frames = pd.concat([run.frame()[["error"]] for run in runs])
    errors = frames["error"].dropna()
    if len(errors):
        say(f"{len(errors)} of {len(frames)} answers failed, for example", file=sys.stderr)
        for text, number in errors.value_counts().head(3).items():
            say(f"  {number} x {text}", file=sys.stderr)
        say("once the cause is mended the same command asks again", file=sys.stderr)
    stopped = [run.info.status for run in runs if not run.info.finished]
    for status in stopped:
        say(status, file=sys.stderr)
    return 1 if len(errors) or stopped else 0


@_command(_OPTIONS)
def plan(options: Sequence[str]) -> int:
    """Say what a study will take: calls, tokens, money, time, and how much of it is stored"""
    from rag_notes.studies.plan import plan as make_plan

    say(asyncio.run(make_plan(load_config(options))))
    return 0


@_command(_OPTIONS)
def config(options: Sequence[str]) -> int:
    """Show every setting that these options give, as YAML"""
    import yaml

    say(yaml.safe_dump(load_config(options).model_dump(), sort_keys=False, allow_unicode=True), end="")
    return 0


@_command(_argument("what", choices=["methods", "datasets", "studies"]))
def list_(what: str) -> int:
    """List the methods, data sets or studies that there are"""
    import rag_notes

    say(getattr(rag_notes, what)().to_string(index=False))
    return 0


@_command(_argument("folder", nargs="?", metavar="FOLDER", help="where they lie (default: the runs' folder)"))
def runs(folder: str | None) -> int:
    """List the runs in a folder, the latest first"""
    from rag_notes.running.records import runs_table

    below = Path(folder) if folder else here() / load_config().runs
    table = runs_table(below)
    say(table.to_string(index=False) if len(table) else f"{below}: no runs; make one with `rag-notes run`")
    return 0


@_command(
    _RUN,
    _argument("method", metavar="METHOD"),
    _argument("question", metavar="QUESTION", help="its id"),
    _argument("--call", type=int, metavar="N", help="the N-th call: key, prompt and response in full"),
)
def show(run: str, method: str, question: str, call: int | None) -> int:
    """Show what a method did on a question: its trace, or one call in full"""
    from rag_notes.events import answered
    from rag_notes.report.trace import show_trace
    from rag_notes.running.records import load_run

    trace = show_trace(load_run(run), method, question)
    asks = answered(trace.sample.trace)
    if call is None:
        say(trace, *(f"call {i}: {ask.stage}, key {ask.key}" for i, ask in enumerate(asks, 1)), sep="\n")
        return 0
    if not 1 <= call <= len(asks):
        raise ConfigError(f"--call {call}: there are {len(asks)} calls")
    ask = asks[call - 1]
    say(f"stage {ask.stage}\nkey {ask.key}\n\n{ask.prompt}\n\n--- response ({ask.finish_reason})\n\n{ask.response}")
    return 0


@_command(
    _argument("runs", nargs="+", metavar="RUN", help="a run's folder, or a training's"),
    _argument("--into", required=True, metavar="FOLDER", help="for example data/results"),
    _argument("--method", action="append", metavar="NAME", help="this method alone (default: all)"),
)
def publish(runs: Sequence[str], into: str, method: Sequence[str] | None) -> int:
    """Write runs without a word of their questions and passages, so that they may be given away"""
    from rag_notes.running.publish import publish as publish_runs
    from rag_notes.training.cards import RECIPE, publish_training

    trainings = [folder for folder in runs if (Path(folder) / RECIPE).is_file()]
    if trainings and method:
        raise ConfigError(f"{trainings[0]}: is a training, which has no methods to choose from; leave out --method")
    others = [folder for folder in runs if folder not in trainings]
    names = publish_runs(others, into, method) if others else []
    say(*names, *(publish_training(folder, into) for folder in trainings), sep="\n")
    return 0


@_command(
    _argument("action", choices=["export", "import", "drop"]),
    _argument("store", help="the store, for example .cache/responses.sqlite"),
    _argument("file", nargs="*", help="JSON lines, .jsonl or .jsonl.xz (export, import); keys (drop)"),
    _argument("--question", action="append", default=[], metavar="TEXT", help="that prompts contain (drop)"),
)
def store(action: str, store: str, file: Sequence[str], question: Sequence[str]) -> int:
    """Export or import stored responses, or drop some so that they are asked for again"""
    from rag_notes.llm.store import ResponseStore

    if action == "drop" and not [*file, *question]:
        raise ConfigError("store drop needs keys, or --question TEXT that prompts contain")
    if action != "drop" and len(file) != 1:
        raise ConfigError(f"store {action} needs a file, for example recording.jsonl.xz")
    responses = ResponseStore(store)
    if action == "export":
        say(f"{responses.export_jsonl(file[0])} responses written to {file[0]}")
    elif action == "import":
        say(f"{responses.import_jsonl(file[0])} responses added")
    else:
        say(f"{responses.drop(file, question)} responses dropped")
    return 0


@_command(
    _argument("options", nargs="*", metavar="name=value", help="dataset=musique, corpus=[hotpotqa,crud]; none: list"),
    _argument("--into", default=Path(), type=Path, metavar="FOLDER", help="with data/ (default: the current one)"),
    _argument("--table", default=CONF / "downloads.yaml", type=Path, metavar="FILE", help="of addresses"),
)
def download(options: Sequence[str], into: Path, table: Path) -> int:
    """Download official files, checked by their SHA-256; without options list them with their licences"""
    from rag_notes import download as downloads

    files = downloads.load_downloads(table)
    if not options:
        say(downloads.overview(files, into))
        return 0
    failures = downloads.download(downloads.choose(files, options), into)
    if failures:
        say(f"{len(failures)} files are missing, see above; the same command tries them again", file=sys.stderr)
    return int(bool(failures))


@_command(_OPTIONS)
def index(options: Sequence[str]) -> int:
    """Index the corpus of a data set, or of official files (corpus=hotpotqa), which is prepared first"""
    prepared = [option for option in options if option.startswith(("corpus=", "corpus."))]
    if prepared and any(option.startswith(("dataset=", "dataset.")) for option in options):
        raise ConfigError("name a prepared corpus or data sets to index, not both: corpus=... or dataset=...")
    config = load_config([option for option in options if option not in prepared])
    corpora: list[Iterable[Passage]] = []
    if prepared:
        prepare, file = load_corpus(prepared)
        if not Path(file.path).is_file():
            facts = prepare()._asdict()
            say("{path}: {passages:,} passages, sha256 {sha256}".format(**facts))
            say("left out: {repeated:,} repeated, {empty:,} without text".format(**facts))
            if (difference := facts["passages"] - (facts["expected"] or facts["passages"])) != 0:
                say(f"the papers' corpus has {facts['expected']:,} passages, this one {difference:+,}")
        corpora.append(file)
    else:
        corpora += [dataset.corpus for dataset in build_datasets(config)]
    for corpus in corpora:
        say(build_indexed_retriever(config, corpus).build_index())
    return 0


@_command(
    _OPTIONS,
    _argument("--retriever", action="append", metavar="OPTIONS", help='with settings: "dense retriever.dtype=float16"'),
    _argument("--top-k", type=int, default=5, metavar="K", help="passages looked at (default: 5)"),
)
def retrieval(options: Sequence[str], retriever: Sequence[str] | None, top_k: int) -> int:
    """Compare retrievers by the evidence that they find for each question"""
    from rag_notes.report.retrieval import retrieval_table

    if top_k < 1:
        raise ConfigError(f"--top-k {top_k}: must be at least 1")
    configs = {text: load_config([*options, *shlex.split(f"retriever={text}")]) for text in retriever or ["bm25"]}
    first = next(iter(configs.values()))
    retrievers = [
        (dataset, {text: build_retriever(config, dataset.corpus) for text, config in configs.items()})
        for dataset in build_datasets(first)
    ]
    say(retrieval_table(retrievers, top_k, confidence=first.confidence, resamples=first.resamples))
    return 0


@_command(
    _argument("name", choices=choices("training_data"), metavar="NAME", help=", ".join(choices("training_data"))),
    _OPTIONS,
    _argument("--test", action="append", required=True, metavar="OPTIONS", help="a data set to be tested on"),
    _argument("--plan", action="store_true", help="say what it takes and how much of it is stored; ask nothing"),
)
def training_data(name: str, options: Sequence[str], test: Sequence[str], plan: bool) -> int:
    """Make training data from a data set; what --test names ("dataset=hotpotqa limit=300") is kept out of it"""
    from rag_notes.training.data import make_training_data

    say(asyncio.run(make_training_data(name, options, test, plan=plan)))
    return 0


@_command(_argument("name", choices=choices("training"), metavar="NAME", help=", ".join(choices("training"))), _OPTIONS)
def train(name: str, options: Sequence[str]) -> int:
    """Train a model on training data: model=FOLDER out=FOLDER; the same command goes on where it stopped"""
    prefixed = (option if option.startswith("training.") else f"training.{option}" for option in options)
    settings = load_settings("training", [f"+training={name}", *prefixed])
    metrics = call(settings)
    sizes = f"{metrics['steps']} steps on {metrics['trained_on']} examples, {metrics['held_out']} held out"
    say(f"{settings['out']}: {sizes}, {sum(metrics['too_long'].values())} left out as longer than max_length")
    for when in ("before", "after") if metrics["held_out"] else ():
        say(f"{when}: " + ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics[when].items())))
    return 0


@_command(_argument("folder", type=Path, metavar="FOLDER", help="a new one, for example my_notebooks"))
def notebooks(folder: Path) -> int:
    """Copy the notebooks of the studies into a folder, to be opened and changed"""
    if folder.exists():
        raise InputError(f"{folder}: is there already; name a new folder")
    shutil.copytree(SHIPPED / "notebooks", folder, ignore=shutil.ignore_patterns(".*"))
    say(f"{folder}: open them with jupyter lab {folder}")
    return 0
