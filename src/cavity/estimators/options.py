"""Arguments become objects here, and nowhere else; what has no meaning is refused with what has."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from cavity import spectrum
from cavity.data import Source
from cavity.errors import BadOption
from cavity.estimators import methods
from cavity.estimators.methods import Method
from cavity.estimators.values import number, one_of, read_dtype, read_jitter, resolve_device, whole
from cavity.inducing import CANDIDATES
from cavity.kernels.base import check_kernel

SHARE = ("auto", None, "prior", "kernel", "inducing", "both")
LEARN = ("kernel", "noise", "inducing", "frequencies", "epsilon")
SCHEDULES = ("inner-approx", "inner-exact", "outer")
OPTIMIZERS = ("auto", "adam", "sign", "lbfgs")

_TAKE_BATCHES, _REGRESS_BATCHES = "'ep', 'sep', 'rep', 'pep' or 'vi'", "'svi'"
NEED_ALL = {  # methods that see all rows at once, and those to try instead
    "gfitc": _TAKE_BATCHES,
    "laplace": _TAKE_BATCHES,
    **dict.fromkeys(("exact", "fitc", "vi", "sr", "pp", "nystrom", "sd", "bcm", "cg"), _REGRESS_BATCHES),
}

USUAL_EPSILON = 1e-3
LEARNT_EPSILON = (
    0.1  # where it starts when it is learnt: wrong labels are easier to trust later than to unlearn
)

BATCH_BYTES = 128 << 20  # of one C × M × batch array
LEAST_M = 64  # below, a row's sites and moments take more than its projection
FULL_BATCH_ROWS = 1000
BATCH_ROWS = (200, 1000)  # between these, a sixth of the rows
PLANNED_STEPS = (600, 2000)  # between these, with the number of rows
BATCH_EPOCHS = 500
RECOMMENDED_EPOCHS = 200  # of method="auto" on full batches; more of them predict no better
SWEEPS = 10_000


class Options(NamedTuple):
    """The estimator's arguments, checked."""

    method: Method
    epsilon: float
    share_kernel: bool
    share_inducing: bool
    share_prior: bool
    recommended: bool  # method="auto": what is left open is ours to choose
    learn: frozenset[str]
    predictive: str
    schedule: str
    optimizer: str
    rate: float
    final_rate: float
    damping: float | None
    batch_size: int | None
    chunk: int
    max_epochs: int
    planned: bool  # the number of epochs is ours, not the user's
    jitter: float
    device: torch.device
    dtype: torch.dtype


def read(estimator: Any, n_rows: int, n_latent: int, M: int, source: Source | None = None) -> Options:
    """All arguments of a GPClassifier, for a table of this size: in memory, or in a source."""
    e = estimator
    check_kernel(e.kernel) if e.kernel is not None else None
    method = _method(e, source is None or source.numbered)
    learn = learnt_points(learnt_names(e.learn), e.inducing) - _not_learnt(e, method, n_rows, source)
    predictive = _predictive(e, n_latent)
    schedule = one_of("schedule", e.schedule, SCHEDULES)
    optimizer = one_of("optimizer", e.optimizer, OPTIMIZERS)
    read_dtype(e.dtype)
    _refuse_exact_without_sites(e.method, method, schedule)
    if source is not None:
        _refuse_for_source(e.method, method, schedule, source)
    if spectrum.asked(e.inducing) and method.on_f and not method.at_mode:
        raise BadOption(
            f"inducing='spectrum' leaves no residual variance for method={e.method!r} to keep beside the inducing values: use "
            "method='ep', or inducing points (inducing='auto')."
        )
    share = one_of("share", e.share, SHARE)
    recommended = e.method == "auto" and not spectrum.asked(e.inducing)
    epsilon = _epsilon(e.epsilon, method, learn)
    common = settings(e, method, learn, schedule, optimizer, n_rows, n_latent, M)
    if recommended and common.planned and common.max_epochs == BATCH_EPOCHS:
        common = common._replace(max_epochs=RECOMMENDED_EPOCHS)
    return common._replace(
        epsilon=epsilon,
        share_kernel=share in ("kernel", "both"),
        share_inducing=common.share_inducing or share in ("inducing", "both"),
        share_prior=share == "prior" or (share == "auto" and recommended),
        recommended=recommended,
        predictive=predictive,
    )


def settings(
    e: Any,
    method: Method,
    learn: frozenset[str],
    schedule: str,
    optimizer: str,
    n_rows: int,
    n_latent: int,
    M: int,
) -> Options:
    """The arguments that every estimator has, given those that say what it is."""
    dtype = read_dtype(e.dtype)
    schedule = "outer" if method.sweeps_first else schedule
    room = max(1, BATCH_BYTES // (n_latent * M * dtype.itemsize))
    chunk = max(1, BATCH_BYTES // (n_latent * max(M, LEAST_M) * dtype.itemsize))
    batch = _batch_size(e.batch_size, n_rows, room, schedule, optimizer, e.method)
    on_all = "lbfgs" if method.sweeps_first or method.sites == "free" else "sign"
    optimizer = ("adam" if batch is not None else on_all) if optimizer == "auto" else optimizer
    usual = 0.03 if batch is not None else 0.01
    rate = usual if e.learning_rate is None else number("learning_rate", e.learning_rate, 0.0)
    moves = bool(learn) or method.sites == "free"
    max_epochs, planned = _epochs(e.max_epochs, moves, batch, n_rows)
    anneal = batch is not None and optimizer == "adam"
    if e.max_seconds is not None:
        number("max_seconds", e.max_seconds, 0.0)
    number("tol", e.tol, 0.0, strict=False)
    return Options(
        method=method,
        epsilon=0.0,
        share_kernel=False,
        share_inducing=e.inducing is None,
        share_prior=False,
        recommended=False,
        learn=learn,
        predictive="quadrature",
        schedule=schedule,
        optimizer=optimizer,
        rate=rate,
        final_rate=0.1 * rate if anneal else rate,
        damping=None if e.damping is None else number("damping", e.damping, 0.0, 1.0),
        batch_size=batch,
        chunk=chunk,
        max_epochs=max_epochs,
        planned=planned,
        jitter=read_jitter(e.jitter, dtype),
        device=resolve_device(e.device),
        dtype=dtype,
    )


def _method(e: Any, numbered: bool) -> Method:
    """The arguments that together say which method; "auto" looks at whether rows can own sites."""
    one_of("method", e.method, methods.NAMES)
    one_of("sites", e.sites, methods.SITES)
    one_of("q_update", e.q_update, methods.Q_UPDATES)
    one_of("likelihood", e.likelihood, methods.LIKELIHOODS)
    one_of("bound", e.bound, methods.BOUNDS)
    number("power", e.power, 0.0, 1.0)
    number("epsilon", e.epsilon, 0.0, 1.0, strict=False)
    return methods.resolve(e, "ep" if numbered else "sep")


def _refuse_for_source(name: str, method: Method, schedule: str, source: Source) -> None:
    if method.sites == "own" and not source.numbered:
        raise BadOption(
            f"method={name!r} keeps sites for each row, but rows of an iterable have no numbers by which to find them again: "
            "use method='sep', method='rep' with sites='tied', or method='vi'; or write the rows to Parquet or .npy files."
        )
    if method.at_mode:
        raise BadOption(
            f"method={name!r} differentiates through all rows at once, which a source does not hold in memory: use method='ep', "
            "'sep', 'rep', 'pep' or 'vi', or give the table as an array."
        )
    if schedule == "inner-exact":
        raise BadOption(
            "schedule='inner-exact' differentiates through all rows at once, which a source does not hold in memory: use "
            "schedule='inner-approx' or 'outer', or give the table as an array."
        )


def learnt_names(value: Any, valid: Any = LEARN, argument: str = "learn") -> frozenset[str]:
    """`learn` as a set of names."""
    single = isinstance(value, str) or not hasattr(value, "__iter__")
    names = () if value is None else (value,) if single else tuple(value)
    for name in names:
        one_of(argument, name, valid)
    return frozenset(names)


def learnt_points(learn: frozenset[str], inducing: Any) -> frozenset[str]:
    """`learn` with "inducing" for whatever stands in that place; frequencies of a sparse spectrum move only where it says so."""
    if spectrum.asked(inducing):
        return (learn - {"inducing", "frequencies"}) | ({"inducing"} if "frequencies" in learn else set())
    if "frequencies" in learn:
        raise BadOption(
            "learn with 'frequencies' is for inducing='spectrum'; inducing points are 'inducing'."
        )
    return learn


def _not_learnt(e: Any, method: Method, n_rows: int, source: Source | None) -> frozenset[str]:
    """What `learn` may name and yet stays as it is: Z where it is X, and a noise that the method has not."""
    fixed = {"noise"} if method.at_mode else set()
    if e.inducing is not None:
        return frozenset(fixed)
    refuse_full("inducing=None", n_rows, source)
    return frozenset({*fixed, "inducing"})


def refuse_full(what: str, n_rows: int, source: Source | None = None) -> None:
    """An inducing point at every row takes matrices of N² numbers."""
    if source is not None or n_rows > CANDIDATES:
        where = "a source, whose rows are not in memory" if source is not None else f"{n_rows:,} rows"
        raise BadOption(
            f"{what} has an inducing point at every row, which is too much for {where}: use n_inducing=, and "
            "inducing='auto' or 'kmeans'."
        )


def _predictive(e: Any, n_latent: int) -> str:
    name: str = one_of("predictive", e.predictive, methods.PREDICTIVES)
    if e.bound != "quadrature" and n_latent > 1:
        raise BadOption(
            f"bound={e.bound!r} is one of the logistic curve, for two classes, and y has {n_latent}: use bound='quadrature'."
        )
    if name == "probit" and n_latent > 1:
        raise BadOption(
            f"predictive='probit' is a formula for two classes, and y has {n_latent}: use predictive='quadrature'."
        )
    return name


def _epsilon(value: float, method: Method, learn: frozenset[str]) -> float:
    if value == 1:
        raise BadOption(
            "epsilon=1 says that every label is random: nothing can be learnt; use a share below 1."
        )
    if value == 0 and "epsilon" in learn:
        raise BadOption(
            "epsilon=0 cannot be learnt (its log-odds are stepped): give a positive start, or leave 'epsilon' out of learn."
        )
    if value == 0 and method.variational and method.likelihood == "robust-max":
        raise BadOption(
            "epsilon=0 makes the variational bound −∞ (one label that q does not explain for sure is enough): use a positive "
            "epsilon=, method='rep', or likelihood='softmax'."
        )
    if "epsilon" in learn and value == USUAL_EPSILON:
        return LEARNT_EPSILON
    return float(value)


def _refuse_exact_without_sites(name: str, method: Method, schedule: str) -> None:
    if schedule == "inner-exact" and (method.sites != "own" or method.on_f):
        raise BadOption(
            f"schedule='inner-exact' differentiates through each row's own sites on t, which method={name!r} does not keep: "
            "use method='ep', 'rep' or 'pep', or schedule='inner-approx'."
        )


def _batch_size(value: Any, n_rows: int, room: int, schedule: str, optimizer: str, method: str) -> int | None:
    """None for full batches."""
    needs_all = schedule != "inner-approx" or optimizer in ("sign", "lbfgs", "newton", "gradient")
    if isinstance(value, str):
        if value != "auto":
            raise BadOption(
                f"batch_size={value!r} is unknown; use 'auto', None for full batches, or a whole number."
            )
        if n_rows <= FULL_BATCH_ROWS or needs_all:
            return None
        low, high = BATCH_ROWS
        return min(max(low, n_rows // 6), high, room)
    if value is None:
        return None
    size = whole("batch_size", value, 1)
    if size >= n_rows:
        return None
    if needs_all and method in NEED_ALL:
        raise BadOption(
            f"method={method!r} needs all rows at once, but batch_size={size}: use batch_size=None, or a method that takes "
            f"mini-batches: {NEED_ALL[method]}."
        )
    if needs_all:
        what = f"schedule={schedule!r}" if schedule != "inner-approx" else f"optimizer={optimizer!r}"
        raise BadOption(
            f"{what} needs all rows at once, but batch_size={size}: use batch_size=None, or "
            "schedule='inner-approx' with optimizer='adam'."
        )
    return size


def _epochs(value: Any, learn: bool, batch: int | None, n_rows: int) -> tuple[int, bool]:
    if value is not None:
        return whole("max_epochs", value, 1), False
    if not learn:
        return SWEEPS, True
    if batch is None:
        return BATCH_EPOCHS, True
    low, high = PLANNED_STEPS
    return max(3, math.ceil(min(high, low + n_rows // 50) * batch / n_rows)), True
