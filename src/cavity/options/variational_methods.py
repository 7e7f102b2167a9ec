"""Variational inference and Laplace's method, which need no cavities. [METHOD 4, 9]"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from cavity.errors import BadOption
from cavity.likelihoods import Jaakkola, Likelihood, Logistic, LogisticPoint, RobustMax, Softmax, Taylor
from cavity.options.method import (
    DEFAULT_EPSILON,
    METHODS,
    PREDICTIVES,
    Q_UPDATES,
    Method,
    bind_likelihood,
    check_epsilon,
    check_predictive,
    no_optimal_q,
    read_likelihood,
)
from cavity.options.value_checks import checked, one_of

BOUNDS: dict[str, type[Logistic]] = {"quadrature": Logistic, "jaakkola": Jaakkola, "taylor": Taylor}


@METHODS.register
@dataclass(eq=False, repr=False)
class VI(Method):
    """Variational inference: maximises a lower bound on the evidence. [METHOD 9]

    Parameters
    ----------
    likelihood : None, "robust-max", "softmax", "probit" or cavity.likelihoods.Likelihood
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

    likelihood: Any = None
    q_update: str = field(default="natural", metadata=checked(one_of, Q_UPDATES))
    bound: str = field(default="quadrature", metadata=checked(one_of, BOUNDS))
    epsilon: float = DEFAULT_EPSILON
    predictive: str = field(default="quadrature", metadata=checked(one_of, PREDICTIVES))

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
        super().check()
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


@METHODS.register
@dataclass(eq=False, repr=False)
class Laplace(Method):
    """Laplace's method: expands the logistic (two classes) or the softmax (more, coupled) around the mode. [METHOD 4]

    Parameters
    ----------
    predictive : {"quadrature", "probit"}
        For two classes: probabilities by quadrature, or by σ(m/√(1 + πv/8)), which is off by at most 0.02.
    """

    name = "laplace"
    needs_all_rows = True
    in_memory = True
    latent_noise = False
    placement = "mode"
    sweep_damping = 1.0  # Newton steps
    full_batch_optimizer = "lbfgs"

    predictive: str = field(default="quadrature", metadata=checked(one_of, PREDICTIVES))

    def check_classes(self, n_classes: int) -> None:
        check_predictive(self.predictive, n_classes)

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return LogisticPoint(self.predictive == "probit") if n_classes == 2 else Softmax(n_classes)
