"""`make bench-quick` fails for each ratio that has grown beyond its limit, and only then."""

import json

import numpy as np
import pytest

from support import load_script

quick = load_script("benchmarks/quick.py")
STORED = json.loads(quick.STORED.read_text(encoding="utf-8"))


def test_each_table_has_stored_ratios():
    assert list(STORED) == list(quick.TABLES) and len(STORED) == 5
    for ratios in STORED.values():
        assert list(ratios) == ["seconds", "nll"]
        assert all(np.isfinite(ratio) and ratio > 0 for ratio in ratios.values())


def test_the_log_loss_is_below_that_of_boosting_on_each_table():
    assert all(ratios["nll"] < 1 for ratios in STORED.values())


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.29])
def test_ratios_within_the_limit_pass(factor):
    found = {
        name: {what: factor * ratio for what, ratio in ratios.items()}
        for name, ratios in STORED.items()
    }
    assert quick.find_worse(found, STORED) == []


@pytest.mark.parametrize("what", ["seconds", "nll"])
def test_one_ratio_beyond_the_limit_is_named(what):
    found = json.loads(json.dumps(STORED))
    found["moons"][what] *= 1.31
    (line,) = quick.find_worse(found, STORED)
    assert "moons" in line and what in line
