"""The engine: arrays in, posterior out.

It imports torch, NumPy, SciPy, `common` and `errors`, and nothing else of the package.
torch is loaded with the first name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.engine.door import Evidence, Fit, begin, evidence, finish, fit, infer
    from cavity.engine.methods import EP, GFITC, SEP, VI, Laplace, PowerEP, Scheme
    from cavity.engine.models import GP, describe, make_hyper_prior
    from cavity.engine.posteriors import Posterior
    from cavity.engine.runs import train
    from cavity.engine.training.optimisers import Adam, SignRule
    from cavity.engine.training.steps import Steps
else:
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "door": "Evidence Fit begin evidence finish fit infer",
            "methods": "EP GFITC SEP VI Laplace PowerEP Scheme",
            "models": "GP describe make_hyper_prior",
            "posteriors": "Posterior",
            "runs": "train",
            "training.optimisers": "Adam SignRule",
            "training.steps": "Steps",
        },
    )
