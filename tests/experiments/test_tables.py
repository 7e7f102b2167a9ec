"""Means of tables with text are over shared splits, and the benchmark gives both libraries the same rows."""

import numpy as np
import pandas as pd
import pytest

from experiments import text_tables
from support import load_script


@pytest.fixture(scope="module")
def tables():
    return load_script("benchmarks/tables.py")


def test_means_are_over_the_splits_that_all_models_have(tables, tmp_path):
    rows = [("chile", "fast", 1, 0.5), ("chile", "fast", 2, 9.0), ("chile", "lightgbm", 1, 0.7)]
    frame = pd.DataFrame(rows, columns=["table", "model", "seed", "nll"]).assign(rows=10, classes=4)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert "| chile | 10 | 4 | 1 | **0.5000** | – | – | 0.7000 |" in tables.summarize(tmp_path / "t.csv")


def test_both_libraries_get_the_same_rows(tables):
    y = np.array(["a"] * 30 + ["b"] * 19 + ["c"])
    train, test = tables.split(y, 0)
    assert len(train) == 40 and not set(train) & set(test) and set(y[test]) <= set(y[train])
    X = pd.DataFrame({"number": [1.0, 2.0], "text": ["x", None], "flag": [True, False]})
    kinds = [str(kind) for kind in tables.with_categories(X).dtypes]
    assert kinds == ["float64", "category", "bool"]


def test_text_tables_name_the_tables_that_the_benchmark_reads(tables):
    assert tuple(tables.SETS) == text_tables.TABLES
