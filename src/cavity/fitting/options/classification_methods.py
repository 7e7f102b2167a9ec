"""The methods of classification, one class each: EP and its variants, variational
inference and Laplace's method. [METHOD 4, 9]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from cavity.engine import methods as schemes
from cavity.engine.likelihoods import Likelihood, LogisticPoint, RobustMax, Softmax
from cavity.engine.methods import Scheme
from cavity.errors import BadOption
from cavity.fitting.options.method import (
    DEFAULT_EPSILON,
    METHODS,
    LikelihoodMethod,
    Method,
    check_epsilon,
)
from cavity.fitting.options.value_checks import checked, number, one_of

SITES = ("own", "tied")


@METHODS.register
class Auto(LikelihoodMethod):
    """What the library recommends: EP, or SEP where the sites of all rows would need
    more than 2 GB, and for `partial_fit`.

    The kernel is `RBF() + Linear(fades=True)` where there are at least two inducing
    points per feature, and hyper-parameters are partially pooled across classes and
    features (`share="prior"`), unless you choose otherwise.
    """

    name = "auto"
    recommended = grows = True

    def resolve(self, numbered: bool) -> Method:
        return EP() if numbered else SEP()


@METHODS.register
@dataclass(eq=False, repr=False)
class EP(LikelihoodMethod):
    """Expectation propagation: one pair of numbers per site, O(NC) memory. [METHOD 4]

    Parameters
    ----------
    likelihood : None, str or cavity.likelihoods.Likelihood
        None: one probit factor per rival class, in closed form. Otherwise a registered
        name, or an instance.
    """

    name = "ep"

    likelihood: Any = None


@METHODS.register
@dataclass(eq=False, repr=False)
class SEP(LikelihoodMethod):
    """Stochastic EP: stores only sums of sites, so memory does not depend on the number
    of rows. [METHOD 4]

    Parameters
    ----------
    likelihood : None, str or cavity.likelihoods.Likelihood
        As for `EP`.
    """

    name = "sep"
    scheme = schemes.SEP()

    likelihood: Any = None


@METHODS.register
@dataclass(eq=False, repr=False)
class PowerEP(LikelihoodMethod):
    """Power EP: a cavity removes a part of each site. [METHOD 4]

    Parameters
    ----------
    power : float in (0, 1]
        1 is EP; towards 0 it approaches variational inference with the same factors.
    likelihood : None, str or cavity.likelihoods.Likelihood
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
                f"PowerEP(power={self.power!r}) needs: use "
                "EP(likelihood=...), or a likelihood whose moments take exponents "
                "(tempers = True)."
            )
        return likelihood


@METHODS.register
@dataclass(eq=False, repr=False)
class REP(LikelihoodMethod):
    """Robust EP: a share of the labels is drawn at random, so single wrong labels
    matter less. [METHOD 4]

    Parameters
    ----------
    epsilon : float in [0, 1)
        Share of random labels. With "epsilon" in `learn` it is where training starts
        (0.1 for the default value). 0: y is exactly the class with the largest latent
        value.
    sites : {"own", "tied"}
        "tied" is robust SEP: memory does not depend on the number of rows.

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
    scheme = schemes.GFITC()
    full_batch_optimizer = "lbfgs"


@METHODS.register
@dataclass(eq=False, repr=False)
class VI(LikelihoodMethod):
    """Variational inference: maximises a lower bound on the evidence by natural
    gradients. [METHOD 9]

    Parameters
    ----------
    likelihood : None, "robust-max", "softmax", "probit" or
    cavity.likelihoods.Likelihood
        None: "robust-max".
    epsilon : float in (0, 1)
        Share of random labels of "robust-max".

    Examples
    --------
    >>> from cavity.methods import VI
    >>> VI(likelihood="softmax").removal
    0.0
    """

    name = "vi"

    likelihood: Any = None
    epsilon: float = DEFAULT_EPSILON

    @property
    def scheme(self) -> Scheme:  # type: ignore[override]
        return schemes.VI(starts_from_ep=self._robust)

    @property
    def _robust(self) -> bool:
        return self.likelihood in (None, RobustMax.name) or isinstance(
            self.likelihood, RobustMax
        )

    def check(self) -> Self:
        epsilon = check_epsilon(self.epsilon, "VI")
        super().check()
        if epsilon != DEFAULT_EPSILON and self.likelihood not in (None, RobustMax.name):
            raise BadOption(
                f"epsilon={self.epsilon!r} belongs to likelihood='robust-max': leave "
                f"it out, or use that likelihood by name."
            )
        if epsilon == 0 and self._robust:
            raise BadOption(
                "epsilon=0 makes the variational bound −∞: a single label that q does "
                "not explain for sure is enough. Use a "
                "positive epsilon=, method='rep', or likelihood='softmax'."
            )
        return self

    def _read_likelihood(self) -> Likelihood:
        named = self.likelihood in (None, RobustMax.name)
        if named:
            return RobustMax(epsilon=self.epsilon)
        return super()._read_likelihood()

    def sampling_problem(self) -> str | None:
        if self._robust:
            return (
                "the robust-max bound has several optima of q, so its value is not "
                "unique for given hyper-parameters: use "
                "method='ep' or 'rep', or likelihood='softmax'."
            )
        return super().sampling_problem()


@METHODS.register
class Laplace(Method):
    """Laplace's method: expands the logistic (two classes) or the softmax (more,
    coupled) around the mode. [METHOD 4]
    """

    name = "laplace"
    needs_all_rows = True
    in_memory = True
    latent_noise = False
    scheme = schemes.Laplace()
    full_batch_optimizer = "lbfgs"

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        if n_classes == 2:
            return LogisticPoint()
        return Softmax(n_classes)
