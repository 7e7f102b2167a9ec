"""What there is to say about a fitted model and about rows, as names and values: the text of the report."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cavity._version import __version__
from cavity.report.calibration import Array, error, expected_calibration_error, nll

Facts = list[tuple[str, str]]
COLUMNS = 40  # columns and classes of a table; the rest is counted
EACH = 15  # most certain rows, and least certain ones


class Judged(NamedTuple):
    """Rows, what the model says of them, and what is true of them where that is known."""

    X: Array  # [n D]
    P: Array  # [n C]
    predicted: NDArray[Any]  # [n]
    y: NDArray[Any] | None
    place: NDArray[np.int64] | None  # [n], column of the true class


def model(clf: Any) -> Facts:
    """The model card."""
    check_is_fitted(clf, "inducing_points_")
    latent, M, D = clf.inducing_points_.shape
    what = "Inducing points"
    if hasattr(clf, "frequencies_"):
        what, M = "Spectral features", 2 * clf.frequencies_.shape[1]
    history = getattr(clf, "history_", None) or [{}]
    rows = [
        ("Method", _method(clf)),
        ("Classes", f"{len(clf.classes_)}"),
        ("Columns", f"{D}"),
        (what, f"{M} for each of {latent} latent functions" if latent > 1 else f"{M}"),
        ("Kernel", _kernel(clf.kernel_)),
        ("Noise variance", _span(clf.noise_)),
    ]
    if hasattr(clf, "epsilon_"):
        rows.append(("Share of random labels (ε)", f"{clf.epsilon_:.4g}"))
    name = "Bound on the log marginal likelihood" if hasattr(clf, "elbo_") else "Log marginal likelihood"
    rows.append((name, f"{clf.log_marginal_likelihood_:,.2f}"))
    rows.append(("Epochs", f"{clf.n_epochs_}"))
    if "seconds" in history[-1]:
        rows.append(("Seconds of training", f"{history[-1]['seconds']:.1f}"))
    rows += [
        ("Memory of the model", _bytes(clf)),
        ("Precision", clf.dtype),
        ("Seed (random_state)", f"{clf.random_state!r}"),
    ]
    return rows + [(f"Version of {name}", value) for name, value in versions().items()]


def versions() -> dict[str, str]:
    """Of everything that shapes the numbers."""
    found = {"cavity": __version__, "Python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def warnings_of(clf: Any) -> list[str]:
    """What the fit warned of."""
    return [str(text) for text in getattr(clf, "fit_warnings_", [])]


def _method(clf: Any) -> str:
    extra = [
        f"{name}={getattr(clf, name)!r}"
        for name, method in (("power", "pep"), ("sites", "rep"), ("likelihood", "vi"))
        if clf.method == method
    ]
    return ", ".join([str(clf.method), *extra])


def _kernel(kernel: Any) -> str:
    """In words; arrays as their smallest and largest value."""
    if not hasattr(kernel, "get_params"):
        return type(kernel).__name__
    inside = []
    for name, value in kernel.get_params(deep=False).items():
        if hasattr(value, "get_params"):
            inside.append(_kernel(value))
        elif isinstance(value, np.ndarray | float | int):
            inside.append(f"{name} {_span(value)}")
        else:
            inside.append(f"{name} {type(value).__name__}")
    return f"{type(kernel).__name__}({', '.join(inside)})"


def _span(value: Any) -> str:
    value = np.asarray(value, dtype=np.float64)
    low, high = value.min(), value.max()
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _bytes(clf: Any) -> str:
    """Of the tensors that prediction needs."""
    kept = clf._fitted
    tensors = [kept.prior_lower, kept.mean, kept.lower, *kept.prior.parameters(), *kept.prior.buffers()]
    size = sum(t.numel() * t.element_size() for t in tensors)
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def column_names(clf: Any, X: Any, names: Any) -> list[str]:
    """As given, as in the table, as at fit, or their numbers."""
    for known in (names, getattr(X, "columns", None), getattr(clf, "feature_names_in_", None)):
        if known is not None:
            return [str(name) for name in known]
    return [f"column {d}" for d in range(clf.n_features_in_)]


def scores(judged: Judged) -> Facts:
    """Quality, where the labels are known."""
    if judged.place is None:
        return []
    P, place = judged.P, judged.place
    return [
        ("Accuracy", f"{1 - error(P, place):.4f}"),
        ("Negative log-likelihood", f"{nll(P, place):.4f} nats a row"),
        ("Expected calibration error", f"{expected_calibration_error(P, place):.4f}"),
    ]


def columns(X: Array, names: list[str]) -> list[list[str]]:
    """Name, smallest, mean, largest and standard deviation of each column."""
    parts = X.min(0), X.mean(0), X.max(0), X.std(0)
    return [[name, *(f"{part[d]:.4g}" for part in parts)] for d, name in enumerate(names[:COLUMNS])]


def classes(clf: Any, judged: Judged) -> list[list[str]]:
    """Rows of each class, true (where known) and predicted."""
    rows = []
    for label in clf.classes_[:COLUMNS]:
        true = [] if judged.y is None else [f"{int((judged.y == label).sum())}"]
        rows.append([str(label), *true, f"{int((judged.predicted == label).sum())}"])
    return rows


def extremes(judged: Judged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the least certain rows and of the most certain ones, each in that order, none in both."""
    order = np.argsort(judged.P.max(1), kind="stable")
    few = min(EACH, (len(order) + 1) // 2)
    return order[:few], order[few:][::-1][:few]
