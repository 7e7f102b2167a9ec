"""From a table, a configuration and a plan to the engine: its rows, its prior, its
likelihood, its run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from cavity.common.progress import make_reporter
from cavity.common.ranks import Local
from cavity.common.types import Floats, Ints
from cavity.engine import assembly, runs
from cavity.engine.assembly import Weights
from cavity.engine.batches.in_memory import RowsInMemory
from cavity.engine.batches.stream import Data, Stream
from cavity.engine.inference import Engine, State
from cavity.engine.kernels import RBF, Kernel, Linear
from cavity.engine.kernels.base import per_class
from cavity.engine.kernels.prior import Prior
from cavity.engine.kernels.spectrum import Spectrum
from cavity.engine.likelihoods import Likelihood, Ordinal
from cavity.engine.parameters import is_learnt
from cavity.engine.training.loop import Run
from cavity.errors import BadOption
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.method import Method
from cavity.fitting.options.plan import RBF_LINEAR, TrainingPlan
from cavity.fitting.options.regression_methods import RegressionMethod
from cavity.prediction.model import copy_engine
from cavity.tables import inducing_points
from cavity.tables.array_sources import Arrays
from cavity.tables.table import Facts, Start, Streamed, Table

# rows: inducing points are not learnt along columns in which fewer differ [51]
RARE_CELLS = 5
LEAST_SHARE = 1e-3  # of a class, for the first thresholds of ordered classes
PRIOR_SPREAD = math.sqrt(2)  # of f, with a kernel of variance 1 and a linear term
ROOM = 0.5  # share of a GPU's free memory that a table may take


def find_method(config: Config, plan: TrainingPlan) -> Method:
    """Return the method that runs, never "auto"."""
    return config.method.resolve(plan.sites_per_row)


def make_prior(
    config: Config, plan: TrainingPlan, table: Facts, begin: Start, Z: Floats
) -> Prior:
    """Make the prior; the user's kernel is copied."""
    kernel = config.kernel
    if kernel is None:
        kernel = make_default_kernel(plan.kernel == RBF_LINEAR)
    C = table.n_latent
    setting = None
    if find_method(config, plan).latent_noise:
        noise = per_class(config.noise, C, "noise")
        learn = config.learn
        setting = config.noise_setting
        if not is_learnt(setting):
            learn = learn - {"noise"}
    else:
        noise = np.zeros(1)
        learn = config.learn - {"noise"}

    prior = assembly.make_prior(
        kernel,
        Z[:1] if plan.share_inducing else Z,
        noise,
        begin.columns,
        n_latent=C,
        share_kernel=plan.share_kernel,
        learn=learn,
        device=config.device,
        dtype=config.dtype,
        kind=Spectrum if config.spectral else Prior,
        noise_setting=setting,
    )
    if prior.learn_inducing and policy.fixes_rare_levels(config):
        _hold_rare_cells(prior, begin.candidates)
    return prior


def _hold_rare_cells(prior: Prior, candidates: inducing_points.Candidates) -> None:
    """Fix inducing inputs along columns of rare levels, if there are many of them.

    Their coordinates, more than there are rows, would learn labels by heart, and
    neither folds at the learnt hyper-parameters nor leave-one-out would see it.
    [decision 51]
    """
    rows = candidates.weight @ (np.median(candidates.X, axis=0) != candidates.X)
    rare = rows < RARE_CELLS
    if prior.size * np.count_nonzero(rare & (rows > 0)) > candidates.weight.sum():
        inducing: Any = prior.inducing
        inducing.register_hook(torch.tensor(~rare).to(inducing).mul)


def make_default_kernel(linear: bool) -> Kernel:
    """Make the kernel that `kernel=None` stands for."""
    if linear:
        return RBF() + Linear(fades=True)

    return RBF()


def make_likelihood(table: Facts, config: Config, plan: TrainingPlan) -> Likelihood:
    """Make the likelihood; for a regression it contains the noise of the targets."""
    method = find_method(config, plan)
    if isinstance(method, RegressionMethod):
        noise = config.noise_setting or float(config.noise[0])
        found: Likelihood = method.make_likelihood(1, config.learn, noise)
    elif table.order is not None:
        found = make_ordinal(table, bool(config.learn))
    else:
        found = method.make_likelihood(table.n_classes, config.learn)
        if found.n_latent != table.n_latent:
            raise BadOption(
                f"{type(found).__name__} has {found.n_latent} latent functions for "
                f"{table.n_classes} classes, but a classifier has {table.n_latent}: for "
                "ordered classes use GPClassifier(order=[...]) with method='auto', "
                "'ep' or 'sep'."
            )

    return found.to(config.device, config.dtype)


def make_ordinal(table: Facts, learn: bool) -> Likelihood:
    """Make the likelihood of ordered classes, which first predicts their frequencies."""
    assert table.order is not None
    share = np.maximum(table.class_totals / table.class_totals.sum(), LEAST_SHARE)
    below = share[np.argsort(table.order)].cumsum() / share.sum()
    start = tuple((PRIOR_SPREAD * ndtri(below[:-1])).tolist())
    return Ordinal(table.order, start, learn).bind(table.n_classes)


def name_evidence(config: Config, table: Facts) -> str:
    """Return what log Z_q is: see `Method.name_evidence`."""
    if table.order is None:
        return config.method.name_evidence(table.n_classes)

    return config.method.name_evidence(2)  # one site per row, too


def weigh_labels(table: Facts) -> Weights:
    """Return what the engine knows of the weights of a table's rows."""
    labels = torch.arange(table.n_classes)
    return Weights(labels, table.class_totals, table.lightest, table.heaviest)


def count_sites(table: Facts, likelihood: Likelihood) -> Floats:
    """Return the weighted number of sites on each latent function."""
    return assembly.count_sites(likelihood, weigh_labels(table), table.n_latent)


def make_engine(
    prior: Prior,
    table: Facts,
    config: Config,
    plan: TrainingPlan,
    likelihood: Likelihood | None = None,
) -> Engine:
    """Make the engine; `likelihood` instead of that of the configuration, if given."""
    likelihood = likelihood or make_likelihood(table, config, plan)
    return assembly.make_engine(
        prior,
        likelihood,
        find_method(config, plan).scheme,
        weigh_labels(table),
        hyper_prior=assembly.make_hyper_prior(prior, likelihood, plan.share_prior),
        chunk=plan.chunk,
        exact=plan.schedule == "inner-exact",
    )


def make_first_state(
    engine: Engine,
    data: Data,
    config: Config,
    plan: TrainingPlan,
    damping: float,
    seed: int,
) -> State:
    """Make the state without sites, in which q is the prior."""
    jitter = choose_jitter(engine, config)
    return assembly.make_first_state(
        engine, data, plan, damping=damping, jitter=jitter, seed=seed
    )


def choose_jitter(engine: Engine, config: Config) -> float:
    if config.jitter_backs_off:
        return assembly.lower_jitter(engine, config.jitter)

    return config.jitter


def make_run(
    engine: Engine,
    rows: Data,
    config: Config,
    plan: TrainingPlan,
    seed: int,
    reduce: Local,
    *,
    earlier: State | None = None,
) -> Run:
    """Make a run that has not started; it continues from the state `earlier`, if given."""
    learns = len(engine.hyper_prior.mean) > 0
    verbose = config.verbose * (reduce.rank == 0)
    return runs.make_run(
        engine,
        rows,
        plan,
        find_method(config, plan).scheme,
        damping=plan.damping if learns else plan.sweep_damping,
        jitter=choose_jitter(engine, config),
        seed=seed,
        reduce=reduce,
        earlier=earlier,
        report=make_reporter(verbose, plan.max_epochs, float(engine.total)),
    )


def extend_rows(
    run: Run,
    config: Config,
    plan: TrainingPlan,
    table: Facts,
    place: Ints,
    share: Floats,
) -> Run:
    """Return the run with the sites of more rows, swept at its hyper-parameters: see
    `runs.extend_rows`.
    """
    method = find_method(config, plan).scheme
    engine = assembly.with_rows(copy_engine(run.engine), method, weigh_labels(table))
    rows = load_rows(table, config.dtype, config.device)
    places = torch.from_numpy(place)
    return runs.extend_rows(run, engine, rows, places, torch.from_numpy(share))


def load_rows(table: Facts, dtype: torch.dtype, device: torch.device) -> Data:
    """Return the rows on the device, or batch by batch if they are not in memory, or a
    GPU lacks room for them.
    """
    if isinstance(table, Streamed):
        return _read_batches(table, dtype, device)
    if table.units is not None or has_room(device, table.X.size * dtype.itemsize):
        return copy_rows(table, dtype, device)

    source = Arrays(table.X, table.y, table.weight)
    return Stream(source, table.y, table.weight, table.n_rows, dtype, device)


def copy_rows(table: Table, dtype: torch.dtype, device: torch.device) -> RowsInMemory:
    """Return the rows of a table in memory as tensors."""
    X = torch.tensor(table.X, dtype=dtype, device=device)
    if table.member is None:
        y = table.y
    else:
        y = np.column_stack([table.member, table.y])

    weight = torch.tensor(table.weight, device=device)
    return RowsInMemory(X, torch.tensor(y, device=device), weight)


def _read_batches(table: Streamed, dtype: torch.dtype, device: torch.device) -> Stream:
    read = table.read
    y = read.y
    if table.n_classes == 1:  # targets
        shift, scale = table.units
        y = (y - shift) / scale
    return Stream(read, y, read.weight, table.n_rows, dtype, device, table.first)


def has_room(device: torch.device, size: int) -> bool:
    """Return whether a table of this many bytes leaves a device room to work."""
    return device.type != "cuda" or size <= ROOM * torch.cuda.mem_get_info(device)[0]
