"""Callbacks of scikit-learn (`set_callbacks`, 1.9 and later) follow a fit: the fit is a task, each epoch a subtask."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Self

from cavity.fitting.partial_fit import available_if
from cavity.fitting.results import Result
from cavity.options import Plan
from cavity.prediction.model import copy_engine
from cavity.rows.tables import Request
from cavity.training.callbacks import Callback, Running
from cavity.training.loop import Run

Record = Callable[[Run], Result]


class CallbackSupport:
    """What `sklearn.callback.CallbackSupportMixin` gives an estimator. That module, and rich with it, is imported when used."""

    @available_if(
        lambda self: None if find_spec("sklearn.callback") else "set_callbacks needs scikit-learn 1.9."
    )
    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set callbacks of scikit-learn, such as `ProgressBar`: the fit is a task, each epoch a subtask. Needs 1.9 or newer.

        Parameters
        ----------
        *callbacks : objects with the methods of `sklearn.callback.FitCallback`
            They replace those set before. One that returns True at the end of an epoch stops training.

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator itself.
        """
        from sklearn.callback import CallbackSupportMixin

        CallbackSupportMixin.set_callbacks(self, *callbacks)
        return self


class Epochs(Callback):
    """Open a task when an epoch begins, close it when the epoch ends; a callback that returns True stops training."""

    every_step = False

    def __init__(self, context: Any, record: Record, told: dict[str, Any]) -> None:
        self.context, self.record, self.told = context, record, told
        self.task: Any = None

    def start(self, run: Running) -> None:
        if self.task is None:
            self.task = self.context.subcontext("epoch").call_on_fit_task_begin(**self.told)

    step = start  # the next epoch has begun

    def epoch(self, run: Running, row: dict[str, Any]) -> bool:
        self.start(run)
        task, self.task = self.task, None
        return bool(
            task.call_on_fit_task_end(**self.told, reconstruction_attributes=lambda: self._fit_so_far(run))
        )

    def end(self, run: Running) -> None:
        if self.task is not None:
            self.task.call_on_fit_task_end(**self.told)

    def _fit_so_far(self, run: Any) -> dict[str, Any]:
        """Return the fitted attributes as if training had ended here. The run stays untouched."""
        shadow, made = copy.copy(run), copy.copy(self.told["estimator"])
        shadow.engine = copy_engine(run.engine)
        made._store(self.record(shadow))
        return dict(vars(made))


@contextmanager
def tell_callbacks(
    estimator: CallbackSupport, request: Request, run: Run, plan: Plan, record: Record
) -> Iterator[None]:
    """Tell the callbacks of an estimator, if it has any, how a run goes; `record` returns what the fit leaves at a run."""
    if not getattr(estimator, "_skl_callbacks", ()):
        yield
        return
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    weight, epochs = request.sample_weight, plan.training.max_epochs
    told = {"estimator": estimator, "X": request.X, "y": request.y}
    told["metadata"] = None if weight is None else {"sample_weight": weight}
    try:
        context = CallbackSupportMixin._init_callback_context(estimator, max_subtasks=epochs)
        context.call_on_fit_task_begin(**told)
        run.callbacks = (Epochs(context, record, told), *run.callbacks)
        yield
        context.call_on_fit_task_end(**told, reconstruction_attributes={})
    finally:
        with_callbacks(lambda estimator: None)(estimator)  # tears the callbacks down
