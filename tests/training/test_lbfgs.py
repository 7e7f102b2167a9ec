"""L-BFGS ends in a state that has a posterior."""

import numpy as np
import pytest

from cavity import GPClassifier, Training
from cavity.callbacks import Callback
from cavity.training import lbfgs
from support import toy


class Keep(Callback):
    """Keeps the run."""

    def epoch(self, run, row):
        self.run = run
        return False


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_last_sweep_that_spoils_the_posterior_is_undone(monkeypatch, spoilt):
    """The objective was evaluated before that sweep."""
    if spoilt:
        monkeypatch.setattr(lbfgs, "_has_posterior", lambda run, state: False)
    keep = Keep()
    fit = GPClassifier(
        "rep",
        n_inducing=5,
        training=Training(optimizer="lbfgs"),
        max_epochs=2,
        random_state=0,
        callbacks=[keep],
    ).fit(*toy(40, 3))
    run = keep.run
    _, info = run.engine.step(run.state, run.whole, run.reduce, None, True)
    same = float(info.evidence) == pytest.approx(run.history[-1]["log_evidence"], rel=1e-12)
    assert same == spoilt and np.isfinite(fit.log_marginal_likelihood_)
