"""The methods of classification, one class each. [METHOD 4]"""

from __future__ import annotations

import copy
from typing import Any, Self

from cavity.config.methods import METHODS, Q_UPDATES, Method, no_optimal_q
from cavity.config.values import number, one_of
from cavity.errors import BadOption
from cavity.factors import (
    LIKELIHOODS,
    Jaakkola,
    Likelihood,
    Logistic,
    LogisticPoint,
    ProbitPairs,
    RobustMax,
    Softmax,
    Taylor,
)

DEFAULT_EPSILON = 1e-3
LEARNT_EPSILON = (
    0.1  # where a learnt epsilon starts: too much label noise is unlearnt more easily than too little
)
SITES = ("own", "tied")
PREDICTIVES = ("quadrature", "probit")
BOUNDS: dict[str, type[Logistic]] = {"quadrature": Logistic, "jaakkola": Jaakkola, "taylor": Taylor}


def read_likelihood(value: Any) -> Likelihood:
    """Return a likelihood, given one or its registered name; the number of classes is not known yet."""
    names = LIKELIHOODS.short_names()
    if isinstance(value, str) and value in names:
        return names[value]()
    if isinstance(value, Likelihood):
        return value
    raise BadOption(
        f"likelihood={value!r:.80} is unknown; use one of {', '.join(map(repr, names))}, or an instance of "
        "cavity.factors.Likelihood."
    )


class _ProbitMethod(Method):
    """EP with the pairwise probit factors, or with another likelihood."""

    def __init__(self, likelihood: Any = None) -> None:
        self.likelihood = likelihood

    @property
    def label_noise(self) -> float | None:
        return self._read_likelihood().epsilon

    def check(self) -> Self:
        self._read_likelihood()
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return bind_likelihood(self._read_likelihood(), n_classes, learn)

    def _read_likelihood(self) -> Likelihood:
        return ProbitPairs() if self.likelihood is None else read_likelihood(self.likelihood)


def bind_likelihood(likelihood: Likelihood, n_classes: int, learn: frozenset[str]) -> Likelihood:
    """Return a copy of the likelihood for this number of classes, its epsilon learnt if `learn` says so."""
    if "epsilon" in learn:
        start = LEARNT_EPSILON if likelihood.epsilon == DEFAULT_EPSILON else likelihood.epsilon
        likelihood = copy.deepcopy(likelihood).set_params(epsilon=start, learn=True)
    return likelihood.bind(n_classes)


def check_epsilon(value: Any, owner: str) -> float:
    """Check a share of random labels."""
    epsilon = number("epsilon", value, 0.0, 1.0, strict=False)
    if epsilon == 1:
        raise BadOption(
            f"epsilon=1 of {owner} says that every label is random: nothing can be learnt; use a share below 1."
        )
    return epsilon


@METHODS.register
class Auto(Method):
    """What the library recommends: EP, or SEP for rows that come from a stream without row numbers.

    SEP also takes the place of EP where the sites of more than 30 classes would need more than 2 GB.

    The kernel is `RBF() + Linear()` where there are at least two inducing points per feature, and hyper-parameters are
    partially pooled across classes and features (`share="prior"`), unless you choose otherwise.

    Parameters
    ----------
    robust : bool
        Whether a share of the labels is random, as in `REP`, which takes the place of EP. With "epsilon" in `learn` that share is
        learnt.

    Examples
    --------
    >>> from cavity import GPClassifier
    >>> from cavity.methods import Auto
    >>> GPClassifier().method, Auto().name
    ('auto', 'auto')
    """

    name = "auto"
    recommended = True
    grows = True

    def __init__(self, robust: bool = False) -> None:
        self.robust = robust

    @property
    def label_noise(self) -> float | None:
        return DEFAULT_EPSILON if self.robust else None

    def resolve(self, numbered: bool) -> Method:
        if self.robust:
            return REP(sites="own" if numbered else "tied")
        return EP() if numbered else SEP()

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return self.resolve(True).make_likelihood(n_classes, learn)


@METHODS.register
class EP(_ProbitMethod):
    """Expectation propagation: one pair of numbers per site, O(NC) memory. [METHOD 4]

    Parameters
    ----------
    likelihood : None, str or cavity.factors.Likelihood
        None: one probit factor per rival class, in closed form. Otherwise a registered name, or an instance.

    Examples
    --------
    >>> from cavity.methods import EP
    >>> EP()
    EP(likelihood=None)
    """

    name = "ep"


@METHODS.register
class SEP(_ProbitMethod):
    """Stochastic EP: stores only sums of sites, so memory does not depend on the number of rows. [METHOD 4]

    Parameters
    ----------
    likelihood : None, str or cavity.factors.Likelihood
        As for `EP`.

    Examples
    --------
    >>> from cavity.methods import SEP
    >>> SEP().site_store
    'tied'
    """

    name = "sep"
    site_store = "tied"


@METHODS.register
class PowerEP(_ProbitMethod):
    """Power EP: a cavity removes a part of each site. [METHOD 4]

    Parameters
    ----------
    power : float in (0, 1]
        1 is EP; towards 0 it approaches variational inference with the same factors.
    likelihood : None, str or cavity.factors.Likelihood
        As for `EP`.

    Examples
    --------
    >>> from cavity.methods import PowerEP
    >>> PowerEP(power=0.3)
    PowerEP(power=0.3, likelihood=None)
    """

    name = "pep"

    def __init__(self, power: float = 0.5, likelihood: Any = None) -> None:
        super().__init__(likelihood)
        self.power = power

    @property
    def removal(self) -> float:  # type: ignore[override]
        return float(self.power)

    def check(self) -> Self:
        number("power", self.power, 0.0, 1.0)
        self._check_powers(self._read_likelihood())
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return self._check_powers(super().make_likelihood(n_classes, learn))

    def _check_powers(self, likelihood: Likelihood) -> Likelihood:
        if not likelihood.tempers and self.power != 1:
            raise BadOption(
                f"{type(likelihood).__name__} has no fractional powers, which PowerEP(power={self.power!r}) needs: use "
                "EP(likelihood=...), or a likelihood whose moments take exponents (tempers = True)."
            )
        return likelihood


@METHODS.register
class REP(Method):
    """Robust EP: a share of the labels is drawn at random, so single wrong labels matter less. [METHOD 4]

    Parameters
    ----------
    epsilon : float in [0, 1)
        Share of random labels. With "epsilon" in `learn` it is where training starts (0.1 for the default value). 0: y is
        exactly the class with the largest latent value.
    sites : {"own", "tied"}
        "tied" is robust SEP: memory does not depend on the number of rows.

    Examples
    --------
    >>> from cavity.methods import REP
    >>> REP(epsilon=0.05)
    REP(epsilon=0.05, sites='own')
    """

    name = "rep"

    def __init__(self, epsilon: float = DEFAULT_EPSILON, sites: str = "own") -> None:
        self.epsilon = epsilon
        self.sites = sites

    @property
    def site_store(self) -> str:  # type: ignore[override]
        return self.sites

    @property
    def label_noise(self) -> float | None:
        return self.epsilon

    def check(self) -> Self:
        one_of("sites", self.sites, SITES)
        check_epsilon(self.epsilon, "REP")
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return bind_likelihood(RobustMax(epsilon=self.epsilon), n_classes, learn)


@METHODS.register
class GFITC(Method):
    """Generalised FITC: inducing values are marginalised, sites sit on f. Full batches only. [METHOD 4]

    Examples
    --------
    >>> from cavity.methods import GFITC
    >>> GFITC().needs_all_rows
    True
    """

    name = "gfitc"
    needs_all_rows = True
    takes_spectrum = False
    placement = "f"
    sweep_damping = 0.8  # 0.5 takes twice as many sweeps to converge, 1 does not converge
    full_batch_optimizer = "lbfgs"

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return ProbitPairs().bind(n_classes)


@METHODS.register
class VI(Method):
    """Variational inference: maximises a lower bound on the evidence. [METHOD 9]

    Parameters
    ----------
    likelihood : None, "robust-max", "softmax", "probit" or cavity.factors.Likelihood
        None: "robust-max", or "softmax" if `bound` is not "quadrature".
    q_update : {"natural", "gradient"}
        Natural-gradient steps of the sites, or gradient steps on the mean and Cholesky factor of q together with the
        hyper-parameters.
    bound : {"quadrature", "jaakkola", "taylor"}
        For two classes and the logistic likelihood: its average by quadrature, Jaakkola and Jordan's lower bound, or a
        second-order expansion, which is not a bound.
    epsilon : float in (0, 1)
        Share of random labels of "robust-max".
    predictive : {"quadrature", "probit"}
        For two classes and the logistic likelihood: probabilities by quadrature, or by σ(m/√(1 + πv/8)).

    Examples
    --------
    >>> from cavity.methods import VI
    >>> VI(likelihood="softmax").removal
    0.0
    """

    name = "vi"
    removal = 0.0

    def __init__(
        self,
        likelihood: Any = None,
        q_update: str = "natural",
        bound: str = "quadrature",
        epsilon: float = DEFAULT_EPSILON,
        predictive: str = "quadrature",
    ) -> None:
        self.likelihood = likelihood
        self.q_update = q_update
        self.bound = bound
        self.epsilon = epsilon
        self.predictive = predictive

    @property
    def site_store(self) -> str:  # type: ignore[override]
        return "free" if self.q_update == "gradient" else "averaged"

    @property
    def sweep_damping(self) -> float:  # type: ignore[override]
        # by quadrature 0.5 needs repairs and 1 does not converge; with a bound the best q has a closed form
        return 0.2 if self.bound == "quadrature" else 1.0

    @property
    def full_batch_optimizer(self) -> str:  # type: ignore[override]
        return "lbfgs" if self.q_update == "gradient" else "sign"

    @property
    def starts_from_ep(self) -> bool:  # type: ignore[override]
        return self._robust

    @property
    def label_noise(self) -> float | None:
        if isinstance(self.likelihood, Likelihood):
            return self.likelihood.epsilon
        return self.epsilon if self._robust else None

    @property
    def _family(self) -> str:
        """The likelihood's name; "" for an instance that has none."""
        if self.likelihood is None:
            return RobustMax.name if self.bound == "quadrature" else Softmax.name
        return self.likelihood if isinstance(self.likelihood, str) else type(self.likelihood).name

    @property
    def _robust(self) -> bool:
        return self._family == RobustMax.name

    def check(self) -> Self:
        one_of("q_update", self.q_update, Q_UPDATES)
        one_of("bound", self.bound, BOUNDS)
        one_of("predictive", self.predictive, PREDICTIVES)
        epsilon = check_epsilon(self.epsilon, "VI")
        if self.likelihood is not None:
            read_likelihood(self.likelihood)
        if self.bound != "quadrature" and self._family != Softmax.name:
            raise BadOption(
                f"bound={self.bound!r} belongs to the logistic likelihood: leave likelihood out, or use likelihood='softmax'."
            )
        if self.bound == "taylor" and self.q_update == "gradient":
            raise _no_objective("q_update='gradient'")
        if self.predictive != "quadrature" and self._family != Softmax.name:
            raise BadOption(
                f"predictive={self.predictive!r} averages the logistic function: use likelihood='softmax', or method='laplace'."
            )
        if epsilon != DEFAULT_EPSILON and not (self._robust and not isinstance(self.likelihood, Likelihood)):
            raise BadOption(
                f"epsilon={self.epsilon!r} belongs to likelihood='robust-max': leave it out, or use that likelihood by name."
            )
        if epsilon == 0 and self._robust:
            raise BadOption(
                "epsilon=0 makes the variational bound −∞: a single label that q does not explain for sure is enough. Use a "
                "positive epsilon=, method='rep', or likelihood='softmax'."
            )
        return self

    def check_training(self, *, optimizer: str, schedule: str, damping: float | None) -> None:
        if self.bound == "taylor" and optimizer == "lbfgs":
            raise _no_objective("optimizer='lbfgs'")
        if self.q_update == "gradient":
            for name, value, default in (("damping", damping, None), ("schedule", schedule, "inner-approx")):
                if value != default:
                    raise BadOption(
                        f"{name}={value!r} is not used with q_update='gradient', which optimises q and the hyper-parameters "
                        "together; use q_update='natural', or leave it out."
                    )

    def check_classes(self, n_classes: int) -> None:
        if self.bound != "quadrature" and n_classes > 2:
            raise BadOption(
                f"bound={self.bound!r} is for two classes, and y has {n_classes}: use bound='quadrature'."
            )
        check_predictive(self.predictive, n_classes)

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        if isinstance(self.likelihood, Likelihood):
            return bind_likelihood(self.likelihood, n_classes, learn)
        if self._family == Softmax.name and n_classes == 2:
            return BOUNDS[self.bound](self.predictive == "probit")
        if self._robust:
            return bind_likelihood(RobustMax(epsilon=self.epsilon), n_classes, learn)
        return bind_likelihood(read_likelihood(self._family), n_classes, learn)

    def sampling_problem(self) -> str | None:
        if self._robust:
            return (
                "the robust-max bound has several optima of q, so its value is not unique for given hyper-parameters: use "
                "method='ep' or 'rep', or likelihood='softmax'."
            )
        if self.q_update == "gradient" or self.bound == "taylor":
            return no_optimal_q("q_update='gradient'" if self.q_update == "gradient" else "bound='taylor'")
        return super().sampling_problem()


def _no_objective(what: str) -> BadOption:
    return BadOption(
        f"bound='taylor' moves its expansion with q and has no objective that {what} could maximise: use q_update='natural' "
        "with optimizer='adam' or 'sign', or bound='jaakkola'."
    )


def check_predictive(predictive: str, n_classes: int) -> None:
    """Refuse the probit formula for more than two classes."""
    if predictive == "probit" and n_classes > 2:
        raise BadOption(
            f"predictive='probit' is a formula for two classes, and y has {n_classes}: use predictive='quadrature'."
        )


@METHODS.register
class Laplace(Method):
    """Laplace's method: expands the logistic (two classes) or the softmax (more, coupled) around the mode. [METHOD 4]

    Parameters
    ----------
    predictive : {"quadrature", "probit"}
        For two classes: probabilities by quadrature, or by σ(m/√(1 + πv/8)), which is off by at most 0.02.

    Examples
    --------
    >>> from cavity.methods import Laplace
    >>> Laplace().in_memory
    True
    """

    name = "laplace"
    needs_all_rows = True
    in_memory = True
    latent_noise = False
    placement = "mode"
    sweep_damping = 1.0  # Newton steps
    full_batch_optimizer = "lbfgs"

    def __init__(self, predictive: str = "quadrature") -> None:
        self.predictive = predictive

    def check(self) -> Self:
        one_of("predictive", self.predictive, PREDICTIVES)
        return self

    def check_classes(self, n_classes: int) -> None:
        check_predictive(self.predictive, n_classes)

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return LogisticPoint(self.predictive == "probit") if n_classes == 2 else Softmax(n_classes)
