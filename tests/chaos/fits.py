"""Small fits and what they give, compared to the bit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

BATCHES = dict(
    n_inducing=8, batch_size=20, max_epochs=5, tol=0.0, random_state=1, device="cpu"
)
FULL = dict(
    n_inducing=8, batch_size=None, max_epochs=8, tol=0.0, random_state=1, device="cpu"
)
RUNS: dict[str, dict[str, Any]] = {
    "ep": dict(method="ep", **BATCHES),
    "sep": dict(method="sep", **BATCHES),
    "vi": dict(method="vi", **BATCHES),
    "ep full": dict(method="ep", **FULL),
    "ep outer": dict(method="ep", schedule="outer", **FULL),
    "sep files": dict(method="sep", **BATCHES),
}


def make_rows(n: int = 90, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two features with three overlapping classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = (X @ rng.normal(size=(2, 3)) + 0.7 * rng.normal(size=(n, 3))).argmax(1)
    y[:3] = range(3)
    return X, y


def write_rows(folder: Path) -> Path:
    """Write the rows as a folder of Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = make_rows()
    (folder / "rows").mkdir(exist_ok=True)
    for i in range(3):
        part = slice(30 * i, 30 * i + 30)
        pq.write_table(
            pa.table({"a": X[part, 0], "b": X[part, 1], "label": y[part]}),
            folder / "rows" / f"{i}.parquet",
        )
    return folder / "rows"


def fit(name: str, rows: Path, checkpoint: Path | None = None, **more: Any) -> str:
    """Fit with a checkpoint after every step, resume if it exists, and return the
    digest of the model.
    """
    from cavity import GPClassifier
    from cavity.fitting.options import nest

    options = RUNS[name] | more
    if checkpoint is not None:
        options |= dict(checkpoint=checkpoint, checkpoint_every=0, resume=True)
    clf = GPClassifier(**nest(**options))
    return digest(
        clf.fit(rows, target="label")
        if name.endswith("files")
        else clf.fit(*make_rows())
    )


def digest(clf: Any) -> str:
    """Return a digest of predictions, evidence and history."""
    X, _ = make_rows(20, seed=4)
    hasher = hashlib.sha256(clf.predict_log_proba(X).tobytes())
    hasher.update(
        repr(
            (clf.log_marginal_likelihood_, [row["objective"] for row in clf.history_])
        ).encode()
    )
    return hasher.hexdigest()


def fit_small(**more: Any) -> Any:
    """Return a model that takes little time to fit."""
    from cavity import GPClassifier
    from cavity.fitting.options import nest

    return GPClassifier(**nest(**RUNS["sep"] | {"max_epochs": 2} | more)).fit(
        *make_rows()
    )
