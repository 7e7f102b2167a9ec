"""What a hyper-parameter may do in training: stay, keep within bounds, follow a prior.

A parameter of a kernel or likelihood takes a number, where it starts, or one of these
objects. Priors are densities of the parameter itself, in the user's units.
"""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.params import Parameters, brief
from cavity.common.registry import Registry
from cavity.common.types import Floats
from cavity.errors import BadOption

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
# a start may be outside its bounds by this share, which single precision rounds away
ROUNDING = 1e-5

SETTINGS: Registry[Setting] = Registry("parameter")


class Setting(Parameters):
    """Base class of what stands in place of a parameter's start."""

    learnt: ClassVar[bool] = True
    # values that have to be positive and finite
    positive: ClassVar[tuple[str, ...]] = ()

    start: Any = None

    @property
    def density(self) -> Density | None:
        """The prior; None if the parameter has only the model's weak one."""
        return None

    @property
    def limits(self) -> tuple[Any, Any]:
        """Lower and upper bound."""
        return 0.0, math.inf

    def usual_start(self) -> Any:
        """Return where training starts if no start is given; None: the kernel says."""
        return None

    def find_start(self, default: Any) -> Any:
        """Return where training starts, within the bounds.

        Parameters
        ----------
        default : scalar, array or None
            Where it starts if the setting leaves that open.

        Returns
        -------
        ndarray or None
            The start; None if nothing says it.
        """
        value = self.start
        if value is None:
            value = self.usual_start()
        if value is None:
            value = default
        if value is None:
            return None

        return np.clip(np.asarray(value, dtype=np.float64), *self.limits)

    def with_start(self, value: Any) -> Self:
        """Return a copy that starts at a learnt value, within the bounds.

        Parameters
        ----------
        value : ndarray
            The learnt value.

        Returns
        -------
        Setting
            The copy; a fixed value returns itself.
        """
        found = copy.copy(self)
        found.start = np.clip(value, *self.limits)
        return found

    def check(self, name: str) -> None:
        """Raise BadOption if a number is not valid.

        Parameters
        ----------
        name : str
            Name of the hyper-parameter, for the message.
        """
        for each in self.positive:
            values = np.asarray(getattr(self, each), dtype=np.float64)
            if not (np.isfinite(values).all() and (values > 0).all()):
                raise BadOption(
                    f"{each} of {name}={self!r} must be positive and finite."
                )

        if self.start is not None:
            given = np.asarray(self.start, dtype=np.float64)
            low, high = self.limits
            above = given >= np.asarray(low) * (1 - ROUNDING)
            below = given <= np.asarray(high) * (1 + ROUNDING)
            if not (above & below).all():
                raise BadOption(
                    f"{name}={self!r} starts outside its bounds: move start=, or "
                    "leave it out."
                )

    def pick(self, columns: Any, size: int) -> Self:
        """Return the same for some columns, where there is a value for each.

        Parameters
        ----------
        columns : slice or array of int
            The columns.
        size : int
            Number of all columns.

        Returns
        -------
        Setting
            The copy for these columns.
        """
        found = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Setting):
                setattr(found, name, value.pick(columns, size))
            elif np.ndim(value) and np.shape(value)[-1] == size:
                setattr(found, name, np.asarray(value)[..., columns])
        return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        value = self.find_start(math.nan)
        return np.array(value, dtype=dtype)

    def __repr__(self) -> str:
        shown = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name)
            if parameter.default is inspect.Parameter.empty:
                shown.append(brief(value))
            elif value is not None:
                shown.append(f"{name}={brief(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


@SETTINGS.register
class Fixed(Setting):
    """A value that training leaves as it is.

    Parameters
    ----------
    value : scalar or array
        The value, with a shape that the parameter takes.

    Examples
    --------
    >>> from cavity.kernels import RBF, Fixed
    >>> RBF(lengthscale=Fixed(2.0))
    RBF(lengthscale=Fixed(2.0), variance=1.0)
    """

    learnt = False

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def start(self) -> Any:
        """The value."""
        return self.value

    def with_start(self, value: Any) -> Self:
        return self


class Density(Setting):
    """Base class of priors: densities of a positive number."""

    @property
    def density(self) -> Density:
        return self

    @property
    def numbers(self) -> tuple[Any, Any]:
        """The two numbers of the density."""
        raise NotImplementedError

    @staticmethod
    def log_density(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return the log density of x, given log x as a tensor."""
        raise NotImplementedError

    @staticmethod
    def slope(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return its derivative in log x."""
        raise NotImplementedError


class Located(Density):
    """Base class of priors with a location and a scale."""

    positive = ("scale",)

    def __init__(self, loc: Any, scale: Any, start: Any = None) -> None:
        self.loc = loc
        self.scale = scale
        self.start = start

    @property
    def numbers(self) -> tuple[Any, Any]:
        return self.loc, self.scale


@SETTINGS.register
class LogNormal(Located):
    """A prior whose logarithm is normal, log x ~ N(loc, scale²).

    Parameters
    ----------
    loc : scalar or array
        Mean of log x: the median of x is exp(loc).
    scale : scalar or array
        Standard deviation of log x.
    start : scalar, array or None
        Where training starts. None: at the median.

    Examples
    --------
    >>> from cavity.kernels import RBF, LogNormal
    >>> RBF(lengthscale=LogNormal(0.0, 0.5))
    RBF(lengthscale=LogNormal(0.0, 0.5), variance=1.0)
    """

    def usual_start(self) -> Any:
        return np.exp(self.loc)

    @staticmethod
    def log_density(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        z = (log_x - first) / second
        return -0.5 * z * z - second.log() - LOG_ROOT_2PI - log_x

    @staticmethod
    def slope(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return (first - log_x) / (second * second) - 1


@SETTINGS.register
class Normal(Located):
    """A normal prior of a positive number, N(loc, scale²) cut off at 0.

    Parameters
    ----------
    loc : scalar or array
        Mean before the cut.
    scale : scalar or array
        Standard deviation before the cut.
    start : scalar, array or None
        Where training starts. None: at `loc`, or at `scale` if `loc` is not positive.

    Examples
    --------
    >>> from cavity.kernels import Constant, Normal
    >>> Constant(Normal(1.0, 0.5))
    Constant(variance=Normal(1.0, 0.5))
    """

    def usual_start(self) -> Any:
        loc = np.asarray(self.loc, dtype=np.float64)
        return np.where(loc > 0, loc, self.scale)

    @staticmethod
    def log_density(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        z = (log_x.exp() - first) / second
        cut = torch.special.log_ndtr(first / second)
        return -0.5 * z * z - second.log() - LOG_ROOT_2PI - cut

    @staticmethod
    def slope(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        x = log_x.exp()
        return x * (first - x) / (second * second)


@SETTINGS.register
class Gamma(Density):
    """A gamma prior, p(x) ∝ x^(concentration − 1) exp(−rate · x).

    Parameters
    ----------
    concentration : scalar or array
        Shape of the density.
    rate : scalar or array
        Inverse scale: the mean is concentration/rate.
    start : scalar, array or None
        Where training starts. None: at the mean.

    Examples
    --------
    >>> from cavity.kernels import Constant, Gamma
    >>> Constant(Gamma(2.0, 1.0))
    Constant(variance=Gamma(2.0, 1.0))
    """

    positive = ("concentration", "rate")

    def __init__(self, concentration: Any, rate: Any, start: Any = None) -> None:
        self.concentration = concentration
        self.rate = rate
        self.start = start

    @property
    def numbers(self) -> tuple[Any, Any]:
        return self.concentration, self.rate

    def usual_start(self) -> Any:
        return np.asarray(self.concentration) / np.asarray(self.rate)

    @staticmethod
    def log_density(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        constant = first * second.log() - first.lgamma()
        return constant + (first - 1) * log_x - second * log_x.exp()

    @staticmethod
    def slope(log_x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return first - 1 - second * log_x.exp()


@SETTINGS.register
class Bounded(Setting):
    """A parameter that training keeps between two bounds.

    Parameters
    ----------
    low, high : scalar or array
        Bounds; `low` may be 0 and `high` infinite.
    start : scalar, array or None
        Where training starts. None: where it starts without bounds, or at the nearest
        bound.
    prior : LogNormal, Normal, Gamma or None
        Prior within the bounds. None: the weak one of the model.

    Examples
    --------
    >>> from cavity.kernels import RBF, Bounded, Gamma
    >>> RBF(lengthscale=Bounded(0.1, 10.0), variance=Bounded(0, 4, prior=Gamma(2, 1)))
    RBF(lengthscale=Bounded(0.1, 10.0), variance=Bounded(0, 4, prior=Gamma(2, 1)))
    """

    def __init__(
        self, low: Any, high: Any, start: Any = None, prior: Density | None = None
    ) -> None:
        self.low = low
        self.high = high
        self.start = start
        self.prior = prior

    @property
    def density(self) -> Density | None:
        return self.prior

    @property
    def limits(self) -> tuple[Any, Any]:
        return self.low, self.high

    def usual_start(self) -> Any:
        return None if self.prior is None else self.prior.find_start(None)

    def check(self, name: str) -> None:
        low = np.asarray(self.low, dtype=np.float64)
        high = np.asarray(self.high, dtype=np.float64)
        if not ((low >= 0) & (low < high)).all():
            raise BadOption(
                f"{name}={self!r} needs bounds with 0 ≤ low < high, or Fixed(value)."
            )
        if self.prior is not None:
            if not isinstance(self.prior, Density):
                raise BadOption(
                    f"{name}={self!r} has a prior that is none of LogNormal, Normal "
                    "and Gamma."
                )
            self.prior.check(name)
        super().check(name)


class Placed(NamedTuple):
    """A setting, and how θ stands for its parameter x.

    link "log":  log x = θ + shift        link "logit":  x = σ(θ)
    """

    setting: Setting
    shift: Any = 0.0  # log of the unit in which θ counts, which broadcasts like θ
    link: str = "log"

    def limits(self, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Return the bounds of θ."""
        found = []
        for limit in self.setting.limits:
            x = np.asarray(limit, dtype=np.float64)
            with np.errstate(divide="ignore"):
                theta = np.log(x) - self.shift
                if self.link == "logit":
                    theta = np.log(x) - np.log1p(-np.minimum(x, 1.0))
            found.append(np.broadcast_to(theta, shape).copy())

        low, high = found
        return low, high


def is_learnt(given: Any) -> bool:
    """Return whether training may change an argument."""
    return not isinstance(given, Setting) or given.learnt


def find_start(given: Any, default: Any = None, name: str = "") -> Any:
    """Return where a parameter starts; a setting is checked."""
    if not isinstance(given, Setting):
        return default if given is None else given

    given.check(name)
    return given.find_start(default)


def keep_setting(given: Any, value: Any) -> Any:
    """Return a learnt value, in the setting that its parameter was given."""
    if isinstance(given, Setting):
        return given.with_start(value)

    return value
