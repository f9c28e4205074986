"""How long a model computes for its tokens, measured one call at a time: no queue, and no prompt read before."""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LinearRegression

from rag_notes.config import ConfigError, build_llm, load_config
from rag_notes.datasets.world import world_passages
from rag_notes.datasets.world.region import PASSAGES
from rag_notes.llm.store import Response
from rag_notes.terminal import progress_bar
from rag_notes.types import InputError

_SIZES = (1, 4, 8, 16)  # passages in a prompt
_TASKS = ("Answer with one word: what are these passages about?", "Retell what the passages say, in about 100 words.")
_ROUNDS = 2
_SEED = 11  # of a world that no study asks about


class Speed(NamedTuple):
    """Seconds of computing for a million tokens read (`prompt`) and written (`completion`), from so many `calls`.

    `deviation` is the median distance of a call's time from what the two predict, as a share of that time.
    """

    prompt: float
    completion: float
    deviation: float
    calls: int


def fit_speed(responses: Sequence[Response]) -> Speed:
    """The two numbers that predict the seconds of responses made one at a time best, by least squares of shares.

    Calls that were tried again are left out, as their time contains the waiting. Raises InputError where fewer than
    three are left, or where reading and writing cannot be told apart.
    """
    made = [one for one in responses if not one.retries and one.prompt_tokens and one.seconds > 0]
    if len(made) < 3:
        raise InputError(f"{len(made)} of {len(responses)} calls went through at once; a speed needs three of them")
    tokens = np.array([[one.prompt_tokens, one.completion_tokens] for one in made], float)
    seconds = np.array([one.seconds for one in made])
    model = LinearRegression(fit_intercept=False, positive=True).fit(tokens, seconds, sample_weight=seconds**-2)
    if not all(model.coef_ > 0):
        raise InputError(
            "the time of reading cannot be told from that of writing in these calls: is the server busy with others, "
            "or does it answer from a cache?"
        )
    prompt, completion = (1e6 * float(each) for each in model.coef_)
    deviation = statistics.median(abs(model.predict(tokens) - seconds) / seconds)
    return Speed(prompt, completion, float(deviation), len(made))


async def measure_speed(options: Sequence[str] = (), *, progress: bool = True) -> Speed:
    """Ask the chosen model about generated passages, one call at a time, and return its speed.

    No prompt begins as another one does, so that none is read from a cache; nothing is kept in the response store.
    Raises ConfigError where no live model is chosen, LLMError where it does not answer, and as `fit_speed`.
    """
    if "store" not in (config := load_config(options)).llm:
        raise ConfigError("the speed of recorded responses cannot be measured: choose a model with llm=openai or local")
    asked = [(size, task) for _ in range(_ROUNDS) for size in _SIZES for task in _TASKS]
    passages = list(world_passages(_SEED, PASSAGES * (1 + len(asked))))
    prompts = [
        "\n".join([*(each.text for each in passages[PASSAGES * i :][:size]), task])
        for i, (size, task) in enumerate([asked[0], *asked])
    ]
    bar = progress_bar("speed", len(prompts), unit="call", disable=not progress)
    with tempfile.TemporaryDirectory() as folder, bar:
        config.llm["store"] = str(Path(folder) / "speed.sqlite")
        async with build_llm(config) as llm:
            responses = []
            for prompt in prompts:
                responses.append(await llm.ask(prompt))
                bar.update()
    return fit_speed(responses[1:])  # the first call opens the connection
