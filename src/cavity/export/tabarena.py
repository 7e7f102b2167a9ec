"""GPClassifier as a system of TabArena: a pipeline that pools a Gaussian process with trees and finds its own weights."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cavity.errors import missing_extra
from cavity.export.autogluon import fit_estimator

try:
    from tabarena.benchmark.exec_models import ExternalSystemModel
except ImportError as error:
    raise missing_extra("tabarena", "autogluon") from error

__all__ = ["CavitySystem"]


class CavitySystem(ExternalSystemModel):  # type: ignore[misc]
    """GPClassifier or GPRegressor as a system: it gets raw rows and calibrates itself.

    The model class `cavity.export.autogluon.CavityModel` is the Gaussian process alone.
    """

    estimator: Any

    def _fit_system(
        self,
        X: Any,
        y: Any,
        *,
        problem_type: str,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        time_limit: float | None = None,
        random_state: int | None = None,
        **kwargs: Any,
    ) -> CavitySystem:
        arguments: dict[str, Any] = {"random_state": random_state or 0}
        self.estimator = fit_estimator(
            problem_type, X, y, arguments, time_limit=time_limit, num_cpus=num_cpus, num_gpus=num_gpus
        )
        return self

    def _predict(self, X: Any) -> Any:
        return pd.Series(self.estimator.predict(X), index=X.index)

    def _predict_proba(self, X: Any) -> Any:
        return pd.DataFrame(self.estimator.predict_proba(X), index=X.index, columns=self.estimator.classes_)

    @classmethod
    def config_generator(cls) -> Any:
        """Return the only configuration, a SystemConfigGenerator of TabArena."""
        from tabarena.utils.config_utils import SystemConfigGenerator

        return SystemConfigGenerator(model_cls=cls, name="Cavity", manual_configs=[{}])
