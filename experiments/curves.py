"""Test scores during a run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.callbacks import Callback
from cavity.likelihoods import Latents, Likelihood
from cavity.prediction.model import snapshot
from cavity.prediction.predict import log_probabilities, predict_latent
from experiments.jobs import Row
from experiments.scores import score_predictions
from experiments.sets import Split

MOMENTS = 40
BLOCK = 2000  # test rows per block


class ScoreCurve(Callback):
    """Score the state after about 40 updates that are evenly spaced in log time.

    Scoring is not part of the time.

    On a GPU, steps are recorded as graphs and callbacks run only between replays. The
    state is then scored at the first callback after each planned update.
    """

    def __init__(
        self, data: Split, options: dict[str, Any], moments: int = MOMENTS
    ) -> None:
        self.classes = np.unique(data.y)
        self.X = torch.tensor(data.X_test)
        self.labels = data.y_test
        self.n_rows, self.batch = len(data.y), options.get("batch_size")
        updates = int(options["max_epochs"]) * (
            -(-self.n_rows // self.batch) if self.batch else 1
        )
        first = 5 if self.batch else 1
        spaced = np.geomspace(first, max(first, updates), moments).round().astype(int)
        self.moments = sorted(set(spaced.tolist()))
        self.rows: list[Row] = []
        self.updates, self.scoring, self.begun = 0, 0.0, time.perf_counter()

    def seconds(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self.begun - self.scoring

    def passes(self) -> float:
        """Passes over the training rows so far."""
        return float(
            self.updates * self.batch / self.n_rows if self.batch else self.updates
        )

    def step(self, run: Any) -> None:
        if self.batch:
            self._score_if_due(run)

    def epoch(self, run: Any, row: dict[str, Any]) -> bool:
        """Mini-batch runs are scored here, too: recorded steps may skip all callbacks
        within an epoch.
        """
        self._score_if_due(run)
        return False

    def _score_if_due(self, run: Any) -> None:
        steps = run.rows.n_batches(self.batch) if self.batch else 1
        self.updates = len(run.history) * steps + int(run.state.position)
        if not self.moments or self.updates < self.moments[0]:
            return
        self.moments = [moment for moment in self.moments if moment > self.updates]
        seconds = self.seconds()
        begin = time.perf_counter()
        row = self._score(run)
        if np.isfinite(row["nll"]):
            self.rows.append(
                row
                | {"moment": self.updates, "passes": self.passes(), "seconds": seconds}
            )
        else:  # the next step will reject this state: score the state after it
            self.moments.insert(0, self.updates + 1)
        self.scoring += time.perf_counter() - begin

    def _score(self, run: Any) -> Row:
        model = snapshot(run.engine, run.state)
        f = predict_latent(model, self.X.to(run.state.theta.device))
        row: Row = score_predictions(
            log_probabilities(model, f), self.classes, self.labels
        )
        if run.engine.removal == 0 and np.isfinite(row["nll"]):
            row["expected_log_p"] = self._expected_log_p(
                model.likelihood, *map(torch.as_tensor, f[:2])
            )
        return row

    def _expected_log_p(self, factor: Likelihood, mean: Tensor, var: Tensor) -> float:
        """Mean of E log p(y | f) over the test rows: the data term of the variational
        bound on unseen rows.
        """
        known = np.isin(self.labels, self.classes)
        rows = torch.from_numpy(known).to(mean.device)
        y = torch.from_numpy(np.searchsorted(self.classes, self.labels[known])).to(
            mean.device
        )
        parts = []
        for m, v, label in zip(
            *(torch.split(t, BLOCK) for t in (mean[rows], var[rows], y)), strict=True
        ):
            places = factor.sites(label)
            f = Latents(
                m.gather(1, places),
                v.gather(1, places),
                torch.zeros_like(places, dtype=m.dtype),
            )
            parts.append(factor.average(f, label).value)
        return float(torch.cat(parts).mean())
