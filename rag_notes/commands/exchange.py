"""What the commands do that set runs beside those of other programs, or write them for other programs."""

# ruff: noqa: PLC0415

import argparse
from importlib.metadata import version
from pathlib import Path

from rag_notes.config import ConfigError
from rag_notes.running.records import Run
from rag_notes.running.run_files import load_run, load_runs
from rag_notes.terminal import say


def compare(args: argparse.Namespace) -> int:
    """Compare two runs or methods."""
    from rag_notes.report.compare import compare_runs
    from rag_notes.report.compare_page import as_text, find_links, kind_of, write_comparison

    pages = [Path(out) for out in args.out if kind_of(out) == "html"]
    runs, names = _sides(args.run_a, args.run_b or args.run_a)
    comparison = compare_runs(
        *runs, method_a=args.method_a, method_b=args.method_b, names=names, clusters=args.clusters
    )
    links = find_links(comparison, args.report) if args.report else None
    written = [path for out in args.out for path in write_comparison(comparison, out, links)]
    say(as_text(comparison, links, pages[0] if pages else None), *written, sep="\n")
    return 0


def _sides(a: str, b: str) -> tuple[tuple[Run, Run], tuple[str, str]]:
    """The runs of two arguments with their names: folders, several of repeats, or files of other programs."""
    from rag_notes.report.foreign import read_foreign

    names = tuple(", ".join(Path(folder).resolve().name for folder in each.split(",")) for each in (a, b))
    files = [Path(each).suffix in (".json", ".jsonl", ".eval") for each in (a, b)]
    of_a = read_foreign(a, None if files[1] else _run_of(b)) if files[0] else _run_of(a)
    same = Path(a).resolve() == Path(b).resolve()
    return (of_a, read_foreign(b, of_a) if files[1] else of_a if same else _run_of(b)), (names[0], names[1])


def _run_of(folders: str) -> Run:
    from rag_notes.running.repeats import pooled

    runs = list(pooled(load_runs(folders.split(","))).values())
    if len(runs) != 1:
        raise ConfigError(f"{folders}: these runs differ in more than their repeat; a side is one run, or its repeats")
    return runs[0]


def trec(args: argparse.Namespace) -> int:
    """Write searches as TREC files."""
    from rag_notes.report.trec import rankings_of, write_trec

    found = load_run(args.run)
    say(write_trec(found.questions, rankings_of(found), args.out).to_string(index=False), args.out, sep="\n")
    return 0


def export(args: argparse.Namespace) -> int:
    """Write a run as Parquet or as logs of Inspect."""
    from rag_notes.report.export import write_inspect, write_parquet

    found, out = load_run(args.run), Path(args.out)
    say(*([write_parquet(found, out)] if args.format == "parquet" else write_inspect(found, out)), sep="\n")
    return 0


def crate(args: argparse.Namespace) -> int:
    """Write finished runs as an RO-Crate."""
    from rag_notes.report.export import write_crate

    say(write_crate(load_runs(args.runs), Path(args.out), version("rag-notes")))
    return 0
