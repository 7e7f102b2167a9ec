"""Methods that only some estimators have."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from types import MethodType
from typing import Any, Self

from cavity.errors import BadOption


class NoPartialFit(BadOption, AttributeError):
    """Raised by an object without `partial_fit`: an AttributeError for scikit-learn, advice for the reader."""


class available_if:
    """Make a method available only where `find_problem(owner)` returns None; otherwise raise what it returns."""

    def __init__(self, find_problem: Callable[[Any], str | None]) -> None:
        self.find_problem = find_problem

    def __call__(self, method: Callable[..., Any]) -> available_if:
        self.method, self.__doc__ = method, method.__doc__
        return self

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self.method
        problem = self.find_problem(owner)
        if problem is not None:
            raise NoPartialFit(problem)
        return MethodType(self.method, owner)


class CallbackSupport:
    """What `sklearn.callback.CallbackSupportMixin` gives an estimator. That module, and rich with it, is imported when used."""

    @available_if(
        lambda self: None if find_spec("sklearn.callback") else "set_callbacks needs scikit-learn 1.9."
    )
    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set callbacks of scikit-learn, such as `ProgressBar`: the fit is a task, each epoch a subtask. Needs 1.9 or newer.

        Parameters
        ----------
        *callbacks : objects with the methods of `sklearn.callback.FitCallback`
            They replace those set before. One that returns True at the end of an epoch stops training.

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator itself.
        """
        from sklearn.callback import CallbackSupportMixin

        CallbackSupportMixin.set_callbacks(self, *callbacks)
        return self
