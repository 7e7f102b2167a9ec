"""The methods of classification, one class each. [METHOD 4]

A method is a point in the space that one engine spans: a likelihood, a way of storing sites, how much of a site a cavity
removes, and where sites sit. Everything that the rest of the library asks about a method is a field here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

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
from cavity.params import Parameters
from cavity.registry import Registry

DEFAULT_EPSILON = 1e-3
LEARNT_EPSILON = (
    0.1  # start of a learnt epsilon: training unlearns too much label noise more easily than too little
)
SITES = ("own", "tied")
Q_UPDATES = ("natural", "gradient")
PREDICTIVES = ("quadrature", "probit")
BOUNDS: dict[str, type[Logistic]] = {"quadrature": Logistic, "jaakkola": Jaakkola, "taylor": Taylor}


class Method(Parameters):
    """Base class of all methods: what a method needs, and where it stands in the engine's space.

    To add a method, derive from this class, override fields, and register the class with `@METHODS.register`.
    """

    name: ClassVar[str] = ""  # for method="..."
    task: ClassVar[str] = "classification"

    # What it needs.
    needs_all_rows: ClassVar[bool] = False  # every step reads the whole table: no mini-batches
    in_memory: ClassVar[bool] = False  # rows must be an array: no source, no memory map
    keeps_rows: ClassVar[bool] = False  # predictions read the training rows
    needs_noise: ClassVar[bool] = False  # noise=0 leaves it without a density
    latent_noise: ClassVar[bool] = True  # the latent functions have noise of their own
    fixed_inducing: ClassVar[bool] = False  # inducing points are rows, never learnt
    takes_spectrum: ClassVar[bool] = True  # works with inducing="spectrum"
    recommended: ClassVar[bool] = False  # open choices (kernel, prior, epochs) are the library's

    # Where it stands in the engine's space. Some depend on options and are properties of subclasses.
    site_store: str = (
        "own"  # own (one per row), tied (sums only), averaged (natural gradients), free (mean and factor)
    )
    removal: float = 1.0  # share of a site that a cavity removes: 1 EP, p power EP, 0 variational
    placement: str = "t"  # sites on t = a·w, on f ("f": residual eliminated), or at the mode of f ("mode")
    linear: bool = False  # sites do not depend on q: a Gaussian likelihood
    settles: bool = False  # sites converge before every step of the hyper-parameters
    sweep_damping: float = 0.5  # of full sweeps; undamped parallel updates can diverge
    starts_from_ep: bool = (
        False  # moment matching finds the first q: the objective has poor optima near the prior
    )
    full_batch_optimizer: str = "sign"

    @property
    def variational(self) -> bool:
        """Whether cavities remove nothing."""
        return self.removal == 0

    @property
    def on_f(self) -> bool:
        """Whether sites sit on f, with the inducing values marginalised."""
        return self.placement != "t"

    @property
    def at_mode(self) -> bool:
        """Whether a cavity is a point (Laplace)."""
        return self.placement == "mode"

    @property
    def sweeps_first(self) -> bool:
        """Whether sites converge before every step of the hyper-parameters."""
        return self.on_f or self.settles

    @property
    def grows(self) -> bool:
        """Whether `partial_fit` can add rows."""
        return self.site_store == "tied"

    @property
    def learns(self) -> frozenset[str]:
        """The names that `learn` may have."""
        return frozenset({"kernel", "noise", "inducing", "frequencies"})

    @property
    def label(self) -> str:
        """The method in files: its name, or its constructor call if an option differs from the default."""
        return self.name if self == type(self)() else repr(self)

    @property
    def argument(self) -> str:
        """The method in messages: `method='ep'`, or `method=REP(epsilon=0.1, sites='own')`."""
        return f"method={self.name!r}" if self.label == self.name else f"method={self!r}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.get_params(deep=False) == other.get_params(deep=False)

    def __hash__(self) -> int:
        return hash(repr(self))

    def check(self) -> Self:
        """Check the method's own options."""
        return self

    def check_training(self, *, optimizer: str, schedule: str, damping: float | None) -> None:
        """Refuse an optimiser, schedule or damping that the method cannot use."""
        if self.site_store == "tied" and optimizer == "lbfgs":
            raise BadOption(
                f"optimizer='lbfgs' needs the gradient of the converged log Z_q. {self.argument} ties its sites, and its gradient "
                "holds their sums fixed: with few rows it can point the wrong way, and L-BFGS stops early. Use optimizer='sign' or "
                "'adam', or method='ep', whose gradient is exact at the fixed point."
            )

    def check_classes(self, n_classes: int) -> None:
        """Refuse options that do not work for this number of classes."""

    def resolve(self, numbered: bool) -> Method:
        """Return the method itself; `Auto` chooses one. `numbered`: rows have numbers, so that they can own sites."""
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        """Make the likelihood for this number of classes."""
        raise NotImplementedError

    def sampling_problem(self) -> str | None:
        """Return why hyper-parameters cannot be sampled with this method, and what to use; None if they can."""
        if self.site_store == "tied":
            return (
                f"{self.argument} ties its sites and has only an estimate of its evidence's gradient: use method='ep', 'rep' "
                "with sites='own', 'pep', 'vi' or 'laplace'."
            )
        return None


METHODS: Registry[Method] = Registry("method")


def method_names(task: str) -> dict[str, type[Method]]:
    """Return the methods of a task by name."""
    return {cls.name: cls for cls in METHODS.classes() if cls.task == task}


def read_method(value: Any, task: str) -> Method:
    """Return a checked method object, given one or its name."""
    known = method_names(task)
    if isinstance(value, str):
        return known[one_of("method", value, known)]()
    if not isinstance(value, Method) or value.task != task:
        names = ", ".join(map(repr, known))
        objects = ", ".join(f"{cls.__name__}()" for cls in known.values())
        what = f"a method of {value.task}" if isinstance(value, Method) else "not a method"
        raise BadOption(
            f"method={value!r:.80} is {what}; use one of {names}, or an object of cavity.methods: {objects}."
        )
    return value.check()


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
    def learns(self) -> frozenset[str]:
        own = (
            {"epsilon"}
            if isinstance(self.likelihood, RobustMax) or self.likelihood == RobustMax.name
            else set()
        )
        return super().learns | own

    def check(self) -> Self:
        if self.likelihood is not None:
            read_likelihood(self.likelihood)
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return bind_likelihood(
            ProbitPairs() if self.likelihood is None else self.likelihood, n_classes, learn
        )


def bind_likelihood(likelihood: Any, n_classes: int, learn: frozenset[str]) -> Likelihood:
    """Return a copy of the likelihood for this number of classes, its epsilon learnt if `learn` says so."""
    found = read_likelihood(likelihood)
    if isinstance(found, RobustMax) and "epsilon" in learn:
        found = RobustMax(epsilon=start_of_epsilon(found.epsilon), learn=True)
    return found.bind(n_classes)


def start_of_epsilon(epsilon: float) -> float:
    """Return where a learnt epsilon starts: the default is too small to move."""
    return LEARNT_EPSILON if epsilon == DEFAULT_EPSILON else epsilon


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

    The kernel is `RBF() + Linear()` where there are at least two inducing points per feature, and hyper-parameters are
    partially pooled across classes and features (`share="prior"`), unless you choose otherwise.

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

    def resolve(self, numbered: bool) -> Method:
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
        return super().check()

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        likelihood = super().make_likelihood(n_classes, learn)
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
    def learns(self) -> frozenset[str]:
        return super().learns | {"epsilon"}

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
        None: "robust-max", or "softmax" if `bound` says so.
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
        return (
            0.2 if self.bound == "quadrature" else 1.0
        )  # 0.5 needs repairs, 1 does not converge; a bound has a closed form

    @property
    def full_batch_optimizer(self) -> str:  # type: ignore[override]
        return "lbfgs" if self.q_update == "gradient" else "sign"

    @property
    def starts_from_ep(self) -> bool:  # type: ignore[override]
        return self._robust

    @property
    def learns(self) -> frozenset[str]:
        return super().learns | ({"epsilon"} if self._robust else set())

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
        return bind_likelihood(self._family, n_classes, learn)

    def sampling_problem(self) -> str | None:
        if self._robust:
            return (
                "the robust-max bound has several optima of q, so its value is not unique for given hyper-parameters: use "
                "method='ep' or 'rep', or likelihood='softmax'."
            )
        if self.q_update == "gradient" or self.bound == "taylor":
            what = "q_update='gradient'" if self.q_update == "gradient" else "bound='taylor'"
            return (
                f"{what} has no optimal q for given hyper-parameters that sweeps could find: fit without it."
            )
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
