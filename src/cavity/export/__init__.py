"""Models for other programs: an ONNX graph from rows to labels and probabilities, quadrature included. [docs/decisions/0015]"""

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
from cavity.estimators import GPClassifier
from cavity.factors import Likelihood
from cavity.kernels.base import covariance_graph
from cavity.linalg import solve_lower
from cavity.onnx_graph import IR_VERSION, OPSET, Graph, Value, mirrors
from cavity.prediction.model import FittedModel
from cavity.spectrum import Spectrum

__all__ = ["make_onnx_model", "onnx", "onnx_model"]

INPUTS = ("float32", "float64")


def onnx(clf: GPClassifier, path: str | Path, *, dtype: str = "float64") -> Path:
    """Write a fitted GPClassifier as an ONNX file.

    The graph has the input "X" (n, D) and the outputs "label" (n,) and "probabilities" (n, C). The number of rows n may differ
    from call to call. All arithmetic is in float64. Needs `pip install cavity[onnx]`.

    Parameters
    ----------
    clf : GPClassifier
        A fitted classifier.
    path : str or Path
        The file to write.
    dtype : {"float64", "float32"}
        Type of the input and of the probabilities.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, export
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(n_inducing=10, max_epochs=5, tol=1.0, random_state=0).fit(X, y)
    >>> export.onnx(clf, "iris.onnx").name  # doctest: +SKIP
    'iris.onnx'
    """
    data = onnx_model(clf, dtype=dtype).SerializeToString()
    persist.write_bytes(path, data)
    return Path(path)


def onnx_model(clf: GPClassifier, *, dtype: str = "float64") -> Any:
    """Return a fitted GPClassifier as an `onnx.ModelProto`.

    Parameters
    ----------
    clf : GPClassifier
        A fitted classifier.
    dtype : {"float64", "float32"}
        Type of the input and of the probabilities.

    Returns
    -------
    onnx.ModelProto
        The model, checked.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, export
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(n_inducing=10, max_epochs=5, tol=1.0, random_state=0).fit(X, y)
    >>> [output.name for output in export.onnx_model(clf).graph.output]
    ['label', 'probabilities']
    """
    check_is_fitted(clf, "_fitted")
    if not hasattr(clf, "classes_"):
        raise BadOption(
            f"{type(clf).__name__} is not a classifier: only GPClassifier can be written as an ONNX graph."
        )
    return make_onnx_model(clf._fitted, clf.classes_, clf._features().n, _metadata(clf), dtype=dtype)


@torch.no_grad()
def make_onnx_model(
    model: FittedModel,
    classes: NDArray[Any],
    n_features: int,
    metadata: dict[str, str],
    *,
    dtype: str = "float64",
) -> Any:
    """Return a fitted model as an `onnx.ModelProto`.

    Parameters
    ----------
    model : FittedModel
        Prior, posterior and likelihood.
    classes : array of shape (C,)
        The labels, in the order of the probabilities.
    n_features : int
        Number of columns of "X".
    metadata : dict of str to str
        Texts to store in the file; `"method"` appears in error messages.
    dtype : {"float64", "float32"}
        Type of the input and of the probabilities.

    Returns
    -------
    onnx.ModelProto
        The model, checked.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, export
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(n_inducing=10, max_epochs=5, tol=1.0, random_state=0).fit(X, y)
    >>> made = export.make_onnx_model(clf._fitted, clf.classes_, 4, {"method": "ep"})
    >>> made.producer_name
    'cavity'
    """
    _check(model, len(classes), metadata, dtype)
    graph = Graph()
    onnx, helper = graph.onnx, graph.onnx.helper
    kind = onnx.TensorProto.FLOAT if dtype == "float32" else onnx.TensorProto.DOUBLE
    rows = graph.op("Cast", Value(graph, "X"), to=onnx.TensorProto.DOUBLE)
    P = _probabilities(model.likelihood, *_marginals(model, rows))
    if model.pool.weight != 1.0:
        P = _with_temperature(P, model.pool.weight)
    labels, label_kind = _labels(classes, onnx.TensorProto)
    best = graph.op("ArgMax", P, axis=1, keepdims=0)
    _name_output(graph, "Gather", "label", graph.value(labels), best)
    _name_output(graph, "Cast", "probabilities", P, to=kind)
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "cavity",
            [helper.make_tensor_value_info("X", kind, ["n", n_features])],
            [
                helper.make_tensor_value_info("label", label_kind, ["n"]),
                helper.make_tensor_value_info("probabilities", kind, ["n", len(classes)]),
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="cavity",
        producer_version=__version__,
    )
    helper.set_model_props(made, {"cavity_version": __version__} | metadata)
    onnx.checker.check_model(made)
    return made


def _check(model: FittedModel, n_classes: int, metadata: dict[str, str], dtype: str) -> None:
    """Raise BadOption for what has no graph, before anything is built."""
    if len(model.lower) < model.prior.n_latent:
        raise BadOption(
            f"method={metadata.get('method')!r} with {n_classes} classes couples them, which the ONNX graph has no integral for: "
            "use method='ep', or 'vi' with likelihood='softmax'."
        )
    if isinstance(model.prior, Spectrum):
        raise BadOption(
            "inducing='spectrum' has features that the ONNX graph cannot express: fit with inducing points (inducing='auto')."
        )
    if model.pool.members:
        raise BadOption(
            "the ONNX graph has no trees, and this model is a pool with trees: fit with ensemble=None, or effort='balanced'."
        )
    if dtype not in INPUTS:
        raise BadOption(f"dtype={dtype!r} is unknown; use one of {', '.join(INPUTS)}.")


def _probabilities(likelihood: Likelihood, mean: Value, var: Value) -> Value:
    """[n C], rows sum to one. A graph that a subclass inherits is refused where the subclass has other probabilities."""
    if not mirrors(type(likelihood), ("graph",), ("log_probability",)):
        return Likelihood.graph(likelihood, mean, var)
    return likelihood.graph(mean, var)


def _with_temperature(P: Value, weight: float) -> Value:
    """Return softmax(w log P)."""
    logs = P.at_least(np.finfo(np.float64).tiny).log() * weight
    powers = (logs - logs.max(1, keep=True)).exp()
    return powers / powers.sum(1, keep=True)


def _marginals(model: FittedModel, X: Value) -> tuple[Value, Value]:
    """Mean and variance of f at the rows, [n C]. Triangular solves become products with inverses, which are constants."""
    prior = model.prior
    k = covariance_graph(prior.kernel, prior.Z, X)
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
    """Return the classes as an array of an ONNX type: integers, Booleans, numbers, otherwise text."""
    if classes.dtype.kind in "iu":
        return classes.astype(np.int64), types.INT64
    if classes.dtype.kind == "b":
        return classes, types.BOOL
    if classes.dtype.kind == "f":
        return classes.astype(np.float64), types.DOUBLE
    return np.array([str(label) for label in classes], dtype=object), types.STRING


def _metadata(clf: GPClassifier) -> dict[str, str]:
    names = clf._features().names
    return {
        "method": str(clf.method),
        "classes": json.dumps(clf.classes_.tolist(), default=str),
        "columns": json.dumps(None if names is None else [str(name) for name in names]),
    }


def _name_output(graph: Graph, kind: str, name: str, *inputs: Value, **attributes: Any) -> None:
    """Add a node whose result is an output of the model."""
    node = graph.onnx.helper.make_node(kind, [v.name for v in inputs], [name], **attributes)
    graph.nodes.append(node)
