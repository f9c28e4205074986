"""The command `rag-notes`: what may be typed; what is done lies in `rag_notes.commands`."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import argcomplete
import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from rag_notes.commands import data, exchange, runs, studies, training
from rag_notes.config import ConfigError
from rag_notes.llm.client import LLMError
from rag_notes.options import CONF, GROUPS, choices, complete, explain
from rag_notes.retrieval.base import RetrieverError
from rag_notes.terminal import say
from rag_notes.types import InputError, Language

OPTIONS = """\
options are Hydra overrides, name=value, for example
  dataset=hotpotqa limit=50         the first 50 questions of one data set
  dataset=[mini,musique]            several data sets
  method=[vanilla,deepnote]         these methods only
  method.deepnote.max_step=2        one setting of a method
  llm=openai llm.model=gpt-4o-mini  a model behind an API; the key is read from OPENAI_API_KEY
  llm=openai llm.base_url=http://127.0.0.1:8000/v1 llm.model=NAME    your own vLLM, Ollama or llama.cpp server
  llm=local                         a small model served in this process
  llm.max_cost=5                    stop cleanly when 5 dollars are spent
  prompts=small                     the wording for small models instead of the papers'
  retriever=elasticsearch           BM25 in a server or cluster; index the corpus first: rag-notes index
  retry_errors=true                 run again the questions that failed
  from_records=true                 tables and figures of runs that lie there already: no model, no recordings
"""

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit code: 0 done, 1 some questions failed or the run stopped, 2 bad input, 3 an error of this program.
    """
    parser = _parser()
    argcomplete.autocomplete(parser)
    args, behind = parser.parse_known_args(arguments)
    if unknown := [word for word in behind if word.startswith("-") or not hasattr(args, "options")]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if behind:  # options that stand behind a flag, which argparse takes in one piece only
        args.options = [*args.options, *behind]
    try:
        return int(args.command(args))
    except (InputError, LLMError, RetrieverError, ImportError, OSError) as error:
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


class JobError(Exception):
    """A job of a multirun did not end well; its exit code."""


def multirun(options: Sequence[str]) -> int:
    """Run a job for each combination of the options that list several values, as Hydra's launcher says.

    A job is `rag-notes run`, here or in whatever process or machine the launcher chooses. Returns the exit code of the
    first job that did not end well. Raises ConfigError for options that Hydra refuses.
    """
    typed, sys.argv = sys.argv, ["rag-notes", "--multirun", *options]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises what it would otherwise print before it exits
    try:
        hydra.main(str(CONF), "config", "1.3")(partial(_job, Path.cwd()))()
    except JobError as error:
        return int(error.args[0])
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, options)) from None
    except Exception as error:  # of a launcher, whichever it is: what a job has to say it says itself
        lost = f"rag-notes: the launcher lost a job ({type(error).__name__}: {error})"
        say(f"{lost}\nrag-notes: what is done is kept, the same command goes on", file=sys.stderr)
        return 1
    finally:
        sys.argv = typed
        GlobalHydra.instance().clear()
    return 0


def _job(folder: Path, _: Any) -> None:
    options = list(HydraConfig.get().overrides.task)
    GlobalHydra.instance().clear()  # the job composes its settings anew
    with contextlib.chdir(folder):  # a worker may have been started elsewhere
        code = main(["run", *options])
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise JobError(code)


def _run(args: argparse.Namespace) -> int:
    if args.cfg:
        return studies.config(args)
    if args.multirun and args.check:
        raise ConfigError("--check: not with --multirun, which makes several runs; check each by itself")
    return multirun(args.options) if args.multirun else studies.run(args)


def _parser() -> argparse.ArgumentParser:
    parts = "\n".join(f"  {group:<10}{', '.join(choices(group))}" for group in GROUPS)
    parser = argparse.ArgumentParser(
        prog="rag-notes",
        description="Note-based adaptive RAG: run methods, reproduce studies, keep what was paid for.",
        epilog=f"{OPTIONS}\nwhat there is to choose from\n{parts}\n\nevery setting and its default: rag-notes config",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rag-notes {version('rag-notes')}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, *, options: str | None = None) -> argparse.ArgumentParser:
        added = subparsers.add_parser(
            name,
            help=text,
            description=text,
            epilog=None if options is None else OPTIONS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if options is not None:
            option = added.add_argument("options", nargs=options, metavar="name=value")
            option.completer = complete  # type: ignore[attr-defined] # argcomplete's
        added.set_defaults(command=command)
        return added

    _add_studies(add)
    _add_data(add)
    _add_training(add)
    _add_runs(add)
    _add_exchange(add)
    return parser


def _add_studies(add: Callable[..., argparse.ArgumentParser]) -> None:
    """What asks a model, or says what that will take."""
    text = "execute a study's notebook (all studies if none is named): tables, figures, HTML"
    add("reproduce", studies.reproduce, text, options="*")
    run = add("run", _run, "evaluate methods on questions, without a notebook", options="*")
    run.add_argument("-m", "--multirun", action="store_true", help="a run for each value: dataset=mini,asqa limit=5,9")
    run.add_argument("--cfg", choices=["job"], help="only show the settings that these options give")
    run.add_argument("--check", metavar="FOLDER", help="a published run of it: say which answers agree with it")
    tables = add("tables", studies.tables, "print tables of a study in Markdown, without its notebook", options="*")
    help_ = "a table of the study's module, for example table (may be given again)"
    tables.add_argument("--show", action="append", required=True, metavar="NAME", help=help_)
    text = "say what a study will take: calls, tokens, money, time, and how much of it is stored"
    add("plan", studies.plan, text, options="*")
    text = "measure how long a live model computes for its tokens, for the cost study (conf/speeds.yaml)"
    add("speed", studies.speed, text, options="*")
    text = "count calls, searches and the sequential depth of each method, from stored responses"
    add("calls", studies.calls, text, options="*")
    text = "put the answers of a run, made if need be, to RAGQuestEval (CRUD)"
    add("quest-eval", studies.quest_eval, text, options="*")
    add("config", studies.config, "show the settings that these options give", options="*")
    add(
        "methods",
        studies.methods,
        "list the methods: what they are called, where they come from, what they cost at most",
    )


def _add_data(add: Callable[..., argparse.ArgumentParser]) -> None:
    """What fetches, makes, indexes and keeps data."""
    text = (
        "download official files, for example dataset=musique or corpus=[hotpotqa,crud]; without options list them all"
    )
    download = add("download", data.download, text, options="*")
    download.add_argument("--into", default=Path(), type=Path, metavar="FOLDER", help="with data/ (the current one)")
    download.add_argument("--table", default=CONF / "downloads.yaml", type=Path, metavar="FILE", help="of addresses")
    text = "make a corpus's passages from its official files, for example corpus=hotpotqa corpus.out=FILE"
    add("prepare", data.prepare, text, options="+")
    text = (
        "index a data set's corpus, or that of official files (corpus=hotpotqa), which is prepared if need be; "
        "in a server with retriever=elasticsearch"
    )
    add("index", data.index, text, options="*")
    text = "compare retrievers by the evidence they find for each question, as a table in Markdown"
    retrieval = add("retrieval", data.retrieval, text, options="*")
    help_ = 'one to compare, with its settings: "dense retriever.encoder.model=FOLDER" (default: bm25)'
    retrieval.add_argument("--retriever", action="append", metavar="OPTIONS", help=help_)
    retrieval.add_argument("--top-k", type=int, default=5, metavar="K", help="passages looked at (default: 5)")
    help_ = "write TREC run and qrels files there too, and print nDCG, RR, recall and AP"
    retrieval.add_argument("--trec", metavar="FOLDER", help=help_)
    text = "export or import a response store, or drop responses to have them asked anew"
    store = add("store", data.store, text)
    store.add_argument("action", choices=["export", "import", "drop"])
    store.add_argument("store", help="the store, for example .cache/responses.sqlite")
    store.add_argument("file", nargs="*", help="JSON lines, .jsonl or .jsonl.xz (export, import); keys (drop)")
    store.add_argument("--question", action="append", default=[], metavar="TEXT", help="that prompts contain (drop)")
    text = "label questions by the cheapest strategy that answers them, to train Adaptive-RAG's classifier"
    complexity = add("complexity", data.complexity, text)
    complexity.add_argument("runs", nargs="+", metavar="RUN", help="a run folder with no_retrieval, vanilla and ircot")
    complexity.add_argument("--out", required=True, metavar="FILE", help="the file of labels to write, CSV")
    complexity.add_argument("--language", choices=get_args(Language), default="en", help="of the questions")


def _add_training(add: Callable[..., argparse.ArgumentParser]) -> None:
    """What makes training data and trains."""
    text = "make training data from a data set, resumably; its own settings begin with training_data."
    making = add("training-data", training.training_data, text)
    help_ = 'a data set that the model will be tested on, "dataset=hotpotqa limit=300": shared questions are refused'
    making.add_argument("--test", action="append", required=True, metavar="OPTIONS", help=help_)
    making.add_argument(
        "--plan", action="store_true", help="say what it takes and how much of it is stored; ask nothing"
    )
    making.epilog = OPTIONS
    train = add("train", training.train, "train a model on training data, resumably: model=... out=FOLDER")
    for parser, group in ((making, "training_data"), (train, "training")):
        parser.add_argument("name", choices=choices(group), metavar="NAME", help=", ".join(choices(group)))
        parser.add_argument("options", nargs="*", metavar="name=value")


def _add_runs(add: Callable[..., argparse.ArgumentParser]) -> None:
    """What is made of finished runs."""
    listed = add("runs", runs.runs, "list the runs there are: study, data set, model, prompts, methods, errors, date")
    listed.add_argument("folder", nargs="?", metavar="FOLDER", help="where they lie (default: the runs' folder)")
    show = add("show", runs.show, "show what a method did on a question: its trace, or one call's request and response")
    show.add_argument("run", metavar="RUN", help="a run's folder, for example runs/NAME")
    show.add_argument("method", metavar="METHOD")
    show.add_argument("question", metavar="QUESTION", help="its id")
    show.add_argument("--call", type=int, metavar="N", help="the N-th call: key, prompt and response in full")
    score = add("score", runs.score, "mark the answers of finished runs anew, after a metric has changed")
    score.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, for example runs/NAME")
    text = "write runs without a word of their questions and passages, so that they may be given away"
    publish = add("publish", runs.publish, text)
    text = "a run's folder, for example runs/NAME; RAGQuestEval's run of its answers beside it gives them these scores"
    publish.add_argument("runs", nargs="+", metavar="RUN", help=text)
    publish.add_argument("--into", required=True, metavar="FOLDER", help="for example data/results")
    publish.add_argument("--method", action="append", metavar="NAME", help="of runs, this method alone (default: all)")
    text = "write a report of runs: a folder with every table, figure and trace that opens from disk"
    report = add("report", runs.report, text)
    report.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, for example runs/NAME")
    report.add_argument("--out", required=True, metavar="FOLDER", help="where to write it; an earlier one is replaced")
    report.add_argument("--baseline", metavar="METHOD", help="that differences are taken to (default: vanilla)")
    text = "print scores of runs in per cent, with intervals: a table in Markdown for each run, repeats as one"
    table = add("table", runs.table, text)
    table.add_argument("runs", nargs="*", metavar="RUN", help="a run's folder (default: all below the runs' folder)")
    table.add_argument("--metric", action="append", metavar="NAME", help="a column, for example acc (default: all)")
    table.add_argument("--baseline", metavar="METHOD", help="that stars compare with (default: vanilla)")
    table.add_argument("--clusters", action="store_true", help="intervals by clusters of questions with gold in common")
    table.add_argument("--beside", action="append", default=[], metavar="RUN", help="a further run's folder")
    table.add_argument(
        "--differences", action="store_true", help="one table of all: points above or below the baseline"
    )
    text = "count the calls that runs asked for and the distinct ones, which were paid, study by study"
    add("shared", runs.shared, text).add_argument("runs", nargs="+", metavar="RUN", help="a run's folder")
    text = "set what the papers claim beside what runs give: a page with a verdict for every claim"
    verify = add("verify", runs.verify, text)
    verify.add_argument("runs", nargs="*", metavar="RUN", help="a run's folder (default: all below the runs' folder)")
    verify.add_argument("--out", metavar="FOLDER", help="where to write it (default: verification/ beside the runs)")
    verify.add_argument("--readme", metavar="FILE", help="write the summary between the markers of this file, too")
    text = "renew pages in Markdown: put what the commands in their markers print between the markers"
    pages = add("pages", lambda args: runs.pages(args, main), text)
    pages.add_argument("files", nargs="+", type=Path, metavar="FILE", help="for example README.md docs/results.md")
    pages.add_argument("--check", action="store_true", help="change nothing; the exit code is 1 where one would change")
    add("inconsistencies", runs.inconsistencies, "list what in the papers' own tables does not add up")
    text = "list the tables and figures of the papers, with the commands that make them again"
    add("coverage", runs.coverage, text)


def _add_exchange(add: Callable[..., argparse.ArgumentParser]) -> None:
    """What sets runs beside those of other programs, or writes them for other programs."""
    compare = add("compare", exchange.compare, "compare two runs of one data set, or two methods, question by question")
    help_ = "a run's folder (of repeats several, with commas), or answers of FlashRAG, the papers' authors or Inspect"
    compare.add_argument("run_a", metavar="RUN_A", help=help_)
    compare.add_argument("run_b", metavar="RUN_B", nargs="?", help="another one (default: the same)")
    compare.add_argument("--method-a", metavar="METHOD", help="of A (default: every method that both have)")
    compare.add_argument("--method-b", metavar="METHOD", help="of B (default: that of A)")
    compare.add_argument("--out", action="append", default=[], metavar="FILE", help="write it as .html or .csv, too")
    compare.add_argument("--clusters", action="store_true", help="by clusters of questions with gold in common")
    compare.add_argument("--report", metavar="FOLDER", help="link to the traces in this report of the runs")
    text = "write the searches of a run as TREC run and qrels files, and print nDCG, RR, recall and AP"
    trec = add("trec", exchange.trec, text)
    trec.add_argument("run", metavar="RUN", help="a run's folder, for example runs/NAME")
    trec.add_argument("--out", required=True, metavar="FOLDER", help="where to write them")
    export = add("export", exchange.export, "write the samples of a run as Parquet, or as logs of Inspect")
    export.add_argument("run", metavar="RUN", help="a run's folder, for example runs/NAME")
    export.add_argument("--format", required=True, choices=["parquet", "inspect"])
    export.add_argument("--out", required=True, metavar="PATH", help="a file (parquet) or a folder (inspect)")
    crate = add("crate", exchange.crate, "write finished runs with their provenance as a Workflow Run RO-Crate")
    crate.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, for example runs/NAME")
    crate.add_argument("--out", required=True, metavar="FOLDER", help="where to write it")
