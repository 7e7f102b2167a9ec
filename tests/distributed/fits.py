"""Fits of several models on the same rows, by several ranks or alone.

torchrun fits.py OUT.npz --checkpoint FILE --kill STEP
"""

import argparse
import os
import signal
import sys
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from cavity import GPClassifier, GPRegressor, distributed
from cavity.callbacks import Callback
from cavity.fitting.options import nest
from cavity.tables import survey
from support import toy

DEFAULTS = {
    "folds": dict(max_epochs=3),
    "held out": dict(max_epochs=3, effort="fast"),  # and then added
    "groups": dict(max_epochs=3, effort="fast"),
    "left out": dict(
        method="ep", max_epochs=2, calibration="temperature", effort="fast"
    ),
}
COMMON = dict(n_inducing=8, tol=0.0, random_state=0, device="cpu")
RUNS = {
    "ep": dict(method="ep", batch_size=25, max_epochs=2),
    "sep": dict(method="sep", batch_size=25, max_epochs=2),
    "tiny": dict(
        method="ep", batch_size=3, max_epochs=1
    ),  # some ranks have no row of some batches
    "full": dict(method="ep", batch_size=None, max_epochs=3),
    "rep": dict(method="rep", batch_size=25, max_epochs=2),
    "vi": dict(method="vi", batch_size=25, max_epochs=2),
    "gfitc": dict(method="gfitc", max_epochs=2),
    "fixed": dict(method="ep", learn=(), max_epochs=4),
    "unseeded": dict(method="sep", batch_size=25, max_epochs=1, random_state=None),
}
FROM_FILES = {
    "ep": dict(method="ep", batch_size=25, max_epochs=2),
    "sep": dict(method="sep", batch_size=25, max_epochs=2),
    "full": dict(method="ep", batch_size=None, max_epochs=2),
}


class Kill(Callback):
    """The last rank dies after so many steps of the first attempt, and leaves a file."""

    def __init__(self, steps, sign):
        self.steps, self.sign = steps, sign

    def step(self, run):
        self.steps -= 1
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if self.steps == 0 and first and run.reduce.rank == run.reduce.world - 1:
            Path(self.sign).touch()
            os.kill(os.getpid(), signal.SIGKILL)


# A buffer and a sample for a part of the rows, so that both have something to leave
# out.
SIZES = {(survey, "SAMPLE_ROWS"): 70}


def by_default():
    """Models that other rows judge; some rows are equal, and some weigh twice as much."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)).round(1)
    y = (np.sin(2 * X[:, 0]) + X[:, 1] ** 2 > 0.5 + 0.3 * rng.normal(size=600)).astype(
        int
    )
    for name, options in DEFAULTS.items():
        n = 600 if name == "held out" else 120
        given = dict(groups=np.arange(n) // 4) if name in ("groups", "left out") else {}
        weight = 1.0 + (np.arange(n) % 5 == 0)
        clf = GPClassifier(**nest(random_state=0, device="cpu", **options)).fit(
            X[:n], y[:n], weight, **given
        )
        yield name, clf, rng.normal(size=(50, 2))
    fitc = GPRegressor("fitc", n_inducing=8, max_epochs=5, random_state=0, device="cpu")
    yield "regression", fitc.fit(X[:120], X[:120, 0] + y[:120]), None


def judge_all():
    """Probabilities, evidence, estimate, weights and novelty of each default model, by
    name.
    """
    warnings.simplefilter("ignore")
    found = {}
    for name, clf, new in by_default():
        if new is None:
            found[name] = [clf.log_marginal_likelihood_, clf.estimate_.log_density]
        else:
            judged = [
                clf.log_marginal_likelihood_,
                clf.estimate_.log_loss,
                *clf.ensemble_weights_,
            ]
            parts = [
                clf.predict_log_proba(new).ravel(),
                judged,
                clf.predict_novelty(new),
            ]
            left_out = [] if name == "held out" else [clf.held_out_.log_proba.ravel()]
            found[name] = np.concatenate(parts + left_out)
    return found


def from_files(folder):
    for (owner, name), value in SIZES.items():
        setattr(owner, name, value)
    for name, options in FROM_FILES.items():
        fitted = GPClassifier(**nest(**{**COMMON, **options})).fit(
            folder / "parts", target="label"
        )
        yield f"parquet {name}", fitted


def from_memory(checkpoint=None, kill=None):
    X, y = toy(101, 3, seed=2)
    for name in ("ep", "sep") if checkpoint else RUNS:
        extra = {}
        if checkpoint:
            watch = (
                [Kill(kill, f"{checkpoint}.killed")] if kill and name == "ep" else []
            )
            extra = dict(
                checkpoint=f"{checkpoint}.{name}",
                checkpoint_every=0,
                resume=True,
                callbacks=watch,
            )
        yield name, GPClassifier(**nest(**{**COMMON, **RUNS[name]}, **extra)).fit(X, y)


def fit_all(files=None, checkpoint=None, kill=None):
    """Log probabilities of the training rows and evidence of each model, by name.

    With a folder, also from the files in it, parts/*.parquet with the labels in
    `label`.
    """
    X, _ = toy(101, 3, seed=2)
    models = chain(from_memory(checkpoint, kill), from_files(files) if files else ())
    return {
        name: np.append(clf.predict_log_proba(X).ravel(), clf.log_marginal_likelihood_)
        for name, clf in models
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--kill", type=int)
    parser.add_argument("--checkpoint")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    distributed.join("gloo")
    results = fit_all(None, args.checkpoint, args.kill)
    if os.environ.get("RANK", "0") == "0":  # without it, one process alone
        np.savez(
            args.out,
            restarts=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            **results,
        )
    distributed.leave()


if __name__ == "__main__":
    main()
