"""Variational inference and Laplace's method, which need no cavities. [METHOD 4, 9]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from cavity.errors import BadOption
from cavity.likelihoods import Likelihood, LogisticPoint, RobustMax, Softmax
from cavity.options.method import DEFAULT_EPSILON, METHODS, LikelihoodMethod, Method, check_epsilon


@METHODS.register
@dataclass(eq=False, repr=False)
class VI(LikelihoodMethod):
    """Variational inference: maximises a lower bound on the evidence by natural gradients. [METHOD 9]

    Parameters
    ----------
    likelihood : None, "robust-max", "softmax", "probit" or cavity.likelihoods.Likelihood
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
    removal = 0.0
    site_store = "averaged"
    sweep_damping = 0.2  # 0.5 needs repairs and 1 does not converge

    likelihood: Any = None
    epsilon: float = DEFAULT_EPSILON

    @property
    def starts_from_ep(self) -> bool:  # type: ignore[override]
        return self._robust

    @property
    def _robust(self) -> bool:
        return self.likelihood in (None, RobustMax.name) or isinstance(self.likelihood, RobustMax)

    def check(self) -> Self:
        epsilon = check_epsilon(self.epsilon, "VI")
        super().check()
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

    def _read_likelihood(self) -> Likelihood:
        named = self.likelihood in (None, RobustMax.name)
        return RobustMax(epsilon=self.epsilon) if named else super()._read_likelihood()

    def sampling_problem(self) -> str | None:
        if self._robust:
            return (
                "the robust-max bound has several optima of q, so its value is not unique for given hyper-parameters: use "
                "method='ep' or 'rep', or likelihood='softmax'."
            )
        return super().sampling_problem()


@METHODS.register
class Laplace(Method):
    """Laplace's method: expands the logistic (two classes) or the softmax (more, coupled) around the mode. [METHOD 4]"""

    name = "laplace"
    needs_all_rows = True
    in_memory = True
    latent_noise = False
    placement = "mode"
    sweep_damping = 1.0  # Newton steps
    full_batch_optimizer = "lbfgs"

    def make_likelihood(self, n_classes: int, learn: frozenset[str]) -> Likelihood:
        return LogisticPoint() if n_classes == 2 else Softmax(n_classes)
