"""L-BFGS ends in a state that has a posterior."""

import numpy as np
import pytest
import torch

from cavity import GPClassifier, Training
from cavity.callbacks import Callback
from cavity.engine.inference import Engine, Optimiser
from cavity.engine.training import lbfgs, objective
from cavity.engine.training.objective import evaluate
from cavity.fitting.options import nest, papers
from cavity.fitting.options.configuration import read_classifier
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.training import plan_training
from support import ALONE, slow, toy


class Keep(Callback):
    """Keeps the run."""

    def epoch(self, run, row):
        self.run = run
        return False


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_last_sweep_that_spoils_the_posterior_does_not_count(monkeypatch, spoilt):
    """The objective was evaluated before that sweep."""
    if spoilt:
        real = Engine.step

        def step(self, state, batch, reduce, optimiser, full, **known):
            going = torch.tensor(type(optimiser) is not Optimiser)
            return real(self, state, batch, reduce, optimiser, full, going=going)

        monkeypatch.setattr(Engine, "step", step)
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
    same = float(info.evidence) == pytest.approx(
        run.history[-1]["log_evidence"], rel=1e-12
    )
    assert same == spoilt and np.isfinite(fit.log_marginal_likelihood_)


@pytest.mark.parametrize("training", [None, Training(optimizer="lbfgs")])
def test_a_search_without_a_better_point_ends_if_sites_are_loose(monkeypatch, training):
    """SciPy tries twenty points on a line, forgets the curvature, and tries twenty
    more. Who asks for L-BFGS gets that.
    """
    runs, found_of = [], []  # a fit may train more than once

    def without_gain(run, theta, *rest):
        found = evaluate(run, theta, *rest)
        if all(run is not known for known in runs):
            runs.append(run), found_of.append([found.value])
            return found
        values = next(v for r, v in zip(runs, found_of, strict=True) if r is run)
        values.append(values[0] - 1e-3)
        return found._replace(value=values[-1])

    monkeypatch.setattr(lbfgs, "evaluate", without_gain)
    monkeypatch.setattr(objective, "evaluate", without_gain)  # of the first point
    alone = GPClassifier(n_inducing=5, training=training, random_state=0, **ALONE)
    alone.fit(*toy(40, 3))
    counts = [len(values) for values in found_of]
    if training is None:
        assert set(counts) == {1 + lbfgs.MOST_WORSE}
    else:
        assert min(counts) > 1 + lbfgs.MOST_WORSE


@pytest.mark.parametrize("method", ["ep", "gfitc", slow("vi"), slow("laplace")])
@pytest.mark.filterwarnings("error")
def test_named_methods_train_by_strict_lbfgs_to_their_own_fixed_point(method):
    keep = Keep()
    X, y = toy(40, 2)
    model = GPClassifier(
        method, n_inducing=5, callbacks=[keep], random_state=0, device="cpu"
    ).fit(X, y)
    plan = model.plan_.training
    assert (plan.optimizer, plan.loose, plan.tol) == ("lbfgs", False, papers.TOL)
    assert 1 < model.n_epochs_ < papers.LBFGS_EPOCHS
    swept = [outcome.objective for outcome in keep.run.sweep(0.0, 20)]
    assert np.ptp(swept) < 1e-3 * len(X)


def test_tied_sites_are_trained_by_the_papers_rule():
    """Their gradient holds the sums fixed, and L-BFGS stands still far from the top."""
    config = read_classifier(GPClassifier("sep").get_params(deep=False))
    size = TableSize(rows=40, columns=2, classes=3, latent=3, total=40.0)
    assert plan_training(config, size, 8).optimizer == "sign"


def test_more_epochs_than_in_the_papers_are_epochs_of_lbfgs():
    """A warning says: raise max_epochs=."""
    size = TableSize(rows=40, columns=2, classes=3, latent=3, total=40.0)
    config = read_classifier(GPClassifier("ep", max_epochs=3000).get_params(deep=False))
    plan = plan_training(config, size, 8)
    assert (plan.optimizer, plan.max_epochs) == ("lbfgs", 3000)


@pytest.mark.parametrize(
    "given",
    [{"max_epochs": 2}, {"tol": 1e-3}, {"learning_rate": 0.02}, {"optimizer": "sign"}],
)
def test_an_option_of_the_papers_schedule_keeps_that_schedule(given):
    """All of it but what was given: experiments that reproduce the papers pass their
    epochs.
    """
    size = TableSize(rows=40, columns=2, classes=3, latent=3, total=40.0)
    config = read_classifier(GPClassifier("ep", **nest(**given)).get_params(deep=False))
    plan = plan_training(config, size, 8)
    assert (plan.optimizer, plan.schedule, plan.loose) == (
        "sign",
        "inner-approx",
        False,
    )
    assert plan.max_epochs == given.get("max_epochs", papers.FULL_BATCH_EPOCHS)
