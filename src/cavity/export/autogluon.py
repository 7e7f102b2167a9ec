"""A Gaussian process among the members of an AutoGluon ensemble, and among the models of TabArena."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from cavity.errors import BadOption, missing_extra
from cavity.estimators import GPClassifier, GPRegressor
from cavity.kernels import KERNELS
from cavity.options import nest

try:
    from autogluon.core.models import AbstractModel
except ImportError as error:
    raise missing_extra("autogluon.tabular", "autogluon") from error

__all__ = ["CavityModel"]

SHARE_OF_TIME = 0.8  # of AutoGluon's limit; the rest is for start-up and the last sweep
EXACT_ROWS, FULL_BATCH_ROWS = 1500, 20_000  # of regression: "exact" up to the first, "vi" up to the second


class CavityModel(AbstractModel):  # type: ignore[misc]
    """Model class for `TabularPredictor`: GPClassifier, or GPRegressor for regression. Needs the extra "autogluon".

    Pass `hyperparameters={CavityModel: {}}` to `TabularPredictor.fit`; the dict holds arguments of the estimator and of
    `cavity.Training`, such as `{"effort": "best", "tol": 1e-3}`; a kernel may be given by its name. Columns arrive as AutoGluon
    cleaned them, and the estimator prepares categories and missing cells. AutoGluon's time limit becomes `max_seconds`, its
    number of CPUs that of torch's threads, and its sample weights those of the fit.
    """

    ag_key = "CAVITY"
    ag_name = "Cavity"
    seed_name = "random_state"
    _supported_problem_types: ClassVar[list[str]] = ["binary", "multiclass", "regression"]

    def _fit(
        self,
        X: Any,
        y: Any,
        time_limit: float | None = None,
        sample_weight: Any = None,
        num_cpus: float | str = 1,
        num_gpus: float | None = None,
        **kwargs: Any,
    ) -> None:
        X, arguments = self.preprocess(X), self._get_model_params()
        arguments.setdefault("device", "cuda" if num_gpus else "cpu")
        if isinstance(arguments.get("kernel"), str):
            arguments["kernel"] = _make_kernel(arguments["kernel"])
        if time_limit is not None:
            arguments.setdefault("max_seconds", max(1.0, SHARE_OF_TIME * time_limit))
        regression = self.problem_type == "regression"
        if regression and len(X) > EXACT_ROWS:
            arguments.setdefault("method", "vi" if len(X) <= FULL_BATCH_ROWS else "svi")
        kind = GPRegressor if regression else GPClassifier
        with _threads(num_cpus):
            self.model = kind(**nest(**arguments)).fit(X, y.to_numpy(), sample_weight)

    def _more_tags(self) -> dict[str, Any]:
        return {"can_refit_full": True}

    @classmethod
    def config_generator(cls) -> Any:
        """Return the default configuration and a search space, as TabArena runs them. Needs the package tabarena.

        Returns
        -------
        tabarena.utils.config_utils.ConfigGenerator
            The configurations.

        Examples
        --------
        >>> from cavity.export.autogluon import CavityModel  # doctest: +SKIP
        >>> CavityModel.config_generator().generate_all_bag_experiments(num_random_configs=1)  # doctest: +SKIP
        """
        from autogluon.common.space import Categorical, Int
        from tabarena.utils.config_utils import ConfigGenerator

        space = {"kernel": Categorical("RBF", "Matern32", "Matern52"), "n_inducing": Int(50, 400)}
        return ConfigGenerator(model_cls=cls, manual_configs=[{}], search_space=space)


def _make_kernel(name: str) -> Any:
    if name not in KERNELS:
        raise BadOption(f"kernel {name!r} is unknown; use {', '.join(KERNELS)}, or an object.")
    return KERNELS[name]()


@contextmanager
def _threads(count: float | str) -> Iterator[None]:
    """Use this number of torch's threads within the block; "auto" changes nothing."""
    before = torch.get_num_threads()
    if not isinstance(count, str):
        torch.set_num_threads(max(1, int(count)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
