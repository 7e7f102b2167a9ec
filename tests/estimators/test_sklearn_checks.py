"""scikit-learn's own checks of an estimator, whole.

Weights are repetitions for every model without a pool of trees.
"""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from cavity.kernels import Linear, Matern52
from support import ALONE, classifier

SHORT = {"n_inducing": 10, "max_epochs": 5, "tol": 0.01}
SHORTEST = {"n_inducing": 5, "max_epochs": 2, "tol": 0.1}
METHODS = [
    {"method": "rep"},
    {"method": "pep"},
    {"method": "gfitc"},
    {"method": "vi"},
    {"method": "laplace"},
]
SWEEP_FIRST = ("gfitc", "laplace")
VARIANTS = [
    {"method": "rep", "sites": "tied"},
    {"method": "rep", "learn": ("kernel", "noise", "inducing", "epsilon")},
    {"method": "vi", "likelihood": "softmax"},
    {"method": "laplace", "inducing": None},
]


def expect_failures(estimator):
    """Trees draw rows and thresholds at random, as scikit-learn's own forests do: there
    weights are not repetitions.
    """
    learns = estimator.training is None or bool(estimator.training.learn)
    pools = estimator.method == "auto" and estimator.effort != "fast" and learns
    reason = "trees of the pool draw rows at random"
    kinds = ("dense", "sparse") if pools else ()
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}


@pytest.mark.usefixtures("few_trees")
@parametrize_with_checks([classifier(**SHORTEST)])
def test_checks_of_the_default(estimator, check):
    """With a pool where predictions of a model are checked; elsewhere without one, and
    in slow tests always with it.
    """
    if check.func.__name__ not in (
        "check_classifiers_train",
        "check_methods_sample_order_invariance",
    ):
        estimator.set_params(**ALONE)
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        classifier(),
        classifier(effort="fast"),
        classifier("sep"),
        classifier("sep", **SHORT),
        *(classifier(**method) for method in METHODS),
        *(classifier(**method, **SHORTEST) for method in (*METHODS, *VARIANTS)),
        *(classifier(method, learn=(), **SHORTEST) for method in SWEEP_FIRST),
        classifier(
            learn=(), noise=0.5, n_inducing=0.2, inducing="kmeans", max_epochs=30
        ),
        classifier(share="both", inducing="random", **SHORT),
        classifier(schedule="inner-exact", kernel=Matern52() + Linear(), **SHORT),
        classifier(schedule="outer", inducing="per-class", **SHORT),
        classifier(optimizer="lbfgs", **SHORT),
        classifier(optimizer="adam", **SHORT),
    ],
    ids=repr,
)
def test_checks_of_every_method(estimator):
    check_estimator(estimator, expected_failed_checks=expect_failures(estimator))
