"""A model class for AutoGluon, and for leader boards that run AutoGluon's models."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from cavity.errors import missing_extra
from cavity.estimators import GPClassifier, GPRegressor
from cavity.fitting.options import nest
from cavity.fitting.options.regression_methods import choose_regression_method

try:
    from autogluon.core.models import AbstractModel
except ImportError as error:
    raise missing_extra("autogluon.tabular", "autogluon") from error

__all__ = ["CavityModel"]

SHARE_OF_TIME = (
    0.95  # of AutoGluon's limit, which also counts what it does around a fit
)


class CavityModel(AbstractModel):  # type: ignore[misc]
    """Model class for `TabularPredictor`. Needs the extra "autogluon".

    `TabularPredictor.fit(..., hyperparameters={CavityModel: {}})` trains it beside
    AutoGluon's own models. The dict holds arguments of the estimator and of
    `cavity.Training`. `ensemble` is None by default, because AutoGluon has trees;
    `"auto"` gives the default classifier. AutoGluon's validation rows are the
    `eval_set`, its time limit, seed and number of CPUs those of the fit.
    """

    ag_key = "CAVITY"
    ag_name = "Cavity"
    seed_name = "random_state"
    _supported_problem_types: ClassVar = ["binary", "multiclass", "regression"]

    def _fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        time_limit: float | None = None,
        sample_weight: Any = None,
        *,
        num_cpus: float | str = "auto",
        num_gpus: float = 0,
        **_: Any,
    ) -> None:
        rows = self.preprocess(X)
        arguments = {"device": "cuda" if num_gpus else "cpu"} | self._get_model_params()
        if self.problem_type == "regression":
            kind: Any = GPRegressor
            arguments.setdefault("method", choose_regression_method(len(rows)))
            known = np.full(np.shape(y_val), True)
        else:
            kind = GPClassifier
            arguments.setdefault("ensemble", None)
            known = np.isin(y_val, y)
        held = None
        if X_val is not None and known.any():
            held = (self.preprocess(X_val)[known], np.asarray(y_val)[known])
        seconds = None if time_limit is None else SHARE_OF_TIME * time_limit
        threads = torch.get_num_threads()
        if not isinstance(num_cpus, str):
            torch.set_num_threads(max(1, int(num_cpus)))
        try:
            self.model = kind(**nest(**arguments)).fit(
                rows, np.asarray(y), sample_weight, eval_set=held, time_limit=seconds
            )
        finally:
            torch.set_num_threads(threads)

    def _more_tags(self) -> dict[str, Any]:
        return {"can_refit_full": True}
