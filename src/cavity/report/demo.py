"""Demo: EP, SEP and logistic regression on the toy set of the paper and on digits, which need no files."""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.common.text_tables import format_grid
from cavity.estimators import GPClassifier
from cavity.options import Training
from cavity.report.calibration import Array, error, expected_calibration_error, nll
from cavity.report.colours import COLOURS
from cavity.report.plots import decision_regions, learning_curve, reliability_diagram

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BOX = 2.5  # the rows of the toy set are uniform in [−BOX, BOX]²
EARLY = 12  # the first 1/12 of the epochs is too steep to draw to scale


class Problem(NamedTuple):
    name: str
    X: Array  # [N D]
    y: NDArray[np.int64]  # [N], 0..C−1
    X_test: Array
    y_test: NDArray[np.int64]


class DemoResult(NamedTuple):
    """Fitted model, its probabilities for the test rows, and its row of the table."""

    problem: Problem
    model: Any
    P: Array  # [n C]
    row: dict[str, str]


class Size(NamedTuple):
    """Size of a problem, and limits of each fit. The epochs limit the fits; on a busy machine, the seconds do."""

    rows: int  # training rows
    inducing: int  # inducing points per class
    epochs: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.inducing} inducing points per class, {self.epochs} epochs and {self.seconds:g} s"


Sizes = dict[str, Size]  # by problem
FULL = {"toy": Size(1000, 12, 300, 10), "digits": Size(1198, 50, 120, 25)}
QUICK = {"toy": Size(150, 8, 15, 5), "digits": Size(300, 10, 8, 5)}
REMARK = """\
NLL, error and ECE are computed on test rows; lower is better. To keep the demo short, EP and SEP have
at most {toy} on toy,
at most {digits} on digits
("limit": the fit reached a limit before it converged).
This is one split with sizes chosen for it: a demonstration, not a comparison of methods."""


def run(out: Path, seed: int, sizes: Sizes = FULL, echo: Callable[..., Any] = print) -> list[DemoResult]:
    """Train all models, print the table, write `demo.png` and `demo.csv` to the folder `out`."""
    start, results = time.perf_counter(), list[DemoResult]()
    out.mkdir(parents=True, exist_ok=True)
    for make, size in ((make_toy, sizes["toy"]), (make_digits, sizes["digits"])):
        problem = make(size.rows, seed)
        (N, D), C = problem.X.shape, len(np.unique(problem.y))
        echo(f"==> {problem.name}: {N} rows, {D} columns, {C} classes; {len(problem.y_test)} test rows")
        for method in ("EP", "SEP", "logistic regression"):
            results.append(train(problem, method, size, seed))
            row = results[-1].row
            echo(f"    {method:<20} NLL {row['NLL']}   ({row['fit seconds']} s)")
    rows = [result.row for result in results]
    echo(f"\n{format_table(rows)}\n\n{REMARK.format(**sizes)}\n\n==> Drawing")
    table, picture = out / "demo.csv", out / "demo.png"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    draw(results, picture)
    echo(f"==> Wrote {picture} and {table} ({time.perf_counter() - start:.0f} s in total)")
    return results


def make_toy(rows: int, seed: int) -> Problem:
    r"""Make the synthetic problem of the paper: y = argmax_c f_c(x), with three draws f_c from a GP prior.

        f(x) = α(x₁)ᵀ W α(x₂),   α(s) = L⁻¹ k(g, s),   W_ij ~ N(0, 1)

    This is a draw from the RBF prior with lengthscale 1, up to a negligible error: the kernel is a product over the two
    columns, and the grid g of each is much finer than a lengthscale. Half of the rows are test rows.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-BOX, BOX, (2 * rows, 2))
    g = np.linspace(-BOX, BOX, 25)
    L = np.linalg.cholesky(_rbf(g, g) + 1e-10 * np.eye(len(g)))
    a1, a2 = (np.linalg.solve(L, _rbf(g, column)) for column in X.T)
    W = rng.standard_normal((3, len(g), len(g)))
    y = np.einsum("in,cij,jn->nc", a1, W, a2, optimize=True).argmax(1)
    return Problem("toy", X[:rows], y[:rows], X[rows:], y[rows:])


def _rbf(s: Array, t: Array) -> Array:
    return np.asarray(np.exp(-0.5 * (s[:, None] - t[None, :]) ** 2))


def make_digits(rows: int, seed: int) -> Problem:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=rows, stratify=y, random_state=seed)
    return Problem("digits", X, y, X_test, y_test)


def train(problem: Problem, method: str, size: Size, seed: int) -> DemoResult:
    """Fit and predict. The table, not a warning, says whether a limit was reached."""
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    if method in ("EP", "SEP"):
        limits: dict[str, Any] = {"max_epochs": size.epochs, "training": Training(max_seconds=size.seconds)}
        verbose = int(sys.stderr.isatty())
        model = GPClassifier(
            "ep" if method == "EP" else "sep",
            n_inducing=size.inducing,
            random_state=seed,
            verbose=verbose,
            **limits,
        )
    start, epochs = time.perf_counter(), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(problem.X, problem.y)
    seconds = time.perf_counter() - start
    if isinstance(model, GPClassifier):
        limited = model.n_epochs_ == size.epochs or model.history_[-1]["seconds"] >= size.seconds
        epochs = f"{model.n_epochs_}" + (" (limit)" if limited else "")
    P, y = np.asarray(model.predict_proba(problem.X_test)), problem.y_test
    row = {
        "data": problem.name,
        "method": method,
        "NLL": f"{nll(P, y):.3f}",
        "error": f"{error(P, y):.3f}",
        "ECE": f"{expected_calibration_error(P, y):.3f}",
        "fit seconds": f"{seconds:.1f}",
        "epochs": epochs,
    }
    return DemoResult(problem, model, P, row)


def format_table(rows: list[dict[str, str]]) -> str:
    names = list(rows[0])
    numbers = [j for j, name in enumerate(names) if name not in ("data", "method", "epochs")]
    head, *lines = format_grid([names, *(list(row.values()) for row in rows)], numbers).split("\n")
    return "\n".join([head, "-" * max(map(len, [head, *lines])), *lines])


def draw(results: list[DemoResult], path: Path) -> None:
    """Draw three panels: decision regions of the toy set, reliability on digits, learning curves."""
    from matplotlib import style
    from matplotlib.figure import Figure

    by_name = {(result.problem.name, result.row["method"]): result for result in results}
    with style.context(str(files("cavity.report").joinpath("static", "demo.mplstyle"))):
        figure = Figure(figsize=(15.4, 5.4), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        toy, digits = by_name["toy", "EP"], by_name["digits", "EP"]
        decision_regions(toy.model, toy.problem.X, toy.problem.y, left)
        left.grid(False)
        left.set(xlabel="x₁", ylabel="x₂")
        rings = f"rings: the {toy.model.inducing_points_.shape[1]} learned inducing points of each class"
        _set_title(left, "Decision regions, EP on the toy set", rings)
        for result, colour in ((by_name["digits", "logistic regression"], "#8a8a8a"), (digits, COLOURS[0])):
            label = "{method}: ECE {ECE}".format(**result.row)
            reliability_diagram(result.P, result.problem.y_test, middle, label=label, colour=colour)
        meaning = "above the diagonal: underconfident; below: overconfident"
        _set_title(middle, "Reliability on digits", meaning)
        _draw_curves([by_name[name, method] for name in ("digits", "toy") for method in ("EP", "SEP")], right)
        _set_title(right, "Learning curves", "the steep first epochs are cut off")
        for ax in (middle, right):
            ax.legend(loc="lower right")
        figure.savefig(path, dpi=100, metadata={"Software": None})


def _set_title(ax: Axes, title: str, below: str) -> None:
    ax.set_title(title + "\n", loc="left", fontsize=12.5, fontweight="bold", pad=4)
    ax.text(0, 1.025, below, transform=ax.transAxes, fontsize=10, color="#666666", in_layout=False)
    ax.set_box_aspect(1)


def _draw_curves(results: list[DemoResult], ax: Axes) -> None:
    shown: list[float] = []
    for result in results:
        history, N, name = result.model.history_, len(result.problem.y), result.problem.name
        label, colour = f"{result.row['method']}, {name}", COLOURS[int(result.row["method"] == "SEP")]
        style = "--" if name == "toy" else "-"
        learning_curve(history, ax, rows=N, against="epoch", label=label, colour=colour, style=style)
        shown += [row["objective"] / N for row in history[len(history) // EARLY :]]
    low, high = min(shown), max(shown)
    ax.set_ylim(low, high + 0.05 * (high - low))
