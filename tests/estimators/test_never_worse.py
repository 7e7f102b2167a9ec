"""A higher effort is not worse than a lower one by more than 3 % and two errors, also
where rules decide and a class is rare.
"""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from cavity import GPClassifier
from cavity.common.scoring import average
from support import slow

SHARES = (
    0.004,
    0.012,
    0.04,
    0.06,
    0.15,
)  # of the rows, by class; the first class has the rest
SMOOTH = {
    "axis": 0.0,
    "linear": 0.0,
    "mixed": 0.35,
    "smooth": 1.0,
}  # share of rules that are curved


def draw_rules(kind, n_rows, seed, n_classes=7, n_new=20_000):
    """Draw classes by a list of rules, each a bound on one column or on a function of
    two; the last has 3 to 9 rows.

    One label of 5,000 is wrong. Cells are whole numbers with heavy tails.
    """
    rng = np.random.default_rng(seed)
    n = n_classes - 1
    mix = np.eye(9) + 0.4 * rng.normal(size=(9, 9)) * (rng.random((9, 9)) < 0.3)
    columns = rng.permuted(np.tile(np.arange(9), (6, 1)), axis=1)[:n, :2]
    smooth = (rng.random(6) < SMOOTH[kind])[:n]
    slope = rng.normal(size=6)[:n] * (kind == "linear")

    def draw(rows, rng):
        X = np.round(rng.standard_t(5, size=(rows, 9)) @ mix * 10)
        a = X[:, columns[:, 0]]
        b = X[:, columns[:, 1]]
        return X, np.where(smooth, a + 10 * np.sin(b / 10), a + np.round(slope * b))

    scores = draw(200_000, np.random.default_rng(seed + 1))[1]
    bounds = []
    left = np.ones(len(scores), bool)
    for c, share in enumerate((6 / n_rows, *SHARES[6 - n :])):
        bounds.append(
            np.floor(np.quantile(scores[left, c], 1 - share * len(scores) / left.sum()))
            + 0.5
        )
        left &= scores[:, c] <= bounds[-1]
    while True:
        X, scores = draw(n_rows + n_new, rng)
        over = scores > np.array(bounds)
        y = np.where(over.any(1), n - over.argmax(1), 0)
        flip = rng.random(len(y)) < 2e-4
        y[flip] = rng.integers(n, size=flip.sum())
        rows = np.bincount(y[:n_rows], minlength=n_classes)
        if 3 <= rows[n] <= 9 and rows.min() >= 2:
            return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


@pytest.mark.parametrize(
    ("kind", "rows", "seed", "classes"),
    [
        slow(
            "linear", 1000, 302, 7
        ),  # .104 against .091: sites of folds were not at rest
        slow("linear", 2500, 212, 7),  # .067 against .065: 498 rows asked for w = 1.57
        slow("smooth", 2500, 313, 7),
        slow("axis", 600, 231, 7),
        slow("mixed", 5000, 320, 7),
    ],
)
def test_the_default_is_not_worse_than_fast_where_rules_decide_and_a_class_is_rare(
    kind, rows, seed, classes
):
    check_not_worse("balanced", "fast", *draw_rules(kind, rows, seed, classes))


@pytest.mark.slow
def test_the_default_is_better_than_fast_on_average_over_small_tables_of_rules():
    """On one of 250 rows chance decides: .122 against .113, and .105 against .183."""
    loss = [
        [
            -np.mean(fit_and_score(effort, *draw_rules("mixed", 250, seed, 4)))
            for effort in ("balanced", "fast")
        ]
        for seed in range(4)
    ]
    ours, fast = np.mean(loss, axis=0)
    assert ours < fast


def fit_and_score(effort, X, y, new, labels):
    model = GPClassifier(effort=effort, random_state=0).fit(X, y)
    return model.predict_log_proba(new)[np.arange(len(labels)), labels]


def check_not_worse(effort, other, *table):
    log_p, base = (fit_and_score(each, *table) for each in (effort, other))
    worse = average(base - log_p)
    assert worse.value < max(2 * worse.error, 0.03 * -base.mean())


@pytest.mark.parametrize("seed", [1, *(slow(seed) for seed in range(12) if seed != 1)])
def test_the_default_is_not_worse_than_simple_models_on_small_noisy_tables(seed):
    """Class frequencies, logistic regression and boosting are members of the pool: none
    of them is better beyond noise.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.choice([60, 150, 400]))
    D = int(rng.choice([3, 10, 30]))
    C = int(rng.choice([2, 3, 4]))
    X = rng.normal(size=(n + 3000, D))
    f = rng.choice([0.0, 0.5, 1.5]) * X @ rng.normal(size=(D, C)) / np.sqrt(D)
    y = (f + rng.gumbel(size=f.shape)).argmax(1)
    (X, new), (y, labels) = (np.split(each, [n]) for each in (X, y))
    own = np.arange(len(labels)), labels
    ours = GPClassifier(random_state=0).fit(X, y).predict_log_proba(new)[own]
    prior = np.log(np.bincount(y, minlength=C) / n)[labels]
    others = (
        LogisticRegression(),
        HistGradientBoostingClassifier(max_iter=50, random_state=0),
    )
    for log_p in (
        prior,
        *(np.log(other.fit(X, y).predict_proba(new)[own]) for other in others),
    ):
        worse = average(log_p - ours)
        assert worse.value < max(2 * worse.error, 0.05 * -log_p.mean())
