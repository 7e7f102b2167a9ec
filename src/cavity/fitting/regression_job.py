"""The fit of a regressor, ready to train: which rows it trains on, and where its inducing points come from.

Some methods train on parts of a table: a greedy active set, or the blocks of a committee. [thesis 4.1.2, 4.2.3, 4.2.5]
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.column_statistics import Columns, distinct_rows
from cavity.distributed import run_together
from cavity.fitting import build
from cavity.fitting.job import Job, Session, check_rows, start_job
from cavity.fitting.leave_one_out import LeaveOneOut, find_usual_rows
from cavity.fitting.results import Result, common_result
from cavity.inference import Engine, State
from cavity.kernels import RBF, Kernel, inducing
from cavity.likelihoods import Gaussian
from cavity.options import RegressorConfig, policy
from cavity.options.plan import TableSize
from cavity.options.value_checks import inducing_count
from cavity.prediction.model import FittedModel, snapshot
from cavity.prediction.regression import (
    TrainingRows,
    make_training_rows,
    predict_moments,
    residual,
    target_noise,
)
from cavity.prediction.regression_estimate import TargetEstimate, estimate_targets
from cavity.rows.labels import check_targets
from cavity.rows.sources import find_source
from cavity.rows.tables import Array, Facts, Request, Start, Table
from cavity.rows.targets import read_eval_targets, read_target_source, read_targets
from cavity.training.callbacks import Callback, EarlyStopping
from cavity.training.loop import Run

TRAINING = 0.9  # share of a time limit
PATIENCE = 10  # epochs without a smaller loss of the eval_set before training stops
Keep = Callable[[FittedModel], TrainingRows | None]  # returns what predictions need of the training rows


def prepare_regression(session: Session[RegressorConfig], request: Request) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    session = session.limit_training(TRAINING)
    config = session.config
    rng, reduce, whole = session.rng, session.reduce, config.reads_whole_table
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=whole, check=check_targets))
    given: Facts
    if source is None:
        merge, normalize = config.method.merges_rows, config.normalize_y
        given, features = run_together(reduce, lambda: read_targets(request, config.owner, merge, normalize))
    else:
        config.check_source()
        given, features = read_target_source(source, config.normalize_y, config.owner, session.seed, reduce)
    units = given.units or (0.0, 1.0)
    check_rows(given, features, None, reduce)
    session = session.on_best_device(TableSize.of(given, features.n))
    config = session.config
    begin = session.start_values(given, features)
    table = select_rows(config, given, begin, rng) if isinstance(given, Table) else given
    Z = choose_points(config, begin.pool, table, TableSize.of(table, features.n), rng)

    def keep(model: FittedModel) -> TrainingRows | None:
        if not config.method.keeps_rows or not isinstance(given, Table):
            return None
        X, y, weight = (torch.tensor(t, device=model.device) for t in given.sample())
        return make_training_rows(model, X, y, weight, target_noise(model), config.method.solver_tol)

    def make_result(run: Run) -> Result:
        evidence = run.evidence() - float(run.engine.total) * math.log(units[1])
        # a source would be read once more
        left_out = find_usual_rows(run) if isinstance(given, Table) else None
        found = common_result(run, begin.columns, features, evidence, config.warm_start, begin.pool, left_out)
        with_residual = config.method.predicts_residual
        estimate = None
        if left_out is not None and isinstance(table, Table):
            estimate = estimate_left_out(left_out, found.model, table, units, config)
        return found._replace(
            units=units, rows=keep(found.model), predicts_residual=with_residual, estimate=estimate
        )

    stopping: tuple[Callback, ...] = ()
    if request.eval_set is not None:
        held = read_eval_targets(request.eval_set, features, units)
        stopping = (EarlyStopping(make_judge(held, config.method.predicts_residual, keep), PATIENCE),)
    return start_job(
        session, table, features, begin, Z, make_result, likelihood=make_likelihood(config), stopping=stopping
    )


def estimate_left_out(
    left_out: LeaveOneOut,
    model: FittedModel,
    table: Table,
    units: tuple[float, float],
    config: RegressorConfig,
) -> TargetEstimate | None:
    """Score rows without their own sites; None if predictions come from other things than q: all rows, or a committee."""
    if config.method.keeps_rows or config.method.committee is not None:
        return None
    (shift, scale), var = units, left_out.f.var[:, 0]
    if not config.method.predicts_residual:
        var = var - torch.from_numpy(residual(model, table.X[left_out.rows]))
    sd = (var.clamp_min(0) + target_noise(model)).sqrt().numpy()
    mean, y = left_out.f.mean[:, 0].double().numpy(), left_out.y.astype(np.float64)
    return estimate_targets(
        shift + scale * mean, scale * sd, shift + scale * y, left_out.weight, of=table.n_rows
    )


def select_rows(config: RegressorConfig, table: Table, begin: Start, rng: np.random.Generator) -> Table:
    """Select the rows that the method trains on: an active set, all of them in blocks, or all. Equal rows go together."""
    method = config.method
    if method.committee is not None:
        (n_blocks, blocks), (distinct, place) = method.committee, distinct_rows(table.X)
        member = BLOCKS[blocks](distinct, min(n_blocks, len(distinct)), begin.columns, rng)
        return replace(table, member=member[place])
    if method.active_set is not None:
        return _select_active_set(config, method.active_set, table, begin)
    return table


def _select_active_set(config: RegressorConfig, selection: str, table: Table, begin: Start) -> Table:
    distinct, place = distinct_rows(table.X)
    assert config.n_inducing is not None
    M = inducing_count(config.n_inducing, table.weight.sum())
    if M >= len(distinct):
        return table
    weight = np.bincount(place, weights=table.weight)
    y = np.bincount(place, weights=table.weight * table.y) / weight
    noise = np.maximum(config.noise[0], 1e-6) / weight
    kernel: Any = RBF() if config.kernel is None else copy.deepcopy(config.kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(1, begin.columns)
    kept = np.isin(place, active_rows(kernel, distinct, y, noise, M, selection))
    return replace(table, X=table.X[kept], y=table.y[kept], weight=table.weight[kept])


def choose_points(
    config: RegressorConfig,
    candidates: inducing.Candidates,
    table: Facts,
    size: TableSize,
    rng: np.random.Generator,
) -> Array:
    """Choose inducing inputs [1 M D]; for a committee those of each member, [p M D]."""
    origin = config.method.inducing_from
    if isinstance(table, Table) and table.member is not None:
        return points_of(table.X, table.member, rng)
    if isinstance(table, Table) and origin == "subset":
        return distinct_rows(table.X)[0][None]
    config.check_size(table.n_rows)
    if origin == "rows" or config.inducing is None:
        return inducing.choose(None, candidates, 0, 1, rng)
    return build.choose_points(config, candidates, policy.count_points(config, size), 1, rng)


def make_likelihood(config: RegressorConfig) -> Gaussian:
    """Make the likelihood, with its noise in the units of the targets."""
    likelihood = config.method.make_likelihood(1, config.learn, float(config.noise[0]))
    return likelihood.to(config.device, config.dtype)


def make_judge(held: Table, with_residual: bool, keep: Keep) -> Callable[[Engine, State], float]:
    """Return a function that judges a state by the mean negative log density of held-out targets, in their own units."""
    _, scale = held.units or (0.0, 1.0)

    def judge(engine: Engine, state: State) -> float:
        model = snapshot(engine, state)
        new = torch.tensor(held.X, device=state.theta.device)
        f = predict_moments(model, keep(model), with_residual, new)
        mean, var = f.mean, np.maximum(f.var, 0) + target_noise(model)
        loss = 0.5 * ((held.y - mean) ** 2 / var + np.log(2 * np.pi * var)) + math.log(scale)
        return float(np.average(loss, weights=held.weight))

    return judge


def entropy(mean: Array, var: Array, y: Array, noise: Array) -> Array:
    """Return how much a row lowers the entropy of its own f: ½ log(1 + v/σ²).        [thesis 4.8]"""
    return np.asarray(0.5 * np.log1p(var / noise))


def information(mean: Array, var: Array, y: Array, noise: Array) -> Array:
    """Return how far a row moves its own f: KL of the marginal with it to the one without."""
    keep = noise / (var + noise)
    moved = (1 - keep) * (y - mean)
    return np.asarray(0.5 * (keep - 1 - np.log(keep) + moved**2 / np.maximum(var, 1e-300)))


CRITERIA = {"entropy": entropy, "information": information}


@torch.no_grad()
def active_rows(kernel: Any, X: Array, y: Array, noise: Array, M: int, criterion: str) -> NDArray[np.int64]:
    """Choose M rows greedily by a criterion, O(NM²): each step adds a row to a Cholesky factor."""
    rows = torch.tensor(X)
    mean, var = np.zeros(len(X)), kernel.diag(rows)[0].double().cpu().numpy().copy()
    factor, chosen = np.zeros((M, len(X))), np.zeros(M, dtype=np.int64)
    open_ = np.ones(len(X), dtype=bool)
    for m in range(M):
        gain = np.where(open_, CRITERIA[criterion](mean, np.maximum(var, 0.0), y, noise), -np.inf)
        best = chosen[m] = int(np.argmax(gain))
        open_[best] = False
        k = kernel.cross(rows[None, best : best + 1], rows)[0, 0].double().cpu().numpy()
        scale = np.sqrt(max(var[best], 0.0) + noise[best])
        factor[m] = (k - factor[:m, best] @ factor[:m]) / scale
        mean += factor[m] * ((y[best] - mean[best]) / scale)
        var -= factor[m] ** 2
    return np.sort(chosen)


def random_blocks(X: Array, n_blocks: int, columns: Columns, rng: np.random.Generator) -> NDArray[np.int64]:
    """Assign rows to members of nearly equal size at random, [N]."""
    return np.asarray(rng.permutation(np.arange(len(X)) % n_blocks), dtype=np.int64)


def clustered_blocks(
    X: Array, n_blocks: int, columns: Columns, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Assign rows that lie together to members of nearly equal size, [N]: halve along the longest axis, recursively."""
    member = np.zeros(len(X), dtype=np.int64)
    U = (X - columns.center) / columns.spread
    parts = [(np.arange(len(X)), n_blocks)]
    label = 0
    while parts:
        rows, blocks = parts.pop()
        if blocks == 1:
            member[rows] = label
            label += 1
            continue
        axis = int(np.argmax(U[rows].var(0)))
        order = rows[np.argsort(U[rows, axis], kind="stable")]
        first = blocks // 2
        cut = round(len(rows) * first / blocks)
        parts += [(order[:cut], first), (order[cut:], blocks - first)]
    return member


BLOCKS = {"random": random_blocks, "clustered": clustered_blocks}


def points_of(X: Array, member: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """Return inducing inputs [p M D]: each member's distinct rows, padded with rows of others, whose values are marginalised."""
    each = [distinct_rows(X[member == c])[0] for c in range(member.max() + 1)]
    M = max(len(rows) for rows in each)
    distinct, _ = distinct_rows(X)
    filled = []
    for rows in each:
        known = {row.tobytes() for row in rows}
        others = np.array([row.tobytes() not in known for row in distinct])
        spare = rng.permutation(np.flatnonzero(others))[: M - len(rows)]
        filled.append(np.vstack([rows, distinct[spare]]))
    return np.stack(filled)
