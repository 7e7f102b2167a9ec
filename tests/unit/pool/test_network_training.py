"""Networks of a pool: their gradient and steps are those of torch."""

from itertools import islice

import numpy as np
import pytest
import torch

from cavity.pool import network_training as networks
from cavity.pool.member_rows import MemberTask
from cavity.pool.members import MemberRows, Networks
from cavity.pool.network_training import NetworkShape, Rows, train_networks
from cavity.pool.sklearn_trees import TreeColumns


def draw(n_classes):
    rng = np.random.default_rng(0)
    X = 5 + 3 * rng.normal(size=(90, 4))
    return X, np.arange(90) % n_classes


SMALL = NetworkShape(2, (100, 50))


def train(X, y, weight=None):
    return next(train_networks(X, y, weight, 3, shape=SMALL, seed=0, steps=300))[1]


def score(layers, z):
    a = torch.relu(z @ layers[0] + layers[1])
    return torch.relu(a @ layers[2] + layers[3]) @ layers[4] + layers[5]


@pytest.mark.parametrize("send", [np.copy, torch.tensor], ids=["NumPy", "torch"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_training_takes_the_steps_of_adamw(n_classes, send):
    """The weights after nine steps are those of torch's autograd and AdamW; the last
    three are averaged. The same lines run on arrays and on tensors.
    """
    X, y = draw(n_classes)
    Z, labels = X.astype(np.float32), np.eye(n_classes, dtype=np.float32)[y]
    omega = np.random.default_rng(1).uniform(0.5, 2, 90).astype(np.float32)
    rng = np.random.default_rng(2)
    layers = networks._draw_layers(2, (4, 60, 5, n_classes), rng)
    batches = list(islice(networks._draw_batches(90, 10, 2, rng), 9))
    rows = Rows(send(Z), send(labels), send(omega))
    start = [send(part) for part in layers]
    steps, found = next(networks._train(start, rows, iter(batches), 9))
    assert steps == 9

    theirs = [torch.from_numpy(part.copy()).requires_grad_() for part in layers]
    optimiser = torch.optim.AdamW(
        [
            {"params": theirs[::2], "weight_decay": networks.DECAY},
            {"params": theirs[1::2], "weight_decay": 0.0},
        ],
        lr=networks.RATE_BY_UNITS / 60,
        betas=(networks.MOMENTUM, networks.SQUARES),
    )
    last = []
    for rows in batches:
        each = torch.nn.functional.cross_entropy(
            score(theirs, torch.from_numpy(Z[rows])).flatten(0, 1),
            torch.from_numpy(y[rows]).flatten(),
            reduction="none",
        )
        optimiser.zero_grad()
        (each @ torch.from_numpy(omega[rows]).flatten() / rows.shape[1]).backward()
        optimiser.step()
        last.append([part.detach().numpy().copy() for part in theirs])
    for ours, *others in zip(found, *last[-3:], strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.mean(others, 0), atol=2e-5)


def test_the_mean_of_the_scores_counts():
    X, y = draw(3)
    _, found = next(
        train_networks(X, y, None, 1 + y.max(), shape=SMALL, seed=0, steps=30)
    )
    z = torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32))
    mean = score([torch.from_numpy(part) for part in found[3:]], z).mean(0)
    np.testing.assert_allclose(
        np.exp(found.log_proba(X)), mean.softmax(-1).numpy(), atol=2e-6
    )


def test_every_row_of_an_epoch_is_drawn_once_by_each_network():
    size = networks.choose_batch(300)
    batches = islice(
        networks._draw_batches(300, size, 3, np.random.default_rng(0)), -(-300 // size)
    )
    for network in np.concatenate(list(batches), 1):
        assert sorted(network) == list(range(300))


def test_more_steps_go_on_where_fewer_ended():
    """Networks of 40 steps are those that 20 steps, or 10, lead to: held-out rows may
    choose the number.
    """
    X, y = draw(3)
    stages = train_networks(X, y, None, 3, shape=SMALL, seed=0, steps=10)
    grown = dict(islice(stages, 3))
    assert list(grown) == [10, 20, 40]
    for steps, network in grown.items():
        taken, alone = next(
            train_networks(X, y, None, 3, shape=SMALL, seed=0, steps=steps)
        )
        assert taken == steps
        for ours, theirs in zip(network, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_held_out_rows_choose_the_steps():
    """A rule is learnt for longer than noise, and a fit with the chosen steps makes the
    same networks.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    rule = (X[:, 0] * X[:, 1] > 0).astype(int)
    taken = {}
    for name, y in {"rule": rule, "noise": rng.integers(0, 2, 600)}.items():
        rows, held = (
            MemberRows(X[part], y[part], None, 2)
            for part in (slice(400), slice(400, 600))
        )
        task = MemberTask(rows, TreeColumns.first(3), held)
        recipe = Networks(SMALL, 0, 800, 100)
        network, known = recipe.fit(task)
        taken[name] = known.steps
        again, same = known.fit(task)
        assert same == known
        np.testing.assert_array_equal(again.log_proba(X), network.log_proba(X))
    assert taken["noise"] <= 100 < taken["rule"] <= 800


def test_rows_without_weight_teach_nothing():
    X, y = draw(3)
    weight = np.where(y == 2, 0.0, 1.0)
    found = train(X, y, weight).log_proba(X)
    moved = np.where((y == 2)[:, None], X - 3, X)
    np.testing.assert_allclose(train(moved, y, weight).log_proba(X), found, atol=1e-6)
    assert np.exp(found[:, 2]).max() < 0.1


def test_more_columns_than_rows_are_as_few_as_the_rows_span():
    """Columns that repeat others a hundred times tell nothing new: the networks are
    those of one copy, and rows span their axes.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 41))
    y = (X[:, 0] > 0).astype(np.int64)
    new = rng.normal(size=(50, 41))
    few, many = (
        next(train_networks(part, y, None, 2, shape=SMALL, seed=0, steps=300))[1]
        for part in (X, np.tile(X, 100))
    )
    np.testing.assert_allclose(
        many.log_proba(np.tile(new, 100)), few.log_proba(new), atol=1e-2
    )
    assert few.first.shape[1] == 41 and many.first.shape[1] == 4100
