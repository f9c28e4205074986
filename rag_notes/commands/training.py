"""Commands that make training data, and that train."""

# ruff: noqa: PLC0415

import argparse
import asyncio

from rag_notes.config import call, load_settings
from rag_notes.report.markdown import markdown
from rag_notes.terminal import say


def training_data(args: argparse.Namespace) -> int:
    """Make training data, or say what that will take."""
    import pandas as pd

    from rag_notes.running.training_data import make_training_data, plan_training_data
    from rag_notes.running.trainings import card_rows

    if args.plan:
        planned = asyncio.run(plan_training_data(args.name, args.options, args.test))
        say(
            f"{planned.questions} questions, at most {planned.at_most} calls (fewer where sizes are reached earlier)",
            f"stored: {planned.stored} calls; {planned.made.questions - planned.made.incomplete} questions are "
            f"complete and give {sum(planned.made.count().values())} examples",
            sep="\n",
        )
        return 0
    path, card = asyncio.run(make_training_data(args.name, args.options, args.test))
    say(f"{path}: {sum(card['sizes'].values())} examples of {card['questions']} questions, sha256 {card['sha256']}")
    say(f"\n{markdown(pd.DataFrame(card_rows(card)))}")
    if card["kinds"]:
        say("\n" + ", ".join(f"{kind}: {n}" for kind, n in card["kinds"].items()))
    return 0


def train(args: argparse.Namespace) -> int:
    """Train a model."""
    given = (option if option.startswith("training.") else f"training.{option}" for option in args.options)
    settings = load_settings("training", [f"+training={args.name}", *given])
    metrics = call(settings)
    say(
        f"{settings['out']}: {metrics['steps']} steps on {metrics['trained_on']} examples, "
        f"{metrics['held_out']} held out, {sum(metrics['too_long'].values())} left out as longer than max_length"
    )
    for when in ("before", "after") if metrics["held_out"] else ():
        say(f"{when}: " + ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics[when].items())))
    return 0
