"""How a fit ends: what is kept after an interrupt, and what the user should know."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cavity.common.progress import announce
from cavity.engine.training.guard import JITTER
from cavity.engine.training.threads import flush_denormals, limit_threads
from cavity.fitting import build, monitoring, runs
from cavity.fitting.begin import Begun
from cavity.fitting.options.plan import Plan
from cavity.fitting.options.time_estimate import add_estimate
from cavity.fitting.request import Request
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


def describe_plan(request: Request[Any], plan: Plan, fast: Plan | None) -> Plan:
    """Estimate the time of the fit, and say what it will do; `fast`: what effort="fast"
    would do.
    """
    if request.reduce.world == 1:
        plan = add_estimate(plan, fast)
    announce(
        "; ".join(filter(None, [f"Plan: {plan.summarise()}", plan.describe_time()])),
        request.verbose,
    )
    announce(
        f"  Gaussian process: at most {plan.training.max_epochs} epochs",
        request.verbose,
    )
    return plan


@contextmanager
def keep_on_interrupt(begun: Begun, store: Store, record: Record) -> Iterator[None]:
    """Run the block with threads for its work; on an interrupt store what was learnt so
    far, within seconds.
    """
    first = begun.run.state
    with limit_threads(runs.count_work(begun.run)), flush_denormals(begun.config.dtype):
        try:
            yield
        except KeyboardInterrupt:
            run = begun.run
            now = begun.run.state
            if (
                run.history
                or now.theta is not first.theta
                or now.sums is not first.sums
            ):
                if not begun.trained:
                    monitoring.restore_best(run)
                # no more passes that take long
                run.plan = replace(run.plan, max_seconds=0.0)
                what = f"{'the calibration' if begun.trained else 'training'} was interrupted after {len(run.history)} epochs"
                found: Found = [
                    (f"{what}: the model is what was learnt so far.", UserWarning)
                ]
                store(record()._replace(warnings=tuple(_say(found, stacklevel=6))))
            raise


def warn(begun: Begun, plan: Plan, result: Result, notes: list[str]) -> list[str]:
    """Warn of what the user should know of a fit, and return it."""
    limit = "Training(max_seconds=...)" if plan.time_limit is None else "time_limit="
    found = Found()
    lightest = begun.table.lightest
    repairs = begun.run.guard.repairs
    if lightest < 1 and _matches_whole_rows(begun):
        text = (
            f"rows of weight below 1 (the smallest is {lightest:.3g}) count for too "
            f"little: the factors of this method have no "
            "fractional powers. Probabilities near them are too cautious, "
            "log_marginal_likelihood_ is too large. Use "
            "method='ep', which is right for any weight."
        )
        found.append((text, RuntimeWarning))
    if repairs:
        text = (
            f"{repairs} steps lost their Cholesky factor and were repaired (see "
            f"'repairs' in history_); the fit went on with "
            f"smaller steps. If the result is poor, raise {JITTER} or lower "
            f"learning_rate=."
        )
        found.append((text, RuntimeWarning))
    found += _find_early_end(begun, limit)
    found += [(text, UserWarning) for text in notes]
    found += monitoring.find_failed_checkpoint(begun.run)
    if math.isnan(result.evidence):
        found.append(NO_EVIDENCE)
    return _say(found, stacklevel=5)


def _find_early_end(begun: Begun, limit: str) -> Found:
    """Return a warning if training ended before it converged; `limit`: the argument
    that limits the time.
    """
    from sklearn.exceptions import ConvergenceWarning

    run = begun.run
    plan = begun.plan
    # the library's own plan for mini-batches ends with its last epoch; any other limit
    # is a limit
    if (
        run.converged
        or run.stopped
        or (plan.planned and len(run.history) >= plan.max_epochs)
    ):
        return []
    text = (
        f"training stopped after {len(run.history)} epochs, before the objective "
        f"converged to tol={run.plan.tol:g}: raise max_epochs= or {limit}."
    )
    return [(text, ConvergenceWarning)]


def _matches_whole_rows(begun: Begun) -> bool:
    """Return whether a row of weight below 1 is matched as a whole row.
    [docs/decisions/0008]
    """
    method = build.find_method(begun.config, begun.plan)
    tempers = begun.run.engine.factor.tempers
    return not (method.variational or method.at_mode) and (method.on_f or not tempers)


def _say(found: Found, stacklevel: int) -> list[str]:
    for text, kind in found:
        warnings.warn(text, kind, stacklevel=stacklevel + 1)
    return [text for text, _ in found]
