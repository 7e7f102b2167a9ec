"""Every decision that the library takes where the user leaves it open, with the constants behind it. [decision 40]

`method="auto"`, `effort`, `device="auto"`, `ensemble="auto"`, `calibration="auto"` and `time_limit` become a plan here, from the
configuration and the size of the table. A number in brackets is the decision record that set a constant; those of pace have
their figures beside them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch

from cavity.errors import BadOption
from cavity.options.configuration import ClassifierConfig, Config
from cavity.options.method import Method, method_names
from cavity.options.plan import CalibrationPlan, TableSize, TrainingPlan
from cavity.options.value_checks import inducing_count, is_whole
from cavity.rows.tables import Table

AnyConfig = TypeVar("AnyConfig", bound=Config)

# Inducing points. [32, 33]
LEAST_POINTS, MOST_POINTS = 100, 2000
# By effort, and whether on a GPU: points per square root of the rows, and the most C M², about the operations per row of a step.
POINTS = {
    ("balanced", False): (3.0, 1e6),
    ("balanced", True): (4.0, 1e7),
    ("best", False): (4.5, 2.5e6),
    ("best", True): (9.0, 4e7),
}
CROWDED_LATENT = 30  # latent functions above which method="auto" plans for many classes [29, 40]
CROWDED_POINTS = {  # by effort: points per row of an average class, and the most C M²
    "fast": (0.8, 4e5),
    "balanced": (1.33, 1e6),
    "best": (2.0, 4e6),
}
LEAST_CROWDED_POINTS = 20
RARE_CELLS = 5  # rows: inducing points are not learnt along columns in which fewer differ [57]
POINTS_PER_FEATURE = 2  # that a linear term needs: fewer points cannot carry it together with the RBF [24]

# Devices and memory. [21, 40]
SMALL_WORK = 3e7  # rows x latent functions x M² up to which one core of a CPU is as fast as a GPU
MOST_SITES = 1 << 27  # of EP with many classes: 2 GB. Above, method="auto" takes SEP
BATCH_BYTES = 128 << 20  # of one C × M × batch array
LEAST_M = 64  # below, a row's sites and moments take more than its projection

# Steps on all rows. [24, 29, 40]
FULL_BATCH_OPTIMIZERS = ("sign", "lbfgs", "newton", "gradient")
FULL_BATCH_ROWS = 1000
FULL_BATCH_EPOCHS = 500
RECOMMENDED_EPOCHS = 200  # of method="auto" with the sign rule
SWEEPS = 10_000  # where nothing is learnt
LBFGS_LATENT = 5  # latent functions from which L-BFGS is for few rows only
LBFGS_ROWS = 1000  # up to which method="auto" takes L-BFGS
# The same in LATENT_MIDDLE where trees are pooled; alone, and with ten classes, mini-batches had the lower NLL. [61]
LBFGS_ROWS_MIDDLE, LATENT_MIDDLE = 2000, range(LBFGS_LATENT, 9)
# The same with few latent functions. With one, where trees are pooled: alone, mini-batches had the lower NLL. [54, 64]
LBFGS_ROWS_FEW = 6000
LBFGS_EPOCHS, LBFGS_EPOCHS_MANY = 8, 16  # with fewer latent functions than LBFGS_LATENT, and with more

MERGED_SHARE = 0.8  # of the rows: equal ones are merged if at most so many are left [60]

# Mini-batches. [40]
MOST_BATCH_ROWS = 1000
MOST_STEPS = 2000


class Pace(NamedTuple):
    """How mini-batches train, where the user leaves it to the library."""

    least_rows: int  # of a batch
    parts: int  # batches of a pass, between the least and the most rows of a batch
    least_steps: int  # and one for every 50 rows
    rate: float  # of Adam
    rows_per_step: int = 50  # at most: more rows take more steps
    anneal: bool = False  # the rate falls to a hundredth as a cosine; otherwise to a tenth, exponentially
    inducing_share: float = 1.0  # of the rate, that inducing inputs take

    def batch_rows(self, n_rows: int) -> int:
        """Return the number of rows of a batch."""
        return min(max(self.least_rows, n_rows // self.parts), MOST_BATCH_ROWS)

    def epochs(self, n_rows: int, batch: int) -> int:
        """Return the number of passes over the rows in batches of this size."""
        steps = max(self.least_steps + n_rows // 50, n_rows // self.rows_per_step)
        return max(3, math.ceil(min(MOST_STEPS, steps) * batch / n_rows))


STEADY = Pace(least_rows=200, parts=6, least_steps=600, rate=0.03)
CROWDED = STEADY._replace(parts=15, rate=0.06)
# For at most 6,000 rows: fewer steps at an annealed rate, a third of the time at the same NLL. [52]
QUICK_ROWS = 6000
QUICK_FEW = Pace(least_rows=100, parts=12, least_steps=260, rate=0.08, rows_per_step=10, anneal=True)
QUICK_MANY = Pace(least_rows=200, parts=6, least_steps=250, rate=0.07, rows_per_step=10, anneal=True)
QUICK_CROWDED = Pace(least_rows=100, parts=15, least_steps=150, rate=0.1, rows_per_step=15, anneal=True)
FEW_LATENT = range(LBFGS_LATENT, 11)
# For 2,001 to 6,000 rows: smaller batches, in a pool also fewer steps, and at most so many C M². [56, 61, 64]
MIDDLE_ROWS = 2000
MIDDLE = QUICK_FEW._replace(least_rows=170, parts=24, least_steps=210, rate=0.09, rows_per_step=13)
MIDDLE_POOLED = MIDDLE._replace(least_steps=130, rate=0.2, rows_per_step=50, inducing_share=0.25)
MIDDLE_LATENT = range(LBFGS_LATENT, 16)
MIDDLE_LATENT_ALONE = range(9, 16)  # without trees: with six classes smaller batches lost 2 % of the NLL
MIDDLE_WORK = 3.2e5
# Weights in such a pool: of a model that is far from sharp, and of trees that may go. Then training goes on. [64]
UNFINISHED, HARDLY = 1.6, 0.1

# Calls of `partial_fit`: rows whose sites are found at once (each sees the rows before it, and none of the others), and the rate.
GROWING_ROWS, GROWING_RATE = 50, 0.03

# Rows to calibrate with. [29, 39]
FOLD_ROWS = 2000  # up to which every row is once held out
FOLDS = 3  # five had 1 to 3 % more NLL [62]
REFIT_ROWS = 50_000  # up to which a second fit finds the temperature
LEAST_PARTS, HELD_MOST = 5, 4000  # at most a fifth of the rows is held out, and at most 4,000
# Rows up to which folds learn hyper-parameters again: 2 % of NLL for less than a second [48]; 3 % for half of the time more [62].
RELEARN_ROWS = {"fast": 200, "balanced": 200, "best": FOLD_ROWS}
FOLD_SWEEPS, FOLD_TOL = 10, 1e-3  # of fits at known hyper-parameters, which only predict other rows [39, 57]
FOLD_SWEEPS_CROWDED = 5  # the same with many classes [56]
LOO_EXPONENT = 0.75  # of a weight w > 1 from leave-one-out
RARE_ROWS = 10  # of a class: with fewer, a part of the rows makes no sharper pool than leave-one-out [57]
LOO_ROWS = 50_000  # of leave-one-out for a table that is not kept whole
LOO_ROWS_MANY = 4000  # the same with many classes, and rows that their temperature is fitted to
# With hundreds of classes so many log-probabilities, at least so many rows.
LOO_NUMBERS, LOO_LEAST = 1 << 21, 1000

# Pool with trees. [39]
TREES = {"fast": 100, "balanced": 100, "best": 200}
SMALL_FOREST = (
    130_000  # most rows × trees of the default up to FOLD_ROWS: a model file of 2,000 rows stays at 3 MB [55]
)
# networks by effort, and for how many rows [62, 63]
NETWORKS = {"fast": 0, "balanced": 2, "best": 8}
NETWORK_ROWS = {"fast": range(0), "balanced": range(200, 6001), "best": range(6001)}
BOOSTING_ROUNDS = 50  # 100 had .8 ± .9 % less NLL [62]
# weight in the first fold: with less they are not fitted to the others [55, 63]
LEAST_BOOSTING, LEAST_NETWORKS = 0.15, 0.05
BOOSTING_L2 = 1.0  # without it, leaves whose rows are all certain diverge [50]
# Of a tree, unless rows that are held out ask for more: then its first trees are also grown without a limit, and compared. [53]
MOST_LEAVES, TRIAL_TREES = 4096, 8
THREADS_ROWS = 6000  # above which a forest takes all of torch's threads, and grows while a GPU is busy
POOL_ROWS = 200_000  # up to which ensemble="auto" pools: trees of more rows take minutes on one core
# Rows × features × classes, and classes, up to which boosting is a member: its time grows with all three, and each round has
# a tree per class.
BOOSTING_WORK, BOOSTING_CLASSES = 2e8, 20
FEW_CELLS = (
    31  # distinct rows, the leaves of a boosted tree: boosting and networks then say what a forest says [60]
)
GATE_ROWS = 500  # training rows that say how well f is known near them

# Time. [40]
ALONE, FIRST = 0.8, 0.4  # share of the limit for training, if nothing or if more fits follow
SPENT_BEFORE_END = 0.9  # share of the limit after which no stage starts
LEAST_SHARE = 0.5  # of the time of the first fit that a fit to a part of the rows needs
FIXED_SHARE = 0.1  # seconds of a fit at known hyper-parameters, as a share of one that learns them
PROBE_ROWS = 500  # that the time of a pool's members is measured with


class Options(NamedTuple):
    """A configuration and the plan that was made of it: what building and running a model need."""

    config: Config
    method: Method  # never "auto"
    plan: TrainingPlan


def merge_rows(table: Table) -> Table:
    """Return the rows to train on: equal ones as one row of their common weight, if that saves enough. [60]"""
    return table.merged if len(table.equal_rows[0]) <= MERGED_SHARE * table.n_rows else table


def choose_device(config: AnyConfig, size: TableSize) -> AnyConfig:
    """Return the configuration with its device: device="auto" takes the CPU where operations are shorter than a launch on a GPU."""
    if config.arguments["device"] != "auto" or config.device.type == "cpu":
        return config
    on_cpu = replace(config, device=torch.device("cpu"))
    every_row = config.method.inducing_from == "rows" or config.inducing is None
    M = size.rows if every_row else count_points(on_cpu, size)
    small = prefers_lbfgs(size.rows, size.latent) and size.rows * size.latent * M**2 <= SMALL_WORK
    return on_cpu if small else config


def count_points(config: Config, size: TableSize) -> int:
    """Return the number of inducing points: as given, or the library's choice.

    It grows with the square root of the rows, within what the effort allows. With many classes it is limited by the rows per
    class, since the time of a step grows with C M².
    """
    if config.n_inducing is not None:
        return inducing_count(config.n_inducing, size.total)
    if not config.method.recommended:
        return LEAST_POINTS
    usual = LEAST_POINTS
    if config.effort != "fast":
        scale, work = find_point_limits(config, size)
        most = min(MOST_POINTS, math.isqrt(int(work / size.latent)))
        usual = max(LEAST_POINTS, min(most, round(scale * math.sqrt(size.rows))))
    if not is_crowded(size.latent):
        return usual
    scale, work = CROWDED_POINTS[config.effort]
    few = min(math.isqrt(int(work / size.latent)), round(scale * size.rows / size.latent))
    return min(usual, max(LEAST_CROWDED_POINTS, few))


def find_point_limits(config: Config, size: TableSize) -> tuple[float, float]:
    """Return the points per square root of the rows, and the most C M²."""
    on_gpu = config.device.type == "cuda"
    # more points paid .5 % of NLL for a tenth of the time [62]
    alike = not on_gpu and size.rows <= QUICK_ROWS
    scale, work = POINTS["balanced" if alike else config.effort, on_gpu]
    return scale, MIDDLE_WORK if alike and is_middle(size.rows, size.latent) else work


def is_crowded(n_latent: int) -> bool:
    """Return whether there are so many classes that method="auto" plans for them."""
    return n_latent > CROWDED_LATENT


def is_middle(n_rows: int, n_latent: int) -> bool:
    """Return whether most of the time of a fit is products of C × M² × rows, of which method="auto" takes fewer."""
    return MIDDLE_ROWS < n_rows <= QUICK_ROWS and n_latent in MIDDLE_LATENT


def prefers_lbfgs(n_rows: int, n_latent: int, pooled: bool = False) -> bool:
    """Return whether L-BFGS on all rows is the best choice; `pooled`: with trees."""
    few = (1 if pooled else 2) <= n_latent < LBFGS_LATENT
    middle = pooled and n_latent in LATENT_MIDDLE
    return n_rows <= (LBFGS_ROWS_FEW if few else LBFGS_ROWS_MIDDLE if middle else LBFGS_ROWS)


def choose_pace(
    n_rows: int, n_latent: int, *, recommended: bool, hurries: bool, pooled: bool = False
) -> Pace:
    """Return the pace of mini-batches; `hurries`: a shorter training is worth a little evidence; `pooled`: with trees."""
    crowded = recommended and is_crowded(n_latent)
    if not hurries or n_rows > QUICK_ROWS:
        return CROWDED if crowded else STEADY
    if is_middle(n_rows, n_latent) and (pooled or n_latent in MIDDLE_LATENT_ALONE):
        return MIDDLE_POOLED if pooled else MIDDLE
    if n_latent in FEW_LATENT:
        return QUICK_FEW
    return QUICK_CROWDED if crowded else QUICK_MANY


def trains_on(plan: TrainingPlan, own: float, others: float) -> bool:
    """Return whether training was short for the sake of trees, and the weights of its pool say that it was too short."""
    return plan.inducing_share < 1 and own > UNFINISHED and others < HARDLY


def complete(config: Config, size: TableSize, M: int) -> Options:
    """Plan the training of a model with M whitened values per latent function on a table of this size."""
    too_large = is_crowded(size.latent) and 2 * size.rows * size.latent > MOST_SITES
    sites_per_row = size.numbered and not too_large
    method = config.method.resolve(sites_per_row)
    # what "auto" stands for may not take these options
    method.check_training(optimizer=config.optimizer, schedule=config.schedule, damping=config.damping)
    recommended = config.method.recommended and not config.spectral
    free = recommended and size.numbered and _is_free(config)
    pooled = isinstance(config, ClassifierConfig) and config.ensemble == "auto" and pools(config)
    quick = free and prefers_lbfgs(size.rows, size.latent, pooled)
    pace = choose_pace(size.rows, size.latent, recommended=recommended, hurries=free, pooled=pooled)
    schedule = "outer" if method.sweeps_first or quick else config.schedule
    width = size.latent * config.dtype.itemsize
    batch = _batch_size(config, method, schedule, size.rows, max(1, BATCH_BYTES // (width * M)), pace)
    optimizer = config.optimizer
    if optimizer == "auto":
        full = "lbfgs" if quick else method.full_batch_optimizer
        optimizer = "adam" if batch is not None else full
    rate = config.learning_rate or (pace.rate if batch is not None else 0.01)
    anneal = free and pace.anneal and batch is not None
    linear = recommended and POINTS_PER_FEATURE * size.columns <= M
    default_kernel = "RBF() + Linear()" if linear else "RBF()"
    committee = method.committee is not None
    plan = TrainingPlan(
        rows=size.unmerged or size.rows,
        distinct=size.rows if size.unmerged else None,
        columns=size.columns,
        classes=size.classes,
        latent=size.latent,
        device=str(config.device),
        method=method.label,
        kernel=default_kernel if config.kernel is None else type(config.kernel).__name__,
        share_kernel=committee or config.share in ("kernel", "both"),
        share_inducing=not committee and (config.inducing is None or config.share in ("inducing", "both")),
        share_prior=config.share == "prior" or (config.share == "auto" and recommended),
        n_inducing=M,
        optimizer=optimizer,
        schedule=schedule,
        rough=quick,
        rate=rate,
        final_rate=(0.01 if anneal else 0.1) * rate if batch is not None and optimizer == "adam" else rate,
        anneal=anneal,
        inducing_share=pace.inducing_share,
        batch_size=batch,
        chunk=max(1, BATCH_BYTES // (width * max(M, LEAST_M))),
        max_epochs=config.max_epochs or _count_epochs(config, method, batch, size, pace, quick),
        planned=config.max_epochs is None and (batch is not None or recommended),
        damping=config.damping or (method.sweep_damping if batch is None else 1.0),
        sweep_damping=config.damping or method.sweep_damping,
        tol=config.tol,
        max_seconds=config.max_seconds,
        why=_explain_training(config, size, sites_per_row),
    )
    return Options(config, method, plan)


def _is_free(config: Config) -> bool:
    """Return whether the user left batches, optimiser, schedule and step size to the library."""
    chosen = config.learning_rate is not None or config.batch_size not in ("auto", None)
    return (
        not chosen and config.optimizer == "auto" and config.schedule == "inner-approx" and bool(config.learn)
    )


def _batch_size(
    config: Config, method: Method, schedule: str, n_rows: int, room: int, pace: Pace
) -> int | None:
    """Return the batch size; None for full batches."""
    value, optimizer = config.batch_size, config.optimizer
    needs_all = schedule != "inner-approx" or optimizer in FULL_BATCH_OPTIMIZERS
    if value == "auto":
        if n_rows <= FULL_BATCH_ROWS or needs_all:
            return None
        return min(pace.batch_rows(n_rows), room)
    if value is None or (is_whole(value) and int(value) >= n_rows):
        return None
    if needs_all and method.needs_all_rows:
        known = method_names(method.task).items()
        others = [repr(name) for name, cls in known if not (cls.needs_all_rows or cls.recommended)]
        raise BadOption(
            f"{method.argument} needs all rows at once, but batch_size={value}: use batch_size=None, or a method that takes "
            f"mini-batches: {', '.join(others[:-1])}{' or ' if others[1:] else ''}{others[-1]}."
        )
    if needs_all:
        what = f"schedule={schedule!r}" if schedule != "inner-approx" else f"optimizer={optimizer!r}"
        raise BadOption(
            f"{what} needs all rows at once, but batch_size={value}: use batch_size=None, or schedule='inner-approx' with "
            "optimizer='adam'."
        )
    return int(value)


def _count_epochs(
    config: Config, method: Method, batch: int | None, size: TableSize, pace: Pace, quick: bool
) -> int:
    """Return the most epochs, where the user leaves them to the library."""
    if not config.learn and method.site_store != "free":
        return SWEEPS
    if batch is not None:
        return pace.epochs(size.rows, batch)
    if quick:
        return LBFGS_EPOCHS if size.latent < LBFGS_LATENT else LBFGS_EPOCHS_MANY
    return RECOMMENDED_EPOCHS if config.method.recommended and not config.spectral else FULL_BATCH_EPOCHS


def _explain_training(config: Config, size: TableSize, sites_per_row: bool) -> dict[str, str]:
    """Return why the plan is as it is, by the field of the plan: "given", or the rule."""
    points = f"{LEAST_POINTS} with effort='fast'"
    if is_crowded(size.latent):
        points = f"{CROWDED_POINTS[config.effort][0]:g} per row of an average class [decision 40]"
    elif config.effort != "fast":
        scale, work = find_point_limits(config, size)
        points = f"{scale:g} √rows, at least {LEAST_POINTS}, classes × points² ≤ {work:g} [decision 33]"
    rules = {
        "method": "sites per row" if sites_per_row else "rows have no numbers, or their sites no room",
        "device": "large enough for the GPU" if config.device.type == "cuda" else "no GPU, or a small table",
        "kernel": f"a linear term needs {POINTS_PER_FEATURE} points per feature [decision 24]",
        "n_inducing": points,
        "optimizer": f"L-BFGS up to {LBFGS_ROWS} rows, {LBFGS_ROWS_FEW} with 3 or 4 classes, or 2 and trees, "
        f"{LBFGS_ROWS_MIDDLE} with 5 to 8 and trees [decisions 40, 54, 61, 64]",
        "batch_size": "all rows, or by the pace of mini-batches [decision 40]",
        "max_epochs": "by optimizer, classes and rows [decision 40]",
    }
    if not config.method.recommended:
        rules |= dict.fromkeys(
            ("kernel", "n_inducing", "optimizer", "max_epochs"), "as usual for a named method"
        )
    free = {name for name in rules if config.arguments.get(name) is None or _is_auto(config, name)}
    if not _is_auto(config, "inducing"):
        free.discard("n_inducing")
    return {name: rule if name in free else "given" for name, rule in rules.items()}


def _is_auto(config: Config, name: str) -> bool:
    value = config.arguments.get(name)
    return (isinstance(value, str) and value == "auto") or (name == "method" and config.method.recommended)


def holds_out(config: ClassifierConfig, n_rows: int) -> bool:
    """Return whether rows to calibrate with are held out of the only fit, because a second one would take long."""
    asked = pools(config) or (calibrates(config) and config.effort != "fast")
    return asked and n_rows > REFIT_ROWS


def calibrates(config: ClassifierConfig) -> bool:
    """Return whether a temperature is fitted."""
    return config.calibration == "temperature" or (config.calibration == "auto" and config.method.recommended)


def pools(config: ClassifierConfig) -> bool:
    """Return whether trees or classifiers of the user's own are pooled with the model."""
    if config.ensemble != "auto":
        return config.ensemble is not None
    wanted = config.effort != "fast" and config.calibration is not None and bool(config.arguments["learn"])
    return config.method.recommended and wanted


def count_held_parts(n_rows: int) -> int:
    """Return the number of parts of the rows of which one is held out of the only fit."""
    return math.ceil(n_rows / HELD_MOST)


def plan_calibration(
    config: ClassifierConfig,
    size: TableSize,
    *,
    in_memory: bool,
    alike: bool,
    held: str | None,
    threads: int = 1,
    alone: bool = False,
    cells: int | None = None,
) -> CalibrationPlan:
    """Plan which rows calibrate the model and what is pooled with it.

    `alike`: rows weigh the same and differ from each other. Otherwise a bootstrapped forest draws heavy rows into nearly every
    tree, and knows a row by its twin. `held`: where rows come from that the fit does not see, "held out" or "eval_set".
    `threads`: that torch may use, as a forest then may. `alone`: nothing keeps trees from growing while the Gaussian process
    trains on a GPU. `cells`: distinct rows, labels aside, where equal ones are merged.
    """
    temperature, effort = calibrates(config), config.effort
    members = in_memory and pools(config) and not (config.ensemble == "auto" and size.rows > POOL_ROWS)
    refits = temperature and effort != "fast"
    how = held or (
        "folds" if in_memory and (members or refits) else "leave-one-out" if temperature else "none"
    )
    if not temperature and not members:
        how = "none"
    parts = fits = FOLDS
    if size.rows > FOLD_ROWS:
        parts, fits = max(LEAST_PARTS, math.ceil(size.rows / HELD_MOST)), 1
    trees, n_trees = members and isinstance(config.ensemble, str), TREES[effort]
    networks = config.ensemble == "auto" and trees and size.rows in NETWORK_ROWS[effort]
    if size.rows <= FOLD_ROWS and effort != "best":
        n_trees = min(n_trees, SMALL_FOREST // size.rows)
    boosts = size.rows * size.columns * size.classes <= BOOSTING_WORK and size.classes <= BOOSTING_CLASSES
    if cells is not None and cells <= FEW_CELLS and effort != "best":
        boosts = networks = False
    return CalibrationPlan(
        how=how,
        temperature=temperature,
        refits=refits,
        relearns=size.rows <= RELEARN_ROWS[effort] or config.spectral or not config.method.recommended,
        parts=parts,
        fits=fits if how == "folds" else 0,
        sweeps=FOLD_SWEEPS_CROWDED if is_crowded(size.classes) else FOLD_SWEEPS,
        tol=FOLD_TOL,
        pools=members,
        trees=n_trees if trees else 0,
        rounds=BOOSTING_ROUNDS if trees and boosts else 0,
        networks=NETWORKS[effort] if networks else 0,
        selects=trees,
        leaves=MOST_LEAVES if size.rows > FOLD_ROWS else 0,
        threads=threads if size.rows > THREADS_ROWS else 1,
        beside=trees and alone and config.device.type == "cuda" and size.rows > THREADS_ROWS,
        bootstrap=trees and how == "folds" and alike and size.rows > FOLD_ROWS,
        why=_explain_calibration(config, how),
    )


def _explain_calibration(config: ClassifierConfig, how: str) -> dict[str, str]:
    rows = {
        "folds": f"up to {FOLD_ROWS:,} rows by effort, then one part of at most {HELD_MOST:,} [decisions 39, 48]",
        "leave-one-out": "no more fits: effort='fast', or rows that are not in memory [decision 29]",
        "held out": f"more than {REFIT_ROWS:,} rows [decision 29]",
        "none": "calibration=None, or a named method",
    }
    rule = f"effort={config.effort!r}, at most {POOL_ROWS:,} rows in memory [decision 39]"
    if not config.method.recommended:
        rule = "only with method='auto'"
    return {"how": rows.get(how, "given"), "pools": rule if config.ensemble == "auto" else "given"}


def most_loo_rows(n_classes: int) -> int:
    """Return the most rows that a temperature from leave-one-out is fitted to. [29]"""
    if not is_crowded(n_classes):
        return 1 << 62
    return min(LOO_ROWS_MANY, max(LOO_LEAST, LOO_NUMBERS // n_classes))


def share_time(limit: float | None, max_seconds: float | None, more_follows: bool) -> float | None:
    """Return the seconds of training, start-up included; `more_follows`: other fits follow within `limit`."""
    if limit is None:
        return max_seconds
    own = (FIRST if more_follows else ALONE) * limit
    return own if max_seconds is None else min(own, max_seconds)
