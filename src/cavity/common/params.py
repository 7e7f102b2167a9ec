"""Parameters in scikit-learn's style: `get_params`, `set_params`, `repr`, `clone`."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np

from cavity.errors import BadOption

MOST_NUMBERS = 20  # longer arrays are abridged


class Parameters:
    """An object whose `__init__` stores its arguments, each under its own name, and
    does nothing else.

    Kernels, likelihoods and methods derive from it, so that `clone`, grid searches
    (`name__argument`), `repr` and model files treat them alike.
    """

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Names of the constructor's arguments, in order."""
        _, *given = inspect.signature(cls.__init__).parameters.values()
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return tuple(p.name for p in given if p.kind not in variable)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Also return the arguments of inner objects, as `name__argument`.

        Returns
        -------
        dict
            Argument values by name.
        """
        params: dict[str, Any] = {}
        for name in self.parameter_names():
            value = params[name] = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                for key, inner in value.get_params().items():
                    params[f"{name}__{key}"] = inner

        return params

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, those of inner objects as `name__argument`.

        Parameters
        ----------
        **params : dict
            Argument values by name.

        Returns
        -------
        self : object
            The object itself.
        """
        valid = self.parameter_names()
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in valid:
                known = ", ".join(valid) or "none"
                raise BadOption(
                    f"{type(self).__name__} has no parameter {name!r}; it has {known}."
                )

            if inner:
                getattr(self, name).set_params(**{inner: value})
            else:
                setattr(self, name, value)

        return self

    def __repr__(self) -> str:
        given = self.get_params(deep=False).items()
        inside = ", ".join(f"{name}={brief(value)}" for name, value in given)
        return f"{type(self).__name__}({inside})"


def brief(value: Any) -> str:
    """Return a value as text; long arrays show their first and last numbers."""
    if not isinstance(value, np.ndarray) or not value.size:
        return repr(value)

    form: Any = {"float_kind": lambda v: f"{v:.4g}"}
    with np.printoptions(
        threshold=MOST_NUMBERS, edgeitems=2, linewidth=10**6, formatter=form
    ):
        return " ".join(np.array2string(value, separator=", ").split())
