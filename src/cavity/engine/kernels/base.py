"""The base class of kernels, batched over classes; sums and products of kernels."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.column_statistics import Columns, summarize
from cavity.common.namespaces import NUMPY, Array
from cavity.common.overrides import mirrors
from cavity.common.params import Parameters
from cavity.common.registry import Registry
from cavity.common.torch_namespace import TORCH
from cavity.common.types import Floats
from cavity.engine.kernels.formulas import Formula, PairFormula
from cavity.engine.parameters import (
    Placed,
    Setting,
    find_start,
    is_learnt,
    keep_setting,
)
from cavity.errors import BadInput, BadOption

CALLS = ("full", "cross", "diag")


@runtime_checkable
class KernelLike(Protocol):
    """What the engine needs of a kernel: three methods, on any object.

    If the object is a torch module, its parameters are learnt. Z is [C M D] (or [1 M D]
    when classes share it), X is [N D]. A leading 1 instead of C in a result means "the
    same for every class".
    """

    def full(self, Z: Tensor) -> Tensor:
        """Return k(Z, Z) at the inducing points, [C M M]."""

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        """Return k(Z, X) between inducing points and rows, [C M N]."""

    def diag(self, X: Tensor) -> Tensor:
        """Return k(x, x) per row, [C N]."""


def check_kernel(kernel: Any) -> None:
    """Raise BadOption if `kernel` is not a kernel, and say what is missing."""
    missing = [call for call in CALLS if not callable(getattr(kernel, call, None))]
    if isinstance(kernel, type) or missing:
        raise BadOption(
            f"kernel={kernel!r} is not a kernel: it lacks "
            f"{', '.join(missing) or 'an instance'}. Give one of cavity.kernels, "
            "such as RBF(), a sum or product of them, or a torch.nn.Module with "
            "full(Z), cross(Z, X) and diag(X)."
        )


def log_parameter(
    value: Any, shape: tuple[int, ...], unit: Any, name: str
) -> nn.Parameter:
    """Make a parameter log(value / unit), broadcast to `shape`.

    Positive values are stepped as logarithms in data units.
    """
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise BadOption(f"{name} must be positive and finite, got {value!r}.")

    try:
        log = np.broadcast_to(np.log(array / unit), shape)
    except ValueError:
        raise BadOption(
            f"{name} has shape {array.shape}, which does not fit {shape} (classes, "
            "columns): give a scalar, one value per column, or one row per class; two "
            "classes have one latent function."
        ) from None

    return nn.Parameter(torch.tensor(log.copy(), dtype=torch.float64))


def per_class(value: Any, classes: int, name: str) -> np.ndarray:
    """Return a scalar or one value per class as [C] or [1]."""
    array = np.asarray(value, dtype=np.float64).reshape(-1)
    if array.size not in (1, classes):
        raise BadOption(
            f"{name} has {array.size} values for {classes} latent functions; give one, "
            "or one each."
        )

    return array


class Kernel(Parameters, nn.Module):
    """Base class of kernels: scikit-learn's parameters outside, torch's inside.

    `__init__` stores its arguments, in the units of the data, and nothing else, so that
    `get_params`, `clone` and grid searches work. `bind` makes the torch parameters for
    C classes; `settle` writes the learnt values back. Kernels combine with `+` and `*`.

    A hyper-parameter is a number, where training starts, or `Fixed`, `Bounded`,
    `LogNormal`, `Normal` or `Gamma`: a value that stays, bounds, or a prior.

    Examples
    --------
    >>> from cavity.engine.kernels import RBF, Constant, Linear
    >>> RBF(1.0) + Constant(2.0)
    RBF(lengthscale=1.0, variance=1.0) + Constant(variance=2.0)
    """

    # Positive arguments of the constructor, one for all or one per class: `bind` makes
    # their logarithms. The shape of a stationary kernel takes the arguments in `own`.
    positive: ClassVar[tuple[str, ...]] = ()
    own: ClassVar[tuple[str, ...]] = ()

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.positive, *self.own)

    def bind(self, classes: int, columns: Columns) -> None:
        """Create the torch parameters for `classes` latent functions.

        It is 1 if all classes share the hyper-parameters. `columns` has the centre,
        spread and typical distance of the training rows.
        """
        for name in self._names:
            title = f"{name} of {type(self).__name__}"
            value = per_class(self.start_of(name, 1.0), classes, title)
            parameter = log_parameter(value, (classes,), 1.0, title)
            learnt = is_learnt(getattr(self, name))
            setattr(self, f"log_{name}", parameter.requires_grad_(learnt))

    def start_of(self, name: str, default: Any = None) -> Any:
        """Return where an argument starts; its setting is checked."""
        title = f"{name} of {type(self).__name__}"
        return find_start(getattr(self, name), default, title)

    def settle(self, classes: int) -> None:
        """Write the learnt values into the constructor's attributes.

        They are NumPy arrays in the units of the data. Shared values are repeated for
        all `classes`.
        """
        for name in self._names:
            value = TORCH.host(getattr(self, f"log_{name}").exp())
            value = np.repeat(value, classes // len(value))
            setattr(self, name, keep_setting(getattr(self, name), value))

    def settings(self) -> dict[str, Placed]:
        """Return the settings of this kernel's torch parameters, by their names."""
        given = {name: getattr(self, name) for name in self._names}
        return {
            f"log_{name}": Placed(value)
            for name, value in given.items()
            if isinstance(value, Setting)
        }

    def formula(self, xp: Any) -> Formula:
        """Return the kernel's formula with its numbers.

        `full`, `cross`, `diag`, predictions and ONNX export follow from it. `xp` says
        where the numbers live: `torch_namespace.TORCH`, or `namespaces.NUMPY`, also for
        ONNX graphs.
        """
        raise BadOption(
            f"{type(self).__name__} has no formula(xp): torch alone can compute it."
        )

    def full(self, Z: Tensor) -> Tensor:
        """Return k(Z, Z) at inducing points [C M D] or [1 M D], [C M M]."""
        return self.cross(Z, Z)

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        """Return k(Z, X), [C M N].

        Inducing points are [C M D] or [1 M D], rows are [N D].
        """
        formula = self.formula(TORCH)
        return formula.cross(formula.prepare(Z), X)

    def diag(self, X: Tensor) -> Tensor:
        """Return k(x, x) of rows [N D], [C N]."""
        return self.formula(TORCH).diag(X)

    def sample(self, X: Any, n: int, random_state: Any = None) -> Floats:
        """Draw functions from the prior at rows, f ~ N(0, k(X, X)).

        The kernel of a fitted model, `kernel_`, has its learnt values. Otherwise
        arguments that are None are estimated from X, and `Linear` is centred at its
        rows. The cost is O(N³) for N rows, for one draw or many.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Rows.
        n : int
            Number of draws.
        random_state : int, RandomState or None, default=None
            Random seed.

        Returns
        -------
        ndarray of shape (n, N) or (C, n, N)
            Values of f; one set of draws per class if classes differ in parameters.

        Examples
        --------
        >>> import numpy as np
        >>> from cavity.kernels import RBF
        >>> X = np.linspace(0, 5, 50)[:, None]
        >>> RBF(lengthscale=0.7).sample(X, 3, random_state=0).shape
        (3, 50)
        >>> RBF(lengthscale=[[0.3], [2.0]]).sample(X, 3, random_state=0).shape
        (2, 3, 50)
        """
        from sklearn.utils import check_random_state

        rows = self.read_rows(X)
        values, vectors = np.linalg.eigh(_covariance(self._formula_for(rows), rows))
        root = vectors * np.sqrt(np.maximum(values, 0))[:, None]
        shape = (len(root), n, len(rows))
        z = check_random_state(random_state).standard_normal(shape)
        f = z @ root.swapaxes(1, 2)
        return _drop_single(f)

    def forward(self, X: Any, Z: Any = None) -> Floats:
        """Compute covariances: `kernel(X, Z)` is k(X, Z), `kernel(X)` is k(X, X).

        The kernel of a fitted model, `kernel_`, takes rows as the model does, such as
        data frames. See `sample` for arguments that are None.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Rows.
        Z : array-like of shape (M, D) or None, default=None
            Other rows. If None, X.

        Returns
        -------
        ndarray of shape (N, M) or (C, N, M)
            Covariances; one matrix per class if classes differ in parameters.

        Examples
        --------
        >>> from cavity.kernels import RBF
        >>> RBF(lengthscale=1.0)([[0.0], [1.0]], [[0.0]]).round(2)
        array([[1.  ],
               [0.61]])
        """
        rows = self.read_rows(X)
        formula = self._formula_for(rows)
        if Z is None:
            return _drop_single(_covariance(formula, rows))

        others = self.read_rows(Z)
        return _drop_single(formula.cross(formula.prepare(rows[None]), others))

    def read_rows(self, X: Any) -> Floats:
        """Return rows as an array; `kernel_` of an estimator prepares its columns."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise BadInput(
                f"X of shape {rows.shape} must be finite numbers of shape (N, D): for "
                "a single column use X[:, None]."
            )

        return rows

    def _formula_for(self, rows: Floats) -> Formula:
        """Return the formula; without parameters yet, rows give what is left open."""
        kernel = self
        if not self._is_bound():
            kernel = copy.deepcopy(self)
            columns = summarize(rows, np.ones(len(rows)), np.random.default_rng(0))
            kernel.bind(self._count_sets(), columns)
        return formula_of(kernel, NUMPY)

    def _is_bound(self) -> bool:
        """Return whether torch parameters exist, of this kernel or of a part."""
        parts = (part for part in self.modules() if isinstance(part, Kernel))
        return any(list(part.parameters(recurse=False)) for part in parts)

    def _count_sets(self) -> int:
        """Return for how many classes the arguments have values of their own."""
        starts = (self.start_of(name, 1.0) for name in self._names)
        return max(map(np.size, starts), default=1)

    def relevance(self, columns: Columns) -> np.ndarray | None:
        """Return the weight of each column in units of its spread, [C D].

        None if the kernel has no lengthscales.
        """
        return None

    def weight(self) -> np.ndarray:
        """Return the weight of this kernel in a sum: its variances, [C] or [1]."""
        return np.array(getattr(self, "variance", 1.0), dtype=np.float64, ndmin=1)

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other)

    def __mul__(self, other: Kernel) -> Kernel:
        return Product(self, other)


def _covariance(formula: Formula, rows: Floats) -> Floats:
    """Return k(X, X), [C N N]."""
    K = formula.cross(formula.prepare(rows[None]), rows)
    # k(x, x) exceeds the diagonal of K if linear functions fade: the rest is noise
    noise = formula.diag(rows) - K.diagonal(0, 1, 2)
    return np.asarray(K + np.maximum(noise, 0)[..., None] * np.eye(len(rows)))


def _drop_single(values: Floats) -> Floats:
    """Drop the axis of classes if they share the values."""
    if len(values) == 1:
        values = values[0]
    return np.asarray(values)


KERNELS: Registry[Kernel] = Registry("kernel")


class _Pair(Kernel):
    combine: Callable[[Any, Any], Any]  # of the parts' covariances

    def __init__(self, k1: Kernel, k2: Kernel) -> None:
        super().__init__()
        self.k1 = k1
        self.k2 = k2

    def _parts(self) -> list[Kernel]:
        """Return the parts that are kernels of the library, not modules of your own."""
        return [k for k in (self.k1, self.k2) if isinstance(k, Kernel)]

    def bind(self, classes: int, columns: Columns) -> None:
        for kernel in self._parts():
            kernel.bind(classes, columns)

    def settle(self, classes: int) -> None:
        for kernel in self._parts():
            kernel.settle(classes)

    def _count_sets(self) -> int:
        return max((k._count_sets() for k in self._parts()), default=1)

    def formula(self, xp: Any) -> Formula:
        return PairFormula(
            self.combine, formula_of(self.k1, xp), formula_of(self.k2, xp)
        )

    def full(self, Z: Tensor) -> Tensor:
        return self.combine(self.k1.full(Z), self.k2.full(Z))

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self.combine(self.k1.cross(Z, X), self.k2.cross(Z, X))

    def diag(self, X: Tensor) -> Tensor:
        return self.combine(self.k1.diag(X), self.k2.diag(X))

    def relevance(self, columns: Columns) -> np.ndarray | None:
        known = [part for _, part in self._relevances(columns)]
        return sum(known) if known else None  # type: ignore[return-value]

    def _relevances(self, columns: Columns) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return weight and relevance of the parts that have one."""
        parts = [(k.weight(), k.relevance(columns)) for k in self._parts()]
        return [(weight, part) for weight, part in parts if part is not None]


@KERNELS.register
class Sum(_Pair):
    """The sum of two kernels, k₁ + k₂; usually written `k1 + k2`.

    Parameters
    ----------
    k1, k2 : Kernel
        The parts.

    Examples
    --------
    >>> from cavity.engine.kernels import RBF, Linear
    >>> (RBF() + Linear()).get_params()["k2__variance"]
    1.0
    """

    combine = staticmethod(operator.add)

    def __repr__(self) -> str:
        return f"{self.k1!r} + {self.k2!r}"

    def relevance(self, columns: Columns) -> np.ndarray | None:
        """Return the root of the mean square of the parts, weighted by variance.

        Slopes of independent functions add in squares.
        """
        known = self._relevances(columns)
        total = sum(weight for weight, _ in known)
        square = sum(weight[:, None] * part**2 for weight, part in known)
        if not known:
            return None

        return np.sqrt(square / total[:, None])  # type: ignore[index]

    def weight(self) -> np.ndarray:
        return sum(k.weight() for k in self._parts())  # type: ignore[return-value]


@KERNELS.register
class Product(_Pair):
    """The product of two kernels, k₁ · k₂; usually written `k1 * k2`.

    Parameters
    ----------
    k1, k2 : Kernel
        The factors.

    Examples
    --------
    >>> from cavity.engine.kernels import RBF, Constant
    >>> RBF(lengthscale=2.0) * Constant(3.0)
    RBF(lengthscale=2.0, variance=1.0) * Constant(variance=3.0)
    """

    combine = staticmethod(operator.mul)

    def __repr__(self) -> str:
        factors = (self.k1, self.k2)
        return " * ".join(
            f"({k!r})" if isinstance(k, Sum) else repr(k) for k in factors
        )

    def weight(self) -> np.ndarray:
        weights = (k.weight() for k in self._parts())
        return math.prod(weights)  # type: ignore[return-value]


class CalledFormula(NamedTuple):
    """A kernel of your own as a formula of tensors, or of arrays in its precision."""

    kernel: Any

    def prepare(self, Z: Array) -> Array:
        return Z

    def cross(self, points: Array, X: Array) -> Array:
        return self._call(self.kernel.cross, points, X)

    def diag(self, X: Array) -> Array:
        return self._call(self.kernel.diag, X)

    @torch.no_grad()
    def _call(self, function: Callable[..., Tensor], *arrays: Array) -> Array:
        if isinstance(arrays[-1], Tensor):
            return function(*arrays)
        if not isinstance(arrays[-1], np.ndarray):
            raise BadOption(f"the kernel {type(self.kernel).__name__} has no formula.")

        held: list[Tensor] = []
        if isinstance(self.kernel, nn.Module):
            held = [*self.kernel.parameters(), *self.kernel.buffers()]
        dtype = next((t.dtype for t in held if t.is_floating_point()), torch.float64)
        tensors = (torch.from_numpy(a).to(dtype) for a in arrays)
        return function(*tensors).double().numpy()


def formula_of(kernel: Any, xp: Any) -> Formula:
    """Return the formula of a kernel; without a formula it is called with tensors."""
    kind = type(kernel)
    if isinstance(kernel, Kernel) and mirrors(kind, ("formula", "shape"), CALLS):
        try:
            return kernel.formula(xp)
        except BadOption:  # it knows tensors alone
            if xp is TORCH:
                raise

    return CalledFormula(kernel)
