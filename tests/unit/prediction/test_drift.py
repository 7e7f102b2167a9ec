"""Drift: alarms without drift, with drift of one column, and closed forms."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2_contingency

from cavity.prediction.drift import compare_column, compare_columns, join_rare
from cavity.tables.arrow_tables import to_chunk
from cavity.tables.columns.column_kinds import Category
from cavity.tables.columns.column_shares import (
    CellCounts,
    ColumnShares,
    count_column,
    describe_columns,
    name_cells,
)
from cavity.tables.columns.preparation import Preparation

N = 1200


def draw(seed, n=N):
    """Draw rows: a skewed number, whole numbers, missing cells, rare levels."""
    rng = np.random.default_rng(seed)
    income = rng.lognormal(size=n)
    codes = rng.zipf(1.6, n).clip(0, 60)
    return {
        "income": income,
        "children": rng.poisson(1.2, n).astype(float),
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 9, n)),
        "home": rng.choice(["own", "rent", "free"], n, p=[0.6, 0.37, 0.03]),
        "code": np.array([f"code {code}" for code in codes]),
        "copy": income + 0.01 * rng.normal(size=n),
    }


def take(table, rows):
    return pa.table({name: cells[rows] for name, cells in table.items()})


def compare(before, now):
    """Compare two tables, as a model that is fitted to the first does."""
    prepare = Preparation(kinds={"code": "category"}).fit(before)
    X = prepare.encode(before)
    shares = describe_columns(prepare.columns_, X, np.ones(len(X)))
    chunk = to_chunk(now)
    pairs = zip(prepare.columns_, shares, strict=True)
    counts = [count_column(*pair, chunk) for pair in pairs]
    return compare_columns(prepare.columns_, shares, counts, None)


def test_without_drift_five_in_a_hundred_comparisons_alarm():
    """Halves of 200 tables, with rare levels; two columns are nearly copies, which makes
    Holm's correction a little careful.
    """
    alarms = 0
    p = []
    for seed in range(200):
        order = np.random.default_rng(1000 + seed).permutation(N)
        table = draw(seed)
        found = compare(take(table, order[: N // 2]), take(table, order[N // 2 :]))
        alarms += len(found.changed(0.05)) > 0
        p.append(found.p_value.min())
    assert 3 <= alarms <= 19  # 99.9% of binomial(200, .05)
    assert 0.3 < np.mean(np.array(p) < 0.5) < 0.6


@pytest.mark.parametrize(
    "name, change",
    [
        ("income", lambda x: 1.4 * x),
        ("children", lambda x: x + (np.arange(len(x)) % 3 == 0)),
        ("age", lambda x: np.where(np.arange(len(x)) % 8 == 0, np.nan, x)),
        ("home", lambda x: np.where(np.arange(len(x)) % 5 == 0, "rent", x)),
        ("home", lambda x: np.where(np.arange(len(x)) % 30 == 0, "boat", x)),
        ("code", lambda x: np.where(x == "code 2", "code 1", x)),
    ],
)
def test_drift_of_one_column_alarms_and_names_it_first(name, change):
    before = take(draw(1), slice(None))
    now = draw(2)
    assert not compare(before, pa.table(now)).changed(0.01)
    now[name] = change(now[name])
    found = compare(before, pa.table(now))
    assert found.names[0] == name
    assert found.changed() == [name]
    assert found.distance[0] > 1.5 * found.noise[0]
    if (now[name] == "boat").any():
        assert found.new[0] == np.mean(now[name] == "boat")
        assert found.largest[0].startswith(("own", "boat", "rent"))


def test_missing_cells_of_a_column_that_had_none_are_drift():
    before = take(draw(1), slice(None))
    now = draw(2)
    now["income"][::40] = np.nan
    found = compare(before, pa.table(now))
    assert found.changed() == ["income"]
    assert found.missing[0] == pytest.approx(1 / 40)
    assert found.missing_before[0] == 0
    assert found.largest[0] == "missing: 0.0% → 2.5%"


def test_the_statistic_is_pearsons():
    column = Category("home", ("a", "b", "c"), True)
    t = np.array([300, 150, 40, 10])
    c = np.array([220, 140, 70, 30])
    shares = ColumnShares("home", t.sum(), t[3] / 500, tuple(t[:3] / 500))
    change = compare_column(column, shares, CellCounts(30, c[:3], Counter()))
    expected = chi2_contingency([t, c], correction=False)
    assert change.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert change.distance == pytest.approx(np.abs(t / 500 - c / 460).sum() / 2)


def test_the_noise_is_the_distance_without_drift():
    """Mean distance of two samples from the same shares."""
    rng = np.random.default_rng(0)
    p = np.array([0.5, 0.3, 0.15, 0.05])
    column = Category("k", ("a", "b", "c"), True)
    found = []
    for _ in range(300):
        t, c = rng.multinomial(800, p), rng.multinomial(400, p)
        shares = ColumnShares("k", 800, t[3] / 800, tuple(t[:3] / 800))
        found.append(compare_column(column, shares, CellCounts(c[3], c[:3], Counter())))
    distance = np.mean([change.distance for change in found])
    assert distance == pytest.approx(np.mean([f.noise for f in found]), rel=0.06)
    below = np.mean([change.p_value < 0.1 for change in found])
    assert below == pytest.approx(0.1, abs=0.05)


def test_joining_rare_cells_keeps_all_rows():
    rng = np.random.default_rng(0)
    for _ in range(50):
        t, c = rng.poisson(rng.gamma(0.3, 20, (2, 8))).astype(float) + np.eye(2, 8)
        joined = join_rare(t, c)
        assert [part.sum() for part in joined] == [t.sum(), c.sum()]
        assert len(joined[0]) == len(joined[1]) <= 8
        assert (np.add(*joined) > 0).all()


def test_bins_follow_the_values_and_equal_numbers_share_a_bin():
    table = {"a": np.repeat([1.0, 2.0, 7.0], [50, 30, 20]), "b": np.full(100, 3.0)}
    prepare = Preparation().fit(pa.table(table | {"c": np.arange(100.0)}))
    X = prepare.encode(pa.table(table | {"c": np.arange(100.0)}))
    first, *_, last = describe_columns(prepare.columns_, X, np.ones(100))
    np.testing.assert_allclose(first.shares, [0.5, 0.3, 0.2])
    assert name_cells(prepare.columns_[0], first) == ["up to 1", "1 to 2", "above 2"]
    np.testing.assert_allclose(last.shares, np.full(10, 0.1))


def test_a_row_of_weight_two_is_two_rows():
    table = take(draw(3), slice(0, 300))
    prepare = Preparation(kinds={"code": "category"}).fit(table)
    X = prepare.encode(table)
    twice = describe_columns(prepare.columns_, np.repeat(X, 2, 0), np.ones(600))
    heavy = describe_columns(prepare.columns_, X, np.full(300, 2.0))
    for a, b in zip(twice, heavy, strict=True):
        np.testing.assert_allclose(a.shares, b.shares)
        assert a.edges == b.edges
