"""The methods of regression: the same engine with a Gaussian likelihood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from cavity.engine import methods as schemes
from cavity.engine.likelihoods import Committee, Gaussian
from cavity.engine.methods import Scheme
from cavity.errors import BadOption
from cavity.fitting.options.method import (
    METHODS,
    Q_UPDATES,
    Method,
    check_unswept,
    no_sweeps,
    read_method,
)
from cavity.fitting.options.value_checks import checked, number, one_of, whole

SELECTIONS = ("entropy", "information")
BLOCKS = ("clustered", "random")


class RegressionMethod(Method):
    """Base class of the methods of regression.

    Power EP finds the same Gaussian sites whatever its power, and half a site never
    exceeds what a cavity can spare.

    Examples
    --------
    >>> from cavity.methods import FITC, RegressionMethod
    >>> isinstance(FITC(), RegressionMethod), FITC().has_evidence
    (True, True)
    """

    task = "regression"
    needs_all_rows = True
    in_memory = True
    latent_noise = False
    scheme: Scheme = schemes.PowerEP(removal=0.5, damping=1.0)
    full_batch_optimizer = "lbfgs"

    projected: ClassVar[bool] = False  # the likelihood lacks the residual variance
    # of all rows, and its predictions belong to it
    has_evidence: ClassVar[bool] = False
    active_set: str | None = (
        None  # criterion by which rows are selected one by one: one of SELECTIONS
    )

    takes_spectrum = False

    @property
    def needs_noise(self) -> bool:
        """Whether noise must be positive: without it, y has no density."""
        return self.projected or self.variational

    @property
    def fixed_inducing(self) -> bool:
        """Whether inducing points are rows, which are never learnt.

        Without the residual, the optimum would put all of them in one place.
        """
        return self.projected or self.exact_jitter

    def make_likelihood(
        self, n_classes: int, learn: frozenset[str], noise: Any = 0.0
    ) -> Gaussian:
        """Make the likelihood; it learns the noise if `learn` contains "noise".

        `noise` is in units of the targets' variance.
        """
        return Gaussian(noise, "noise" in learn, self.projected)

    def check_training(
        self, *, optimizer: str, schedule: str, damping: float | None
    ) -> None:
        if optimizer == "newton" and not self.needs_all_rows:
            raise BadOption(
                f"optimizer='newton' needs the best q at every step of the "
                f"hyper-parameters, which {self.argument} does not compute: use "
                f"method='vi', 'exact' or 'fitc', or optimizer='lbfgs'."
            )
        if optimizer in ("gradient", "sag") and self.site_store != "free":
            raise BadOption(
                f"optimizer={optimizer!r} steps the mean and Cholesky factor of q, "
                f"which {self.argument} does not: use "
                "method=SVGP(q_update='gradient'), or optimizer='lbfgs' or 'adam'."
            )

        super().check_training(optimizer=optimizer, schedule=schedule, damping=damping)

    def sampling_problem(self) -> str | None:
        if self.has_evidence:
            return None

        known = (
            cls
            for cls in METHODS.classes()
            if issubclass(cls, RegressionMethod) and cls.has_evidence
        )
        names = ", ".join(repr(cls.name) for cls in known)
        return (
            f"{self.argument} has no evidence of all rows under the model that it "
            f"predicts with: use one of {names}."
        )


def read_regression_method(value: Any) -> RegressionMethod:
    method = read_method(value, "regression")
    if not isinstance(method, RegressionMethod):
        raise BadOption(
            f"{type(method).__name__} must derive from cavity.methods.RegressionMethod."
        )

    return method


class _Variational(RegressionMethod):
    scheme = schemes.VI(damping=1.0)


@METHODS.register
class Exact(RegressionMethod):
    """Exact Gaussian process regression, O(N³)."""

    name = "exact"
    inducing_from = "rows"
    has_evidence = True


@METHODS.register
class FITC(RegressionMethod):
    """FITC: each row keeps its own residual variance, O(NM²)."""

    name = "fitc"
    has_evidence = True


@METHODS.register
class SGPR(_Variational):
    """Titsias' collapsed lower bound, O(NM²)."""

    name = "vi"
    takes_spectrum = True
    in_memory = False
    has_evidence = True


@METHODS.register
@dataclass(eq=False, repr=False)
class SVGP(_Variational):
    """Stochastic variational inference in mini-batches.

    Parameters
    ----------
    q_update : {"natural", "gradient"}, default="natural"
        Natural-gradient steps of q, or gradient steps on its mean and Cholesky factor
        together with the hyper-parameters.
    """

    name = "svi"
    takes_spectrum = True
    needs_all_rows = False
    in_memory = False
    has_evidence = True

    q_update: str = field(default="natural", metadata=checked(one_of, Q_UPDATES))

    @property
    def scheme(self) -> Scheme:  # type: ignore[override]
        return schemes.VI(sites=Q_UPDATES[self.q_update], damping=1.0)

    @property
    def full_batch_optimizer(self) -> str:  # type: ignore[override]
        return "lbfgs" if self.q_update == "gradient" else "sign"

    def check_training(
        self, *, optimizer: str, schedule: str, damping: float | None
    ) -> None:
        super().check_training(optimizer=optimizer, schedule=schedule, damping=damping)
        if self.q_update == "gradient":
            check_unswept(schedule, damping)

    def sampling_problem(self) -> str | None:
        if self.q_update == "gradient":
            return no_sweeps()

        return super().sampling_problem()


@METHODS.register
class ProjectedProcess(RegressionMethod):
    """Projected process: residual variance in predictions, not in the likelihood."""

    name = "pp"
    projected = True


@METHODS.register
class SubsetOfRegressors(RegressionMethod):
    """Subset of regressors: no residual variance at all."""

    name = "sr"
    projected = True
    predicts_residual = False


@METHODS.register
class Nystrom(RegressionMethod):
    """Nyström: replaces the covariance of the training rows only.

    Predictive variances can come out below 0 (then 0).
    """

    name = "nystrom"
    keeps_rows = True
    projected = True


@METHODS.register
@dataclass(eq=False, repr=False)
class SubsetOfData(RegressionMethod):
    """The exact method on `n_inducing` rows that are chosen one by one.

    Parameters
    ----------
    selection : {"entropy", "information"}
        The next row is the one whose value is least certain, or the one that moves its
        value most.
    """

    name = "sd"
    inducing_from = "subset"

    selection: str = field(default="entropy", metadata=checked(one_of, SELECTIONS))

    @property
    def active_set(self) -> str | None:  # type: ignore[override]
        return self.selection


@METHODS.register
@dataclass(eq=False, repr=False)
class BCM(RegressionMethod):
    """Bayesian committee machine: exact models on parts of the rows, combined.

    Parameters
    ----------
    n_blocks : int
        Number of members.
    blocks : {"clustered", "random"}
        Members hold rows that lie together, or random rows.
    """

    name = "bcm"
    inducing_from = "members"

    n_blocks: int = field(default=4, metadata=checked(whole, 1))
    blocks: str = field(default="clustered", metadata=checked(one_of, BLOCKS))

    @property
    def committee(self) -> tuple[int, str] | None:  # type: ignore[override]
        return self.n_blocks, self.blocks

    def make_likelihood(
        self, n_classes: int, learn: frozenset[str], noise: Any = 0.0
    ) -> Gaussian:
        return Committee(noise, "noise" in learn)


@METHODS.register
@dataclass(eq=False, repr=False)
class ConjugateGradients(_Variational):
    """Learns like `SGPR`, then solves the exact system by conjugate gradients.

    Parameters
    ----------
    tol : float
        Iterations end when the residual is this small, relative to the right-hand side.
    """

    name = "cg"
    keeps_rows = True

    tol: float = field(default=1e-8, metadata=checked(number, 0.0, 1.0))

    @property
    def solver_tol(self) -> float:  # type: ignore[override]
        return float(self.tol)


# Of regression: "exact" up to the first, "vi" up to the second, then "svi".
EXACT_ROWS = 1500
FULL_BATCH_ROWS = 20_000


def choose_regression_method(rows: int, in_memory: bool = True) -> str:
    """Return the method that the command line takes for a table of this size."""
    if in_memory and rows <= EXACT_ROWS:
        return "exact"
    if in_memory and rows <= FULL_BATCH_ROWS:
        return "vi"

    return "svi"
