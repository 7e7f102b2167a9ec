"""Numbers that name groups of rows: found only where they pay, encoded without a row's own label."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cavity import GPClassifier, Preparation, export, load
from cavity.cli.app import app
from cavity.errors import BadFile
from cavity.rows.columns.column_kinds import count_shares
from cavity.rows.columns.group_shares import PRIOR_ROWS, Labels, find_groups, replace_shares
from cavity.rows.tables import GivenRows, read_table, read_table_of_fit

PEOPLE, YEARS = 80, 6


def panel(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """People over years: the class is that of the person in four rows of five."""
    rng = np.random.default_rng(seed)
    number = np.repeat(rng.choice(10_000, PEOPLE, replace=False), YEARS)
    own = np.repeat(rng.integers(3, size=PEOPLE), YEARS)
    y = np.where(rng.random(len(own)) < 0.8, own, rng.integers(3, size=len(own)))
    frame = pd.DataFrame(
        {
            "person": number,
            "year": np.tile(np.arange(2000, 2000 + YEARS), PEOPLE),
            "sex": rng.choice(["f", "m"], len(y)),
        }
    )
    return frame, y


def find(frame: pd.DataFrame, y: np.ndarray) -> tuple[np.ndarray, tuple, Labels]:
    prepare = Preparation().fit(frame)
    labels = Labels(np.unique(y, return_inverse=True)[1], np.ones(len(y)), tuple(map(str, np.unique(y))))
    return *find_groups(prepare.encode(frame), prepare.columns_, labels), labels


def test_a_person_is_a_group_and_a_year_is_not():
    columns = find(*panel())[1]
    assert [c.name for c in columns if count_shares(c)] == ["person"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["age", "count", "noise", "spiky", "repeated"])
def test_a_quantity_is_not_a_group(kind, seed):
    """Neighbours of a quantity tell as much as the value itself, however often values repeat."""
    rng = np.random.default_rng(seed)
    value = {
        "age": rng.integers(18, 90, 600),
        "count": rng.poisson(np.exp(rng.normal(4, 0.5, 600))),
        "noise": rng.choice(5000, 100)[rng.integers(100, size=600)],
        "spiky": 50 * rng.integers(0, 120, 600),
        "repeated": np.repeat(rng.choice(5000, 100, replace=False), 6),
    }[kind]
    signal = np.full(600, 0.0) if kind in ("noise", "repeated") else np.sin(6 * value / np.ptp(value))
    y = (signal + rng.normal(0, 0.5, 600) > 0).astype(int)
    frame = pd.DataFrame({"value": value, "sex": rng.choice(["f", "m"], 600)})
    X, columns, _ = find(frame, y)
    assert not any(map(count_shares, columns))
    np.testing.assert_array_equal(X, Preparation().fit(frame).encode(frame))


def test_copies_of_a_row_do_not_make_a_group():
    """An oversampled table: the labels of a row's copies say nothing about new rows."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.integers(100, 900, 150), "age": rng.integers(18, 90, 150)})
    y = rng.integers(2, size=150)
    copies = np.repeat(np.arange(150), 5)
    columns = find(frame.iloc[copies].reset_index(drop=True), y[copies])[1]
    assert not any(map(count_shares, columns))


def test_shares_are_those_of_the_definition():
    frame, y = panel()
    column = next(c for c in find(frame, y)[1] if count_shares(c))
    prior = np.bincount(y) / len(y)
    person = frame["person"][10]
    count = np.bincount(y[frame["person"] == person], minlength=3)
    expected = (count + PRIOR_ROWS * prior) / (count.sum() + PRIOR_ROWS) - prior
    np.testing.assert_allclose(
        column.find_shares(np.array([person, 123_456.0, np.nan])), [expected, [0] * 3, [0] * 3]
    )


def test_a_rows_own_label_is_not_in_its_features():
    frame, y = panel()
    X, columns, labels = find(frame, y)
    other = labels.y.copy()
    other[17] = (other[17] + 1) % 3
    prior = labels._replace(y=other)
    changed = replace_shares(X, columns, prior)[17] - X[17]
    # the frequencies of the whole table are all that may move
    assert np.abs(changed).max() < 2 * PRIOR_ROWS / len(y)


def test_missing_numbers_have_no_group():
    frame, y = panel()
    frame["person"] = frame["person"].astype(float).where(np.arange(len(y)) % 10 > 0)
    X, columns, _ = find(frame, y)
    group = columns[0]
    assert count_shares(group) == 3 and group.missing
    assert not X[::10, 2:5].any() and X[::10, 1].all() and X[1::10, 2:5].any()


@pytest.fixture(scope="module")
def fitted():
    frame, y = panel()
    train = np.arange(len(y)) % YEARS > 0
    clf = GPClassifier(effort="fast", n_inducing=20, random_state=0).fit(frame[train], y[train])
    return clf, frame, y, train


def test_a_fit_learns_from_a_persons_other_rows(fitted):
    clf, frame, y, train = fitted
    assert clf.score(frame[~train], y[~train]) > 0.7
    frame = frame.drop(columns="person")
    blind = GPClassifier(effort="fast", n_inducing=20, random_state=0).fit(frame[train], y[train])
    assert blind.score(frame[~train], y[~train]) < 0.5
    assert "80 groups" in dict(clf.preparation_.describe())["person"]
    assert clf.feature_importance_.argmax() == 0
    assert len(clf.feature_relevance_) == 3


def test_a_file_keeps_the_groups(fitted, tmp_path):
    clf, frame, *_ = fitted
    clf.save(tmp_path / "m.cavity")
    np.testing.assert_array_equal(load(tmp_path / "m.cavity").predict_proba(frame), clf.predict_proba(frame))
    stored = clf.preparation_.to_json()
    assert Preparation.from_json(stored).columns_ == clf.preparation_.columns_
    stored["columns"][0]["shares"] = stored["columns"][0]["shares"][1:]
    with pytest.raises(BadFile, match="damaged"):
        Preparation.from_json(stored)


def test_what_reads_the_training_rows_again_sees_them_as_the_fit_did(fitted):
    clf, frame, y, train = fitted
    table = read_table_of_fit(GivenRows(frame[train], y[train]), None, clf._features(), clf.classes_)
    first = read_table(GivenRows(frame[train], y[train]), None, "GPClassifier", groups=True).table
    np.testing.assert_allclose(table.X, first.X, atol=1e-12)


def test_a_validation_table_gets_shares_too(tmp_path):
    frame, y = panel()
    rows = frame.assign(y=np.array(["a", "b", "c"])[y])
    rows[rows.index % YEARS > 0].to_csv(tmp_path / "rows.csv", index=False)
    rows[rows.index % YEARS == 0].to_csv(tmp_path / "held.csv", index=False)
    config = tmp_path / "fit.toml"
    config.write_text(
        f'validation = "{tmp_path / "held.csv"}"\nn_inducing = 10\nmax_epochs = 3\neffort = "fast"\n'
    )
    out = tmp_path / "m.cavity"
    command = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--config", str(config), "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "column 'person' identifies 80 groups of rows" in " ".join(result.output.split())
    assert load(out).score(frame, np.array(["a", "b", "c"])[y]) > 0.7


def test_a_new_person_is_said(fitted):
    clf, frame, *_ = fitted
    with pytest.warns(UserWarning, match="groups that the training rows did not have"):
        clf.predict_proba(frame[:4].assign(person=-1))


def test_a_graph_looks_groups_up(fitted):
    runtime = pytest.importorskip("onnxruntime")
    clf, frame, *_ = fitted
    rows = frame[:12].copy()
    rows.loc[1, "person"] = 77_777
    session = runtime.InferenceSession(export.onnx_model(clf).SerializeToString())
    feed = {
        "person": rows[["person"]].to_numpy(np.float64),
        "year": rows[["year"]].to_numpy(np.float64),
        "sex": rows[["sex"]].to_numpy(object),
    }
    found = session.run(["probabilities"], feed)[0]
    with pytest.warns(UserWarning):
        expected = clf.predict_proba(rows)
    np.testing.assert_allclose(found, expected, atol=1e-9)
