"""The base class of likelihoods.

It has everything that the engine, prediction, model files and ONNX export need.
"""

from __future__ import annotations

import copy
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.namespaces import Array, in_torch
from cavity.common.params import Parameters
from cavity.common.registry import Registry
from cavity.engine.likelihoods.quadrature.information import EntropyParts
from cavity.engine.parameters import Placed
from cavity.errors import BadFile, BadOption


class Latents(NamedTuple):
    """Gaussian marginals of f at the sites of a batch.

    Attributes
    ----------
    mean, var, residual : Tensor
        Means, variances, and the part of the variances that does not come from w, each
        [B S].
    """

    mean: Tensor
    var: Tensor
    residual: Tensor


class Moments(NamedTuple):
    """Log normaliser of a factor, or average of its logarithm, and derivatives.

    Attributes
    ----------
    value : Tensor
        log ∫ φ(f)^e N(f) df per row, or E log φ(f), [B].
    dm, dv, dr : Tensor
        Derivatives in the mean, the variance that comes from w, and the residual
        variance (`dv` for e = 1), each [B S].
    own : Tensor or None
        Derivative in the likelihood's own parameters, flat, [B K].
    """

    value: Tensor
    dm: Tensor
    dv: Tensor
    dr: Tensor
    own: Tensor | None = None


class Likelihood(Parameters):
    """Base class of all likelihoods p(y | f).

    A subclass writes `moments` (for EP) or `average` (for variational inference), or
    both. Everything else has a default, or raises an error that names the method to
    add. `__init__` stores its arguments, each under its own name.

    Attributes
    ----------
    name : str
        Short name for options, such as `"probit"`. Empty: the class name is the only
        name.
    two_classes : bool
        Whether the likelihood is for two classes, which share one latent function.
    bounds : bool
        Whether `average` is a lower bound of E log φ, or equal to it.
    sums_to_one : bool
        Whether φ is a probability of the label: its sum over all labels is 1, even if
        f has a residual.
    linear : bool
        Whether the sites do not depend on q, so that one sweep finds them.
    tempers : bool
        Whether `moments` takes exponents. If not, rows of weight below 1 get whole
        sites, multiplied by the weight.
    n_classes : int or None
        Number of classes; None until `bind`.
    parameters, log_parameters : tuple of torch.nn.Parameter
        What is learnt. Logarithms get the same weak prior as the logarithms of a
        kernel.

    Examples
    --------
    >>> import torch
    >>> from cavity.engine.likelihoods import Likelihood, Moments
    >>> class Step(Likelihood):
    ...     two_classes = True
    ...     tempers = False
    ...
    ...     def moments(self, f, y, exponent):
    ...         sign = (2 * y - 1)[:, None]
    ...         alpha = sign * f.mean / f.var.sqrt()
    ...         value = torch.special.log_ndtr(alpha)
    ...         beta = torch.exp(-0.5 * alpha**2 - value) / (2 * torch.pi) ** 0.5
    ...         dv = -0.5 * beta * alpha / f.var
    ...         return Moments(value[:, 0], sign * beta / f.var.sqrt(), dv, dv)
    >>> Step().log_probability(torch.zeros(1, 1), torch.ones(1, 1)).exp()
    tensor([[0.5000, 0.5000]])
    """

    name: ClassVar[str] = ""
    two_classes: ClassVar[bool] = False
    bounds: ClassVar[bool] = True
    sums_to_one: ClassVar[bool] = True
    linear: ClassVar[bool] = False
    tempers: ClassVar[bool] = True

    n_classes: int | None = None
    # current share of random labels; None if the likelihood has none
    epsilon: float | None = None
    parameters: tuple[nn.Parameter, ...] = ()
    log_parameters: tuple[nn.Parameter, ...] = ()

    @property
    def n_latent(self) -> int:
        """Number of latent functions: 1 for two classes, otherwise one per class."""
        return 1 if self.two_classes else self._classes()

    def bind(self, n_classes: int) -> Likelihood:
        """Return a copy for this number of classes.

        The engine works with the copy, and fitting changes it. A likelihood for many
        classes may return another one for two.
        """
        self._check_classes(n_classes)
        if not self.two_classes and n_classes == 2:
            return self._for_two_classes()

        bound = copy.deepcopy(self)
        bound.n_classes = n_classes
        return bound

    def expect_exponents(self, least: float) -> None:
        """Take a lower bound of the exponents that `moments` will get, at most 1.

        The default ignores it.
        """

    def sites(self, y: Tensor) -> Tensor:
        """Return the latent function on which each site sits, [B S].

        Labels `y` are 0 to C − 1, [B]. The default is one site on the only latent
        function for two classes, otherwise one site per class.
        """
        if self.two_classes:
            return torch.zeros(len(y), 1, dtype=torch.long, device=y.device)

        return torch.arange(self._classes(), device=y.device).expand(len(y), -1)

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        """Return the log normaliser of φ^e, and its derivatives.

        Marginals `f` are [B S], labels `y` are 0 to C − 1, [B]. The exponent e is [B],
        or None for 1; it is never given if `tempers` is False.
        """
        raise BadOption(
            f"{type(self).__name__} has no closed normaliser: use VI(likelihood=...)."
        )

    def average(self, f: Latents, y: Tensor) -> Moments:
        """Return E log φ, and its derivatives, for variational inference.

        Marginals `f` are [B S], labels `y` are [B].
        """
        raise BadOption(
            f"{type(self).__name__} has no average of its logarithm: use method='ep'."
        )

    def third(self, mean: Tensor, y: Tensor) -> Tensor:
        """Return ∂³ log p/∂f³ at latent values [B S], [B S].

        Laplace's method needs it to learn hyper-parameters.
        """
        raise BadOption(
            f"{type(self).__name__} has no third derivative, which Laplace's method "
            "needs."
        )

    def log_probability(self, mean: Array, var: Array) -> Array:
        """Return normalised log class probabilities at new rows, [n C].

        Marginals of f are [n C], or [n 1] for two classes. The default is `moments` for
        each label in turn, normalised, which ONNX graphs cannot express. Write it with
        the functions of `cavity.common.namespaces.namespace(mean)`, and it works for
        torch, NumPy and ONNX alike.
        """
        if not isinstance(mean, Tensor | np.ndarray):
            raise BadOption(
                f"the likelihood {type(self).__name__} has no log_probability(mean, var) "
                "for other arrays than those of torch and NumPy."
            )
        if isinstance(mean, np.ndarray):
            return in_torch(self.log_probability, mean, var)

        columns = []
        for label in range(self._classes()):
            y = torch.full((len(mean),), label, device=mean.device)
            at = self.sites(y)
            m = mean.gather(1, at)
            v = var.gather(1, at)
            f = Latents(m, v, torch.zeros_like(v))
            columns.append(self.moments(f, y, None).value)

        return torch.stack(columns, 1).log_softmax(1)

    def uncertainty(self, mean: Tensor, var: Tensor, noise: Tensor) -> EntropyParts:
        """Return the entropy of the label and its two parts per row, in nats, [n].

        The marginals of f, [n C] or [n 1], are without the noise on f, whose variance
        is [C] or [1].
        """
        raise BadOption(
            f"{type(self).__name__} has no split of its entropy: give it a method "
            "uncertainty(mean, var, noise)."
        )

    def settings(self) -> tuple[Placed | None, ...]:
        """Return the setting of each of `parameters`; None if it was given a number."""
        return (None,) * len(self.parameters)

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Self:
        """Move the parameters in place, and return the likelihood itself.

        They keep their type if `dtype` is None.
        """
        for parameter in self._stored().values():
            parameter.data = parameter.data.to(device, dtype)
        return self

    def state(self) -> dict[str, Tensor]:
        """Return the learnt values for a model file.

        They are copies of `parameters`, by number unless a subclass names them.
        """
        stored = self._stored().items()
        return {name: parameter.detach().clone() for name, parameter in stored}

    def load_state(
        self, state: dict[str, Tensor], dtype: torch.dtype | None = None
    ) -> None:
        """Take over values that `state` returned, as read from a file.

        Learnt values must have the type `dtype`, or any float type if it is None.
        Raises BadFile if a value is missing, unknown, or has the wrong shape or type.
        """
        own = self._stored()
        if set(state) != set(own):
            raise BadFile(
                f"the likelihood {type(self).__name__} has the values {sorted(own)}, "
                f"but the file has {sorted(state)!s:.200}."
            )

        for name, parameter in own.items():
            value = state[name]
            typed = value.is_floating_point() and dtype in (None, value.dtype)
            if value.shape != parameter.shape or not typed:
                raise BadFile(
                    f"factor.{name:.100} has shape {tuple(value.shape)} and type "
                    f"{value.dtype}; expected {tuple(parameter.shape)}, "
                    f"{dtype or 'a floating-point type'}."
                )

            parameter.data = value.clone()

    def _stored(self) -> dict[str, nn.Parameter]:
        """Return what model files hold, by name."""
        return {str(i): parameter for i, parameter in enumerate(self.parameters)}

    def _check_classes(self, n_classes: int) -> None:
        kind = type(self).__name__
        if self.two_classes and n_classes != 2:
            raise BadOption(
                f"{kind} is a likelihood for two classes, but y has {n_classes}: use "
                "another."
            )
        if self.n_classes not in (None, n_classes):
            raise BadOption(
                f"{kind} was made for {self.n_classes} classes, but y has {n_classes}: "
                "leave n_classes out."
            )

    def _for_two_classes(self) -> Likelihood:
        raise BadOption(
            f"{type(self).__name__} has one latent function per class, but two classes "
            "share one: override bind(n_classes) to return a likelihood with "
            "two_classes = True for them."
        )

    def _classes(self) -> int:
        if self.two_classes:
            return 2
        if self.n_classes is None:
            raise BadOption(
                f"{type(self).__name__} does not know the number of classes: "
                "call bind()."
            )

        return self.n_classes


LIKELIHOODS: Registry[Likelihood] = Registry("likelihood")
