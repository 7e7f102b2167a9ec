"""Fit the classifiers of a prior mean, and find their scores at the training rows. [METHOD 14]"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.config import ClassifierConfig
from cavity.fitting.calibration import fit_members, make_members
from cavity.forest import LEAST, Forest
from cavity.inference import Offset
from cavity.intake.tables import Table
from cavity.prior_mean import center_scores
from cavity.splitting import choose_folds

Array = NDArray[np.float64]
FOLDS = 5


class Scored(NamedTuple):
    """The members of a prior mean, fitted to a table, and their scores at its rows."""

    table: Table  # kept, so that no other table gets its id
    members: tuple[Forest, ...]
    scores: Array  # [J C N], each row's from members that did not see it


class MeanFits:
    """The fits of members within one fit of a model: each table is scored only once, however many models are tried on it."""

    def __init__(self) -> None:
        self._found: dict[int, Scored] = {}

    def make_offset(self, config: ClassifierConfig, table: Table, seed: int) -> Offset:
        """Return the offset of a model that is fitted to this table."""
        if id(table) not in self._found:
            self._found[id(table)] = score_rows(config, table, seed)
        found = self._found[id(table)]
        return Offset(torch.tensor(found.scores, device=config.device), found.members, config.dtype)


def score_rows(config: ClassifierConfig, table: Table, seed: int) -> Scored:
    """Fit the members to all rows and, for the scores of the training rows, to all folds but one."""
    members = make_members(config.mean, seed, table.X.size * table.n_classes)
    fold = choose_folds(table.X, table.y, FOLDS, seed)
    scores = np.zeros((len(members), table.n_rows, table.n_latent))  # a row that every fit needs has no score
    for i in np.unique(fold[fold >= 0]):
        rest, held = table.select(fold != i), fold == i
        for j, log_p in enumerate(fit_members(members, rest, table.X[held])[1]):
            scores[j, held] = center_scores(_align(log_p, rest))
    forests = fit_members(members, table, table.X[:0])[0]
    return Scored(table, forests, np.ascontiguousarray(scores.transpose(0, 2, 1)))


def _align(log_p: Array, rest: Table) -> Array:
    """Return log-probabilities of all classes; a class without a row in `rest` gets the least."""
    if log_p.shape[1] == rest.n_classes:
        return log_p
    found = np.full((len(log_p), rest.n_classes), np.log(LEAST))
    found[:, np.unique(rest.y)] = log_p
    return found
