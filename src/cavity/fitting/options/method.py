"""What a method is, and the registry of methods. [METHOD 4]

A method is a point in the space that one engine spans, its `scheme`, with a likelihood.
Everything that the rest of the library asks about a method is a field here.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import numpy as np

from cavity.common.params import Parameters
from cavity.common.registry import Registry
from cavity.engine import methods as schemes
from cavity.engine.likelihoods import LIKELIHOODS, Likelihood, ProbitPairs
from cavity.engine.methods import Scheme, Store
from cavity.engine.parameters import Setting, find_start
from cavity.errors import BadOption
from cavity.fitting.options.value_checks import number, one_of, read_declared

# what log Z_q can be: see Method.name_evidence
EVIDENCE = "log marginal likelihood"
OBJECTIVE = "log Z_q"
BOUND = f"lower bound on the {EVIDENCE}"
DEFAULT_EPSILON = 1e-3
# where a learnt epsilon starts: too much label noise is unlearnt more easily than too
# little
LEARNT_EPSILON = 0.1


class Method(Parameters):
    """Base class of all methods: where a method stands in the engine's space.

    To add a method, derive from this class, override attributes, and register the class
    with `@METHODS.register`. The source says what each attribute means.

    Examples
    --------
    >>> from cavity.methods import EP
    >>> from cavity import engine
    >>> class SlowEP(EP):
    ...     scheme = engine.EP(damping=0.1)
    >>> SlowEP().sweep_damping, SlowEP().site_store
    (0.1, 'own')
    """

    name: ClassVar[str] = ""  # short name, for `method="..."`
    task: ClassVar[str] = "classification"  # or "regression"

    # no mini-batches: sites converge before every step
    needs_all_rows: ClassVar[bool] = False
    in_memory: ClassVar[bool] = False  # rows must be an array: no source
    keeps_rows: ClassVar[bool] = False  # predictions read the training rows
    latent_noise: ClassVar[bool] = True  # the latent functions have noise of their own
    takes_spectrum: ClassVar[bool] = True  # works with inducing="spectrum"
    recommended: ClassVar[bool] = False  # the library chooses what the user leaves open
    takes_order: bool = False  # runs with the likelihood of ordered classes
    predicts_residual: ClassVar[bool] = True  # predictive variances have the residual
    # The argument `inducing`, every distinct row ("rows"), an active set ("subset"), or
    # "members" of a committee.
    inducing_from: ClassVar[str] = "chosen"

    # Properties of a subclass where they depend on its options.
    # what the engine is told: store of sites, removal, placement, damping
    scheme: Scheme = schemes.EP()
    full_batch_optimizer: str = "sign"  # what optimizer="auto" means on full batches
    # number of members, and how rows are assigned to them
    committee: tuple[int, str] | None = None
    solver_tol: float = (
        0.0  # relative residual of conjugate gradients; 0: a low-rank system, exactly
    )

    @property
    def site_store(self) -> str:
        """How sites are stored: "own", "tied", "averaged" or "free" (not at all)."""
        return self.scheme.sites

    @property
    def removal(self) -> float:
        """Share of a site that a cavity removes."""
        return self.scheme.removal

    @property
    def sweep_damping(self) -> float:
        """Damping of full sweeps."""
        return self.scheme.damping

    @property
    def variational(self) -> bool:
        """Whether cavities remove nothing."""
        return self.scheme.variational

    @property
    def on_f(self) -> bool:
        """Whether sites sit on f, with the inducing values marginalised."""
        return self.scheme.on_f

    @property
    def at_mode(self) -> bool:
        """Whether a cavity is a point (Laplace)."""
        return self.scheme.at_mode

    @property
    def exact_jitter(self) -> bool:
        """Whether Z is X: only the jitter separates the model from the exact one."""
        return self.inducing_from != "chosen"

    @property
    def grows(self) -> bool:
        """Whether `partial_fit` can add rows."""
        return self.scheme.tied

    @property
    def label_noise(self) -> float | None:
        """Share of random labels; None for a likelihood without one.

        `learn` may contain it as "epsilon".
        """
        return None

    @property
    def label(self) -> str:
        """The method in files: its name, or its constructor call with options."""
        if self == type(self)():
            return self.name

        return repr(self)

    @property
    def argument(self) -> str:
        """The method in messages: `method='ep'`, or `method=REP(epsilon=0.1)`."""
        if self.label == self.name:
            return f"method={self.name!r}"

        return f"method={self!r}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.get_params(
            deep=False
        ) == other.get_params(deep=False)

    def __hash__(self) -> int:
        return hash(repr(self))

    def check(self) -> Self:
        """Check the method's own options, and return the method."""
        read_declared(type(self), vars(self))
        return self

    def check_training(
        self, *, optimizer: str, schedule: str, damping: float | None
    ) -> None:
        """Raise BadOption if the method cannot use an optimizer, schedule or damping."""
        if self.scheme.tied and optimizer == "lbfgs":
            raise BadOption(
                f"optimizer='lbfgs' needs the gradient of the converged log Z_q. "
                f"{self.argument} ties its sites, and its gradient "
                "holds their sums fixed: with few rows it can point the wrong way, and "
                "L-BFGS stops early. Use optimizer='sign' or "
                "'adam', or method='ep', whose gradient is exact at the fixed point."
            )

    def resolve(self, numbered: bool) -> Method:
        """Return the method that runs: the method itself, or what `Auto` chooses.

        `numbered` rows can own sites.
        """
        return self

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        """Make the likelihood for this number of classes.

        `learn` says what is learnt, as in the estimator.
        """
        raise NotImplementedError

    def name_evidence(self, n_classes: int) -> str:
        """Return what log Z_q is with this number of classes.

        "log marginal likelihood" if a model that knows nothing has that of guessing, so
        that methods can be compared; "lower bound on the log marginal likelihood"; or
        "log Z_q", which compares only fits of one method to the same rows.
        """
        likelihood = self.make_likelihood(n_classes, frozenset())
        if self.variational:
            return BOUND if likelihood.bounds else OBJECTIVE
        # on f there is no residual
        if likelihood.sums_to_one or self.on_f:
            return EVIDENCE

        return OBJECTIVE

    def sampling_problem(self) -> str | None:
        """Return why hyper-parameters cannot be sampled; None if they can.

        The text says what to use instead.
        """
        if self.scheme.tied:
            return (
                f"{self.argument} ties its sites and has only an estimate of its "
                f"evidence's gradient: use method='ep', 'rep' "
                "with sites='own', 'pep', 'vi' or 'laplace'."
            )

        return None


class LikelihoodMethod(Method):
    """A method of one likelihood: the pairwise probit factors, or another."""

    likelihood: Any = None

    @property
    def label_noise(self) -> float | None:
        return self._read_likelihood().epsilon

    def check(self) -> Self:
        self._read_likelihood()
        return super().check()

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        likelihood = self._read_likelihood()
        if "epsilon" in learn:
            start = likelihood.get_params()["epsilon"]
            if not isinstance(start, Setting) and start == DEFAULT_EPSILON:
                start = LEARNT_EPSILON
            likelihood = copy.deepcopy(likelihood).set_params(epsilon=start, learn=True)

        return likelihood.bind(n_classes)

    def _read_likelihood(self) -> Likelihood:
        if self.likelihood is None:
            return ProbitPairs()

        return read_likelihood(self.likelihood)


def no_sweeps() -> str:
    """Return why free parameters of q have no log Z_q at other hyper-parameters."""
    return (
        "q_update='gradient' has no sweeps that find the best q at given "
        "hyper-parameters: use q_update='natural'."
    )


def check_unswept(schedule: str, damping: float | None) -> None:
    """Refuse options of sweeps for q_update="gradient", which makes none."""
    given = {"damping": (damping, None), "schedule": (schedule, "inner-approx")}
    for name, (value, usual) in given.items():
        if value != usual:
            raise BadOption(
                f"{name}={value!r} belongs to sweeps, which q_update='gradient' does "
                "not make: leave it out, or use q_update='natural'."
            )


METHODS: Registry[Method] = Registry("method")
Q_UPDATES: dict[str, Store] = {"natural": "averaged", "gradient": "free"}


def method_names(task: str) -> dict[str, type[Method]]:
    return {
        cls.name: cls
        for cls in METHODS.classes()
        if cls.task == task and "name" in vars(cls)
    }


def read_method(value: Any, task: str) -> Method:
    known = method_names(task)
    if isinstance(value, str):
        return known[one_of("method", value, known)]()
    if not isinstance(value, Method) or value.task != task:
        names = ", ".join(map(repr, known))
        objects = ", ".join(f"{cls.__name__}()" for cls in known.values())
        what = "not a method"
        if isinstance(value, Method):
            what = f"a method of {value.task}"
        raise BadOption(
            f"method={value!r:.80} is {what}; use one of {names}, or an object of "
            f"cavity.methods: {objects}."
        )

    return value.check()


def read_likelihood(value: Any) -> Likelihood:
    """Return a likelihood, given an instance or its registered name.

    It is not bound to a number of classes yet.
    """
    names = LIKELIHOODS.short_names()
    if isinstance(value, str) and value in names:
        return names[value]()
    if isinstance(value, Likelihood):
        return value

    raise BadOption(
        f"likelihood={value!r:.80} is unknown; use one of "
        f"{', '.join(map(repr, sorted(names)))}, or an instance of "
        "cavity.likelihoods.Likelihood."
    )


def check_epsilon(value: Any, owner: str) -> float:
    start = find_start(value, DEFAULT_EPSILON, "epsilon")
    if isinstance(start, np.ndarray):
        start = start.item()
    epsilon = number("epsilon", start, 0.0, 1.0, strict=False)
    if epsilon == 1:
        raise BadOption(
            f"epsilon=1 of {owner} says that every label is random: use a share below "
            f"1."
        )

    return epsilon
