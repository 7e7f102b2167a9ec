"""The seconds of a fit."""

import math
import time

import pytest

from cavity.common.ranks import Local
from cavity.fitting.clock import USED, Clock


def clock(limit, spent=0.0):
    return Clock(time.perf_counter() - spent, limit, Local())


def test_without_a_limit_there_is_always_time():
    free = clock(None)
    assert free.left() == math.inf and free.has(1e9)
    assert free.share(0.5)() == math.inf
    assert free.end_of_share(0.5, None) is None and free.end_of_share(0.5, 7) == 7


def test_a_part_of_the_limit_is_left_for_what_follows():
    some = clock(100.0, spent=30.0)
    assert some.left() == pytest.approx(100 * USED - 30, abs=1)
    assert some.has(50) and not some.has(70)


def test_a_share_is_of_what_is_left_now():
    some = clock(100.0, spent=30.0)
    half = (100 * USED - 30) / 2
    assert some.share(0.5)() == pytest.approx(half, abs=1)
    assert some.end_of_share(0.5, None) == pytest.approx(30 + half, abs=1)
    assert some.end_of_share(0.5, 10) == 10


def test_a_share_of_no_time_ends_at_once():
    late = clock(10.0, spent=60.0)
    assert late.end_of_share(0.5, None) == pytest.approx(60, abs=1)
    assert not late.has(0.0)
