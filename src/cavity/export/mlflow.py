"""Models in MLflow: save, log and load, also as a generic Python function that takes raw columns."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cavity._version import __version__
from cavity.errors import BadFile, BadOption, missing_extra
from cavity.estimators import load, view_fit
from cavity.estimators.base import GPEstimator

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR = "cavity"
FILE = "model.cavity"
PREDICT = "pyfunc_predict_fn"


def save_model(
    model: Any,
    path: Any,
    *,
    pyfunc_predict_fn: str = "predict",
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: Any = None,
    mlflow_model: Any = None,
    **kwargs: Any,
) -> None:
    """Save a fitted estimator as a folder that MLflow can load. Needs the extra "mlflow".

    Parameters
    ----------
    model : GPClassifier or GPRegressor
        The fitted estimator.
    path : str or Path
        The folder to create.
    pyfunc_predict_fn : str
        Method that `mlflow.pyfunc` calls: "predict" or, for a classifier, "predict_proba", which gives a frame with one column
        per class.
    signature : mlflow.models.ModelSignature, optional
        By default, the columns that the model reads, of any type, and the labels or probabilities that it returns.
    input_example : data frame or array, optional
        Some rows, which MLflow stores with the model.
    pip_requirements : list of str, optional
        What the model needs. By default this version of cavity, and pyarrow if the model prepares its columns.
    mlflow_model : mlflow.models.Model, optional
        Set by MLflow.
    **kwargs : dict
        Further arguments of `mlflow.pyfunc.save_model`.

    Examples
    --------
    >>> import cavity
    >>> cavity.mlflow.save_model(clf, "model")  # doctest: +SKIP
    """
    mlflow = _import_mlflow()
    _check_method(model, pyfunc_predict_fn)
    described = mlflow.models.Model() if mlflow_model is None else mlflow_model
    described.add_flavor(FLAVOR, cavity_version=__version__, data=f"data/{FILE}")
    if signature is None:
        signature = _make_signature(model, pyfunc_predict_fn)
    if pip_requirements is None and kwargs.get("conda_env") is None:
        extras = "[arrow]" if hasattr(model, "preparation_") else ""
        pip_requirements = [f"cavity{extras}=={__version__}"]
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / FILE)
        mlflow.pyfunc.save_model(
            path,
            loader_module=__name__,
            data_path=str(Path(folder) / FILE),
            mlflow_model=described,
            signature=signature,
            input_example=input_example,
            pip_requirements=pip_requirements,
            model_config={PREDICT: pyfunc_predict_fn},
            **kwargs,
        )


def log_model(model: Any, name: str, **kwargs: Any) -> Any:
    """Log a fitted estimator to the tracking store. Needs the extra "mlflow".

    Parameters
    ----------
    model : GPClassifier or GPRegressor
        The fitted estimator.
    name : str
        Name of the model.
    **kwargs : dict
        Arguments of `save_model`, and those of `mlflow.models.Model.log`, such as `registered_model_name`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        What was logged; `model_uri` is what `load_model` takes.

    Examples
    --------
    >>> import cavity
    >>> info = cavity.mlflow.log_model(clf, "iris")  # doctest: +SKIP
    """
    log = _import_mlflow().models.Model.log
    return log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **kwargs)


def load_model(model_uri: str, dst_path: str | None = None, *, device: Any = None, kernel: Any = None) -> Any:
    """Load the estimator that `save_model` or `log_model` stored. Nothing in its file is run.

    Parameters
    ----------
    model_uri : str
        A folder, or a URI such as "models:/iris/1" or "runs:/.../model".
    dst_path : str, optional
        Folder to download to.
    device, kernel : object
        As for `cavity.load`.

    Returns
    -------
    GPClassifier or GPRegressor
        The estimator. It makes the same predictions, to the bit.

    Examples
    --------
    >>> import cavity
    >>> clf = cavity.mlflow.load_model("models:/iris/1")  # doctest: +SKIP
    """
    mlflow = _import_mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri), dst_path=dst_path))
    flavors = mlflow.models.Model.load(str(folder)).flavors
    if FLAVOR not in flavors:
        raise BadFile(
            f"{model_uri} is not a model of cavity: its flavors are {', '.join(map(repr, flavors))}. Load it with "
            "mlflow.pyfunc.load_model."
        )
    return load(folder / flavors[FLAVOR]["data"], device=device, kernel=kernel)


class _Predictor:
    """What `mlflow.pyfunc.load_model` wraps."""

    def __init__(self, model: Any, method: str) -> None:
        self.model, self.method = model, method

    def get_raw_model(self) -> Any:
        """Return the estimator, which MLflow shows as `unwrap_python_model`."""
        return self.model

    def predict(self, data: Any, params: Any = None) -> Any:
        found = getattr(self.model, self.method)(data)
        if self.method != "predict_proba":
            return found
        import pandas

        return pandas.DataFrame(found, columns=[str(label) for label in self.model.classes_])


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> _Predictor:
    """Load a model for `mlflow.pyfunc`, which calls this function by name."""
    method = (model_config or {}).get(PREDICT, "predict")
    model = load(path)
    _check_method(model, method)
    return _Predictor(model, method)


def _check_method(model: Any, method: Any) -> None:
    if not isinstance(model, GPEstimator):
        raise BadOption(f"a {type(model).__name__} is not an estimator of cavity: give a GPClassifier.")
    known = ("predict", "predict_proba") if hasattr(model, "predict_proba") else ("predict",)
    if method not in known:
        raise BadOption(f"{PREDICT}={method!r} is unknown; use {' or '.join(map(repr, known))}.")


def _make_signature(model: Any, method: str) -> Any:
    """Describe columns by name only: MLflow refuses whole numbers in a double column, and pandas' categories in any typed one."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, Schema, TensorSpec

    features = view_fit(model).features  # raises NotFittedError
    prepare = features.preparation
    names = features.names if prepare is None else prepare.inputs
    if names is None:
        inputs = Schema([TensorSpec(np.dtype("float64"), (-1, features.n))])
    else:
        inputs = Schema([ColSpec(AnyType(), name) for name in names])
    if method == "predict_proba":
        outputs = Schema([ColSpec("double", str(label)) for label in model.classes_])
    else:
        labels = getattr(model, "classes_", np.empty(0))
        outputs = Schema([TensorSpec(np.dtype("str") if labels.dtype.kind in "OU" else labels.dtype, (-1,))])
    return ModelSignature(inputs, outputs)


def _import_mlflow() -> Any:
    try:
        import mlflow
        import mlflow.pyfunc
    except ImportError as error:
        raise missing_extra("mlflow", "mlflow") from error
    return mlflow
