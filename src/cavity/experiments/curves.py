"""Scores at moments of a run under way."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.callbacks import Callback
from cavity.estimators import fitted, watch
from cavity.experiments.rows import Row
from cavity.experiments.scores import scores
from cavity.experiments.sets import Split
from cavity.factors import Latents, Likelihood

MOMENTS = 40
PIECE = 2000


class Curve(Callback):
    """Judges the state after about forty updates, spaced evenly in the logarithm; its own time does not count.

    On a GPU, where steps are recorded and only some are looked at, a moment is the first look after it.
    """

    every_step = False

    def __init__(self, data: Split, options: dict[str, Any], moments: int = MOMENTS) -> None:
        self.classes = np.unique(data.y)
        self.X, self.labels = torch.tensor(data.X_test), data.y_test
        self.n_rows, self.batch = len(data.y), options.get("batch_size")
        updates = int(options["max_epochs"]) * (-(-self.n_rows // self.batch) if self.batch else 1)
        first = 5 if self.batch else 1
        self.moments = sorted(
            set(np.geomspace(first, max(first, updates), moments).round().astype(int).tolist())
        )
        self.rows: list[Row] = []
        self.done, self.paused, self.begun = 0, 0.0, time.perf_counter()

    def clock(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self.begun - self.paused

    def passes(self) -> float:
        """Over the training rows."""
        return float(self.done * self.batch / self.n_rows if self.batch else self.done)

    def step(self, run: Any) -> None:
        if self.batch:
            self._look(run)

    def epoch(self, run: Any, row: dict[str, Any]) -> bool:
        """Also with mini-batches: an epoch may have fewer recorded steps than there are between two looks."""
        self._look(run)
        return False

    def _look(self, run: Any) -> None:
        each = run.rows.n_batches(self.batch) if self.batch else 1
        self.done = len(run.history) * each + int(run.state.position)
        if not self.moments or self.done < self.moments[0]:
            return
        self.moments = [moment for moment in self.moments if moment > self.done]
        seconds, now = self.clock(), time.perf_counter()
        model = watch.snapshot(run.engine, run.state)
        f = fitted.latent(model, self.X.to(run.state.theta.device))
        found = scores(fitted.log_probability(model, f).numpy(), self.classes, self.labels)
        if not np.isfinite(found["nll"]):  # a state from which the next step will go back
            self.moments.insert(0, self.done + 1)
            self.paused += time.perf_counter() - now
            return
        row = {**found, "moment": self.done, "passes": self.passes(), "seconds": seconds}
        if run.engine.removal == 0:
            row["expected_log_p"] = self._expected(model.factor, f.mean, f.var)
        self.rows.append(row)
        self.paused += time.perf_counter() - now

    def _expected(self, factor: Likelihood, mean: Tensor, var: Tensor) -> float:
        """Mean of E log p(y | f) over the test rows: what a variational method maximises, of rows that it has not seen."""
        known = np.isin(self.labels, self.classes)
        rows = torch.from_numpy(known).to(mean.device)
        y = torch.from_numpy(np.searchsorted(self.classes, self.labels[known])).to(mean.device)
        parts = []
        for m, v, label in zip(*(torch.split(t, PIECE) for t in (mean[rows], var[rows], y)), strict=True):
            places = factor.sites(label)
            f = Latents(m.gather(1, places), v.gather(1, places), torch.zeros_like(places, dtype=m.dtype))
            parts.append(factor.average(f, label).value)
        return float(torch.cat(parts).mean())
