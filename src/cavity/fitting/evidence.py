"""log Z_q of a fitted model at other hyper-parameters. [METHOD 5, 6]"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch

from cavity.common.types import Floats
from cavity.engine import assembly, runs
from cavity.engine.assembly import Weights
from cavity.engine.batches.in_memory import RowsInMemory
from cavity.engine.door import PIECE_BYTES, Evidence, find_evidence
from cavity.engine.models import to_array
from cavity.engine.training.steps import Steps
from cavity.engine.training.threads import limit_threads
from cavity.errors import BadOption, NotPositiveDefinite
from cavity.fitting import adapter
from cavity.fitting.begin import Begun
from cavity.fitting.left_out import KEPT
from cavity.fitting.options.configuration import ClassifierConfig, Config
from cavity.fitting.options.method import no_sweeps
from cavity.prediction.model import FittedModel
from cavity.prediction.result import EvidenceRows, Result
from cavity.tables.labelled import read_table_of_fit, read_targets_of_fit
from cavity.tables.table import GivenRows, Table

LinAlgError: Any = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # no stub


def hold_rows(begun: Begun) -> EvidenceRows | None:
    """Return the rows of a run on the CPU; None if they are not in memory, or many."""
    run = begun.run
    rows = run.rows
    if not isinstance(rows, RowsInMemory) or rows.X.numel() > KEPT:
        return None

    return EvidenceRows(
        rows=RowsInMemory(rows.X.cpu(), rows.y.cpu(), rows.weight.cpu()),
        scheme=adapter.find_method(begun.config, begun.plan).scheme,
        jitter=float(run.state.jitter),
    )


def read_rows(config: Config, fit: Result, given: GivenRows) -> EvidenceRows:
    """Read rows as the fit would have seen them."""
    table: Table
    if isinstance(config, ClassifierConfig):
        classes: Any = fit.classes
        table = read_table_of_fit(given, config.class_weight, fit.features, classes)
    else:
        table = read_targets_of_fit(given, fit.features, fit.units)
        if config.method.committee is not None:
            raise BadOption(
                f"{config.method.argument} divides the rows of its fit among members, "
                "and knows no members of other rows: fit again, and leave X and y out."
            )

    own_sites = fit.plan is None or fit.plan.training.sites_per_row
    model = fit.model
    return EvidenceRows(
        rows=adapter.copy_rows(table, model.prior.center.dtype, model.device),
        scheme=config.method.resolve(own_sites).scheme,
        jitter=config.jitter,
    )


def evaluate(model: FittedModel, known: EvidenceRows, move: Floats) -> Evidence:
    """Return log Z_q and its gradient, `move` [P] away from the learnt hyper-parameters.

    Inducing inputs stay where they are, so the gradient has no entries for them. The
    value is −∞, with a gradient of 0, if a matrix cannot be factorised there.
    """
    if known.scheme.sites == "free":
        raise BadOption(no_sweeps())

    prior, likelihood = copy.deepcopy(model.modules.get())
    if prior.learn_inducing:
        prior.inducing.requires_grad_(False)

    center = prior.center
    rows = known.rows._replace(
        X=known.rows.X.to(center),
        y=known.rows.y.to(center.device),
        weight=known.rows.weight.to(center.device),
    )
    weights = Weights(
        y=rows.y,
        totals=to_array(rows.weight),
        lightest=float(rows.weight.min()),
        heaviest=float(rows.weight.max()),
    )
    piece = center.dtype.itemsize * prior.n_latent * prior.size
    scheme = known.scheme
    engine = assembly.make_engine(
        prior, likelihood, scheme, weights, chunk=max(1, PIECE_BYTES // piece)
    )
    run = runs.make_run(
        engine,
        rows,
        Steps(sweep_damping=scheme.damping),
        scheme,
        damping=scheme.damping,
        jitter=known.jitter,
    )
    theta = run.state.theta + torch.as_tensor(move).to(run.state.theta)
    run = replace(run, state=run.state._replace(theta=theta))
    try:
        with limit_threads(runs.count_work(run)):
            return find_evidence(run)
    except (NotPositiveDefinite, LinAlgError):
        return Evidence(-math.inf, torch.zeros_like(theta))
