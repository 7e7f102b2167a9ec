"""What the engine needs of a kernel, and the check of what a user gives as one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from cavity.errors import BadOption

CALLS = ("full", "cross", "diag")


@runtime_checkable
class KernelLike(Protocol):
    """What the engine needs of a kernel: three methods, on any object. A torch module also has its parameters learnt.

    Z is [C M D] (or [1 M D] when classes share it), X is [N D]. A leading 1 instead of C in a result means "the same for every
    class".
    """

    def full(self, Z: Tensor) -> Tensor:
        """Return k(Z, Z) at the inducing points.

        Parameters
        ----------
        Z : Tensor
            Inducing points, [C M D] or [1 M D].

        Returns
        -------
        Tensor
            Covariances, [C M M].
        """
        ...

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        """Return k(Z, X) between inducing points and rows.

        Parameters
        ----------
        Z : Tensor
            Inducing points, [C M D] or [1 M D].
        X : Tensor
            Rows, [N D].

        Returns
        -------
        Tensor
            Covariances, [C M N].
        """
        ...

    def diag(self, X: Tensor) -> Tensor:
        """Return k(x, x) per row.

        Parameters
        ----------
        X : Tensor
            Rows, [N D].

        Returns
        -------
        Tensor
            Variances, [C N].
        """
        ...


def check_kernel(kernel: Any) -> None:
    """Raise BadOption if `kernel` is not a kernel, and say what is missing."""
    missing = [call for call in CALLS if not callable(getattr(kernel, call, None))]
    if isinstance(kernel, type) or missing:
        raise BadOption(
            f"kernel={kernel!r} is not a kernel: it lacks {', '.join(missing) or 'an instance'}. Give one of cavity.kernels, "
            "such as RBF(), a sum or product of them, or a torch.nn.Module with full(Z), cross(Z, X) and diag(X)."
        )
