"""Arrays of other libraries, read to the host: torch, CuPy, JAX, any with DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

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
