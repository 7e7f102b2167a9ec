"""Fit and predict on Ray and Spark: they start the ranks, and `fit` divides the rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cavity.engine.processes import join, leave
from cavity.errors import missing_extra
from cavity.estimators import load

__all__ = ["fit_on_ray", "fit_on_spark", "predict_on_ray", "predict_on_spark"]

FILE = "model.cavity"


def fit_on_ray(
    estimator: Any, path: str, *, scaling: Any = None, run: Any = None, **fit: Any
) -> Any:
    """Fit on the workers of a Ray cluster. Needs the extra "ray".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The estimator with its arguments. It stays unfitted.
    path : str
        Table that every worker can reach: a Parquet file, a folder or a URI.
    scaling : ray.train.ScalingConfig, optional
        Number of ranks, and whether each has a GPU. By default two without.
    run : ray.train.RunConfig, optional
        Storage that all workers can reach, and how many failures are allowed.
    **fit : dict
        Arguments of `fit`: `target`, `weight`, `groups`, `time_limit`.

    Returns
    -------
    GPClassifier or GPRegressor
        The fitted model, up to rounding equal to that of one process.

    Examples
    --------
    >>> from cavity import GPClassifier
    >>> from cavity.cluster import fit_on_ray
    >>> clf = fit_on_ray(GPClassifier(), "rows", target="y")  # doctest: +SKIP
    """
    try:
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    trainer = TorchTrainer(
        _fit_ray_rank,
        train_loop_config={"estimator": estimator, "path": path, "fit": fit},
        scaling_config=scaling or ScalingConfig(num_workers=2),
        run_config=run,
    )
    with trainer.fit().checkpoint.as_directory() as folder:
        return load(Path(folder) / FILE, kernel=estimator.kernel)


def _fit_ray_rank(given: dict[str, Any]) -> None:
    """Fit on one worker; rank 0 hands the model to Ray's storage."""
    from ray.train import Checkpoint, get_context, report

    fitted = given["estimator"].fit(given["path"], **given["fit"])
    if get_context().get_world_rank() > 0:
        report({})
        return
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / FILE)
        report({}, checkpoint=Checkpoint.from_directory(folder))


def fit_on_spark(
    estimator: Any, path: str, *, ranks: int = 2, use_gpu: bool = False, **fit: Any
) -> Any:
    """Fit on the executors of the active Spark session. Needs the extra "spark".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The estimator with its arguments. It stays unfitted.
    path : str
        Table that every executor can reach: a Parquet file, a folder or a URI.
    ranks, use_gpu : int, bool
        Number of ranks, and whether each has a GPU.
    **fit : dict
        Arguments of `fit`: `target`, `weight`, `groups`, `time_limit`.

    Returns
    -------
    GPClassifier or GPRegressor
        The fitted model, up to rounding equal to that of one process.

    Examples
    --------
    >>> from cavity import GPClassifier
    >>> from cavity.cluster import fit_on_spark
    >>> clf = fit_on_spark(GPClassifier(), "rows", target="y")  # doctest: +SKIP
    """
    try:
        from pyspark.ml.torch.distributor import TorchDistributor
    except ImportError as error:
        raise missing_extra("pyspark", "spark") from error
    trainer = TorchDistributor(ranks, local_mode=False, use_gpu=use_gpu)
    return trainer.run(_fit_spark_rank, estimator, path, use_gpu, fit)


def _fit_spark_rank(
    estimator: Any, path: str, use_gpu: bool, fit: dict[str, Any]
) -> Any:
    """Fit on one rank; Spark returns the model of rank 0."""
    join(None if use_gpu else "gloo")
    try:
        return estimator.fit(path, **fit)
    finally:
        leave()


def predict_on_ray(estimator: Any, dataset: Any, **options: Any) -> Any:
    """Predict the rows of a Ray dataset, batch by batch.

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        A fitted estimator.
    dataset : ray.data.Dataset
        Rows with the columns of the training rows, and maybe more.
    **options : dict
        Arguments of `Dataset.map_batches`, such as `batch_size`.

    Returns
    -------
    ray.data.Dataset
        The rows, and the columns that `cavity predict` writes. Ray is lazy: it
        computes them when they are read.

    Examples
    --------
    >>> from cavity.cluster import predict_on_ray
    >>> rows = ray.data.read_parquet("rows")  # doctest: +SKIP
    >>> predict_on_ray(clf, rows).write_parquet("predictions")  # doctest: +SKIP
    """
    predict = partial(_add_predictions, estimator)
    return dataset.map_batches(predict, batch_format="pandas", **options)


def predict_on_spark(estimator: Any, dataframe: Any) -> Any:
    """Predict the rows of a Spark DataFrame, batch by batch.

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        A fitted estimator.
    dataframe : pyspark.sql.DataFrame
        Rows with the columns of the training rows, and maybe more.

    Returns
    -------
    pyspark.sql.DataFrame
        The rows, and the columns that `cavity predict` writes. Spark is lazy: it
        computes them when they are read.

    Examples
    --------
    >>> from cavity.cluster import predict_on_spark
    >>> rows = spark.read.parquet("rows")  # doctest: +SKIP
    >>> predict_on_spark(clf, rows).write.parquet("predictions")  # doctest: +SKIP
    """
    import pandas
    from pyspark.sql.types import StructType

    names = _name_predictions(estimator, dataframe.columns)
    example: dict[str, Any] = {name: [0.0] for name in names}
    if hasattr(estimator, "classes_"):
        example[names[0]] = estimator.classes_[:1]
    new = dataframe.sparkSession.createDataFrame(pandas.DataFrame(example)).schema
    schema = StructType([*dataframe.schema.fields, *new.fields])
    return dataframe.mapInPandas(partial(_predict_parts, estimator), schema)


def _predict_parts(estimator: Any, frames: Iterator[Any]) -> Iterator[Any]:
    for rows in frames:
        if len(rows):
            yield _add_predictions(estimator, rows)


def _add_predictions(estimator: Any, rows: Any) -> Any:
    """Return a frame with the predictions as its last columns."""
    X = rows[list(getattr(estimator, "feature_names_in_", rows.columns))]
    if hasattr(estimator, "classes_"):
        P = estimator.predict_proba(X)
        columns = [estimator.classes_[P.argmax(1)], *P.T]
    else:
        columns = estimator.predict(X, return_std=True)
    names = _name_predictions(estimator, rows.columns)
    return rows.assign(**dict(zip(names, columns, strict=True)))


def _name_predictions(estimator: Any, taken: Any) -> list[str]:
    """Return names that the rows do not have, as `cavity predict` chooses them."""
    names = ["mean", "std"]
    if hasattr(estimator, "classes_"):
        names = ["label", *(f"p_{name}" for name in estimator.classes_)]
    return [f"predicted {name}" if name in taken else name for name in names]
