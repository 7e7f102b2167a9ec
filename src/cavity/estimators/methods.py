"""What distinguishes the methods: a likelihood, a way of keeping sites, how much a cavity removes, where sites sit."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from cavity.errors import BadOption


class Method(NamedTuple):
    """A method, as a point in the space that one engine spans."""

    likelihood: str  # pairs (closed form), robust-max, softmax
    sites: str  # own, tied, averaged (natural gradient), free (a mean and a Cholesky factor)
    removal: float  # 1 EP, p power EP, 0 variational
    on_f: bool = False  # sites on f, inducing values marginalised
    at_mode: bool = False  # a cavity is a point: Laplace
    linear: bool = False  # sites are the same wherever they are asked: a Gaussian likelihood
    settles: bool = False  # sites converge before every step of the hyper-parameters
    bound: str = "quadrature"  # of the logistic: E log p itself, or what stands for it

    @property
    def variational(self) -> bool:
        return self.removal == 0

    @property
    def sweeps_first(self) -> bool:
        """Sites converge before every step of the hyper-parameters."""
        return self.on_f or self.settles

    @property
    def latent_noise(self) -> bool:
        """Whether f has a noise of its own; the logistic's and the Gaussian's is in the likelihood."""
        return not (self.at_mode or self.linear)


METHODS = {
    "ep": Method("pairs", "own", 1.0),
    "sep": Method("pairs", "tied", 1.0),
    "rep": Method("robust-max", "own", 1.0),
    "pep": Method("pairs", "own", 0.5),
    "gfitc": Method("pairs", "own", 1.0, on_f=True),
    "vi": Method("robust-max", "averaged", 0.0),
    "laplace": Method("softmax", "own", 1.0, on_f=True, at_mode=True),
}
NAMES = ("auto", *METHODS)

SITES = ("own", "tied")
Q_UPDATES = ("natural", "gradient")
LIKELIHOODS = ("auto", "robust-max", "softmax")
BOUNDS = ("quadrature", "jaakkola", "taylor")
PREDICTIVES = ("quadrature", "probit")

USED_BY = {
    "epsilon": ("rep", "vi"),
    "sites": ("rep",),
    "power": ("pep",),
    "q_update": ("vi",),
    "likelihood": ("vi",),
    "bound": ("vi",),
    "predictive": ("vi", "laplace"),
}


def resolve(estimator: Any, auto: str = "ep") -> Method:
    """The method that an estimator's arguments, already checked one by one, name together."""
    name = auto if estimator.method == "auto" else estimator.method
    _refuse_unused(estimator, name)
    method = METHODS[name]
    if name == "rep":
        return method._replace(sites=estimator.sites)
    if name == "pep":
        return method._replace(removal=float(estimator.power))
    if name == "vi":
        free = estimator.q_update == "gradient"
        softmax = estimator.likelihood == "softmax" or estimator.bound != "quadrature"
        return method._replace(
            sites="free" if free else "averaged",
            likelihood="softmax" if softmax else method.likelihood,
            bound=estimator.bound,
        )
    return method


def _refuse_unused(estimator: Any, name: str) -> None:
    """An option that the method does not use must stand at its default."""
    usual = inspect.signature(type(estimator).__init__).parameters
    for option, users in USED_BY.items():
        if name not in users and getattr(estimator, option) != usual[option].default:
            _unused(f"{option}={getattr(estimator, option)!r}", f"method={name!r}", users)
    if "epsilon" in _names(estimator.learn) and name not in USED_BY["epsilon"]:
        _unused("learn with 'epsilon'", f"method={name!r}", USED_BY["epsilon"])
    if name == "laplace" and not _is_none(estimator.noise, usual["noise"].default):
        raise BadOption(
            f"noise={estimator.noise!r} is not used by method='laplace', whose logistic likelihood has its noise in itself: leave "
            "noise out, or use method='vi' with likelihood='softmax'."
        )
    if name != "vi":
        return
    _refuse_bound(estimator)
    softmax = estimator.likelihood == "softmax" or estimator.bound != "quadrature"
    if estimator.predictive != usual["predictive"].default and not softmax:
        raise BadOption(
            f"predictive={estimator.predictive!r} averages the logistic curve, which likelihood={estimator.likelihood!r} has not: "
            "use likelihood='softmax', or method='laplace'."
        )
    if softmax and ("epsilon" in _names(estimator.learn) or estimator.epsilon != usual["epsilon"].default):
        raise BadOption(
            "likelihood='softmax' has no epsilon: leave epsilon out, or use likelihood='robust-max'."
        )
    if estimator.q_update == "gradient":
        for option in ("damping", "schedule"):
            if getattr(estimator, option) != usual[option].default:
                raise BadOption(
                    f"{option}={getattr(estimator, option)!r} is not used by q_update='gradient', which steps q and the "
                    "hyper-parameters together; it is used by q_update='natural'."
                )


def _refuse_bound(estimator: Any) -> None:
    """A bound belongs to the logistic; Taylor's has no function of q that its steps climb."""
    bound = estimator.bound
    if bound != "quadrature" and estimator.likelihood == "robust-max":
        raise BadOption(
            f"bound={bound!r} is one of the logistic likelihood: leave likelihood out, or use likelihood='softmax'."
        )
    if bound == "taylor" and (estimator.q_update == "gradient" or estimator.optimizer == "lbfgs"):
        what = "q_update='gradient'" if estimator.q_update == "gradient" else "optimizer='lbfgs'"
        raise BadOption(
            f"bound='taylor' moves its expansion with q and has no objective for {what} to climb: use q_update='natural' with "
            "optimizer='adam' or 'sign', or bound='jaakkola'."
        )


def _is_none(noise: Any, default: float) -> bool:
    """Whether `noise` says nothing: the default, or 0."""
    return isinstance(noise, int | float) and noise in (0, default)


def _unused(what: str, where: str, users: tuple[str, ...]) -> None:
    names = " and ".join(f"method={user!r}" for user in users)
    raise BadOption(f"{what} is not used by {where}; it is used by {names}.")


def _names(learn: Any) -> tuple[Any, ...]:
    if learn is None:
        return ()
    return (learn,) if isinstance(learn, str) or not hasattr(learn, "__iter__") else tuple(learn)
