"""Choose the inducing inputs of a fit."""

from __future__ import annotations

import numpy as np

from cavity.common.types import Floats
from cavity.engine.kernels.spectrum import draw_frequencies
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.policy.work import places_points_between_rows
from cavity.tables import inducing_points


def choose_points(
    config: Config,
    candidates: inducing_points.Candidates,
    M: int,
    C: int,
    rng: np.random.Generator,
) -> Floats:
    """Choose inducing inputs [C M D].

    With method="auto" neither signs of columns nor names of classes decide, and no
    point is a row unless the user names a choice. With inducing="spectrum", Z are
    frequencies times lengthscales.
    """
    how = config.inducing
    if config.spectral:
        D = candidates.X.shape[1]
        return draw_frequencies(config.kernel, M, C, D, rng)
    if (
        not places_points_between_rows(config)
        or not isinstance(how, str)
        or len(candidates.X) < 2
    ):
        return inducing_points.choose(how, candidates, M, C, rng)

    arranged, place = candidates.arrange()
    if how == "auto":
        choose = inducing_points.choose_between_rows
    else:
        choose = inducing_points.choose

    Z = choose(how, arranged, M, C, rng)
    if C == 1:
        return Z

    return Z[place]
