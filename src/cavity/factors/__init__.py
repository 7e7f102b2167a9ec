"""Likelihoods as the engine sees them: moments, and where the sites sit."""

from cavity.factors.base import Latents, LikelihoodFactor, Moments
from cavity.factors.probit import BinaryProbit, ProbitPairs

__all__ = ["BinaryProbit", "Latents", "LikelihoodFactor", "Moments", "ProbitPairs"]
