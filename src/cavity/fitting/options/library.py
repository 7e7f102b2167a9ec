"""Methods by name, and kernels from text."""

from __future__ import annotations

import inspect
from functools import reduce
from operator import add, mul
from typing import Any

from cavity.engine.kernels.library import KERNELS
from cavity.errors import BadOption
from cavity.fitting.options import (  # noqa: F401  each registers its classes
    classification_methods,
    regression_methods,
)
from cavity.fitting.options.method import METHODS as METHODS
from cavity.fitting.options.method import method_names as method_names
from cavity.fitting.options.method import read_method as read_method


def parse_kernel(text: str) -> Any:
    """Parse kernel names joined with + and *: "Matern52 + Linear * Constant"."""
    return reduce(
        add, [reduce(mul, map(_make, term.split("*"))) for term in text.split("+")]
    )


def _make(word: str) -> Any:
    known: dict[str, Any] = {}
    for kind in KERNELS.classes():
        _, *given = inspect.signature(kind.__init__).parameters.values()
        if all(p.default is not p.empty for p in given):
            known[kind.__name__.lower()] = kind

    name = word.strip().lower().replace("-", "").replace("_", "")
    if name not in known:
        names = ", ".join(k.__name__ for k in known.values())
        raise BadOption(
            f"kernel {word.strip()!r} is unknown; use {names}, joined with + and *."
        )

    return known[name]()
