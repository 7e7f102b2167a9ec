"""Writes the model files of the present format, which every later version must load:
python make_models.py.

Run once for each format (`cavity.common.tensor_files.FORMAT`); a file that is there is
never written again. Beside it, what it predicts.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from cavity import GPClassifier, GPRegressor, Preparation, Training
from cavity.common import tensor_files
from cavity.kernels import Constant, Linear, Matern52
from cavity.methods import REP
from cavity.tables.validation import Prepared

FOLDER = Path(__file__).parent / "models"


def table(rows=60):
    """Mixed columns with missing cells, and text labels."""
    rng = np.random.default_rng(0)
    height, colour = rng.normal(size=rows), rng.choice(["blue", "green", "red"], rows)
    kind = np.array(["ash", "elm", "oak"])[
        (height + (colour == "red") + 0.3 * rng.normal(size=rows) > [[0.2], [1.0]]).sum(
            0
        )
    ]
    heights = [None if i % 10 == 3 else float(h) for i, h in enumerate(height)]
    return {"height": heights, "colour": colour.tolist(), "kind": kind.tolist()}


def classifier(data):
    preparation = Preparation(target="kind").fit(data)
    X, y = preparation.transform(data), preparation.labels(data)
    clf = GPClassifier(
        REP(epsilon=0.02, sites="tied"), kernel=Matern52() * Constant() + Linear(), n_inducing=6, max_epochs=15,
        training=Training(learn=("kernel", "inducing", "noise")),
        class_weight={"ash": 1.0, "elm": 2.0, "oak": 1.0}, random_state=0, device="cpu",
        calibration="temperature", ensemble=[HistGradientBoostingClassifier(max_iter=2)],
    )  # fmt: skip
    clf.fit(Prepared(X, preparation), y)
    new = Prepared(X[:8])
    return clf, {
        "p": clf.predict_proba(new).tolist(),
        "label": clf.predict(new).tolist(),
    }


def regressor(data):
    """Its predictions go back to the training rows, which are in the file."""
    preparation = Preparation().fit({name: data[name] for name in ("height", "colour")})
    X, y = preparation.transform(data), target(data)
    gp = GPRegressor(
        "cg",
        kernel=Matern52() + Linear(),
        n_inducing=5,
        max_epochs=5,
        random_state=0,
        device="cpu",
    )
    gp.fit(Prepared(X, preparation), y, sample_weight=np.arange(len(y)) % 3 + 1)
    mean, std = gp.predict(Prepared(X[:8]), return_std=True, noise=False)
    return gp, {"mean": mean.tolist(), "std": std.tolist()}


def target(data):
    """Numbers around 100 that depend on the columns."""
    height = np.array([0.0 if h is None else h for h in data["height"]])
    red = np.array([colour == "red" for colour in data["colour"]])
    return (
        100
        + 5 * np.sin(height)
        + 3 * red
        + np.random.default_rng(1).normal(size=len(red))
    )


def main():
    for name, make in (("", classifier), ("-regressor", regressor)):
        path = FOLDER / f"format-{tensor_files.FORMAT}{name}.cavity"
        if path.exists():
            print(
                f"{path} is there: a released format does not change; raise "
                f"persist.FORMAT for a new one."
            )
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, expected = make(table())
        model.notes_ = {"made by": "make_models.py"}
        model.save(path)
        path.with_suffix(".json").write_text(json.dumps(expected))
        print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
