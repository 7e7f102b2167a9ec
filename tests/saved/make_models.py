"""Writes the model file of the present format, which every later version must load: python make_models.py.

Run once for each format (`cavity.persist.FORMAT`); a file that is there is never written again. Beside it, what it predicts.
"""

import json
import warnings
from pathlib import Path

import numpy as np

from cavity import GPClassifier, Preparation, persist
from cavity.kernels import Constant, Linear, Matern52

FOLDER = Path(__file__).parent / "models"


def table(rows=60):
    """Mixed columns with missing cells, and text labels."""
    rng = np.random.default_rng(0)
    height, colour = rng.normal(size=rows), rng.choice(["blue", "green", "red"], rows)
    kind = np.array(["ash", "elm", "oak"])[
        (height + (colour == "red") + 0.3 * rng.normal(size=rows) > [[0.2], [1.0]]).sum(0)
    ]
    heights = [None if i % 10 == 3 else float(h) for i, h in enumerate(height)]
    return {"height": heights, "colour": colour.tolist(), "kind": kind.tolist()}


def main():
    path = FOLDER / f"format-{persist.FORMAT}.cavity"
    if path.exists():
        raise SystemExit(
            f"{path} is there: a released format does not change; raise persist.FORMAT for a new one."
        )
    data = table()
    preparation = Preparation.fit([data], target="kind")
    X, y = preparation.transform(data), preparation.labels(data)
    clf = GPClassifier(
        "sep", kernel=Matern52() * Constant() + Linear(), n_inducing=6, max_epochs=15, learn=("kernel", "inducing", "noise"),
        class_weight={"ash": 1.0, "elm": 2.0, "oak": 1.0}, random_state=0, device="cpu",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y)
    clf.preparation_ = preparation
    clf.notes_ = {"made by": "make_models.py"}
    clf.save(path)
    expected = {"p": clf.predict_proba(X[:8]).tolist(), "label": clf.predict(X[:8]).tolist()}
    path.with_suffix(".json").write_text(json.dumps(expected))
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
