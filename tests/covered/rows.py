"""A row of the coverage page, and the problems on which its line runs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import cavity
from cavity import GPClassifier, GPRegressor, Training, engine, kernels, methods
from reference import brute_ep, variational
from reference import kernels as written_out
from reference import sparse_regression as explicit
from reference.problems import hyper_parameters
from support import toy

NEW = np.random.default_rng(99).normal(size=(5, 2))
PUBLIC = {
    "np": np,
    "cavity": cavity,
    "engine": engine,
    "GPClassifier": GPClassifier,
    "GPRegressor": GPRegressor,
    "Training": Training,
    "new": NEW,
    **{name: getattr(methods, name) for name in methods.__all__},
    **{name: getattr(kernels, name) for name in kernels.__all__},
}


class Row(NamedTuple):
    """What a document has, the line that runs it, and how far it is from a judge."""

    source: (
        str  # section, equation or figure: t thesis, i ICML paper, r review, s slides
    )
    what: str
    line: str  # Python, evaluated with the names of `problem`
    judge: str  # what the result is compared with
    error: Callable[[Any], float]  # of the line's result
    bound: float  # largest error allowed
    problem: Any
    slow: bool = False

    def measure(self) -> float:
        """Run the line and return the error of its result."""
        return float(self.error(eval(self.line, {**PUBLIC, **self.problem.names()})))


def gap(ours: Any, theirs: Any) -> float:
    """The largest difference of two arrays."""
    difference = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    return float(np.abs(difference).max())


class Classes(NamedTuple):
    """A classification table with hyper-parameters that differ from class to class."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    lengthscale: np.ndarray
    variance: np.ndarray
    noise: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """±1 if there is one latent function."""
        return 2 * self.y - 1 if len(self.Z) == 1 else self.y

    @property
    def ks(self) -> list[Any]:
        """The kernel of each latent function, written out."""
        rbf = written_out.rbf
        return written_out.one_per_class(rbf, self.lengthscale, self.variance)

    @property
    def whitened(self) -> Any:
        """The table as the variational references take it."""
        model = brute_ep.build_model(self.Z, self.ks, self.noise, 1e-6)
        return variational.whiten(model, self.X, self.labels)

    def judge(self, run: Callable[..., Any], **options: Any) -> Any:
        """A posterior by explicit matrices."""
        return run(self.X, self.labels, self.Z, self.ks, self.noise, **options)

    def names(self) -> dict[str, Any]:
        """X, y, Z, and arguments of sparse, of full and of noise-free models."""
        kernel = kernels.RBF(self.lengthscale, self.variance)
        common = {"kernel": kernel, "device": "cpu", "max_epochs": 5000}
        rest: dict[str, Any] = {"learn": (), "tol": 1e-12}
        sparse = Training(noise=self.noise, **rest)
        full = Training(noise=1.0, jitter=1e-12, **rest)
        plain = Training(jitter=1e-12, **rest)
        learn = {"kernel": kernel, "inducing": self.Z, "random_state": 0}
        return {
            "X": self.X,
            "y": self.y,
            "Z": self.Z,
            "sparse": common | {"inducing": self.Z, "training": sparse},
            "full": common | {"inducing": None, "training": full},
            "plain": common | {"inducing": None, "training": plain},
            "learnt": learn | {"device": "cpu", "max_epochs": 300},
            "noise": self.noise,
            "gp": engine.GP(
                kernel=kernel,
                likelihood=cavity.likelihoods.ProbitPairs().bind(len(set(self.y))),
                inducing=self.Z,
                noise=self.noise,
            ),
        }


class Line(NamedTuple):
    """A regression table, with a Matérn kernel."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    noise: float = 0.3

    @staticmethod
    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return written_out.matern32(A, B, np.array([0.9, 1.4]), 1.7)

    def at(self, points: np.ndarray) -> explicit.Kernels:
        """Covariances of these inducing points."""
        return explicit.kernels(self.k, points, self.X, NEW)

    @property
    def exact(self) -> explicit.Answer:
        return explicit.exact(self.at(self.X), self.y, self.noise)

    def sparse(self, method: str) -> explicit.Answer:
        return explicit.sparse(self.at(self.Z), self.y, self.noise, method)

    def names(self) -> dict[str, Any]:
        """X, y, Z, arguments of models whose hyper-parameters are given or learnt."""
        kernel = kernels.Matern32([0.9, 1.4], 1.7)
        common = {"kernel": kernel, "normalize_y": False, "random_state": 0}
        given: dict[str, Any] = {"noise": self.noise, "jitter": 0.0}
        rest = Training(learn=(), tol=1e-10, **given)
        return {
            "X": self.X,
            "y": self.y,
            "Z": self.Z,
            "k": kernel,
            "fixed": common | {"training": rest},
            "sparse": common | {"inducing": self.Z, "training": rest},
            "learnt": common | {"inducing": self.Z, "max_epochs": 100},
            "noise": self.noise,
            "training": lambda **options: Training(
                **{"learn": (), "tol": 0.0} | given | options
            ),
        }


def make_classes(C: int, N: int = 10, M: int = 3) -> Classes:
    return Classes(*toy(N, C), *hyper_parameters(C, M))


def make_line() -> Line:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=30)
    rng.normal(size=(7, 2))
    return Line(X, y, rng.normal(size=(6, 2)))


TWO, THREE, LINE = make_classes(2), make_classes(3), make_line()
