"""A file with a valid digest that loads predicts probabilities: whatever numbers a
forger writes, else it raises BadFile.
"""

from __future__ import annotations

import itertools
import math
import time
from functools import partial

import numpy as np
import pytest
import torch

import cavity
from cavity import BadFile, GPClassifier, GPRegressor
from cavity.cli.describing import describe_model
from cavity.common import tensor_files
from cavity.fitting.options import nest
from cavity.kernels import Linear, RationalQuadratic
from cavity.pool.network_training import train_networks
from cavity.pool.pool import Pool
from cavity.saving import schema
from cavity.saving.model_file import describe, read_result
from cavity.tables.validation import Prepared
from saved.make_models import FOLDER
from saved.test_damage import CLASSIFIER, REGRESSOR, Sample
from support import toy, without_warnings

EVIL = (0.0, -1.0, 1e-300, 1e30, 1e300, -1e300, math.nan, math.inf)
QUIET = (
    "history",
    "preparation",
    "summary",
    "notes",
    "scalars",
)  # JSON that no prediction reads


KINDS = ("sep", "two classes", "float32", "fixed", "regressor", "committee", "networks")


def fitted(kind: str, path) -> Sample:
    """A small sound file."""
    X, y = toy(30, 2 if kind == "two classes" else 3)
    few = {
        "n_inducing": 4,
        "max_epochs": 2,
        "tol": 1.0,
        "random_state": 0,
        "device": "cpu",
    }
    model = {
        "sep": lambda: GPClassifier("sep", **nest(**few)),
        "two classes": lambda: GPClassifier(
            "ep", **nest(kernel=RationalQuadratic() + Linear(), **few)
        ),
        "float32": lambda: GPClassifier("ep", **nest(dtype="float32", **few)),
        "fixed": lambda: GPClassifier("ep", **nest(learn=(), noise=0.1, **few)),
        "networks": lambda: GPClassifier("ep", **nest(**few)),
        "regressor": lambda: GPRegressor("fitc", **nest(**few)),
        "committee": lambda: GPRegressor("bcm", **nest(**few)),
    }[kind]()
    with without_warnings():
        model.fit(X, y * 1.5 if kind in ("regressor", "committee") else y)
        if kind == "networks":
            networks = next(
                train_networks(X, y, None, 1 + int(y.max()), count=2, seed=0, steps=300)
            )[1]
            pool = Pool(0.5, (networks,), (0.5,))
            model._result = model._result._replace(
                model=model._fitted._replace(pool=pool)
            )
        model.save(path)
    return Sample(path.read_bytes())


def forgeries(sample):
    """Yield what was changed and a function that makes the file: one or all numbers of
    a tensor, each number of the JSON.
    """
    for name, tensor in sample.tensors.items():
        if name.startswith("arguments.") or not tensor.numel():
            continue
        for value in EVIL if tensor.is_floating_point() else (-1, 0, 1, 2**31 - 1):
            for part in (slice(None), -1) if tensor.numel() > 1 else (slice(None),):
                yield (
                    f"{name}[{part}] = {value}",
                    partial(forge, sample, name, part, value),
                )
    for path in sample.places:
        old = sample.meta
        for key in path:
            old = old[key]
        if isinstance(old, int | float) and path[0] not in QUIET:
            for value in EVIL:
                yield f"{path} = {value}", partial(sample.changed, *path, to=value)


def forge(sample, name, part, value):
    new = sample.tensors[name].clone()
    new.view(-1)[part] = torch.tensor(value, dtype=torch.float64).to(new.dtype)
    return sample.file(tensors=sample.tensors | {name: new})


def find_nonsense(path, X):
    """Return what is wrong with the predictions of a file; None if it is refused, or
    they are sound and torch can go on with it.
    """
    try:
        model = cavity.load(path)
    except BadFile:
        return None
    values = predict(model, X)
    if not np.isfinite(values).all():
        return "not finite"
    if hasattr(model, "classes_") and not np.allclose(values.sum(1), 1, atol=1e-6):
        return f"sums to {values.sum(1)}"
    model._fitted.modules.get()
    return None


def predict(model, X):
    rows = X if getattr(model, "preparation_", None) is None else Prepared(X)
    if hasattr(model, "classes_"):
        return model.predict_proba(rows)
    return np.column_stack(model.predict(rows, return_std=True))


def check_forgeries(kind, path, every):
    """Load every n-th forgery; the sound file must load, and its predictions be sound."""
    given = {"stored": CLASSIFIER, "stored regressor": REGRESSOR}
    sample = given[kind] if kind in given else fitted(kind, path)
    path.write_bytes(sample.content)
    D = len(sample.tensors["prior.center"])
    X = np.vstack(
        [np.zeros(D), np.random.default_rng(0).normal(size=(3, D)), np.full(D, 1e3)]
    )
    assert np.isfinite(predict(cavity.load(path), X)).all()
    bad = {}
    with without_warnings():
        for what, make in itertools.islice(forgeries(sample), 0, None, every):
            path.write_bytes(make())
            problem = find_nonsense(path, X)
            if problem is not None:
                bad[what] = problem
    assert not bad


@pytest.mark.parametrize("kind", ["stored", "stored regressor", "sep"])
def test_a_forged_file_that_loads_predicts_probabilities(kind, tmp_path):
    """Of 4,892 such files 309 loaded and predicted nonsense, or raised another error."""
    check_forgeries(kind, tmp_path / "m", every=11)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored", "stored regressor", *KINDS])
def test_every_forged_file_that_loads_predicts_probabilities(kind, tmp_path):
    check_forgeries(kind, tmp_path / "m", every=1)


@pytest.mark.parametrize(
    "long", ["x" * (25 << 20), [[]] * 1_000_000], ids=["25 MB", "a million values"]
)
def test_long_json_is_refused_soon(tmp_path, long):
    """60 MB took 20 s to read, 31 MB of empty lists 8 s."""
    path, words = tmp_path / "m", "a cavity file has at most 24 MB and 400000"
    path.write_bytes(CLASSIFIER.file(CLASSIFIER.meta | {"notes": {"long": long}}))
    for reader in (cavity.load, read_result, describe_model):
        refuse_soon(reader, path, words)
    with pytest.raises(BadFile, match=f"{words}"):
        tensor_files.write(tmp_path / "new", "model", {}, {"notes": long})


def test_many_tensors_are_refused_soon(tmp_path):
    empty, path = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}, tmp_path / "m"
    path.write_bytes(
        CLASSIFIER.container(
            CLASSIFIER.header | {f"arguments.{i}": empty for i in range(30_000)}
        )
    )
    for reader in (cavity.load, read_result, describe_model):
        refuse_soon(reader, path, "at most 20000")


def test_a_pool_of_many_members_is_refused_soon(tmp_path):
    """A million took 27 s."""
    pool, path = (
        {"weight": 1.0, "weights": [1.0] * 10**5, "boosted": [True] * 10**5},
        tmp_path / "m",
    )
    path.write_bytes(CLASSIFIER.changed("pool", to=pool))
    refuse_soon(cavity.load, path, "pool.weights has more than 1000 values")


def test_trees_that_share_nodes_are_refused(tmp_path):
    sample, path, name = (
        Sample((FOLDER / "format-4.cavity").read_bytes()),
        tmp_path / "m",
        "pool.0.root",
    )
    path.write_bytes(
        sample.file(tensors=sample.tensors | {name: sample.tensors[name].flip(0)})
    )
    with pytest.raises(BadFile, match="trees"):
        cavity.load(path)


def refuse_soon(reader, path, words):
    begin = time.process_time()
    with pytest.raises(BadFile, match=words):
        reader(path)
    assert time.process_time() - begin < 3


def test_a_summary_is_what_the_schema_says():
    """`cavity info` reads the one, and `save` writes the other."""
    with without_warnings():
        record = cavity.load(FOLDER / f"format-{tensor_files.FORMAT}.cavity")._record()
    names = [name.removesuffix("?") for name in schema.SUMMARY]
    assert sorted(describe(record)) == sorted(names)


@pytest.mark.parametrize(
    "name, value",
    [
        ("classes", 5),
        ("noise", {}),
        ("relevance", {"a": "much"}),
        ("epochs", -1),
        ("kernel", None),
    ],
)
def test_info_refuses_a_forged_summary(name, value, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(REGRESSOR.changed("summary", name, to=value))
    with pytest.raises(BadFile, match=rf"m: {name}"):
        describe_model(path)
