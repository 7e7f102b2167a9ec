"""Models that grow: every call's rows are new, and their sites are added to the sums of tied ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from cavity import inducing
from cavity.data import Batch, Rows
from cavity.distributed import Local
from cavity.errors import BadInput, BadOption
from cavity.estimators import build, methods, tables
from cavity.estimators.checks import check_labels, check_rows, check_weights, weight_of_class
from cavity.estimators.fitted import on_cpu
from cavity.estimators.options import Options, read
from cavity.estimators.values import inducing_count
from cavity.inference import Engine, Info, Optimiser, State, Tied
from cavity.training.guard import Guard
from cavity.training.loop import Outcome, Plan, Run
from cavity.training.optimisers import OPTIMISERS

STEP_ROWS = 50  # rows whose sites are found at once: each sees those before it, and none of the others
RATE = 0.03


class Growing(NamedTuple):
    """A model that can take more rows."""

    engine: Engine  # with the counts and weights of all rows so far
    state: State
    begin: tables.Start  # without its candidates
    lightest: float
    heaviest: float
    history: list[dict[str, Any]]


class _Passing:
    """Rows that come once: they have no numbers."""

    names, numbered = None, False

    def pieces(self, size: int) -> Iterator[Any]:
        return iter(())

    def scattered(self, size: int, rng: Any) -> Iterator[Any]:
        return iter(())


def keep(estimator: Any, run: Run, begin: tables.Start, table: tables.Facts) -> Growing | None:
    """What a finished fit leaves for more rows. Sites of a row's own, where "auto" chose them, are tied from now on."""
    engine, state = run.engine, run.state
    if not isinstance(engine.sites, Tied):
        if estimator.method != "auto":
            return None
        counts = torch.tensor(build.site_counts(table, engine.factor), device=engine.total.device)
        engine = replace(engine, sites=Tied(counts, False, min(1.0, table.heaviest)))
        state = state._replace(sites=type(state.sites)(*(t[:0].clone() for t in state.sites)))
    state = state._replace(optimiser=())  # it may have been another rule's
    kept = _at_rest(engine, state, begin)
    return Growing(**kept, lightest=table.lightest, heaviest=table.heaviest, history=list(run.history))


def grow(estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any) -> tuple[Growing, Run]:
    """The model with these rows, and the call as a run that has ended."""
    old: Growing | None = getattr(estimator, "_growing", None)
    _check_options(estimator, old)
    table = _table(estimator, X, y, classes, sample_weight, old is None)
    options = _options(estimator, table, old)
    if old is None:
        old = _first(estimator, table, options)
    _check_learn(old.engine, options.learn)
    lightest, heaviest = min(old.lightest, table.lightest), max(old.heaviest, table.heaviest)
    engine = _grown(_on(old.engine, options.device), table, lightest, heaviest, options)
    run = _run(estimator, engine, table.on_device(options), _to(old.state, options.device), old, options)
    _absorb(run, estimator, options)
    kept = _at_rest(run.engine, run.state, old.begin)
    return Growing(**kept, lightest=lightest, heaviest=heaviest, history=list(run.history)), run


class NoPartialFit(BadOption, AttributeError):
    """For scikit-learn the method is absent, for a reader the message says what to use."""


class where_tied:
    """A method that only estimators with tied sites have: `hasattr` says so, a call says why."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is None:
            return self.method
        reason = _refusal(estimator)
        if reason is not None:
            raise NoPartialFit(reason)
        return MethodType(self.method, estimator)


def _refusal(estimator: Any) -> str | None:
    """Why an estimator with these arguments has no partial_fit."""
    if estimator.method in methods.METHODS and not _grows(estimator):
        return (
            f"partial_fit adds rows to tied sites, which method={estimator.method!r} does not have here: use method='sep' "
            "(also 'auto'), or method='rep' with sites='tied'."
        )
    if estimator.optimizer == "lbfgs":
        return "optimizer='lbfgs' needs all rows at once: use 'adam' or 'sign' for partial_fit."
    if estimator.schedule == "inner-exact":
        return "schedule='inner-exact' needs all rows at once: use 'inner-approx' for partial_fit."
    return None


def _grows(estimator: Any) -> bool:
    return bool(estimator.method == "sep" or (estimator.method == "rep" and estimator.sites == "tied"))


def _check_options(estimator: Any, old: Growing | None) -> None:
    methods.resolve(estimator, "sep")
    if old is None and hasattr(estimator, "_fitted"):
        raise BadOption(
            "this model was fitted with another method, to which partial_fit cannot add: fit it with method='sep' (or 'auto', or "
            "'rep' and sites='tied'), or begin with a fresh estimator."
        )
    if isinstance(estimator.class_weight, str):
        raise BadOption(
            f"class_weight={estimator.class_weight!r} needs the counts of all rows, which partial_fit does not know: use a dict."
        )


def _table(estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any, first: bool) -> tables.Table:
    """The call's rows, with labels encoded as the first call said."""
    rows = check_rows(estimator, X, reset=first)
    labels = check_labels(y, len(rows))
    weight = check_weights(sample_weight, rows)
    known = _classes(estimator, labels, classes, first)
    unknown = np.setdiff1d(labels, known)
    if len(unknown):
        raise BadInput(
            f"y has the label {unknown.tolist()[0]!r}, which is not among the classes of the first call, {known.tolist()}: name "
            "all that will come there, classes=."
        )
    if estimator.class_weight is not None:
        weight = weight * weight_of_class(estimator.class_weight, labels, weight)
    present = weight > 0
    if not present.any():
        raise BadInput("every row has the weight 0: there is nothing to learn from.")
    estimator.classes_ = known
    encoded = np.searchsorted(known, labels[present])
    return tables.Table(rows[present], encoded, weight[present], len(known))


def _classes(estimator: Any, labels: NDArray[Any], classes: Any, first: bool) -> NDArray[Any]:
    if not first:
        known: NDArray[Any] = estimator.classes_
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise BadInput(f"classes={list(classes)} are not those of the first call, {known.tolist()}.")
        return known
    known = np.unique(labels if classes is None else np.asarray(classes))
    if len(known) < 2:
        raise BadInput(
            f"only one class, {str(known[0])!r}, in the first call: name all that will come, classes=."
        )
    return known


def _options(estimator: Any, table: tables.Table, old: Growing | None) -> Options:
    if old is None:
        M = inducing_count(estimator.n_inducing, table.weight.sum())
    else:
        M = old.engine.prior.size
    return read(estimator, table.n_rows, table.n_latent, M, _Passing())


def _first(estimator: Any, table: tables.Table, options: Options) -> Growing:
    """No rows yet; starting values from those that will be the first."""
    rng = np.random.default_rng(int(check_random_state(estimator.random_state).randint(2**31 - 1)))
    begin = table.start(rng)
    M = inducing_count(estimator.n_inducing, table.weight.sum())
    Z = build.points(estimator, begin.pool, M, table.n_latent, rng)
    engine = build.engine(build.prior(estimator, table, begin, Z, options), table, options)
    state = build.first_state(engine, table.rows(options), options, 1.0, int(rng.integers(2**31 - 1)))
    state = state._replace(optimiser=())
    sites = _tied(engine)
    none = replace(engine, total=0 * engine.total, sites=_with(sites, 0 * sites.counts, sites.unit, False))
    return Growing(none, state, begin, np.inf, 0.0, [])


def _optimiser(estimator: Any) -> Optimiser:
    return OPTIMISERS["sign" if estimator.optimizer == "sign" else "adam"]


def _tied(engine: Engine) -> Tied:
    assert isinstance(engine.sites, Tied)
    return engine.sites


def _with(old: Tied, counts: Any, unit: float, weighted: bool) -> Tied:
    return Tied(counts, weighted, unit, old.tempers, grows=True)


def _grown(engine: Engine, table: tables.Table, lightest: float, heaviest: float, options: Options) -> Engine:
    """The engine with the call's rows in its counts."""
    old, new = _tied(engine), _tied(build.engine(engine.prior, table, options, engine.factor))
    weighted = not lightest == heaviest == 1
    sites = _with(old, old.counts + new.counts, min(1.0, heaviest), weighted)
    total = engine.total + float(table.weight.sum())
    return replace(engine, total=total, sites=sites, chunk=options.chunk)


def _run(estimator: Any, engine: Engine, rows: Rows, state: State, old: Growing, options: Options) -> Run:
    rate = RATE if estimator.learning_rate is None else options.rate
    plan = Plan(learn=bool(len(state.theta)), optimiser=_optimiser(estimator), rate=rate)
    state = state._replace(damping=torch.ones_like(state.damping), rate=torch.full_like(state.rate, rate))
    if not state.optimiser:
        state = state._replace(optimiser=plan.optimiser.init(state.theta))
    return Run(engine, rows, plan, state, history=list(old.history))


def _absorb(run: Run, estimator: Any, options: Options) -> None:
    """Add the rows' sites, then take one step of the hyper-parameters."""
    run.guard.repairs = sum(row["repairs"] for row in run.history)
    skipped, info = 0, None
    for batch in _batches(run, estimator):
        run.state, info = _advance(run, batch, None)
        skipped += int(info.skipped)
    if run.plan.learn:
        stepped, info = _advance(run, run.rows.whole(), run.plan.optimiser)
        theta = torch.where(_moving(run.engine, options.learn), stepped.theta, run.state.theta)
        run.state = run.state._replace(theta=theta, optimiser=stepped.optimiser)
    assert info is not None
    run.record(Outcome(float(info.objective), float(info.evidence), skipped))


def _kinds(engine: Engine) -> list[str]:
    """The name in `learn` of each of the engine's parameters."""
    kernel = {id(p) for p in engine.prior.kernel.parameters()}
    own = {id(p) for p in getattr(engine.factor, "parameters", ())}
    noise = id(engine.prior.log_noise) if engine.prior.learn_noise else 0
    return [
        "kernel"
        if id(p) in kernel
        else "epsilon"
        if id(p) in own
        else "noise"
        if id(p) == noise
        else "inducing"
        for p in engine.parameters
    ]


def _check_learn(engine: Engine, learn: frozenset[str]) -> None:
    """`learn` may become less from one call to the next, not more: what was fixed at first has no place among the parameters."""
    known = {"kernel"} if not list(engine.prior.kernel.parameters()) else set()
    more = learn - known - set(_kinds(engine))
    if more:
        raise BadOption(
            f"learn has {', '.join(map(repr, sorted(more)))}, which the first call or the fit kept fixed: leave it out, or begin "
            "with a fresh estimator."
        )


def _moving(engine: Engine, learn: frozenset[str]) -> torch.Tensor:
    """Which entries of θ are still learnt."""
    kinds = zip(_kinds(engine), engine.parameters, strict=True)
    return torch.cat([torch.full((p.numel(),), name in learn, device=p.device) for name, p in kinds])


def _batches(run: Run, estimator: Any) -> list[Batch]:
    """The call's rows a few at a time, in a random order that is its number's."""
    given = estimator.batch_size
    size = STEP_ROWS if given == "auto" else run.rows.n_rows if given is None else int(given)
    return list(run.rows.batches(size, torch.Generator().manual_seed(len(run.history))))


def _advance(run: Run, batch: Any, optimiser: Optimiser | None) -> tuple[State, Info]:
    """One step; where it fails, again from the same state with more care. The rows before are not given up."""
    guard = Guard(run.engine, Local())
    info: Info | None = None
    state = run.state
    while info is None:
        run.state = state
        state, info = guard.advance(state, batch, optimiser, False)
    run.guard.repairs += guard.repairs
    return state, info


def _at_rest(engine: Engine, state: State, begin: tables.Start) -> dict[str, Any]:
    """A copy on the CPU, without the rows that Z was chosen from and without a generator, which is 5 kB."""
    X, U, class_weight, distance = begin.pool
    pool = inducing.Candidates(X[:0].copy(), U[:0].copy(), class_weight[:0].copy(), distance)
    cpu = torch.device("cpu")
    return {
        "engine": _on(copy.deepcopy(engine), cpu),
        "state": on_cpu(state._replace(generator=torch.empty(0, dtype=torch.uint8))),
        "begin": begin._replace(pool=pool),
    }


def _on(engine: Engine, device: torch.device) -> Engine:
    """The same engine elsewhere; its modules are moved, not copied."""
    old = _tied(engine)
    for parameter in getattr(engine.factor, "parameters", ()):
        parameter.data = parameter.data.to(device)
    return replace(
        engine,
        prior=engine.prior.to(device),
        total=engine.total.to(device),
        sites=_with(old, old.counts.to(device), old.unit, old.weighted),
        hyper_prior=engine.hyper_prior.to(device),
    )


def _to(state: Any, device: torch.device) -> Any:
    """The state with its tensors on the device; the generator and the counters stay."""
    moved = {
        name: value.to(device)
        for name, value in state._asdict().items()
        if isinstance(value, torch.Tensor) and name not in ("generator", "epoch", "position")
    }
    parts = {
        name: type(value)(*(t.to(device) for t in value))
        for name, value in (("sites", state.sites), ("sums", state.sums))
    }
    return state._replace(**moved, **parts, optimiser=tuple(t.to(device) for t in state.optimiser))
