"""The engine: arrays in, posterior out.

It imports torch, NumPy, SciPy, `common` and `errors`, and nothing else of the package.
torch is loaded with the first name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.engine.methods import EP, GFITC, SEP, VI, Laplace, PowerEP, Scheme
else:
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "methods": "EP GFITC SEP VI Laplace PowerEP Scheme",
        },
    )
