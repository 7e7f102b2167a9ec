"""How a model is trained: optimizer, batches, steps and kernel, within the work."""

from __future__ import annotations

import math
from typing import NamedTuple

from cavity.errors import BadOption
from cavity.fitting.options import papers
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.method import Method, method_names
from cavity.fitting.options.papers import BatchSteps
from cavity.fitting.options.plan import RBF_LINEAR, TableSize, TrainingPlan
from cavity.fitting.options.policy.work import (
    LEAST_M,
    POINTS_PER_ROOT,
    STEPS,
    count_visits,
)
from cavity.fitting.options.training import Training
from cavity.fitting.options.value_checks import is_whole

BATCH_ROWS = 100, 1000  # rows of a mini-batch, at least and at most
RATE = 0.08  # of Adam in mini-batches; it is annealed
FULL_BATCH_RATE = 0.01
LBFGS_EPOCHS = {"fast": 8, "balanced": 16}  # at most, of a pass over all rows and more
LBFGS_SITES = 24_000  # rows × latent functions: above, mini-batches had the lower NLL
# L-BFGS takes about as many times the seconds of mini-batches. These take more steps
# close to the rows where they begin, so that seconds have no cliff [75]
LBFGS_COST = {"fast": 1.45, "balanced": 1.7}
# a linear term needs as many: fewer cannot carry it together with the RBF [24]
POINTS_PER_FEATURE = 2

# Memory. [21]
MOST_SITES = 1 << 27  # of EP: 2 GB. Above, method="auto" takes SEP
BATCH_BYTES = 128 << 20  # of one C × M × batch array


def takes_lbfgs(config: Config, size: TableSize, M: int) -> bool:
    """Return whether L-BFGS trains on all rows.

    For a named method it always does up to 1,000 rows, unless its sites are tied: their
    gradient is not that of the objective.
    """
    if not _is_open(config, size):
        return False
    if not config.method.recommended:
        if config.method.scheme.tied:
            return False

        all_rows = config.batch_size is None or config.method.needs_all_rows
        return all_rows or size.rows <= papers.FULL_BATCH_ROWS

    return _afford_lbfgs(config, size, M) >= 1


def _afford_lbfgs(config: Config, size: TableSize, M: int) -> float:
    """Return the share of the epochs of L-BFGS that the work allows, above 1 if more."""
    share = count_visits(config, size, M) / (LBFGS_EPOCHS[config.effort] * size.rows)
    if size.rows > papers.FULL_BATCH_ROWS:
        share = min(share, LBFGS_SITES / (size.rows * size.latent))
    return share


def plan_training(
    config: Config, size: TableSize, M: int, epochs: int | None = None
) -> TrainingPlan:
    """Plan the training of a model with M whitened values per latent function.

    `epochs`: as many, for a model that is compared with one which took as many.
    """
    sites_per_row = size.numbered and 2 * size.rows * size.latent <= MOST_SITES
    method = config.method.resolve(sites_per_row)
    # what "auto" stands for may not take these options
    method.check_training(
        optimizer=config.optimizer, schedule=config.schedule, damping=config.damping
    )
    steps = _choose_steps(config, method, size, M)
    max_epochs = epochs or config.max_epochs or _count_epochs(config, size, steps)
    tol = config.tol
    if _promises(config, steps.optimizer) and tol == Training.tol:
        tol = papers.TOL
    width = size.latent * config.dtype.itemsize
    committee = config.method.committee is not None
    pooled = config.share == "auto" and config.method.recommended
    same_points = config.inducing is None or config.share in ("inducing", "both")
    return TrainingPlan(
        rows=size.unmerged or size.rows,
        distinct=size.rows if size.unmerged else None,
        columns=size.columns,
        classes=size.classes,
        latent=size.latent,
        device=str(config.device),
        method=method.label,
        sites_per_row=sites_per_row,
        kernel=_choose_kernel(config, size, M),
        share_kernel=committee or config.share in ("kernel", "both"),
        share_inducing=same_points and not committee,
        share_prior=config.share == "prior" or pooled,
        n_inducing=M,
        chunk=max(1, BATCH_BYTES // (width * max(M, LEAST_M))),
        optimizer=steps.optimizer,
        schedule=steps.schedule,
        loose=steps.loose,
        patience=2 * _count_shares(size),
        rate=steps.rate,
        final_rate=steps.final_rate,
        anneal=steps.anneal,
        batch_size=steps.batch,
        max_epochs=max_epochs,
        planned=config.max_epochs is None and steps.planned,
        damping=steps.damping,
        sweep_damping=config.damping or method.sweep_damping,
        tol=tol,
        max_seconds=config.max_seconds,
        why=_explain_training(config, sites_per_row),
    )


def _choose_kernel(config: Config, size: TableSize, M: int) -> str:
    """Return the formula of the kernel, or the name of the one that was given."""
    if config.kernel is not None:
        return type(config.kernel).__name__
    if config.method.recommended and POINTS_PER_FEATURE * size.columns <= M:
        return RBF_LINEAR

    return "RBF()"


class _Steps(NamedTuple):
    """How the hyper-parameters are stepped."""

    optimizer: str
    schedule: str
    loose: bool  # L-BFGS with loosely converged sites
    batch: int | None  # rows per step; None: all
    number: int  # mini-batch steps
    rate: float
    final_rate: float
    anneal: bool
    planned: bool  # the library chose when training ends
    damping: float


def _choose_steps(config: Config, method: Method, size: TableSize, M: int) -> _Steps:
    """Choose optimizer, schedule, batches and rate."""
    recommended = config.method.recommended
    free = recommended and _is_open(config, size)
    quick = takes_lbfgs(config, size, M)

    schedule = config.schedule
    if method.needs_all_rows or quick:
        schedule = "outer"

    if free:
        few = 1
        steps = _count_steps(config, size, M)
    else:
        few = papers.FULL_BATCH_ROWS
        steps = papers.count_steps(size.rows, BATCH_ROWS)

    usual = None  # all rows
    if size.rows > few:
        width = size.latent * config.dtype.itemsize
        usual = min(steps.rows, max(1, BATCH_BYTES // (width * M)))
    batch = _batch_size(config, method, schedule, size.rows, usual)

    optimizer = config.optimizer
    if optimizer == "auto":
        optimizer = method.full_batch_optimizer
        if batch is not None:
            optimizer = "adam"
        elif quick:
            optimizer = "lbfgs"

    anneal = free and batch is not None
    rate = config.learning_rate
    if rate is None:
        rate = FULL_BATCH_RATE if batch is None else steps.rate
    final_rate = rate
    if batch is not None and optimizer == "adam":
        final_rate = (0.01 if anneal else 0.1) * rate

    damping = config.damping
    if damping is None:
        damping = method.sweep_damping if batch is None else 1.0
    return _Steps(
        optimizer=optimizer,
        schedule=schedule,
        loose=quick and recommended,
        batch=batch,
        number=steps.number,
        rate=rate,
        final_rate=final_rate,
        anneal=anneal,
        planned=recommended or batch is not None,
        damping=damping,
    )


def _count_steps(config: Config, size: TableSize, M: int) -> BatchSteps:
    """Return the mini-batch steps of the budget."""
    least, most = BATCH_ROWS
    visits = count_visits(config, size, M)
    rows = min(
        max(least, visits // STEPS[config.effort]), most, max(least, size.rows // 4)
    )
    steps = min(visits // rows, 4 * STEPS[config.effort])
    share = _afford_lbfgs(config, size, M)  # below 1, and 1 where L-BFGS ends
    longer = max(1.0, LBFGS_COST[config.effort] * share)
    return BatchSteps(round(longer * steps), rows, RATE)


def _is_open(config: Config, size: TableSize) -> bool:
    """Return whether the library chooses batches, optimizer, schedule and step size.

    For a named method it does if the user sets none of them.
    """
    given = (
        config.learning_rate is not None
        or config.batch_size not in ("auto", None)
        or config.optimizer != "auto"
        or config.schedule != "inner-approx"
        or not config.learn
    )
    if not config.method.recommended:
        # more epochs than in the papers are more epochs of L-BFGS
        epochs = config.max_epochs or math.inf
        given = (
            given
            or epochs <= papers.FULL_BATCH_EPOCHS
            or config.tol != Training.tol
            or config.method.task == "regression"
        )

    return size.numbered and not given


def _batch_size(
    config: Config, method: Method, schedule: str, n_rows: int, usual: int | None
) -> int | None:
    """Return the rows per step; None for full batches. `usual`: what "auto" means."""
    value = config.batch_size
    full_batch_optimizer = config.optimizer in papers.FULL_BATCH_OPTIMIZERS
    needs_all = schedule != "inner-approx" or full_batch_optimizer
    if value == "auto":
        return None if needs_all else usual
    if value is None or (is_whole(value) and int(value) >= n_rows):
        return None
    if needs_all and method.needs_all_rows:
        listed = _list_mini_batch_methods(method.task)
        raise BadOption(
            f"{method.argument} needs all rows at once, but batch_size={value}: use "
            f"batch_size=None, or a method that takes mini-batches: {listed}."
        )
    if needs_all:
        what = f"optimizer={config.optimizer!r}"
        if schedule != "inner-approx":
            what = f"schedule={schedule!r}"
        raise BadOption(
            f"{what} needs all rows at once, but batch_size={value}: use "
            "batch_size=None, or schedule='inner-approx' with optimizer='adam'."
        )

    return int(value)


def _list_mini_batch_methods(task: str) -> str:
    *others, last = (
        repr(name)
        for name, kind in method_names(task).items()
        if not (kind.needs_all_rows or kind.recommended)
    )
    if not others:
        return last

    return f"{', '.join(others)} or {last}"


def _count_epochs(config: Config, size: TableSize, steps: _Steps) -> int:
    """Return the most epochs, where the user leaves them to the library."""
    if not config.learn and config.method.site_store != "free":
        return papers.SWEEPS
    if steps.batch is not None:
        return max(3, math.ceil(steps.number * steps.batch / size.rows))
    if steps.loose:
        return LBFGS_EPOCHS[config.effort] * _count_shares(size)
    if _promises(config, steps.optimizer):
        return papers.LBFGS_EPOCHS

    return papers.FULL_BATCH_EPOCHS


def _count_shares(size: TableSize) -> int:
    """Return how many epochs have the work of one with a latent function per class.

    Ordered classes have a single function, whose boundaries need as many gradients as
    the functions that they replace. [decision 65]
    """
    if size.classes > 2:
        return round(size.classes / size.latent)

    return 1


def _promises(config: Config, optimizer: str) -> bool:
    """Return whether training ends only near the optimum that it climbs to."""
    return optimizer == "lbfgs" and not config.method.recommended


def _explain_training(config: Config, sites_per_row: bool) -> dict[str, str]:
    """Return why the plan is as it is, by the field of the plan: "given", or the rule."""
    work = f"the work of effort={config.effort!r}"
    sites = "rows have no numbers, or their sites no room"
    if sites_per_row:
        sites = "sites per row"
    device = "no GPU, or a small table"
    if config.device.type == "cuda":
        device = "large enough for the GPU"
    rules = {
        "method": sites,
        "device": device,
        "kernel": f"a linear term needs {POINTS_PER_FEATURE} points per feature",
        "n_inducing": f"at most {POINTS_PER_ROOT:g} √rows, within {work}",
        "optimizer": "L-BFGS where its passes over the rows are within the work",
        "batch_size": f"all rows, or {STEPS[config.effort]} steps or more within {work}",
        "max_epochs": f"within {work}; ends earlier if an epoch gains too little",
    }
    if not config.method.recommended:
        named = set(rules) - {"method", "device"}
        rules |= dict.fromkeys(named, "as usual for a named method")

    free = {
        name
        for name in rules
        if config.arguments.get(name) is None or _is_auto(config, name)
    }
    if not _is_auto(config, "inducing"):
        free.discard("n_inducing")
    return {name: rule if name in free else "given" for name, rule in rules.items()}


def _is_auto(config: Config, name: str) -> bool:
    value = config.arguments.get(name)
    return (isinstance(value, str) and value == "auto") or (
        name == "method" and config.method.recommended
    )
