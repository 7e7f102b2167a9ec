"""Models that grow: the rows of every call are new, and their sites are added to tied
sums.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cavity.common.column_statistics import Columns
from cavity.engine import runs
from cavity.engine.batches.stream import Whole
from cavity.engine.inference import Engine, Info, Optimiser, State, Tied
from cavity.engine.inference.state import map_tensors
from cavity.engine.learning import KERNEL, name_paths, selects
from cavity.engine.training.loop import Outcome, Run
from cavity.engine.training.optimisers import OPTIMISERS
from cavity.engine.training.steps import Steps
from cavity.errors import BadInput, BadOption
from cavity.fitting import adapter
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import ClassifierConfig, Config, every_row
from cavity.fitting.options.method import Method
from cavity.fitting.options.plan import TableSize, TrainingPlan
from cavity.fitting.options.value_checks import draw_seed
from cavity.fitting.points import choose_points
from cavity.fitting.results import Growing, Result, common_result
from cavity.tables.arrow_tables import refuse_many_columns
from cavity.tables.labels import find_places, read_labels
from cavity.tables.table import Facts, GivenRows, Table, share_lengthscales
from cavity.tables.validation import Features, check_rows, read_rows

# Calls of `partial_fit`: rows whose sites are found at once (each sees the rows before
# it, and none of the others), and the rate.
GROWING_ROWS = 50
GROWING_RATE = 0.03


def keep_growing(
    method: Method, run: Run, columns: Columns, table: Facts
) -> Growing | None:
    """Return the state to which `partial_fit` adds rows after a fit.

    If "auto" stored sites per row, they are tied.
    """
    # it may belong to another optimiser
    engine = run.engine
    state = run.state._replace(optimiser=())
    if not isinstance(engine.sites, Tied):
        if not method.grows:
            return None

        counts = torch.tensor(
            adapter.count_sites(table, engine.factor), device=engine.total.device
        )
        engine = replace(
            engine, sites=Tied(counts=counts, unit=min(1.0, table.heaviest))
        )
        state = state._replace(sites=map_tensors(lambda t: t[:0].clone(), state.sites))

    return _detach(run, engine, state, columns, table.lightest, table.heaviest)


def find_problem(method: Method, optimizer: str, schedule: str) -> str | None:
    """Return why a model with these arguments has no partial_fit; None if it has."""
    if not method.grows:
        return (
            f"partial_fit adds rows to tied sites, which {method.argument} does not "
            f"have: use method='sep' (also 'auto'), or "
            "method=REP(sites='tied')."
        )
    if optimizer == "lbfgs":
        return "optimizer='lbfgs' needs all rows at once: use 'adam' or 'sign' for partial_fit."
    if schedule == "inner-exact":
        return "schedule='inner-exact' needs all rows at once: use 'inner-approx' for partial_fit."

    return None


def grow(
    config: ClassifierConfig, request: GivenRows, classes: Any, earlier: Result | None
) -> Result:
    """Add rows to the model of an earlier call, or start one; `classes` are those that
    the call names.
    """
    if earlier is not None and earlier.growing is None:
        raise BadOption(
            "this model has no sums to which partial_fit could add rows: it was fitted "
            "with another method than 'sep', 'auto' and "
            "REP(sites='tied'), or comes from a file (a pickle keeps them). Begin with "
            "a fresh estimator."
        )
    if isinstance(config.class_weight, str):
        raise BadOption(
            f"class_weight={config.class_weight!r} needs the counts of all rows, which "
            f"partial_fit does not know: use a dict."
        )
    if config.inducing is None:
        raise every_row("inducing=None", "rows of which more may come")

    table, features, labels = _read_table(config, request, classes, earlier)
    old = None if earlier is None else earlier.growing
    size = TableSize.of(table, features.n, numbered=False)
    if old is not None:
        M = old.engine.prior.size
    else:
        M = policy.count_points(config, size)

    plan = policy.plan_training(config, size, M)
    if old is None:
        old = _start(config, table, plan, features)
    _check_learn(old.engine, config.learn, config.kernel)
    lightest = min(old.lightest, table.lightest)
    heaviest = max(old.heaviest, table.heaviest)
    engine = _add_rows(
        _move(old.engine, config.device), table, lightest, heaviest, plan
    )
    run = _make_run(engine, table, old, config)
    _absorb(run, config)
    growing = _detach(run, run.engine, run.state, old.columns, lightest, heaviest)
    found = common_result(
        run,
        old.columns,
        features,
        evidence=runs.label_evidence(run),
        warm_start=config.warm_start,
    )
    if earlier is not None:  # new rows do not change the calibration
        model = found.model._replace(pool=earlier.model.pool)
        found = found._replace(
            model=model, calibration=earlier.calibration, plan=earlier.plan
        )

    name = adapter.name_evidence(config, table)
    return found._replace(classes=labels, growing=growing, evidence_name=name)


def _read_table(
    config: ClassifierConfig, request: GivenRows, classes: Any, earlier: Result | None
) -> tuple[Table, Features, NDArray[Any]]:
    """Read the call's rows; labels are encoded as the first call said."""
    request = request.with_arrays()
    if earlier is None:
        refuse_many_columns(request.X)
        rows, features = read_rows(request.X, config.owner, request.y)
    else:
        rows = check_rows(request.X, earlier.features)
        features = earlier.features

    labels, weight = read_labels(
        request.y, request.sample_weight, config.class_weight, rows
    )
    first = labels if classes is None else classes
    if earlier is None:
        every = np.unique(first)
    else:
        every = np.asarray(earlier.classes)

    if len(every) < 2:
        raise BadInput(
            f"only one class, {str(every[0])!r}, in the first call: pass all of them, "
            f"classes=."
        )
    if (
        earlier is not None
        and classes is not None
        and not np.array_equal(np.unique(classes), every)
    ):
        raise BadInput(
            f"classes={list(classes)} are not those of the first call, "
            f"{every.tolist()}."
        )

    unknown = np.setdiff1d(labels, every)
    if len(unknown):
        raise BadInput(
            f"y has the label {unknown.tolist()[0]!r}, which is not one of the classes "
            f"of the first call, {every.tolist()}: pass "
            "all classes to the first call, classes=."
        )

    present = weight > 0
    table = Table(
        rows[present],
        np.searchsorted(every, labels[present]),
        weight[present],
        len(every),
        order=find_places(config.order, every),
    )
    return table, features, every


def _start(
    config: Config, table: Table, plan: TrainingPlan, features: Features
) -> Growing:
    """Return a model without rows; its starting values come from the rows that will be
    the first.
    """
    rng = np.random.default_rng(draw_seed(config.random_state))
    begin = share_lengthscales(table.start(rng), features, rng)
    Z = choose_points(config, begin.candidates, plan.n_inducing, table.n_latent, rng)
    engine = adapter.make_engine(
        adapter.make_prior(config, plan, table, begin, Z), table, config, plan
    )
    data = adapter.load_rows(table, config.dtype, config.device)
    seed = int(rng.integers(2**31 - 1))
    state = adapter.make_first_state(engine, data, config, plan, 1.0, seed)
    sites = replace(_tied(engine), counts=0 * _tied(engine).counts)
    empty = replace(engine, total=0 * engine.total, sites=sites)
    return Growing(empty, state._replace(optimiser=()), begin.columns, np.inf, 0.0, [])


def _tied(engine: Engine) -> Tied:
    assert isinstance(engine.sites, Tied)
    return engine.sites


def _add_rows(
    engine: Engine, table: Table, lightest: float, heaviest: float, plan: TrainingPlan
) -> Engine:
    """Return the engine with the call's rows in its counts."""
    engine.factor.expect_exponents(min(1.0, table.lightest))
    old = _tied(engine)
    weighted = not lightest == heaviest == 1
    counts = old.counts + torch.tensor(adapter.count_sites(table, engine.factor)).to(
        old.counts
    )
    sites = replace(
        old, counts=counts, weighted=weighted, unit=min(1.0, heaviest), grows=True
    )
    return replace(
        engine,
        total=engine.total + float(table.weight.sum()),
        sites=sites,
        chunk=plan.chunk,
    )


def _make_run(engine: Engine, table: Table, old: Growing, config: Config) -> Run:
    steps = Steps(rate=config.learning_rate or GROWING_RATE)
    state = _state_to(old.state, config.device)
    optimiser = OPTIMISERS["sign" if config.optimizer == "sign" else "adam"]
    state = state._replace(
        damping=torch.ones_like(state.damping),
        rate=torch.full_like(state.rate, steps.rate),
        optimiser=state.optimiser or optimiser.init(state.theta),
    )
    rows = adapter.copy_rows(table, config.dtype, config.device)
    return Run(
        engine, rows, steps, state, optimiser=optimiser, history=list(old.history)
    )


def _absorb(run: Run, config: Config) -> None:
    """Add the rows' sites in small batches, whose order depends on the number of the
    call, then step the hyper-parameters.
    """
    if config.batch_size == "auto":
        size = GROWING_ROWS
    else:
        size = int(config.batch_size or run.rows.n_rows)

    run.guard.repairs = sum(row["repairs"] for row in run.history)
    skipped = 0
    info = None
    for batch in run.rows.batches(
        size, torch.Generator().manual_seed(len(run.history))
    ):
        info = _advance(run, batch, None)
        skipped += int(info.skipped)

    if run.learns:
        before = run.state
        info = _advance(run, run.rows.whole(), run.optimiser)
        kinds = zip(
            _names_of_parameters(run.engine),
            run.engine.parameters.values(),
            strict=True,
        )
        learn = [
            torch.full((p.numel(),), selects(config.learn, n), device=p.device)
            for n, p in kinds
        ]
        theta = torch.where(torch.cat(learn), run.state.theta, before.theta)
        run.state = run.state._replace(
            theta=theta, sums=before.sums
        )  # the rows are in them already

    assert info is not None
    run.record(Outcome(float(info.objective), float(info.evidence), skipped))


def _names_of_parameters(engine: Engine) -> list[str]:
    """Return the name in `learn`, or the path, of each of the engine's parameters."""
    paths = name_paths(engine.prior.kernel)
    found = {f"{KERNEL}.{name}": path for name, path in paths.items()}
    names = {"log_noise": "noise", "likelihood": "epsilon"}  # others have the same
    for name in engine.parameters:
        first = name.partition(".")[0]
        found.setdefault(name, names.get(first, first))
    return [found[name] for name in engine.parameters]


def _check_learn(engine: Engine, learn: frozenset[str], given: Any) -> None:
    """`learn` may lose names between calls, but not gain any: what was fixed at first
    is not a parameter.
    """
    known = set[str]()
    if _is_frozen(engine.prior.kernel, given):
        known = {"kernel"}
    paths = _names_of_parameters(engine)
    more = [
        name
        for name in learn - known
        if not any(selects((name,), path) for path in paths)
    ]
    if more:
        raise BadOption(
            f"learn has {', '.join(map(repr, sorted(more)))}, which the first call or "
            f"the fit kept fixed: leave it out, or begin "
            "with a fresh estimator."
        )


def _is_frozen(kernel: Any, given: Any) -> bool:
    """Return whether the user froze all parameters of a kernel, or there are none."""
    if not isinstance(kernel, nn.Module):
        return True

    frozen = set()
    if isinstance(given, nn.Module):
        frozen = {name for name, p in given.named_parameters() if not p.requires_grad}
    return {name for name, _ in kernel.named_parameters()} <= frozen


def _advance(run: Run, batch: Whole, optimiser: Optimiser | None) -> Info:
    """Take one step; if it fails, repeat it with more care. Earlier rows are kept."""
    info: Info | None = None
    while info is None:
        run.state, info = run.guard.advance(run.state, batch, optimiser, False)
    return info


def _detach(
    run: Run,
    engine: Engine,
    state: State,
    columns: Columns,
    lightest: float,
    heaviest: float,
) -> Growing:
    """Return copies on the CPU, without a generator, which takes 5 kB."""
    state = map_tensors(torch.Tensor.cpu, state)._replace(
        generator=torch.empty(0, dtype=torch.uint8)
    )
    kept = _move(copy.deepcopy(engine), torch.device("cpu"))
    return Growing(kept, state, columns, lightest, heaviest, list(run.history))


def _move(engine: Engine, device: torch.device) -> Engine:
    """Move an engine to a device; its modules are moved, not copied."""
    return replace(
        engine,
        prior=engine.prior.to(device),
        factor=engine.factor.to(device),
        total=engine.total.to(device),
        sites=replace(_tied(engine), counts=_tied(engine).counts.to(device)),
        hyper_prior=engine.hyper_prior.to(device),
    )


def _state_to(state: State, device: torch.device) -> State:
    """Move a state to a device; the generator and the counters stay."""
    stay = {name: getattr(state, name) for name in ("generator", "epoch", "position")}
    return map_tensors(lambda tensor: tensor.to(device), state)._replace(**stay)
