"""Sample hyper-parameters by NUTS, starting at a fit, and average predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from cavity.common.ranks import Local
from cavity.common.types import Floats
from cavity.engine import runs
from cavity.engine.inference import OF_FACTOR, Engine
from cavity.engine.inference.posterior import Sums
from cavity.engine.kernels import Sum
from cavity.engine.kernels.scaled import Scaled
from cavity.engine.likelihoods import Gaussian, Likelihood, Ordinal
from cavity.engine.training.loop import Run
from cavity.engine.training.threads import limit_threads
from cavity.errors import BadInput, BadOption, missing_extra
from cavity.explain import nuts
from cavity.explain.samples import ClassifierSamples, HyperSamples, RegressorSamples
from cavity.fitting import adapter
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import ClassifierConfig, Config
from cavity.fitting.options.plan import TableSize, TrainingPlan
from cavity.fitting.options.value_checks import draw_seed, number, whole
from cavity.prediction.model import FittedModel, as_array, snapshot
from cavity.prediction.result import Result
from cavity.prediction.targets import target_noise
from cavity.tables.labelled import read_table_of_fit, read_targets_of_fit
from cavity.tables.table import GivenRows, Table

# diagnostics outside these limits raise a warning
MOST_R_HAT = 1.05
LEAST_ESS = 100


class SamplingOptions(NamedTuple):
    """Arguments of `sample_hyperparameters`."""

    n_samples: int
    warmup: int
    chains: int
    target_accept: float
    n_models: int
    random_state: Any

    def check(self) -> None:
        """Raise BadOption if a value is out of range."""
        whole("n_samples", self.n_samples, 20)
        whole("warmup", self.warmup, 20)
        whole("chains", self.chains, 1)
        whole("n_models", self.n_models, 1)
        number("target_accept", self.target_accept, 0.0, 0.99)


def draw_samples(
    config: Config, fit: Result, request: GivenRows, options: SamplingOptions
) -> HyperSamples:
    """Draw hyper-parameters, and keep models at some draws for predictions."""
    options.check()
    table: Table
    kind: Callable[..., HyperSamples]
    if isinstance(config, ClassifierConfig):
        classes: Any = fit.classes
        table = read_table_of_fit(
            request, config.class_weight, fit.features, classes, config.order
        )
        kind = partial(ClassifierSamples, classes=classes)
    else:
        table = read_targets_of_fit(request, fit.features, fit.units)
        kind = partial(RegressorSamples, units=fit.units)

    cpu = torch.device("cpu")
    seed = draw_seed(options.random_state)
    run = make_sampling_run(config, fit.model.to(cpu), table)
    with limit_threads(runs.count_work(run)):
        target = nuts.LogDensity(run)
        found = nuts.sample(
            target,
            options.n_samples,
            options.warmup,
            options.chains,
            options.target_accept,
            seed,
        )

    _, scale = fit.units
    draws = _in_units(run.engine, found.theta, scale)
    r_hat, ess = _diagnose(draws)
    divergences = int(found.diverging.sum())
    total = options.chains * options.n_samples

    thetas = found.theta.reshape(total, -1)
    evenly = np.linspace(0, total - 1, min(options.n_models, total))
    chosen = np.unique(evenly.round().astype(int))
    models = (snapshot(run.engine, target.at(theta)) for theta in thetas[chosen])
    return kind(
        draws=draws,
        log_posterior=found.log_density,
        acceptance=float(found.acceptance.mean()),
        divergences=divergences,
        r_hat=r_hat,
        ess=ess,
        evaluations=target.evaluations,
        warnings=_warn(divergences, total, r_hat, ess),
        models=tuple(model.to(cpu) for model in models),
        features=fit.features,
    )


def make_sampling_run(config: Config, model: FittedModel, table: Table) -> Run:
    """Create a run at the fitted values.

    Its parameters are the sampled ones, with the priors of the fit.
    """
    held = as_array(model.prior.Z)
    Z = np.repeat(held, model.n_latent // len(held), axis=0)
    _refuse_other_rows(config, table, Z)
    if (problem := config.method.sampling_problem()) is not None:
        raise BadOption(problem)

    config = _configure(config, model)
    plan = policy.plan_training(config, TableSize.of(table, Z.shape[-1]), Z.shape[-2])
    engine = _make_engine(config, model, table, plan, Z)
    if not engine.hyper_prior.is_proper:
        raise BadOption(
            f"{type(model.prior.kernel).__name__} has parameters without a prior, "
            "which cannot be sampled: use kernels of cavity.kernels."
        )

    _load(engine, model)
    rows = adapter.load_rows(table, config.dtype, config.device)
    run = adapter.make_run(engine, rows, config, plan, 0, Local())
    if config.method.site_store == "averaged":
        # the file has q, but no sites per row: sweeps find them again
        sums = _recover_sums(model, run.state.sums.h)
        run.state = run.state._replace(sums=sums)

    return run


def _configure(config: Config, model: FittedModel) -> Config:
    """Return the configuration of the fit for full batches in float64.

    Kernel and noise are learnt, unless the noise is 0.
    """
    method = config.method
    kernel = config.kernel
    if kernel is None:  # the default kernel of the fit, which may differ from today's
        linear = isinstance(model.prior.kernel, Sum)
        kernel = adapter.make_default_kernel(linear)

    if method.latent_noise:
        noisy = bool((model.prior.noise > 0).all())
    else:
        noisy = method.task == "regression" and target_noise(model) > 0

    learn = frozenset({"kernel", "noise"} if noisy else {"kernel"})
    return replace(
        config.in_float64(),
        kernel=kernel,
        learn=learn,
        batch_size=None,
        optimizer="auto",
        schedule="inner-approx",
        damping=1.0,
        max_seconds=None,
        max_epochs=None,
        verbose=0,
    )


def _make_engine(
    config: Config, model: FittedModel, table: Table, plan: TrainingPlan, Z: Floats
) -> Engine:
    """Create the engine of the fit, with its columns and inducing points."""
    begin = table.start(np.random.default_rng(0))
    columns = begin.columns._replace(
        center=as_array(model.prior.center), spread=as_array(model.prior.spread)
    )
    module = adapter.make_prior(config, plan, table, begin._replace(columns=columns), Z)
    likelihood = _make_likelihood(model, table, config, plan)
    return adapter.make_engine(module, table, config, plan, likelihood)


def _make_likelihood(
    model: FittedModel, table: Table, config: Config, plan: TrainingPlan
) -> Likelihood:
    """Create the likelihood; a share of random labels is fixed at its fitted value."""
    likelihood = adapter.make_likelihood(table, config, plan)
    epsilon = model.likelihood.epsilon
    if epsilon is None:
        return likelihood

    return likelihood.set_params(epsilon=epsilon)


def _recover_sums(model: FittedModel, like: Any) -> Sums:
    """Return P = Λ − I and h = Λ μ of the fitted q."""
    lower = torch.as_tensor(model.lower).double()
    mean = torch.as_tensor(model.mean).double()
    P = lower @ lower.mT - torch.eye(lower.shape[-1], dtype=torch.float64)
    h = (lower @ (lower.mT @ mean[..., None]))[..., 0]
    return Sums(P.to(like), h.to(like))


def _refuse_other_rows(config: Config, table: Table, Z: Floats) -> None:
    """Raise BadInput if inducing points are the rows, but not of this table."""
    if config.method.inducing_from != "rows" and config.inducing is not None:
        return

    distinct = np.unique(table.X, axis=0)
    if not np.array_equal(distinct, np.unique(Z[0], axis=0)):
        raise BadInput(
            f"X ({len(distinct)} distinct rows) differs from the rows of the fit "
            f"({Z.shape[1]}): give the rows that the model was fitted to."
        )


@torch.no_grad()
def _load(engine: Engine, kept: FittedModel) -> None:
    """Set the kernel and the noise to the fitted values."""
    prior = engine.prior
    prior.kernel.load_state_dict(kept.prior.kernel.state_dict())
    noise = kept.prior.noise.to(prior.noise)
    if prior.learn_noise:
        prior.log_noise.copy_(noise.log())
    else:
        prior.fixed_noise.copy_(noise)

    if isinstance(engine.factor, Ordinal):
        engine.factor.load_state(kept.likelihood.state())
    if isinstance(engine.factor, Gaussian) and isinstance(kept.likelihood, Gaussian):
        engine.factor.log_noise.copy_(kept.likelihood.log_noise)


def _in_units(engine: Engine, theta: Floats, scale: float) -> dict[str, Floats]:
    """Return draws by name and in the user's units: (chains, n, ...)."""
    owners = dict(engine.prior.named_modules())
    found = {}
    for name, place in engine.places.items():
        shape = engine.parameters[name].shape
        values = np.exp(theta[..., place].reshape(*theta.shape[:2], *shape))
        if name.startswith(OF_FACTOR):  # the variance of a Gaussian likelihood
            found["noise"] = values[..., 0] * scale**2
            continue

        path, _, last = name.rpartition(".")
        owner = owners[path]
        argument = last.removeprefix("log_")
        if isinstance(owner, Scaled) and argument in owner.per_column:
            if owner.group is not None:
                values = values[..., owner.group.cpu()]
            values = values * owner.units_of(argument)
        elif argument == "lengthscale":  # of a user's kernel
            values = values * as_array(owner.unit)

        found[name.removeprefix("kernel.").replace("log_", "")] = values

    return found


def _diagnose(draws: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return R-hat and effective sample size of every hyper-parameter, by ArviZ."""
    try:
        from arviz_stats.base import array_stats
    except ImportError:
        raise missing_extra("arviz-stats", "mcmc") from None

    r_hat = {}
    ess = {}
    for name, values in draws.items():
        x = np.moveaxis(values, (0, 1), (-2, -1))
        r_hat[name] = np.asarray(array_stats.rhat(x, chain_axis=-2, draw_axis=-1))
        ess[name] = np.asarray(array_stats.ess(x, chain_axis=-2, draw_axis=-1))

    return r_hat, ess


def _warn(
    divergences: int, total: int, r_hat: dict[str, Floats], ess: dict[str, Floats]
) -> list[str]:
    """Warn about bad diagnostics, and return the warnings."""
    worst = max(float(np.max(v)) for v in r_hat.values())
    least = min(float(np.min(v)) for v in ess.values())
    found = []
    if divergences > 0:
        found.append(
            f"{divergences} of {total} draws ended a divergent trajectory, near which "
            "the posterior may be missed: raise target_accept= towards 0.99, or "
            "warmup=."
        )

    if not worst < MOST_R_HAT:  # also if it is NaN
        found.append(
            f"the chains have not mixed (R-hat {worst:.2f}, should be below "
            f"{MOST_R_HAT}): raise warmup= and n_samples=."
        )

    if not least > LEAST_ESS:
        found.append(
            f"a hyper-parameter has only {least:.0f} effective draws (of {total}): "
            "raise n_samples= if its spread matters."
        )

    for text in found:
        # stacklevel: the caller of sample_hyperparameters
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    return found
