"""Every decision that the library takes where the user leaves it open, from one unit of
work.

A pass over N rows costs about W = N C M² multiplications, with C latent functions and M
inducing points. [METHOD 18] An effort has a budget of work; inducing points, the
optimizer, the rows per step and the rows that the Gaussian process sees follow from it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from cavity.errors import BadOption
from cavity.fitting.options import papers
from cavity.fitting.options.configuration import ClassifierConfig, Config
from cavity.fitting.options.method import Method, method_names
from cavity.fitting.options.papers import BatchSteps
from cavity.fitting.options.plan import CalibrationPlan, TableSize, TrainingPlan
from cavity.fitting.options.training import Training
from cavity.fitting.options.value_checks import inducing_count, is_whole

AnyConfig = TypeVar("AnyConfig", bound=Config)

# The budget of method="auto": multiplications of training per latent function, for at
# most MOST_BUDGETS of them. [65]
BUDGET = {"fast": 1.5e9, "balanced": 5e9}
MOST_BUDGETS = 8
GPU_BUDGET = 300  # times that of a CPU
STEP_COST = (
    # M² + M D: measured multiplications of a step that learns, per row and latent
    # function
    6
)
# what hyper-parameters need does not depend on the rows
STEPS = {"fast": 150, "balanced": 250}
STEP_ROWS = 300
RATE = 0.08  # of Adam in these steps; it is annealed
LBFGS_EPOCHS = {"fast": 8, "balanced": 16}  # at most, of a pass over all rows and more
LBFGS_SITES = 24_000  # rows × latent functions: above, mini-batches had the lower NLL
# inducing points per square root of the rows, at most, if these are more than
# USUAL_POINTS
POINTS_PER_ROOT = 3.0
LEAST_POINTS = 20
USUAL_POINTS = 100
POINTS_PER_FEATURE = (
    # that a linear term needs: fewer points cannot carry it together with the RBF [24]
    2
)

BATCH_ROWS = 100, 1000  # rows of a mini-batch, at least and at most

# Devices and memory. [21]
SMALL_WORK = 3e7  # W up to which one core of a CPU is as fast as a GPU
MOST_SITES = 1 << 27  # of EP: 2 GB. Above, method="auto" takes SEP
BATCH_BYTES = 128 << 20  # of one C × M × batch array
LEAST_M = 64  # below, a row's sites and moments take more than its projection

# Rows that judge the model: folds that learn again, or a part of the rows. [48, 65]
# at least and at most; models of more folds differ less from that of all rows
FOLDS = 3, 5
FOLD_ROWS = {"fast": 500, "balanced": 2000}
# at most a fifth of the rows is held out, and at most 4,000
LEAST_PARTS = 5
HELD_MOST = 4000
LEAST_GROUPS = 10  # of rows that stay together, in a part that judges the model
REFIT_ROWS = 50_000  # up to which members of the pool are fitted again, to all rows

# Members of the pool. [39, 65]
TREES = {"fast": 0, "balanced": 100}
# rows × trees of a forest, at most; but some trees always
TREE_ROWS = 1_000_000
LEAST_TREES = 25
# twice the rate needs half of the rounds
BOOSTING_RATE = {"fast": 0.2, "balanced": 0.1}
BOOSTED_ROWS = (
    # of a class: a leaf of boosting has as many, and learns nothing of smaller classes
    20
)
NETWORKS = 2
NETWORK_STEPS = {"fast": 300, "balanced": 2400}
MOST_LEAVES = 4096  # of a tree of the forest


def count_budget(config: Config, latent: int) -> float:
    """Return the multiplications that training may take."""
    times = 1
    if config.device.type == "cuda":
        times = GPU_BUDGET
    return times * BUDGET[config.effort] * min(latent, MOST_BUDGETS)


def choose_device(config: AnyConfig, size: TableSize) -> AnyConfig:
    """Return the configuration with its device: device="auto" takes the CPU where
    operations are shorter than a launch on a GPU.
    """
    if config.arguments["device"] != "auto" or config.device.type == "cpu":
        return config
    on_cpu = replace(config, device=torch.device("cpu"))
    every_row = config.method.inducing_from == "rows" or config.inducing is None
    if every_row:
        M = size.rows
    else:
        M = count_points(on_cpu, size)
    if size.rows * size.latent * M**2 <= SMALL_WORK:
        return on_cpu
    return config


def count_points(config: Config, size: TableSize) -> int:
    """Return the number of inducing points: as given, or what the budget of an effort
    allows, at most 3 √rows.
    """
    if config.n_inducing is not None:
        return inducing_count(config.n_inducing, size.total)
    if not config.method.recommended:
        return papers.POINTS
    # 6 M² + D M = affordable
    affordable = count_budget(config, size.latent) / (
        STEPS[config.effort] * STEP_ROWS * size.latent
    )
    root = math.sqrt(size.columns**2 + 4 * STEP_COST * affordable)
    points = int((root - size.columns) / (2 * STEP_COST))
    wanted = round(POINTS_PER_ROOT * math.sqrt(size.rows))
    return max(LEAST_POINTS, min(points, max(wanted, USUAL_POINTS)))


def count_visits(config: Config, size: TableSize, M: int) -> int:
    """Return how many rows, each counted as often as it is visited, the steps of a
    budget can take.
    """
    M = max(M, LEAST_M)
    return int(
        count_budget(config, size.latent)
        / (size.latent * M * (STEP_COST * M + size.columns))
    )


def count_seen(config: Config, size: TableSize) -> int:
    """Return how many rows of a table in memory the Gaussian process sees: a sample, if
    the budget allows no pass over all.
    """
    if not config.method.recommended:
        return size.rows
    return min(size.rows, count_visits(config, size, count_points(config, size)))


def takes_lbfgs(config: Config, size: TableSize, M: int) -> bool:
    """Return whether the library trains by L-BFGS on all rows: up to 1,000 rows always,
    if the method is named and its sites are not tied.
    """
    if not _is_open(config, size):
        return False
    if not config.method.recommended:
        if config.method.site_store == "tied":
            return False  # its gradient is not that of its objective
        all_rows = config.batch_size is None or config.method.needs_all_rows
        return all_rows or size.rows <= papers.FULL_BATCH_ROWS
    affordable = LBFGS_EPOCHS[config.effort] * size.rows <= count_visits(
        config, size, M
    )
    return affordable and (
        size.rows <= papers.FULL_BATCH_ROWS or size.rows * size.latent <= LBFGS_SITES
    )


def plan_training(config: Config, size: TableSize, M: int) -> TrainingPlan:
    """Plan the training of a model with M whitened values per latent function on a
    table of this size.
    """
    sites_per_row = size.numbered and 2 * size.rows * size.latent <= MOST_SITES
    method = config.method.resolve(sites_per_row)
    # what "auto" stands for may not take these options
    method.check_training(
        optimizer=config.optimizer, schedule=config.schedule, damping=config.damping
    )
    steps = _choose_steps(config, method, size, M)
    return TrainingPlan(
        rows=size.unmerged or size.rows,
        distinct=size.rows if size.unmerged else None,
        columns=size.columns,
        classes=size.classes,
        latent=size.latent,
        device=str(config.device),
        method=method.label,
        sites_per_row=sites_per_row,
        n_inducing=M,
        sweep_damping=config.damping or method.sweep_damping,
        tol=_choose_tol(config, steps["optimizer"]),
        max_seconds=config.max_seconds,
        why=_explain_training(config, sites_per_row),
        **_choose_model(config, size, M),
        **steps,
    )


def _choose_tol(config: Config, optimizer: str) -> float:
    """Return the tolerance: as given, or what a named method promises."""
    promises = not config.method.recommended and optimizer == "lbfgs"
    if promises and config.tol == Training.tol:
        return papers.TOL
    return config.tol


def _choose_model(config: Config, size: TableSize, M: int) -> dict[str, Any]:
    """Return the kernel, and what the classes share."""
    recommended = config.method.recommended
    committee = config.method.committee
    linear = recommended and POINTS_PER_FEATURE * size.columns <= M
    default = "RBF() + Linear()" if linear else "RBF()"
    same_points = config.inducing is None or config.share in ("inducing", "both")
    return {
        "kernel": default if config.kernel is None else type(config.kernel).__name__,
        "share_kernel": committee is not None or config.share in ("kernel", "both"),
        "share_inducing": committee is None and same_points,
        "share_prior": config.share == "prior"
        or (config.share == "auto" and recommended),
    }


def _choose_steps(
    config: Config, method: Method, size: TableSize, M: int
) -> dict[str, Any]:
    """Return optimizer, schedule, batches, rate and epochs."""
    free = config.method.recommended and _is_open(config, size)
    quick = takes_lbfgs(config, size, M)
    if free:
        steps = _count_steps(config, size, M)
    else:
        steps = papers.count_steps(size.rows, BATCH_ROWS)
    schedule = "outer"
    if not (method.needs_all_rows or quick):
        schedule = config.schedule
    width = size.latent * config.dtype.itemsize
    usual = min(steps.rows, max(1, BATCH_BYTES // (width * M)))
    batch = _batch_size(
        config,
        method,
        schedule,
        size.rows,
        usual,
        1 if free else papers.FULL_BATCH_ROWS,
    )
    optimizer = config.optimizer
    planned = config.method.recommended or batch is not None
    if optimizer == "auto":
        if batch is not None:
            optimizer = "adam"
        elif quick:
            optimizer = "lbfgs"
        else:
            optimizer = method.full_batch_optimizer
    rate = config.learning_rate or (0.01 if batch is None else steps.rate)
    anneal = free and batch is not None
    falls = batch is not None and optimizer == "adam"
    return {
        "optimizer": optimizer,
        "schedule": schedule,
        "loose": quick and config.method.recommended,
        "rate": rate,
        "final_rate": (0.01 if anneal else 0.1) * rate if falls else rate,
        "anneal": anneal,
        "batch_size": batch,
        "chunk": max(1, BATCH_BYTES // (width * max(M, LEAST_M))),
        "max_epochs": config.max_epochs
        or _count_epochs(config, batch, size, steps, optimizer, quick),
        "planned": config.max_epochs is None and planned,
        "damping": config.damping or (method.sweep_damping if batch is None else 1.0),
    }


def _count_steps(config: Config, size: TableSize, M: int) -> BatchSteps:
    """Return the mini-batch steps of the budget."""
    least, most = BATCH_ROWS
    visits = count_visits(config, size, M)
    rows = min(
        max(least, visits // STEPS[config.effort]), most, max(least, size.rows // 4)
    )
    return BatchSteps(min(visits // rows, 4 * STEPS[config.effort]), rows, RATE)


def _is_open(config: Config, size: TableSize) -> bool:
    """Return whether the library chooses batches, optimiser, schedule and step size:
    for a named method, if the user sets none.
    """
    method = config.method
    batch = config.batch_size
    chosen = config.learning_rate is not None or batch not in ("auto", None)
    if not method.recommended:
        chosen |= (
            config.max_epochs is not None
            or config.tol != Training.tol
            or method.task == "regression"
        )
    given = (
        chosen
        or config.optimizer != "auto"
        or config.schedule != "inner-approx"
        or not config.learn
    )
    return size.numbered and not given


def _batch_size(
    config: Config, method: Method, schedule: str, n_rows: int, usual: int, least: int
) -> int | None:
    """Return the batch size; None for full batches, as for `least` rows or fewer."""
    value = config.batch_size
    needs_all = (
        schedule != "inner-approx" or config.optimizer in papers.FULL_BATCH_OPTIMIZERS
    )
    if value == "auto":
        if n_rows <= least or needs_all:
            return None
        return usual
    if value is None or (is_whole(value) and int(value) >= n_rows):
        return None
    if needs_all and method.needs_all_rows:
        known = method_names(method.task).items()
        others = [
            repr(name)
            for name, cls in known
            if not (cls.needs_all_rows or cls.recommended)
        ]
        raise BadOption(
            f"{method.argument} needs all rows at once, but batch_size={value}: use "
            f"batch_size=None, or a method that takes "
            f"mini-batches: {', '.join(others[:-1])}{' or ' if others[1:] else ''}{others[-1]}."
        )
    if needs_all:
        if schedule != "inner-approx":
            what = f"schedule={schedule!r}"
        else:
            what = f"optimizer={config.optimizer!r}"
        raise BadOption(
            f"{what} needs all rows at once, but batch_size={value}: use "
            f"batch_size=None, or schedule='inner-approx' with "
            "optimizer='adam'."
        )
    return int(value)


def _count_epochs(
    config: Config,
    batch: int | None,
    size: TableSize,
    steps: BatchSteps,
    optimizer: str,
    quick: bool,
) -> int:
    """Return the most epochs, where the user leaves them to the library."""
    if not config.learn:
        return papers.SWEEPS
    if batch is not None:
        return max(3, math.ceil(steps.number * batch / size.rows))
    if not config.method.recommended and optimizer == "lbfgs":
        return papers.LBFGS_EPOCHS
    if quick:
        return LBFGS_EPOCHS[config.effort]
    return papers.FULL_BATCH_EPOCHS


def _explain_training(config: Config, sites_per_row: bool) -> dict[str, str]:
    """Return why the plan is as it is, by the field of the plan: "given", or the rule."""
    work = f"the work of effort={config.effort!r}"
    rules = {
        "method": "sites per row"
        if sites_per_row
        else "rows have no numbers, or their sites no room",
        "device": "large enough for the GPU"
        if config.device.type == "cuda"
        else "no GPU, or a small table",
        "kernel": f"a linear term needs {POINTS_PER_FEATURE} points per feature",
        "n_inducing": f"at most {POINTS_PER_ROOT:g} √rows, within {work}",
        "optimizer": "L-BFGS where its passes over the rows are within the work",
        "batch_size": f"all rows, or {STEPS[config.effort]} steps or more within {work}",
        "max_epochs": f"within {work}; ends earlier if an epoch gains too little",
    }
    if not config.method.recommended:
        rules |= dict.fromkeys(
            list(rules)[2:], "as usual for a named method"
        )  # all but method and device
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


def calibrates(config: ClassifierConfig) -> bool:
    """Return whether a temperature is fitted."""
    return config.calibration == "temperature" or (
        config.calibration == "auto" and config.method.recommended
    )


def pools(config: ClassifierConfig) -> bool:
    """Return whether other classifiers are pooled with the model: those of the effort,
    or the user's own.
    """
    if config.ensemble != "auto":
        return config.ensemble is not None
    wanted = config.calibration is not None and bool(config.arguments["learn"])
    return config.method.recommended and wanted


def plan_calibration(
    config: ClassifierConfig,
    size: TableSize,
    *,
    in_memory: bool,
    eval_set: bool = False,
    groups: int = 0,
    short: bool = False,
    most_of_a_class: int | None = None,
) -> CalibrationPlan:
    """Plan which rows judge the model and what is pooled with it.

    `size`: in cases, equal rows counted once. `eval_set`: the user gave rows. `groups`:
    of rows that stay together; leave-one-out of a source cannot keep them so. `short`:
    there is no time for folds. `most_of_a_class`: rows of the largest class, if known.
    """
    temperature = calibrates(config)
    effort = config.effort
    members = in_memory and pools(config)
    how = "none"
    named = not config.method.recommended
    counted = size.rows * max(
        1.0, size.latent / MOST_BUDGETS
    )  # a fit of more latent functions takes longer
    if temperature or members:
        no_more_fits = not in_memory or (named and effort == "fast" and not members)
        left_out = "part" if groups and not in_memory else "leave-one-out"
        judges = "part"
        if not short and (named or counted <= FOLD_ROWS[effort]):
            judges = "folds"
        how = "eval_set" if eval_set else left_out if no_more_fits else judges
    parts = max(LEAST_PARTS, math.ceil(size.rows / HELD_MOST))
    if how == "folds":
        parts = int(np.clip(FOLD_ROWS["fast"] // size.rows, *FOLDS))
    elif groups and how == "part":
        parts = min(parts, max(2, groups // LEAST_GROUPS))
    auto = members and config.ensemble == "auto"
    trees = members and isinstance(config.ensemble, str)
    large = size.rows > FOLD_ROWS["balanced"]
    enough = most_of_a_class is None or most_of_a_class >= BOOSTED_ROWS
    boosts = not auto or (enough and (large or effort != "fast"))
    return CalibrationPlan(
        how=how,
        temperature=temperature,
        parts=parts if how in ("folds", "part") else 0,
        pools=members,
        linear=auto,
        networks=NETWORKS if auto else 0,
        network_steps=NETWORK_STEPS[effort],
        trees=_count_trees(TREES[effort if auto else "balanced"], size.rows)
        if trees
        else 0,
        rate=BOOSTING_RATE[effort] if trees and boosts else 0.0,
        leaves=MOST_LEAVES if large else 0,
        refits=size.rows <= REFIT_ROWS and effort != "fast",
        groups=groups,
        why=_explain_calibration(config, how, in_memory),
    )


def _count_trees(most: int, rows: int) -> int:
    """Return the trees of a forest: fewer on large tables, where one tree says more."""
    return min(most, max(LEAST_TREES, TREE_ROWS // rows))


def _explain_calibration(
    config: ClassifierConfig, how: str, in_memory: bool
) -> dict[str, str]:
    part = f"more work than folds may take, or a time limit: at most {HELD_MOST:,} rows"
    rows = {
        "folds": f"up to {FOLD_ROWS[config.effort]:,} rows, fewer with more than "
        f"{MOST_BUDGETS} latent functions",
        "part": part
        if in_memory
        else f"groups that are not in memory: at most {HELD_MOST:,} of their rows",
        "leave-one-out": "rows that are not in memory",
        "none": "calibration=None, or a named method",
    }
    rule = "only with method='auto'"
    if config.method.recommended:
        rule = f"effort={config.effort!r}"
    return {
        "how": rows.get(how, "given"),
        "pools": rule if config.ensemble == "auto" else "given",
    }
