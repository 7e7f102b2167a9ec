"""How method="auto" trains: L-BFGS on small tables, mini-batches on larger ones, and what the user chose in any case."""

import pytest

from cavity import GPClassifier
from cavity.config import read_classifier
from cavity.config.options import complete


@pytest.mark.parametrize(
    ("rows", "latent", "optimizer"),
    [(1000, 1, "lbfgs"), (1001, 1, "adam"), (5000, 3, "lbfgs"), (5001, 3, "adam"), (1001, 6, "adam")],
)
def test_small_tables_are_trained_by_lbfgs_on_all_rows(rows, latent, optimizer):
    options = complete(read_classifier(GPClassifier().get_params(deep=False)), rows, latent, 100)
    assert options.optimizer == optimizer
    assert (options.batch_size is None) == (optimizer == "lbfgs")


def test_a_chosen_batch_size_is_kept():
    config = read_classifier(GPClassifier(batch_size=200).get_params(deep=False))
    options = complete(config, 2000, 3, 100)
    assert (options.optimizer, options.batch_size) == ("adam", 200)


@pytest.mark.parametrize(
    ("options", "rows", "latent", "batch"),
    [
        ({}, 2000, 6, 166),
        ({}, 2001, 6, 333),
        ({}, 2000, 1, 333),
        ({}, 2000, 11, 333),
        ({"effort": "balanced"}, 2000, 6, 333),
        ({"method": "ep"}, 2000, 6, 333),
        ({"learning_rate": 0.03}, 2000, 6, 333),
    ],
)
def test_fast_fits_of_five_to_ten_classes_take_small_batches(options, rows, latent, batch):
    given = GPClassifier(**({"effort": "fast"} | options)).get_params(deep=False)
    found = complete(read_classifier(given), rows, latent, 100)
    assert found.batch_size == batch
    assert found.rate == (0.08 if batch == 166 else 0.03)
    steps = found.max_epochs * rows / batch
    assert (steps < 400) == (found.rate == 0.08)
