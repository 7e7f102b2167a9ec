"""`cavity.load`: read an estimator from a model file."""

from __future__ import annotations

from pathlib import Path

from cavity.estimators.argument_types import Device, KernelArgument
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.regressor import GPRegressor
from cavity.saving import model_file


def load(
    path: str | Path, device: Device | None = None, kernel: KernelArgument = None
) -> GPClassifier | GPRegressor:
    """Load a fitted estimator from a file that `save` wrote.

    Predictions are the same to the bit. Nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        Model file.
    device : str, torch.device or None, default=None
        Where the model predicts, and the `device` of later fits. None means the CPU.
    kernel : kernel or None, default=None
        Required if the kernel of the model is a torch module of your own: create it as
        for the fit. The file has its learnt values but not its code.

    Returns
    -------
    GPClassifier or GPRegressor
        Fitted estimator. It can continue with `partial_fit`; a fit with `warm_start`
        starts from the beginning.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, load
    >>> X, y = load_iris(return_X_y=True)
    >>> path = Path(tempfile.mkdtemp()) / "iris.cavity"
    >>> GPClassifier(n_inducing=10, max_epochs=20, random_state=0).fit(X, y).save(path)
    >>> load(path).predict_proba(X[:1]).shape
    (1, 3)
    """
    return model_file.load(path, device, kernel)
