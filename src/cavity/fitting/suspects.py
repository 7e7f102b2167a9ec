"""Score the labels of a table by models that were fitted without their rows."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace

import numpy as np

from cavity.common.progress import announce, make_bar, without_stages
from cavity.common.types import Flags, Floats
from cavity.fitting.cases import number_folds
from cavity.fitting.classification import fit_classifier
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import JudgingPlan
from cavity.fitting.request import make_request
from cavity.fitting.results import Result
from cavity.prediction.blocks import predict_blocks
from cavity.prediction.predict import predict_log_proba
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import GivenRows, Table
from cavity.tables.validation import Prepared


def predict_left_out(
    config: ClassifierConfig,
    rows: LabelledTable,
    known: Flags,
    judging: JudgingPlan,
    folds: int,
) -> Floats:
    """Predict the rows that are not known by fast fits without them, [N C].

    A fold has a `folds`-th of the table. Rows that belong together share a fold, as
    they do when the model is judged. NaN for known rows, and for rows that no fit can
    do without: the only case of a class.
    """
    table = rows.table
    assert isinstance(table, Table)
    log_p = np.full((table.n_rows, table.n_classes), math.nan)
    left = np.flatnonzero(~known)
    if not len(left):
        return log_p

    parts = max(2, math.ceil(folds * len(left) / table.n_rows))
    plan = replace(judging, how="folds", parts=parts)
    fold = number_folds(table.select(left), plan, 0)
    numbers = [i for i in range(parts) if (fold == i).any()]
    many = f"{len(numbers)} more fit{'s' * (len(numbers) != 1)}"
    announce(f"  labels: {many}, each without 1 of {folds} parts", config.verbose)
    shown = numbers
    if config.verbose:
        shown = make_bar(config.verbose, numbers, desc="labels", unit="fit")
    for i in shown:
        began = time.perf_counter()
        out = np.zeros(table.n_rows, dtype=bool)
        out[left[fold == i]] = True
        log_p[out] = _predict_without(config, rows, out)
        seconds = (len(numbers) - 1) * (time.perf_counter() - began)
        if i == numbers[0] and seconds:
            announce(f"  labels: about {seconds:.0f} s left", config.verbose)

    return log_p


def _predict_without(
    config: ClassifierConfig, rows: LabelledTable, out: Flags
) -> Floats:
    """Fit to the other rows, and return log-probabilities of these."""
    table = rows.table
    assert isinstance(table, Table)
    kept = table.select(~out)
    given = GivenRows(
        Prepared(kept.X, rows.features.encoder),
        rows.classes[kept.y],
        kept.weight,
        groups=kept.group,
    )
    # the weights of the table have the factors of the classes
    fast = replace(config, effort="fast", class_weight=None)
    request = make_request(fast, given, None).for_fold(config.max_seconds)
    found: list[Result] = []
    with warnings.catch_warnings(), without_stages():
        warnings.simplefilter("ignore")
        fit_classifier(request, found.append)

    result = found[-1]
    held = Prepared(table.X[out])
    (log_p,) = predict_blocks(result.model, result.features, held, predict_log_proba)
    return log_p
