"""Features of one column share a lengthscale: the kernel of a category, and one
relevance per column.
"""

import time

import numpy as np
import pandas as pd
import pytest
import torch

from cavity import Preparation
from cavity.common.column_statistics import Columns, share_units
from cavity.kernels import RBF, Linear, Matern32, RationalQuadratic
from cavity.tables.columns.column_kinds import Unchanged
from cavity.tables.columns.feature_groups import group_features, place_features

RNG = np.random.default_rng(0)
N = 200
TABLE = pd.DataFrame(
    {
        "size": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(size=N)),
        "colour": RNG.choice(["red", "green", "blue", None], N, p=[0.6, 0.2, 0.1, 0.1]),
        "when": pd.date_range("2019-01-01", periods=N, freq="7D")
        + pd.to_timedelta(RNG.integers(7, size=N), "D"),
        "x": RNG.normal(size=N),
    }
)
GROUP = np.array([0, 0, 1, 1, 1, 1, 2, 3, 4, 4, 5, 5, 6])


def test_places_of_ten_thousand_columns_take_no_time():
    """Linear in the columns: a quadratic search takes 20 s here."""
    names = [f"c{i}" for i in range(10_000)]
    prepare = Preparation()
    prepare._store([Unchanged(name) for name in names], None, (), names)
    begun = time.process_time()
    found = place_features(prepare)
    assert time.process_time() - begun < 3
    assert found["c9999"] == found[9999] == (9999,) and len(found) == 20_000


def test_groups_follow_the_columns():
    (group, blocks, indicators), owner = group_features(
        Preparation().fit(TABLE).columns_
    )
    assert (
        group.tolist() == GROUP.tolist()
        and blocks == [slice(2, 6)]
        and indicators == [1]
    )
    assert owner.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3]


@pytest.mark.parametrize(
    "make",
    [RBF, Matern32, RationalQuadratic, Linear, lambda: RBF() * Linear() + Linear()],
)
def test_a_shared_lengthscale_is_equal_lengthscales(make):
    X = torch.tensor(Preparation().fit_transform(TABLE))
    D, Z = X.shape[1], X[None, :5]
    spread = np.linspace(0.5, 2.0, D)
    shared, own = make(), make()
    shared.bind(2, Columns(np.zeros(D), spread, 1.5, GROUP))
    own.bind(2, Columns(np.zeros(D), spread, 1.5))
    with torch.no_grad():
        for (name, p), (_, q) in zip(
            shared.named_parameters(), own.named_parameters(), strict=True
        ):
            p.copy_(torch.tensor(RNG.normal(scale=0.3, size=p.shape)))
            q.copy_(p[:, GROUP] if name.endswith("log_lengthscale") else p)
    torch.testing.assert_close(shared.full(Z), own.full(Z))
    torch.testing.assert_close(shared.cross(Z, X), own.cross(Z, X))
    torch.testing.assert_close(shared.diag(X), own.diag(X))
    for kernel in (shared, own):
        kernel.cross(Z, X).sin().sum().backward()
    for (name, p), (_, q) in zip(
        shared.named_parameters(), own.named_parameters(), strict=True
    ):
        if name.endswith("log_lengthscale"):
            summed = torch.zeros_like(p).index_add_(1, torch.tensor(GROUP), q.grad)
            torch.testing.assert_close(p.grad, summed)
    for kernel in (shared, own):
        kernel.settle(2)
    part = "k2" if hasattr(shared, "k2") else None
    lengthscales = [
        (getattr(k, part) if part else k).lengthscale for k in (shared, own)
    ]
    np.testing.assert_allclose(*lengthscales)


def test_all_levels_are_equally_far_and_a_category_counts_as_one_column():
    table = pd.DataFrame(
        {
            "colour": RNG.choice(["a", "b", "c"], 500, p=[0.7, 0.25, 0.05]),
            "x": RNG.normal(size=500),
        }
    )
    prepare = Preparation().fit(table)
    X = prepare.encode(table)
    sharing, _ = group_features(prepare.columns_)
    spread = X.std(0)
    columns = Columns(X.mean(0), spread, 1.0)
    found, U = share_units(
        columns, sharing, (X - columns.center) / spread, np.ones(500), RNG
    )
    np.testing.assert_allclose(U, (X - found.center) / found.spread)
    i, j = np.triu_indices(500, 1)
    square = (U[i] - U[j]) ** 2
    np.testing.assert_allclose(
        [square[:, :3].sum(1).mean(), square[:, 3].mean()], 2, rtol=0.01
    )
    kernel = RBF()
    kernel.bind(1, found)
    levels = torch.tensor(prepare.encode({"colour": ["a", "b", "c"], "x": [0.0] * 3}))
    K = kernel.full(levels[None])[0].detach().numpy()
    np.testing.assert_allclose(K[np.triu_indices(3, 1)], K[0, 1])


def test_a_missing_cell_is_as_far_from_the_others_as_these_are():
    x = np.where(RNG.random(2000) < 0.2, np.nan, RNG.normal(size=2000))
    prepare = Preparation().fit(pd.DataFrame({"x": x}))
    X, (sharing, _) = (
        prepare.encode(pd.DataFrame({"x": x})),
        group_features(prepare.columns_),
    )
    known = X[:, 1] == 0
    columns = Columns(X.mean(0), np.array([X[known, 0].std(), X[:, 1].std()]), 1.0)
    _, U = share_units(
        columns, sharing, (X - columns.center) / columns.spread, np.ones(2000), RNG
    )
    square = ((U[~known][:1] - U[known]) ** 2).sum(1).mean()
    assert square == pytest.approx(2, rel=0.01)
