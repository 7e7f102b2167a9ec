"""Mistakes of a first hour are answered with what to do."""

import warnings

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.errors import BadFile, BadInput


def test_a_csv_file_and_a_folder_that_does_not_exist_are_named_with_what_to_do(
    tmp_path,
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n1,2\n")
    with pytest.raises(BadInput, match=r"read_csv.*cavity fit"):
        GPClassifier().fit(path, target="y")
    X = np.arange(40.0)[:, None]
    clf = GPClassifier("sep", n_inducing=3, max_epochs=1, random_state=0).fit(
        X, X[:, 0] > 20
    )
    with pytest.raises(BadFile, match="nope'"):
        clf.save(tmp_path / "nope" / "model.cavity")


def test_classes_of_a_single_row_are_warned_of_before_the_fit() -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.minimum(np.arange(60), 49)
    with warnings.catch_warnings(), pytest.raises(UserWarning, match="49 of 50"):
        warnings.simplefilter("error")
        GPClassifier("sep", n_inducing=3, max_epochs=1).fit(X, y)
