"""A Gaussian process among the members of an AutoGluon ensemble, and among the models of TabArena."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch

from cavity.errors import missing_extra
from cavity.estimators import GPClassifier, GPRegressor
from cavity.estimators.fitted_view import choose_regression_method
from cavity.options import nest
from cavity.options.kernel_names import parse_kernel

try:
    from autogluon.core.models import AbstractModel
except ImportError as error:
    raise missing_extra("autogluon.tabular", "autogluon") from error

__all__ = ["CavityModel"]

SHARE_OF_TIME = 0.95  # of the limit that AutoGluon gives


class CavityModel(AbstractModel):  # type: ignore[misc]
    """Model class for `TabularPredictor`: GPClassifier, or GPRegressor for regression. Needs the extra "autogluon".

    Pass `hyperparameters={CavityModel: {}}` to `TabularPredictor.fit`; the dict holds arguments of the estimator and of
    `cavity.Training`, such as `{"effort": "fast", "tol": 1e-3}`; a kernel may be given by its name. Columns arrive as AutoGluon
    cleaned them, and the estimator prepares categories and missing cells. The model is a Gaussian process without trees
    (`ensemble=None`): AutoGluon has trees of its own. Its validation rows stop the training and find the temperature, 95% of
    its time limit is the `time_limit` of the fit, its number of CPUs that of torch's threads, and its sample weights those of the
    fit.
    """

    ag_key = "CAVITY"
    ag_name = "Cavity"
    seed_name = "random_state"
    _supported_problem_types: ClassVar[list[str]] = ["binary", "multiclass", "regression"]

    def _fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        time_limit: float | None = None,
        sample_weight: Any = None,
        num_cpus: float | str = 1,
        num_gpus: float | None = None,
        **kwargs: Any,
    ) -> None:
        X, arguments = self.preprocess(X), self._get_model_params()
        if self.problem_type != "regression":
            arguments.setdefault("ensemble", None)
        held = None
        if X_val is not None and "validation_fraction" not in arguments:
            held = _select_known(self.preprocess(X_val), y_val, y, self.problem_type)
        self.model = fit_estimator(
            self.problem_type, X, y, arguments, held, sample_weight, time_limit, num_cpus, num_gpus
        )

    def _more_tags(self) -> dict[str, Any]:
        return {"can_refit_full": True}

    @classmethod
    def warmup(cls, *, problem_type: str | None = None, num_gpus: float | None = None, **kwargs: Any) -> None:
        """Load libraries and start the GPU before the clock of TabArena starts, by a fit to a few made-up rows."""
        X = np.arange(30.0)[:, None]
        kind = GPRegressor if problem_type == "regression" else GPClassifier
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind(n_inducing=4, max_epochs=1, device="cuda" if num_gpus else "cpu").fit(X, X[:, 0] % 2)

    @classmethod
    def config_generator(cls) -> Any:
        """Return the default configuration and a search space, a ConfigGenerator of TabArena."""
        from autogluon.common.space import Categorical, Int
        from tabarena.utils.config_utils import ConfigGenerator

        space = {"kernel": Categorical("RBF", "Matern32", "Matern52"), "n_inducing": Int(50, 400)}
        return ConfigGenerator(model_cls=cls, manual_configs=[{}], search_space=space)


def fit_estimator(
    problem_type: str,
    X: Any,
    y: Any,
    arguments: dict[str, Any],
    held: tuple[Any, Any] | None = None,
    sample_weight: Any = None,
    time_limit: float | None = None,
    num_cpus: float | str | None = None,
    num_gpus: float | None = None,
) -> Any:
    arguments = {"device": "cuda" if num_gpus else "cpu"} | arguments
    if isinstance(arguments.get("kernel"), str):
        arguments["kernel"] = parse_kernel(arguments["kernel"])
    if problem_type == "regression":
        arguments.setdefault("method", choose_regression_method(len(X)))
    limit = None if time_limit is None else max(1.0, SHARE_OF_TIME * time_limit)
    kind = GPRegressor if problem_type == "regression" else GPClassifier
    with _threads(num_cpus):
        estimator = kind(**nest(**arguments))
        return estimator.fit(X, y.to_numpy(), sample_weight, eval_set=held, time_limit=limit)


def _select_known(X: Any, y: Any, trained: Any, problem_type: str) -> tuple[Any, Any] | None:
    """Return the validation rows whose class the training rows have; None if there are none."""
    known = np.full(len(y), True) if problem_type == "regression" else np.isin(y, np.unique(trained))
    return (X[known], y.to_numpy()[known]) if known.any() else None


@contextmanager
def _threads(count: float | str | None) -> Iterator[None]:
    """Use this number of torch's threads within the block; None and "auto" change nothing."""
    before = torch.get_num_threads()
    if count is not None and not isinstance(count, str):
        torch.set_num_threads(max(1, int(count)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
