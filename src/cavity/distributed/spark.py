"""Fit on Spark: a TorchDistributor starts the ranks, torch.distributed joins them, each reads its own rows."""

from __future__ import annotations

from typing import Any

from cavity import distributed
from cavity.errors import missing_extra

__all__ = ["fit_on_spark"]


def fit_on_spark(
    estimator: Any,
    path: str,
    *,
    target: str,
    weight: str | None = None,
    groups: str | None = None,
    num_processes: int = 2,
    use_gpu: bool = False,
    local_mode: bool = False,
) -> Any:
    """Fit an estimator with the executors of the active Spark session. Needs the extra "spark".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The estimator with its arguments. It is not changed.
    path : str
        Parquet or Arrow files that every executor can reach: a file, a folder or a URI.
    target, weight, groups : str
        Columns with the labels, the weights, and the groups of rows that stay together (of a classifier).
    num_processes, use_gpu, local_mode : int, bool, bool
        Number of ranks, whether each has a GPU, and whether they run on the machine of the driver instead of the executors.

    Returns
    -------
    GPClassifier or GPRegressor
        The fitted model, equal to that of one process up to rounding.

    Examples
    --------
    >>> from cavity.distributed.spark import fit_on_spark
    >>> clf = fit_on_spark(GPClassifier("sep"), "/shared/rows", target="label")  # doctest: +SKIP
    """
    try:
        from pyspark.ml.torch.distributor import TorchDistributor
    except ImportError as error:
        raise missing_extra(str(error.name), "spark") from error
    backend = None if use_gpu else "gloo"
    ranks = TorchDistributor(num_processes, local_mode, use_gpu)
    columns = {"target": target, "weight": weight} | ({} if groups is None else {"groups": groups})
    return ranks.run(_fit_rank, estimator, path, columns, backend)


def _fit_rank(estimator: Any, path: str, columns: dict[str, str | None], backend: str | None) -> Any:
    """Fit on one rank, as torchrun starts it; Spark returns the model of rank 0."""
    distributed.join(backend)
    try:
        return estimator.fit(path, **columns)
    finally:
        distributed.leave()
