"""Arguments, read before any row: one frozen configuration, and methods as objects. `training` does without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.options.configuration import ClassifierConfig as ClassifierConfig
    from cavity.options.configuration import Config as Config
    from cavity.options.configuration import RegressorConfig as RegressorConfig
    from cavity.options.library import METHODS as METHODS
    from cavity.options.method import Method as Method
    from cavity.options.plan import Plan as Plan
    from cavity.options.reading import read_classifier as read_classifier
    from cavity.options.reading import read_regressor as read_regressor
    from cavity.options.training import Training as Training
    from cavity.options.training import flatten as flatten
    from cavity.options.training import nest as nest
    from cavity.options.training import read_training as read_training
else:
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "configuration": "ClassifierConfig Config RegressorConfig",
            "library": "METHODS",
            "method": "Method",
            "plan": "Plan",
            "reading": "read_classifier read_regressor",
            "training": "Training flatten nest read_training",
        },
    )
