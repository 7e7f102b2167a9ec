"""How a fit ends: what is kept after an interrupt, and what the user should know."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from cavity.engine import runs
from cavity.engine.training.guard import JITTER
from cavity.engine.training.threads import flush_denormals, limit_threads
from cavity.fitting import adapter, monitoring
from cavity.fitting.begin import Begun
from cavity.fitting.options.plan import FitPlan
from cavity.fitting.results import Result

Record = Callable[[], Result]
Store = Callable[[Result], None]
Found = list[tuple[str, type[Warning]]]

NO_EVIDENCE = (
    "training stopped while the sites were far from their fixed point, where log Z_q "
    "is not an evidence (it was above 0): "
    "log_marginal_likelihood_ is NaN. Raise max_epochs= or Training(max_seconds=...) "
    "before you compare models by it.",
    RuntimeWarning,
)


class Progress:
    """How far a fit has come, for what is said of an interrupt."""

    trained = False


@contextmanager
def keep_on_interrupt(begun: Begun, store: Store, record: Record) -> Iterator[Progress]:
    """Run the block with threads for its work.

    On an interrupt store what was learnt so far, within seconds.
    """
    run = begun.run
    first = run.state
    progress = Progress()
    with limit_threads(runs.count_work(run)), flush_denormals(begun.config.dtype):
        try:
            yield progress
        except KeyboardInterrupt:
            now = run.state
            moved = now.theta is not first.theta or now.sums is not first.sums
            if run.history or moved:
                if not progress.trained:
                    monitoring.restore_best(run)
                # no more passes that take long
                run.plan = replace(run.plan, max_seconds=0.0)
                what = "the calibration" if progress.trained else "training"
                text = (
                    f"{what} was interrupted after {len(run.history)} epochs: the "
                    "model is what was learnt so far."
                )
                said = _say([(text, UserWarning)], stacklevel=6)
                store(record()._replace(warnings=tuple(said)))

            raise


def warn(begun: Begun, plan: FitPlan, result: Result, notes: list[str]) -> list[str]:
    """Warn of what the user should know of a fit, and return it."""
    limit = "time_limit="
    if plan.time_limit is None:
        limit = "Training(max_seconds=...)"
    found = Found()
    lightest = begun.rows.table.lightest
    repairs = begun.run.guard.repairs
    if lightest < 1 and _matches_whole_rows(begun):
        text = (
            f"rows with weight below 1 (the smallest is {lightest:.3g}) are "
            "underweighted: this method cannot temper its likelihood. Probabilities "
            "near them are too cautious, and log_marginal_likelihood_ is too large. "
            "Use method='ep', which is right for any weight."
        )
        found.append((text, RuntimeWarning))

    if repairs:
        text = (
            f"{repairs} steps lost their Cholesky factor and were repaired (see "
            "'repairs' in history_); the fit went on with smaller steps. If the result "
            f"is poor, raise {JITTER} or lower learning_rate=."
        )
        found.append((text, RuntimeWarning))

    found += _find_early_end(begun, limit)
    found += [(text, UserWarning) for text in notes]
    found += monitoring.find_failed_checkpoint(begun.run)
    if math.isnan(result.evidence):
        found.append(NO_EVIDENCE)
    return _say(found, stacklevel=5)


def _find_early_end(begun: Begun, limit: str) -> Found:
    """Return a warning if training ended before it converged.

    `limit`: the argument that limits the time.
    """
    from sklearn.exceptions import ConvergenceWarning

    run = begun.run
    plan = begun.plan
    # the library's own plan ends with its last epoch
    as_planned = plan.planned and len(run.history) >= plan.max_epochs
    if run.converged or run.stopped or as_planned:
        return []

    text = (
        f"training stopped after {len(run.history)} epochs, before the objective "
        f"converged to tol={run.plan.tol:g}: raise max_epochs= or {limit}."
    )
    return [(text, ConvergenceWarning)]


def _matches_whole_rows(begun: Begun) -> bool:
    """Return whether a row of weight below 1 is matched as a whole row. [decision 8]"""
    method = adapter.find_method(begun.config, begun.plan)
    tempers = begun.run.engine.factor.tempers
    return not (method.variational or method.at_mode) and (method.on_f or not tempers)


def _say(found: Found, stacklevel: int) -> list[str]:
    for text, kind in found:
        warnings.warn(text, kind, stacklevel=stacklevel + 1)
    return [text for text, _ in found]
