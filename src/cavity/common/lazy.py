"""Packages that import a name when it is first asked for (PEP 562): torch is large, and some of their modules do without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], list[str], Callable[[], list[str]]]:
    """Return `__getattr__`, `__all__` and `__dir__` of a package, given the names that each of its modules defines, as words."""
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load_name(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    names = sorted(home_of)
    return load_name, names, lambda: names
