"""Methods that are available only with some arguments."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from cavity.errors import BadOption


class NoPartialFit(BadOption, AttributeError):
    """The estimator has no `partial_fit`; scikit-learn expects an AttributeError."""


class available_if:
    """Make a method available only if `find_problem(owner)` returns None.

    Otherwise access to it raises NoPartialFit with the returned message.
    """

    def __init__(self, find_problem: Callable[[Any], str | None]) -> None:
        self.find_problem = find_problem

    def __call__(self, method: Callable[..., Any]) -> available_if:
        self.method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self.method
        if (problem := self.find_problem(owner)) is not None:
            raise NoPartialFit(problem)

        return MethodType(self.method, owner)
