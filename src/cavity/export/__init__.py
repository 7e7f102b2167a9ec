"""Models for other programs: an ONNX graph from rows to predictions, preparation and quadrature included. [docs/decisions/0015]"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.files import write_bytes
from cavity.common.namespaces import GRAPH, TINY
from cavity.common.onnx_graph import (
    IR_VERSION,
    ML_DOMAIN,
    ML_OPSET,
    OPSET,
    TEXT_OPSET,
    Graph,
    Value,
    no_graph,
)
from cavity.common.version import __version__
from cavity.errors import BadOption
from cavity.estimators import view_fit
from cavity.estimators.base import GPEstimator
from cavity.export.raw_columns import add_raw_columns
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import find_novelty
from cavity.prediction.regression import target_noise
from cavity.prediction.tree_ensembles import LEAST, Forest
from cavity.rows.columns.encoder import ColumnEncoder

__all__ = ["onnx"]

INPUTS = ("float32", "float64")


def onnx(
    clf: GPEstimator,
    path: str | Path,
    *,
    dtype: str = "float64",
    prepared: bool = False,
    novelty: bool = False,
) -> Path:
    """Write a fitted GPClassifier or GPRegressor as an ONNX file.

    A model of an array has the input "X" (n, D). A model of a frame has one input (n, 1) per column that it reads, with the
    column's name: numbers with NaN for missing cells, texts, dates as numbers of days since 1970-01-01. A classifier has the
    outputs "label" (n,) and "probabilities" (n, C), a regressor "mean" (n,) and "std" (n,), noise included. The number of rows n
    may differ from call to call. All arithmetic is in float64. Needs `pip install cavity[onnx]`.

    Parameters
    ----------
    clf : GPClassifier or GPRegressor
        A fitted model.
    path : str or Path
        The file to write.
    dtype : {"float64", "float32"}
        Type of numbers in inputs and outputs.
    prepared : bool, default=False
        For a model of a frame: True gives the input "X" of features as `preparation_` makes them.
    novelty : bool, default=False
        Add the output "novelty" (n,): what `predict_novelty` returns.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, Training, export
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(n_inducing=10, max_epochs=5, training=Training(tol=1.0), random_state=0).fit(X, y)
    >>> export.onnx(clf, "iris.onnx").name  # doctest: +SKIP
    'iris.onnx'
    """
    data = make_model(clf, dtype, prepared, novelty).SerializeToString()
    write_bytes(path, data)
    return Path(path)


def make_model(
    clf: GPEstimator, dtype: str = "float64", prepared: bool = False, novelty: bool = False
) -> Any:
    """Return the graph as an `onnx.ModelProto`, checked."""
    result = view_fit(clf)
    model, classes = result.model.to("cpu"), result.classes
    measure = find_novelty(result.novelty) if novelty else None
    _check(clf, dtype)
    outputs = ("mean", "std") if classes is None else ("label", "probabilities")
    preparation = None if prepared else result.features.preparation
    draft = Draft(result.features.n, preparation, dtype, (*outputs, *(["novelty"] if novelty else [])))
    mean, var, r = model.marginals_and_residual(draft.X)
    if classes is None:
        shift, scale = result.units
        f = var if result.predicts_residual else var - r
        std = (f.at_least(0.0) + target_noise(model)).sqrt() * scale
        draft.add_output("mean", "Cast", (mean * scale + shift)[:, 0], ["n"])
        draft.add_output("std", "Cast", std[:, 0], ["n"])
    else:
        _add_classes(draft, model, classes, mean, var)
    if measure is not None:
        draft.add_output("novelty", "Cast", measure.at(var), ["n"])
    return draft.finish(_metadata(clf))


def _add_classes(draft: Draft, model: FittedModel, classes: NDArray[Any], mean: Value, var: Value) -> None:
    try:
        log_p: Value = model.outcome.log_probability(mean, var)
    except (AttributeError, TypeError) as error:  # a function of tensors alone
        raise BadOption(no_graph(model.likelihood)) from error
    if not model.pool.is_trivial:
        logs = [
            partial(add_trees, member, draft.X)
            if isinstance(member, Forest)
            else partial(member.log_proba, draft.X)
            for member in model.pool.members
        ]
        log_p = GRAPH.log_softmax(model.pool.add_members(log_p.at_least(math.log(TINY)), var, logs))
    P = log_p.exp()
    labels, label_kind = _labels(classes, draft.graph.onnx.TensorProto)
    best = draft.graph.op("ArgMax", P, axis=1, keepdims=0)
    draft.add_output("label", "Gather", draft.graph.value(labels), ["n"], best, kind=label_kind)
    draft.add_output("probabilities", "Cast", P, ["n", len(classes)])


def add_trees(forest: Forest, X: Value) -> Value:
    """Return logarithms of the class probabilities, [n C], as `Forest.log_proba` computes them.

    Thresholds and sums are in float64; the operator rounds each score to float32, by a relative error of 6e-8.
    """
    X = forest.add_codes(X)
    graph, types = X.graph, X.graph.onnx.TensorProto
    if not forest.boosted:
        X = graph.op("Cast", graph.op("Cast", X, to=types.FLOAT), to=types.DOUBLE)
    scores = graph.op("TreeEnsembleRegressor", X, domain=ML_DOMAIN, **_list_nodes(forest, graph.onnx))
    p = graph.op("Cast", scores, to=types.DOUBLE)
    if forest.boosted:
        if len(forest.start) == 1:
            p = graph.op("Concat", p * 0.0, p, axis=1)
        p = (p - p.max(1, keepdims=True)).exp()
    return _normalised(_normalised(p).at_least(LEAST)).log()


def _normalised(p: Value) -> Value:
    return p / p.sum(1, keepdims=True)


def _list_nodes(forest: Forest, onnx: Any) -> dict[str, Any]:
    """Return the trees as lists of nodes, and of what leaves add to which score; frequencies of 0 are left out."""
    node, start = np.arange(len(forest.child)), forest.root
    tree = np.searchsorted(start, node, side="right") - 1
    is_leaf = forest.child == node
    value = forest.value[forest.leaf]
    leaf, k = np.nonzero(is_leaf[:, None] & (forest.boosted | (value != 0)))
    target = forest.column[tree[leaf]] if forest.boosted else k

    def tensor(values: Any) -> Any:
        return onnx.numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float64))

    return {
        "n_targets": len(forest.start),
        "base_values_as_tensor": tensor(forest.start),
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": (node - start[tree]).tolist(),
        "nodes_featureids": forest.feature.tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values_as_tensor": tensor(np.where(is_leaf, 0.0, forest.threshold)),
        "nodes_truenodeids": np.where(is_leaf, 0, forest.child - start[tree]).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, forest.child + 1 - start[tree]).tolist(),
        "target_treeids": tree[leaf].tolist(),
        "target_nodeids": (leaf - start[tree[leaf]]).tolist(),
        "target_ids": target.tolist(),
        "target_weights_as_tensor": tensor(value[leaf, k]),
    }


class Draft:
    """A graph in progress: its rows, and its outputs so far."""

    def __init__(
        self, n_features: int, preparation: ColumnEncoder | None, dtype: str, outputs: tuple[str, ...]
    ) -> None:
        self.graph = graph = Graph()
        types = graph.onnx.TensorProto
        self.kind = types.FLOAT if dtype == "float32" else types.DOUBLE
        self.outputs: list[Any] = []
        self.kinds: dict[str, str] | None = None
        if preparation is None:
            self.X = graph.op("Cast", Value(graph, "X"), to=types.DOUBLE)
            self.inputs = [graph.onnx.helper.make_tensor_value_info("X", self.kind, ["n", n_features])]
        else:
            self.X, self.inputs, self.kinds = add_raw_columns(graph, preparation, self.kind, outputs)

    def add_output(
        self, name: str, operator: str, first: Value, shape: list[Any], *more: Value, kind: int | None = None
    ) -> None:
        """Add a node whose result is an output of the model."""
        helper = self.graph.onnx.helper
        attributes = {"to": self.kind} if operator == "Cast" else {}
        names = [value.name for value in (first, *more)]
        self.graph.nodes.append(helper.make_node(operator, names, [name], **attributes))
        self.outputs.append(helper.make_tensor_value_info(name, self.kind if kind is None else kind, shape))

    def finish(self, metadata: dict[str, str]) -> Any:
        onnx, graph = self.graph.onnx, self.graph
        opset = TEXT_OPSET if any(node.op_type == "StringConcat" for node in graph.nodes) else OPSET
        helper, opsets = onnx.helper, [onnx.helper.make_opsetid("", opset)]
        if any(node.domain == ML_DOMAIN for node in graph.nodes):
            opsets.append(helper.make_opsetid(ML_DOMAIN, ML_OPSET))
        made = helper.make_model(
            helper.make_graph(graph.nodes, "cavity", self.inputs, self.outputs, graph.constants),
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="cavity",
            producer_version=__version__,
        )
        inputs = {} if self.kinds is None else {"inputs": json.dumps(self.kinds)}
        helper.set_model_props(made, {"cavity_version": __version__} | metadata | inputs)
        onnx.checker.check_model(made)
        return made


def _check(clf: GPEstimator, dtype: str) -> None:
    """Raise BadOption for what has no graph, before anything is built."""
    result = view_fit(clf)
    model, classes = result.model, result.classes
    if classes is None and (result.rows is not None or len(model.lower) > 1):
        raise BadOption(
            f"method={clf.method!r} predicts from its training rows or as a committee, which the ONNX graph cannot express: use "
            "method='vi', 'svi', 'fitc' or 'exact'."
        )
    if classes is not None and model.coupled:
        raise BadOption(
            f"method={str(clf.method)!r} with {len(classes)} classes couples them, and ONNX has no operator for that integral: use "
            "method='ep', or 'vi' with likelihood='softmax'."
        )
    if dtype not in INPUTS:
        raise BadOption(f"dtype={dtype!r} is unknown; use one of {', '.join(INPUTS)}.")


def _labels(classes: NDArray[Any], types: Any) -> tuple[NDArray[Any], int]:
    """Return the classes as an array of an ONNX type: integers, Booleans, numbers, otherwise text."""
    if classes.dtype.kind in "iu":
        return classes.astype(np.int64), types.INT64
    if classes.dtype.kind == "b":
        return classes, types.BOOL
    if classes.dtype.kind == "f":
        return classes.astype(np.float64), types.DOUBLE
    return np.array([str(label) for label in classes], dtype=object), types.STRING


def _metadata(clf: GPEstimator) -> dict[str, str]:
    names = view_fit(clf).features.names
    classes = {"classes": json.dumps(clf.classes_.tolist(), default=str)} if hasattr(clf, "classes_") else {}
    columns = json.dumps(None if names is None else [str(name) for name in names])
    return {"method": str(clf.method), **classes, "columns": columns}
