"""Demo: EP, SEP and logistic regression on the toy set of the paper and on digits."""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.common.text_tables import format_grid
from cavity.estimators import GPClassifier
from cavity.options import Training, read_training
from cavity.report.demo_figure import draw
from cavity.report.demo_problems import DemoResult, Problem, make_digits, make_toy

Echo = Callable[[str], Any]


class Size(NamedTuple):
    """Size of a problem, and limits of each fit."""

    rows: int  # training rows
    inducing: int  # inducing points per class
    epochs: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.inducing} inducing points per class, {self.epochs} epochs and {self.seconds:g} s"


class Setting(NamedTuple):
    """Sizes of the demo. The epochs limit the fits; on a busy machine, the seconds do."""

    toy: Size
    digits: Size

    def __str__(self) -> str:
        """Describe the limits."""
        return (
            "NLL, error and ECE are computed on test rows; lower is better. To keep the demo short, EP and SEP have\n"
            f"at most {self.toy} on toy,\nat most {self.digits} on digits\n"
            '("limit": the fit reached a limit before it converged).\n'
            "This is one split with sizes chosen for it: a demonstration, not a comparison of methods."
        )


FULL = Setting(Size(1000, 12, 300, 10), Size(1198, 50, 120, 25))
QUICK = Setting(Size(150, 8, 15, 5), Size(300, 10, 8, 5))


def run(out: Path, seed: int, setting: Setting = FULL, echo: Echo = print) -> list[DemoResult]:
    """Train all models, print the table, write `demo.png` and `demo.csv` to the folder `out`."""
    start = time.perf_counter()
    results: list[DemoResult] = []
    for problem in (make_toy(setting.toy.rows, seed), make_digits(setting.digits.rows, seed)):
        echo(f"==> {problem}")
        for method, model in make_models(problem, setting, seed):
            results.append(train(problem, method, model))
            row = results[-1].row()
            echo(f"    {method:<20} NLL {row['NLL']}   ({row['fit seconds']} s)")
    rows = [result.row() for result in results]
    echo(f"\n{format_table(rows)}\n\n{setting}\n\n==> Drawing")
    out.mkdir(parents=True, exist_ok=True)
    write_csv(rows, out / "demo.csv")
    draw(results, out / "demo.png")
    echo(
        f"==> Wrote {out / 'demo.png'} and {out / 'demo.csv'} ({time.perf_counter() - start:.0f} s in total)"
    )
    return results


def make_models(problem: Problem, setting: Setting, seed: int) -> Iterator[tuple[str, Any]]:
    """Make the three models; EP and SEP have the same options."""
    size = setting.toy if problem.name == "toy" else setting.digits
    options: dict[str, Any] = {
        "n_inducing": size.inducing,
        "max_epochs": size.epochs,
        "training": Training(max_seconds=size.seconds),
        "random_state": seed,
        "verbose": 1 if sys.stderr.isatty() else 0,
    }
    yield "EP", GPClassifier("ep", **options)
    yield "SEP", GPClassifier("sep", **options)
    yield "logistic regression", make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def train(problem: Problem, method: str, model: Any) -> DemoResult:
    """Fit and predict. The table, not a warning, says whether a limit was reached."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(problem.X, problem.y)
    seconds = time.perf_counter() - start
    epochs = _format_epochs(model) if isinstance(model, GPClassifier) else ""
    return DemoResult(
        problem, method, model, np.asarray(model.predict_proba(problem.X_test)), seconds, epochs
    )


def _format_epochs(model: GPClassifier) -> str:
    limit = read_training(model.training).max_seconds
    limited = model.n_epochs_ == model.max_epochs or model.history_[-1]["seconds"] >= limit
    return f"{model.n_epochs_}" + (" (limit)" if limited else "")


def format_table(rows: list[dict[str, str]]) -> str:
    """Format a table: text left-aligned, numbers right-aligned."""
    names = list(rows[0])
    numbers = [j for j, name in enumerate(names) if name not in ("data", "method", "epochs")]
    head, *lines = format_grid([names, *(list(row.values()) for row in rows)], numbers).split("\n")
    return "\n".join([head, "-" * max(map(len, [head, *lines])), *lines])


def write_csv(rows: list[dict[str, str]], path: Path) -> None:
    """Write the table as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
