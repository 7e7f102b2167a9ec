"""Tables that once took a minute of CPU: many classes of two rows each, one row of a class among thousands, rows of no pattern."""

import time

import numpy as np
import pytest

from cavity import GPClassifier

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]
MOST_SECONDS = 15  # of CPU, on one core


def two_rows_of_300_classes():
    rng, y = np.random.default_rng(0), np.arange(600) % 300
    return 3 * rng.normal(size=(300, 4))[y] + rng.normal(size=(600, 4)), y


def one_row_among_5000():
    rng = np.random.default_rng(0)
    return rng.normal(size=(5001, 3)), np.arange(5001) == 0


@pytest.mark.parametrize(
    "make, effort",
    [
        (two_rows_of_300_classes, "fast"),
        (two_rows_of_300_classes, "balanced"),
        (one_row_among_5000, "balanced"),
        (one_row_among_5000, "best"),
    ],
)
def test_a_corner_takes_seconds(make, effort):
    X, y = make()
    begun = time.process_time()
    clf = GPClassifier(effort=effort, random_state=0, device="cpu").fit(X, y)
    seconds = time.process_time() - begun
    assert np.isfinite(clf.predict_log_proba(X[:50])).all()
    assert seconds < MOST_SECONDS, f"{seconds:.1f} CPU seconds"
