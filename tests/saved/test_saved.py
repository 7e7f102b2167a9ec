"""A saved model is the model: the same bits after load, everything but the rows, and no
code.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save as serialise
from sklearn.base import clone

import cavity
from cavity import BadFile, BadInput, BadOption, Preparation
from cavity.callbacks import Callback
from cavity.cli.describing import describe_model
from cavity.common import tensor_files
from cavity.kernels import RBF, Constant, Kernel, Linear, Matern12, Matern32, Stationary
from saved.make_models import table, target
from saved.test_damage import Sample
from support import classifier, toy, without_warnings

METHODS = {
    "auto": dict(calibration="auto"),
    "ep": dict(method="ep"),
    "sep": dict(method="sep"),
    "rep": dict(method="rep", learn=("kernel", "epsilon")),
    "rep tied": dict(method="rep", sites="tied", epsilon=0.02),
    "pep": dict(method="pep", power=0.7),
    "gfitc": dict(method="gfitc"),
    "vi": dict(method="vi"),
    "vi softmax": dict(method="vi", likelihood="softmax"),
    "vi gradient": dict(method="vi", q_update="gradient"),
    "nothing learnt": dict(learn=(), noise=0.0),
    "all shared": dict(share="both"),
    "inducing shared": dict(share="inducing", noise=[0.1, 0.2, 0.3]),
    "mini-batches": dict(method="sep", batch_size=10),
}
KERNELS = {  # tests/contract asks every kernel alone
    "matern12": Matern12(lengthscale=[1.0, 2.0]),
    "matern32": Matern32(lengthscale=np.array([1.0, 2.0])),
    "sum and product": RBF() * Linear() + Constant(0.5) * Matern12(),
}


class Cauchy(Stationary):
    @staticmethod
    def shape(xp, d2):
        return -xp.log1p(d2)


class Cosine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log_variance = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def _unit(self, X):
        return torch.nn.functional.normalize(X, dim=-1)

    def full(self, Z):
        return self.log_variance.exp() * self._unit(Z) @ self._unit(Z).mT

    def cross(self, Z, X):
        return self.log_variance.exp() * self._unit(Z) @ self._unit(X).mT

    def diag(self, X):
        return self.log_variance.exp().expand(1, len(X))


FOREIGN = {
    "a torch module": Cosine,
    "a stationary kernel of one's own": Cauchy,
    "a sum with one": lambda: RBF() + Cauchy(),
}


def fit(X, y, **options):
    usual = dict(
        n_inducing=5,
        max_epochs=2,
        tol=1.0,
        calibration=None,
        random_state=0,
        device="cpu",
    )
    with without_warnings():
        return classifier(**usual | options).fit(X, y)


def attributes(clf):
    return {
        name: value
        for name, value in vars(clf).items()
        if name.endswith("_") and not name.startswith("_")
    }


def same(a, b):
    """Everything public is equal, predictions to the bit."""
    assert attributes(a).keys() == attributes(b).keys()
    for name, value in attributes(a).items():
        other = getattr(b, name)
        if isinstance(value, np.ndarray):
            assert value.dtype.kind == other.dtype.kind
            np.testing.assert_array_equal(value, other)
        elif isinstance(value, Kernel):
            assert repr(value) == repr(other)
            assert sum(1 for _ in value.parameters()) == sum(
                1 for _ in other.parameters()
            )
            for p, q in zip(value.parameters(), other.parameters(), strict=True):
                assert torch.equal(p, q) and p.requires_grad == q.requires_grad
        elif not isinstance(value, torch.nn.Module):
            assert value == other, name
    X = np.random.default_rng(1).normal(scale=2, size=(50, a.n_features_in_))
    for what in ("predict_log_proba", "predict_proba", "predict"):
        np.testing.assert_array_equal(getattr(a, what)(X), getattr(b, what)(X))
    for p, q in zip(a.predict_latent(X), b.predict_latent(X), strict=True):
        np.testing.assert_array_equal(p, q)


def again(clf, tmp_path, **options):
    clf.save(tmp_path / "model.cavity")
    return cavity.load(tmp_path / "model.cavity", **options)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "classes, dtype", [(2, "float64"), (3, "float64"), (3, "float32")]
)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back_to_the_bit(tmp_path, name, classes, dtype):
    options = METHODS[name] | dict(dtype=dtype)
    if classes == 2 and isinstance(options.get("noise"), list):
        options["noise"] = 0.2
    clf = fit(*toy(30, classes), **options)
    loaded = again(clf, tmp_path)
    same(clf, loaded)
    assert loaded.get_params() == clf.get_params()


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_kernels_come_back_to_the_bit(tmp_path, name):
    clf = fit(*toy(40, 3), kernel=KERNELS[name])
    loaded = again(clf, tmp_path)
    same(clf, loaded)
    assert repr(loaded.kernel) == repr(clf.kernel)
    assert loaded.kernel is not loaded.kernel_


def test_a_kernel_that_is_used_twice_comes_back_as_two(tmp_path):
    twice = Matern32()
    clf = fit(*toy(40, 3), kernel=twice + twice * Constant())
    loaded, X = (
        again(clf, tmp_path),
        np.random.default_rng(1).normal(size=(20, clf.n_features_in_)),
    )
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert loaded.kernel_.k1 is not loaded.kernel_.k2.k1


@pytest.mark.parametrize("name", FOREIGN)
def test_a_kernel_of_ones_own_is_asked_for_and_gets_its_learnt_values(tmp_path, name):
    make = FOREIGN[name]
    clf = fit(*toy(40, 3), kernel=make())
    with pytest.raises(BadFile, match="kernel="):
        again(clf, tmp_path)
    same(clf, again(clf, tmp_path, kernel=make()))
    with pytest.raises(BadFile, match="as for the fit"):
        again(clf, tmp_path, kernel=RBF())


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["b", "a", "çé"]),
        np.array(["b", "a", "long label"], dtype=object),
        np.array([10, -2, 3], dtype=np.int32),
        np.array([3.0, 1.0, 2.0]),
        np.array([True, False, True]),
        np.array([3, 200, 7], dtype=np.uint8),
    ],
    ids=lambda a: str(a.dtype),
)
def test_labels_keep_their_type(tmp_path, labels):
    X, y = toy(40, 3)
    clf = fit(X, labels[y])
    loaded = again(clf, tmp_path)
    same(clf, loaded)
    assert loaded.score(X, labels[y]) == clf.score(X, labels[y])
    assert type(loaded.predict(X)[0]) is type(clf.predict(X)[0])


def test_labels_that_json_cannot_hold_are_refused_in_words(tmp_path):
    clf = fit(*toy(40, 2))
    clf.classes_ = np.array([b"no", b"yes"])
    with pytest.raises(BadInput, match=r"bytes.*astype\(str\)"):
        clf.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_arguments_come_back_as_they_were_and_what_no_file_holds_at_its_default(
    tmp_path,
):
    X, y = toy(40, 3)
    given = dict(
        inducing=X[:5], noise=np.array([0.1, 0.2, 0.3]), class_weight={0: 1.0, 1: 2.0, 2: 1.5}, learn=("kernel",)
    )  # fmt: skip
    clf = fit(
        X,
        y,
        **given,
        random_state=np.random.RandomState(3),
        callbacks=[Callback()],
        dtype=torch.float64,
    )
    loaded = again(clf, tmp_path)
    same(clf, loaded)
    np.testing.assert_array_equal(loaded.inducing, given["inducing"])
    np.testing.assert_array_equal(loaded.training.noise, given["noise"])
    assert loaded.class_weight == given["class_weight"] and loaded.training.learn == (
        "kernel",
    )
    assert (
        loaded.random_state is None
        and loaded.callbacks == ()
        and loaded.training.dtype == "float64"
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(method="sep"),
        dict(method="rep", sites="tied", learn=("kernel", "epsilon")),
    ],
    ids=str,
)
def test_partial_fit_goes_on_from_a_pickle_and_not_from_a_file(tmp_path, options):
    X, y = toy(120, 3)
    clf = fit(X[:60], y[:60], **options)
    clf.partial_fit(X[60:80], y[60:80])  # an optimiser with a memory
    with pytest.raises(BadOption, match="comes from a file"):
        again(clf, tmp_path).partial_fit(X[80:], y[80:])
    loaded = pickle.loads(pickle.dumps(clf))
    for model in (clf, loaded):
        model.partial_fit(X[80:], y[80:])
    same_but_for_time(clf, loaded)


def same_but_for_time(a, b):
    for clf in (a, b):
        for row in clf.history_:
            for name in ("seconds", "settling_seconds"):
                row.pop(name, None)
    same(a, b)


def test_a_loaded_model_can_be_fitted_anew(tmp_path):
    X, y = toy(40, 3)
    clf = fit(X, y)
    same_but_for_time(clf, again(clf, tmp_path).fit(X, y))


def test_vi_of_an_older_file_keeps_its_likelihood(tmp_path):
    """Such a file says "vi", and its likelihood is what the default was then."""
    X, y = toy(20, 3)
    few = dict(n_inducing=4, max_epochs=2, random_state=0, device="cpu")
    clf = classifier("vi", likelihood="robust-max", **few).fit(X, y)
    clf.method = "vi"
    clf.save(tmp_path / "m")
    assert cavity.load(tmp_path / "m").method.likelihood == "robust-max"


def test_a_file_does_not_choose_where_a_later_fit_writes(tmp_path):
    """B4: `arguments.checkpoint` came from the file, and clone(load(f)).fit overwrote
    what it names.
    """
    X, y = toy(40, 3)
    victim, path = tmp_path / "victim", tmp_path / "m"
    victim.write_text("precious")
    fit(X, y).save(path)
    tensors, meta, _ = tensor_files.read(path, "model")
    forged = meta | {
        "arguments": meta["arguments"] | {"checkpoint": str(victim), "resume": True}
    }
    text = json.dumps(forged)
    path.write_bytes(
        serialise(
            tensors, {"cavity": text, "sha256": tensor_files.digest(tensors, text)}
        )
    )
    loaded = cavity.load(path)
    assert loaded.training.checkpoint is None and loaded.training.resume is False
    with without_warnings():
        clone(loaded).fit(X, y)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "options", [{"method": "sep"}, {"effort": "fast"}, {}], ids=str
)
def test_a_file_holds_no_row_and_says_whether_points_began_at_rows(tmp_path, options):
    """Numbers of the table that no statistic shows: neither in float64 nor in float32.

    Those of the default are not near rows.
    """
    X, y = toy(60, 3, D=3)
    clf = fit(X, y, **{"method": "auto"} | options)
    clf.save(tmp_path / "m")
    content, inside = (
        (tmp_path / "m").read_bytes(),
        describe_model(tmp_path / "m")["rows_inside"],
    )
    low, high = X.min(), X.max()
    inner = [v for v in X.ravel() if low < v < high]
    assert not [
        v
        for v in inner
        if np.float64(v).tobytes() in content or np.float32(v).tobytes() in content
    ]
    if "method" in options:
        assert "began at training rows" in inside
    else:
        apart = (
            np.abs((clf.inducing_points_[:, :, None] - X) / X.std(0)).max(-1).min(-1)
        )
        assert inside == "none" and apart.min() > 0.01


def test_the_size_of_a_file_does_not_depend_on_the_rows(tmp_path):
    sizes = []
    for n in (60, 600):
        clf = fit(*toy(n, 3, D=3), method="sep", n_inducing=10, max_epochs=2)
        clf.save(tmp_path / "m")
        sizes.append((tmp_path / "m").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 500  # digits of numbers in the header


def test_the_device_is_for_predictions_and_later_fits(tmp_path):
    clf = fit(*toy(40, 3))
    loaded = again(clf, tmp_path, device="cpu")
    assert loaded.device == "cpu"
    same(clf, loaded)
    with pytest.raises(BadOption, match="device"):
        again(clf, tmp_path, device="toaster")


# ---------------------------------------------------------------- for ever
MODELS = sorted((Path(__file__).parent / "models").glob("*.cavity"))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_files_of_this_format_load(path):
    assert path.stat().st_size < 50_000
    clf = cavity.load(path)
    expected = json.loads(path.with_suffix(".json").read_text())
    X = pd.DataFrame(table())[list(clf.preparation_.inputs)]
    assert clf.notes_ and isinstance(clf.preparation_, Preparation)
    if path.stem.endswith("-regressor"):
        mean, std = clf.predict(X[:8], return_std=True, noise=False)
        np.testing.assert_allclose(mean, expected["mean"], rtol=1e-6)
        np.testing.assert_allclose(std, expected["std"], rtol=1e-6)
        assert clf.score(X, target(table())) > 0.5
        return
    np.testing.assert_allclose(clf.predict_proba(X[:8]), expected["p"], rtol=1e-9)
    assert clf.predict(X[:8]).tolist() == expected["label"]


@pytest.mark.parametrize("number", range(1, tensor_files.FORMAT))
def test_files_of_older_formats_say_who_wrote_them_and_what_to_do(number, tmp_path):
    path, sample = tmp_path / "m", Sample(MODELS[0].read_bytes())
    path.write_bytes(sample.file(sample.meta | {"format": number, "version": "0.2.1"}))
    for read in (cavity.load, describe_model):
        with pytest.raises(BadFile, match=rf"format {number}.*0\.2\.1"):
            read(path)
