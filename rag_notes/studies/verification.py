"""The runs that the papers' claims are verified with: every method, and every variant that the papers' tables vary."""

from rag_notes.config import Config, build_methods, load_study
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study

VARIED = ("ablation", "thresholds", "top_k", "robustness")
"""The studies whose variants and noise ratios are run beside all methods."""


async def run(config: Config, *, progress: bool = True) -> Study:
    """Make the runs of `parts`. Raises as `rag_notes.running.run.run_methods`."""
    runs: list[Run] = []
    for part in parts(config):
        plain = {name: method for name, method in build_methods(part).items() if name not in part.study.variants}
        for percent in dict.fromkeys(part.study.noise_percent) or (None,):
            if not runs or runs[-1].info.finished:
                methods = None if percent is None else plain
                runs += await run_methods(part, methods=methods, noise_percent=percent, progress=progress)
    return Study(config, runs)


def parts(config: Config) -> list[Config]:
    """Return the configurations of which a study consists: its own, and for the verification those of `VARIED`."""
    others = [load_study(name) for name in VARIED] if config.study.name == "verification" else []
    return [config, *(config.model_copy(update={"study": of.study, "method": of.method}) for of in others)]
