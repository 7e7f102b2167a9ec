"""Check a likelihood: sites, shapes, finite values, derivatives, moments by quadrature,
and the same probabilities in torch, NumPy and ONNX.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cavity.engine.likelihoods import Latents, Likelihood, Moments
from cavity.errors import BadResult
from cavity.testing.likelihood_cases import ROWS, Case, make_case, require_moments
from cavity.testing.results import (
    CheckReport,
    find_slope,
    require_finite,
    require_shape,
    require_tensor,
    run_graph,
    to_numpy,
)

NODES = 32  # of Gauss–Hermite quadrature
EXPONENT = 0.6  # of moments that take one
NARROW = 1e-8  # variance at which a factor is the probability at the mean
# values agree with quadrature to this, relative to 1 and to themselves
CLOSE = 1e-5

# a method at marginals f
Compute = Callable[[Latents], Moments]


def check_likelihood(
    likelihood: Likelihood, n_classes: int | None = None
) -> CheckReport:
    """Check a likelihood of your own, and say what was checked.

    Parameters
    ----------
    likelihood : cavity.likelihoods.Likelihood
        Likelihood with its arguments. It is copied.
    n_classes : int or None, default=None
        Number of classes to check it for. If None, use 2 if it is for two classes, and
        otherwise 3.

    Returns
    -------
    CheckReport
        Laws that hold, and what the likelihood does not offer.

    Raises
    ------
    cavity.errors.BadResult
        If a method returns a wrong result. The message names class, method and
        numbers.

    Examples
    --------
    >>> from cavity.likelihoods import RobustMax
    >>> from cavity.testing import check_likelihood
    >>> report = check_likelihood(RobustMax(epsilon=0.1))
    >>> report.name, "moments: dm" in report.passed
    ('RobustMax', True)
    """
    case = make_case(likelihood, n_classes)
    report = CheckReport(case.name)
    for method in ("moments", "average"):
        if case.offers(method):
            _check_factor(case, method, report)
        else:
            report.skipped[method] = "the class does not offer it"

    if case.n_classes == 1:
        report.skipped["log_probability"] = "it is for regression"
    else:
        _check_probabilities(case, report)
    return report


def _check_factor(case: Case, method: str, report: CheckReport) -> None:
    """Check `moments` with and without exponents, or `average`."""
    likelihood = case.likelihood
    y = case.y
    if method == "average":
        _check_integral(case, method, lambda f: likelihood.average(f, y), report)
        return

    _check_integral(case, method, lambda f: likelihood.moments(f, y, None), report)
    if likelihood.tempers:
        likelihood.expect_exponents(EXPONENT)
        powers = torch.full((ROWS,), EXPONENT, dtype=torch.float64)
        law = f"moments with exponent {EXPONENT}"
        _check_integral(case, law, lambda f: likelihood.moments(f, y, powers), report)


def _check_integral(
    case: Case, law: str, compute: Compute, report: CheckReport
) -> None:
    """Check what a method returns at marginals f."""
    likelihood = case.likelihood
    f = case.f
    what = f"{case.name}.{law}"
    with torch.no_grad():
        found = require_moments(what, compute(f), f, likelihood)
        for scale, spread in ((20.0, 1.0), (0.01, 1e-3), (1.0, 1e3)):
            wide = Latents(scale * f.mean, spread * f.var, spread * f.residual)
            require_moments(what, compute(wide), wide, likelihood)
    report.passed.append(f"{law}: shapes and finite values")

    at_point = case.offers("third") and law.startswith("moments")
    expands = law == "average" and not likelihood.bounds
    if at_point:
        why = "third() says that the factor is expanded at the mean, for Laplace"
        report.skipped[f"{law}: dv, dr and quadrature"] = why
        _check_slopes(case, law, compute, found, ("dm",), report)
        _check_expansion(case, law, compute, found, report)
        return
    if expands:
        why = "bounds = False: it is an expansion"
        report.skipped[f"{law}: dm and quadrature"] = why
        _check_slopes(case, law, compute, found, ("dv", "dr"), report)
        return

    _check_slopes(case, law, compute, found, ("dm", "dv", "dr"), report)
    _check_own(case, law, compute, found, report)
    _check_quadrature(case, law, compute, found, report)


def _check_slopes(
    case: Case,
    law: str,
    compute: Compute,
    found: Moments,
    names: tuple[str, ...],
    report: CheckReport,
) -> None:
    """Derivatives are differences of the value, site by site."""
    for name in names:
        wanted = torch.empty_like(case.f.mean)
        for s in range(wanted.shape[1]):
            wanted[:, s] = _difference(compute, case.f, name, s)
        law_of = f"{law}: {name}"
        report.check_close(law_of, getattr(found, name), wanted, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def _difference(compute: Compute, f: Latents, name: str, site: int) -> Tensor:
    """Return the central difference of the value in one site's mean, variance from w,
    or residual, [B].
    """
    step = torch.zeros_like(f.mean)
    step[:, site] = 1e-5
    moves = {
        "dm": Latents(step, 0 * step, 0 * step),
        "dv": Latents(0 * step, step, 0 * step),
        "dr": Latents(0 * step, step, step),
    }
    upper = Latents(*(x + d for x, d in zip(f, moves[name], strict=True)))
    lower = Latents(*(x - d for x, d in zip(f, moves[name], strict=True)))
    return (compute(upper).value - compute(lower).value) / 2e-5


def _check_expansion(
    case: Case, law: str, compute: Compute, found: Moments, report: CheckReport
) -> None:
    """At a point, d₂ = 2 dv − dm² is the derivative of dm, and `third` that of d₂."""
    f = case.f
    second = 2 * found.dv - found.dm.square()
    for s in range(f.mean.shape[1]):
        step = torch.zeros_like(f.mean)
        step[:, s] = 1e-5
        upper = compute(f._replace(mean=f.mean + step))
        lower = compute(f._replace(mean=f.mean - step))
        change = (upper.dm - lower.dm)[:, s] / 2e-5
        law_of = f"{law}: 2 dv − dm²"
        report.check_close(law_of, second[:, s], change, rtol=1e-4, atol=1e-6)
        curved = (2 * upper.dv - upper.dm**2 - 2 * lower.dv + lower.dm**2)[:, s] / 2e-5
        third = case.likelihood.third(f.mean, case.y)[:, s]
        report.check_close("third", third, curved, rtol=1e-4, atol=1e-6)


def _check_own(
    case: Case, law: str, compute: Compute, found: Moments, report: CheckReport
) -> None:
    """Derivatives in the likelihood's parameters are differences of the value."""
    columns = []
    for parameter in case.likelihood.parameters:
        columns += [
            find_slope(lambda: compute(case.f).value, parameter, at)
            for at in range(parameter.numel())
        ]
    if columns:
        wanted = torch.stack(columns, 1)
        report.check_close(f"{law}: own", found.own, wanted, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def _check_quadrature(
    case: Case, law: str, compute: Compute, found: Moments, report: CheckReport
) -> None:
    """Averages over N(m, v) are averages over m' of those over N(m', v/2)."""
    f = case.f
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    log_weights = np.log(weights / weights.sum())
    for s in range(f.mean.shape[1]):
        half = torch.zeros_like(f.var)
        half[:, s] = 0.5 * (f.var - f.residual)[:, s]
        values = []
        for node in nodes:
            mean = f.mean + float(node) * half.sqrt()
            values.append(
                to_numpy(compute(Latents(mean, f.var - half, f.residual)).value)
            )
        stacked = np.stack(values)
        law_of = f"{law}: quadrature at site {s}"
        if law != "average":
            wanted = np.logaddexp.reduce(stacked + log_weights[:, None], axis=0)
            report.check_close(law_of, found.value, wanted, rtol=CLOSE, atol=CLOSE)
            continue

        wanted = np.exp(log_weights) @ stacked
        over = to_numpy(found.value) - wanted
        if float(over.max()) > CLOSE * (1 + float(np.abs(wanted).max())):
            at = int(over.argmax())
            raise BadResult(
                f"{case.name}.{law_of}: {float(found.value[at]):.6g} is above "
                f"{wanted[at]:.6g}, so it is neither the average nor a lower bound."
            )

        report.passed.append(law_of)


@torch.no_grad()
def _check_probabilities(case: Case, report: CheckReport) -> None:
    """Class probabilities sum to 1, agree with the factor, and in NumPy and ONNX."""
    likelihood = case.likelihood
    count = likelihood.n_latent
    rng = np.random.default_rng(1)
    mean = torch.tensor(rng.normal(0, 1.5, (ROWS, count)))
    var = torch.tensor(rng.uniform(0.2, 2.0, (ROWS, count)))
    what = f"{case.name}.log_probability"
    classes = case.n_classes
    log_p = likelihood.log_probability(mean, var)
    log_p = require_tensor(what, log_p, (ROWS, classes))
    for scale in (20.0, 1e-3):
        wide = likelihood.log_probability(scale * mean, scale * var)
        require_shape(what, wide, (ROWS, classes))
        require_finite(what, wide.exp())
    report.check_close(
        "log_probability sums to 1",
        log_p.exp().sum(1),
        np.ones(ROWS),
        rtol=0,
        atol=1e-6,
    )
    _check_factor_is_probability(case, mean, var, report)

    given = {"mean": mean.numpy(), "var": var.numpy()}
    in_numpy = likelihood.log_probability(*given.values())
    report.check_close(
        "log_probability in NumPy", in_numpy, log_p, rtol=1e-8, atol=1e-8
    )
    in_graph = run_graph(likelihood.log_probability, given, ["n", classes])
    law = "log_probability in ONNX"
    if isinstance(in_graph, str):
        report.skipped[law] = in_graph
    else:
        report.check_close(law, in_graph, log_p, rtol=1e-6, atol=1e-7)


def _check_factor_is_probability(
    case: Case, mean: Tensor, var: Tensor, report: CheckReport
) -> None:
    """Without variance, moments and average are log-probabilities of the label; with
    variance, moments are, if the factor is a probability (`sums_to_one`).
    """
    likelihood = case.likelihood
    narrow = torch.full_like(var, NARROW)
    for label in range(case.n_classes):
        y = torch.full((len(mean),), label)
        at = likelihood.sites(y)
        for method in ("moments", "average"):
            if not case.offers(method):
                continue

            widths = {"without variance": narrow}
            is_integral = not case.offers("third")
            if method == "moments" and likelihood.sums_to_one and is_integral:
                widths["at its marginals"] = var
            for where, v in widths.items():
                spread = v.gather(1, at)
                residual = 0.5 * spread
                f = Latents(mean.gather(1, at), spread, residual)
                if method == "moments":
                    value = likelihood.moments(f, y, None).value
                else:
                    value = likelihood.average(f, y).value
                wanted = likelihood.log_probability(mean, v)[:, label].exp()
                law = f"{method} {where} is the probability of class {label}"
                report.check_close(law, value.exp(), wanted, rtol=0, atol=1e-4)
