"""Figures 2.1 to 2.3 of the thesis: functions drawn from a Gaussian process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity import GPRegressor, Training
from cavity.kernels import RBF
from cavity.report.colours import COLOURS, GREY
from experiments.jobs import Context, Job, Row, identify, stamp

Array = NDArray[np.float64]

X = np.linspace(-5, 5, 101)[:, None]
SEEN = np.array([10, 30, 45, 70, 85])  # places in X of the observations
Y = np.array([-1.0, 0.5, 1.2, -0.4, 0.8])
N_DRAWS = 3
DRAWS = tuple(f"f{i + 1}" for i in range(N_DRAWS))
JITTER = 1e-9
ROUNDING = 1e-4  # of a draw where the standard deviation is 0: the root of the jitter


def draw_prior(seed: int) -> tuple[Array, Array, Array]:
    """Draws at X, [N n], and the mean and standard deviation there."""
    f = RBF(lengthscale=1.0, variance=1.0).sample(X, N_DRAWS, random_state=seed)
    return f.T, np.zeros(len(X)), np.ones(len(X))


def draw_posterior(seed: int) -> tuple[Array, Array, Array]:
    """The same, given noise-free observations."""
    training = Training(learn=(), noise=0.0, jitter=JITTER)
    kernel = RBF(lengthscale=1.0, variance=1.0)
    gp = GPRegressor("exact", kernel=kernel, normalize_y=False, training=training)
    gp.fit(X[SEEN], Y)
    mean, sd = gp.predict(X, return_std=True)
    return gp.sample_y(X, N_DRAWS, random_state=seed), mean, sd


PROCESSES = {"prior": draw_prior, "posterior": draw_posterior}


def draws(job: Job, context: Context) -> list[Row]:
    """One row per place x: three draws, the mean and the standard deviation."""
    begin = time.process_time()
    f, mean, sd = PROCESSES[job.method](job.split)
    seconds = time.process_time() - begin
    rows = [
        identify(job)
        | {"moment": i, "x": float(x), "mean": float(m), "sd": float(s), "last": 0}
        | dict(zip(DRAWS, map(float, values), strict=True))
        for i, (x, values, m, s) in enumerate(zip(X[:, 0], f, mean, sd, strict=True))
    ]
    rows[-1] |= stamp(job, context) | {"seconds": seconds, "last": 1}
    return rows


def read_draws(rows: list[Row], method: str) -> tuple[Array, Array, Array, Array]:
    """x, draws [N n], mean and standard deviation."""
    some = [r for r in rows if r["method"] == method]
    x, mean, sd = (np.array([r[key] for r in some]) for key in ("x", "mean", "sd"))
    return x, np.array([[r[key] for key in DRAWS] for r in some]), mean, sd


def draw_functions(figure: Any, rows: list[Row]) -> None:
    """Prior and posterior (2.1), a draw through the logistic (2.2), and the class with
    the largest of three draws (2.3).
    """
    figure.set_size_inches(10, 6)
    panels = figure.subplots(2, 2).ravel()
    titles = ("prior", "posterior")
    for axis, method in zip(panels, titles, strict=False):
        x, f, mean, sd = read_draws(rows, method)
        axis.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=GREY, alpha=0.25, lw=0)
        for colour, values in zip(COLOURS, f.T, strict=False):
            axis.plot(x, values, color=colour)
        axis.set(xlabel="x", ylabel="f(x)", title=f"three draws of the {method}")
    panels[1].plot(X[SEEN, 0], Y, "k+", ms=10)

    x, f, _, _ = read_draws(rows, "prior")
    panels[2].plot(x, 1 / (1 + np.exp(-f[:, 0])), color=COLOURS[0])
    panels[2].set(xlabel="x", ylabel="σ(f(x))", ylim=(0, 1), title="two classes")
    winner = f.argmax(1)
    for c, colour in zip(range(N_DRAWS), COLOURS, strict=False):
        panels[3].plot(x, f[:, c], color=colour, lw=0.8, ls=":")
        panels[3].scatter(x[winner == c], f[winner == c, c], color=colour, s=9)
    panels[3].set(xlabel="x", ylabel="f(x)", title="three classes: y = argmax f(x)")
