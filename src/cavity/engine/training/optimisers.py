"""Ascent rules on a flat vector: pure `init` and `step`, without state. [METHOD 7]"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cavity.engine.inference import Optimiser
from cavity.engine.inference.state import Slots


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam (Kingma & Ba), for mini-batches."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, theta: Tensor) -> Slots:
        count = torch.zeros((), dtype=torch.float64, device=theta.device)
        return torch.zeros_like(theta), torch.zeros_like(theta), count

    def step(
        self, state: Slots, theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, Slots]:
        mean, square, count = state
        count = count + 1
        mean = torch.lerp(mean, gradient, 1 - self.beta1)
        square = (self.beta2 * square).addcmul_(
            gradient, gradient, value=1 - self.beta2
        )
        correction = (1 - self.beta2**count).sqrt()
        size = (rate * correction / (1 - self.beta1**count)).to(theta.dtype)
        root = square.sqrt().add_((self.eps * correction).to(theta.dtype))
        return torch.addcdiv(theta, size * mean, root), (mean, square, count)


@dataclass(frozen=True)
class SignRule(Optimiser):
    """The papers' rule for full batches: step sizes, relative to the rate, ×1.02 while
    a gradient keeps its sign, else ×½.
    """

    grow: float = 1.02
    shrink: float = 0.5
    largest: float = 10.0

    def init(self, theta: Tensor) -> Slots:
        return torch.ones_like(theta), torch.zeros_like(theta)

    def step(
        self, state: Slots, theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, Slots]:
        relative, last = state
        sign = gradient.sign()
        turn = sign * last
        slower = torch.where(turn < 0, relative * self.shrink, relative)
        relative = torch.where(turn > 0, relative * self.grow, slower).clamp(
            max=self.largest
        )
        return theta + rate.to(theta.dtype) * relative * sign, (relative, sign)


@dataclass(frozen=True)
class Ascent(Optimiser):
    """Gradient ascent on the objective per row, of `rows` rows."""

    rows: float

    def step(
        self, state: Slots, theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, Slots]:
        return theta + (rate / self.rows).to(theta.dtype) * gradient, state


@dataclass(frozen=True)
class AverageGradient(Optimiser):
    """SAG: follow the mean of every batch's last gradient. Batches keep their order.
    [review 3.1]
    """

    rows: float
    batches: int

    def init(self, theta: Tensor) -> Slots:
        count = torch.zeros((), dtype=torch.int64, device=theta.device)
        return theta.new_zeros(self.batches, len(theta)), count

    def step(
        self, state: Slots, theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, Slots]:
        memory, count = state
        place = (count % self.batches)[None]
        memory = memory.index_copy(0, place, gradient[None])
        count = count + 1
        mean = memory.sum(0) / count.clamp(max=self.batches)
        return theta + (rate / self.rows).to(theta.dtype) * mean, (memory, count)


OPTIMISERS: dict[str, Optimiser] = {"adam": Adam(), "sign": SignRule()}
# beta2 for a few hundred steps: Adam forgets the gradients of their beginning
SHORT_MEMORY = 0.99
