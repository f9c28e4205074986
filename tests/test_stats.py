"""Intervals and tests against scipy, textbook formulas and numbers by hand."""

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rag_notes.metrics.stats import equivalence, holm, mean_interval, paired_difference, smallest_detectable, wilson
from rag_notes.types import InputError


def wilson_by_formula(successes: int, n: int, confidence: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def permutation_p(a: list[float], b: list[float]) -> float:
    """scipy's exact paired permutation test of the mean difference."""
    options = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
    return float(stats.permutation_test((a, b), lambda x, y, axis: np.mean(x - y, axis=axis), **options).pvalue)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 1), (5, 10), (37, 200), (200, 200)])
def test_wilson_is_the_formula(successes: int, n: int, confidence: float) -> None:
    interval = wilson(successes, n, confidence)
    assert interval[:2] == pytest.approx(wilson_by_formula(successes, n, confidence), abs=1e-9)


FINITE = "must be a flat sequence of at least one finite number"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((partial(wilson, *counts), "0 <= successes <= n") for counts in ((0, 0), (-1, 5), (6, 5))),
        *((partial(mean_interval, values), FINITE) for values in ([], [0.5, math.nan], [math.inf, 0.2], [[0.1, 0.2]])),
        (partial(mean_interval, [0.1, 0.2], confidence=95), "confidence must lie between 0 and 1"),
        (partial(mean_interval, [0.2, 0.4], clusters=["a"]), "2 values, 1 clusters"),
        (partial(paired_difference, [0.1, 0.2], [0.2, 0.1], resamples=0), "resamples must be at least 1"),
        (partial(paired_difference, [1, 0], [1, 0, 1]), "a has 2 values, b has 3"),
        (partial(paired_difference, [1, 0], [1, math.nan]), f"b {FINITE}"),
        (partial(paired_difference, [], []), f"a {FINITE}"),
        *((partial(holm, p_values), "between 0 and 1") for p_values in ([0.5, 1.1], [-0.1])),
        (partial(smallest_detectable, []), FINITE),
        *((partial(equivalence, differences, 0.05), FINITE) for differences in ([], [math.nan])),
        *((partial(equivalence, [0.0], margin), "margin must lie between 0 and 1") for margin in (0.0, 1.0)),
    ],
)
def test_what_has_no_statistic_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_mean_interval_of_zeros_and_ones_is_wilson() -> None:
    expected = stats.binomtest(3, 5).proportion_ci(method="wilson")
    interval = mean_interval([1, 0, 1, 1, 0])
    assert interval[:2] == pytest.approx(tuple(expected))
    assert interval.method == "wilson"
    assert mean_interval([0.0] * 10).high == pytest.approx(0.2775, abs=1e-4)


@pytest.mark.parametrize("kind", ["ties", "continuous", "many", "clusters"])
def test_bootstrap_intervals_are_those_of_scipy_on_the_same_draws(kind: str) -> None:
    rng = np.random.default_rng(3)
    n, resamples = (2500, 9000) if kind == "many" else (90, 2000)
    values = rng.integers(0, 4, n) / 3 if kind in ("ties", "clusters") else rng.random(n)
    options: dict[str, Any] = {"n_resamples": resamples, "vectorized": True, "batch": 100, "confidence_level": 0.9}
    clusters = rng.permutation(np.arange(n) % 37) if kind == "clusters" else np.arange(n)
    order = list(dict.fromkeys(clusters.tolist()))
    sums = np.array([values[clusters == cluster].sum() for cluster in order])
    sizes = np.array([np.sum(clusters == cluster) for cluster in order])
    options |= {"paired": True, "rng": np.random.default_rng(7)}
    bootstrap = stats.bootstrap((sums, sizes), lambda x, y, axis: x.sum(axis=axis) / y.sum(axis=axis), **options)
    interval, other = (
        mean_interval(values, confidence=0.9, resamples=resamples, seed=seed, clusters=clusters.tolist())
        for seed in (7, 8)
    )
    assert interval[:2] == pytest.approx(tuple(bootstrap.confidence_interval), abs=1e-14)
    assert interval.method == ("cluster bca" if kind == "clusters" else "bca")
    assert other != interval


def test_mean_interval_falls_to_percentiles_where_bca_is_undefined() -> None:
    # the acceleration is a ratio of powers of the deviations that underflow to 0 / 0
    interval = mean_interval([0.0, 1e-200, 2e-200])
    # a resample of 3 has mean 0 or 2e-200 with probability 1/27 = 0.037 > 0.025 each, so these are the 95 % limits
    assert (interval.low, interval.method) == (0, "percentile")
    assert interval.high / 2e-200 == pytest.approx(1)


def test_paired_difference_by_hand() -> None:
    # differences 1, 1, 1, 0, -1: mean 0.4. Four non-zero ones, 16 sign patterns with sums +-4 (1 each), +-2 (4 each)
    # and 0 (6). The observed sum is 2; 1 + 4 + 4 + 1 = 10 patterns reach |2|: p = 10/16.
    result = paired_difference([1, 1, 1, 0, 0], [0, 0, 0, 0, 1])
    assert result.mean == pytest.approx(0.4)
    assert result.p == 10 / 16
    assert (result.wins, result.ties, result.losses, result.n) == (3, 1, 1, 5)
    assert result.low < 0.4 < result.high


@pytest.mark.parametrize("seed", range(6))
def test_exact_p_is_that_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (list(np.round(rng.random(9), 1)) for _ in range(2))  # rounded: ties between patterns matter
    assert paired_difference(a, b, resamples=50).p == pytest.approx(permutation_p(a, b), abs=1e-12)


def test_patterns_that_tie_count_whatever_the_rounding() -> None:
    # |0.1 + 0.2 - 0.3| is 0 for two patterns, not quite so in floating point; every pattern reaches 0: p = 1
    assert paired_difference([0.1, 0.2, 0.0], [0.0, 0.0, 0.3], resamples=50).p == 1


@pytest.mark.parametrize("losses", [2, 5])
def test_p_of_right_and_wrong_answers_is_mcnemars(losses: int) -> None:
    # on 0/1 scores the sign-flip test is the exact McNemar test: a binomial test of wins among wins and losses
    wins = 9
    a, b = [1] * wins + [0] * losses + [1] * 20, [0] * wins + [1] * losses + [1] * 20
    assert paired_difference(a, b, resamples=50).p == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)


def test_monte_carlo_p_is_close_to_the_exact_one_and_never_zero() -> None:
    a, b = [1] * 20 + [0] * 10, [0] * 20 + [1] * 10
    exact = stats.binomtest(20, 30).pvalue  # 0.0987; standard error at 20,000 patterns: 0.0021
    assert paired_difference(a, b, resamples=20_000).p == pytest.approx(exact, abs=0.0085)
    # no random pattern reaches 40 equal signs: (0 + 1) / (999 + 1)
    assert paired_difference([0.9] * 40, [0.1] * 40, resamples=999).p == 1 / 1000
    # 2,000 differences a pattern: 500 patterns fill a batch, so that 1,200 take three
    assert paired_difference([1.0] * 2000, [0.5] * 2000, resamples=1200).p == 1 / 1201


def test_paired_difference_is_antisymmetric_deterministic_and_unmoved_by_shared_difficulty() -> None:
    rng = np.random.default_rng(8)
    b = rng.random(30)
    a = b + rng.normal(0.02, 0.1, 30)
    there, back = (paired_difference(list(x), list(y), resamples=400) for x, y in ((a, b), (b, a)))
    assert back.mean == pytest.approx(-there.mean)
    assert (back.wins, back.losses) == (there.losses, there.wins)
    assert back.p == there.p
    assert there == paired_difference(list(a), list(b), resamples=400)
    harder = rng.random(30) * 5
    moved = paired_difference(list(a - harder), list(b - harder), resamples=400)
    assert moved.p == there.p
    assert moved[:3] == pytest.approx(there[:3])


def test_paired_difference_at_the_edges() -> None:
    same = paired_difference([0.3, 0.4, 0.5], [0.3, 0.4, 0.5])
    assert same == (0, 0, 0, 1, 0, 3, 0, 3)
    one = paired_difference([0.9], [0.1])
    assert list(one) == pytest.approx([0.8, math.nan, math.nan, 1, 1, 0, 0, 1], nan_ok=True)
    # differences of 0 and 1 alone are no proportion: Wilson's interval would end at 0.954
    assert paired_difference([1, 1, 0, 1], [0, 0, 0, 0]).high == 1


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1 = 0.04, 0.06, 0.06, 0.04; never below the one before: 0.06 at last
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    # capped at 1: 0.6 * 2 and 0.7 * 1, which may not fall below 1
    assert holm([0.7, 0.6]) == [1, 1]
    assert (holm([0.03]), holm([])) == ([0.03], [])
    # NaN is no test: 0.01 * 2, 0.04 * 1
    assert holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)


def test_holm_rejects_what_the_step_down_procedure_rejects() -> None:
    rng = np.random.default_rng(10)
    for _ in range(200):
        p_values = list(rng.beta(0.3, 3, 6))
        adjusted = holm(p_values)
        for alpha in (0.01, 0.05, 0.2):
            rejected: set[int] = set()
            for rank, i in enumerate(np.argsort(p_values)):  # stop at the first that is not below alpha / (m - rank)
                if p_values[i] > alpha / (6 - rank):
                    break
                rejected.add(int(i))
            assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


@pytest.mark.parametrize(("n", "effect"), [(6, 1.4345), (20, 0.6604), (34, 0.4950), (54, 0.3883)])
def test_smallest_detectable_is_what_the_t_test_finds_four_times_in_five(n: int, effect: float) -> None:
    values = np.random.default_rng(n).normal(size=n)
    values = (values - values.mean()) / values.std(ddof=1)
    assert smallest_detectable(list(values)) == pytest.approx(effect, abs=1e-4)
    # Independently: how often scipy's t test is significant on samples that do have this difference.
    samples = np.random.default_rng(1).normal(effect, 1, size=(20_000, n))
    found = stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_smallest_detectable_of_many_is_the_textbook_formula_in_the_unit_of_the_differences() -> None:
    differences = [0.0, 0.5, -0.5, 1.0] * 2500
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    assert smallest_detectable(differences) == pytest.approx(z * np.std(differences) / 100, rel=1e-3)
    hundredfold = [100 * value for value in differences]
    assert smallest_detectable(hundredfold) == pytest.approx(100 * smallest_detectable(differences))


@pytest.mark.parametrize("differences", [[0.3], [0.0, 0.0, 0.0], [0.3 - 0.1, 0.2, 0.2]])
def test_nothing_is_detectable_without_spread(differences: list[float]) -> None:
    assert np.isnan(smallest_detectable(differences))


def test_equivalence_by_hand() -> None:
    # Mean 0, standard deviation 1, n = 5: at a margin of 2.132 / sqrt(5), the 5 % point of t with 4 degrees of freedom.
    differences = [1.0, -1.0, 1.0, -1.0, 0.0]
    assert equivalence(differences, 2.1318 / 5**0.5) == pytest.approx(0.05, abs=1e-4)
    assert equivalence([-d for d in differences], 0.99) < 0.05 < equivalence(differences, 0.9)
    assert equivalence([d + 0.2 for d in differences], 0.99) > equivalence(differences, 0.99)


def test_equivalence_needs_as_many_questions_as_could_show_a_difference() -> None:
    assert equivalence([0.0] * 34, 0.05) == pytest.approx(0.95**34)
    assert equivalence([0.01] + [0.0] * 57, 0.05) == pytest.approx(0.95**58) and 0.95**58 > 0.05
    assert equivalence([0.0] * 59, 0.05) < 0.05
    assert equivalence([0.2] * 100, 0.05) == 1.0  # the same everywhere, and too large


CLUSTERED = [1.0, 0.0, 1.0, 1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 1.0]
CLUSTERS = ["a", "a", "b", "b", "b", "c", "d", "d", "e", "f"]


def test_clusters_of_one_value_each_change_nothing_and_repeating_a_question_narrows_no_interval() -> None:
    values, other = [0.1, 0.5, 0.9, 0.4], [0.0, 0.5, 0.2, 0.6]
    assert mean_interval(values, clusters="abcd") == mean_interval(values)
    assert paired_difference(values, other, clusters="abcd") == paired_difference(values, other)
    assert mean_interval([1, 0, 1], clusters=[1, 2, 3]).method == "wilson"
    values = np.random.default_rng(1).random(30).tolist()
    once = mean_interval(values)
    twice = mean_interval([*values, *values], clusters=[*range(30), *range(30)])
    assert twice[:2] == pytest.approx(once[:2])
    assert mean_interval([*values, *values]).high < once.high


def test_cluster_p_is_that_of_all_signs_of_the_clusters() -> None:
    """The clusters' differences sum to 1, 2, .5, 1, 0 and 1: of 2^5 patterns only all + and all - reach 5.5."""
    result = paired_difference(CLUSTERED, [0.0] * 10, clusters=CLUSTERS)
    assert (result.mean, result.p, result.n) == (0.55, 2 / 32, 10)
    assert (result.wins, result.ties, result.losses) == (6, 4, 0)
    sums = [sum(v for v, c in zip(CLUSTERED, CLUSTERS, strict=True) if c == cluster) for cluster in "abcdef"]
    assert result.p == permutation_p(sums, [0.0] * 6)
    assert result.p > paired_difference(CLUSTERED, [0.0] * 10).p


def test_without_spread_there_is_no_bootstrap() -> None:
    assert mean_interval([0.25] * 7) == (0.25, 0.25, "constant")
    assert mean_interval([1, 1, 1], clusters=["a", "a", "b"]) == (1, 1, "constant")
    for interval in (mean_interval([0.25]), mean_interval([0.2, 0.4], clusters=["a", "a"])):
        assert (math.isnan(interval.low), math.isnan(interval.high), interval.method) == (True, True, "n=1")
