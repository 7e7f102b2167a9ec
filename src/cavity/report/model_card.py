"""Text of the report: the model card, scores, and summaries of columns and classes."""

from __future__ import annotations

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cavity._version import __version__
from cavity.config.methods import read_method
from cavity.estimators import GPClassifier
from cavity.report.calibration import Array, error, expected_calibration_error, nll

Facts = list[tuple[str, str]]
MAX_LINES = 40  # columns or classes in a table of the report
MAX_ROWS = 15  # number of most certain rows, and of least certain rows


class Predictions(NamedTuple):
    """Rows with their predictions and, if known, their labels."""

    X: Array  # [n D]
    P: Array  # [n C]
    predicted: NDArray[Any]  # [n]
    y: NDArray[Any] | None
    codes: NDArray[np.int64] | None  # [n], number of the true class


def describe_model(clf: GPClassifier) -> Facts:
    """Describe a fitted classifier: method, sizes, kernel, evidence, versions."""
    check_is_fitted(clf, "inducing_points_")
    latent, M, D = clf.inducing_points_.shape
    what = "Inducing points"
    if hasattr(clf, "frequencies_"):
        what, M = "Spectral features", 2 * clf.frequencies_.shape[1]
    history = clf.history_ or [{}]
    rows = [
        ("Method", read_method(clf.method, "classification").label),
        ("Classes", f"{len(clf.classes_)}"),
        ("Columns", f"{D}"),
        (what, f"{M} for each of {latent} latent functions" if latent > 1 else f"{M}"),
        ("Kernel", _describe_kernel(clf.kernel_)),
        ("Noise variance", _format_range(clf.noise_)),
    ]
    if hasattr(clf, "epsilon_"):
        rows.append(("Fraction of random labels (ε)", f"{clf.epsilon_:.4g}"))
    if clf.calibration_ != "none":
        rows.append(("Temperature", f"{clf.temperature_:.3g}, from {clf.calibration_}"))
    if len(clf.ensemble_weights_) > 1:
        weights = ", ".join(f"{w:.2f}" for w in clf.ensemble_weights_)
        rows.append(("Weights of Gaussian process and trees", weights))
    name = "Bound on the log marginal likelihood" if hasattr(clf, "elbo_") else "Log marginal likelihood"
    evidence = clf.log_marginal_likelihood_
    rows.append((name, "none: training stopped too early" if math.isnan(evidence) else f"{evidence:,.2f}"))
    rows.append(("Epochs", f"{clf.n_epochs_}"))
    if "seconds" in history[-1]:
        rows.append(("Training time (s)", f"{history[-1]['seconds']:.1f}"))
    rows += [
        ("Size of the model", _measure_memory(clf)),
        ("Precision", clf.dtype),
        ("Seed (random_state)", f"{clf.random_state!r}"),
    ]
    return rows + [(f"Version of {name}", value) for name, value in list_versions().items()]


def list_versions() -> dict[str, str]:
    """Return the versions of all packages that affect the results."""
    found = {"cavity": __version__, "Python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def list_warnings(clf: GPClassifier) -> list[str]:
    """Return the warnings of the fit."""
    return list(clf.fit_warnings_)


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


def _measure_memory(clf: GPClassifier) -> str:
    """Measure the tensors that prediction needs."""
    kept = clf._fitted
    tensors = [kept.prior_lower, kept.mean, kept.lower, *kept.prior.parameters(), *kept.prior.buffers()]
    size = sum(t.numel() * t.element_size() for t in tensors)
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def find_column_names(clf: GPClassifier, X: Any, names: Any) -> list[str]:
    """Return the given names, those of the fit, those of the table, or numbers."""
    features = clf._features()
    for known in (names, features.names, getattr(X, "columns", None)):
        if known is not None:
            return [str(name) for name in known]
    return [f"column {d}" for d in range(features.n)]


def compute_scores(predictions: Predictions) -> Facts:
    """Compute scores, if the labels are known."""
    if predictions.codes is None:
        return []
    P, codes = predictions.P, predictions.codes
    return [
        ("Accuracy", f"{1 - error(P, codes):.4f}"),
        ("Negative log-likelihood", f"{nll(P, codes):.4f} nats per row"),
        ("Expected calibration error", f"{expected_calibration_error(P, codes):.4f}"),
    ]


def summarise_columns(X: Array, names: list[str]) -> list[list[str]]:
    """Return name, minimum, mean, maximum and standard deviation of each column."""
    parts = X.min(0), X.mean(0), X.max(0), X.std(0)
    return [[name, *(f"{part[d]:.4g}" for part in parts)] for d, name in enumerate(names[:MAX_LINES])]


def count_classes(clf: GPClassifier, predictions: Predictions) -> list[list[str]]:
    """Count the rows of each class, true (if known) and predicted."""
    rows = []
    for label in clf.classes_[:MAX_LINES]:
        true = [] if predictions.y is None else [f"{int((predictions.y == label).sum())}"]
        rows.append([str(label), *true, f"{int((predictions.predicted == label).sum())}"])
    return rows


def find_extremes(predictions: Predictions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the least and of the most certain rows; no row is in both."""
    order = np.argsort(predictions.P.max(1), kind="stable")
    few = min(MAX_ROWS, (len(order) + 1) // 2)
    return order[:few], order[few:][::-1][:few]
