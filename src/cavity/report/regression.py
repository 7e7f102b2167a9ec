"""How good a regressor is: an estimate from rows held out, the scores of a baseline, and a short HTML report."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from cavity import persist
from cavity.intake.frames import Prepared
from cavity.report.html import (
    render_document,
    render_facts,
    render_preparation,
    render_table,
    render_warnings,
)
from cavity.report.model_card import list_versions
from cavity.report.scores import Array, Numbers, bootstrap, score_targets

SCORES = {
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
    "r2": "Share of the variance explained (R²)",
    "nlpd": "Negative log density, nats per row",
    "coverage": "Rows within their 95 % interval",
}
HELD_SHARE = 0.2
LEAST_ROWS = 10


def estimate_regression(model: Any, X: Array, y: Array, weight: Array | None, seed: int) -> Numbers | None:
    """Fit once more without a fifth of the rows, and score their predictions; None for a handful of rows or with a time limit."""
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    held = np.zeros(len(y), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(y))[: round(HELD_SHARE * len(y))]] = True
    if model.max_seconds is not None or len(y) < LEAST_ROWS or not w[held].sum() or not w[~held].sum():
        return None
    again = clone(model).set_params(checkpoint=None, resume=False, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again.fit(Prepared(X[~held], model.preparation_), y[~held], sample_weight=w[~held])
    mean, std = again.predict(Prepared(X[held]), return_std=True)
    return {
        "rows": int(held.sum()),
        **score_targets(mean, std, y[held], w[held]),
        "baseline": score_mean(y[~held], w[~held], y[held], w[held]),
    }


def score_mean(y: Array, weight: Array, new: Array, new_weight: Array) -> Numbers:
    """Score the normal distribution of the targets y, without features, at new targets."""
    mean = float(np.average(y, weights=weight))
    std = float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0
    found = score_targets(np.full(len(new), mean), np.full(len(new), std), new, new_weight)
    return {name: found[name] for name in ("rmse", "mae", "nlpd", "coverage")}


def write_regression_report(
    gp: Any, path: str | Path, rows: tuple[Any, ...] | None = None, title: str = ""
) -> Path:
    """Write a short report on a regressor: scores of predicted rows (mean, std, y, weight), and the model's facts."""
    history = gp.history_ or [{}]
    facts = [
        ("Method", str(gp.method)),
        ("Columns", f"{gp.n_features_in_}"),
        ("Kernel", repr(gp.kernel_)),
        ("Noise, standard deviation", f"{math.sqrt(gp.noise_):.4g}"),
        ("Log marginal likelihood", f"{gp.log_marginal_likelihood_:,.2f}"),
        ("Epochs", f"{gp.n_epochs_}"),
        ("Training time (s)", f"{history[-1].get('seconds', math.nan):.1f}"),
        *((f"Version of {name}", value) for name, value in list_versions().items()),
    ]
    sections = [
        ("data", "Scores", "" if rows is None else _render_scores(gp, rows)),
        ("warnings", "Warnings", render_warnings(list(gp.fit_warnings_))),
        ("columns", "How columns are used", render_preparation(gp)),
        ("model", "Model card", render_facts(facts, "Properties of the model")),
    ]
    page = render_document(title or "Report on a regressor", sections)
    persist.write_bytes(path, page.encode())
    return Path(path)


def _render_scores(gp: Any, rows: tuple[Any, ...]) -> str:
    (shift, scale), (_, _, y, w) = gp._result.units, rows
    values, ranges = score_targets(*rows), bootstrap(score_targets, rows, 4)
    plain = score_targets(np.full(len(y), shift), np.full(len(y), scale), y, w)
    lines = [
        [text, f"{values[k]:.4g}", "{:.4g} to {:.4g}".format(*ranges[k]), f"{plain[k]:.4g}"]
        for k, text in SCORES.items()
    ]
    head = ["Score", "Model", "95 % interval", "Mean and spread of the training rows"]
    return render_table(f"Scores of {len(y)} rows", head, lines, len(lines))
