"""Fit on a Ray cluster: Ray places the ranks, torch.distributed joins them, each reads its own rows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cavity.errors import missing_extra

__all__ = ["fit_on_ray"]

FILE = "model.cavity"


def fit_on_ray(
    estimator: Any,
    path: str,
    *,
    target: str,
    weight: str | None = None,
    groups: str | None = None,
    num_workers: int = 2,
    use_gpu: bool = False,
    run_config: Any = None,
) -> Any:
    """Fit an estimator on the workers of a Ray cluster. Needs the extra "ray".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The estimator with its arguments. It is not changed.
    path : str
        Parquet or Arrow files that every worker can reach: a file, a folder or a URI.
    target, weight, groups : str
        Columns with the labels, the weights, and the groups of rows that stay together (of a classifier).
    num_workers, use_gpu : int, bool
        Number of ranks, and whether each has a GPU.
    run_config : ray.train.RunConfig, optional
        Name, storage and `failure_config` of the run.

    Returns
    -------
    GPClassifier or GPRegressor
        The fitted model, equal to that of one process up to rounding.

    Examples
    --------
    >>> from cavity.distributed.ray import fit_on_ray
    >>> clf = fit_on_ray(GPClassifier("sep"), "/shared/rows", target="label")  # doctest: +SKIP
    """
    try:
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    columns = {"target": target, "weight": weight} | ({} if groups is None else {"groups": groups})
    given = {"estimator": estimator, "path": path, "columns": columns}
    scaling = ScalingConfig(num_workers=num_workers, use_gpu=use_gpu)
    result = TorchTrainer(
        _fit_rank, train_loop_config=given, scaling_config=scaling, run_config=run_config
    ).fit()
    with result.checkpoint.as_directory() as folder:
        return estimator._load(Path(folder) / FILE)


def _fit_rank(given: dict[str, Any]) -> None:
    """Fit on one worker, whose process group Ray has joined; rank 0 hands the model to Ray's storage."""
    from ray.train import Checkpoint, get_context, report

    model = given["estimator"].fit(given["path"], **given["columns"])
    if get_context().get_world_rank() > 0:
        return report({})
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / FILE)
        report({}, checkpoint=Checkpoint.from_directory(folder))
