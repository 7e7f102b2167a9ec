"""Names that are imported, and values that are made, at first use.

torch is large, and much of the library does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def load_names(package: str, homes: Mapping[str, str]) -> tuple[Any, list[str], Any]:
    """Return `__getattr__`, `__all__` and `__dir__` of a package.

    `homes` has the names that each of its modules defines, separated by spaces.
    """
    home_of = {}
    for module, words in homes.items():
        home_of.update(dict.fromkeys(words.split(), module))

    def load_name(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")

        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    names = sorted(home_of)
    return load_name, names, lambda: names


class Later(Generic[T]):
    """A value that is made at first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made = list[T]()

    def get(self) -> T:
        """Return the value."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]
