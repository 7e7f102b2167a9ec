"""Checks for authors of kernels and likelihoods.

They raise `cavity.errors.BadResult`, an AssertionError that names class and method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.testing.kernel_checks import check_kernel as check_kernel
    from cavity.testing.likelihood_checks import check_likelihood as check_likelihood
    from cavity.testing.results import CheckReport as CheckReport
else:  # torch is loaded with the first name
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "kernel_checks": "check_kernel",
            "likelihood_checks": "check_likelihood",
            "results": "CheckReport",
        },
    )
