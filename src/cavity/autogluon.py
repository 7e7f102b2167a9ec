"""A Gaussian process among the members of an AutoGluon ensemble."""

from __future__ import annotations

from typing import Any

from cavity.errors import missing_extra
from cavity.estimators import GPClassifier, GPRegressor

try:
    from autogluon.core.models import AbstractModel
except ImportError as error:
    raise missing_extra("autogluon.tabular", "autogluon") from error

__all__ = ["CavityModel"]

SHARE_OF_TIME = 0.8  # of AutoGluon's limit; the rest is for start-up and the last sweep


class CavityModel(AbstractModel):  # type: ignore[misc]
    """Model class for `TabularPredictor`: GPClassifier, or GPRegressor for regression. Needs the extra "autogluon".

    Pass `hyperparameters={CavityModel: {}}` to `TabularPredictor.fit`; the dict holds arguments of the estimator, such as
    `{"effort": "best"}`. Columns arrive as AutoGluon cleaned them, and the estimator prepares categories and missing cells.
    AutoGluon's time limit becomes `max_seconds`, and its sample weights those of the fit.
    """

    ag_key = "CAVITY"
    ag_name = "Cavity"
    seed_name = "random_state"

    def _fit(
        self,
        X: Any,
        y: Any,
        time_limit: float | None = None,
        sample_weight: Any = None,
        num_gpus: float | None = None,
        **kwargs: Any,
    ) -> None:
        X, arguments = self.preprocess(X), self._get_model_params()
        arguments.setdefault("device", "cuda" if num_gpus else "cpu")
        if time_limit is not None:
            arguments.setdefault("max_seconds", max(1.0, SHARE_OF_TIME * time_limit))
        kind = GPRegressor if self.problem_type == "regression" else GPClassifier
        self.model = kind(**arguments).fit(X, y.to_numpy(), sample_weight)

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        """Return the kinds of target that the estimators fit."""
        return ["binary", "multiclass", "regression"]
