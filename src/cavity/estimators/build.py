"""From a checked table and checked options to an engine with its first state."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavity import inducing, spectrum
from cavity.data import Data
from cavity.errors import BadInput
from cavity.estimators.options import Options
from cavity.estimators.tables import Array, Facts, Start
from cavity.estimators.values import noise_values
from cavity.factors import (
    BinaryProbit,
    Jaakkola,
    Likelihood,
    Logistic,
    LogisticPoint,
    ProbitPairs,
    RobustBinary,
    RobustMax,
    Softmax,
    Taylor,
)
from cavity.hyper_prior import HyperPrior, Spread, pool
from cavity.inference import (
    AtMode,
    Averaged,
    Coupled,
    Engine,
    Free,
    OnF,
    OnT,
    Optimiser,
    Own,
    State,
    Tied,
    empty_sites,
)
from cavity.kernels import RBF, Kernel, Linear
from cavity.posterior import Sums
from cavity.prior import Prior
from cavity.training.optimisers import OPTIMISERS, Ascent, AverageGradient

# Standard deviation of the normal priors on the logs of kernel parameters and noise, around their starting values.
PRIOR_SD = 2.0

# The same where classes lend each other strength, by what the logarithm is of.
POOLED = {
    "log_lengthscale": Spread(all=PRIOR_SD, each_class=0.5, column=1.0, own=0.5),
    "log_noise": Spread(all=PRIOR_SD, each_class=0.0, column=0.0, own=1.0),
}
POOLED_ELSE = Spread(all=PRIOR_SD, each_class=0.0, column=0.0, own=0.5)

FAR = 1e5  # from 0, in spreads of a column: there a float32 is within a hundredth of a spread
POINTS_A_COLUMN = 2  # inducing points that a linear term wants for each: fewer cannot carry it beside the RBF

LOGISTICS: dict[str, type[Logistic]] = {"quadrature": Logistic, "jaakkola": Jaakkola, "taylor": Taylor}


def points(estimator: Any, pool: inducing.Candidates, M: int, C: int, rng: np.random.Generator) -> Array:
    """Inducing inputs [C M D], or the frequencies [C M/2 D] of M features."""
    if spectrum.asked(estimator.inducing):
        return spectrum.draw(estimator.kernel, M, C, pool.X.shape[1], rng)
    return inducing.choose(estimator.inducing, pool, M, C, rng)


def size(estimator: Any, Z: Array) -> int:
    """M, the whitened values of a latent function with these points or frequencies."""
    return int(Z.shape[1]) * (2 if spectrum.asked(estimator.inducing) else 1)


def prior(estimator: Any, table: Facts, begin: Start, Z: Array, options: Options) -> Prior:
    """Kernel, inducing inputs and noise as one module; the user's kernel stays untouched."""
    C = table.n_latent
    _check_precision(begin, options)
    linear = options.recommended and POINTS_A_COLUMN * Z.shape[-1] <= size(estimator, Z)
    kernel = usual_kernel(linear) if estimator.kernel is None else copy.deepcopy(estimator.kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(1 if options.share_kernel else C, begin.columns)
    kernel.requires_grad_("kernel" in options.learn)
    noisy = options.method.latent_noise
    noise = noise_values(estimator.noise if noisy else 0.0, C, noisy and "noise" in options.learn)
    leading = 1 if options.share_kernel else C
    noise = np.broadcast_to(noise, (leading,)) if noise.size in (1, leading) else noise
    if options.share_inducing:
        Z = Z[:1]
    kind = spectrum.Spectrum if spectrum.asked(estimator.inducing) else Prior
    module = kind(
        kernel,
        torch.tensor(Z),
        torch.tensor(np.array(noise)),
        torch.tensor(begin.columns.center),
        torch.tensor(begin.columns.spread),
        C,
        options.learn if noisy else options.learn - {"noise"},
    )
    return module.to(options.device, options.dtype)


def _check_precision(begin: Start, options: Options) -> None:
    """Rows are rounded to `dtype` as they are: a column far from 0 for its spread, such as a date in seconds, loses its digits."""
    center, spread = begin.columns.center, begin.columns.spread
    if options.dtype == torch.float64:
        return
    bad = (np.abs(center) > FAR * spread) | (np.abs(center) + 100 * spread > torch.finfo(options.dtype).max)
    if bad.any():
        d = int(np.flatnonzero(bad)[0])
        raise BadInput(
            f"column {d} of X (counted from 0) lies around {center[d]:.4g} with a spread of {spread[d]:.2g}, which dtype='float32' "
            "cannot hold: subtract a constant or change the unit (sklearn.preprocessing.StandardScaler), or use dtype='float64'."
        )


def usual_kernel(linear: bool) -> Kernel:
    """What `kernel=None` stands for."""
    return RBF() + Linear() if linear else RBF()


def learnt(module: Prior) -> tuple[nn.Parameter, ...]:
    """The parameters that move, each once."""
    return tuple(p for p in module.parameters() if p.requires_grad)


def hyper_prior(
    module: Prior,
    parameters: tuple[nn.Parameter, ...],
    free: int,
    logs: tuple[nn.Parameter, ...] = (),
    pooled: bool = False,
) -> HyperPrior:
    """Weak normal priors on the logs of our own kernels' parameters and of the noise; none on the rest.

    The rest: Z, foreign weights, ε, and the `free` parameters of q at the end. `logs`: those of a likelihood that are logarithms.
    """
    names = dict.fromkeys(map(id, logs), "")
    for part in module.modules():
        if isinstance(part, Kernel | Prior):
            for name, parameter in part.named_parameters(recurse=False):
                if name.startswith("log_"):
                    names[id(parameter)] = name
    rest = torch.zeros(free, dtype=module.center.dtype, device=module.center.device)
    if not parameters:
        return HyperPrior(rest, rest)
    mean = torch.cat([*(p.detach().flatten() for p in parameters), rest])
    pools, weights, start = [], [], 0
    for p in parameters:
        weight = PRIOR_SD**-2 if id(p) in names else 0.0
        if pooled and id(p) in names:
            pools.append(pool(start, tuple(p.shape), POOLED.get(names[id(p)], POOLED_ELSE)))
            weight = pools[-1].own
        weights.append(torch.full_like(p.detach(), weight).flatten())
        start += p.numel()
    return HyperPrior(mean.clone(), torch.cat([*weights, rest]), tuple(pools))


def likelihood(table: Facts, options: Options) -> Likelihood:
    """One signed latent for two classes, one a class otherwise."""
    kind, C = options.method.likelihood, table.n_classes
    if kind == "pairs":
        return BinaryProbit() if C == 2 else ProbitPairs(C)
    if kind == "softmax":
        two = LogisticPoint if options.method.at_mode else LOGISTICS[options.method.bound]
        return two(options.predictive == "probit") if C == 2 else Softmax(C)
    learn = "epsilon" in options.learn
    factor = RobustBinary(options.epsilon, learn) if C == 2 else RobustMax(C, options.epsilon, learn)
    for parameter in factor.parameters:
        parameter.data = parameter.data.to(options.device, options.dtype)
    return factor


def site_rule(table: Facts, factor: Likelihood, n_inducing: int, options: Options) -> Own | Tied | Averaged:
    """How sites are kept, with the weighted counts that this needs."""
    total = _scalar(table.class_totals.sum(), options.device)
    kind, tempers = options.method.sites, getattr(factor, "tempers", True)
    weighted, fractional = not table.lightest == table.heaviest == 1, table.lightest < 1
    if kind == "own":
        return Own(total, weighted, fractional, tempers, options.method.on_f)
    if kind == "averaged":
        return Averaged(total)
    if kind == "free":
        return Free(total, table.n_latent, n_inducing)
    unit = min(1.0, table.heaviest)
    return Tied(torch.tensor(site_counts(table, factor), device=options.device), weighted, unit, tempers)


def site_counts(table: Facts, factor: Likelihood) -> Array:
    """Weighted number of sites on each latent function."""
    each = factor.sites(torch.arange(table.n_classes))  # [C S], what a row of each label touches
    weight = np.repeat(table.class_totals, each.shape[1])
    return np.asarray(
        np.bincount(each.flatten().numpy(), weights=weight, minlength=table.n_latent), dtype=np.float64
    )


def engine(module: Prior, table: Facts, options: Options, factor: Likelihood | None = None) -> Engine:
    """The maths of the run, with the method's own likelihood or another one."""
    factor = factor or likelihood(table, options)
    sites = site_rule(table, factor, module.size, options)
    parameters = (*learnt(module), *getattr(factor, "parameters", ()))
    on_f = AtMode() if options.method.at_mode else OnF()
    kind = Coupled if options.method.at_mode and table.n_latent > 1 else Engine
    return kind(
        prior=module,
        parameters=parameters,
        factor=factor,
        sites=sites,
        hyper_prior=hyper_prior(
            module, parameters, sites.size, getattr(factor, "logs", ()), options.share_prior
        ),
        total=_scalar(table.class_totals.sum(), options.device),
        removal=options.method.removal,
        placement=on_f if options.method.on_f else OnT(),
        chunk=options.chunk,
        exact=options.schedule == "inner-exact" or options.method.at_mode,
    )


def optimiser(options: Options, machine: Engine, data: Data) -> Optimiser:
    """The rule for the hyper-parameters; L-BFGS and Newton bring loops of their own."""
    total = float(machine.total)
    if options.optimizer == "gradient":
        return Ascent(total)
    if options.optimizer == "sag":
        return AverageGradient(total, data.n_batches(options.batch_size or data.n_rows))
    return OPTIMISERS.get(options.optimizer, OPTIMISERS["adam"])


def warm_up(machine: Engine, options: Options) -> Engine | None:
    """The robust-max bound has poor optima near the prior, where natural gradients and L-BFGS end; moment matching passes them.

    A free q of mini-batches, which Adam steps as the papers do, starts from the prior.
    """
    method = options.method
    if (
        not method.variational
        or method.likelihood != "robust-max"
        or method.sites not in ("averaged", "free")
    ):
        return None
    if method.sites == "averaged":
        return replace(machine, removal=1.0)
    return (
        replace(machine, removal=1.0, sites=Averaged(machine.total)) if options.batch_size is None else None
    )


def first_state(machine: Engine, data: Data, options: Options, damping: float, seed: int) -> State:
    """No sites yet: q is the prior."""
    device = options.device
    C, M = machine.shape
    S = machine.factor.sites(torch.zeros(1, dtype=torch.int64, device=device)).shape[1]
    kept = 0 if machine.sites.tied else data.n_rows
    zeros = torch.zeros(C, M, M, dtype=torch.float64, device=device)
    theta = machine.theta()
    rule = optimiser(options, machine, data)
    return State(
        theta=theta,
        sites=empty_sites(kept, S, options.dtype, device),
        sums=Sums(zeros, zeros[:, :, 0].clone()),
        optimiser=rule.init(theta),
        damping=_scalar(damping, device),
        rate=_scalar(options.rate, device),
        jitter=_scalar(options.jitter, device),
        clock=_scalar(0.0, device),
        generator=torch.Generator().manual_seed(seed).get_state(),
        epoch=torch.zeros((), dtype=torch.int64),
        position=torch.zeros((), dtype=torch.int64),
    )


def _scalar(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=device)
