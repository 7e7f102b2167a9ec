"""How an estimator trains, as one object: `GPClassifier(training=Training(tol=1e-3))`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cavity.common.params import Parameters
from cavity.errors import BadOption

if TYPE_CHECKING:
    import torch

Learnt = Literal["kernel", "noise", "inducing", "epsilon"]
OF_CLASSIFIER = (
    "share",
    "schedule",
    "validation_fraction",
    "patience",
)  # GPRegressor has no use for them


@dataclass(kw_only=True, eq=False, repr=False)
class Training(Parameters):
    """How a GPClassifier or GPRegressor trains.

    It says what is learnt, by which steps, when training stops and where checkpoints
    go. Grid searches reach its arguments as `training__tol`. Most fits need none of them.

    Parameters
    ----------
    learn : subset of ("kernel", "noise", "inducing", "epsilon")
        What is learnt. () keeps all values and only computes the posterior.
        "epsilon" is the share of random labels of methods "rep" and "vi".
    noise : float or array of shape (C,)
        Variance of the noise on each latent value, where training starts. GPRegressor:
        variance of the noise on y, in units of y's variance if `normalize_y`; 0
        ("exact", "fitc"): y is f itself.
    share : {"auto", None, "prior", "kernel", "inducing", "both"}
        What classes have in common. "prior": each has its own hyper-parameters, drawn
        towards those of other classes and features. "kernel" also shares the noise.
        "auto": "prior" with method="auto", else None. Only for GPClassifier.
    optimizer : {"auto", "adam", "sign", "lbfgs", "newton", "gradient", "sag"}
        "auto" is L-BFGS on small tables, and Adam on mini-batches. A named method that
        is given a part of the papers' schedule (`learning_rate`, `batch_size`,
        `schedule`, `tol`, or `max_epochs` up to 500) takes their sign rule on full
        batches.
        "newton" is projected Newton, for few hyper-parameters. "gradient" (full
        batches) and "sag" (stochastic average gradient, on batches that keep their
        order) are for `SVGP(q_update="gradient")`. These are only for GPRegressor.
    schedule : {"inner-approx", "inner-exact", "outer"}
        How site sweeps and hyper-parameter steps alternate. Only for GPClassifier.
    damping : float in (0, 1] or None
        None: 0.5 on full batches ("gfitc" 0.8, "vi" 0.2), 1 on mini-batches.
    tol : float
        Training stops when the objective per row changed by less than this in the last
        fifth of the epochs (at least ten).
    max_seconds : float or None
        Time limit of training. `fit(X, y, time_limit=...)` limits the whole fit.
    validation_fraction : float or None
        Share of each class that is held out for early stopping; or give `fit(...,
        eval_set=)`. Only for GPClassifier.
    patience : int
        Epochs without a smaller validation NLL before training stops. Only for
        GPClassifier.
    jitter : float or None
        Relative to the kernel's variance. None: 1e-6, in float32 1e-4; for regression
        by "exact" 1e-8.
    dtype : {"float64", "float32"}
        Type of rows and projections; factorisations are in float64.
    checkpoint : None or path
        File that the run is written to every `checkpoint_every` seconds and at the end
        of training.
    checkpoint_every : float
        Seconds between checkpoints.
    resume : bool
        Continue from `checkpoint` if that file exists: on the CPU to the same bits as
        an uninterrupted run, except L-BFGS.

    Examples
    --------
    >>> from cavity import GPClassifier, Training
    >>> clf = GPClassifier(training=Training(tol=1e-3, learn=("kernel", "noise")))
    >>> clf.set_params(training__max_seconds=60.0).training
    Training(learn=('kernel', 'noise'), tol=0.001, max_seconds=60.0)
    """

    learn: Learnt | Sequence[Learnt] = ("kernel", "noise", "inducing")
    noise: float | Sequence[float] | NDArray[Any] = 0.1
    share: Literal["auto", "prior", "kernel", "inducing", "both"] | None = "auto"
    optimizer: Literal["auto", "adam", "sign", "lbfgs", "newton", "gradient", "sag"] = (
        "auto"
    )
    schedule: Literal["inner-approx", "inner-exact", "outer"] = "inner-approx"
    damping: float | None = None
    tol: float = 1e-4
    max_seconds: float | None = None
    validation_fraction: float | None = None
    patience: int = 10
    jitter: float | None = None
    dtype: Literal["float64", "float32"] | torch.dtype = "float64"
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = 60.0
    resume: bool = False

    def changed(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults.

        Returns
        -------
        dict
            Argument values by name.
        """
        usual = Training().get_params(deep=False)
        return {
            k: v
            for k, v in self.get_params(deep=False).items()
            if not _is_same(v, usual[k])
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Training):
            return NotImplemented

        pairs = zip(
            self.get_params(deep=False).values(),
            other.get_params(deep=False).values(),
            strict=True,
        )
        return all(_is_same(a, b) for a, b in pairs)

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self.changed().items())
        return f"Training({', '.join(given)})"


def _is_same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and np.array_equal(
        np.asarray(a, object), np.asarray(b, object)
    )


def read_training(value: Any) -> Training:
    """Return the argument `training`; None stands for the defaults."""
    if value is None:
        return Training()
    if not isinstance(value, Training):
        raise BadOption(
            f"training={value!r:.60} is not a cavity.Training, such as "
            f"Training(tol=1e-3)."
        )

    return value


def flatten(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimator's arguments with those of `training` beside them, as files
    and the command line have them.
    """
    given = dict(arguments)
    return read_training(given.pop("training", None)).get_params(deep=False) | given


def nest(**arguments: Any) -> dict[str, Any]:
    """Return an estimator's arguments with those of `training` in it: undo `flatten`."""
    given = flatten(arguments)
    training = Training(
        **{name: given.pop(name) for name in Training.parameter_names()}
    )
    return given | {"training": training if training.changed() else None}


def check_regression(training: Training) -> None:
    name = next((name for name in training.changed() if name in OF_CLASSIFIER), None)
    if name is not None:
        raise BadOption(
            f"training has {name}=, which only GPClassifier uses: leave it out."
        )
