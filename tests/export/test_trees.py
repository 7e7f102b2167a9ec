"""A pool with trees and networks as an ONNX graph says what predict_proba says, near
the training rows and far from them.
"""

from copy import copy

import numpy as np
import onnxruntime
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier

from cavity import GPClassifier, export
from cavity.common.onnx_graph import (
    IR_VERSION,
    ML_DOMAIN,
    ML_OPSET,
    OPSET,
    Graph,
    Value,
)
from cavity.export import add_trees
from cavity.pool.network_training import NetworkShape, train_networks
from cavity.pool.networks import Network
from cavity.pool.sklearn_trees import make_forest
from cavity.pool.tree_ensembles import Forest
from support import latent_columns


def make_rows(n: int, C: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes by thresholds, which trees find and a smooth function does not."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 10.0, 0.1, 1.0]
    return X, ((X[:, 0] > 0.3).astype(int) + (X[:, 1] > -2)) % C


def session(model) -> onnxruntime.InferenceSession:
    alone = onnxruntime.SessionOptions()
    alone.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), alone, providers=["CPUExecutionProvider"]
    )


@pytest.fixture(scope="module", params=[2, 3], ids="{} classes".format)
def pooled(request) -> GPClassifier:
    C = request.param
    X, y = make_rows(300, C)
    few = {"n_inducing": 15, "max_epochs": 8}
    clf = GPClassifier(**few, random_state=0, device="cpu").fit(X, y)
    assert len(clf.ensemble_weights_) > 1
    return clf


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_default_model_near_and_far_one_row_or_many(pooled, dtype) -> None:
    new = make_rows(60, 2, seed=1)[0]
    X = np.concatenate([new, new[:20] * 2.5, new[:20] * 1e4]).astype(dtype)
    pool = pooled._fitted.pool
    g = pool.gate.at(latent_columns(pooled, X)[1])
    assert any(pool.weights)
    assert (g == 1).any() and (g < 1e-9).any() and ((g > 0.01) & (g < 1)).any()
    run, expected = (
        session(export.make_model(pooled, dtype=dtype)),
        pooled.predict_proba(X),
    )
    label, P = run.run(["label", "probabilities"], {"X": X})
    np.testing.assert_allclose(P, expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(label, pooled.predict(X))
    single = [
        run.run(["probabilities"], {"X": X[i : i + 1]})[0][0] for i in range(0, 100, 7)
    ]
    np.testing.assert_allclose(single, expected[::7], rtol=0, atol=1e-6)


def test_members_without_weight_are_left_out_and_the_file_says_its_opsets(
    pooled,
) -> None:
    def count(model) -> int:
        clf = copy(pooled)
        clf._result = pooled._result._replace(model=model)
        made = export.make_model(clf)
        assert {o.domain: o.version for o in made.opset_import} == {
            "": OPSET,
            ML_DOMAIN: ML_OPSET,
        }
        return sum(node.op_type == "TreeEnsembleRegressor" for node in made.graph.node)

    pool = pooled._fitted.pool
    trees = [isinstance(member, Forest) for member in pool.members]
    assert count(pooled._fitted) == sum(trees)
    one = pool._replace(
        weights=tuple(0.5 * (i == trees.index(True)) for i in range(len(trees)))
    )
    assert count(pooled._fitted._replace(pool=one)) == 1


MEMBERS = {
    "boosting": HistGradientBoostingClassifier(max_iter=8, random_state=0),
    "boosting of one leaf each": HistGradientBoostingClassifier(
        max_iter=2, min_samples_leaf=100
    ),
    "forest": RandomForestClassifier(8, random_state=0),
    "extremely random trees": ExtraTreesClassifier(100, random_state=0),
    "one tree": DecisionTreeClassifier(max_depth=3, random_state=0),
}


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("name", MEMBERS)
def test_trees_agree_at_their_thresholds(name, C) -> None:
    """Rows at thresholds, and one float64 or float32 to either side, where a comparison
    in the wrong precision errs.
    """
    forest = make_forest(MEMBERS[name].fit(*make_rows(150, C)))
    cells = np.concatenate(
        [forest.threshold, forest.threshold.astype(np.float32).astype(np.float64)]
    )
    cells = cells[np.isfinite(cells)][:400]
    cells = np.concatenate(
        [
            np.nextafter(cells, -np.inf),
            cells,
            np.nextafter(cells, np.inf),
            [1e300, -1e300],
        ]
    )
    X = np.repeat(cells[:, None], 4, 1)
    np.testing.assert_allclose(
        run_graph(add_trees, forest, X, C), forest.log_proba(X), rtol=0, atol=2e-6
    )


def run_graph(add, member, X, C) -> np.ndarray:
    graph = Graph()
    out, helper, double = (
        add(member, Value(graph, "X")),
        graph.onnx.helper,
        graph.onnx.TensorProto.DOUBLE,
    )
    values = [
        helper.make_tensor_value_info(n, double, ["n", d])
        for n, d in (("X", 4), (out.name, C))
    ]
    made = helper.make_model(
        helper.make_graph(
            graph.nodes, "member", values[:1], values[1:], graph.constants
        ),
        opset_imports=[
            helper.make_opsetid("", OPSET),
            helper.make_opsetid(ML_DOMAIN, ML_OPSET),
        ],
        ir_version=IR_VERSION,
    )
    return session(made).run(None, {"X": X})[0]


@pytest.mark.parametrize("C", [2, 3])
def test_networks_agree_near_and_far(C) -> None:
    X, y = make_rows(150, C)
    networks = next(
        train_networks(
            X[:, 1:], y, None, C, shape=NetworkShape(2, (100, 50)), seed=0, steps=300
        )
    )[1]._replace(used=np.arange(1, 4))
    rows = np.concatenate([X, 1e4 * X[:5], [[1e300, -1e300, 0, 1]]])
    expected = networks.log_proba(rows)
    assert np.isfinite(expected).all() and np.ptp(expected) > 1
    for some in (rows, rows[:1]):
        np.testing.assert_allclose(
            run_graph(Network.log_proba, networks, some, C),
            expected[: len(some)],
            atol=1e-9,
        )
