"""What is learnt, by name: "kernel", or a path to a part of it.

The kernels of a sum or product are numbered from 0, in the order in which one types
them: "kernel.0", "kernel.1.lengthscale". A kernel by itself has no number:
"kernel.lengthscale". Parameters of a module of your own have torch's names:
"kernel.net.0.weight".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from torch import nn

from cavity.engine.kernels.base import Kernel, Product, Sum
from cavity.errors import BadOption

KERNEL = "kernel"
LOG = "log_"


def is_path(name: Any) -> bool:
    """Return whether a name is a path in the kernel."""
    return isinstance(name, str) and name.startswith(f"{KERNEL}.")


def selects(learn: Collection[str], path: str) -> bool:
    """Return whether a name of `learn` is a path, or its beginning."""
    return any(path == name or path.startswith(f"{name}.") for name in learn)


def name_paths(kernel: Any) -> dict[str, str]:
    """Return the path of each parameter of a kernel by its name in torch."""
    if not isinstance(kernel, nn.Module):
        return {}

    parts = list(_list_parts(kernel, ""))
    found = {}
    for number, (prefix, part) in enumerate(parts):
        at = f"{KERNEL}.{number}" if len(parts) > 1 else KERNEL
        for name, _ in part.named_parameters():
            shown = name.removeprefix(LOG) if isinstance(part, Kernel) else name
            found[f"{prefix}{name}"] = f"{at}.{shown}"
    return found


def _list_parts(kernel: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the kernels in sums and products, with the beginning of their names."""
    if not isinstance(kernel, Sum | Product):
        yield prefix, kernel
        return

    for name in ("k1", "k2"):
        part = getattr(kernel, name)
        if isinstance(part, nn.Module):
            yield from _list_parts(part, f"{prefix}{name}.")


def freeze_rest(kernel: Any, learn: Collection[str]) -> None:
    """Fix the parameters of a kernel that `learn` does not name.

    Raises BadOption for a path that does not exist.
    """
    paths = name_paths(kernel)
    for name in learn:
        exists = any(selects((name,), path) for path in paths.values())
        if is_path(name) and not exists:
            known = ", ".join(map(repr, paths.values())) or "no paths"
            raise BadOption(
                f"learn has {name!r}, which is not a path of the kernel {kernel!r:.200}: "
                f"it has {known}."
            )

    if isinstance(kernel, nn.Module):
        for name, parameter in kernel.named_parameters():
            if name not in paths or not selects(learn, paths[name]):
                parameter.requires_grad_(False)
