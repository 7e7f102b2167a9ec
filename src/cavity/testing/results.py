"""Results of a method, checked: shape, finite values, agreement with a reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.common.onnx_graph import IR_VERSION, OPSET, Graph, Value, package
from cavity.common.types import Floats
from cavity.errors import BadOption, BadResult

STEP = 1e-5  # of central differences, whose error is about 1e-10


@dataclass
class CheckReport:
    """What a check found: the laws that hold, and what it could not check.

    Attributes
    ----------
    name : str
        Class that was checked.
    passed : list of str
        Laws that hold, each with its method.
    skipped : dict of str to str
        Why a law was not checked, by its method.
    """

    name: str
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.passed)} checks passed"]
        lines += [f"  passed   {law}" for law in self.passed]
        lines += [f"  skipped  {law}: {why}" for law, why in self.skipped.items()]
        return "\n".join(lines)

    def check_close(
        self, law: str, found: Any, wanted: Any, *, rtol: float, atol: float
    ) -> None:
        """Raise BadResult if two arrays differ; `law` begins with the method."""
        found = to_numpy(found)
        wanted = to_numpy(wanted)
        require_shape(f"{self.name}.{law}", found, wanted.shape)
        wrong = ~np.isclose(found, wanted, rtol=rtol, atol=atol)
        if wrong.any():
            at = int(np.argmax(np.where(wrong, np.abs(found - wanted), -1.0)))
            raise BadResult(
                f"{self.name}.{law}: {wrong.sum()} of {wrong.size} values are wrong, "
                f"at worst {found.flat[at]:.6g} instead of {wanted.flat[at]:.6g}."
            )

        self.passed.append(law)


def to_numpy(x: Any) -> Floats:
    if isinstance(x, Tensor):
        x = x.detach().cpu().double().numpy()
    return np.asarray(x, dtype=np.float64)


def require_tensor(what: str, value: Any, *shapes: tuple[int, ...]) -> Tensor:
    """Return a finite tensor of one of the shapes; raise BadResult for anything else."""
    if not isinstance(value, Tensor):
        raise BadResult(f"{what} returned {type(value).__name__}, expected a tensor.")

    require_shape(what, value, *shapes)
    require_finite(what, value)
    return value


def require_shape(what: str, value: Any, *shapes: tuple[int, ...]) -> None:
    if tuple(value.shape) not in shapes:
        wanted = " or ".join(map(str, dict.fromkeys(shapes)))
        raise BadResult(
            f"{what} returned shape {tuple(value.shape)}, expected {wanted}."
        )


def require_finite(what: str, value: Any, items: str = "values") -> None:
    """Raise BadResult if a value is NaN or infinite; `items` says what was given."""
    array = to_numpy(value)
    for name, bad in (("NaN", np.isnan(array)), ("infinity", np.isinf(array))):
        if bad.any():
            raise BadResult(
                f"{what} returned {name} for {bad.sum()} of {bad.size} {items}."
            )


@torch.no_grad()
def find_slope(value: Callable[[], Tensor], x: Tensor, at: int) -> Tensor:
    """Return the central difference of `value` in one entry of x, which it reads."""
    flat = x.detach().view(-1)
    start = flat[at].clone()
    flat[at] = start + STEP
    upper = value().detach().clone()
    flat[at] = start - STEP
    lower = value().detach().clone()
    flat[at] = start
    return (upper - lower) / (2 * STEP)


def run_graph(
    write: Callable[..., Value], inputs: dict[str, Floats], shape: list[str | int]
) -> Floats | str:
    """Return what onnxruntime computes of a formula, or why there is no graph."""
    try:
        onnxruntime = package("onnxruntime")
        graph = Graph()
        result = write(*(Value(graph, name) for name in inputs))
    except BadOption as error:
        return f"no ONNX graph ({error})"

    helper = graph.onnx.helper
    double = graph.onnx.TensorProto.DOUBLE
    given = [
        helper.make_tensor_value_info(name, double, ["n", x.shape[1]])
        for name, x in inputs.items()
    ]
    output = helper.make_tensor_value_info(result.name, double, shape)
    made = helper.make_graph(graph.nodes, "check", given, [output], graph.constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, inputs)[0], dtype=np.float64)
