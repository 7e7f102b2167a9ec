"""Compare rules for the temperature: test NLL of the same fits, relative to no temperature.

Each fit keeps the log-probabilities of its held-out rows, of leave-one-out and of the test rows; every rule is then applied to
these. A fifth of the rows are test rows, and at most 4,000 are trained on. The splits have seeds from 1000 on, which no table of
the comparison uses. docs/decisions/0034 has the table of 23 sets and seeds 1000 to 1003.

    python benchmarks/temperature_rules.py --sets wine glass --seeds 1000 1001 [--effort balanced] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.model_selection import train_test_split

from cavity import GPClassifier
from cavity.fitting.calibration import LOO_EXPONENT, Calibration
from cavity.prediction.pool import TEMPERATURE_PENALTY, normalised
from experiments import sets

Array = NDArray[np.float64]
Penalty = Callable[[float], float]  # of log w
MOST_ROWS = 4000
LOWEST = -30.0  # of log p
GROUPS = ((0, 400), (400, 2000), (2000, 10**9))  # training rows


class Scored(NamedTuple):
    """Log-probabilities of rows [n C], and their labels."""

    log_p: Array
    y: NDArray[np.int64]

    def nll(self, w: float = 1.0) -> float:
        """Return the mean negative log-probability with the weight w."""
        return float(-normalised(w * self.log_p)[np.arange(len(self.y)), self.y].mean())

    def weigh(self, penalty: Penalty) -> float:
        """Return log w of the highest likelihood minus the penalty."""
        clipped = Scored(np.maximum(self.log_p, LOWEST), self.y)
        loss = lambda v: len(self.y) * clipped.nll(math.exp(v)) + penalty(v)  # noqa: E731
        return float(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)


class Fit(NamedTuple):
    """What one fit leaves to the rules."""

    rows: int
    held: Scored | None
    loo: Scored
    test: Scored


def square(v: float) -> float:
    """The penalty of a normal prior of log w with standard deviation 0.2."""
    return 12.5 * v * v


def laplace(v: float) -> float:
    """The penalty of the shipped Laplace prior."""
    return TEMPERATURE_PENALTY * abs(v)


def apply_rules(fit: Fit) -> dict[str, float]:
    """Return the test NLL of every rule relative to no temperature."""
    found = {}
    for name, penalty in (("square", square), ("laplace", laplace)):
        of_loo = fit.loo.weigh(penalty)
        found[f"leave-one-out, {name}"] = of_loo
        for power in (0.5, LOO_EXPONENT):
            found[f"leave-one-out, w^{power}, {name}"] = power * of_loo if of_loo > 0 else of_loo
        if fit.held is not None:
            of_held = fit.held.weigh(penalty)
            found[f"held out, {name}"] = of_held
            found[f"mean of both, {name}"] = 0.5 * (of_held + of_loo)
    found["best for the test rows"] = fit.test.weigh(lambda v: 0.0)
    return {rule: fit.test.nll(math.exp(v)) / fit.test.nll() for rule, v in found.items()}


def fit_once(name: str, seed: int, effort: str, data: str | None) -> Fit:
    """Fit one split, and keep what its calibration saw."""
    whole = sets.split(name, 0, data)
    X, labels = np.vstack([whole.X, whole.X_test]), np.concatenate([whole.y, whole.y_test])
    y = np.unique(labels, return_inverse=True)[1]
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
    kept, calibrate = [], Calibration._calibrate

    def keep(self: Calibration, held: object, *rest: object) -> object:
        kept.append(held)
        return calibrate(self, held, *rest)  # type: ignore[arg-type]

    Calibration._calibrate = keep  # type: ignore[method-assign,assignment]
    try:
        clf = GPClassifier(effort=effort, random_state=seed, device="cpu").fit(X[:MOST_ROWS], y[:MOST_ROWS])
    finally:
        Calibration._calibrate = calibrate  # type: ignore[method-assign]
    plain = lambda log_p: normalised(clf.temperature_ * log_p)  # noqa: E731
    held = Scored(kept[0].parts[0], kept[0].y) if kept else None
    loo, test = plain(clf.loo_log_proba_), plain(clf.predict_log_proba(X_test))
    return Fit(len(X[:MOST_ROWS]), held, Scored(loo, y[:MOST_ROWS]), Scored(test, y_test))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["wine", "glass", "vowel6", "vehicle"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1000, 1001])
    parser.add_argument("--effort", choices=["fast", "balanced"], default="balanced")
    parser.add_argument("--data", help="folder of the tables; $CAVITY_DATA without it")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for name in args.sets:
        for seed in args.seeds:
            fit = fit_once(name, seed, args.effort, args.data)
            results.append((fit.rows, apply_rules(fit)))
            print(
                f"{name} {seed}: {fit.rows} rows, test NLL {fit.test.nll():.4f} without a temperature",
                flush=True,
            )
    heads = [f"{low}+ rows" for low, _ in GROUPS]
    print(
        f"{'geometric mean of the ratios':34}" + "".join(f"{head:>12}" for head in (*heads, "all", "worst"))
    )
    for rule in results[0][1]:
        log = [(n, math.log(ratios[rule])) for n, ratios in results if rule in ratios]
        groups = [[x for n, x in log if low <= n < high] for low, high in (*GROUPS, (0, 10**9))]
        means = [f"{math.exp(np.mean(group)):12.3f}" if group else f"{'–':>12}" for group in groups]
        print(f"{rule:34}{''.join(means)}{math.exp(max(x for _, x in log)):12.3f}")


if __name__ == "__main__":
    main()
