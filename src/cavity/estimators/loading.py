"""`cavity.load`: model files as estimators."""

from __future__ import annotations

from pathlib import Path

from cavity.estimators.argument_types import Device, KernelArgument
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.regressor import GPRegressor
from cavity.saving import model_file


def load(
    path: str | Path, device: Device | None = None, kernel: KernelArgument = None
) -> GPClassifier | GPRegressor:
    """Read the estimator that `save` wrote. It makes the same predictions, to the bit.

    Nothing in the file is run.

    Parameters
    ----------
    path : str or Path
        The file.
    device : None, str or torch.device
        Where the model predicts, and the `device` of later fits. None: the CPU.
    kernel : None, or a kernel
        Needed if the model's kernel is a torch module of your own: make it as for the
        fit. The file has its learnt values but not its code.

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
    >>> load(path).predict_proba(X[:1]).shape
    (1, 3)
    """
    return model_file.load(path, device, kernel)
