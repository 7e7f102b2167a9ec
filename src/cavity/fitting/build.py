"""Build the engine and its first state from a table, a configuration and a plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.types import Floats
from cavity.engine.batches.stream import Data
from cavity.engine.inference import Averaged, Coupled, Own, SiteStore, Tied
from cavity.engine.inference.engine import OF_FACTOR, Engine, name_parameters
from cavity.engine.inference.placement import AtMode, OnF, OnT, Placement
from cavity.engine.inference.posterior import Sums
from cavity.engine.inference.state import Optimiser, State, empty_sites
from cavity.engine.kernels import RBF, Kernel, Linear
from cavity.engine.kernels.base import per_class
from cavity.engine.kernels.hyper_prior import HyperPrior, Spread, pool
from cavity.engine.kernels.prior import Prior
from cavity.engine.kernels.spectrum import Spectrum
from cavity.engine.likelihoods import Likelihood
from cavity.engine.training.optimisers import OPTIMISERS, SHORT_MEMORY, Adam
from cavity.errors import BadInput
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.method import Method
from cavity.fitting.options.plan import TrainingPlan
from cavity.fitting.options.regression_methods import RegressionMethod
from cavity.tables import inducing_points
from cavity.tables.table import Facts, Start

# Standard deviation of the normal priors on the logs of kernel parameters and noise,
# around their starting values.
PRIOR_SD = 2.0

# The same with partial pooling across classes and features, by parameter.
POOLED = {
    "log_lengthscale": Spread(all=PRIOR_SD, each_class=0.5, column=1.0, own=0.5),
    "log_noise": Spread(all=PRIOR_SD, each_class=0.0, column=0.0, own=1.0),
}
POOLED_ELSE = Spread(all=PRIOR_SD, each_class=0.0, column=0.0, own=0.5)

PLACEMENTS: dict[str, Callable[[], Placement]] = {"t": OnT, "f": OnF, "mode": AtMode}
# rows: inducing points are not learnt along columns in which fewer differ [51]
RARE_CELLS = 5
# distance from 0 in spreads of a column at which a float32 is still within a hundredth
# of a spread
FAR = 1e5
SHARE_OF_NOISE = (
    1e-4  # that jitter may have of the noise in a model without any other approximation
)


def find_method(config: Config, plan: TrainingPlan) -> Method:
    """Return the method that runs, never "auto"."""
    return config.method.resolve(plan.sites_per_row)


def make_prior(
    config: Config, plan: TrainingPlan, table: Facts, begin: Start, Z: Floats
) -> Prior:
    """Make kernel, inducing inputs and noise into one module; the user's kernel is
    copied.
    """
    C = table.n_latent
    own = 1 if plan.share_kernel else C  # sets of hyper-parameters
    _check_precision(begin, config)
    linear = plan.kernel == "RBF() + Linear()"
    if config.kernel is None:
        kernel = make_default_kernel(linear)
    else:
        kernel = copy.deepcopy(config.kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(own, begin.columns)
    kernel.requires_grad_("kernel" in config.learn)
    noisy = find_method(config, plan).latent_noise
    if noisy:
        noise = per_class(config.noise, C, "noise")
    else:
        noise = np.zeros(1)
    if noise.size in (1, own):
        noise = np.broadcast_to(noise, (own,))
    given = (
        Z[:1] if plan.share_inducing else Z,
        np.array(noise),
        begin.columns.center,
        begin.columns.spread,
    )
    points, noises, center, spread = (torch.tensor(x) for x in given)
    if noisy:
        learn = config.learn
    else:
        learn = config.learn - {"noise"}
    kind = Spectrum if config.spectral else Prior
    module = kind(kernel, points, noises, center, spread, C, learn).to(
        config.device, config.dtype
    )
    if module.learn_inducing and config.method.recommended:
        _hold_rare_cells(module, begin.candidates)
    return module


def _hold_rare_cells(module: Prior, candidates: inducing_points.Candidates) -> None:
    """Do not learn inducing inputs along columns in which only a few rows differ, if
    there are many: those of rare levels.

    Their coordinates, more than there are rows, would learn labels by heart, and
    neither folds at the learnt hyper-parameters nor leave-one-out would see it.
    [decision 51]
    """
    rows = candidates.weight @ (np.median(candidates.X, axis=0) != candidates.X)
    rare = rows < RARE_CELLS
    if module.size * np.count_nonzero(rare & (rows > 0)) > candidates.weight.sum():
        module.inducing.register_hook(torch.tensor(~rare).to(module.inducing).mul)  # type: ignore[no-untyped-call]  # of torch


def _check_precision(begin: Start, config: Config) -> None:
    """Refuse a float32 column that is far from 0 for its spread, such as a date in
    seconds: it would lose its digits.
    """
    center = begin.columns.center
    spread = begin.columns.spread
    if config.dtype == torch.float64:
        return
    bad = (np.abs(center) > FAR * spread) | (
        np.abs(center) + 100 * spread > torch.finfo(config.dtype).max
    )
    if bad.any():
        d = int(np.flatnonzero(bad)[0])
        raise BadInput(
            f"column {d} of X (counted from 0) lies around {center[d]:.4g} with a "
            f"spread of {spread[d]:.2g}, which dtype='float32' "
            "cannot hold: subtract a constant or change the unit "
            "(sklearn.preprocessing.StandardScaler), or use dtype='float64'."
        )


def make_default_kernel(linear: bool) -> Kernel:
    """Make the kernel that `kernel=None` stands for."""
    if linear:
        return RBF() + Linear(fades=True)
    return RBF()


def make_hyper_prior(
    module: Prior,
    parameters: dict[str, nn.Parameter],
    log_parameters: tuple[nn.Parameter, ...],
    pooled: bool,
) -> HyperPrior:
    """Make weak normal priors on the logs of kernel parameters and noise, and on
    `log_parameters`; others have none.
    """
    if not parameters:
        none = torch.zeros(0, dtype=module.center.dtype, device=module.center.device)
        return HyperPrior(none, none)
    mean = torch.cat([p.detach().flatten() for p in parameters.values()])
    pools = []
    weights = []
    start = 0
    for name, p in parameters.items():
        is_log = any(p is log for log in log_parameters) or _is_log(module, name)
        weight = PRIOR_SD**-2 if is_log else 0.0
        if pooled and is_log:
            pools.append(
                pool(
                    start,
                    tuple(p.shape),
                    POOLED.get(name.rpartition(".")[2], POOLED_ELSE),
                )
            )
            weight = pools[-1].inverse.own
        weights.append(torch.full_like(p.detach(), weight).flatten())
        start += p.numel()
    return HyperPrior(mean.clone(), torch.cat(weights), tuple(pools))


def _is_log(module: Prior, name: str) -> bool:
    """Return whether a parameter is the logarithm of the noise or of a parameter of the
    library's kernels.
    """
    path, _, last = name.rpartition(".")
    own = not name.startswith(OF_FACTOR) and isinstance(
        module.get_submodule(path), Kernel | Prior
    )
    return own and last.startswith("log_")


def make_likelihood(table: Facts, config: Config, plan: TrainingPlan) -> Likelihood:
    """Make the likelihood; that of a regression has the noise, in the units of the
    targets.
    """
    method = find_method(config, plan)
    if isinstance(method, RegressionMethod):
        found: Likelihood = method.make_likelihood(
            1, config.learn, float(config.noise[0])
        )
    else:
        found = method.make_likelihood(table.n_classes, config.learn)
    return found.to(config.device, config.dtype)


def make_site_store(
    table: Facts, likelihood: Likelihood, config: Config, plan: TrainingPlan
) -> SiteStore:
    """Make the store of sites, with the weighted counts that it needs."""
    total = _scalar(table.class_totals.sum(), config.device)
    method = find_method(config, plan)
    if method.site_store == "averaged":
        return Averaged(total)
    known = {
        "weighted": not table.lightest == table.heaviest == 1,
        "tempers": likelihood.tempers,
    }
    if method.site_store == "own":
        return Own(
            total=total, fractional=table.lightest < 1, on_f=method.on_f, **known
        )
    counts = torch.tensor(count_sites(table, likelihood), device=config.device)
    return Tied(counts=counts, unit=min(1.0, table.heaviest), **known)


def count_sites(table: Facts, likelihood: Likelihood) -> Floats:
    """Return the weighted number of sites on each latent function."""
    each = likelihood.sites(
        torch.arange(table.n_classes)
    )  # [C S], what a row of each label touches
    weight = np.repeat(table.class_totals, each.shape[1])
    return np.asarray(
        np.bincount(each.flatten().numpy(), weight, table.n_latent), np.float64
    )


def make_engine(
    module: Prior,
    table: Facts,
    config: Config,
    plan: TrainingPlan,
    likelihood: Likelihood | None = None,
) -> Engine:
    likelihood = likelihood or make_likelihood(table, config, plan)
    method = find_method(config, plan)
    if method.removal == 1:
        likelihood.expect_exponents(min(1.0, table.lightest))
    learnt = name_parameters(module, likelihood)
    if method.at_mode and table.n_latent > 1:
        kind: type[Engine] = Coupled
    else:
        kind = Engine
    return kind(
        prior=module,
        parameters=learnt,
        factor=likelihood,
        sites=make_site_store(table, likelihood, config, plan),
        hyper_prior=make_hyper_prior(
            module, learnt, likelihood.log_parameters, plan.share_prior
        ),
        total=_scalar(table.class_totals.sum(), config.device),
        removal=method.removal,
        placement=PLACEMENTS[method.placement](),
        chunk=plan.chunk,
        exact=plan.schedule == "inner-exact" or method.at_mode,
    )


def with_rows(
    engine: Engine, table: Facts, config: Config, plan: TrainingPlan
) -> Engine:
    """Return the engine of the same model for other rows."""
    sites = make_site_store(table, engine.factor, config, plan)
    return replace(
        engine, sites=sites, total=_scalar(table.class_totals.sum(), config.device)
    )


def make_optimiser(plan: TrainingPlan) -> Optimiser:
    """Make the optimiser of the hyper-parameters; L-BFGS brings its own loop."""
    if plan.anneal:
        return Adam(beta2=SHORT_MEMORY)
    return OPTIMISERS.get(plan.optimizer, OPTIMISERS["adam"])


def make_warm_up(engine: Engine, config: Config, plan: TrainingPlan) -> Engine | None:
    """Make the engine that finds the first q by moment matching; None if the prior is
    where the method starts.
    """
    if find_method(config, plan).starts_from_ep:
        return replace(engine, removal=1.0)
    return None


def make_first_state(
    engine: Engine,
    data: Data,
    config: Config,
    plan: TrainingPlan,
    damping: float,
    seed: int,
) -> State:
    """Make the state without sites, in which q is the prior."""
    device = config.device
    theta = engine.theta()
    (C, M) = engine.shape
    S = engine.factor.sites(torch.zeros(1, dtype=torch.int64, device=device)).shape[1]
    zeros = torch.zeros(C, M, M, dtype=torch.float64, device=device)
    return State(
        theta=theta,
        sites=empty_sites(
            0 if engine.sites.tied else data.n_rows, S, config.dtype, device
        ),
        sums=Sums(zeros, zeros[:, :, 0].clone()),
        optimiser=make_optimiser(plan).init(theta),
        damping=_scalar(damping, device),
        rate=_scalar(plan.rate, device),
        jitter=_scalar(find_jitter(engine, config), device),
        clock=_scalar(0.0, device),
        generator=torch.Generator().manual_seed(seed).get_state(),
        epoch=torch.zeros((), dtype=torch.int64),
        position=torch.zeros((), dtype=torch.int64),
    )


@torch.no_grad()
def find_jitter(engine: Engine, config: Config) -> float:
    """Return the jitter to start with: for exact models a small share of the noise, if
    k(Z, Z) can be factorised with it.
    """
    noise = float(getattr(engine.factor, "noise", 0.0))
    if not config.jitter_backs_off or noise <= 0:
        return config.jitter
    jitter = (
        SHARE_OF_NOISE
        * noise
        / float(engine.prior.kernel.diag(engine.prior.Z[0]).mean())
    )
    while (
        jitter < config.jitter
        and engine.prior.factor(_scalar(jitter, engine.total.device)).failed
    ):
        jitter *= 10
    return min(jitter, config.jitter)


def _scalar(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=device)
