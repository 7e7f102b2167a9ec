"""`cavity suspects`: rows of a file with improbable labels; `cavity info`: the pool."""

import json

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier
from cli.running import TRAIN, run

FAST = ("--effort", "fast")


@pytest.fixture(scope="module")
def wrong(birds, tmp_path_factory):
    """A table with one wrong label, and a row without a label before it."""
    path = tmp_path_factory.mktemp("wrong") / "birds.csv"
    table = pd.read_csv(birds / "penguins.csv")
    names = table["species"].dropna().unique()
    row = table.index[table["species"] == names[0]][5]
    table.loc[row, "species"] = names[1]
    table.loc[0, "species"] = None
    table.to_csv(path, index=False)
    return path, row + 1, names[0]


def test_the_wrong_label_comes_first_by_its_row_in_the_file(wrong, tmp_path):
    path, row, label = wrong
    out = tmp_path / "suspects.csv"
    done = run("suspects", path, *TRAIN, *FAST, "--rows", 3, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    table = pd.read_csv(path)
    assert found["scored"] == table["species"].notna().sum()
    first = found["rows"][0]
    assert (first["row"], first["suggested"]) == (row, label)
    assert len(found["rows"]) == 3 and first["probability"] < 0.05
    written = pd.read_csv(out)
    assert written["probability"].is_monotonic_increasing
    given = table["species"].iloc[written["row"] - 1]
    assert written["label"].tolist() == given.tolist()


def test_a_table_of_numbers_has_no_suspects(birds):
    done = run("suspects", birds / "penguins.csv", "--target", "bill")
    assert done.exit_code == 2 and "'bill'" in done.output


def test_info_tells_the_members_of_a_pool_and_no_temperature(tmp_path):
    out = tmp_path / "pool.cavity"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.where(rng.random(200) < 0.4, rng.integers(0, 2, 200), X[:, 0] > 0)
    clf = GPClassifier(effort="fast", n_inducing=8, max_epochs=3, random_state=0)
    assert len(clf.fit(X, y).ensemble_weights_) > 1
    clf.save(out)
    found = json.loads(run("info", out, "--json").stdout)
    assert found["temperature"] is None
    assert found["members"]["names"] == list(clf.members_.names)
    text = run("info", out).stdout
    for name in clf.members_.names:
        assert f"pool: {name}" in text
    assert "temperature" not in text
