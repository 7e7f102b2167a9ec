"""Fit and predict on a Ray cluster: Ray places the ranks, torch.distributed joins them, each reads its own rows."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from cavity.common.object_stores import is_uri
from cavity.distributed.adapters import (
    FILE,
    Estimator,
    append_predictions,
    check_request,
    choose_error,
    find_rows,
)
from cavity.errors import missing_extra

__all__ = ["fit_on_ray", "predict_on_ray"]

BATCH_ROWS = 4096


def fit_on_ray(
    estimator: Estimator,
    data: Any,
    *,
    target: str,
    weight: str | None = None,
    num_workers: int = 2,
    use_gpu: bool = False,
    run_config: Any = None,
) -> Any:
    """Fit an estimator on the workers of a Ray cluster. Needs the extra "ray".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The estimator with its arguments. It is not changed.
    data : str, Path or ray.data.Dataset
        Parquet or Arrow files that every worker can reach: a file, a folder or a URI. A dataset is first written to the storage.
    target, weight : str
        Columns with the labels and the weights.
    num_workers, use_gpu : int, bool
        Number of ranks, and whether each has a GPU.
    run_config : ray.train.RunConfig, optional
        Name, storage and `failure_config` of the run. If it allows failures, the ranks write checkpoints to the storage, and
        a lost worker makes all ranks start again from them.

    Returns
    -------
    GPClassifier or GPRegressor
        The fitted model, equal to that of one process up to rounding.

    Examples
    --------
    >>> from cavity.distributed.ray import fit_on_ray
    >>> clf = fit_on_ray(GPClassifier("sep"), "rows", target="label", num_workers=2)  # doctest: +SKIP
    """
    ray = _import_ray()
    from ray.train.torch import TorchTrainer

    check_request(estimator, num_workers=num_workers)
    run = ray.train.RunConfig() if run_config is None else run_config
    folder = run.storage_path.rstrip("/") + "/" + run.name
    config = {
        "estimator": estimator,
        "data": find_rows(data, folder, "ray.data.Dataset", getattr(data, "write_parquet", None)),
        "columns": {"target": target, "weight": weight},
        "checkpoint": _choose_checkpoint(estimator, folder, run.failure_config.max_failures),
    }
    scaling = ray.train.ScalingConfig(num_workers=num_workers, use_gpu=use_gpu)
    trainer = TorchTrainer(_fit_rank, train_loop_config=config, scaling_config=scaling, run_config=run)
    try:
        result = trainer.fit()
    except ray.train.TrainingFailedError as error:
        raised = getattr(error, "worker_failures", {})
        raise choose_error([e for _, e in sorted(raised.items())]) or error from error
    with result.checkpoint.as_directory() as place:
        return estimator._load(Path(place) / FILE)


def predict_on_ray(estimator: Estimator, dataset: Any, **kwargs: Any) -> Any:
    """Predict the rows of a Ray dataset, batch by batch. Needs the extra "ray".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The fitted estimator.
    dataset : ray.data.Dataset
        Rows with the columns that the estimator was fitted on.
    **kwargs : dict
        Further arguments of `Dataset.map_batches`, such as `batch_size` and `num_gpus`.

    Returns
    -------
    ray.data.Dataset
        The rows with more columns. Classifier: `label`, and `p_A` with the probability of each class A. Regressor: `mean` and
        `std`. Ray computes them when the dataset is read.

    Examples
    --------
    >>> from cavity.distributed.ray import predict_on_ray
    >>> predict_on_ray(clf, ray.data.read_parquet("rows")).write_parquet("predictions")  # doctest: +SKIP
    """
    _import_ray()
    options = {"batch_size": BATCH_ROWS} | kwargs
    return dataset.map_batches(partial(append_predictions, estimator), batch_format="pyarrow", **options)


def _fit_rank(config: dict[str, Any]) -> None:
    """Fit on one worker, whose process group Ray has joined; rank 0 hands the model to Ray's storage."""
    import ray.train

    estimator, checkpoint = config["estimator"], config["checkpoint"]
    if checkpoint is not None:
        if not is_uri(checkpoint):
            Path(checkpoint).parent.mkdir(parents=True, exist_ok=True)
        estimator.set_params(training__checkpoint=checkpoint, training__resume=True)
    estimator.fit(config["data"], **config["columns"])
    if ray.train.get_context().get_world_rank() > 0:
        ray.train.report({})
        return
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / FILE)
        ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def _choose_checkpoint(estimator: Estimator, folder: str, failures: int) -> str | None:
    """Return where ranks that may be restarted write checkpoints; None if the estimator has a file or none is needed."""
    if getattr(estimator.training, "checkpoint", None) is not None or failures == 0:
        return None
    return f"{folder}/run.ckpt"


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
        import ray.train
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    return ray
