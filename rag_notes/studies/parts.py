"""What single studies need beyond a run of their methods: which settings to run, and how to name them."""

from collections.abc import Sequence

import pandas as pd

from rag_notes.config import Config, load_study
from rag_notes.report.curves import with_settings
from rag_notes.report.tables import diagnostics
from rag_notes.running.records import Run
from rag_notes.running.run import run_study
from rag_notes.studies.noise import run_noise

_LIMITS = {  # what ends a method's loop, in the order in which its paper names a setting
    "deepnote": ("max_step", "max_failure"),
    "adaptive_note": ("collector_iterations", "invalid_updates"),
    "amber": ("max_iterations",),
}

_VARIED = ("ablation", "thresholds", "top_k")


def thresholds(table: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """Return the rows of a table that are of methods with thresholds, with `family` and, as `setting`, their values.

    Settings are written as in the papers: DeepNote's `max step-max failure` (its Table 4), Adaptive-Note's `CI-IU` (its
    Table 3), Amber's number of iterations (its Table 4). Rows are in the order of family and setting.
    """
    names = sorted({name for limits in _LIMITS.values() for name in limits})
    table = with_settings(table, runs, names)
    table = table[table["family"].isin(list(_LIMITS))]
    setting = ["-".join(f"{row[name]:.0f}" for name in _LIMITS[row["family"]]) for row in table.to_dict("records")]
    order = table["family"].map(list(_LIMITS).index)
    ordered = table.assign(setting=setting, order=order).sort_values(["order", "setting"], kind="stable")
    return ordered.drop(columns=[*names, "order"]).reset_index(drop=True)


async def fair_top_k(options: Sequence[str] = (), *, adaptive: str = "adaptive_note", smallest: int = 5) -> list[Run]:
    """Run one search with as many passages as the adaptive method reads in all, and with numbers between.

    The fair number of a data set is the mean of the distinct passages that `adaptive` read there, rounded; the runs
    have `vanilla` at `smallest`, half-way, at each fair number and two beyond, as `vanilla_kN` (Adaptive-Note, A1, A2).
    """
    runs = await run_study(load_study("fair_top_k", options), options)
    table = diagnostics(runs)
    read = table.loc[(table["method"] == adaptive) & table["distinct_passages"].notna(), "distinct_passages"]
    fair = {max(smallest, round(mean)) for mean in read}
    ks = sorted({smallest} | {k for most in fair for k in ((smallest + most) // 2, most, most + 2)})
    variants = [f"+study.variants.vanilla_k{k}={{method: vanilla, top_k: {k}}}" for k in ks]
    return await run_study(load_study("fair_top_k", [*options, *variants]), [*options, *variants])


async def verification_runs(options: Sequence[str] = (), *, progress: bool = True) -> list[Run]:
    """Run every method and every variant that the papers' tables vary, so that their claims meet a run of ours."""
    *compared, (noisy, own) = _verification_parts(options)
    runs: list[Run] = []
    for config, given in compared:
        runs += await run_study(config, given, progress=progress)
    return runs + await run_noise(noisy, own, progress=progress)


def parts(config: Config, options: Sequence[str] = ()) -> list[Config]:
    """Return the configurations that a study runs: its own, or all those that the verification takes its runs from."""
    return [part for part, _ in _verification_parts(options)] if config.study.name == "verification" else [config]


def _verification_parts(options: Sequence[str]) -> list[tuple[Config, list[str]]]:
    own = [option for option in options if not option.startswith("method=")]  # these are about methods of their own
    others = [(load_study(study, own), own) for study in (*_VARIED, "robustness")]
    return [(load_study("verification", options), list(options)), *others]
