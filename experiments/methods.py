"""Names of methods in the result rows, and the classifiers that they stand for."""

from __future__ import annotations

from typing import Any, NamedTuple


class Method(NamedTuple):
    """A method of GPClassifier with its options."""

    name: str  # method= of GPClassifier
    options: dict[str, Any] = {}  # noqa: RUF012  options that belong to the method
    arguments: dict[str, Any] = {}  # noqa: RUF012  further arguments of GPClassifier


TEMPERATURE = {"calibration": "temperature"}
POOLED, SLOW = {"share": "prior"}, {"learning_rate": 1e-3}

# The papers step q by its gradient; on full batches with L-BFGS.
ROBUST = {"likelihood": "robust-max"}
PAPERS_VI = ROBUST | {"q_update": "gradient"}

METHODS: dict[str, Method] = {
    "auto": Method(
        "auto", {}, {"effort": "fast", "calibration": None}
    ),  # rows older than the calibration
    "fast": Method("auto", {}, {"effort": "fast"}),
    "balanced": Method("auto"),
    "ep": Method("ep"),
    "ep_temperature": Method("ep", {}, TEMPERATURE),
    "ep_long": Method("ep"),
    "ep_prior": Method("ep", {}, POOLED),
    "ep_rate": Method("ep", {}, SLOW),
    "ep_outer": Method("ep", {}, {"schedule": "outer"}),
    "inner-approx": Method("ep", {}, {"schedule": "inner-approx"}),
    "inner-exact": Method("ep", {}, {"schedule": "inner-exact"}),
    "outer": Method("ep", {}, {"schedule": "outer"}),
    "sep": Method("sep"),
    "sep_long": Method("sep"),
    "sep_small": Method("sep"),
    "sep_prior": Method("sep", {}, POOLED),
    "sep_prior_long": Method("sep", {}, POOLED),
    "sep_prior_small": Method("sep", {}, POOLED),
    "sep_rate": Method("sep", {}, SLOW),
    "rep": Method("rep"),
    "rep_tied": Method("rep", {"sites": "tied"}),
    "rep_learnt": Method(
        "rep", {}, {"learn": ("kernel", "noise", "inducing", "epsilon")}
    ),
    "pep": Method("pep"),
    "gfitc": Method(
        "gfitc", {}, {"tol": 1e-4}
    ),  # its epochs are long, and L-BFGS has converged by then
    "vi": Method("vi", PAPERS_VI),
    "vi_rate": Method("vi", PAPERS_VI, SLOW),
    "vi_softmax": Method("vi", {"likelihood": "softmax", "q_update": "gradient"}),
    "vi_natural": Method("vi", ROBUST),
    "vi_temperature": Method("vi", ROBUST, TEMPERATURE),
    "vi_long": Method("vi", ROBUST),
    "vi_longer": Method("vi", ROBUST),
    "vi_prior": Method("vi", ROBUST, POOLED),
    "vi_prior_long": Method("vi", ROBUST, POOLED),
    "vi_large": Method("vi", ROBUST, POOLED),
}

TITLES = {
    "auto": "auto (one fit, no calibration)",
    "balanced": "auto (as shipped)",
    "ep": "EP",
    "sep": "SEP",
    "ep_outer": "EP-outer",
    "rep": "REP",
    "pep": "power EP",
    "gfitc": "GFITC",
    "vi": "VI",
    "vi_natural": "VI, natural gradient",
    "vi_softmax": "VI, softmax",
    "ep_long": "EP, long, batches of 1,000",
    "sep_long": "SEP, long, batches of 1,000",
    "vi_long": "VI, natural gradient, long, batches of 1,000",
    "ep_prior": 'EP, share="prior"',
    "sep_prior": 'SEP, share="prior", 500 passes in batches of 1,000',
    "sep_prior_long": 'SEP, share="prior", 1,500 passes in batches of 1,000',
    "sep_prior_small": 'SEP, share="prior", 100 passes in batches of 200',
    "sep_small": "SEP, 150 passes in batches of 200",
    "vi_prior": 'VI, natural gradient, share="prior", 300 passes in batches of 1,000',
    "vi_prior_long": 'VI, natural gradient, share="prior", 700 passes in batches of '
    "1,000",
    "vi_large": 'VI, natural gradient, share="prior"',
    "vi_longer": "VI, natural gradient, 500 passes in batches of 1,000",
    "vi_rate": "VI, Adam at 0.001",
    "ep_rate": "EP, Adam at 0.001",
    "sep_rate": "SEP, Adam at 0.001",
    "logistic": "logistic regression",
}


def make_classifier(method: str, **arguments: Any) -> Any:
    """An unfitted GPClassifier for a method's name.

    The only place where names become arguments of the estimator.
    """
    from cavity import GPClassifier
    from cavity.fitting.options import nest
    from cavity.fitting.options.library import method_names

    name, options, own = METHODS[method]
    chosen: Any = method_names("classification")[name](**options) if options else name
    return GPClassifier(chosen, **nest(**arguments | own))


def title(method: str) -> str:
    """Name of a method in tables and legends."""
    return TITLES.get(method, method)
