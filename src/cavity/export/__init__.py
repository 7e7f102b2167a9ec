"""Models for other programs: an ONNX graph from rows to labels and probabilities, the quadrature included. [docs/decisions/0015]"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cavity import persist
from cavity._version import __version__
from cavity.errors import BadOption
from cavity.export.kernels import covariance
from cavity.export.likelihoods import probabilities
from cavity.linalg import solve_lower
from cavity.onnx_graph import IR_VERSION, OPSET, Graph, Value

__all__ = ["onnx", "onnx_model"]

INPUTS = ("float32", "float64")


def onnx(clf: Any, path: str | Path, *, dtype: str = "float64") -> Path:
    """Write a fitted GPClassifier as an ONNX file: input "X" (n, D) of `dtype`, outputs "label" (n,) and "probabilities" (n, C).

    n is free at every call. All arithmetic is in float64 whatever the input's type. Needs `pip install cavity[onnx]`.
    """
    data = onnx_model(clf, dtype=dtype).SerializeToString()
    persist.write_bytes(path, data)
    return Path(path)


@torch.no_grad()
def onnx_model(clf: Any, *, dtype: str = "float64") -> Any:
    """The same as an `onnx.ModelProto`."""
    check_is_fitted(clf, "_fitted")
    if not hasattr(clf, "classes_"):
        raise BadOption(
            f"{type(clf).__name__} is no classifier: only GPClassifier can be written as an ONNX graph."
        )
    if len(clf._fitted.lower) < clf._fitted.prior.n_latent:
        raise BadOption(
            f"method={clf.method!r} with {len(clf.classes_)} classes couples them, which the ONNX graph has no integral for: use "
            "method='ep', or 'vi' with likelihood='softmax'."
        )
    if hasattr(clf, "frequencies_"):
        raise BadOption(
            "inducing='spectrum' has features that the ONNX graph does not know: fit with inducing points (inducing='auto')."
        )
    if dtype not in INPUTS:
        raise BadOption(f"dtype={dtype!r} is unknown; use one of {', '.join(INPUTS)}.")
    graph = Graph()
    onnx, helper = graph.onnx, graph.onnx.helper
    kind = onnx.TensorProto.FLOAT if dtype == "float32" else onnx.TensorProto.DOUBLE
    rows = graph.op("Cast", Value(graph, "X"), to=onnx.TensorProto.DOUBLE)
    P = probabilities(clf._fitted.factor, *_marginals(clf._fitted, rows), clf._fitted.prior.n_latent)
    labels, label_kind = _labels(clf.classes_, onnx.TensorProto)
    best = graph.op("ArgMax", P, axis=1, keepdims=0)
    _named(graph, "Gather", "label", graph.value(labels), best)
    _named(graph, "Cast", "probabilities", P, to=kind)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "cavity",
            [helper.make_tensor_value_info("X", kind, ["n", clf.n_features_in_])],
            [
                helper.make_tensor_value_info("label", label_kind, ["n"]),
                helper.make_tensor_value_info("probabilities", kind, ["n", len(clf.classes_)]),
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="cavity",
        producer_version=__version__,
    )
    helper.set_model_props(model, _metadata(clf))
    onnx.checker.check_model(model)
    return model


def _marginals(model: Any, X: Value) -> tuple[Value, Value]:
    r"""Mean and variance of f at the rows, [n C]; triangular solves as products with inverses, which are constants."""
    prior = model.prior
    k = covariance(prior.kernel, prior.Z, X)
    lower, posterior, weights = (t.double().cpu() for t in (model.prior_lower, model.lower, model.mean))
    a = X.graph.value(_inverse(lower)) @ k.cross  # [C M n], or [1 M n]
    half = X.graph.value(_inverse(posterior)) @ a
    noise = prior.noise.double().cpu().numpy()[:, None]
    r = (k.diag + noise - (a * a).sum(1)).at_least(0.0)
    mean = X.graph.value(weights.numpy()[:, None, :]) @ a  # [C 1 n]
    var = r + (half * half).sum(1)
    return mean.without_axis(1).turned(1, 0), var.turned(1, 0)


def _inverse(lower: torch.Tensor) -> NDArray[np.float64]:
    eye = torch.eye(lower.shape[-1], dtype=torch.float64).expand_as(lower)
    return np.asarray(solve_lower(lower, eye).contiguous().numpy())


def _labels(classes: NDArray[Any], types: Any) -> tuple[NDArray[Any], int]:
    """The classes as ONNX has them: whole numbers, truth values, numbers, or else text."""
    if classes.dtype.kind in "iu":
        return classes.astype(np.int64), types.INT64
    if classes.dtype.kind == "b":
        return classes, types.BOOL
    if classes.dtype.kind == "f":
        return classes.astype(np.float64), types.DOUBLE
    return np.array([str(label) for label in classes], dtype=object), types.STRING


def _metadata(clf: Any) -> dict[str, str]:
    prepare = getattr(clf, "preparation_", None)
    names = getattr(clf, "feature_names_in_", None) if prepare is None else prepare.names
    return {
        "cavity_version": __version__,
        "method": str(clf.method),
        "classes": json.dumps(clf.classes_.tolist(), default=str),
        "columns": json.dumps(None if names is None else [str(name) for name in names]),
    }


def _named(graph: Graph, kind: str, name: str, *inputs: Value, **attributes: Any) -> None:
    """A node whose result is an output of the model."""
    node = graph.onnx.helper.make_node(kind, [v.name for v in inputs], [name], **attributes)
    graph.nodes.append(node)
