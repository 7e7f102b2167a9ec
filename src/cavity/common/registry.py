"""Registries: classes by name, for everything that turns a name into an object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from cavity.errors import BadOption

T = TypeVar("T")
# so that a decorated class keeps its own type
Registered = TypeVar("Registered", bound=type)


class Registry(Generic[T]):
    """Classes by name.

    Options, model files, the command line and ONNX export find them here and nowhere
    else. A class registers itself with a decorator. Your own class may do the same: its
    name then works in model files, too.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._classes: dict[str, type[T]] = {}

    def register(self, cls: Registered) -> Registered:
        """Add a class under its class name.

        A class attribute `name` is its short name for options.
        """
        other = self._classes.get(cls.__name__)
        if other is not None and _full_name(other) != _full_name(cls):
            raise BadOption(
                f"a {self.what} named {cls.__name__!r} is registered already "
                f"({other.__module__}): choose another class name."
            )

        self._classes[cls.__name__] = cls
        return cls

    def __getitem__(self, name: str) -> type[T]:
        """Return the class with this name or short name."""
        found = self._classes.get(name) or self.short_names().get(name)
        if found is None:
            raise KeyError(name)

        return found

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self.short_names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def holds(self, value: object) -> bool:
        """Whether `value` is an instance of a registered class, not of a subclass."""
        return self._classes.get(type(value).__name__) is type(value)

    def classes(self) -> tuple[type[T], ...]:
        return tuple(self._classes.values())

    def short_names(self) -> dict[str, type[T]]:
        """Return the classes that have a short name for options."""
        named = {vars(cls).get("name"): cls for cls in self._classes.values()}
        return {
            name: cls for name, cls in named.items() if isinstance(name, str) and name
        }


def _full_name(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
