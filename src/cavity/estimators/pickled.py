"""The fitted model in the state of an estimator: for pickle, and for skops."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cavity.prediction.result import Result
from cavity.saving import model_file
from cavity.saving.model_file import Record


class PickledModel:
    """A fitted model in the state of an estimator.

    pickle calls `__reduce_ex__` and stores the result itself: `partial_fit` and
    `warm_start` go on from it. skops, which stores neither tensors nor code, calls
    `__reduce__` and stores the bytes of a model file.
    """

    def __init__(self, stored: Record | bytes) -> None:
        self.stored = stored

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        assert isinstance(self.stored, Record)
        return _keep, (self.stored.result,)

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self.stored, Record)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            model_file.save(self.stored, path)
            return PickledModel, (path.read_bytes(),)

    def read(self) -> Result:
        """Return the result: of a copy as it is, of skops from the bytes of a file."""
        if isinstance(self.stored, Record):
            return self.stored.result

        with TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            path.write_bytes(self.stored)
            return model_file.read_result(path)


def _keep(result: Result) -> Result:
    return result
