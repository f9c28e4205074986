"""Commands that fetch, make, index and keep data."""

# ruff: noqa: PLC0415

import argparse
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rag_notes.config import (
    ConfigError,
    build_corpora,
    build_datasets,
    build_indexed_retriever,
    build_retriever,
    load_config,
    load_corpus,
    prepared_corpus,
)
from rag_notes.files import write_atomically
from rag_notes.llm.store import ResponseStore
from rag_notes.running.run_files import load_run
from rag_notes.terminal import say

if TYPE_CHECKING:
    from rag_notes.datasets.prepare import Prepared


def download(args: argparse.Namespace) -> int:
    """Fetch official files, or list them."""
    from rag_notes.download import choose, load_downloads, overview
    from rag_notes.download import download as download_files

    entries = load_downloads(args.table)
    if not args.options:
        say(overview(entries, args.into))
        return 0
    failures = download_files(choose(entries, args.options), args.into)
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
