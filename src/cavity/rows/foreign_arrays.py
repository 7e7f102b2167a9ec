"""Arrays of other libraries: torch, CuPy, JAX, any with DLPack. Read them to the host, and return results as such arrays."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Results = TypeVar("Results", bound=tuple[Any, ...])
PROTOCOLS = "__dlpack__", "__cuda_array_interface__"


def is_foreign(value: Any) -> bool:
    """Return whether this is an array of another library than NumPy; tables and arrays of Arrow are read as such."""
    kind = type(value)  # not the value: a frame may have a column of that name
    own = isinstance(value, np.ndarray) or kind.__module__.partition(".")[0] == "pyarrow"
    return not own and any(hasattr(kind, name) for name in PROTOCOLS)


def to_host(value: Any) -> Any:
    """Return an array of another library, of any device and number type, as a NumPy array; anything else unchanged."""
    if not is_foreign(value):
        return value
    import torch
    from torch.utils.dlpack import from_dlpack

    if not isinstance(value, torch.Tensor):
        standard = hasattr(value, "__dlpack__")
        try:
            value = from_dlpack(value) if standard else torch.as_tensor(value)
        except (BufferError, RuntimeError, TypeError, ValueError):  # torch lacks this device or number type
            return np.from_dlpack(value, device="cpu") if standard else np.asarray(value)
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # NumPy has no bfloat16


def follow(X: Any, found: Results) -> Results:
    """Return results as arrays of the library and on the device of X, if scikit-learn's `array_api_dispatch` is on.

    Labels that are not numbers stay in NumPy, as in scikit-learn: other libraries have no text.
    """
    if not is_foreign(X):
        return found
    from sklearn.utils._array_api import _max_precision_float_dtype, get_namespace_and_device

    xp, dispatches, device = get_namespace_and_device(X)
    if not dispatches:
        return found
    widest = _max_precision_float_dtype(xp, device)  # some devices have no float64

    def move(array: NDArray[Any]) -> Any:
        if array.dtype.kind not in "biuf":
            return array
        return xp.asarray(array, dtype=widest if array.dtype.kind == "f" else None, device=device)

    return tuple(map(move, found))  # type: ignore[return-value]
