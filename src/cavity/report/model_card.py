"""Facts about a fitted model for the report."""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy as np
import scipy
import sklearn
import torch

from cavity.common.version import __version__
from cavity.estimators.base import GPEstimator
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.options import read_training
from cavity.options.library import read_method

Facts = list[tuple[str, str]]


def describe_model(model: GPEstimator) -> Facts:
    name, value = view_fit(model).evidence_name, model.log_marginal_likelihood_
    evidence = "none: training stopped too early" if math.isnan(value) else f"{value:,.2f}"
    facts = _describe_classifier(model) if isinstance(model, GPClassifier) else _describe_regressor(model)
    facts += [(name[0].upper() + name[1:], evidence), ("Epochs", f"{model.n_epochs_}")]
    if model.history_ and "seconds" in model.history_[-1]:
        facts.append(("Training time (s)", f"{model.history_[-1]['seconds']:.1f}"))
    return [
        *facts,
        ("Size of the model", _measure_memory(model)),
        ("Precision", f"{read_training(model.training).dtype}"),
        ("Seed (random_state)", f"{model.random_state!r}"),
        *_list_versions(),
    ]


def _describe_regressor(gp: GPEstimator) -> Facts:
    return [
        ("Method", str(gp.method)),
        ("Columns", f"{gp.n_features_in_}"),
        ("Kernel", _describe_kernel(gp.kernel_)),
        ("Noise, standard deviation", f"{math.sqrt(gp.noise_):.4g}"),
    ]


def _describe_classifier(clf: GPClassifier) -> Facts:
    latent, M, D = clf.inducing_points_.shape
    facts = [
        ("Method", read_method(clf.method, "classification").label),
        ("Classes", f"{len(clf.classes_)}"),
        ("Columns", f"{D}"),
        ("Inducing points", f"{M} for each of {latent} latent functions" if latent > 1 else f"{M}"),
        ("Kernel", _describe_kernel(clf.kernel_)),
        ("Noise variance", _format_range(clf.noise_)),
    ]
    if hasattr(clf, "epsilon_"):
        facts.append(("Fraction of random labels (ε)", f"{clf.epsilon_:.4g}"))
    if clf.calibration_ != "none":
        facts.append(("Temperature", f"{clf.temperature_:.3g}, from {clf.calibration_}"))
    if len(clf.ensemble_weights_) > 1:
        named = view_fit(clf).model.pool.named_weights
        facts.append(("Weights of the pool", ", ".join(f"{name} {w:.2f}" for name, w in named.items())))
    return facts


def _list_versions() -> Facts:
    found = {"cavity": __version__, "Python": platform.python_version(), "torch": torch.__version__}
    found |= {"numpy": np.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__}
    return [(f"Version of {name}", value) for name, value in found.items()]


def _describe_kernel(kernel: Any) -> str:
    """Describe a kernel; arrays by their smallest and largest value."""
    if not hasattr(kernel, "get_params"):
        return type(kernel).__name__
    inside = []
    for name, value in kernel.get_params(deep=False).items():
        if hasattr(value, "get_params"):
            inside.append(_describe_kernel(value))
        elif isinstance(value, np.ndarray | float | int):
            inside.append(f"{name} {_format_range(value)}")
        else:
            inside.append(f"{name} {type(value).__name__}")
    return f"{type(kernel).__name__}({', '.join(inside)})"


def _format_range(value: Any) -> str:
    value = np.asarray(value, dtype=np.float64)
    low, high = value.min(), value.max()
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _measure_memory(clf: GPEstimator) -> str:
    kept = view_fit(clf).model
    tensors = [kept.prior_lower, kept.mean, kept.lower, *kept.prior.parameters(), *kept.prior.buffers()]
    size = sum(t.nbytes for t in tensors)
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
