"""The command `rag-notes`: a function for each command, whose docstring and arguments are its help."""

import argparse
import asyncio
import contextlib
import inspect
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

import yaml
from hydra.core.hydra_config import HydraConfig

import rag_notes
from rag_notes.config import build_datasets, load_config
from rag_notes.datasets.corpus import CorpusFile
from rag_notes.events import answered
from rag_notes.files import SHIPPED, here
from rag_notes.llm.client import LLMError
from rag_notes.llm.store import ResponseStore
from rag_notes.options import CONF, GROUPS, choices
from rag_notes.parts import ConfigError
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
_ARGUMENTS: dict[str, dict[str, Any]] = {  # by the name of a parameter, with its command where others have it, too
    "options": {"nargs": "*", "metavar": "name=value"},
    "multirun": {"action": "store_true", "help": "a run for each value: dataset=mini,asqa limit=5,9"},
    "check": {"action": "store_true", "help": "say how many answers agree with the published run of them"},
    "what": {"choices": ["methods", "datasets", "studies"]},
    "runs.folder": {"nargs": "?", "metavar": "FOLDER", "help": "where they lie (default: the runs' folder)"},
    "run": {"metavar": "RUN", "help": "a run's folder, for example runs/NAME"},
    "show.method": {"metavar": "METHOD"},
    "show.question": {"metavar": "QUESTION", "help": "its id"},
    "call": {"type": int, "metavar": "N", "help": "the N-th call: key, prompt and response in full"},
    "publish.runs": {"nargs": "+", "metavar": "RUN", "help": "a run's folder, or a training's"},
    "publish.into": {"required": True, "metavar": "FOLDER", "help": "for example data/results"},
    "publish.method": {"action": "append", "metavar": "NAME", "help": "this method alone (default: all)"},
    "action": {"choices": ["export", "import", "drop"]},
    "store": {"help": "the store, for example .cache/responses.sqlite"},
    "file": {"nargs": "*", "help": "JSON lines, .jsonl or .jsonl.xz (export, import); keys (drop)"},
    "store.question": {"action": "append", "default": [], "metavar": "TEXT", "help": "that prompts contain (drop)"},
    "download.options": {
        "nargs": "*",
        "metavar": "name=value",
        "help": "dataset=musique, corpus=[hotpotqa,crud]; none: list",
    },
    "into": {"default": Path(), "type": Path, "metavar": "FOLDER", "help": "with data/ (default: the current one)"},
    "table": {"default": CONF / "downloads.yaml", "type": Path, "metavar": "FILE", "help": "of addresses"},
    "retriever": {"action": "append", "metavar": "OPTIONS", "help": 'with settings: "dense retriever.dtype=float16"'},
    "top_k": {"type": int, "default": 5, "metavar": "K", "help": "passages looked at (default: 5)"},
    "training_data.name": {"choices": choices("training_data")},
    "test": {"action": "append", "required": True, "metavar": "OPTIONS", "help": "a data set to be tested on"},
    "plan": {"action": "store_true", "help": "say what it takes and how much of it is stored; ask nothing"},
    "train.name": {"choices": choices("training")},
    "notebooks.folder": {"type": Path, "metavar": "FOLDER", "help": "a new one, for example my_notebooks"},
}


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
    function: Callable[..., int | None] = settings.pop("function")
    try:
        return function(**settings) or 0
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
    for command, function in _COMMANDS.items():
        text = str(function.__doc__)
        added = subparsers.add_parser(command, help=text, description=text, formatter_class=plain)
        added.set_defaults(function=function)
        for name, parameter in inspect.signature(function).parameters.items():
            flags = [f"--{name.replace('_', '-')}"] if parameter.kind is parameter.KEYWORD_ONLY else [name]
            key = f"{function.__name__}.{name}" if f"{function.__name__}.{name}" in _ARGUMENTS else name
            added.add_argument(*(["-m"] if name == "multirun" else []), *flags, **_ARGUMENTS[key])
            added.epilog = _EXAMPLES if key == "options" else added.epilog
    return parser


def reproduce(options: Sequence[str]) -> int:
    """Execute the notebook of a study, study=NAME or study=FILE.ipynb, or of all: tables, figures and pages"""
    from rag_notes.studies.notebook import reproduce as execute_notebooks

    missing = failed = 0
    for notebook, missing_answers in execute_notebooks(options):
        if missing_answers is None:
            failed += 1
            say(f"{_relative(notebook)}: a cell failed, and the others were not executed", file=sys.stderr)
            continue
        missing += missing_answers
        say(f"{_relative(notebook)} and {notebook.with_suffix('.html').name}")
    if missing:
        say(f"{missing} answers are missing: the notebooks say why; the same command asks again", file=sys.stderr)
    return int(missing + failed > 0)


def _relative(path: Path) -> Path:
    return path.relative_to(here()) if path.is_relative_to(here()) else path


def run(options: Sequence[str], *, multirun: bool, check: bool) -> int:
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
    """Say how many answers agree with the published ones; returns 1 where some do not."""
    from rag_notes.running.publish import check, published_like

    counts = sum((check(run, published_like(run)) for run in runs), Counter())
    for (method, result), answers in sorted(counts.items()):
        say(f"{method}: {answers} {result}")
    return int(any(result != "same" for _, result in counts))


def _multirun(options: Sequence[str]) -> int:
    """Run each combination of options that list several values as a job; returns the code of the first that failed."""
    from rag_notes.config import hydra_of_conf

    try:
        with hydra_of_conf(options) as hydra:
            hydra.multirun("config", partial(_job, Path.cwd()), [*options])
    except ConfigError:
        raise
    except JobError as error:
        return int(error.args[0])
    except Exception as error:  # of a launcher, whichever it is: what a job has to say it says itself
        say(f"rag-notes: the launcher lost a job ({type(error).__name__}: {error})", file=sys.stderr)
        say("rag-notes: what is done is kept, the same command goes on", file=sys.stderr)
        return 1
    return 0


class JobError(Exception):
    """A job of a multirun did not end well; its exit code."""


def _job(folder: Path, _: Any) -> None:
    with contextlib.chdir(folder):  # a worker may have been started elsewhere
        code = main(["run", *HydraConfig.get().overrides.task])
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise JobError(code)


def _outcome(runs: Sequence[Any]) -> int:
    """Say which answers failed, the most frequent error first, and which runs stopped; returns the exit code."""
    import pandas as pd

    answers = pd.concat([run.frame()["error"] for run in runs])
    if failed := answers.count():
        say(f"{failed} of {len(answers)} answers failed, for example", file=sys.stderr)
        for text, number in answers.value_counts().head(3).items():
            say(f"  {number} x {text}", file=sys.stderr)
        say("once the cause is mended the same command asks again", file=sys.stderr)
    stopped = [run.info.status for run in runs if not run.info.finished]
    say(*stopped, sep="\n", end="\n" * bool(stopped), file=sys.stderr)
    return int(bool(failed or stopped))


def plan(options: Sequence[str]) -> None:
    """Say what a study will take: calls, tokens, money, time, and how much of it is stored"""
    from rag_notes.studies.plan import plan as make_plan

    say(asyncio.run(make_plan(load_config(options))))


def config(options: Sequence[str]) -> None:
    """Show every setting that these options give, as YAML"""
    say(yaml.safe_dump(load_config(options).model_dump(), sort_keys=False, allow_unicode=True), end="")


def list_(what: str) -> None:
    """List the methods, data sets or studies that there are"""
    say(getattr(rag_notes, what)().to_string(index=False))


def runs(folder: str | None) -> None:
    """List the runs in a folder, the latest first"""
    from rag_notes.running.records import runs_table

    below = Path(folder) if folder else here() / load_config().runs
    table = runs_table(below)
    say(table.to_string(index=False) if len(table) else f"{below}: no runs; make one with `rag-notes run`")


def show(run: str, method: str, question: str, *, call: int | None) -> None:
    """Show what a method did on a question: its trace, or one call in full"""
    from rag_notes.report.trace import show_trace
    from rag_notes.running.records import load_run

    trace = show_trace(load_run(run), method, question)
    asks = answered(trace.sample.trace)
    if call is None:
        say(trace, *(f"call {i}: {ask.stage}, key {ask.key}" for i, ask in enumerate(asks, 1)), sep="\n")
    elif not 1 <= call <= len(asks):
        raise ConfigError(f"--call {call}: there are {len(asks)} calls")
    else:
        ask = asks[call - 1]
        say(f"stage {ask.stage}\nkey {ask.key}\n\n{ask.prompt}\n\n--- response ({ask.finish_reason})\n\n{ask.response}")


def publish(runs: Sequence[str], *, into: str, method: Sequence[str] | None) -> None:
    """Write runs without a word of their questions and passages, so that they may be given away"""
    from rag_notes.running.publish import publish as publish_runs
    from rag_notes.training.cards import RECIPE, publish_training

    trainings = [folder for folder in runs if (Path(folder) / RECIPE).is_file()]
    if trainings and method:
        raise ConfigError(f"{trainings[0]}: is a training, which has no methods to choose from; leave out --method")
    others = [folder for folder in runs if folder not in trainings]
    names = publish_runs(others, into, method) if others else []
    say(*names, *(publish_training(folder, into) for folder in trainings), sep="\n")


def store(action: str, store: str, file: Sequence[str], *, question: Sequence[str]) -> None:
    """Export or import stored responses, or drop some so that they are asked for again"""
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


def download(options: Sequence[str], *, into: Path, table: Path) -> int:
    """Download official files, checked by their SHA-256; without options list them with their licences"""
    from rag_notes import download as downloads

    available = downloads.load_downloads(table)
    if not options:
        say(downloads.overview(available, into))
        return 0
    if failures := downloads.download(downloads.choose(available, options), into):
        say(f"{len(failures)} files are missing, see above; the same command tries them again", file=sys.stderr)
    return int(bool(failures))


def index(options: Sequence[str]) -> None:
    """Index the corpus of a data set, or of official files (corpus=hotpotqa), which is prepared first"""
    from rag_notes.config import build_indexed_retriever, load_settings
    from rag_notes.parts import call

    prepared = [option for option in options if option.startswith(("corpus=", "corpus."))]
    if prepared and any(option.startswith(("dataset=", "dataset.")) for option in options):
        raise ConfigError("name a prepared corpus or data sets to index, not both: corpus=... or dataset=...")
    config = load_config([option for option in options if option not in prepared])
    if prepared:
        settings = load_settings("corpus", prepared, root="prepare")
        file = CorpusFile(str(here() / settings["out"]), "corpus.out")
        if not Path(file.path).is_file():
            say(call(settings))
    corpora: list[Iterable[Passage]] = [file] if prepared else [data.corpus for data in build_datasets(config)]
    for corpus in corpora:
        say(build_indexed_retriever(config, corpus).build_index())


def retrieval(options: Sequence[str], *, retriever: Sequence[str] | None, top_k: int) -> None:
    """Compare retrievers by the evidence that they find for each question"""
    from rag_notes.config import build_retriever
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


def training_data(name: str, options: Sequence[str], *, test: Sequence[str], plan: bool) -> None:
    """Make training data from a data set; what --test names ("dataset=hotpotqa limit=300") is kept out of it"""
    from rag_notes.training.data import make_training_data

    say(asyncio.run(make_training_data(name, options, test, plan=plan)))


def train(name: str, options: Sequence[str]) -> None:
    """Train a model on training data: model=FOLDER out=FOLDER; the same command goes on where it stopped"""
    from rag_notes.config import load_settings
    from rag_notes.parts import call

    prefixed = (option if option.startswith("training.") else f"training.{option}" for option in options)
    settings = load_settings("training", [f"+training={name}", *prefixed])
    metrics = call(settings)
    sizes = f"{metrics['steps']} steps on {metrics['trained_on']} examples, {metrics['held_out']} held out"
    say(f"{settings['out']}: {sizes}, {sum(metrics['too_long'].values())} left out as longer than max_length")
    for when in ("before", "after") if metrics["held_out"] else ():
        say(f"{when}: " + ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics[when].items())))


def notebooks(folder: Path) -> None:
    """Copy the notebooks of the studies into a folder, to be opened and changed"""
    if folder.exists():
        raise InputError(f"{folder}: is there already; name a new folder")
    shutil.copytree(SHIPPED / "notebooks", folder, ignore=shutil.ignore_patterns(".*"))
    say(f"{folder}: open them with jupyter lab {folder}")


_COMMANDS: dict[str, Callable[..., int | None]] = {
    function.__name__.strip("_").replace("_", "-"): function
    for function in (
        *(reproduce, run, plan, config, list_, runs, show, publish, store, download, index, retrieval),
        *(training_data, train, notebooks),
    )
}
