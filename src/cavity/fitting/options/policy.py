"""Every decision that the user leaves open, from one unit of work.

A pass over N rows costs about W = N C M² multiplications, with C latent functions and M
inducing points. [METHOD 18] An effort has a budget of work; inducing points, the
optimizer, the rows per step and the rows that the Gaussian process sees follow from it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from cavity.errors import BadOption
from cavity.fitting.options import papers
from cavity.fitting.options.configuration import ClassifierConfig, Config
from cavity.fitting.options.method import Method, method_names
from cavity.fitting.options.papers import BatchSteps
from cavity.fitting.options.plan import (
    RBF_LINEAR,
    FitPlan,
    JudgingPlan,
    TableSize,
    TrainingPlan,
)
from cavity.fitting.options.time_estimate import estimate_trees
from cavity.fitting.options.training import Training
from cavity.fitting.options.value_checks import inducing_count, is_whole
from cavity.pool.plan import MembersPlan

AnyConfig = TypeVar("AnyConfig", bound=Config)

# The budget of method="auto": multiplications of training per latent function, for at
# most MOST_BUDGETS of them. [65]
BUDGET = {"fast": 1.5e9, "balanced": 5e9}
MOST_BUDGETS = 8
GPU_BUDGET = 1000  # times that of a CPU
# measured multiplications of a step that learns, per row and latent function: 6 M² + M D
STEP_COST = 6
# what hyper-parameters need does not depend on the rows
STEPS = {"fast": 150, "balanced": 250}
STEP_ROWS = 300
FULL_BATCH_RATE = 0.01
RATE = 0.08  # of Adam in these steps; it is annealed
LBFGS_EPOCHS = {"fast": 8, "balanced": 16}  # at most, of a pass over all rows and more
LBFGS_SITES = 24_000  # rows × latent functions: above, mini-batches had the lower NLL
# inducing points per square root of the rows, at most, if these are more than
# USUAL_POINTS
POINTS_PER_ROOT = 3.0
LEAST_POINTS = 20
USUAL_POINTS = 100
# a linear term needs as many: fewer cannot carry it together with the RBF [24]
POINTS_PER_FEATURE = 2

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
TARGET_FOLDS = 5  # of a regressor
FOLD_UNITS = 10  # rows; with fewer, leave-one-out judges a regressor
LEAST_EPOCHS = 5  # of a fold
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

# Bids of costly members. [68]
BID_SECONDS = 20.0  # CPU seconds that trees are expected to take: below, they just grow
BID_RATE = 0.4  # learning rate of boosting in a bid
# nats per row that a second must bring
PRICE = {"fast": 2e-4, "balanced": 5e-5}


def count_budget(config: Config, latent: int) -> float:
    """Return the multiplications that training may take."""
    times = 1
    if config.device.type == "cuda":
        times = GPU_BUDGET
    return times * BUDGET[config.effort] * min(latent, MOST_BUDGETS)


def choose_device(config: AnyConfig, size: TableSize) -> AnyConfig:
    """Return the configuration with its device.

    With device="auto", small work runs on the CPU: a launch on a GPU would take longer.
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
    """Return the number of inducing points: as given, or by the budget of the effort.

    There are at most 3 √rows.
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
    """Return how many row visits the steps of a budget can afford."""
    M = max(M, LEAST_M)
    return int(
        count_budget(config, size.latent)
        / (size.latent * M * (STEP_COST * M + size.columns))
    )


def count_seen(config: Config, size: TableSize) -> int:
    """Return how many rows the Gaussian process sees.

    It sees a sample if the budget does not allow a pass over all rows.
    """
    return min(size.rows, count_visits(config, size, count_points(config, size)))


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

    affordable = LBFGS_EPOCHS[config.effort] * size.rows <= count_visits(
        config, size, M
    )
    return affordable and (
        size.rows <= papers.FULL_BATCH_ROWS or size.rows * size.latent <= LBFGS_SITES
    )


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
    linear = config.method.recommended and POINTS_PER_FEATURE * size.columns <= M
    kernel = RBF_LINEAR if linear else "RBF()"
    if config.kernel is not None:
        kernel = type(config.kernel).__name__
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
        kernel=kernel,
        share_kernel=committee or config.share in ("kernel", "both"),
        share_inducing=same_points and not committee,
        share_prior=config.share == "prior" or pooled,
        n_inducing=M,
        chunk=max(1, BATCH_BYTES // (width * max(M, LEAST_M))),
        optimizer=steps.optimizer,
        schedule=steps.schedule,
        loose=steps.loose,
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
    return BatchSteps(min(visits // rows, 4 * STEPS[config.effort]), rows, RATE)


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
        known = method_names(method.task).items()
        *others, last = (
            repr(name)
            for name, kind in known
            if not (kind.needs_all_rows or kind.recommended)
        )
        listed = f"{', '.join(others)} or {last}" if others else last
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


def _count_epochs(config: Config, size: TableSize, steps: _Steps) -> int:
    """Return the most epochs, where the user leaves them to the library."""
    if not config.learn and config.method.site_store != "free":
        return papers.SWEEPS
    if steps.batch is not None:
        return max(3, math.ceil(steps.number * steps.batch / size.rows))
    if steps.loose:
        return LBFGS_EPOCHS[config.effort]
    if _promises(config, steps.optimizer):
        return papers.LBFGS_EPOCHS

    return papers.FULL_BATCH_EPOCHS


def _promises(config: Config, optimizer: str) -> bool:
    """Return whether training ends only near the optimum that it climbs to."""
    return optimizer == "lbfgs" and not config.method.recommended


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
    """Return whether other classifiers are pooled with the Gaussian process."""
    if config.ensemble != "auto":
        return config.ensemble is not None

    wanted = config.calibration is not None and bool(config.arguments["learn"])
    return config.method.recommended and wanted


class Cases(NamedTuple):
    """What decides which rows judge a classifier, and what is pooled with it."""

    size: TableSize  # equal rows counted once
    in_memory: bool
    eval_set: bool  # the user gave rows to judge by
    groups: int = 0  # number of groups whose rows stay together
    most_of_a_class: int | None = None  # rows of the largest class, if known


def plan_judging(
    config: ClassifierConfig, cases: Cases, *, short: bool = False
) -> JudgingPlan:
    """Plan which rows judge the model; `short`: there is no time for folds."""
    how = "none"
    if calibrates(config) or (cases.in_memory and pools(config)):
        how = _choose_judges(config, cases, short)
    return JudgingPlan(
        how=how,
        temperature=calibrates(config),
        parts=_count_parts(cases, how),
        groups=cases.groups,
        why=_explain_judging(config, how, cases.in_memory),
    )


class TargetCases(NamedTuple):
    """What decides which rows judge a regressor."""

    size: TableSize
    in_memory: bool
    eval_set: bool  # the user gave rows to judge by


def plan_target_judging(config: Config, cases: TargetCases) -> JudgingPlan:
    """Plan which rows judge a regressor."""
    rows = cases.size.rows
    parts = 0
    if cases.eval_set:
        how = "eval_set"
        why = "given"
    elif not cases.in_memory:
        how = "none"
        why = "rows that are not in memory"
    elif not config.learn or rows < FOLD_UNITS:
        how = "leave-one-out"
        why = f"nothing is learnt but sites, or fewer than {FOLD_UNITS} rows"
    elif rows <= FOLD_ROWS["balanced"]:
        how = "folds"
        parts = TARGET_FOLDS
        why = f"up to {FOLD_ROWS['balanced']:,} rows"
    else:
        how = "one fold"
        parts = max(LEAST_PARTS, math.ceil(rows / HELD_MOST))
        why = f"more than {FOLD_ROWS['balanced']:,} rows"
    return JudgingPlan(how=how, temperature=False, parts=parts, why=why)


def count_fold_epochs(plan: TrainingPlan, epochs: int) -> int:
    """Return the epochs of a regressor that judges another one.

    After half the epochs of L-BFGS, predictions hardly change. Mini-batches need all.
    """
    if plan.batch_size is not None:
        return max(1, epochs)

    return min(max(LEAST_EPOCHS, epochs // 2), plan.max_epochs)


def _choose_judges(config: ClassifierConfig, cases: Cases, short: bool) -> str:
    """Return "eval_set", "folds", "part" or "leave-one-out"."""
    if cases.eval_set:
        return "eval_set"
    if not cases.in_memory:  # leave-one-out of a source cannot keep groups together
        return "part" if cases.groups else "leave-one-out"

    named = not config.method.recommended
    if named and config.effort == "fast" and not pools(config):
        return "leave-one-out"

    # a fit of more latent functions takes longer
    counted = cases.size.rows * max(1.0, cases.size.latent / MOST_BUDGETS)
    if not short and (named or counted <= FOLD_ROWS[config.effort]):
        return "folds"

    return "part"


def _count_parts(cases: Cases, how: str) -> int:
    """Return the number of parts that the rows are divided into."""
    rows = cases.size.rows
    if how == "folds":
        return int(np.clip(FOLD_ROWS["fast"] // rows, *FOLDS))
    if how != "part":
        return 0

    parts = max(LEAST_PARTS, math.ceil(rows / HELD_MOST))
    if cases.groups:
        parts = min(parts, max(2, cases.groups // LEAST_GROUPS))
    return parts


def plan_members(config: ClassifierConfig, cases: Cases) -> MembersPlan:
    """Plan which classifiers are pooled with the Gaussian process."""
    rows = cases.size.rows
    refits = rows <= REFIT_ROWS and config.effort != "fast"
    if not (cases.in_memory and pools(config)):
        return MembersPlan(refits=refits, why=_explain_pool(config))
    if not isinstance(config.ensemble, str):
        return MembersPlan(pools=True, refits=refits, why="given")

    leaves = 0
    if rows > FOLD_ROWS["balanced"]:
        leaves = MOST_LEAVES
    if config.ensemble == "trees":
        trees = _count_trees(TREES["balanced"], rows)
        return MembersPlan(
            pools=True,
            trees=trees,
            rate=BOOSTING_RATE[config.effort],
            leaves=leaves,
            refits=refits,
            why="given",
        )

    rate = 0.0
    if _takes_boosting(config, cases):
        rate = BOOSTING_RATE[config.effort]
    return MembersPlan(
        pools=True,
        linear=True,
        networks=NETWORKS,
        network_steps=NETWORK_STEPS[config.effort],
        trees=_count_trees(TREES[config.effort], rows),
        rate=rate,
        leaves=leaves,
        refits=refits,
        why=_explain_pool(config),
    )


def _takes_boosting(config: ClassifierConfig, cases: Cases) -> bool:
    """Return whether boosting is a member: a class has rows enough for its leaves."""
    most = cases.most_of_a_class
    if most is not None and most < BOOSTED_ROWS:
        return False

    return config.effort != "fast" or cases.size.rows > FOLD_ROWS["balanced"]


def _count_trees(most: int, rows: int) -> int:
    """Return the trees of a forest: fewer on large tables, where one tree says more."""
    return min(most, max(LEAST_TREES, TREE_ROWS // rows))


def fits_side_by_side(config: ClassifierConfig, limit: float | None) -> bool:
    """Return whether members are fitted on the CPU while a GPU trains.

    A time limit divides the seconds one after the other.
    """
    own = isinstance(config.ensemble, str)
    return config.device.type == "cuda" and limit is None and own


def asks_bids(
    config: ClassifierConfig,
    members: MembersPlan,
    size: TableSize,
    limit: float | None,
) -> bool:
    """Return whether costly members must bid; with a time limit, the clock decides."""
    if limit is not None or config.ensemble != "auto":
        return False

    return size.rows > FOLD_ROWS["balanced"] and (
        estimate_trees(members, size) > BID_SECONDS
    )


def pays(config: ClassifierConfig, gain: float, seconds: float) -> bool:
    """Return whether a gain in nats per row is worth the seconds."""
    return gain >= PRICE[config.effort] * seconds


def plan_fast(
    config: ClassifierConfig, cases: Cases, trains: TableSize, most_points: int
) -> FitPlan | None:
    """Plan what effort="fast" would do, at most `most_points` inducing points.

    None if it changes nothing. `trains`: size of the rows to train on.
    """
    if config.effort == "fast" or not config.method.recommended:
        return None

    config = replace(config, effort="fast")
    M = min(most_points, count_points(config, trains))
    # groups and an eval_set take no time: rows decide
    cases = Cases(trains, cases.in_memory, eval_set=False)
    return FitPlan(
        training=plan_training(config, trains, M),
        judging=plan_judging(config, cases),
        members=plan_members(config, cases),
    )


def merges_equal_rows(config: Config) -> bool:
    """Return whether equal rows of equal labels are trained on as one."""
    return config.method.recommended


def samples_rows(config: Config) -> bool:
    """Return whether the Gaussian process may see a sample of the rows only."""
    return config.method.recommended


def places_points_between_rows(config: Config) -> bool:
    """Return whether no inducing point may be a row, nor depend on signs of columns."""
    return config.method.recommended


def fixes_rare_levels(config: Config) -> bool:
    """Return whether inducing inputs stay as they are along columns of rare levels."""
    return config.method.recommended


def _explain_judging(config: ClassifierConfig, how: str, in_memory: bool) -> str:
    part = f"more work than folds may take, or a time limit: at most {HELD_MOST:,} rows"
    if not in_memory:
        part = f"groups that are not in memory: at most {HELD_MOST:,} of their rows"
    rows = {
        "folds": f"up to {FOLD_ROWS[config.effort]:,} rows, fewer with more than "
        f"{MOST_BUDGETS} latent functions",
        "part": part,
        "leave-one-out": "rows that are not in memory",
        "none": "calibration=None, or a named method",
    }
    return rows.get(how, "given")


def _explain_pool(config: ClassifierConfig) -> str:
    if config.ensemble != "auto":
        return "given"
    if not config.method.recommended:
        return "only with method='auto'"

    return f"effort={config.effort!r}"
