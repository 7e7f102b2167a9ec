"""What several tests need: an engine built by hand, its fixed points, and differences
of functions.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from cavity import GPClassifier, GPRegressor
from cavity.callbacks import Callback
from cavity.common.ranks import Local
from cavity.engine.batches.in_memory import RowsInMemory
from cavity.engine.inference import Engine, Optimiser, State
from cavity.engine.inference.posterior import Normal, marginals, posterior
from cavity.fitting import adapter, planning
from cavity.fitting.options import nest
from cavity.fitting.options.configuration import read_classifier
from cavity.fitting.options.library import method_names
from cavity.fitting.options.plan import TableSize, TrainingPlan
from cavity.fitting.options.policy.training import plan_training
from cavity.pool.boosting import Boosting
from cavity.pool.members import make_members
from cavity.tables.table import Table

ROOT = Path(__file__).parents[1]
# a Gaussian process without pool and temperature: no other models, no folds
ALONE = {"effort": "fast", "ensemble": None, "calibration": None}


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings, of short fits for example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def with_few_trees() -> Iterator[None]:
    """Let fits pool a few small trees, where any pool will do."""

    def make_few(ensemble: Any, plan: Any, seed: int) -> Iterator[Any]:
        plan = replace(plan, trees=20, network_steps=20)
        for recipe in make_members(ensemble, plan, seed):
            if isinstance(recipe, Boosting):
                recipe = replace(recipe, most_reach=0.0)  # the first rounds only
            yield recipe

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "make_members", make_few)
        yield


def slow(*values: Any) -> Any:
    """A value of `parametrize`, or several of one tuple, that only `make test-all`
    runs.
    """
    return pytest.param(*values, marks=pytest.mark.slow)


def load_script(path: str) -> Any:
    """Import a script of the repository, which is not in a package."""
    spec = importlib.util.spec_from_file_location(
        Path(path).stem + "_script", ROOT / path
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Machine(NamedTuple):
    """An engine, its rows and the state it starts from."""

    engine: Engine
    rows: RowsInMemory
    state: State

    def step(
        self, state: State, batch: Any = None, optimiser: Any = None
    ) -> tuple[State, Any]:
        """One step: on the whole table, or on a mini-batch."""
        whole = batch is None
        return self.engine.step(
            state, self.rows.whole() if whole else batch, Local(), optimiser, whole
        )

    def evidence(self, state: State) -> float:
        """log Z_q of a state."""
        return float(self.step(state)[1].evidence)


def split_options(
    task: str, method: str, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The method's object, made of those options that are its own, and the rest."""
    kind = method_names(task).get(method)
    own = {
        name: value
        for name, value in options.items()
        if kind and name in kind.parameter_names()
    }
    own = {
        name: value for name, value in own.items() if (method, name) != ("cg", "tol")
    }
    if kind and "cg_tol" in options:
        own["tol"] = options["cg_tol"]
    rest = {
        name: value
        for name, value in options.items()
        if name not in own and name != "cg_tol"
    }
    if "tol" in own and "tol" in options:
        rest["tol"] = options["tol"]
    return kind(**own) if own else method, rest


def classifier(method: str = "auto", **options: Any) -> GPClassifier:
    """A GPClassifier whose method's options are given beside its arguments."""
    chosen, rest = split_options("classification", method, options)
    return GPClassifier(chosen, **nest(**rest))


def regressor(method: str = "exact", **options: Any) -> GPRegressor:
    """A GPRegressor whose method's options are given beside its arguments."""
    chosen, rest = split_options("regression", method, options)
    return GPRegressor(chosen, **nest(**rest))


def toy(N: int, C: int, D: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows X (N, D) and overlapping labels y (N,), every class present."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    y = (X @ rng.normal(size=(D, C)) + 0.7 * rng.normal(size=(N, C))).argmax(1)
    y[:C] = np.arange(C)
    return X, y


class OneEach(Table):
    """A table whose classes have a latent function each, also where there are only two."""

    n_latent = property(lambda self: self.n_classes)


def machine(
    X: np.ndarray,
    y: np.ndarray,
    Z: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    method: str = "ep",
    damping: float = 1.0,
    chunk: int | None = None,
    optimizer: str = "sign",
    factor: Any = None,
    one_each: bool = False,
    n_classes: int | None = None,
    **options: Any,
) -> Machine:
    """The engine that GPClassifier would run on these rows, without a fit; or the same
    with another factor.

    With a factor of its own y may be anything that the factor understands, for a single
    latent function or, with `one_each`, for one per class.
    """
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    kind = OneEach if one_each else Table
    labels = np.arange(len(y)) % 2 if y.dtype.kind == "f" else y
    table = kind(X, labels, weight, n_classes or int(labels.max()) + 1)
    estimator = classifier(
        method,
        inducing=Z,
        optimizer=optimizer,
        batch_size=None,
        device="cpu",
        **options,
    )
    config = read_classifier(estimator.get_params(deep=False))
    begin = table.start(np.random.default_rng(0))
    Z = np.broadcast_to(Z, (table.n_latent, *Z.shape[-2:])).copy()
    plan = plan_training(config, TableSize.of(table, X.shape[1]), Z.shape[1])
    engine = adapter.make_engine(
        adapter.make_prior(config, plan, table, begin, Z), table, config, plan, factor
    )
    engine = replace(engine, chunk=chunk or engine.chunk)
    rows = adapter.load_rows(table, config.dtype, config.device)._replace(
        y=torch.tensor(y)
    )
    return Machine(
        engine, rows, adapter.make_first_state(engine, rows, config, plan, damping, 0)
    )


def move(old: State, new: State) -> float:
    """How far a step moved the natural parameters of q, relative to their size."""
    moves = [
        (a - b).abs().max() / (1 + b.abs().max())
        for a, b in zip(old.sums, new.sums, strict=True)
    ]
    return float(max(moves))


def converge(
    run: Machine, state: State | None = None, tol: float = 1e-12, most: int = 20_000
) -> State:
    """Full sweeps at fixed hyper-parameters until q rests; Anderson's extrapolation,
    plain sweeps as a fallback.

    Sites (own) or sums (tied) are the unknowns x of x = g(x). The result is a state
    whose next sweep moves nothing by more than `tol`.
    """
    state = run.state if state is None else state
    state, _ = run.step(state)
    best = np.inf
    best_state = state
    xs = []
    fs = []
    wait = 10
    for _ in range(most):
        new, info = run.step(state)
        residual = np.inf if bool(info.failed) else move(state, new)
        if residual < best:
            best = residual
            best_state = new
        if best < tol:
            return best_state
        if not residual < 10 * best:
            state = best_state
            xs = []
            fs = []
            wait = 10
            continue
        xs = [*xs[-8:], _pack(state)]
        fs = [*fs[-8:], _pack(new) - _pack(state)]
        wait -= 1
        state = (
            _unpack(run, new, _extrapolate(xs, fs))
            if wait <= 0 and len(xs) > 1
            else new
        )
    raise AssertionError(f"no fixed point: the last sweeps still moved q by {best:.1e}")


def _unknowns(state: State) -> tuple[Tensor, Tensor]:
    return (
        (state.sites.tau, state.sites.nu) if len(state.sites.tau) else tuple(state.sums)
    )


def _pack(state: State) -> np.ndarray:
    return torch.cat([t.flatten() for t in _unknowns(state)]).double().numpy()


def _extrapolate(xs: list[np.ndarray], fs: list[np.ndarray]) -> np.ndarray:
    dX = np.diff(np.array(xs), axis=0).T
    dF = np.diff(np.array(fs), axis=0).T
    gamma = np.linalg.lstsq(dF, fs[-1], rcond=1e-12)[0]
    return xs[-1] + fs[-1] - (dX + dF) @ gamma


def _unpack(run: Machine, like: State, x: np.ndarray) -> State:
    """The state with these sites, and the sums that belong to them."""
    first, second = _unknowns(like)
    parts = torch.tensor(x).split([first.numel(), second.numel()])
    values = [
        p.view_as(t).to(t.dtype) for p, t in zip(parts, (first, second), strict=True)
    ]
    if not len(like.sites.tau):
        return like._replace(sums=type(like.sums)(*values))
    sites = like.sites._replace(tau=values[0], nu=values[1])
    # a full step without damping of the sites only rebuilds the sums from them
    still = like._replace(sites=sites, damping=torch.zeros_like(like.damping))
    rebuilt, _ = run.step(still)
    return like._replace(sites=sites, sums=rebuilt.sums)


def change_training(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Let fits of classifiers follow their plan of training, but for these values."""

    def plan(*arguments: Any) -> TrainingPlan:
        return replace(plan_training(*arguments), **changed)

    monkeypatch.setattr(planning, "plan_training", plan)


def latents(run: Machine, state: State, X: np.ndarray) -> Normal:
    """Mean and variance of f at rows X under the state's q, noise included: [C n]."""
    run.engine.load(state.theta)
    with torch.no_grad():
        projection = run.engine.prior.project(torch.tensor(X), state.jitter)
        t = marginals(posterior(state.sums), projection.a).t
    return Normal(t.mean, t.var + projection.r)


def latent_columns(model: GPClassifier, X: Any) -> tuple[np.ndarray, ...]:
    """Return mean and variance of f with a column per function, also for two classes."""
    return tuple(part.reshape(len(part), -1) for part in model.predict_latent(X))


def central_differences(
    f: Callable[[np.ndarray], float], x: np.ndarray, step: float
) -> np.ndarray:
    """Gradient of f by central differences, error O(step²)."""
    return np.array(
        [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    )


def assert_gradient(got: np.ndarray, expected: np.ndarray, rel: float = 1e-6) -> None:
    """Equal to `rel` of the gradient's length as a whole, and in every component on
    that scale.
    """
    size = np.linalg.norm(expected)
    assert size > 1e-3, "a flat objective tells nothing"
    np.testing.assert_allclose(
        got, expected, rtol=rel, atol=rel * np.abs(expected).max()
    )
    assert np.linalg.norm(got - expected) <= rel * size


class SlowRows(Callback):
    """Lets every row take a second, so that any pass over the rows takes long."""

    def epoch(self, run: Any, row: dict[str, Any]) -> bool:
        run.pace = 1.0
        return False


class Recorder(Optimiser):
    """Takes no step and keeps the gradient that it was offered."""

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return ()

    def step(
        self, state: tuple[Tensor, ...], theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        self.gradient = gradient.numpy()
        return theta, state


def offered(run: Machine, state: State, batch: Any = None) -> np.ndarray:
    """The gradient of the objective, as the engine hands it to an optimiser."""
    recorder = Recorder()
    run.step(state, batch, recorder)
    return recorder.gradient


def arbitrary(state: State, seed: int = 0) -> State:
    """The state with sites, or sums, that are not a fixed point."""
    rng = np.random.default_rng(seed)
    if len(state.sites.tau):
        tau = torch.tensor(rng.uniform(0.05, 0.5, state.sites.tau.shape))
        nu = torch.tensor(rng.normal(size=state.sites.nu.shape))
        return state._replace(sites=state.sites._replace(tau=tau, nu=nu))
    A = torch.tensor(rng.normal(size=state.sums.P.shape))
    return state._replace(
        sums=state.sums._replace(
            P=A @ A.mT, h=torch.tensor(rng.normal(size=state.sums.h.shape))
        )
    )
