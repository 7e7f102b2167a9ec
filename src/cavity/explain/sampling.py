"""Sample hyper-parameters by NUTS: rebuild the engine at the fitted values, draw, and
average predictions over the draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from cavity.common.ranks import Local
from cavity.common.types import Floats
from cavity.engine import runs
from cavity.engine.inference import OF_FACTOR, Engine
from cavity.engine.inference.posterior import Sums
from cavity.engine.kernels import Sum
from cavity.engine.likelihoods import Gaussian, Likelihood
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

MOST_R_HAT = 1.05
LEAST_ESS = 100


def draw_samples(
    config: Config,
    fit: Result,
    request: GivenRows,
    n_samples: int,
    warmup: int,
    chains: int,
    target_accept: float,
    n_models: int,
    random_state: Any,
) -> HyperSamples:
    least = (
        ("n_samples", n_samples, 20),
        ("warmup", warmup, 20),
        ("chains", chains, 1),
        ("n_models", n_models, 1),
    )
    for limited in least:
        whole(*limited)
    number("target_accept", target_accept, 0.0, 0.99)
    kind: Callable[..., HyperSamples]
    if isinstance(config, ClassifierConfig):
        classes: Any = fit.classes
        table: Table = read_table_of_fit(
            request, config.class_weight, fit.features, classes
        )
        kind = partial(ClassifierSamples, classes=classes)
        scale = 1.0
    else:
        table = read_targets_of_fit(request, fit.features, fit.units)
        kind = partial(RegressorSamples, units=fit.units)
        scale = fit.units[1]
    seed = draw_seed(random_state)
    run = make_sampling_run(config, fit.model.to(torch.device("cpu")), table)
    with limit_threads(runs.count_work(run)):
        target = nuts.LogDensity(run)
        found = nuts.sample(target, n_samples, warmup, chains, target_accept, seed)
    draws = _in_units(run.engine, found.theta, scale)
    r_hat, ess = _diagnose(draws)
    total = chains * n_samples
    diverging = int(found.diverging.sum())
    evenly = np.unique(
        np.linspace(0, total - 1, min(n_models, total)).round().astype(int)
    )
    models = (
        snapshot(run.engine, target.at(theta))
        for theta in found.theta.reshape(total, -1)[evenly]
    )
    return kind(
        draws=draws,
        log_posterior=found.log_density,
        acceptance=float(found.acceptance.mean()),
        divergences=diverging,
        r_hat=r_hat,
        ess=ess,
        evaluations=target.evaluations,
        warnings=_warn(diverging, total, r_hat, ess),
        models=tuple(model.to(torch.device("cpu")) for model in models),
        features=fit.features,
    )


def make_sampling_run(config: Config, model: FittedModel, table: Table) -> Run:
    """Return a run at the fitted values; what is sampled are its parameters, with the
    fit's prior on them.
    """
    held = as_array(model.prior.Z)
    Z = np.repeat(held, model.n_latent // len(held), axis=0)
    _refuse_other_rows(config, table, Z)
    if (problem := config.method.sampling_problem()) is not None:
        raise BadOption(problem)
    config = _configure(config, model)
    plan = policy.plan_training(config, TableSize.of(table, Z.shape[-1]), Z.shape[-2])
    begin = table.start(np.random.default_rng(0))
    center = as_array(model.prior.center)
    spread = as_array(model.prior.spread)
    begin = begin._replace(columns=begin.columns._replace(center=center, spread=spread))
    module = adapter.make_prior(config, plan, table, begin, Z)
    engine = adapter.make_engine(
        module, table, config, plan, _make_likelihood(model, table, config, plan)
    )
    if not (engine.hyper_prior.precision > 0).all():
        raise BadOption(
            f"{type(model.prior.kernel).__name__} has parameters without a prior, "
            f"which cannot be sampled: use kernels of "
            "cavity.kernels."
        )
    _load(engine, model)
    run = adapter.make_run(
        engine,
        adapter.load_rows(table, config.dtype, config.device),
        config,
        plan,
        0,
        Local(),
    )
    if (
        config.method.site_store == "averaged"
    ):  # it stores nothing but q; sites per row are found again
        lower, mean = (torch.as_tensor(x).double() for x in (model.lower, model.mean))
        P = lower @ lower.mT - torch.eye(lower.shape[-1], dtype=torch.float64)
        h = (lower @ (lower.mT @ mean[..., None]))[..., 0]
        run.state = run.state._replace(
            sums=Sums(*(x.to(run.state.sums.h) for x in (P, h)))
        )
    return run


def _configure(config: Config, model: FittedModel) -> Config:
    """Return the fit's configuration for full batches in float64, in which kernel and
    noise are learnt, unless the noise is 0.
    """
    method = config.method
    kernel = config.kernel
    if kernel is None:
        kernel = adapter.make_default_kernel(
            isinstance(model.prior.kernel, Sum)
        )  # the fit's, not today's
    of_targets = method.task == "regression" and target_noise(model) > 0
    if method.latent_noise:
        noisy = bool((model.prior.noise > 0).all())
    else:
        noisy = of_targets
    learn = frozenset({"kernel", "noise"} if noisy else {"kernel"})
    return replace(
        config.in_float64(), kernel=kernel, learn=learn, batch_size=None, optimizer="auto", schedule="inner-approx",
        damping=1.0, max_seconds=None, max_epochs=None, verbose=0,
    )  # fmt: skip


def _make_likelihood(
    model: FittedModel, table: Table, config: Config, plan: TrainingPlan
) -> Likelihood:
    """Make the likelihood again; a share of random labels is the fitted one, and fixed."""
    likelihood = adapter.make_likelihood(table, config, plan)
    epsilon = model.likelihood.epsilon
    if epsilon is None:
        return likelihood
    return likelihood.set_params(epsilon=epsilon)


def _refuse_other_rows(config: Config, table: Table, Z: Floats) -> None:
    """If Z is X, the rows must be those of the fit."""
    if config.method.inducing_from != "rows" and config.inducing is not None:
        return
    distinct = np.unique(table.X, axis=0)
    if distinct.shape != Z[0].shape or not np.array_equal(
        distinct, np.unique(Z[0], axis=0)
    ):
        raise BadInput(
            f"X ({len(distinct)} distinct rows) differs from the rows of the fit "
            f"({Z.shape[1]}): "
            "give the rows that it was fitted to."
        )


@torch.no_grad()
def _load(engine: Engine, kept: FittedModel) -> None:
    """Replace the starting values by the fitted ones; the points are fitted already."""
    prior = engine.prior
    prior.kernel.load_state_dict(kept.prior.kernel.state_dict())
    noise = kept.prior.noise.to(prior.noise)
    if prior.learn_noise:
        prior.log_noise.copy_(noise.log())
    else:
        prior.fixed_noise.copy_(noise)
    if isinstance(engine.factor, Gaussian) and isinstance(kept.likelihood, Gaussian):
        engine.factor.log_noise.copy_(kept.likelihood.log_noise)


def _in_units(engine: Engine, theta: Floats, scale: float) -> dict[str, Floats]:
    """Return draws by name and in the user's units: (chains, n, ...)."""
    owners = dict(engine.prior.named_modules())
    found = {}
    for name, place in engine.places.items():
        values = np.exp(
            theta[..., place].reshape(*theta.shape[:2], *engine.parameters[name].shape)
        )
        own = name.startswith(OF_FACTOR)  # the likelihood's noise
        path, _, last = ("log_noise" if own else name).rpartition(".")
        if last == "log_lengthscale":
            group = getattr(owners[path], "group", None)
            values = (values if group is None else values[..., group.cpu()]) * as_array(
                owners[path].unit
            )
        if own:
            values = values[..., 0] * scale**2
        found[
            f"{path}.{last}".removeprefix(".")
            .removeprefix("kernel.")
            .replace("log_", "")
        ] = values
    return found


def _diagnose(draws: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return R-hat and effective sample size of every hyper-parameter, by ArviZ."""
    try:
        from arviz_stats.base import array_stats
    except ImportError:
        raise missing_extra("arviz-stats", "mcmc") from None
    last = {
        name: np.moveaxis(values, (0, 1), (-2, -1)) for name, values in draws.items()
    }

    def measure(by: Any) -> dict[str, Floats]:
        return {
            name: np.asarray(by(x, chain_axis=-2, draw_axis=-1))
            for name, x in last.items()
        }

    return measure(array_stats.rhat), measure(array_stats.ess)


def _warn(
    divergences: int, total: int, r_hat: dict[str, Floats], ess: dict[str, Floats]
) -> list[str]:
    worst = max(float(np.max(v)) for v in r_hat.values())
    least = min(float(np.min(v)) for v in ess.values())
    diverged = f"{divergences} of {total} draws ended a divergent trajectory, near which the posterior may be missed"
    mixed = (
        f"the chains have not mixed (R-hat {worst:.2f}, should be below {MOST_R_HAT})"
    )
    few = f"some hyper-parameter has only {least:.0f} effective draws (of {total})"
    found = {
        f"{diverged}: raise target_accept= towards 0.99, or warmup=.": divergences > 0,
        f"{mixed}: raise warmup= and n_samples=.": not worst < MOST_R_HAT,
        f"{few}: raise n_samples= where its spread matters.": not least > LEAST_ESS,
    }
    said = [text for text, is_so in found.items() if is_so]
    for text in said:
        warnings.warn(
            text, ConvergenceWarning, stacklevel=4
        )  # the caller of sample_hyperparameters
    return said
