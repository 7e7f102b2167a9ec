"""Marginals of one row in NumPy: a served row should not wait for dozens of small torch calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.kernels import RBF
from cavity.kernels.distance import prepare_points
from cavity.kernels.scaled import cell_limit
from cavity.prediction.form import Form
from cavity.prior import Prior

Array = NDArray[np.float64]
Marginals = Callable[[Array], tuple[Array, Array]]


@torch.no_grad()
def make_single_row(prior: Prior, form: Form | None) -> Marginals | None:
    """Return the function from a row [D] to the mean and variance of its latent functions [C], as `Form.apply` has them.

    None for other kernels than RBF, on a GPU, in single precision, and where triangular solves are more accurate.
    """
    kernel = prior.kernel
    if form is None or form.matrix.is_cuda or form.matrix.dtype != torch.float64 or type(kernel) is not RBF:
        return None
    points = prepare_points(kernel.to_units(prior.Z), kernel.log_scale)
    if points is None:
        return None
    center, unit, most = kernel.center.numpy(), kernel.unit.numpy(), cell_limit(torch.float64)
    C, M = points.u2.shape
    weighted, half = points.weighted.flatten(0, 1).numpy(), -0.5 * points.inverse[:, 0].numpy()
    own, offset = points.u2.numpy(), kernel.log_variance.detach()[:, None].numpy()
    matrix, weight = form.matrix.numpy(), form.weight[:, 0].numpy()
    variance = (kernel.log_variance.exp() + prior.noise).numpy()

    def find_marginals(x: Array) -> tuple[Array, Array]:
        v = np.minimum(np.maximum((x - center) / unit, -most), most)
        s = (weighted @ v).reshape(C, M)
        s += own
        s += (half @ (v * v))[:, None]
        k = np.exp(np.minimum(s, 0.0, out=s) + offset)
        t = (matrix @ k[..., None])[..., 0]  # [C M+1]
        explained = t[:, :-1]
        var = variance + np.einsum("cm,cm,cm->c", weight, explained, explained)
        return t[:, -1].copy(), np.maximum(var, 0.0)

    return find_marginals
