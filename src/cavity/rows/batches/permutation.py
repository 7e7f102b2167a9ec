"""Random orders of many rows that need no memory: a position alone gives the number at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Words = NDArray[np.uint64]

ROUNDS = 4
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, with well mixed bits
SHIFT = np.uint64(32)  # the upper half of a product depends on all bits of its factors


class Permutation(NamedTuple):
    """Random order of the numbers 0 to n − 1.

    A Feistel network permutes the numbers of b bits, 2ᵇ ≥ n: each round changes one half by a hash of the other. Results of n or
    more are permuted again until they are below n.
    """

    n: int
    keys: Words  # [ROUNDS 2]

    @classmethod
    def draw(cls, n: int, generator: torch.Generator) -> Permutation:
        import torch  # checksums of rows need this file, and no torch

        keys = torch.randint(2**62, (ROUNDS, 2), generator=generator)
        return cls(n, keys.numpy().astype(np.uint64))

    def find(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        found = self._permute(positions.astype(np.uint64))
        outside = np.flatnonzero(found >= self.n)
        while len(outside):
            found[outside] = self._permute(found[outside])
            outside = outside[found[outside] >= self.n]
        return found.astype(np.int64)

    def _permute(self, x: Words) -> Words:
        bits = max(2, (self.n - 1).bit_length())
        low_bits = np.uint64(bits // 2)
        low_mask, high_mask = (np.uint64((1 << b) - 1) for b in (bits // 2, bits - bits // 2))
        low, high = x & low_mask, x >> low_bits
        for first, second in self.keys:
            low ^= ((high + first) * GOLDEN >> SHIFT) & low_mask
            high ^= ((low + second) * GOLDEN >> SHIFT) & high_mask
        return low | (high << low_bits)


def mix_bits(x: Words) -> Words:
    """Mix the bits of every word (the last steps of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
