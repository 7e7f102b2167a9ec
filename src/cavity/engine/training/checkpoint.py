"""Save and restore a run: the state, the position in the data and the history."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from cavity.common import tensor_files
from cavity.common.ranks import Local
from cavity.common.version import __version__
from cavity.engine.inference import State
from cavity.engine.inference.state import map_tensors
from cavity.engine.training.callbacks import Callback, EarlyStopping, Running
from cavity.engine.training.loop import Run
from cavity.errors import BadFile, CavityError

KIND = "checkpoint"
BEST = "best."  # prefix of the tensors of early stopping's best state


class Checkpoint(Callback):
    """Write the run every `every` seconds and at the end of training.

    A write that fails warns, and is tried again later.
    """

    def __init__(self, path: Path, every: float, facts: dict[str, Any]) -> None:
        self.path = Path(path)
        self.every = every
        self.facts = facts
        self.last = time.monotonic()
        self.problem: str | None = None  # why the latest write failed

    def step(self, run: Running) -> None:
        if run.plan.batch_size is not None:
            self._save_if_due(run)

    def epoch(self, run: Running, row: dict[str, Any]) -> bool:
        self._save_if_due(run)
        return False

    def _save_if_due(self, run: Running) -> None:
        if run.reduce.agree(time.monotonic() - self.last >= self.every):
            self.end(run)

    def end(self, run: Running) -> None:
        """Write the checkpoint now, or warn.

        With several ranks a new file replaces the last one when every rank has written
        its own. The last one stays as well: a kill may fall between two ranks' renames.
        """
        several = run.reduce.world > 1
        fresh = self.path
        if several:
            fresh = _add_ending(self.path, ".next")

        self.problem = _try(lambda: save(run, fresh, self.facts))
        if several:
            failed = run.reduce.agree(self.problem is not None)
            if not failed:
                self.problem = _try(lambda: self._replace(fresh))
            elif self.problem is None:
                self.problem = (
                    f"{self.path} was not written, because another rank could not "
                    "write its own."
                )

            if self.problem:
                _try(lambda: fresh.unlink(missing_ok=True))

        self.last = time.monotonic()
        if self.problem:
            again = f"Training goes on, and tries again in {self.every:g} s."
            warnings.warn(
                f"the checkpoint failed: {self.problem} {again}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _replace(self, fresh: Path) -> None:
        if self.path.exists():
            self.path.replace(_previous(self.path))
        fresh.replace(self.path)


def _try(work: Callable[[], Any]) -> str | None:
    try:
        work()
    except (CavityError, OSError, MemoryError) as error:
        return str(error) or type(error).__name__

    return None


def save(run: Running, path: Path, facts: dict[str, Any]) -> None:
    """Write the run to a file.

    `facts`: the data and the arguments that it belongs to.
    """
    guard = run.guard
    meta = {
        "version": __version__,
        "facts": facts,
        "history": run.history,
        "seconds": time.perf_counter() - run.started,
        "tally": run.tally,
        "guard": [guard.repairs, guard.caution, guard.in_a_row],
        "converged": run.converged,
        "moment": [int(run.state.epoch), int(run.state.position)],
    }
    tensors = _flat(run.state)
    stopping = _find_early_stopping(run)
    if stopping is not None and stopping.state is not None:
        meta["early_stopping"] = [stopping.best, stopping.since]
        tensors |= {f"{BEST}{name}": t for name, t in _flat(stopping.state).items()}
    tensor_files.write(path, KIND, tensors, meta)


def name_rank_file(path: Path, reduce: Local) -> Path:
    """Return the file of this rank: each rank writes its own sites."""
    path = Path(path)
    if reduce.world == 1:
        return path

    return _add_ending(path, f".{reduce.rank + 1}-of-{reduce.world}")


def _previous(path: Path) -> Path:
    return _add_ending(path, ".previous")


def _add_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def find_newest_checkpoint(path: Path, reduce: Local) -> Path | None:
    """Return the file of the latest moment that every rank has saved, or None."""
    mine = {_moment(p): p for p in (_previous(path), path) if _exists(p)}
    moments = set.intersection(*(set(m) for m in reduce.gather(list(mine))))
    if not moments:
        return None

    return mine[max(moments)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:  # an unreadable folder, an impossible name
        reason = getattr(error, "strerror", None) or error
        raise BadFile(f"{path} cannot be read: {reason}.") from error


def _moment(path: Path) -> tuple[int, int]:
    """Return the number of epochs done, and of batches in the next."""
    with _explain_damage(path):
        epoch, position = tensor_files.read_meta(path, KIND)["moment"]
        return int(epoch), int(position)


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    """Raise BadFile for whatever meaningless contents cause."""
    try:
        yield
    except CavityError:
        raise
    except tensor_files.DAMAGE as error:
        kind = type(error).__name__
        raise BadFile(f"{path} is damaged: {kind} {error!s:.200}.") from error


def read_facts(path: Path) -> dict[str, Any]:
    with _explain_damage(path):
        return dict(tensor_files.read_meta(path, KIND)["facts"])


def read_seed(path: Path) -> int:
    seed = read_facts(path).get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise BadFile(f"{path} is damaged: its seed is {seed!r:.40}.")

    return seed


def restore_run(run: Run, path: Path, facts: dict[str, Any]) -> None:
    """Restore a run from a checkpoint.

    Raises BadFile if it is damaged or belongs to another run.
    """
    with _explain_damage(path):
        tensors, meta, _ = tensor_files.read(path, KIND)
        _check_facts(meta["facts"], facts, path)
        run.state = _state(tensors, run.state, path)
        run.history = list(meta["history"])
        run.tally = list(meta["tally"])
        run.started = time.perf_counter() - float(meta["seconds"])
        repairs, caution, in_a_row = meta["guard"]
        run.guard.repairs = int(repairs)
        run.guard.caution = float(caution)
        run.guard.in_a_row = int(in_a_row)
        stopping = _find_early_stopping(run)
        kept = meta.get("early_stopping")
        if stopping is not None and kept is not None:
            names = [name for name in tensors if name.startswith(BEST)]
            best = {name.removeprefix(BEST): tensors[name] for name in names}
            stopping.best = float(kept[0])
            stopping.since = int(kept[1])
            stopping.state = _state(best, run.state, path)

        run.converged = bool(meta["converged"])
        run.resumed = True


def _check_facts(theirs: dict[str, Any], ours: dict[str, Any], path: Path) -> None:
    """Refuse the checkpoint of another run."""
    for name, value in ours.items():
        found = theirs.get(name, value)
        if found != value:
            raise BadFile(
                f"{path} is the checkpoint of another run: {name} is {found!r:.200} "
                f"there and {value!r:.200} here. Use the data "
                "and arguments of that run, or resume=False to start a new one."
            )


def _find_early_stopping(run: Running) -> EarlyStopping | None:
    return next((c for c in run.callbacks if isinstance(c, EarlyStopping)), None)


def _flat(state: State) -> dict[str, Tensor]:
    flat: dict[str, Tensor] = {}
    for name, value in state._asdict().items():
        if isinstance(value, Tensor):
            flat[name] = value
        else:
            names = getattr(value, "_fields", range(len(value)))
            flat |= {f"{name}.{part}": t for part, t in zip(names, value, strict=True)}

    return flat


def _state(tensors: dict[str, Tensor], like: State, path: Path) -> State:
    """Return a state of these tensors, with the shapes and device of another one."""
    expected = _flat(like)
    found = {name: t.shape for name, t in tensors.items()}
    wrong = [name for name, t in expected.items() if found.get(name) != t.shape]
    if wrong:
        raise BadFile(
            f"{path} does not fit this run: {', '.join(wrong)} are missing or have "
            "another shape."
        )

    names = iter(expected)
    state: State = map_tensors(lambda t: tensors[next(names)].to(t.device), like)
    return state
