"""What a prior mean adds to the latent functions at the training rows. [METHOD 14]"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cavity.forest import Forest
from cavity.prior_mean import PriorMean

UNIT = 0.05  # in which weights are stepped: larger, the first steps go to the weights alone, and the kernel stays behind


class Offset(nn.Module):
    """Scores of J classifiers at the training rows, and one learnt weight each. Weights start at 0 and are never negative.

    A row's scores come from classifiers that did not see it. `members` are the same classifiers fitted to all rows, which give
    the scores of new rows.
    """

    scores: Tensor

    def __init__(self, scores: Tensor, members: Sequence[Forest], dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("scores", UNIT * scores)  # [J C N]
        self.weight = nn.Parameter(torch.zeros(len(scores), dtype=dtype, device=scores.device))  # [J]
        self.members = tuple(members)

    def at(self, rows: Tensor) -> Tensor:
        """Return the scores at rows by number, [J C B]."""
        return self.scores[:, :, rows]

    def shift(self, scores: Tensor) -> Tensor:
        """Return the prior mean where the members have these scores, [J ...] → [...]."""
        mean: Tensor = torch.tensordot(self._weights.to(scores.dtype), scores, 1)
        return mean

    def as_prior_mean(self) -> PriorMean:
        """Return the members with the current weights, for prediction."""
        return PriorMean(self.members, tuple((UNIT * self._weights.double()).tolist()))

    @property
    def _weights(self) -> Tensor:
        return self.weight.detach().clamp_min(0)
