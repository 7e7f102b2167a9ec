"""Facts about a fitted model for the report."""

from __future__ import annotations

import platform

import numpy as np
import scipy
import sklearn
import torch

from cavity.common.version import __version__
from cavity.estimators.base import GPEstimator
from cavity.estimators.fitted_view import describe_fit
from cavity.saving.fact_list import list_facts


def describe_model(model: GPEstimator) -> list[tuple[str, str]]:
    """Return what `cavity info` says of the model, its training time and seed, and the versions of packages."""
    facts = [(name[0].upper() + name[1:], text) for name, text in list_facts(describe_fit(model))]
    if model.history_ and "seconds" in model.history_[-1]:
        facts.append(("Training time (s)", f"{model.history_[-1]['seconds']:.1f}"))
    versions = {"cavity": __version__, "Python": platform.python_version(), "torch": torch.__version__}
    versions |= {"numpy": np.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__}
    facts.append(("Seed (random_state)", f"{model.random_state!r}"))
    return [*facts, *((f"Version of {name}", version) for name, version in versions.items())]
