"""fit on sources: the model of the same table in memory, whatever holds the rows and in
whatever order they lie.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cavity import BadInput, BadOption
from cavity.fitting import adapter
from cavity.tables.array_sources import Arrays
from cavity.tables.files.arrow_source import Arrow
from support import change_training, classifier, slow, without_warnings


def draw(N, seed=0):
    """Three curved classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3)) * [1.0, 10.0, 0.1]
    f = np.column_stack(
        [X[:, 0] ** 2, X[:, 1] / 5, 10 * X[:, 2] + 1]
    ) + 0.4 * rng.normal(size=(N, 3))
    return X, np.array(["red", "green", "blue"])[f.argmax(1)]


def as_table(X, y, **more):
    return pa.table(
        {**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "label": y, **more}
    )


def fit(*data, **options):
    given = {
        k: options.pop(k) for k in ("target", "weight", "sample_weight") if k in options
    }
    with without_warnings():
        options = {"n_inducing": 10, "max_epochs": 2, "random_state": 0} | options
        return classifier(**options).fit(*data, **given)


def nll(model, X, y):
    column = np.searchsorted(model.classes_, y)
    return -model.predict_log_proba(X)[np.arange(len(y)), column].mean()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_by_number_give_the_model_of_the_array_to_the_last_bit(method, dtype):
    X, y = draw(1500)
    options = {"method": method, "dtype": dtype}
    memory = fit(X, y, **options)
    model = fit(Arrays(X, y), **options)
    assert np.array_equal(model.predict_proba(X), memory.predict_proba(X))
    assert model.log_marginal_likelihood_ == memory.log_marginal_likelihood_
    assert (
        model.classes_.tolist() == ["blue", "green", "red"]
        and model.n_features_in_ == 3
    )


def test_a_table_that_a_gpu_has_no_room_for_gives_the_same_model(method, monkeypatch):
    X, y = draw(1500)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 1500)
    held = fit(X, y, weight, method=method)
    sizes = []
    monkeypatch.setattr(
        adapter, "has_room", lambda device, size: sizes.append(size) or False
    )
    sent = fit(X, y, weight, method=method)
    assert sizes == [8 * X.size] and np.array_equal(
        sent.predict_proba(X), held.predict_proba(X)
    )


def test_a_memory_map_is_an_array(tmp_path):
    X, y = draw(100)
    np.save(tmp_path / "X.npy", X)
    a, b = (
        fit(rows, y, method="ep")
        for rows in (X, np.load(tmp_path / "X.npy", mmap_mode="r"))
    )
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


@pytest.mark.parametrize("rows", [2, 3])
def test_parquet_gives_the_posterior_of_the_array(method, rows, tmp_path):
    X, y = draw(500)
    y = np.where(y == "red", "green", y) if rows == 2 else y
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 500)
    for i in range(0, 500, 200):
        part = slice(i, i + 200)
        pq.write_table(
            as_table(X[part], y[part], w=weight[part]),
            tmp_path / f"{i}.parquet",
            row_group_size=70,
        )
    options = {
        "method": method,
        "learn": (),
        "max_epochs": 5,
        "class_weight": "balanced",
    }
    memory = fit(X, y, weight, **options)
    model = fit(tmp_path, target="label", weight="w", **options)
    np.testing.assert_allclose(
        model.predict_proba(X), memory.predict_proba(X), rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(
        model.log_marginal_likelihood_, memory.log_marginal_likelihood_, rtol=1e-8
    )
    assert model.feature_names_in_.tolist() == ["x0", "x1", "x2"]


@pytest.mark.parametrize("kind", ["ep", "sep", "rep", "vi"])
def test_full_batches_are_read_in_pieces(kind, tmp_path, monkeypatch):
    X, y = draw(150)
    options = {"method": kind, "batch_size": None, "max_epochs": 2, "tol": 1.0}
    memory = fit(X, y, **options)
    change_training(monkeypatch, chunk=64)
    model = fit(Arrow(as_table(X, y), "label"), **options)
    np.testing.assert_allclose(
        model.predict_proba(X), memory.predict_proba(X), rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("method", ["sep", slow("ep")])
def test_the_order_of_rows_in_a_file_does_not_matter(method, tmp_path):
    """Sorted by class, in large and in small row groups."""
    X, y = draw(3000)
    order = np.argsort(y, kind="stable")
    pq.write_table(as_table(X, y), tmp_path / "shuffled.parquet")
    pq.write_table(
        as_table(X[order], y[order]), tmp_path / "sorted.parquet", row_group_size=300
    )
    options = {"method": method, "inducing": X[:15], "max_epochs": 3, "target": "label"}
    test = draw(2000, seed=1)
    shuffled, ordered = (
        nll(fit(tmp_path / f"{name}.parquet", **options), *test)
        for name in ("shuffled", "sorted")
    )
    assert abs(shuffled - ordered) < 0.01
    assert ordered < 0.6


def chunks(X, y):
    return lambda: ((X[i : i + 64], y[i : i + 64]) for i in range(0, len(X), 64))


@pytest.mark.parametrize("kind", ["ep", "sep", "rep", slow("vi")])
def test_batches_give_the_model_of_the_array(kind):
    X, y = draw(300)
    options = {
        "method": kind,
        "inducing": X[:10],
        "batch_size": 100,
        "calibration": None,
    }
    memory = fit(X, y, **options)
    for data in (chunks(X, y), list(chunks(X, y)()), [(torch.tensor(X), y)]):
        model = fit(data, **options)
        np.testing.assert_allclose(
            model.predict_proba(X), memory.predict_proba(X), rtol=0, atol=1e-8
        )


class Counting(Arrays):
    """Says how many rows the largest piece had, and how many were asked for."""

    largest = total = 0

    def take(self, index):
        Counting.largest, Counting.total = (
            max(self.largest, len(index)),
            self.total + len(index),
        )
        return super().take(index)


def test_no_more_rows_are_read_at_a_time_than_a_piece(monkeypatch):
    change_training(monkeypatch, chunk=128)
    monkeypatch.setattr("cavity.tables.survey.Arrays", Counting)
    X, y = draw(2000)
    monkeypatch.setattr("cavity.tables.pieces.PIECE_BYTES", 8 * 128 * X.shape[1])
    fit(Counting(X, y), method="sep", batch_size=100, max_epochs=1)
    assert Counting.largest == 128 and Counting.total > 2 * 2000


@pytest.mark.parametrize(
    "data, options, words",
    [
        (lambda X, y: (Arrays(X, y),), {"target": "label"}, "target= has no meaning"),
        (lambda X, y: (Arrays(X, y), y), {}, "y= has no meaning"),
        (lambda X, y: (X, y), {"target": "label"}, "target= has no meaning"),
        (lambda X, y: (as_table(X, y),), {}, "target= is missing.*one of"),
        (
            lambda X, y: ("some/where.parquet", y),
            {"target": "label"},
            "y= has no meaning",
        ),
        (
            lambda X, y: (Arrays(X, np.full(len(X), "red")),),
            {},
            "only one class, 'red'",
        ),
        (lambda X, y: (lambda: iter([]),), {}, "no rows"),
        (lambda X, y: (chunks(X, y)(),), {}, "read only once"),
        (lambda X, y: (Arrays(X, y),), {"schedule": "inner-exact"}, "all rows at once"),
        (
            lambda X, y: (Arrays(X, y),),
            {"class_weight": {"red": 0.0}},
            "remove its rows",
        ),
        (lambda X, y: ("table.csv",), {"target": "y"}, "does not exist"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(data, options, words):
    with pytest.raises((BadInput, BadOption), match=words):
        fit(*data(*draw(50)), **options)


def test_a_damaged_page_of_a_parquet_file_is_bad_input(tmp_path):
    X, y = draw(200)
    path = tmp_path / "rows.parquet"
    pq.write_table(as_table(X, y), path, compression="none")
    content = bytearray(path.read_bytes())
    content[4:24] = b"\xff" * 20  # the header of the first page
    path.write_bytes(bytes(content))
    with pytest.raises(BadInput, match=r"rows\.parquet"):
        fit(path, target="label", method="sep")
