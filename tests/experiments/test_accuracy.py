"""The benchmark of accuracy runs, and docs/methods.md says what its rows say
(test_pages.py compares the tables).
"""

from pathlib import Path

import numpy as np
import pytest

from experiments import accuracy
from support import load_script

ROOT = Path(__file__).parents[2]
SCORES = accuracy.group_scores(accuracy.read(ROOT / "benchmarks" / "results"))
DENSE = {case: found for case, found in SCORES.items() if case[1] == case[2]}


@pytest.fixture(scope="module")
def benchmark():
    return load_script("benchmarks/accuracy.py")


@pytest.mark.slow
def test_the_benchmark_runs(benchmark):
    length = benchmark.Length(chains=8, sweeps=60, burn_in=20, every=5, test_rows=5)
    rows = benchmark.measure(benchmark.Setting(3, 9, (9, 3), 2), 1.0, length)
    assert tuple(benchmark.METHODS) == accuracy.METHODS
    assert {row["method"] for row in rows if row["M"] == 9} == set(accuracy.METHODS)
    sparse = {"EP", "SEP", "REP(epsilon=0)", "GFITC", "Laplace", accuracy.EXACT}
    assert {row["method"] for row in rows if row["M"] == 3} == sparse
    kl = {
        name: np.mean(
            [float(r["kl"]) for r in rows if r["method"] == name and r["M"] == 9]
        )
        for name in accuracy.METHODS
    }
    assert abs(kl["REP(epsilon=0)"]) < 0.01 < kl["VI, robust-max"]


def mean(found, *names):
    return [found[name].mean() for name in names]


def test_two_classes_are_nearly_exact_with_ep():
    for found in (found for case, found in DENSE.items() if case[0] == 2):
        ep, rep, gfitc = mean(found, "EP", "REP(epsilon=0)", "GFITC")
        assert (
            ep < 2e-3
            and rep == pytest.approx(ep, abs=1e-5)
            and gfitc == pytest.approx(ep, abs=1e-4)
        )


def test_the_exact_factor_is_nearest_to_the_judge_with_more_classes():
    cases = [found for case, found in DENSE.items() if case[0] > 2]
    ep, rep, gfitc, vi = np.mean(
        [mean(f, "EP", "REP(epsilon=0)", "GFITC", "VI, robust-max") for f in cases],
        axis=0,
    )
    assert (
        rep < 0.5 * ep
        and gfitc == pytest.approx(rep, rel=0.2, abs=1e-4)
        and vi > 10 * ep
    )


def test_with_the_exact_factor_most_of_the_distance_comes_from_the_points():
    sparse = [found for case, found in SCORES.items() if case[2] < case[1]]
    assert len(sparse) > 1
    for found in sparse:
        points, rep = mean(found, accuracy.EXACT, "REP(epsilon=0)")
        assert points > 0.5 * rep
