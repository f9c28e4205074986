"""Intervals, a paired test with its power, a correction for several tests; deterministic for given values and seed."""

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy  # whose parts are loaded when they are used
from numpy.typing import ArrayLike, NDArray

from rag_notes.types import InputError

Floats = NDArray[np.float64]

MARGIN = 0.05
"""The difference of two scores, between 0 and 1, below which two systems count as equivalent."""

_MAX_EXACT = 14  # non-zero differences up to which all 2^n sign patterns are enumerated
_NO_SPREAD = 1e-12  # 0.3 - 0.1 and 0.2 - 0.0 are equal differences
_BATCH_VALUES = 1_000_000  # numbers held at once while resampling
_MOST_CACHED = 20_000_000  # draws of one sample size that are kept for the next call, 5 bytes each


class Interval(NamedTuple):
    """A confidence interval and how it was made: wilson, bca, percentile, constant or n=1; by cluster if it says so."""

    low: float
    high: float
    method: str


class PairedDifference(NamedTuple):
    """The mean of a - b over `n` questions, its interval, a two-sided p value and how often a was better or worse."""

    mean: float
    low: float
    high: float
    p: float
    wins: int
    ties: int
    losses: int
    n: int


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion, without continuity correction (Wilson, 1927).

    Raises ValueError unless 0 <= successes <= n, n >= 1 and 0 < confidence < 1.
    """
    _check_confidence(confidence)
    if n < 1 or not 0 <= successes <= n:
        raise InputError(f"need 0 <= successes <= n and n >= 1, not successes={successes}, n={n}")
    z, share = float(scipy.special.ndtri((1 + confidence) / 2)), successes / n
    centre = (2 * successes + z**2) / (2 * (n + z**2))
    half = z * math.sqrt(4 * n * share * (1 - share) + z**2) / (2 * (n + z**2))
    return Interval(centre - half if successes else 0.0, centre + half if successes < n else 1.0, "wilson")


def mean_interval(
    values: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    proportion: bool = True,
    clusters: Sequence[Hashable] | None = None,
) -> Interval:
    """Return a confidence interval of the mean of one score a question.

    If every value is 0 or 1 it is Wilson's, unless `proportion` is false: counts may be 0 and 1 by chance. Otherwise it
    is the bootstrap's: bias-corrected and accelerated (Efron, 1987), or percentile where that is not defined. Equal
    values give their value (`constant`), a single one nan (`n=1`). `clusters` says of each value what it belongs to:
    where values share one, whole clusters are resampled (Davison and Hinkley, 1997, section 3.8: the mean of all values
    of those drawn). Raises ValueError for no values, values that are not finite, too few clusters and bad options.
    """
    _check_confidence(confidence)
    array = _finite(values, "values")
    sums, sizes = _cluster_sums(array, clusters)
    if sizes is None and proportion and np.isin(array, (0.0, 1.0)).all():
        return wilson(int(array.sum()), array.size, confidence)
    return _bootstrap(sums, sizes, confidence, resamples, seed, paired=False)


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> PairedDifference:
    """Compare two systems by one score a question each, the same questions in the same order.

    The interval is the bootstrap's on the differences a - b, as in `mean_interval`. p is the two-sided sign-flip
    permutation test's of the mean difference: exact over all sign patterns for up to 14 non-zero differences, otherwise
    by Monte Carlo as (k + 1) / (resamples + 1) (Phipson and Smyth, 2010). The differences of a cluster change their
    signs together. Raises ValueError for unequal lengths and as `mean_interval`.
    """
    _check_confidence(confidence)
    if np.size(a) != np.size(b):
        raise InputError(f"paired scores must be of the same questions: a has {np.size(a)} values, b has {np.size(b)}")
    differences = _finite(a, "a") - _finite(b, "b")
    sums, sizes = _cluster_sums(differences, clusters)
    interval = _bootstrap(sums, sizes, confidence, resamples, seed, paired=True)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return PairedDifference(
        mean=float(differences.mean()),
        low=interval.low,
        high=interval.high,
        p=_sign_flip_p(sums[sums != 0], resamples, seed),
        wins=wins,
        ties=differences.size - wins - losses,
        losses=losses,
        n=differences.size,
    )


def holm(p_values: ArrayLike) -> list[float]:
    """Return the p values adjusted for their number, in the given order (Holm, 1979: step-down, capped at 1).

    NaN stays NaN and does not count as a test. Raises ValueError for a p value outside 0 to 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if ((p < 0) | (p > 1)).any():
        raise InputError(f"p values must lie between 0 and 1: {p.tolist()}")
    adjusted = np.full(p.size, math.nan)
    order = np.argsort(p, kind="stable")[: (~np.isnan(p)).sum()]  # NaN comes last
    adjusted[order] = np.maximum.accumulate(np.minimum(1, np.arange(order.size, 0, -1) * p[order]))
    return [float(value) for value in adjusted]


def smallest_detectable(differences: ArrayLike) -> float:
    """Return the true mean difference that so many pairs, spread as these are, show with 80 % power at alpha .05.

    It is that of the two-sided paired t test with the sample's standard deviation (noncentral t; Cohen, 1988, chapter
    2; without the negligible chance of significance on the wrong side): about 2.8 sd / sqrt(n) for many pairs, more for
    few. NaN for one pair or equal differences. Raises ValueError for no differences and values that are not finite.
    """
    array = _finite(differences, "differences")
    if np.ptp(array) <= _NO_SPREAD:
        return math.nan
    df = array.size - 1
    critical = scipy.stats.t.isf(0.05 / 2, df)

    def power_deficit(shift: float) -> float:
        return 0.8 - float(scipy.stats.nct.sf(critical, df, shift))

    high = 4.0
    while power_deficit(high) > 0:
        high *= 2
    return float(scipy.optimize.brentq(power_deficit, 0, high) * array.std(ddof=1) / math.sqrt(array.size))


def equivalence(differences: ArrayLike, margin: float) -> float:
    """Return the p of a test that the true mean difference of two scores from 0 to 1 lies between -margin and margin.

    It is the larger p of two one-sided paired t tests (Schuirmann, 1987). Few questions that differ make their interval
    too narrow, so p is never below (1 - margin)^n, the chance that n questions show no difference where a share
    `margin` of all differ by 1: with a margin of .05 nothing is equivalent on fewer than 59 questions. Raises
    ValueError for no differences, values that are not finite, and a margin outside 0 to 1.
    """
    array = _finite(differences, "differences")
    if not 0 < margin < 1:
        raise InputError(f"margin must lie between 0 and 1, for example 0.05, not {margin}")
    least = (1 - margin) ** array.size
    if np.ptp(array) <= _NO_SPREAD:
        return float(least if abs(array[0]) < margin else 1.0)
    above = scipy.stats.ttest_1samp(array, -margin, alternative="greater").pvalue
    below = scipy.stats.ttest_1samp(array, margin, alternative="less").pvalue
    return float(max(above, below, least))


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1, for example 0.95, not {confidence}")


def _finite(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise InputError(f"{name} must be a flat sequence of at least one finite number")
    return array


def _cluster_sums(values: Floats, clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats | None]:
    """The sums and sizes of the clusters, in the order of their first values; no sizes where all clusters have one."""
    if clusters is None:
        return values, None
    if len(clusters) != values.size:
        raise InputError(f"each value needs its cluster: {values.size} values, {len(clusters)} clusters")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    if len(numbers) == values.size:
        return values, None
    members = [numbers[cluster] for cluster in clusters]
    return np.bincount(members, weights=values).astype(np.float64), np.bincount(members).astype(np.float64)


def _bootstrap(
    values: Floats, sizes: Floats | None, confidence: float, resamples: int, seed: int, *, paired: bool
) -> Interval:
    """The interval of the mean of values, or, with `sizes`, of the clusters whose sums they are.

    As `scipy.stats.bootstrap`, the jackknife in closed form (Efron and Tibshirani, 1993, equations 14.9, 14.10, 14.15).
    """
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, not {resamples}")
    n = values.size
    if n == 1:
        return Interval(math.nan, math.nan, "n=1")
    each = values if sizes is None else values / sizes
    if np.ptp(each) == 0:
        return Interval(float(each[0]), float(each[0]), "constant")
    cached = n * resamples <= _MOST_CACHED
    draws, counts = (_resamples if cached else _resamples.__wrapped__)(n, resamples, seed, paired)
    nonzero = values != 0  # of paired differences most are 0
    drawn_sizes = np.full(resamples, n) if sizes is None else sizes @ counts
    means = np.einsum("i,ij->j", values[nonzero], counts[nonzero]) / drawn_sizes  # in one thread, always the same sums
    mean = values.sum() / (n if sizes is None else sizes.sum())
    near = np.flatnonzero(np.abs(means - mean) <= 1e-12 * np.abs(values).max())  # whose ties need the same rounding
    means[near] = values[draws[near]].sum(axis=1) / drawn_sizes[near]
    without_one = (values.sum() - values) / (n - 1 if sizes is None else sizes.sum() - sizes)
    influence = (n - 1) * (without_one.mean() - without_one)
    tail = np.array([1 - confidence, 1 + confidence]) / 2
    with np.errstate(invalid="ignore", divide="ignore"):  # where BCa is undefined, as the result's method says
        acceleration = (influence**3).sum() / (influence**2).sum() ** 1.5 / 6
        bias = scipy.special.ndtri(((means < mean).sum() + (means <= mean).sum()) / (2 * resamples))
        shift = bias + scipy.special.ndtri(tail)
        levels = scipy.special.ndtr(bias + shift / (1 - acceleration * shift))
    method = "percentile" if np.isnan(levels).any() else "bca"
    low, high = np.quantile(means, tail if method == "percentile" else levels)
    return Interval(float(low), float(high), method if sizes is None else f"cluster {method}")


@lru_cache(maxsize=12)
def _resamples(n: int, resamples: int, seed: int, paired: bool) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The values, of n, that each resample draws, a row each; and how often it draws each value, a column each."""
    rng = np.random.default_rng(seed)
    rng = rng.spawn(2)[0] if paired else rng
    batch, draws, counts = max(1, _BATCH_VALUES // n), [], []
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        drawn = rng.integers(0, n, size=(size, n))
        draws.append(drawn.astype(np.min_scalar_type(n)))
        flat = (drawn + n * np.arange(size)[:, None]).ravel()
        counts.append(np.bincount(flat, minlength=size * n).reshape(size, n).T.astype(np.uint8))
    return np.vstack(draws), np.hstack(counts)


def _sign_flip_p(differences: Floats, resamples: int, seed: int) -> float:
    """Two-sided p of the sum of non-zero differences under random signs; 1.0 if there are none."""
    n = differences.size
    if n == 0:
        return 1.0
    # Patterns that tie with the observed one must count although their sums may differ in the last bits.
    threshold = abs(differences.sum()) - 1e-10 * np.abs(differences).sum()
    if n <= _MAX_EXACT:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
        return float((np.abs(signs @ differences) >= threshold).mean())
    rng, extreme = np.random.default_rng(seed).spawn(2)[1], 0
    batch = max(1, _BATCH_VALUES // n)
    for start in range(0, resamples, batch):
        flips = rng.integers(0, 2, size=(min(batch, resamples - start), n))
        sums = differences.sum() - 2 * np.einsum("ij,j->i", flips, differences)
        extreme += int((np.abs(sums) >= threshold).sum())
    return (extreme + 1) / (resamples + 1)
