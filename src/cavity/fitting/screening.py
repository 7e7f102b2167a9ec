"""Find out early which class is wrong if a fit meets a kernel or a likelihood of your own.

`cavity.testing` has thorough checks; these take milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cavity.engine.inference import Engine
from cavity.engine.kernels.spectrum import Spectrum
from cavity.errors import NotPositiveDefinite
from cavity.testing.kernel_checks import screen_kernel
from cavity.testing.likelihood_cases import screen_likelihood

ROWS = 20  # inducing points at which a kernel is called


def screen_parts(engine: Engine) -> None:
    """Raise BadResult if a class of the user's own returns wrong shapes, NaN or infinity."""
    _screen_kernel(engine)
    likelihood = engine.factor
    if _is_own(likelihood):
        labels = torch.arange(likelihood.n_classes or 2, device=engine.total.device)
        screen_likelihood(likelihood, labels, variational=engine.removal == 0)


@contextmanager
def name_kernel(engine: Engine) -> Iterator[None]:
    """Name the kernel if training fails because it is not finite."""
    try:
        yield
    except NotPositiveDefinite:
        _screen_kernel(engine)
        raise


def _screen_kernel(engine: Engine) -> None:
    prior = engine.prior
    kernel: Any = prior.kernel
    parts = [kernel]
    if isinstance(kernel, torch.nn.Module):
        parts = list(kernel.modules())
    if isinstance(prior, Spectrum) or not any(map(_is_own, parts)):
        return

    with torch.no_grad():
        Z = prior.Z[:, :ROWS]
        # one row more than points: a transposed result has another shape
        rows = torch.cat([Z[0], Z[0, :1]])
        screen_kernel(kernel, Z, rows, prior.n_latent)


def _is_own(part: Any) -> bool:
    """Return whether a class is neither the library's nor torch's."""
    package = type(part).__module__.partition(".")[0]
    return package not in ("cavity", "torch")
