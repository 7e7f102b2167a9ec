"""Costs and decisions: closed forms, brute force, and what is refused."""

import numpy as np
import pytest

from cavity import BadOption, Costs
from cavity.prediction.decisions import choose, label_actions

CLASSES = np.array(["a", "b", "c"])
PAIR = np.array(["default", "paid"])


def draw(C=3, n=200):
    return np.random.default_rng(0).dirichlet(np.ones(C), n)


def test_costs_of_one_decide_for_the_most_probable_class():
    P = draw()
    found = choose(P, Costs(other=1).matrix(CLASSES))
    np.testing.assert_array_equal(found.action, P.argmax(1))
    np.testing.assert_allclose(found.cost, 1 - P.max(1))
    top = np.sort(P, 1)
    np.testing.assert_allclose(found.margin, top[:, -1] - top[:, -2])


def test_decisions_are_those_of_brute_force():
    errors = {"a": {"b": 3, "c": 0.5}, "c": {"a": 7}}
    costs = Costs(errors, other=2, refuse=0.9)
    cost = {
        ("a", "b"): 3, ("a", "c"): 0.5, ("b", "a"): 2,
        ("b", "c"): 2, ("c", "a"): 7, ("c", "b"): 2,
    }  # fmt: skip
    for p in draw():
        each = {
            d: sum(
                p[k] * cost.get((t, d), 0) for k, t in enumerate(CLASSES)
            )
            for d in CLASSES
        }  # fmt: skip
        each[None] = 0.9
        first, second = sorted(each.values())[:2]
        found = choose(p[None], costs.matrix(CLASSES))
        (action,) = label_actions(found.action, CLASSES, costs.refuses)
        assert each[action] == first
        assert found.cost[0] == pytest.approx(first)
        assert found.margin[0] == pytest.approx(second - first)


@pytest.mark.parametrize("refuse", [None, 0.3, 0.85, 0.95, 5, -0.5])
@pytest.mark.parametrize("positive", PAIR)
def test_thresholds_are_where_decisions_change(positive, refuse):
    """Also with gains: a paid loan earns .4 if it is given."""
    costs = [
        Costs(positive=positive, false_positive=1, false_negative=10, refuse=refuse),
        Costs(
            {"default": {"paid": 10}, "paid": {"default": 0.1, "paid": -0.4}},
            refuse=refuse,
        ),
    ]
    for each in costs:
        label, low, high = each.threshold(PAIR)
        p = np.linspace(0, 1, 4001)
        P = np.column_stack([p, 1 - p] if label == "default" else [1 - p, p])
        action = choose(P, each.matrix(PAIR)).action
        action = label_actions(action, PAIR, each.refuses)
        clear = (np.abs(p - low) > 1e-6) & (np.abs(p - high) > 1e-6)
        other = PAIR[PAIR != label][0]
        expected = np.where(p < low, other, np.where(p > high, label, None))
        np.testing.assert_array_equal(action[clear], expected[clear])
        assert 0 <= low <= high <= 1


def test_both_ways_to_give_two_costs_agree():
    pair = Costs(positive="default", false_positive=1, false_negative=10)
    named = Costs({"paid": {"default": 1}, "default": {"paid": 10}})
    np.testing.assert_array_equal(pair.matrix(PAIR), named.matrix(PAIR))
    numbers = Costs(positive=1, false_positive=1, false_negative=4)
    assert numbers.threshold([0, 1]).high == pytest.approx(0.2)
    assert Costs({"0": {"1": 1}, "1": {"0": 4}}).threshold([0, 1]).high == 0.2


@pytest.mark.parametrize(
    "given, word",
    [
        ({}, "errors="),
        ({"false_positive": 1}, "positive"),
        ({"positive": "a", "false_positive": 1, "false_negative": 2, "other": 1}, "twice"),
        ({"errors": {"a": {"b": 1}}}, "other="),
        ({"errors": {"z": {"a": 1}}, "other": 1}, "'z'"),
        ({"errors": {"a": {"b": np.inf}}, "other": 1}, "finite"),
        ({"errors": {"a": {"b": "x"}}, "other": 1}, "finite"),
        ({"errors": {"a": {"a": 5}}, "other": 1}, "swapped"),
        ({"other": 0}, "no error"),
        ({"other": 1, "refuse": True}, "refuse"),
        ({"positive": "a", "false_positive": 1, "false_negative": 2}, "two classes"),
    ],
)  # fmt: skip
def test_costs_that_make_no_sense_are_refused(given, word):
    with pytest.raises(BadOption, match=word):
        Costs(**given).matrix(CLASSES)


def test_thresholds_are_for_two_classes():
    with pytest.raises(BadOption, match="3"):
        Costs(other=1).threshold(CLASSES)
