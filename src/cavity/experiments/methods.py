"""What the experiments call a method, and which arguments of GPClassifier that means."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

# name → method=, further arguments. The papers' VI steps q by its gradient with L-BFGS, and their GFITC uses L-BFGS too.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("auto", {}),
    "ep": ("ep", {}),
    "sep": ("sep", {}),
    "ep_outer": ("ep", {"schedule": "outer"}),
    "inner-approx": ("ep", {"schedule": "inner-approx"}),
    "inner-exact": ("ep", {"schedule": "inner-exact"}),
    "outer": ("ep", {"schedule": "outer"}),
    "rep": ("rep", {}),
    "rep_tied": ("rep", {"sites": "tied"}),
    "rep_learnt": ("rep", {"learn": ("kernel", "noise", "inducing", "epsilon")}),
    "pep": ("pep", {}),
    "gfitc": ("gfitc", {"tol": 1e-4}),  # its epochs are long, and L-BFGS has long converged
    "vi": ("vi", {"q_update": "gradient"}),
    "vi_natural": ("vi", {"q_update": "natural"}),
    "vi_softmax": ("vi", {"q_update": "gradient", "likelihood": "softmax"}),
    "ep_long": ("ep", {}),
    "sep_long": ("sep", {}),
    "vi_long": ("vi", {"q_update": "natural"}),
    "ep_prior": ("ep", {"share": "prior"}),
    "sep_prior": ("sep", {"share": "prior"}),
    "sep_prior_long": ("sep", {"share": "prior"}),
    "sep_prior_small": ("sep", {"share": "prior"}),
    "sep_small": ("sep", {}),
    "vi_prior": ("vi", {"q_update": "natural", "share": "prior"}),
    "vi_prior_long": ("vi", {"q_update": "natural", "share": "prior"}),
    "vi_large": ("vi", {"q_update": "natural", "share": "prior"}),
    "vi_longer": ("vi", {"q_update": "natural"}),
    "ep_rate": ("ep", {"learning_rate": 1e-3}),
    "sep_rate": ("sep", {"learning_rate": 1e-3}),
    "vi_rate": ("vi", {"q_update": "gradient", "learning_rate": 1e-3}),
}

TITLES = {
    "auto": "auto (as shipped)",
    "ep": "EP",
    "sep": "SEP",
    "ep_outer": "EP-outer",
    "rep": "REP",
    "pep": "power EP",
    "gfitc": "GFITC",
    "vi": "VI",
    "vi_natural": "VI, natural gradient",
    "vi_softmax": "VI, softmax",
    "ep_long": "EP, long, batches of 1,000",
    "sep_long": "SEP, long, batches of 1,000",
    "vi_long": "VI, natural gradient, long, batches of 1,000",
    "ep_prior": 'EP, share="prior"',
    "sep_prior": 'SEP, share="prior", 500 passes in batches of 1,000',
    "sep_prior_long": 'SEP, share="prior", 1,500 passes in batches of 1,000',
    "sep_prior_small": 'SEP, share="prior", 100 passes in batches of 200',
    "sep_small": "SEP, 150 passes in batches of 200",
    "vi_prior": 'VI, natural gradient, share="prior", 300 passes in batches of 1,000',
    "vi_prior_long": 'VI, natural gradient, share="prior", 700 passes in batches of 1,000',
    "vi_large": 'VI, natural gradient, share="prior"',
    "vi_longer": "VI, natural gradient, 500 passes in batches of 1,000",
    "vi_rate": "VI, Adam at 0.001",
    "ep_rate": "EP, Adam at 0.001",
    "sep_rate": "SEP, Adam at 0.001",
    "logistic": "logistic regression",
}

NEEDS = {"gpytorch": "gpytorch", "lightgbm": "lightgbm", "gpflow": "gpflow"}  # packages beyond our own


def missing(method: str) -> str:
    """The package that a peer needs and that is not installed; empty if it is there, or none is needed."""
    package = NEEDS.get(method, "")
    return package if package and find_spec(package) is None else ""


def title(method: str) -> str:
    """How tables and legends call a method."""
    return TITLES.get(method, method)
