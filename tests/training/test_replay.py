"""Recorded steps are the steps of the loop: same state, same record, same repairs. (On
a CPU they are called, not recorded.)
"""

from functools import partial

import numpy as np
import pytest
import torch

from cavity.callbacks import Callback
from cavity.engine import runs as module
from cavity.engine.inference import Engine
from cavity.engine.training import loop
from cavity.engine.training.replay import Replay
from support import classifier, toy

OPTIONS = dict(
    n_inducing=6, batch_size=20, max_epochs=4, tol=0.0, random_state=0, device="cpu"
)
METHODS = [
    dict(method="ep"),
    dict(method="sep"),
    dict(method="rep"),
    dict(method="vi"),
    dict(method="vi", q_update="gradient"),
]
pytestmark = pytest.mark.filterwarnings("ignore")


class Brittle(Engine):
    """Fails at some steps unless they are small: a function of the state alone."""

    def step(self, state, batch, reduce, optimiser, full, *, factored=None, going=None):
        going = torch.tensor(True) if going is None else going
        broken = bad = False
        if optimiser is not None:
            steps = int(state.optimiser[2])
            broken = steps == 0 and float(state.jitter) < 5e-6
            bad = broken or (steps in (3, 11) and float(state.damping) > 0.2)
        going = going & torch.tensor(not bad)
        after, info = super().step(
            state, batch, reduce, optimiser, full, factored=factored, going=going
        )
        return after, info._replace(broken=info.broken | broken)


def fits(monkeypatch, options, rows=101, brittle=False, callbacks=()):
    X, y = toy(rows, 3, seed=1)
    results = []
    if brittle:
        monkeypatch.setattr(module.assembly, "Engine", Brittle)
    for recorded in (False, True):
        monkeypatch.setattr(
            module, "records_steps", lambda *_, recorded=recorded: recorded
        )
        clf = classifier(
            **{**OPTIONS, **options}, callbacks=[c() for c in callbacks]
        ).fit(X, y)
        results.append((clf, clf.predict_log_proba(X)))
    return results


def same(results):
    (plain, p), (recorded, r) = results
    np.testing.assert_array_equal(p, r)
    for a, b in zip(plain.history_, recorded.history_, strict=True):
        for name in set(a) - {"seconds", "settling_seconds"}:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_recorded_steps_are_the_steps(monkeypatch, options):
    same(fits(monkeypatch, options))


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("lag", [1, 2, 5, 32])
def test_failures_are_mended_as_they_would_have_been(monkeypatch, method, lag):
    monkeypatch.setattr(loop, "Replay", partial(Replay, lag=lag))
    results = fits(monkeypatch, dict(method=method), brittle=True)
    same(results)
    assert sum(row["repairs"] for row in results[1][0].history_) >= 3


def test_a_resumed_run_goes_on_in_recorded_steps(monkeypatch, tmp_path):
    X, y = toy(101, 3, seed=1)
    monkeypatch.setattr(module, "records_steps", lambda *_: True)
    monkeypatch.setattr(loop, "Replay", partial(Replay, lag=3))
    whole = classifier("ep", **OPTIONS).fit(X, y)

    class Stop(Callback):
        def step(self, run):
            if len(run.history) == 2 and int(run.state.position) == 3:
                raise KeyboardInterrupt

    file = dict(checkpoint=tmp_path / "run", checkpoint_every=0, resume=True)
    with pytest.raises(KeyboardInterrupt):
        classifier("ep", **OPTIONS, **file, callbacks=[Stop()]).fit(X, y)
    resumed = classifier("ep", **OPTIONS, **file).fit(X, y)
    np.testing.assert_array_equal(
        resumed.predict_log_proba(X), whole.predict_log_proba(X)
    )


def test_the_best_state_is_not_written_over(monkeypatch):
    same(
        fits(
            monkeypatch,
            dict(method="ep", validation_fraction=0.2, patience=1, max_epochs=8),
        )
    )
