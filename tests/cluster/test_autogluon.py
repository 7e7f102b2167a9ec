"""AutoGluon trains, weighs, saves and loads the model like its own."""

import numpy as np
import pytest

from pages import run_section

pandas = pytest.importorskip("pandas")
tabular = pytest.importorskip(
    "autogluon.tabular", reason="autogluon.tabular is not installed: make test-cluster runs these tests"
)
from cavity import BadOption, GPClassifier  # noqa: E402
from cavity.export.autogluon import CavityModel  # noqa: E402

QUICK = {"method": "sep", "n_inducing": 8, "max_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def frame():
    rng, n = np.random.default_rng(0), 120
    table = pandas.DataFrame({"age": rng.integers(20, 60, n), "mass": rng.normal(size=n)})
    table["island"] = rng.choice(["Biscoe", "Dream"], n)
    table.loc[3, "mass"], table.loc[5, "island"] = np.nan, None
    table["kind"] = np.where(table["mass"] > 0.5, "a", np.where(table["island"] == "Dream", "b", "c"))
    table["size"] = table["mass"].fillna(0) * 2 + rng.normal(size=n) / 10
    return table


def predictor(path, label, **more):
    return tabular.TabularPredictor(label, path=str(path), verbosity=0, **more)


def test_the_member_is_the_estimator_on_the_columns_that_autogluon_made(frame, tmp_path):
    rows = frame.drop(columns="size")
    made = predictor(tmp_path / "ag", "kind").fit(
        rows[:90], hyperparameters={CavityModel: QUICK}, tuning_data=rows[90:]
    )
    member = made._trainer.load_model("Cavity")
    X = made.transform_features(rows[:90])
    y, held = (made.transform_labels(rows["kind"][part]).to_numpy() for part in (slice(90), slice(90, None)))
    given = made.transform_features(rows[90:]), held
    expected = GPClassifier(**QUICK, ensemble=None).fit(X, y, eval_set=given)
    np.testing.assert_allclose(member.predict_proba(X), expected.predict_proba(X), atol=1e-10)
    again = tabular.TabularPredictor.load(str(tmp_path / "ag"))
    pandas.testing.assert_frame_equal(again.predict_proba(rows), made.predict_proba(rows))
    with pytest.raises(KeyError, match="mass"):
        made.predict(rows.drop(columns="mass"))


def test_a_number_is_regressed_and_an_unknown_argument_is_named(frame, tmp_path):
    rows, quick = frame.drop(columns="kind"), {"method": "vi", "n_inducing": 8, "max_epochs": 30}
    made = predictor(tmp_path / "a", "size").fit(
        rows[:90], hyperparameters={CavityModel: quick}, time_limit=60
    )
    assert made.evaluate(rows[90:])["r2"] > 0.5
    with pytest.raises(TypeError, match="no_such_argument"):
        predictor(tmp_path / "b", "size").fit(
            rows, hyperparameters={CavityModel: {"no_such_argument": 1}}, raise_on_model_failure=True
        )


def test_autogluon_s_own_check_of_a_model_passes():
    """Binary, multi-class and regression; bagged, refitted, one row at a time; torch's settings are left as they were."""
    from autogluon.tabular.testing import FitHelper

    quick = {"n_inducing": 8, "max_epochs": 3, "kernel": "Matern52"}
    FitHelper.verify_model(CavityModel, quick)


def test_a_kernel_is_given_by_name_and_an_unknown_one_is_named(frame, tmp_path):
    rows = frame.drop(columns="size")
    made = predictor(tmp_path / "a", "kind").fit(
        rows, hyperparameters={CavityModel: QUICK | {"kernel": "RBF"}}
    )
    assert type(made._trainer.load_model("Cavity").model.kernel).__name__ == "RBF"
    with pytest.raises(BadOption, match=r"kernel 'RBFF' is unknown; use .*RBF"):
        predictor(tmp_path / "b", "kind").fit(
            rows, hyperparameters={CavityModel: {"kernel": "RBFF"}}, raise_on_model_failure=True
        )


def test_tabarena_makes_experiments_of_the_default_and_of_the_search_space():
    pytest.importorskip(
        "tabarena.benchmark", reason="needs tabarena, 0.1 or newer: pip install 'tabarena>=0.1'"
    )
    names = run_section("clusters.md", "TabArena")
    assert len(names["experiments"]) == 2
    assert all("Cavity" in experiment.name for experiment in names["experiments"])
    assert len(names["systems"]) == 1


def test_the_page_runs(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_section("clusters.md", "AutoGluon", frame=frame.drop(columns="size"))
    assert "Cavity" in set(names["predictor"].leaderboard()["model"])
