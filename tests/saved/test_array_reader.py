"""Models read into NumPy predict what the full reader's do, and what it refuses is refused in the same words."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cavity import BadFile, GPClassifier, GPRegressor
from cavity.kernels import RBF, Constant, Linear
from cavity.options import nest
from cavity.prediction.latent import log_probit_probabilities
from cavity.prediction.model import predict_log_proba
from cavity.saving.array_reader import read_array_record
from cavity.saving.model_file import read_record
from saved.test_damage import CASES, Sample, damaged
from support import toy


def fit(model, X, y, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y).save(path)
    return path


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Sound files that are read into NumPy: a classifier that can grow, one of a given kernel, a regressor."""
    folder = tmp_path_factory.mktemp("samples")
    X, y = toy(30, 3)
    few = {"n_inducing": 4, "max_epochs": 2, "tol": 1.0, "random_state": 0}
    models = {
        "sep": GPClassifier("sep", **nest(**few)),
        "combined": GPClassifier("ep", **nest(kernel=RBF() * Constant() + Linear(), calibration=None, **few)),
        "regressor": GPRegressor("fitc", **nest(**few)),
    }
    return {
        name: Sample(fit(model, X, y * 1.5 if name == "regressor" else y, folder / name).read_bytes())
        for name, model in models.items()
    }


@pytest.mark.parametrize("name", ["sep", "combined", "regressor"])
def test_the_samples_are_read_into_numpy(name, samples, tmp_path):
    (tmp_path / "m").write_bytes(samples[name].content)
    assert read_array_record(tmp_path / "m") is not None


def read(path, reader):
    """What a reader makes of a file, or the words in which it refuses it."""
    try:
        return reader(path), None
    except BadFile as refused:
        return None, str(refused)


@pytest.mark.parametrize("name", CASES)
def test_forged_files_are_refused_in_the_same_words_or_left_to_the_full_reader(name, tmp_path):
    (tmp_path / "m").write_bytes(CASES[name][0])
    found, words = read(tmp_path / "m", read_array_record)
    assert found is None and words in (None, read(tmp_path / "m", read_record)[1])


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.parametrize("name", ["sep", "combined", "regressor"])
def test_a_file_is_not_read_into_numpy_if_the_full_reader_refuses_it_and_the_reverse(
    name, samples, tmp_path, data
):
    path = tmp_path / "m"
    path.write_bytes(data.draw(damaged(samples[name])))
    found, refused = read(path, read_array_record)
    if found is None and refused is None:
        return
    record, words = read(path, read_record)
    assert (refused is None) == (words is None)
    X = toy(5, 3)[0]
    if found is not None and found.classes is not None:
        np.testing.assert_array_equal(found.classes, record.result.classes)
        mean, var = found.model.marginals(X)
        log_p = log_probit_probabilities(mean, var)
        if log_p is not None:
            log_p = found.pool.combine(log_p, X, var)
            (expected,) = predict_log_proba(record.result.model, X)
            np.testing.assert_allclose(np.exp(log_p), np.exp(expected), atol=1e-9, rtol=0)


def test_a_flipped_bit_is_never_read_into_numpy(samples, tmp_path):
    path, rng = tmp_path / "m", np.random.default_rng(0)
    for _ in range(50):
        content = bytearray(samples["sep"].content)
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        assert read(path, read_array_record)[0] is None  # refused, or left to the full reader
        with pytest.raises(BadFile):
            read_record(path)
