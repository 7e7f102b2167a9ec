"""Bytes that libFuzzer makes of a model file: `cavity.load` reads them or raises
BadFile, never anything else.

    python tests/fuzz/fuzz_load.py -max_total_time=120        (make fuzz)

What it finds is left in a file crash-...: fix the cause, and add the bytes to
tests/saved/test_damage.py.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch  # noqa: F401  # before instrumentation, which would take minutes over it

with atheris.instrument_imports(include=["cavity"]):
    import cavity

from fuzz.corpus import make_folder, start

MODELS = Path(__file__).parents[1] / "saved" / "models"
PLACE = Path(tempfile.mkdtemp(prefix="cavity-fuzz-")) / "model.cavity"


def once(content: bytes) -> None:
    PLACE.write_bytes(content)
    try:
        clf = cavity.load(PLACE)
    except cavity.BadFile:
        return
    clf.predict_proba(np.zeros((1, clf.n_features_in_)))


if __name__ == "__main__":
    start(
        once,
        make_folder(
            "load", {path.name: path.read_bytes() for path in MODELS.glob("*.cavity")}
        ),
    )
