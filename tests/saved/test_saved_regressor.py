"""A saved regressor is the regressor: the same bits after load, and the file says which
rows it holds.
"""

import numpy as np
import pandas as pd
import pytest

import cavity
from cavity import BadFile, GPRegressor
from cavity.fitting.options.library import method_names
from cavity.kernels import RBF, Linear, Matern32, Stationary
from cavity.saving.summary import describe_rows_inside
from saved.test_saved import Cauchy, attributes
from support import regressor, without_warnings

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)) * [1.0, 30.0]
Y = 50 + 4 * np.sin(X[:, 0]) + 0.1 * X[:, 1] + RNG.normal(size=40)
NEW = RNG.normal(size=(15, 2)) * [1.0, 30.0]
VARIANTS = {
    **{name: {"method": name} for name in method_names("regression")},
    "exact without noise": {"noise": 0.0, "learn": ("kernel",), "jitter": 1e-6},
    "exact in single precision": {"dtype": "float32"},
    "conjugate gradients in single precision": {"method": "cg", "dtype": "float32"},
    "a committee in single precision": {"method": "bcm", "dtype": "float32"},
    "mini-batches": {"method": "svi", "batch_size": 10},
    "free mean and factor": {"method": "svi", "q_update": "gradient"},
    "average gradients": {
        "method": "svi",
        "q_update": "gradient",
        "optimizer": "sag",
        "batch_size": 10,
    },
    "units of y": {"method": "vi", "normalize_y": False},
    "nothing learnt": {"method": "fitc", "learn": ()},
    "a sum of kernels": {"method": "nystrom", "kernel": RBF() * Linear() + Matern32()},
}


def fit(method="exact", rows=X, **options):
    usual = {
        "n_inducing": 6,
        "max_epochs": 2,
        "tol": 1.0,
        "random_state": 0,
        "device": "cpu",
    }
    with without_warnings():
        # judged by some rows, which takes no refits
        model = regressor(method, **usual | options)
        return model.fit(rows, Y, eval_set=(rows[:5], Y[:5]))


def again(gp, tmp_path, **options):
    gp.save(tmp_path / "model.cavity")
    return cavity.load(tmp_path / "model.cavity", **options)


def same(a, b):
    """Everything public is equal, predictions to the bit."""
    assert attributes(a).keys() == attributes(b).keys()
    for name, value in attributes(a).items():
        if isinstance(value, Stationary):
            assert repr(value) == repr(getattr(b, name))
        elif name != "kernel_":
            np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)
    for asked in ({"return_std": True}, {"return_cov": True}):
        for p, q in zip(a.predict(NEW, **asked), b.predict(NEW, **asked), strict=True):
            np.testing.assert_array_equal(p, q)
    np.testing.assert_array_equal(a.predict(NEW), b.predict(NEW))
    np.testing.assert_array_equal(
        a.sample_y(NEW, 3, random_state=1), b.sample_y(NEW, 3, random_state=1)
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_every_method_comes_back_to_the_bit(tmp_path, name):
    gp = fit(**VARIANTS[name])
    loaded = again(gp, tmp_path)
    assert type(loaded) is GPRegressor
    same(gp, loaded)
    one, other = (model.get_params(deep=False) for model in (loaded, gp))
    assert repr(one.pop("kernel")) == repr(other.pop("kernel")) and one == other


def test_a_kernel_of_ones_own_is_asked_for(tmp_path):
    gp = fit("cg", kernel=Cauchy())
    with pytest.raises(BadFile, match="store"):
        again(gp, tmp_path)
    same(gp, again(gp, tmp_path, kernel=Cauchy()))


def test_a_loaded_model_keeps_its_columns_and_can_be_fitted_anew(tmp_path):
    frame = pd.DataFrame(X, columns=["height", "weight"])
    gp = fit("vi", frame)
    loaded = again(gp, tmp_path, device="cpu")
    assert (
        loaded.feature_names_in_.tolist() == ["height", "weight"]
        and loaded.device == "cpu"
    )
    np.testing.assert_array_equal(loaded.predict(frame), gp.predict(frame))
    with without_warnings():
        np.testing.assert_array_equal(
            loaded.fit(frame, Y, eval_set=(frame[:5], Y[:5])).predict(frame),
            gp.predict(frame),
        )


HOLDS = {
    "vi": "none, but", "svi": "none, but", "fitc": "none, but",
    "exact": "inducing points", "pp": "inducing points", "sr": "inducing points", "sd": "inducing points", "bcm": "inducing points",
    "nystrom": "every training row, with its target", "cg": "every training row, with "
                                                            "its target",
}  # fmt: skip


@pytest.mark.parametrize("method", method_names("regression"))
def test_the_file_holds_the_rows_that_it_says(tmp_path, method):
    gp = fit(method)
    gp.save(tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    held = [row.tobytes() in content for row in X]
    targets = [
        np.float64((y - gp._result.units[0]) / gp._result.units[1]).tobytes() in content
        for y in Y
    ]
    said = describe_rows_inside(gp._record().arguments, gp._result)
    assert HOLDS[method] in said
    assert any(held) == (not said.startswith("none")) and any(
        targets
    ) == said.startswith("every")
    assert all(held) == (method in ("exact", "bcm", "nystrom", "cg"))


def test_equal_rows_without_noise_load_again(tmp_path):
    """Nyström's factor has pivots of 1/σ, and noise of 1e-16 and less is learnt where
    targets follow the rows exactly.
    """
    rows = np.repeat(X[:20], 3, axis=0)
    with without_warnings():
        model = GPRegressor(method="nystrom", random_state=0, device="cpu").fit(
            rows, np.sin(rows[:, 0])
        )
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(
        cavity.load(tmp_path / "m").predict(NEW), model.predict(NEW)
    )
