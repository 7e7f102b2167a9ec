"""Hyper-parameters by Monte Carlo: a fitted estimator's engine at its fitted values, draws, and predictions averaged over them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.distributed import Local
from cavity.errors import BadInput, BadOption
from cavity.estimators import build, diagnosis, fitted, regression, runs, watch
from cavity.estimators.checks import check_rows, check_weights
from cavity.estimators.options import Options, learnt_names, read
from cavity.estimators.samples import ClassifierSamples, HyperSamples, RegressorSamples
from cavity.estimators.tables import Start, Table
from cavity.estimators.values import number, whole
from cavity.hyper_prior import HyperPrior
from cavity.inference import Engine
from cavity.kernels import Sum
from cavity.posterior import Sums
from cavity.spectrum import Spectrum
from cavity.training import nuts
from cavity.training.loop import Run

Array = NDArray[np.float64]

OVER = ("kernel", "noise", "inducing")
REGRESSION = ("exact", "fitc", "vi", "svi")
MOST_R_HAT = 1.05
LEAST_ESS = 100


class Asked(NamedTuple):
    """How many draws, and of what."""

    n_samples: int
    warmup: int
    chains: int
    target_accept: float
    n_models: int

    def check(self) -> None:
        whole("n_samples", self.n_samples, 20)
        whole("warmup", self.warmup, 20)
        whole("chains", self.chains, 1)
        number("target_accept", self.target_accept, 0.0, 0.99)
        whole("n_models", self.n_models, 1)


def sample(
    estimator: Any, X: Any, y: Any, sample_weight: Any, over: Any, asked: Asked, random_state: Any
) -> HyperSamples:
    """Draws of the hyper-parameters of a fitted estimator, given the rows that it was fitted to."""
    check_is_fitted(estimator, "_fitted")
    asked.check()
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    run = prepare(estimator, X, y, sample_weight, over)
    target = nuts.Target(run)
    found = nuts.sample(target, asked.n_samples, asked.warmup, asked.chains, asked.target_accept, seed)
    draws = _in_units(run.engine, found.theta, estimator)
    r_hat, ess = _judged(draws)
    total = asked.chains * asked.n_samples
    evenly = np.unique(np.linspace(0, total - 1, min(asked.n_models, total)).round().astype(int))
    chosen = found.theta.reshape(total, -1)[evenly]
    kind = ClassifierSamples if hasattr(estimator, "classes_") else RegressorSamples
    return kind(
        estimator=estimator,
        draws=draws,
        log_posterior=found.log_density,
        acceptance=float(found.acceptance.mean()),
        divergences=int(found.diverging.sum()),
        r_hat=r_hat,
        ess=ess,
        evaluations=target.evaluations,
        warnings=_warn(int(found.diverging.sum()), total, r_hat, ess),
        models=tuple(_model(run.engine, target, theta) for theta in chosen),
    )


def prepare(estimator: Any, X: Any, y: Any, sample_weight: Any, over: Any) -> Run:
    """A run that stands at the fitted values, with what is sampled as its parameters and the fit's prior on them."""
    names = learnt_names(over, OVER, "over")
    plain = copy.copy(estimator)  # its arguments, those of the optimiser and the loop at rest
    usual = {"batch_size": None, "optimizer": "auto", "schedule": "inner-approx", "dtype": "float64"}
    still = {
        "learn": tuple(names),
        "warm_start": False,
        "max_seconds": None,
        "verbose": 0,
        "max_epochs": None,
    }
    for name, value in {**usual, **still}.items():
        if hasattr(plain, name):
            setattr(plain, name, value)
    kept: fitted.Fitted = estimator._fitted
    if plain.kernel is None:
        plain.kernel = build.usual_kernel(isinstance(kept.prior.kernel, Sum))  # the fit's, not today's
    Z = _points(kept)
    classifies = hasattr(estimator, "classes_")
    table = (
        _labelled(estimator, X, y, sample_weight) if classifies else _targets(estimator, X, y, sample_weight)
    )
    _refuse_other_rows(estimator, table, Z)
    _refuse_no_noise(estimator, kept, names)
    M = build.size(estimator, Z)
    options = (
        regression.read(plain, table, M)
        if isinstance(table, regression.Targets)
        else read(plain, table.n_rows, table.n_latent, M)
    )
    _refuse(estimator, options)
    options = options._replace(epsilon=getattr(estimator, "epsilon_", 0.0))
    columns = table.start(np.random.default_rng(0)).columns
    columns = columns._replace(center=fitted.numpy(kept.prior.center), spread=fitted.numpy(kept.prior.spread))
    begin = Start(columns, None)  # type: ignore[arg-type]
    module = build.prior(plain, table, begin, Z, options)
    factor = None if classifies else regression.factor(plain, options)
    machine = build.engine(module, table, options, factor)
    machine = replace(machine, hyper_prior=_proper(machine, estimator))
    _load(machine, kept)
    run = runs.start(plain, machine, table.rows(options), options, 0, Local())
    return _with_q(run, kept, options)


def _labelled(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Table:
    return Table(*diagnosis.rows_of_fit(estimator, X, y, sample_weight), len(estimator.classes_))


def _targets(estimator: Any, X: Any, y: Any, sample_weight: Any) -> regression.Targets:
    rows = check_rows(estimator, X, reset=False)
    values, weight = regression.check_targets(y, len(rows)), check_weights(sample_weight, rows)
    (shift, scale), present = estimator._units, weight > 0
    return regression.Targets(rows[present], (values[present] - shift) / scale, weight[present], shift, scale)


def _points(kept: fitted.Fitted) -> Array:
    """The fitted inducing inputs, or the points of a spectrum, [C M D]."""
    prior = kept.prior
    held = fitted.numpy(prior.inducing if isinstance(prior, Spectrum) else prior.Z)
    return np.repeat(held, prior.n_latent // len(held), axis=0)


def _refuse(estimator: Any, options: Options) -> None:
    """Methods without an evidence that the engine's gradient is the gradient of."""
    method = options.method
    if not hasattr(estimator, "classes_") and estimator.method not in REGRESSION:
        raise BadOption(
            f"method={estimator.method!r} has no evidence of all rows that its predictions belong to: use one of "
            f"{', '.join(map(repr, REGRESSION))}."
        )
    if method.sites == "tied":
        raise BadOption(
            f"method={estimator.method!r} ties its sites, and has only an estimate of its evidence's gradient: use method='ep', "
            "'rep' with sites='own', 'pep', 'vi' or 'laplace'."
        )
    if method.variational and method.likelihood == "robust-max":
        raise BadOption(
            "the robust-max bound has several optima of q, and so no one value for given hyper-parameters: use method='ep' or "
            "'rep', or likelihood='softmax'."
        )
    if method.sites == "free" or method.bound == "taylor":
        what = "q_update='gradient'" if method.sites == "free" else "bound='taylor'"
        raise BadOption(f"{what} has no best q for given hyper-parameters to be swept to: fit without it.")
    if not options.learn:
        raise BadOption(
            f"nothing of over= is a hyper-parameter of method={estimator.method!r} with inducing={estimator.inducing!r:.40}: use "
            "over=('kernel', 'noise')."
        )


def _refuse_other_rows(estimator: Any, table: Any, Z: Array) -> None:
    """Where Z is X, the rows must be those of the fit."""
    if estimator.method != "exact" and estimator.inducing is not None:
        return
    distinct = np.unique(table.X, axis=0)
    if distinct.shape != Z[0].shape or not np.array_equal(distinct, np.unique(Z[0], axis=0)):
        raise BadInput(
            f"X has {len(distinct)} distinct rows and the fit had {Z.shape[1]}, or others: give the rows that it was fitted to."
        )


def _refuse_no_noise(estimator: Any, kept: fitted.Fitted, names: frozenset[str]) -> None:
    noise = getattr(kept.factor, "noise", kept.prior.noise)
    if "noise" in names and getattr(estimator, "method", "") != "laplace" and not bool((noise > 0).all()):
        raise BadOption("the model's noise is 0, whose logarithm cannot be sampled: use over='kernel'.")


def _proper(machine: Engine, estimator: Any) -> HyperPrior:
    """The fit's prior; inducing inputs get one too, around the columns' centres, and parameters without one are refused."""
    means, precisions = [], []
    lengths = [p.numel() for p in machine.parameters]
    prior = machine.hyper_prior
    parts = (torch.split(x, lengths) for x in (prior.mean, prior.precision))
    for parameter, mean, precision in zip(machine.parameters, *parts, strict=True):
        if parameter is machine.prior.inducing:
            mean, precision = torch.zeros_like(mean), torch.full_like(precision, build.PRIOR_SD**-2)
        elif not (precision > 0).all():
            raise BadOption(
                f"{type(estimator._fitted.prior.kernel).__name__} has parameters without a prior, which cannot be sampled: use "
                "kernels of cavity.kernels, or over='noise'."
            )
        means.append(mean)
        precisions.append(precision)
    return prior._replace(mean=torch.cat(means), precision=torch.cat(precisions))


@torch.no_grad()
def _load(machine: Engine, kept: fitted.Fitted) -> None:
    """The fitted values in the place of the starting ones; the points are there already."""
    prior = machine.prior
    prior.kernel.load_state_dict(kept.prior.kernel.state_dict())
    noise = kept.prior.noise.to(prior.noise)
    if prior.learn_noise:
        prior.log_noise.copy_(noise.log().expand_as(prior.log_noise))
    else:
        prior.fixed_noise.copy_(noise.expand_as(prior.fixed_noise))
    own, old = getattr(machine.factor, "log_noise", None), getattr(kept.factor, "log_noise", None)
    if own is not None and old is not None:
        own.copy_(old.to(own))


def _with_q(run: Run, kept: fitted.Fitted, options: Options) -> Run:
    """The fitted q, for methods that keep nothing else; own sites are found anew."""
    if options.method.sites == "averaged":
        lower = kept.lower.double()
        P = lower @ lower.mT - torch.eye(lower.shape[-1], dtype=torch.float64)
        h = (lower @ (lower.mT @ kept.mean.double()[..., None]))[..., 0]
        run.state = run.state._replace(sums=Sums(*(x.to(run.state.sums.h) for x in (P, h))))
    return run


def _in_units(machine: Engine, theta: Array, estimator: Any) -> dict[str, Array]:
    """Draws by name and in the user's units: (chains, n, ...)."""
    names = {id(p): name for name, p in machine.prior.named_parameters()}
    owners = dict(machine.prior.named_modules())
    found, start = {}, 0
    for parameter in machine.parameters:
        part = theta[..., start : start + parameter.numel()].reshape(*theta.shape[:2], *parameter.shape)
        start += parameter.numel()
        path, _, last = names.get(id(parameter), "log_noise").rpartition(".")
        if last == "inducing":
            prior = machine.prior
            found["inducing_points"] = fitted.numpy(prior.center) + fitted.numpy(prior.spread) * part
            continue
        values = np.exp(part)
        if last == "log_lengthscale":
            values = values * fitted.numpy(owners[path].unit)
        if id(parameter) not in names:  # the likelihood's own
            values = values[..., 0] * estimator._units[1] ** 2
        found[f"{path}.{last}".removeprefix(".").removeprefix("kernel.").replace("log_", "")] = values
    return found


def _judged(draws: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """R-hat and the effective number of draws of every hyper-parameter, by ArviZ."""
    try:
        from arviz_stats.base import array_stats
    except ImportError:
        raise BadOption(
            "sample_hyperparameters needs ArviZ's arviz-stats: pip install 'cavity[mcmc]'."
        ) from None

    def each(measure: Callable[..., Any]) -> dict[str, Array]:
        return {
            name: np.asarray(measure(np.moveaxis(values, (0, 1), (-2, -1)), chain_axis=-2, draw_axis=-1))
            for name, values in draws.items()
        }

    return each(array_stats.rhat), each(array_stats.ess)


def _warn(divergences: int, total: int, r_hat: dict[str, Array], ess: dict[str, Array]) -> list[str]:
    """What the user should know of the draws."""
    said = []
    worst, least = max(float(np.max(v)) for v in r_hat.values()), min(float(np.min(v)) for v in ess.values())
    if divergences:
        said.append(
            f"{divergences} of {total} draws ended a divergent trajectory, near which the posterior may be missed: raise "
            "target_accept= towards 0.99, or warmup=."
        )
    if not worst < MOST_R_HAT:
        said.append(
            f"the chains have not mixed (R-hat {worst:.2f}, should be below {MOST_R_HAT}): raise warmup= and n_samples=."
        )
    if not least > LEAST_ESS:
        said.append(
            f"some hyper-parameter has only {least:.0f} effective draws (of {total}): raise n_samples= where its spread matters."
        )
    for text in said:
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    return said


def _model(engine: Engine, target: nuts.Target, theta: Array) -> fitted.Fitted:
    """What predicts at a draw, on the CPU."""
    return fitted.ready(*watch.snapshot(engine, target.at(theta)).to(torch.device("cpu")))
