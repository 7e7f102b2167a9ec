"""The methods of classification, one class each. [METHOD 4, 9]

They are EP and its variants, variational inference, and Laplace's method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from cavity.engine import methods as schemes
from cavity.engine.likelihoods import (
    Jaakkola,
    Likelihood,
    Logistic,
    LogisticPoint,
    RobustMax,
    Softmax,
    Taylor,
)
from cavity.engine.likelihoods.quadrature.probabilities import LOGISTIC
from cavity.engine.methods import Scheme
from cavity.errors import BadOption
from cavity.fitting.options.method import (
    DEFAULT_EPSILON,
    METHODS,
    Q_UPDATES,
    LikelihoodMethod,
    Method,
    check_epsilon,
    check_unswept,
    no_sweeps,
    read_likelihood,
)
from cavity.fitting.options.value_checks import checked, number, one_of

SITES = ("own", "tied")
BOUNDS: dict[str, type[Logistic]] = {
    "quadrature": Logistic,
    "jaakkola": Jaakkola,
    "taylor": Taylor,
}


@METHODS.register
class Auto(LikelihoodMethod):
    """What the library recommends: EP, or SEP when memory is short.

    SEP is used if the sites of all rows would need more than 2 GB, and by
    `partial_fit`. Unless you choose otherwise, the kernel is
    `RBF() + Linear(fades=True)` if there are at least two inducing points per feature,
    and hyper-parameters are partially pooled across classes and features
    (`share="prior"`).
    """

    name = "auto"
    recommended = grows = takes_order = True
    takes_spectrum = False

    def resolve(self, numbered: bool) -> Method:
        return EP() if numbered else SEP()


@METHODS.register
@dataclass(eq=False, repr=False)
class EP(LikelihoodMethod):
    """Expectation propagation: one pair of numbers per site, O(NC) memory. [METHOD 4]

    Parameters
    ----------
    likelihood : str, cavity.likelihoods.Likelihood or None, default=None
        Name of a registered likelihood, or an instance. If None, use one probit factor
        per rival class, in closed form.
    """

    name = "ep"

    likelihood: Any = None

    @property
    def takes_order(self) -> bool:  # type: ignore[override]
        return self.likelihood is None


@METHODS.register
@dataclass(eq=False, repr=False)
class SEP(LikelihoodMethod):
    """Stochastic EP: stores only sums of sites. [METHOD 4]

    Memory does not depend on the number of rows.

    Parameters
    ----------
    likelihood : str, cavity.likelihoods.Likelihood or None, default=None
        As for `EP`.
    """

    name = "sep"
    scheme = schemes.SEP()

    likelihood: Any = None

    @property
    def takes_order(self) -> bool:  # type: ignore[override]
        return self.likelihood is None


@METHODS.register
@dataclass(eq=False, repr=False)
class PowerEP(LikelihoodMethod):
    """Power EP: a cavity removes a part of each site. [METHOD 4]

    Parameters
    ----------
    power : float, default=0.5
        Part to remove, in (0, 1]. 1 is EP; towards 0 it approaches variational
        inference with the same factors.
    likelihood : str, cavity.likelihoods.Likelihood or None, default=None
        As for `EP`.
    """

    name = "pep"

    power: float = field(default=0.5, metadata=checked(number, 0.0, 1.0))
    likelihood: Any = None

    @property
    def scheme(self) -> Scheme:  # type: ignore[override]
        return schemes.PowerEP(removal=float(self.power))

    def check(self) -> Self:
        self._check_powers(super().check()._read_likelihood())
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return self._check_powers(super().make_likelihood(n_classes, learn))

    def _check_powers(self, likelihood: Likelihood) -> Likelihood:
        if not likelihood.tempers and self.power != 1:
            raise BadOption(
                f"{type(likelihood).__name__} has no fractional powers, which "
                f"PowerEP(power={self.power!r}) needs: use EP(likelihood=...), or a "
                "likelihood whose moments take exponents (tempers = True)."
            )

        return likelihood


@METHODS.register
@dataclass(eq=False, repr=False)
class REP(LikelihoodMethod):
    """Robust EP: a share of the labels is drawn at random. [METHOD 4]

    Single wrong labels matter less than in `EP`.

    Parameters
    ----------
    epsilon : float, default=0.001
        Share of random labels, in [0, 1). If 0, y is exactly the class with the largest
        latent value. With "epsilon" in `learn`, training starts at this value, or at
        0.1 if it is the default.
    sites : {"own", "tied"}, default="own"
        "own" stores the sites of each row. "tied" is robust SEP: memory does not depend
        on the number of rows.

    Examples
    --------
    >>> from cavity.methods import REP
    >>> REP(epsilon=0.05)
    REP(epsilon=0.05, sites='own')
    """

    name = "rep"

    epsilon: float = DEFAULT_EPSILON
    sites: str = field(default="own", metadata=checked(one_of, SITES))

    @property
    def scheme(self) -> Scheme:  # type: ignore[override]
        return schemes.SEP() if self.sites == "tied" else schemes.EP()

    def check(self) -> Self:
        check_epsilon(self.epsilon, "REP")
        return super().check()

    def _read_likelihood(self) -> Likelihood:
        return RobustMax(epsilon=self.epsilon)


@METHODS.register
class GFITC(LikelihoodMethod):
    """Generalised FITC: inducing values are marginalised, sites sit on f.

    Full batches only. [METHOD 4]
    """

    name = "gfitc"
    needs_all_rows = True
    takes_spectrum = False
    scheme = schemes.GFITC()
    full_batch_optimizer = "lbfgs"


@METHODS.register
@dataclass(eq=False, repr=False)
class VI(LikelihoodMethod):
    """Variational inference: maximises a lower bound on the evidence. [METHOD 9]

    Parameters
    ----------
    likelihood : str, cavity.likelihoods.Likelihood or None, default=None
        "robust-max", "softmax" or "probit", or an instance. If None, use "softmax",
        which predicts best, or "robust-max" if you set `epsilon`.
    epsilon : float, default=0.001
        Share of random labels of "robust-max", in (0, 1).
    bound : {"quadrature", "jaakkola", "taylor"}, default="quadrature"
        How the logarithm of the logistic curve is averaged, for two classes and
        "softmax".

        - "quadrature": by a one-dimensional integral.
        - "jaakkola": by the lower bound of Jaakkola and Jordan.
        - "taylor": by a second-order expansion, which is not a bound.
    predictive : {"quadrature", "probit"}, default="quadrature"
        How probabilities are averaged, for two classes and "softmax": "quadrature" by a
        one-dimensional integral, "probit" by σ(m/√(1 + πv/8)), which is off by at most
        0.02.
    q_update : {"natural", "gradient"}, default="natural"
        Natural-gradient steps of q, or gradient steps on its mean and Cholesky factor
        together with the hyper-parameters.

    Examples
    --------
    >>> from cavity.methods import VI
    >>> VI(bound="jaakkola").removal
    0.0
    """

    name = "vi"

    likelihood: Any = None
    epsilon: float = DEFAULT_EPSILON
    bound: str = field(default="quadrature", metadata=checked(one_of, BOUNDS))
    predictive: str = field(
        default="quadrature", metadata=checked(one_of, ("quadrature", "probit"))
    )
    q_update: str = field(default="natural", metadata=checked(one_of, Q_UPDATES))

    @property
    def scheme(self) -> Scheme:  # type: ignore[override]
        sites = Q_UPDATES[self.q_update]
        if self.bound == "quadrature":
            return schemes.VI(sites=sites, starts_from_ep=self._robust)

        # one step reaches the best q of a parabola
        return schemes.VI(sites=sites, damping=1.0)

    @property
    def full_batch_optimizer(self) -> str:  # type: ignore[override]
        return "lbfgs" if self.q_update == "gradient" else "sign"

    @property
    def _named(self) -> Any:
        """The likelihood, with its default filled in."""
        if self.likelihood is not None:
            return self.likelihood
        if self.bound == "quadrature" and self.epsilon != DEFAULT_EPSILON:
            return RobustMax.name

        return Softmax.name

    @property
    def _robust(self) -> bool:
        return self._named == RobustMax.name or isinstance(self._named, RobustMax)

    def check(self) -> Self:
        epsilon = check_epsilon(self.epsilon, "VI")
        super().check()
        for name in ("bound", "predictive"):
            value = getattr(self, name)
            if value != "quadrature" and self._named != Softmax.name:
                raise BadOption(
                    f"{name}={value!r} belongs to the logistic likelihood: use "
                    "likelihood='softmax', or leave it out."
                )

        if epsilon != DEFAULT_EPSILON and self._named != RobustMax.name:
            raise BadOption(
                f"epsilon={self.epsilon!r} belongs to likelihood='robust-max': leave "
                "it out, or use that likelihood by name."
            )
        if epsilon == 0 and self._robust:
            raise BadOption(
                "epsilon=0 makes the variational bound −∞: a single label that q does "
                "not explain for sure is enough. Use a positive epsilon=, "
                "method='rep', or likelihood='softmax'."
            )
        if self.bound == "taylor" and self.q_update == "gradient":
            raise _no_objective("q_update='gradient'")

        return self

    def _read_likelihood(self) -> Likelihood:
        if self._named == RobustMax.name:
            return RobustMax(epsilon=self.epsilon)

        return read_likelihood(self._named)

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        for name in ("bound", "predictive"):
            _check_two_classes(name, getattr(self, name), n_classes)
        if self._named == Softmax.name and n_classes == 2:
            return BOUNDS[self.bound](self.predictive)

        return super().make_likelihood(n_classes, learn)

    def check_training(
        self, *, optimizer: str, schedule: str, damping: float | None
    ) -> None:
        super().check_training(optimizer=optimizer, schedule=schedule, damping=damping)
        if self.bound == "taylor" and optimizer == "lbfgs":
            raise _no_objective("optimizer='lbfgs'")

        if self.q_update == "gradient":
            check_unswept(schedule, damping)

    def sampling_problem(self) -> str | None:
        if self._robust:
            return (
                "the robust-max bound has several optima of q, so its value is not "
                "unique for given hyper-parameters: use method='ep' or 'rep', or "
                "likelihood='softmax'."
            )
        if self.bound == "taylor":
            return (
                "bound='taylor' moves its expansion with q and has no value that "
                "belongs to given hyper-parameters: use bound='jaakkola'."
            )
        if self.q_update == "gradient":
            return no_sweeps()

        return super().sampling_problem()


def _no_objective(what: str) -> BadOption:
    return BadOption(
        f"bound='taylor' moves its expansion with q and has no objective that {what} "
        "could maximise: use q_update='natural' with optimizer='sign' or 'adam', or "
        "bound='jaakkola'."
    )


@METHODS.register
@dataclass(eq=False, repr=False)
class Laplace(Method):
    """Laplace's method: expands the log likelihood around the mode. [METHOD 4]

    The likelihood is the logistic curve for two classes, and the softmax, coupled, for
    more.

    Parameters
    ----------
    predictive : {"quadrature", "probit", "mode"}, default="quadrature"
        How probabilities are averaged over f, for two classes.

        - "quadrature": by a one-dimensional integral.
        - "probit": by σ(m/√(1 + πv/8)), which is off by at most 0.02.
        - "mode": not at all, σ(m) at the mode m. The most probable class is the same,
          but probabilities ignore the uncertainty of f.
    """

    name = "laplace"
    needs_all_rows = True
    in_memory = True
    latent_noise = False
    scheme = schemes.Laplace()
    full_batch_optimizer = "lbfgs"

    predictive: str = field(default="quadrature", metadata=checked(one_of, LOGISTIC))

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        _check_two_classes("predictive", self.predictive, n_classes)
        if n_classes == 2:
            return LogisticPoint(self.predictive)

        return Softmax(n_classes)


def _check_two_classes(name: str, value: str, n_classes: int) -> None:
    """Refuse a formula of the logistic function for more than two classes."""
    if value != "quadrature" and n_classes > 2:
        raise BadOption(
            f"{name}={value!r} is a formula for two classes, and y has {n_classes}: "
            f"use {name}='quadrature'."
        )
