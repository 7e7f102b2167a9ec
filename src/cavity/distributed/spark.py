"""Fit and predict on Spark: a TorchDistributor starts the ranks, torch.distributed joins them, each reads its own rows."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from cavity import distributed, errors
from cavity.common import object_stores
from cavity.distributed.adapters import (
    FILE,
    Estimator,
    append_predictions,
    check_count,
    check_request,
    choose_error,
    find_rows,
    make_absolute,
)
from cavity.errors import BadInput, BadOption, CavityError, LostRank, missing_extra

__all__ = ["fit_on_spark", "predict_on_spark"]


def fit_on_spark(
    estimator: Estimator,
    data: Any,
    *,
    target: str,
    weight: str | None = None,
    num_processes: int = 2,
    use_gpu: bool = False,
    local_mode: bool = False,
    storage: str | os.PathLike[str] | None = None,
    max_failures: int = 0,
) -> Any:
    """Fit an estimator with the executors of the active Spark session. Needs the extra "spark".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The estimator with its arguments. It is not changed.
    data : str, Path or pyspark.sql.DataFrame
        Parquet or Arrow files that every executor can reach: a file, a folder or a URI. A DataFrame is first written to the
        storage.
    target, weight : str
        Columns with the labels and the weights.
    num_processes, use_gpu, local_mode : int, bool, bool
        Number of ranks, whether each has a GPU, and whether they run on the machine of the driver instead of the executors.
    storage : str or Path, optional
        Folder or URI that driver and executors can reach. What is written there is removed at the end. By default a temporary
        folder of this machine.
    max_failures : int
        How often a lost rank makes all ranks start again. They continue from checkpoints in the storage.

    Returns
    -------
    GPClassifier or GPRegressor
        The fitted model, equal to that of one process up to rounding.

    Examples
    --------
    >>> from cavity.distributed.spark import fit_on_spark
    >>> clf = fit_on_spark(GPClassifier("sep"), "rows", target="label", num_processes=2)  # doctest: +SKIP
    """
    session = _find_session()
    check_request(estimator, num_processes=num_processes)
    check_count("max_failures", max_failures, 0)
    _check_slots(session, num_processes, local_mode)
    write = partial(_write_rows, data) if hasattr(data, "mapInArrow") else None
    with _open_storage(session, storage, local_mode) as folder:
        config = {
            "estimator": estimator,
            "data": find_rows(data, folder, "DataFrame of Spark", write),
            "columns": {"target": target, "weight": weight},
            "folder": folder,
            "backend": None if use_gpu else "gloo",
            "keep": max_failures > 0 and getattr(estimator.training, "checkpoint", None) is None,
        }
        _run_ranks(config, max_failures, num_processes, local_mode, use_gpu)
        return estimator._load(f"{folder}/{FILE}")


def predict_on_spark(estimator: Estimator, dataframe: Any) -> Any:
    """Predict the rows of a Spark DataFrame, batch by batch. Needs the extra "spark".

    Parameters
    ----------
    estimator : GPClassifier or GPRegressor
        The fitted estimator.
    dataframe : pyspark.sql.DataFrame
        Rows with the columns that the estimator was fitted on.

    Returns
    -------
    pyspark.sql.DataFrame
        The rows with more columns. Classifier: `label`, and `p_A` with the probability of each class A. Regressor: `mean` and
        `std`. Spark computes them when the DataFrame is read.

    Examples
    --------
    >>> from cavity.distributed.spark import predict_on_spark
    >>> predict_on_spark(clf, spark.read.parquet("rows")).write.parquet("predictions")  # doctest: +SKIP
    """
    _import_pyspark()

    def predict(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            if batch.num_rows:
                yield from append_predictions(estimator, pyarrow.Table.from_batches([batch])).to_batches()

    return dataframe.mapInArrow(predict, _extend_schema(estimator, dataframe.schema))


def _extend_schema(estimator: Estimator, schema: Any) -> Any:
    import pyarrow
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import DoubleType, StructField, StructType

    classes = getattr(estimator, "classes_", None)
    if classes is None:
        more = {"mean": DoubleType(), "std": DoubleType()}
    else:
        more = {"label": from_arrow_type(pyarrow.array(classes).type)}
        more |= {f"p_{c}": DoubleType() for c in classes}
    kept = [field for field in schema.fields if field.name not in more]
    return StructType(kept + [StructField(name, kind) for name, kind in more.items()])


def _run_ranks(config: dict[str, Any], failures: int, processes: int, local: bool, use_gpu: bool) -> None:
    """Run the ranks until they succeed; a lost rank makes all of them start again, `failures` times."""
    from pyspark.ml.torch.distributor import TorchDistributor

    distributor = TorchDistributor(processes, local, use_gpu)
    for left in range(failures, -1, -1):
        for rank in range(processes):
            object_stores.remove(_error_file(config["folder"], rank))
        try:
            distributor.run(_fit_rank, config)
            return
        except Exception as error:  # of Spark or of Py4J
            raised = _read_errors(config["folder"], processes)
            ours = choose_error([e for e in raised if e is not None])
            if ours is not None and not isinstance(ours, LostRank):
                raise ours from error
            if any(not isinstance(e, LostRank) for e in raised if e is not None):
                raise  # an error of someone else, such as of a callback
            if left == 0:
                raise _explain_loss(raised) from error


def _explain_loss(raised: list[Exception | None]) -> LostRank:
    """Return the error for ranks that were killed: those that did not report another error."""
    silent = [str(rank) for rank, error in enumerate(raised) if error is None]
    who = f"rank {', rank '.join(silent)} of {len(raised)}" if len(silent) < len(raised) else "a rank"
    return LostRank(
        f"{who} died: it was killed, or ran out of memory; the logs of the executors say more. To start again from a "
        "checkpoint, pass max_failures= and, on several machines, storage=."
    )


def _fit_rank(config: dict[str, Any]) -> None:
    """Fit on one rank, as torchrun starts it; rank 0 writes the model. An error is written for the driver to read."""
    estimator, folder = config["estimator"], config["folder"]
    try:
        group = distributed.join(config["backend"])
        if config["keep"]:
            estimator.set_params(training__checkpoint=f"{folder}/run.ckpt", training__resume=True)
        estimator.fit(config["data"], **config["columns"])
        if group.rank == 0:
            estimator.save(f"{folder}/{FILE}")
    except Exception as error:
        words = json.dumps([type(error).__name__, str(error)]).encode()
        object_stores.write_bytes(_error_file(folder, int(os.environ.get("RANK", "0"))), words)
        raise
    finally:
        distributed.leave()


def _error_file(folder: str, rank: int) -> object_stores.Location:
    return object_stores.as_path(f"{folder}/error-{rank}.json")


def _read_errors(folder: str, processes: int) -> list[Exception | None]:
    """Return what each rank raised: an error of cavity, a RuntimeError for one of another library, None for no report."""
    found: list[Exception | None] = []
    for rank in range(processes):
        try:
            words = json.loads(object_stores.read_bytes(_error_file(folder, rank)))
        except (OSError, ValueError):
            found.append(None)
            continue
        kind: Any = getattr(errors, words[0], None)
        ours = isinstance(kind, type) and issubclass(kind, CavityError)
        found.append(kind(words[1]) if ours else RuntimeError(": ".join(words)))
    return found


@contextmanager
def _open_storage(session: Any, storage: Any, local: bool) -> Iterator[str]:
    """Give a new folder in the storage, and remove it at the end."""
    if storage is None:
        if not local and not _is_local(session):
            raise BadOption(
                "the executors are other machines: pass storage=, a folder or a URI that the driver and they can reach."
            )
        with tempfile.TemporaryDirectory(prefix="cavity-") as folder:
            yield folder
        return
    folder = f"{make_absolute(storage).rstrip('/')}/cavity-{uuid4().hex}"
    if object_stores.is_uri(folder):
        object_stores.check_bucket(folder)
    else:
        try:
            Path(folder).mkdir(parents=True)
        except OSError as error:
            raise BadInput(
                f"storage: the folder {folder!r} cannot be made ({error.strerror}). Name a folder where you may write."
            ) from error
    try:
        yield folder
    finally:
        with suppress(OSError):
            object_stores.remove_folder(object_stores.as_path(folder))


def _write_rows(dataframe: Any, path: str) -> None:
    dataframe.write.parquet(path if object_stores.is_uri(path) else Path(path).as_uri())


def _is_local(session: Any) -> bool:
    return str(session.conf.get("spark.master", "")).startswith("local")


def _check_slots(session: Any, processes: int, local: bool) -> None:
    """Refuse more ranks than a local Spark can run at a time: it would wait for minutes before it says so."""
    if local or not _is_local(session):
        return
    slots = int(session.sparkContext.defaultParallelism)
    if slots < processes:
        raise BadOption(
            f"num_processes={processes}, but this Spark runs {slots} tasks at a time: start it with "
            f"master('local[{processes}]'), or pass local_mode=True."
        )


def _find_session() -> Any:
    _import_pyspark()
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise BadOption("no Spark session is active: start one with SparkSession.builder.getOrCreate().")
    return session


def _import_pyspark() -> None:
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise missing_extra(str(error.name), "spark") from error
