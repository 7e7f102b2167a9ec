"""Regression's methods as points of the one engine, their arguments, and rows with real targets."""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavity import inducing, spectrum
from cavity.columns import distinct_rows
from cavity.errors import BadInput, BadOption
from cavity.estimators import build, subset
from cavity.estimators.checks import check_rows, check_weights
from cavity.estimators.methods import Q_UPDATES, Method
from cavity.estimators.options import Options, learnt_names, learnt_points, refuse_full, settings
from cavity.estimators.tables import Array, InMemory, Start, Table
from cavity.estimators.values import inducing_count, noise_values, number, one_of, whole
from cavity.factors import Committee, Gaussian
from cavity.kernels import RBF, Kernel
from cavity.kernels.base import check_kernel

# power EP finds the same Gaussian sites whatever its power, and half a site is never more than a cavity can spare
_FITC = Method("gaussian", "own", 0.5, linear=True, settles=True)
_VI = Method("gaussian", "averaged", 0.0, linear=True, settles=True)
METHODS = {
    "exact": _FITC,
    "fitc": _FITC,
    "vi": _VI,
    "svi": Method("gaussian", "averaged", 0.0, linear=True),
    "pp": _FITC._replace(likelihood="gaussian-projected"),
    "sr": _FITC._replace(likelihood="gaussian-projected"),
    "nystrom": _FITC._replace(likelihood="gaussian-projected"),
    "sd": _FITC,
    "bcm": _FITC._replace(likelihood="committee"),
    "cg": _VI,
}
USED_BY = {
    "q_update": ("svi",),
    "n_blocks": ("bcm",),
    "blocks": ("bcm",),
    "selection": ("sd",),
    "cg_tol": ("cg",),
    "inducing": ("vi", "svi", "fitc", "pp", "sr", "nystrom", "cg"),
}
LEARN = ("kernel", "noise", "inducing", "frequencies")
OPTIMIZERS = ("auto", "adam", "sign", "lbfgs", "newton", "gradient", "sag")
EXACT_JITTER = 1e-8  # relative; where Z = X nothing else stands between the model and the exact one
# Z is X, or a subset of it: where the likelihood lacks the residual, its maximum would have all points in one place
FIXED_INDUCING = ("exact", "pp", "sr", "nystrom", "sd", "bcm")
KEEP_ROWS = ("nystrom", "cg")  # predictions go back to every training row
NEEDS_NOISE = ("vi", "svi", "pp", "sr", "nystrom", "cg")


@dataclass(frozen=True)
class Targets(InMemory):
    """Rows in memory with targets in units of their spread, (y − shift)/scale."""

    shift: float
    scale: float
    member: NDArray[np.int64] | None = None  # [N], of a committee

    @property
    def n_classes(self) -> int:
        return 1

    @property
    def n_latent(self) -> int:
        """One function; one for each member of a committee, with the same prior."""
        return 1 if self.member is None else int(self.member.max()) + 1

    @property
    def class_totals(self) -> Array:
        return np.array([self.weight.sum()])

    def start(self, rng: np.random.Generator) -> Start:
        return Table(self.X, np.zeros(len(self.y), dtype=np.int64), self.weight, 1).start(rng)

    def seen(self) -> NDArray[Any]:
        return self.y if self.member is None else np.column_stack([self.member, self.y])


def targets(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Targets:
    """The table of a fit; rows of weight 0 are left out."""
    rows = check_rows(estimator, X, reset=True)
    values = check_targets(y, len(rows))
    weight = check_weights(sample_weight, rows)
    present = weight > 0
    rows, values, weight = rows[present], values[present], weight[present]
    if (
        estimator.method != "svi" and len(rows) <= inducing.CANDIDATES
    ):  # whose batches follow the order of the rows
        rows, values, weight = _merged(rows, values, weight)
    shift, scale = _units(values, weight) if estimator.normalize_y else (0.0, 1.0)
    return Targets(rows, (values - shift) / scale, weight, shift, scale)


def _merged(X: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Rows that are the same in everything become one, in an order of their own: repeating is weighting, to the last bit."""
    distinct, place = distinct_rows(np.column_stack([X, y]))
    total = np.asarray(np.bincount(place, weights=weight), dtype=np.float64)
    return np.ascontiguousarray(distinct[:, :-1]), distinct[:, -1].copy(), total


def _units(y: Array, weight: Array) -> tuple[float, float]:
    """Weighted mean and standard deviation."""
    shift = float(np.average(y, weights=weight))
    with np.errstate(over="ignore", invalid="ignore"):  # refused in words
        off = y - shift
        largest = float(np.abs(off).max()) or 1.0  # in its units squares neither vanish nor overflow
        return shift, spread(shift, largest * math.sqrt(np.average((off / largest) ** 2, weights=weight)))


def spread(mean: float, deviation: float) -> float:
    """The standard deviation; 1 where it is nothing but rounding."""
    if not deviation < 1e150:  # whose square is a variance
        raise BadInput("y is too large for its spread to be computed: divide it by its largest value.")
    return deviation if deviation > 1e-12 * abs(mean) else 1.0


def check_targets(y: Any, n_rows: int) -> Array:
    """y as a one-dimensional array of finite numbers, one a row."""
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise BadInput("This regressor requires y to be passed, but the target y is None.")
    if getattr(getattr(y, "dtype", None), "kind", "") == "c":
        raise BadInput("Complex data not supported: y must hold real numbers.")
    y = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if y.ndim != 1 and y.shape != (n_rows, 1):
        raise BadInput(
            f"y should be a 1d array, got an array of shape {y.shape} instead: give one target a row; for several targets fit one "
            "model each, for example with sklearn.multioutput.MultiOutputRegressor."
        )
    y = column_or_1d(y, warn=True)
    if len(y) != n_rows:
        raise BadInput(f"X has {n_rows} rows and y has {len(y)}: give one target a row.")
    try:
        values = np.asarray(y, dtype=np.float64)
        if y.dtype.kind in "USmM":
            raise TypeError
    except (TypeError, ValueError):
        odd = next(v for v in y.tolist() if not isinstance(v, int | float))
        raise BadInput(
            f"y must hold numbers, and {odd!r} is none: for class labels use GPClassifier, or convert y first."
        ) from None
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise BadInput(f"y contains NaN or infinity in {bad} rows: drop these rows.")
    return values


def choose(estimator: Any, pool: inducing.Candidates, table: Targets, rng: np.random.Generator) -> Array:
    """Inducing inputs [1 M D]: every distinct row where they are the model's; for a committee those of each member, [p M D]."""
    if table.member is not None:
        return subset.points_of(table.X, table.member, rng)
    if estimator.method == "sd":
        return distinct_rows(table.X)[0][None]
    if estimator.method == "exact" or estimator.inducing is None:
        refuse_full("method='exact'" if estimator.method == "exact" else "inducing=None", table.n_rows)
        return inducing.choose(None, pool, 0, 1, rng)
    M = inducing_count(estimator.n_inducing, table.class_totals.sum())
    return build.points(estimator, pool, M, 1, rng)


def check_options(estimator: Any) -> None:
    """The arguments that say which method, before any row is looked at."""
    e = estimator
    one_of("method", e.method, METHODS)
    one_of("q_update", e.q_update, Q_UPDATES)
    one_of("blocks", e.blocks, subset.BLOCKS)
    one_of("selection", e.selection, subset.CRITERIA)
    whole("n_blocks", e.n_blocks, 1)
    number("cg_tol", e.cg_tol, 0.0, 1.0)
    if spectrum.asked(e.inducing) and e.method not in ("vi", "svi"):
        raise BadOption(
            f"inducing='spectrum' leaves no residual variance, by which method={e.method!r} differs from others: use method='vi', "
            "which is exact for such features, or 'svi'."
        )
    usual = inspect.signature(type(e).__init__).parameters
    for option, users in USED_BY.items():
        value = getattr(e, option)
        named = value is None or isinstance(value, str | int | float)
        if e.method not in users and not (named and value in (None, usual[option].default)):
            given = repr(value) if named else "..."
            raise BadOption(
                f"{option}={given} is not used by method={e.method!r}; it is used by method={users[0]!r}."
            )


def part(estimator: Any, table: Targets, begin: Start, rng: np.random.Generator) -> Targets:
    """The rows that the method trains on: an active set ("sd"), all of them in blocks ("bcm"), or all.

    Rows at the same place go together, so that repeating a row and giving it a weight are the same.
    """
    e = estimator
    if e.method not in ("sd", "bcm"):
        return table
    distinct, place = distinct_rows(table.X)
    if e.method == "bcm":
        blocks = min(e.n_blocks, len(distinct))
        return replace(table, member=subset.BLOCKS[e.blocks](distinct, blocks, begin.columns, rng)[place])
    M = inducing_count(e.n_inducing, table.weight.sum())
    if M >= len(distinct):
        return table
    weight = np.bincount(place, weights=table.weight)
    y = np.bincount(place, weights=table.weight * table.y) / weight
    noise = np.maximum(noise_values(e.noise, 1, False)[0], 1e-6) / weight
    chosen = subset.active_rows(_kernel(e, begin), distinct, y, noise, M, e.selection)
    kept = np.isin(place, chosen)
    return replace(table, X=table.X[kept], y=table.y[kept], weight=table.weight[kept])


def _kernel(estimator: Any, begin: Start) -> Any:
    """The kernel as a fit starts with it."""
    kernel = RBF() if estimator.kernel is None else copy.deepcopy(estimator.kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(1, begin.columns)
    return kernel


def read(estimator: Any, table: Targets, M: int) -> Options:
    """All arguments of a GPRegressor."""
    e = estimator
    check_kernel(e.kernel) if e.kernel is not None else None
    method = METHODS[one_of("method", e.method, METHODS)]
    if e.q_update == "gradient":
        method = method._replace(sites="free")
    optimizer = one_of("optimizer", e.optimizer, OPTIMIZERS)
    _refuse_optimizer(e, method, optimizer)
    learn = learnt_points(learnt_names(e.learn, LEARN), e.inducing)
    noise = noise_values(e.noise, 1, "noise" in learn)
    if e.method in NEEDS_NOISE and noise[0] == 0:
        raise BadOption(
            f"noise=0 leaves method={e.method!r} without a density for y: use a positive noise=, or method='exact' or 'fitc'."
        )
    if e.method in FIXED_INDUCING or e.inducing is None:
        learn -= {"inducing"}
    options = settings(e, method, learn, "inner-approx", optimizer, table.n_rows, table.n_latent, M)
    if table.member is not None:
        options = options._replace(share_kernel=True, share_inducing=False)
    if e.method in ("exact", "sd", "bcm") and e.jitter is None and options.dtype == torch.float64:
        options = options._replace(jitter=EXACT_JITTER)
    return options


def _refuse_optimizer(e: Any, method: Method, optimizer: str) -> None:
    if optimizer == "newton" and not method.settles:
        raise BadOption(
            f"optimizer='newton' steps hyper-parameters with the best q at each, which method={e.method!r} does not seek: use "
            "method='vi', 'exact' or 'fitc', or optimizer='lbfgs'."
        )
    if optimizer in ("gradient", "sag") and method.sites != "free":
        raise BadOption(
            f"optimizer={optimizer!r} steps q's mean and Cholesky factor: use method='svi' with q_update='gradient', or "
            "optimizer='lbfgs' or 'adam'."
        )


def factor(estimator: Any, options: Options) -> Gaussian:
    """The likelihood, with its noise in the units of the targets."""
    noise, learn = float(noise_values(estimator.noise, 1, False)[0]), "noise" in options.learn
    if options.method.likelihood == "committee":
        likelihood: Gaussian = Committee(noise, learn)
    else:
        likelihood = Gaussian(noise, learn, options.method.likelihood.endswith("projected"))
    likelihood.log_noise.data = likelihood.log_noise.data.to(options.device, options.dtype)
    return likelihood
