"""`cavity.load`: model files as estimators, with their types."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, overload

from cavity.errors import BadFile
from cavity.estimators.argument_types import Device, KernelArgument
from cavity.estimators.base import GPEstimator
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.regressor import GPRegressor
from cavity.saving import model_file

E = TypeVar("E", bound=GPEstimator)


@overload
def load(
    path: str | Path, device: Device | None = None, kernel: KernelArgument = None
) -> GPClassifier | GPRegressor: ...
@overload
def load(
    path: str | Path, device: Device | None = None, kernel: KernelArgument = None, *, kind: type[E]
) -> E: ...
def load(
    path: str | Path,
    device: Device | None = None,
    kernel: KernelArgument = None,
    *,
    kind: type[GPEstimator] = GPEstimator,
) -> GPEstimator:
    """Read the estimator that `save` wrote. It makes the same predictions, to the bit.

    Nothing in the file is run.

    Parameters
    ----------
    path : str or Path
        The file.
    device : None, str or torch.device
        Where the model predicts, and the `device` of later fits. None: the CPU.
    kernel : None, or a kernel
        Needed if the model's kernel is a torch module of your own: make it as for the fit. The file has its learnt values but
        not its code.
    kind : class, optional
        `GPClassifier` or `GPRegressor`, if only that will do: another kind raises BadFile, and type checkers know the result.

    Returns
    -------
    GPClassifier or GPRegressor
        Ready to predict, and to continue with `partial_fit`; `warm_start` starts again.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, load
    >>> X, y = load_iris(return_X_y=True)
    >>> path = Path(tempfile.mkdtemp()) / "iris.cavity"
    >>> GPClassifier(n_inducing=10, max_epochs=20, random_state=0).fit(X, y).save(path)
    >>> load(path, kind=GPClassifier).predict_proba(X[:1]).shape
    (1, 3)
    """
    found: GPEstimator = model_file.load(path, device, kernel)
    if not isinstance(found, kind):
        raise BadFile(f"{path} holds a {type(found).__name__}, not a {kind.__name__}.")
    return found
