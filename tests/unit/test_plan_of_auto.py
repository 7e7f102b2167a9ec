"""How method="auto" trains: L-BFGS on small tables, mini-batches on larger ones, and what the user chose in any case."""

from dataclasses import replace

import pytest
import torch

from cavity import GPClassifier
from cavity.options import policy, read_classifier
from cavity.options.plan import TableSize
from cavity.options.policy import choose_device, complete, count_points


def size(rows, latent):
    return TableSize(rows, 5, 2 if latent == 1 else latent, latent, rows)


def plan_of(rows, latent, **options):
    config = read_classifier(GPClassifier(**options).get_params(deep=False))
    return complete(config, size(rows, latent), 100).plan


@pytest.mark.parametrize(
    ("rows", "latent", "optimizer"),
    [(1000, 1, "lbfgs"), (1001, 1, "adam"), (6000, 3, "lbfgs"), (6001, 3, "adam"), (1001, 6, "adam")],
)
def test_small_tables_are_trained_by_lbfgs_on_all_rows(rows, latent, optimizer):
    plan = plan_of(rows, latent, effort="fast")
    assert plan.optimizer == optimizer
    assert (plan.batch_size is None) == (optimizer == "lbfgs")


@pytest.mark.parametrize(
    ("rows", "ensemble", "optimizer"), [(6000, "auto", "lbfgs"), (6001, "auto", "adam"), (1001, None, "adam")]
)
def test_two_classes_are_trained_by_lbfgs_where_trees_are_pooled(rows, ensemble, optimizer):
    assert plan_of(rows, 1, ensemble=ensemble).optimizer == optimizer


def test_a_hurried_model_trains_on_only_where_it_is_far_from_sharp_and_trees_hardly_count():
    hurried = plan_of(3000, 6)
    assert policy.trains_on(hurried, 1.7, 0.05)
    assert not policy.trains_on(hurried, 1.5, 0.0)
    assert not policy.trains_on(hurried, 1.7, 0.2)
    assert not policy.trains_on(plan_of(2000, 6), 1.7, 0.0)


def test_a_chosen_batch_size_is_kept():
    config = read_classifier(GPClassifier(batch_size=200).get_params(deep=False))
    options = complete(config, size(2000, 3), 100).plan
    assert (options.optimizer, options.batch_size) == ("adam", 200)


@pytest.mark.parametrize(
    ("options", "rows", "latent", "batch"),
    [
        ({}, 2000, 6, 166),
        ({}, 6001, 6, 1000),
        ({"effort": "best", "ensemble": None}, 2000, 6, 166),
        ({"effort": "balanced", "ensemble": None}, 2000, 6, 166),
        ({"method": "ep"}, 2000, 6, 333),
        ({"learning_rate": 0.03}, 2000, 6, 333),
    ],
)
def test_quick_fits_of_five_to_ten_classes_take_small_batches(options, rows, latent, batch):
    found = plan_of(rows, latent, **({"effort": "fast"} | options))
    assert found.batch_size == batch
    assert found.rate == (0.08 if batch == 166 else 0.03)
    steps = found.max_epochs * rows / batch
    assert (steps < 400) == (found.rate == 0.08)


@pytest.mark.parametrize(
    ("effort", "rows", "latent", "points"),
    [
        ("fast", 3000, 30, 100),
        ("fast", 3000, 100, 24),
        ("balanced", 3000, 100, 40),
        ("best", 3000, 100, 60),
        ("fast", 100_000, 100, 63),
        ("balanced", 100_000, 100, 100),
        ("fast", 100_000, 1000, 20),
        ("balanced", 2000, 12, 134),
        ("balanced", 4360, 12, 163),
        ("balanced", 4360, 16, 198),
        ("balanced", 6001, 12, 232),
    ],
)
def test_many_classes_have_points_by_the_rows_per_class(effort, rows, latent, points):
    """From 31 classes on, and never more than C M² allows. With 5 to 15, middle tables have their own limit."""
    config = read_classifier(GPClassifier(effort=effort, device="cpu").get_params(deep=False))
    assert count_points(config, size(rows, latent)) == points
    assert count_points(replace(config, n_inducing=7), size(rows, latent)) == 7


def test_named_methods_keep_100_points():
    config = read_classifier(GPClassifier("ep").get_params(deep=False))
    assert count_points(config, size(3000, 100)) == 100


@pytest.mark.parametrize(
    ("method", "latent", "batch"), [("auto", 100, 466), ("auto", 30, 1000), ("ep", 100, 1000)]
)
def test_many_classes_have_smaller_batches_and_larger_steps(method, latent, batch):
    given = GPClassifier(method, effort="best").get_params(deep=False)
    options = complete(read_classifier(given), size(7000, latent), 20).plan
    assert options.batch_size == batch
    assert options.rate == (0.06 if batch == 466 else 0.03)
    assert not options.anneal


@pytest.mark.parametrize(
    ("method", "rows", "latent", "store"),
    [("auto", 60_000, 1000, "own"), ("auto", 100_000, 1000, "tied"), ("auto", 10**8, 10, "own")],
)
def test_sites_of_very_many_rows_and_classes_are_tied(method, rows, latent, store):
    config = read_classifier(GPClassifier(method).get_params(deep=False))
    assert complete(config, size(rows, latent), 20).method.site_store == store


@pytest.mark.parametrize(
    ("given", "rows", "latent", "device"),
    [
        ({}, 150, 3, "cpu"),
        ({}, 1000, 3, "cpu"),
        ({}, 1000, 1, "cpu"),
        ({}, 1500, 3, "cuda"),
        ({}, 1001, 1, "cuda"),
        ({}, 60_000, 10, "cuda"),
        ({"n_inducing": 300}, 400, 3, "cuda"),
        ({"n_inducing": 0.1}, 400, 3, "cpu"),
        ({"inducing": None}, 400, 3, "cuda"),
        ({"device": "cuda"}, 150, 3, "cuda"),
    ],
)
def test_a_small_table_stays_on_the_cpu(given, rows, latent, device):
    """device="auto" takes a GPU where the fit is long enough; a device with a name is kept."""
    config = read_classifier(GPClassifier(**{**given, "device": "cpu"}).get_params(deep=False))
    arguments = config.arguments | {"device": given.get("device", "auto")}
    on_gpu = replace(config, device=torch.device("cuda"), arguments=arguments)
    assert choose_device(on_gpu, size(rows, latent)).device.type == device


def test_auto_is_the_cpu_without_a_gpu():
    config = read_classifier(GPClassifier(device="cpu").get_params(deep=False))
    assert choose_device(config, size(10**6, 10)) is config


@pytest.mark.parametrize(
    ("effort", "latent", "optimizer"),
    [("balanced", 6, "lbfgs"), ("balanced", 10, "adam"), ("fast", 6, "adam"), ("best", 6, "lbfgs")],
)
def test_five_to_eight_classes_take_lbfgs_up_to_2000_rows_where_trees_are_pooled(effort, latent, optimizer):
    assert plan_of(2000, latent, effort=effort).optimizer == optimizer
    assert plan_of(2001, latent, effort=effort).optimizer == "adam"


@pytest.mark.parametrize(("latent", "epochs"), [(1, 8), (4, 8), (5, 16), (40, 16)])
def test_lbfgs_takes_more_epochs_with_more_classes(latent, epochs):
    config = read_classifier(GPClassifier().get_params(deep=False))
    assert complete(config, size(500, latent), 20).plan.max_epochs == epochs


@pytest.mark.parametrize(
    ("given", "facts", "how", "fits", "members"),
    [
        ({}, {}, "folds", 3, (100, 50)),
        ({"effort": "best"}, {}, "folds", 3, (200, 50)),
        ({"effort": "fast"}, {}, "leave-one-out", 0, (0, 0)),
        ({}, {"in_memory": False}, "leave-one-out", 0, (0, 0)),
        ({}, {"rows": 2001}, "folds", 1, (100, 50)),
        ({}, {"rows": 60_000, "held": "held out"}, "held out", 0, (100, 50)),
        ({}, {"held": "eval_set"}, "eval_set", 0, (100, 50)),
        ({"calibration": None}, {}, "none", 0, (0, 0)),
        ({"calibration": None, "ensemble": "trees"}, {}, "folds", 3, (100, 50)),
        ({"ensemble": None}, {}, "folds", 3, (0, 0)),
        ({"method": "ep"}, {}, "none", 0, (0, 0)),
        ({"method": "ep", "calibration": "temperature"}, {}, "folds", 3, (0, 0)),
        ({}, {"rows": 200_001, "held": "held out"}, "held out", 0, (0, 0)),
    ],
)
def test_the_calibration_depends_on_effort_rows_and_what_is_asked_for(given, facts, how, fits, members):
    config = read_classifier(GPClassifier(**given).get_params(deep=False))
    facts = {"rows": 500, "in_memory": True, "held": None, "alike": True} | facts
    rows = facts.pop("rows")
    plan = policy.plan_calibration(config, size(rows, 3), **facts)
    assert (plan.how, plan.fits, (plan.trees, plan.rounds)) == (how, fits, members)
    assert policy.holds_out(config, rows) == (facts["held"] == "held out")


def test_training_gets_less_of_the_time_limit_if_more_fits_follow():
    assert policy.share_time(10.0, None, more_follows=True) == 4.0
    assert policy.share_time(10.0, None, more_follows=False) == 8.0
    assert policy.share_time(10.0, 3.0, more_follows=True) == policy.share_time(None, 3.0, True) == 3.0


@pytest.mark.parametrize(("rows", "latent"), [(5001, 1), (1439, 5), (900, 3)])
def test_best_takes_as_many_steps_and_fits_as_the_default(rows, latent):
    """Five whole fits more, of three times the steps, took a minute on 5,001 rows of two classes."""
    steps, fits = [], []
    for effort in ("balanced", "best"):
        config = read_classifier(GPClassifier(effort=effort, device="cpu").get_params(deep=False))
        training = complete(config, size(rows, latent), policy.count_points(config, size(rows, latent))).plan
        steps.append((training.max_epochs, training.batch_size))
        plan = policy.plan_calibration(config, size(rows, latent), in_memory=True, alike=True, held=None)
        fits.append((plan.parts, plan.fits, plan.bootstrap))
        assert plan.relearns == (effort == "best" and rows <= 2000)
    assert steps[0] == steps[1] and fits[0] == fits[1]
