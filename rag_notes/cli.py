"""The command `rag-notes`."""

import argparse
import asyncio
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from rag_notes.config import (
    CONF,
    PROJECT,
    ConfigError,
    build_corpora,
    build_datasets,
    build_indexed_retriever,
    build_retriever,
    choices,
    load_config,
    load_corpus,
    prepared_corpus,
)
from rag_notes.llm.client import LLMError
from rag_notes.llm.store import ResponseStore, StoreError
from rag_notes.records import RecordError, Run, load_run, load_runs, write_atomically
from rag_notes.retrieval.base import RetrieverError
from rag_notes.templates import TemplateError
from rag_notes.types import Language

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
  retriever=elasticsearch           BM25 in a server or cluster; index the corpus first: rag-notes index
  retry_errors=true                 run again the questions that failed
"""


AddCommand = Callable[..., argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 some questions failed or the run stopped, 2 bad input)."""
    args = _parser().parse_args(arguments)
    try:
        return int(args.command(args))
    except (
        ConfigError,
        RecordError,
        StoreError,
        TemplateError,
        LLMError,
        RetrieverError,
        ImportError,
        ValueError,
        OSError,
    ) as error:
        print(f"rag-notes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rag-notes: interrupted; the same command continues where it stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parts = "\n".join(
        f"  {group:<10}{', '.join(choices(group))}"
        for group in ("study", "dataset", "corpus", "method", "retriever", "llm")
    )
    parser = argparse.ArgumentParser(
        prog="rag-notes",
        description="Note-based adaptive RAG: run methods, reproduce studies, keep what was paid for.",
        epilog=f"{OPTIONS}\nwhat there is to choose from\n{parts}\n\nevery setting and its default: rag-notes config",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function, text in (
        ("reproduce", _reproduce, "execute a study's notebook (all studies if none is named): tables, figures, HTML"),
        ("run", _run, "evaluate methods on questions, without a notebook"),
        ("plan", _plan, "say what a study will take: calls, tokens, money, time, and how much of it is stored"),
        ("calls", _calls, "count calls, searches and the longest chain of calls of each method, from stored responses"),
        (
            "index",
            _index,
            "index a data set's corpus, or a prepared one (corpus=hotpotqa), where the retriever does not do so by "
            "itself: retriever=elasticsearch",
        ),
        ("quest-eval", _quest_eval, "put the answers of a run, made if need be, to RAGQuestEval (CRUD)"),
        ("config", _config, "show the settings that these options give"),
    ):
        command = commands.add_parser(
            name, help=text, description=text, epilog=OPTIONS, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.add_argument("options", nargs="*", metavar="name=value")
        command.set_defaults(command=function)
    _add_data_commands(commands.add_parser)
    _add_run_commands(commands.add_parser)
    return parser


def _add_data_commands(add: AddCommand) -> None:
    """What fetches, makes and keeps data."""
    text = (
        "download official files, for example dataset=musique or corpus=[hotpotqa,crud]; without options list them all"
    )
    download = add("download", help=text, description=text)
    download.add_argument("options", nargs="*", metavar="name=value")
    download.add_argument(
        "--into", default=PROJECT, type=Path, metavar="FOLDER", help="with data/ (default: the project)"
    )
    download.add_argument("--table", default=CONF / "downloads.yaml", type=Path, metavar="FILE", help="of addresses")
    download.set_defaults(command=_download)
    text = "make a corpus's passages from its official files, for example corpus=hotpotqa corpus.out=FILE"
    prepare = add("prepare", help=text, description=text)
    prepare.add_argument("options", nargs="+", metavar="name=value")
    prepare.set_defaults(command=_prepare)
    text = "compare retrievers by the evidence they find for each question, as a table in Markdown"
    retrieval = add(
        "retrieval", help=text, description=text, epilog=OPTIONS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    retrieval.add_argument("options", nargs="*", metavar="name=value")
    retrieval.add_argument(
        "--retriever",
        action="append",
        metavar="OPTIONS",
        help='one to compare, with its settings: "dense retriever.encoder.model=FOLDER" (default: bm25)',
    )
    retrieval.add_argument("--top-k", type=int, default=5, metavar="K", help="passages looked at (default: 5)")
    retrieval.set_defaults(command=_retrieval)
    store = add("store", help="export, import or verify a response store, or drop responses to have them asked anew")
    store.add_argument("action", choices=["export", "import", "verify", "drop"])
    store.add_argument("store", help="the store, for example .cache/responses.sqlite")
    store.add_argument("file", nargs="*", help="JSON lines, .jsonl or .jsonl.xz (export, import); keys (drop)")
    store.add_argument("--question", action="append", default=[], metavar="TEXT", help="that prompts contain (drop)")
    store.set_defaults(command=_store)


def _add_run_commands(add: AddCommand) -> None:
    """What is made of finished runs."""
    text = "label questions by the cheapest strategy that answers them, to train Adaptive-RAG's classifier"
    complexity = add("complexity", help=text, description=text)
    complexity.add_argument("runs", nargs="+", metavar="RUN", help="a run folder with no_retrieval, vanilla and ircot")
    complexity.add_argument("--out", required=True, metavar="FILE", help="the file of labels to write, CSV")
    complexity.add_argument("--language", choices=get_args(Language), default="en", help="of the questions")
    complexity.set_defaults(command=_complexity)
    text = "write a report of runs: a folder with every table, figure and trace that opens from disk"
    report = add("report", help=text, description=text)
    report.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, for example runs/NAME")
    report.add_argument("--out", required=True, metavar="FOLDER", help="where to write it; an earlier one is replaced")
    report.add_argument("--baseline", metavar="METHOD", help="that differences are taken to (default: vanilla)")
    report.set_defaults(command=_report)
    text = "count the calls that runs asked for and the distinct ones, which were paid, study by study"
    shared = add("shared", help=text, description=text)
    shared.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, for example runs/NAME")
    shared.set_defaults(command=_shared)
    text = "compare two runs of one data set, or two methods, question by question"
    compare = add("compare", help=text, description=text)
    compare.add_argument("run_a", metavar="RUN_A", help="a run's folder, for example runs/NAME")
    compare.add_argument("run_b", metavar="RUN_B", nargs="?", help="another one (default: the same)")
    compare.add_argument("--method-a", metavar="METHOD", help="of A (default: every method that both have)")
    compare.add_argument("--method-b", metavar="METHOD", help="of B (default: that of A)")
    compare.add_argument("--out", action="append", default=[], metavar="FILE", help="write it as .html or .csv, too")
    compare.add_argument("--report", metavar="FOLDER", help="link to the traces in this report of the runs")
    compare.set_defaults(command=_compare)
    text = "set what the papers claim beside what runs give: a page with a verdict for every claim"
    verify = add("verify", help=text, description=text)
    verify.add_argument("runs", nargs="*", metavar="RUN", help="a run's folder (default: all below the runs' folder)")
    verify.add_argument("--out", metavar="FOLDER", help="where to write it (default: verification/ beside the runs)")
    verify.add_argument("--readme", metavar="FILE", help="write the summary between the markers of this file, too")
    verify.set_defaults(command=_verify)


def _config(args: argparse.Namespace) -> int:
    import yaml  # noqa: PLC0415 - only here

    print(yaml.safe_dump(load_config(args.options).model_dump(), sort_keys=False, allow_unicode=True), end="")
    return 0


def _run(args: argparse.Namespace) -> int:
    from rag_notes.report.tables import diagnostics, results, results_table  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.study import run_study  # noqa: PLC0415

    config = load_config(args.options)
    runs = asyncio.run(run_study(config, args.options))
    table = results(runs, baseline=config.baseline, confidence=config.confidence, resamples=config.resamples)
    print(results_table(table).data.to_string())  # type: ignore[attr-defined] # pandas-stubs leave it out
    print(diagnostics(runs).to_string(index=False))
    return _outcome(runs)


def _download(args: argparse.Namespace) -> int:
    from rag_notes.downloads import chosen, download, load_downloads, overview  # noqa: PLC0415 - HTTP loads slowly

    table = load_downloads(args.table)
    if not args.options:
        print(overview(table, args.into))
        return 0
    failures = download(chosen(table, args.options), args.into)
    if failures:
        print(f"{len(failures)} files are missing, see above; the same command continues", file=sys.stderr)
    return int(bool(failures))


def _prepare(args: argparse.Namespace) -> int:
    made = load_corpus(args.options)()
    print(f"{made.path}: {made.passages:,} passages, sha256 {made.sha256}")
    print(f"left out: {made.repeated:,} repeated, {made.empty:,} without text")
    if made.expected not in (None, made.passages):
        print(f"the papers' corpus has {made.expected:,} passages, this one {made.passages - made.expected:+,}")
    return 0


def _calls(args: argparse.Namespace) -> int:
    from rag_notes.report.calls import calls_table  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.study import count_study_calls  # noqa: PLC0415

    for dataset, calls in asyncio.run(count_study_calls(load_config(args.options))).items():
        print(f"{dataset}\n\n{calls_table(calls)}\n")
    return 0


def _index(args: argparse.Namespace) -> int:
    prepared = [option for option in args.options if re.match(r"corpus[.=]", option)]
    if prepared and any(re.match(r"dataset[.=]", option) for option in args.options):
        raise ConfigError("name a prepared corpus or data sets to index, not both: corpus=... or dataset=...")
    config = load_config([option for option in args.options if option not in prepared])
    for corpus in [prepared_corpus(prepared)] if prepared else build_corpora(config):
        print(build_indexed_retriever(config, corpus).build_index())
    return 0


def _plan(args: argparse.Namespace) -> int:
    from rag_notes.plan import plan, plan_table  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.studies import parts  # noqa: PLC0415

    print(plan_table(asyncio.run(plan(*parts(load_config(args.options), args.options)))))
    return 0


def _shared(args: argparse.Namespace) -> int:
    from rag_notes.sharing import shared_calls, shared_table  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.study import studies  # noqa: PLC0415

    print(shared_table(shared_calls(load_runs(args.runs).values(), studies())))
    return 0


def _quest_eval(args: argparse.Namespace) -> int:
    from rag_notes.quest import quest_results, run_quest_eval  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.study import run_study  # noqa: PLC0415

    config = load_config(args.options)
    runs = asyncio.run(run_study(config, args.options))
    inquiries = asyncio.run(run_quest_eval(config, runs, args.options))
    table = quest_results(inquiries, confidence=config.confidence, resamples=config.resamples)
    print(table.to_string(index=False, float_format="{:.3f}".format))
    return _outcome([*runs, *inquiries])


def _retrieval(args: argparse.Namespace) -> int:
    from rag_notes.report.retrieval import retrieval_scores, retrieval_table  # noqa: PLC0415 - pandas loads slowly

    if args.top_k < 1:
        raise ConfigError(f"--top-k {args.top_k}: must be at least 1")
    asked = args.retriever or ["bm25"]
    configs = [load_config([*args.options, *shlex.split(f"retriever={text}")]) for text in asked]
    config, firsts = configs[0], Counter(text.partition(" ")[0] for text in asked)
    scores = {}
    for dataset in build_datasets(config):
        for text, chosen in zip(asked, configs, strict=True):
            choice = text.partition(" ")[0]
            label = choice if firsts[choice] == 1 else text  # of two with one name, the settings tell which is which
            retriever = build_retriever(chosen, dataset.corpus)
            scores[dataset.name, label] = retrieval_scores(dataset.questions, retriever, args.top_k)
    print(retrieval_table(scores, args.top_k, confidence=config.confidence, resamples=config.resamples))
    return 0


def _reproduce(args: argparse.Namespace) -> int:
    from rag_notes.study import reproduce_all, studies  # noqa: PLC0415 - papermill loads slowly

    named = any(option.startswith("study=") for option in args.options)
    chosen = [args.options] if named else [[f"study={study}", *args.options] for study in studies()]
    for notebook in reproduce_all(chosen):
        shown = notebook.relative_to(PROJECT) if notebook.is_relative_to(PROJECT) else notebook
        print(f"{shown} and {notebook.with_suffix('.html').name}")
    print(f"figures: {load_config(args.options).figures}/")
    return 0


def _complexity(args: argparse.Namespace) -> int:
    from rag_notes.complexity import LABELS, STRATEGIES, cross_validate, silver_labels  # noqa: PLC0415 - loads slowly

    labels, unanswered = silver_labels([load_run(folder) for folder in args.runs])
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, labels.to_csv(index=False, lineterminator="\n"))
    print(f"{len(labels)} labels written to {out}, {unanswered} questions left out that no strategy answers")
    for label, strategy in zip(LABELS, STRATEGIES, strict=True):
        print(f"  {label} ({strategy}): {(labels['label'] == label).sum()}")
    try:
        accuracy, most_frequent, table = cross_validate(labels, args.language)
    except ValueError as error:
        print(f"not cross-validated: {error}")
        return 0
    print(f"cross-validated accuracy {accuracy:.3f}, always the most frequent label {most_frequent:.3f}")
    print(table.rename_axis(index="true", columns="predicted").to_string())
    return 0


def _report(args: argparse.Namespace) -> int:
    from rag_notes.report.site import write_report  # noqa: PLC0415 - pandas and matplotlib load slowly

    print(write_report(load_runs(args.runs), args.out, baseline=args.baseline))
    return 0


def _compare(args: argparse.Namespace) -> int:
    from rag_notes.report.compare import compare_runs  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.report.compare_page import as_text, find_links, kind_of, write_comparison  # noqa: PLC0415

    pages = [Path(out) for out in args.out if kind_of(out) == "html"]
    folder_a, folder_b = Path(args.run_a).resolve(), Path(args.run_b or args.run_a).resolve()
    run_a = load_run(folder_a)
    run_b = run_a if folder_b == folder_a else load_run(folder_b)
    comparison = compare_runs(
        run_a, run_b, method_a=args.method_a, method_b=args.method_b, names=(folder_a.name, folder_b.name)
    )
    links = find_links(comparison, args.report) if args.report else None
    written = [path for out in args.out for path in write_comparison(comparison, out, links)]
    print(as_text(comparison, links, pages[0] if pages else None), *written, sep="\n")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from rag_notes.report.verification_page import (  # noqa: PLC0415 - pandas and matplotlib load slowly
        find_runs,
        summary,
        verify,
        write_summary,
        write_verification,
    )

    below = PROJECT / load_config().runs
    verification = verify(args.runs or find_runs(below))
    text = summary(verification)
    written = write_verification(verification, args.out or below / "verification")
    if args.readme:
        write_summary(args.readme, text)
        written.append(Path(args.readme))
    print(text, *written, sep="\n")
    return 0


def _outcome(runs: Sequence[Run]) -> int:
    """Say what failed, the most frequent first."""
    errors = Counter(sample["error"] for run in runs for sample in run.samples if sample["error"] is not None)
    if errors:
        print(
            f"{errors.total()} of {sum(len(run.samples) for run in runs)} answers failed, for example", file=sys.stderr
        )
        for text, count in errors.most_common(3):
            print(f"  {count} x {text}", file=sys.stderr)
        print("run again with retry_errors=true once the cause is mended", file=sys.stderr)
    if retries := sum(run.info["search_retries"] for run in runs):
        print(f"{retries} searches failed for the moment and were sent again", file=sys.stderr)
    stopped = [run.info["status"] for run in runs if run.info["status"] != "finished"]
    for status in stopped:
        print(status, file=sys.stderr)
    return 1 if errors or stopped else 0


def _store(args: argparse.Namespace) -> int:
    if args.action == "drop" and not args.file + args.question:
        raise ConfigError("store drop needs keys, or --question TEXT that prompts contain")
    if args.action in ("export", "import") and len(args.file) != 1:
        raise ConfigError(f"store {args.action} needs a file, for example recording.jsonl.xz")
    store = ResponseStore(args.store)
    if args.action == "export":
        print(f"{store.export_jsonl(args.file[0])} responses written to {args.file[0]}")
    elif args.action == "import":
        added, present, unchecked = store.import_jsonl(args.file[0])
        print(f"{added} responses added, {present} were there already" + f", {unchecked} unchecked" * bool(unchecked))
    elif args.action == "drop":
        print(f"{store.drop(args.file, args.question)} responses dropped")
    else:
        bad = store.verify()
        print(f"{len(store)} responses, {len(bad)} changed after they were stored", *bad, sep="\n")
    return int(args.action == "verify" and bool(bad))
