"""Make a prior, an engine and its first state from arrays and plain values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.column_statistics import Columns
from cavity.common.types import Floats
from cavity.engine.batches.stream import Data
from cavity.engine.inference import (
    OF_FACTOR,
    Averaged,
    Coupled,
    Engine,
    Free,
    Optimiser,
    Own,
    SiteStore,
    State,
    Tied,
    empty_sites,
    find_places,
    name_parameters,
)
from cavity.engine.inference.placement import AtMode, OnF, OnT, Placement
from cavity.engine.inference.posterior import Sums
from cavity.engine.kernels import Kernel
from cavity.engine.kernels.hyper_prior import Box, GivenPrior, HyperPrior, Spread, pool
from cavity.engine.kernels.prior import Prior
from cavity.engine.learning import freeze_rest
from cavity.engine.likelihoods import Likelihood
from cavity.engine.methods import Scheme
from cavity.engine.parameters import Placed, Setting
from cavity.engine.training.optimisers import (
    OPTIMISERS,
    SHORT_MEMORY,
    Adam,
    Ascent,
    AverageGradient,
)
from cavity.engine.training.steps import Steps
from cavity.errors import BadInput

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
# distance from 0 in spreads of a column at which a float32 is still within a hundredth
# of a spread
FAR = 1e5
# jitter relative to the noise, in a model without any other approximation
SHARE_OF_NOISE = 1e-4


class Weights(NamedTuple):
    """What an engine knows about the weights of all rows, on all ranks."""

    y: Tensor  # [K], labels that occur
    totals: Floats  # [K], sum of the weights of the rows with each
    lightest: float = 1.0
    heaviest: float = 1.0

    @property
    def total(self) -> float:
        return float(self.totals.sum())


def make_prior(
    kernel: Any,
    Z: Floats,
    noise: Floats,
    columns: Columns,
    *,
    n_latent: int,
    share_kernel: bool,
    learn: frozenset[str],
    device: torch.device,
    dtype: torch.dtype,
    kind: type[Prior] = Prior,
    noise_setting: Setting | None = None,
) -> Prior:
    """Make kernel, inducing inputs and noise into one module.

    The kernel is copied, and what the user froze in it stays frozen.

    Z is [C M D], or [1 M D] if latent functions share the points; noise is [C] or [1].
    `learn` is a subset of {"kernel", "noise", "inducing"}, or has paths in the kernel:
    see `learning`. `kind`: `Spectrum` if Z are frequencies. `noise_setting`: bounds or
    prior of the noise.
    """
    check_precision(columns, dtype)
    own = 1 if share_kernel else n_latent  # sets of hyper-parameters
    kernel = copy.deepcopy(kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(own, columns)
    freeze_rest(kernel, learn)
    if noise.size in (1, own):
        noise = np.broadcast_to(noise, (own,))

    prior = kind(
        kernel,
        torch.tensor(Z),
        torch.tensor(np.array(noise)),
        center=torch.tensor(columns.center),
        spread=torch.tensor(columns.spread),
        n_latent=n_latent,
        learn=learn,
        noise_setting=noise_setting,
    )
    return prior.to(device, dtype)


def check_precision(columns: Columns, dtype: torch.dtype) -> None:
    """Refuse a float32 column that is far from 0 for its spread.

    A date in seconds, for example, would lose its digits.
    """
    if dtype == torch.float64:
        return

    center = columns.center
    spread = columns.spread
    largest = torch.finfo(dtype).max
    far = np.abs(center) > FAR * spread
    bad = far | (np.abs(center) + 100 * spread > largest)
    if bad.any():
        d = int(np.flatnonzero(bad)[0])
        raise BadInput(
            f"column {d} of X (counted from 0) lies around {center[d]:.4g} with a "
            f"spread of {spread[d]:.2g}, which dtype='float32' "
            "cannot hold: subtract a constant or change the unit "
            "(sklearn.preprocessing.StandardScaler), or use dtype='float64'."
        )


def make_hyper_prior(prior: Prior, likelihood: Likelihood, pooled: bool) -> HyperPrior:
    """Make the priors and bounds of all parameters.

    Parameters of the kernel, the noise and the likelihood have the priors that they
    were given, or weak normals on their logs, centred at their values. Other parameters
    have no prior.

    `pooled`: partial pooling across classes and features.
    """
    parameters = name_parameters(prior, likelihood)
    flat = make_flat_prior(prior, likelihood, parameters)
    if not parameters:
        return flat

    mean = torch.cat([p.detach().flatten() for p in parameters.values()])
    given = {each.place.start for each in flat.given}
    pools = []
    precision = torch.zeros_like(mean)
    for name, place in find_places(parameters).items():
        p = parameters[name]
        of_factor = any(p is log for log in likelihood.log_parameters)
        is_log = (of_factor or _is_log(prior, name)) and place.start not in given
        if pooled and is_log:
            spread = POOLED.get(name.rpartition(".")[2], POOLED_ELSE)
            pools.append(pool(place.start, tuple(p.shape), spread))
            precision[place] = pools[-1].inverse.own
        elif is_log:
            precision[place] = PRIOR_SD**-2

    return flat._replace(mean=mean, precision=precision, pools=tuple(pools))


def make_flat_prior(
    prior: Prior, likelihood: Likelihood, parameters: dict[str, nn.Parameter]
) -> HyperPrior:
    """Make a hyper-prior of given priors and bounds; without any it says nothing."""
    count = sum(p.numel() for p in parameters.values())
    zeros = prior.center.new_zeros(count)
    low = torch.full_like(zeros, -torch.inf)
    high = torch.full_like(zeros, torch.inf)
    given = []
    for name, place in find_places(parameters).items():
        p = parameters[name]
        placed = _find_setting(prior, likelihood, name)
        if placed is not None:
            limits = placed.limits(tuple(p.shape))
            low[place], high[place] = (torch.tensor(x.reshape(-1)) for x in limits)
            if placed.setting.density is not None:
                given.append(_make_given(placed, place, p))

    box = None
    if bool(low.isfinite().any() or high.isfinite().any()):
        box = Box(low, high)
    return HyperPrior(zeros, zeros, given=tuple(given), box=box)


def _make_given(placed: Placed, place: slice, p: nn.Parameter) -> GivenPrior:
    density = placed.setting.density
    assert density is not None

    def spread(value: Any) -> Tensor:
        array = np.broadcast_to(np.asarray(value, dtype=np.float64), tuple(p.shape))
        return torch.tensor(array.reshape(-1)).to(p.detach())

    first, second = density.numbers
    return GivenPrior(
        place,
        type(density),
        (spread(first), spread(second)),
        spread(placed.shift),
        placed.link == "logit",
    )


def _find_setting(prior: Prior, likelihood: Likelihood, name: str) -> Placed | None:
    """Return the setting of a learnt parameter; None if it was given a number."""
    if name.startswith(OF_FACTOR):
        return likelihood.settings()[int(name.removeprefix(OF_FACTOR))]

    path, _, last = name.rpartition(".")
    owner = prior.get_submodule(path)
    if isinstance(owner, Kernel | Prior):
        return owner.settings().get(last)

    return None


def _is_log(prior: Prior, name: str) -> bool:
    """Return whether a parameter is the log of the noise or of a library kernel's."""
    if name.startswith(OF_FACTOR):
        return False

    path, _, last = name.rpartition(".")
    own = isinstance(prior.get_submodule(path), Kernel | Prior)
    return own and last.startswith("log_")


def make_engine(
    prior: Prior,
    likelihood: Likelihood,
    method: Scheme,
    weights: Weights,
    *,
    hyper_prior: HyperPrior | None = None,
    chunk: int = Engine.chunk,
    exact: bool = False,
) -> Engine:
    """Make the engine of a method for rows of these weights.

    `hyper_prior`: None says nothing. `chunk`: rows that are projected at a time.
    `exact`: differentiate through q at fixed sites.
    """
    if method.removal == 1:
        likelihood.expect_exponents(min(1.0, weights.lightest))
    learnt = name_parameters(prior, likelihood)
    if hyper_prior is None:
        hyper_prior = make_flat_prior(prior, likelihood, learnt)
    kind = Engine
    if method.at_mode and prior.n_latent > 1:
        kind = Coupled

    device = prior.center.device
    sites = make_site_store(method, likelihood, weights, prior)
    return kind(
        prior=prior,
        parameters=learnt,
        factor=likelihood,
        sites=sites,
        hyper_prior=hyper_prior.extend(sites.size),
        total=_scalar(weights.total, device),
        removal=method.removal,
        placement=PLACEMENTS[method.placement](),
        chunk=chunk,
        exact=exact or method.at_mode,
    )


def with_rows(engine: Engine, method: Scheme, weights: Weights) -> Engine:
    """Return the engine of the same model for other rows."""
    device = engine.total.device
    sites = make_site_store(method, engine.factor, weights, engine.prior)
    return replace(engine, sites=sites, total=_scalar(weights.total, device))


def make_site_store(
    method: Scheme, likelihood: Likelihood, weights: Weights, prior: Prior
) -> SiteStore:
    """Make the store of sites, with the weighted counts that it needs."""
    device = prior.center.device
    total = _scalar(weights.total, device)
    weighted = not weights.lightest == weights.heaviest == 1
    if method.sites == "averaged":
        return Averaged(total)
    if method.sites == "free":
        return Free(total, (prior.n_latent, prior.size))
    if method.sites == "own":
        return Own(
            total=total,
            weighted=weighted,
            fractional=weights.lightest < 1,
            tempers=likelihood.tempers,
            on_f=method.on_f,
        )

    counts = count_sites(likelihood, weights, prior.n_latent)
    return Tied(
        counts=torch.tensor(counts, device=device),
        weighted=weighted,
        unit=min(1.0, weights.heaviest),
        tempers=likelihood.tempers,
    )


def count_sites(likelihood: Likelihood, weights: Weights, n_latent: int) -> Floats:
    """Return the weighted number of sites on each latent function, [C]."""
    each = likelihood.sites(weights.y).cpu()  # [K S], what a row of each label touches
    weight = np.repeat(weights.totals, each.shape[1])
    counts = np.bincount(each.flatten().numpy(), weight, n_latent)
    return np.asarray(counts, np.float64)


def make_warm_up(engine: Engine) -> Engine:
    """Make the engine that finds a first q by moment matching."""
    sites = engine.sites
    if isinstance(sites, Free):
        sites = Averaged(sites.total)
    return replace(engine, removal=1.0, sites=sites)


def make_optimiser(steps: Steps, engine: Engine, rows: Data) -> Optimiser:
    """Make the optimiser of the hyper-parameters; L-BFGS brings its own loop."""
    total = float(engine.total)
    if steps.optimizer == "gradient":
        return Ascent(total)
    if steps.optimizer == "sag":
        n_batches = 1
        if steps.batch_size is not None:
            n_batches = rows.n_batches(steps.batch_size)
        return AverageGradient(total, n_batches)
    if steps.anneal:
        return Adam(beta2=SHORT_MEMORY)

    return OPTIMISERS.get(steps.optimizer, OPTIMISERS["adam"])


def make_first_state(
    engine: Engine,
    rows: Data,
    steps: Steps,
    *,
    damping: float,
    jitter: float,
    seed: int,
) -> State:
    """Make the state without sites, in which q is the prior."""
    device = engine.total.device
    theta = engine.theta()
    C, M = engine.shape
    label = torch.zeros(1, dtype=torch.int64, device=device)
    S = engine.factor.sites(label).shape[1]
    zeros = torch.zeros(C, M, M, dtype=torch.float64, device=device)
    stored = 0 if engine.sites.tied else rows.n_rows
    return State(
        theta=theta,
        sites=empty_sites(stored, S, engine.prior.center.dtype, device),
        sums=Sums(zeros, zeros[:, :, 0].clone()),
        optimiser=make_optimiser(steps, engine, rows).init(theta),
        damping=_scalar(damping, device),
        rate=_scalar(steps.rate, device),
        jitter=_scalar(jitter, device),
        clock=_scalar(0.0, device),
        generator=torch.Generator().manual_seed(seed).get_state(),
        epoch=torch.zeros((), dtype=torch.int64),
        position=torch.zeros((), dtype=torch.int64),
    )


@torch.no_grad()
def lower_jitter(engine: Engine, most: float) -> float:
    """Return the jitter to start with in an exact model, at most `most`.

    It is a small share of the noise, if k(Z, Z) can be factorised with it.
    """
    noise = float(getattr(engine.factor, "noise", 0.0))
    if noise <= 0:
        return most

    variance = float(engine.prior.kernel.diag(engine.prior.Z[0]).mean())
    jitter = SHARE_OF_NOISE * noise / variance
    device = engine.total.device
    while jitter < most and engine.prior.factor(_scalar(jitter, device)).failed:
        jitter *= 10
    return min(jitter, most)


def _scalar(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=device)
