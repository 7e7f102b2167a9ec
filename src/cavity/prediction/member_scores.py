"""How much each classifier of a pool adds. Does not load torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cavity.common.tabular import Tabular

# with less weight, what the Gaussian process says of itself says little of the pool
LITTLE = 0.05
GAUSSIAN_PROCESS = "Gaussian process"


class _Columns(NamedTuple):
    names: tuple[str, ...]
    weight: tuple[float, ...]
    log_loss: tuple[float, ...]
    gain: tuple[float, ...]
    seconds: tuple[float, ...]


class MemberScores(Tabular, _Columns):
    """The classifiers of a pool on held-out rows, the Gaussian process first.

    Attributes
    ----------
    names : tuple of str
        Names of the classifiers, also of those that were tried and got no weight.
    weight : tuple of float
        Weight of each log-probability in the pool; 0 if the classifier does not count.
    log_loss : tuple of float
        Log loss of the classifier alone, in nats.
    gain : tuple of float
        What the pool loses without the classifier, with the other weights fitted
        again: the increase of its log loss, in nats. A Gaussian process that is alone
        is compared with class frequencies.
    seconds : tuple of float
        Seconds that all fits of the classifier took.
    """

    __slots__ = ()

    def _columns(self) -> dict[str, Any]:
        return {
            "member": self.names,
            "weight": self.weight,
            "log_loss": self.log_loss,
            "gain": self.gain,
            "seconds": self.seconds,
        }

    def _shown(self) -> dict[str, Any]:
        return {
            "member": self.names,
            "weight": [f"{value:.2f}" for value in self.weight],
            "log loss alone": [f"{value:.4f}" for value in self.log_loss],
            "loss without it": [f"{value:+.4f}" for value in self.gain],
            "seconds": [f"{value:.1f}" for value in self.seconds],
        }

    def _heading(self) -> str:
        if self.weight[0] >= LITTLE:
            return ""

        return (
            f"The Gaussian process has a weight of {self.weight[0]:.2g}: kernel_, "
            "feature_relevance_ and log_marginal_likelihood_ describe a model that "
            "hardly predicts."
        )

    def add_seconds(self, seconds: Sequence[float]) -> MemberScores:
        """Return the scores with the seconds of more fits, in the same order."""
        total = [a + b for a, b in zip(self.seconds, seconds, strict=True)]
        return self._replace(seconds=tuple(total))
