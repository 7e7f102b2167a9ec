"""`cavity explain` and `cavity compare`: single rows, and two models side by side."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import cavity
from cavity.cli import explaining
from cavity.cli.comparing import compare_scores
from cavity.common.scoring import average, compare_log_proba, score_rows
from cli.running import QUICK, SINGLE, TRAIN, run


@pytest.fixture(scope="module")
def poor(birds):
    """Path of a model that has seen one column only."""
    out = birds / "poor.cavity"
    done = run("fit", birds / "penguins.csv", *TRAIN, "--ignore", "bill", "--ignore", "mass", *SINGLE, "--out", out)  # fmt: skip
    assert done.exit_code == 0, done.output
    return out


def test_explain_prints_the_largest_contributions_of_the_rows_that_are_asked_for(birds):
    done = run(
        "explain", birds / "birds.cavity", birds / "new.csv", "--row", "3", "--row", "1"
    )
    assert done.exit_code == 0, done.output
    rows = [line for line in done.stdout.splitlines() if line.startswith("row ")]
    assert [line.split(":")[0] for line in rows] == ["row 1", "row 3"]
    assert any(
        line.split()[1] in ("bill", "mass", "island", "sex")
        for line in done.stdout.splitlines()
    )
    assert "id =" not in done.stdout  # the model ignores it
    assert (
        run("explain", birds / "birds.cavity", birds / "new.csv").stdout.count("row ")
        == 5
    )


def test_explain_gives_the_same_numbers_as_json_and_in_python(birds, tmp_path):
    few = tmp_path / "few.csv"  # all are taken as background
    pd.read_csv(birds / "new.csv").head(explaining.BACKGROUND).to_csv(few, index=False)
    files = birds / "birds.cavity", few
    found = json.loads(run("explain", *files, "--row", "2", "--json").stdout)
    assert found["unit"] == "log-odds" and found["rows"][0]["row"] == 2
    moved = found["rows"][0]["contributions"]
    frame = pd.read_csv(few)
    clf = cavity.load(birds / "birds.cavity")
    own = clf.explain_rows(frame.iloc[[1]], frame, n_background=len(frame))
    np.testing.assert_allclose(list(moved.values()), own.of_prediction()[0], atol=1e-9)


def test_explain_needs_rows_to_compare_with_and_rows_that_exist(birds, tmp_path):
    one = tmp_path / "one.csv"
    one.write_text("\n".join((birds / "new.csv").read_text().splitlines()[:2]) + "\n")
    done = run("explain", birds / "birds.cavity", one)
    assert done.exit_code == 1 and "--background" in done.stderr
    assert (
        run(
            "explain",
            birds / "birds.cavity",
            one,
            "--background",
            birds / "penguins.csv",
        ).exit_code
        == 0
    )
    done = run("explain", birds / "birds.cavity", birds / "new.csv", "--row", "61")
    assert done.exit_code == 1 and "has no row 61" in done.stderr


def test_compare_says_which_model_is_better_and_by_how_much(birds, poor):
    files = birds / "birds.cavity", poor, birds / "new.csv"
    done = run("compare", *files)
    assert done.exit_code == 0, done.output
    assert (
        "birds.cavity is better: its log loss is" in done.stdout
        and "accuracy" in done.stdout
    )
    found = json.loads(run("compare", *files, "--json").stdout)
    frame = pd.read_csv(birds / "new.csv")
    P = [cavity.load(path).predict_proba(frame) for path in files[:2]]
    assert found["nll"]["values"] == pytest.approx(
        [log_loss(frame["species"], p) for p in P]
    )
    assert found["nll"]["difference"] == pytest.approx(
        np.subtract(*found["nll"]["values"][::-1])
    )
    assert found["nll"]["better"] == str(files[0]) and found["rows"] == 60
    swapped = json.loads(run("compare", poor, files[0], files[2], "--json").stdout)
    assert swapped["nll"]["better"] == str(files[0])
    assert swapped["error"]["difference"] == pytest.approx(
        -found["error"]["difference"]
    )


def test_compare_calls_small_differences_noise(birds):
    done = run(
        "compare", birds / "birds.cavity", birds / "birds.cavity", birds / "new.csv"
    )
    assert done.exit_code == 0 and "give these rows the same predictions" in done.stdout
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    a, b = (np.log(rng.dirichlet(np.ones(3), 200)) for _ in range(2))
    scores = compare_scores(a, b, y, np.ones(200))
    assert all(score.better is None for score in scores.values())
    assert (
        compare_scores(a, np.log(np.eye(3)[y] * 0.9 + 0.1 / 3), y, np.ones(200))[
            "nll"
        ].better
        == 1
    )


def test_the_standard_error_of_a_difference_is_paired():
    """Errors of both models on the same rows cancel: adding the same losses to both
    changes nothing.
    """
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 300)
    w = rng.uniform(0.5, 2, 300)
    a = np.log(rng.dirichlet(np.ones(3), 300))
    b = a + 0.01 * rng.normal(size=a.shape)
    found = compare_log_proba(a, b, y, w)["nll"]
    nll = score_rows(b, y)["nll"] - score_rows(a, y)["nll"]
    assert found == average(nll, w)
    assert found.error < 0.02 * average(score_rows(a, y)["nll"], w).error


def test_models_of_other_classes_and_regressors_are_not_compared(birds, tmp_path):
    table = tmp_path / "two.csv"
    lines = (birds / "penguins.csv").read_text().splitlines()
    table.write_text("\n".join(line for line in lines if "Gentoo" not in line) + "\n")
    run("fit", table, *TRAIN, *SINGLE, "--out", tmp_path / "two.cavity")
    done = run(
        "compare", birds / "birds.cavity", tmp_path / "two.cavity", birds / "new.csv"
    )
    assert (
        done.exit_code == 1
        and "only one of the models has the class 'Gentoo'" in done.stderr
    )
    words = "--target", "mass", "--regression", "--out", tmp_path / "r"
    run("fit", birds / "penguins.csv", *words, *QUICK)
    done = run("compare", birds / "birds.cavity", tmp_path / "r", birds / "new.csv")
    assert done.exit_code == 1 and "is a regressor" in done.stderr
    done = run("explain", tmp_path / "r", birds / "new.csv", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["unit"] == "target"
