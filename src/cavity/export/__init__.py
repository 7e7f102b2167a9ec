"""Export models to other programs as ONNX graphs.        [docs/decisions/0015]

A graph computes predictions from rows, preparation and quadrature included.
"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.common import onnx_graph
from cavity.common.files import write_bytes
from cavity.common.namespaces import GRAPH, TINY
from cavity.common.onnx_graph import ML_DOMAIN, Graph, Value, concatenate, to_double
from cavity.common.removed import explain_removed
from cavity.common.version import __version__
from cavity.errors import BadOption
from cavity.estimators import view_fit
from cavity.estimators.base import GPEstimator
from cavity.export.raw_columns import add_raw_columns
from cavity.fitting.options.value_checks import DTYPES, one_of
from cavity.pool.pool import Member
from cavity.pool.tree_ensembles import LEAST, Forest
from cavity.prediction.novelty import find_novelty
from cavity.prediction.result import Result
from cavity.prediction.targets import target_noise

__all__ = ["onnx"]

if not TYPE_CHECKING:
    __getattr__ = explain_removed(__name__)

NO_KERNEL = (
    "It cannot be written as an ONNX graph: give the kernel a method formula(xp), or "
    "shape(xp, d2) if it is a Stationary; use a kernel that has one, such as RBF; or "
    "use clf.save() and cavity.load() instead."
)
NO_LIKELIHOOD = (
    "cannot be written as an ONNX graph: write its log_probability(mean, var) with the "
    "functions of cavity.common.namespaces, or use clf.save() and cavity.load() instead."
)


def onnx(
    clf: GPEstimator,
    path: str | Path,
    *,
    dtype: str = "float64",
    prepared: bool = False,
    novelty: bool = False,
) -> Path:
    """Write a fitted GPClassifier or GPRegressor as an ONNX file.

    A model of an array has the input "X" (n, D). A model of a frame has one input (n,
    1) per column that it reads, with the column's name: numbers with NaN for missing
    cells, texts, dates as numbers of days since 1970-01-01. A classifier has the
    outputs "label" (n,) and "probabilities" (n, C), a regressor "mean" (n,) and "std"
    (n,), noise included. The number of rows n may differ from call to call. All
    arithmetic is in float64. Needs `pip install cavity[onnx]`.

    Parameters
    ----------
    clf : GPClassifier or GPRegressor
        A fitted model.
    path : str or Path
        The file to write.
    dtype : {"float64", "float32"}
        Type of numbers in inputs and outputs.
    prepared : bool, default=False
        For a model of a frame: True gives the input "X" of features as `preparation_`
        makes them.
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
    >>> short = Training(tol=1.0)
    >>> clf = GPClassifier(n_inducing=10, max_epochs=5, training=short, random_state=0)
    >>> clf = clf.fit(X, y)
    >>> export.onnx(clf, "iris.onnx").name  # doctest: +SKIP
    'iris.onnx'
    """
    write_bytes(path, make_model(clf, dtype, prepared, novelty).SerializeToString())
    return Path(path)


def make_model(
    gp: GPEstimator,
    dtype: str = "float64",
    prepared: bool = False,
    novelty: bool = False,
) -> Any:
    """Make the graph of a fitted model, a checked `onnx.ModelProto`."""
    result = view_fit(gp)
    measure = find_novelty(result.novelty) if novelty else None
    _check(gp, dtype)
    graph = Graph()
    helper = graph.onnx.helper
    types = graph.onnx.TensorProto
    number = types.FLOAT if dtype == "float32" else types.DOUBLE
    preparation = None if prepared else result.features.preparation
    metadata = _metadata(gp)
    if preparation is None:
        X = to_double(Value(graph, "X"))
        inputs = [helper.make_tensor_value_info("X", number, ["n", result.features.n])]
    else:
        X, inputs, kinds = add_raw_columns(graph, preparation, number)
        metadata["inputs"] = json.dumps(kinds)

    predictions, var = _predict(result, X)
    if measure is not None:
        predictions["novelty"] = measure.at(var)
    for entry in inputs:
        if entry.name in predictions:
            raise BadOption(
                f"column {entry.name!r} has the name of an output: rename it, or use "
                "prepared=True."
            )

    outputs = []
    for name, value in predictions.items():
        kind = number
        shape: list[str | int] = ["n"]
        if name == "label":
            kind = helper.np_dtype_to_tensor_dtype(_labels(result).dtype)
            node = helper.make_node("Identity", [value.name], [name])
        else:
            node = helper.make_node("Cast", [value.name], [name], to=number)

        if name == "probabilities":
            shape.append(len(_labels(result)))
        graph.nodes.append(node)
        outputs.append(helper.make_tensor_value_info(name, kind, shape))

    return _finish(graph, inputs, outputs, metadata)


def _predict(result: Result, X: Value) -> tuple[dict[str, Value], Value]:
    """Return predictions by name, and the variances of the latent functions."""
    model = result.model.to("cpu")
    graph = X.graph
    try:
        mean, var, r = model.marginals_and_residual(X)
    except BadOption as error:  # a kernel that torch alone can compute
        raise BadOption(f"{error} {NO_KERNEL}") from error

    if result.classes is None:
        shift, scale = result.units
        f = var if result.predicts_residual else var - r
        std = (f.at_least(0.0) + target_noise(model)).sqrt() * scale
        return {"mean": (mean * scale + shift)[:, 0], "std": std[:, 0]}, var

    try:
        log_p: Value = model.outcome.log_probability(mean, var)
    except (
        AttributeError,
        BadOption,
        TypeError,
    ) as error:  # torch alone can compute it
        name = type(model.likelihood).__name__
        raise BadOption(f"the likelihood {name} {NO_LIKELIHOOD}") from error

    if not model.pool.is_trivial:
        logs = [partial(_log_member, member, X) for member in model.pool.members]
        finite = log_p.at_least(math.log(TINY))
        log_p = GRAPH.log_softmax(model.pool.add_members(finite, var, logs))

    P = log_p.exp()
    best = graph.op("ArgMax", P, axis=1, keepdims=0)
    return {"label": graph.op("Gather", _labels(result), best), "probabilities": P}, var


def _log_member(member: Member, X: Value) -> Value:
    if isinstance(member, Forest):
        return add_trees(member, X)

    return member.log_proba(X)


def add_trees(forest: Forest, X: Value) -> Value:
    """Return log class probabilities, [n C], as `Forest.log_proba` computes them.

    Thresholds and sums are in float64; the operator rounds each score to float32, with
    a relative error of 6e-8.
    """
    graph = X.graph
    X, forest = _append_codes(forest, X)
    if not forest.boosted:
        X = to_double(graph.op("Cast", X, to=graph.onnx.TensorProto.FLOAT))
    nodes = _list_nodes(forest, graph.onnx)
    p = to_double(graph.op("TreeEnsembleRegressor", X, domain=ML_DOMAIN, **nodes))
    if forest.boosted:
        if len(forest.start) == 1:
            p = graph.op("Concat", p * 0.0, p, axis=1)
        p = (p - p.max(1, keepdims=True)).exp()

    p = (p / p.sum(1, keepdims=True)).at_least(LEAST)
    return (p / p.sum(1, keepdims=True)).log()


def _append_codes(forest: Forest, X: Value) -> tuple[Value, Forest]:
    """Append a column per category with its code, for the trees to read.

    So the graph holds no square matrix of all features.
    """
    if not len(forest.code):
        return X, forest

    D = len(forest.code)
    first, category = np.unique(forest.block, return_inverse=True)
    counts = np.bincount(category)
    codes = np.zeros((D, len(first)))
    codes[np.arange(D), category] = forest.code
    coded = counts > 1
    place = np.arange(D)
    place[first[coded]] = D + np.arange(coded.sum())
    appended = concatenate([X, X @ codes[:, coded]])
    return appended, forest._replace(feature=place[forest.feature])


def _list_nodes(forest: Forest, onnx: Any) -> dict[str, Any]:
    """Return the nodes of the trees, and the numbers that leaves add to the scores.

    Frequencies of 0 are left out.
    """
    node = np.arange(len(forest.child))
    value = forest.value[forest.leaf]
    tree = np.searchsorted(forest.root, node, side="right") - 1
    root = forest.root[tree]
    is_leaf = forest.child == node
    left = forest.child - root
    leaf, k = np.nonzero(is_leaf[:, None] & (forest.boosted | (value != 0)))
    score = forest.column[tree[leaf]] if forest.boosted else k

    def tensor(values: Any) -> Any:
        array = np.ascontiguousarray(values, dtype=np.float64)
        return onnx.numpy_helper.from_array(array)

    return {
        "n_targets": len(forest.start),
        "base_values_as_tensor": tensor(forest.start),
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": (node - root).tolist(),
        "nodes_featureids": forest.feature.tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values_as_tensor": tensor(np.where(is_leaf, 0.0, forest.threshold)),
        "nodes_truenodeids": np.where(is_leaf, 0, left).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, left + 1).tolist(),
        "target_treeids": tree[leaf].tolist(),
        "target_nodeids": (leaf - root[leaf]).tolist(),
        "target_ids": score.tolist(),
        "target_weights_as_tensor": tensor(value[leaf, k]),
    }


def _finish(
    graph: Graph, inputs: list[Any], outputs: list[Any], metadata: dict[str, str]
) -> Any:
    helper = graph.onnx.helper
    has_text = any(node.op_type == "StringConcat" for node in graph.nodes)
    opset = onnx_graph.TEXT_OPSET if has_text else onnx_graph.OPSET
    opsets = [helper.make_opsetid("", opset)]
    if any(node.domain == ML_DOMAIN for node in graph.nodes):
        opsets.append(helper.make_opsetid(ML_DOMAIN, onnx_graph.ML_OPSET))
    made = helper.make_model(
        helper.make_graph(graph.nodes, "cavity", inputs, outputs, graph.constants),
        opset_imports=opsets,
        ir_version=onnx_graph.IR_VERSION,
        producer_name="cavity",
        producer_version=__version__,
    )
    helper.set_model_props(made, {"cavity_version": __version__} | metadata)
    graph.onnx.checker.check_model(made)
    return made


def _check(clf: GPEstimator, dtype: str) -> None:
    """Raise BadOption for models without a graph, before anything is built."""
    result = view_fit(clf)
    model = result.model
    classes = result.classes
    if classes is None and (result.rows is not None or len(model.lower) > 1):
        raise BadOption(
            f"method={clf.method!r} predicts from its training rows or as a committee, "
            "which the ONNX graph cannot express: use method='vi', 'svi', 'fitc' or "
            "'exact'."
        )
    if classes is not None and model.coupled:
        raise BadOption(
            f"method={str(clf.method)!r} with {len(classes)} classes couples them, and "
            "ONNX has no operator for that integral: use method='ep', or 'vi' with "
            "likelihood='softmax'."
        )

    one_of("dtype", dtype, DTYPES)


def _labels(result: Result) -> NDArray[Any]:
    """Return the classes as an array of an ONNX type: integers, Booleans, numbers,
    otherwise text.
    """
    classes: Any = result.classes
    types = {"i": "int64", "u": "int64", "b": "bool", "f": "float64"}
    kind = types.get(classes.dtype.kind)
    if kind:
        return classes.astype(kind)

    return np.array([str(label) for label in classes], dtype=object)


def _metadata(clf: GPEstimator) -> dict[str, str]:
    metadata = {"method": str(clf.method)}
    if hasattr(clf, "classes_"):
        metadata["classes"] = json.dumps(clf.classes_.tolist(), default=str)
    names = view_fit(clf).features.names
    columns = None if names is None else [str(name) for name in names]
    metadata["columns"] = json.dumps(columns)
    return metadata
