"""Commands that make training data, and that train."""

# ruff: noqa: PLC0415

import argparse
import asyncio

from rag_notes.config import call, load_settings
from rag_notes.terminal import say


def training_data(args: argparse.Namespace) -> int:
    """Make training data, or say what that will take."""
    from rag_notes.training.data import make_training_data, plan_training_data

    make = plan_training_data if args.plan else make_training_data
    say(asyncio.run(make(args.name, args.options, args.test)))
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
