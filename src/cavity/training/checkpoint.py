"""Save a run to disk and restore it: the state, the position in the data and the history."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cavity import persist
from cavity._version import __version__
from cavity.distributed import Local
from cavity.errors import BadFile
from cavity.inference import Sites, State
from cavity.posterior import Sums
from cavity.training.callbacks import Callback, Memory, Running
from cavity.training.guard import Guard
from cavity.training.loop import Run

KIND = "checkpoint"


class Checkpoint(Callback):
    """Writes the run every `every` seconds, between two steps or epochs, and at the end of training."""

    every_step = False

    def __init__(self, path: str | Path, every: float, facts: dict[str, Any]) -> None:
        self.path, self.every, self.facts = Path(path), every, facts
        self.last = time.monotonic()

    def step(self, run: Running) -> None:
        if run.plan.batch_size is not None:
            self._save_if_due(run)

    def epoch(self, run: Running, row: dict[str, Any]) -> bool:
        self._save_if_due(run)
        return False

    def _save_if_due(self, run: Running) -> None:
        if run.reduce.agree(time.monotonic() - self.last >= self.every):
            self.save(run)

    def end(self, run: Running) -> None:
        self.save(run)

    def save(self, run: Running) -> None:
        """Write the checkpoint now. With several ranks keep the previous file too: a kill may fall between two ranks' writes."""
        if run.reduce.world > 1 and self.path.exists():
            self.path.replace(_previous(self.path))
        save(run, self.path, self.facts)
        self.last = time.monotonic()


def save(run: Running, path: Path, facts: dict[str, Any]) -> None:
    """Write the run to a file; `facts` say which data and which arguments it belongs to."""
    guard = run.guard
    meta = {
        "version": __version__,
        "facts": facts,
        "history": run.history,
        "seconds": time.perf_counter() - run.started,
        "tally": run.tally,
        "guard": {"repairs": guard.repairs, "caution": guard.caution, "in_a_row": guard.in_a_row},
        "optimiser": len(run.state.optimiser),
        "converged": run.converged,
    }
    memories, tensors = _collect_memories(run)
    tensors |= _flat(run.state) | _rollback_tensors(guard, run.state)
    persist.write(path, KIND, tensors, meta | {"callbacks": memories})


def rank_file(path: str | Path, reduce: Local) -> Path:
    """Return the file of this rank: each rank writes its own sites."""
    path = Path(path)
    if reduce.world == 1:
        return path
    return path.with_name(f"{path.name}.{reduce.rank + 1}-of-{reduce.world}")


def _previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def newest_checkpoint(path: Path, reduce: Local) -> Path | None:
    """Return the file of the latest moment for which every rank has one; None if there is none."""
    mine = {_moment(p): p for p in (_previous(path), path) if p.exists()}
    moments = set.intersection(*(set(m) for m in reduce.gather(list(mine))))
    return mine[max(moments)] if moments else None


def _moment(path: Path) -> tuple[int, int]:
    """Return the number of epochs done, and of batches in the next."""
    tensors = persist.read(path, KIND).tensors
    return int(tensors["epoch"]), int(tensors["position"])


def read_facts(path: str | Path) -> dict[str, Any]:
    """Return the facts of a checkpoint without restoring it."""
    return dict(persist.read(path, KIND).meta["facts"])


def restore_run(run: Run, path: Path, facts: dict[str, Any]) -> None:
    """Restore a run from a checkpoint. Raises BadFile if the checkpoint belongs to another run."""
    tensors, meta = persist.read(path, KIND)
    for name, ours in facts.items():
        theirs = meta["facts"].get(name, ours)
        if theirs != ours:
            raise BadFile(
                f"{path} is the checkpoint of another run: {name} is {theirs!r} there and {ours!r} here. Use the data and "
                "arguments of that run, or resume=False to start a new one."
            )
    run.state = _state(tensors, int(meta["optimiser"]), run.state, path)
    run.history = list(meta["history"])
    run.tally = list(meta["tally"])
    run.started = time.perf_counter() - float(meta["seconds"])
    for name, value in meta["guard"].items():
        setattr(run.guard, name, value)
    _restore_rollback(run, tensors, path)
    _restore_memories(run, meta.get("callbacks", []), tensors, path)
    run.converged = bool(meta.get("converged", False))
    run.resumed = True


def _rollback_tensors(guard: Guard, state: State) -> dict[str, Tensor]:
    """Return what the guard needs to roll back: a step that spoils the state is noticed only in the next one."""
    flat: dict[str, Tensor] = {}
    if guard.good is not None:
        written_in_place = guard.good.sites.tau is state.sites.tau
        kept = {
            n: t for n, t in _flat(guard.good).items() if not (written_in_place and n.startswith("sites."))
        }
        flat |= {f"good.{name}": t.clone() for name, t in kept.items()}
    for index, rows in guard.undo:
        flat |= {"undo.index": index} | {f"undo.{n}": t.clone() for n, t in rows._asdict().items()}
    return flat


def _restore_rollback(run: Run, tensors: dict[str, Tensor], path: Path) -> None:
    good = {name.removeprefix("good."): t for name, t in tensors.items() if name.startswith("good.")}
    if good:
        present = _flat(run.state) | good
        run.guard.good = _state(present, len(run.state.optimiser), run.state, path)
        if "sites.tau" not in good:
            run.guard.good = run.guard.good._replace(sites=run.state.sites)
    if "undo.index" in tensors:
        device = run.state.theta.device
        rows = Sites(*(tensors[f"undo.{name}"].to(device) for name in Sites._fields))
        run.guard.undo = [(tensors["undo.index"].to(device), rows)]


def _collect_memories(run: Running) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Return what the callbacks remember: JSON values, and the tensors of their states."""
    facts: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for callback in run.callbacks:
        memory = callback.memory()
        if memory is None:
            continue
        if memory.state is not None:
            tensors |= {f"callback.{len(facts)}.{n}": t.clone() for n, t in _flat(memory.state).items()}
        facts.append({"kind": type(callback).__name__, "facts": memory.facts})
    return facts, tensors


def _restore_memories(
    run: Run, memories: list[dict[str, Any]], tensors: dict[str, Tensor], path: Path
) -> None:
    """Give each callback the memory of its class, in the order in which the callbacks were passed."""
    left = list(enumerate(memories))
    for callback in run.callbacks:
        kind = type(callback).__name__
        found = next((m for m in left if m[1]["kind"] == kind), None) if callback.memory() else None
        if found is None:
            continue
        left.remove(found)
        head = f"callback.{found[0]}."
        flat = {name.removeprefix(head): t for name, t in tensors.items() if name.startswith(head)}
        state = _state(flat, len(run.state.optimiser), run.state, path) if flat else None
        callback.recall(Memory(found[1]["facts"], state))


def _flat(state: State) -> dict[str, Tensor]:
    flat: dict[str, Tensor] = {}
    for name, value in state._asdict().items():
        if isinstance(value, Tensor):
            flat[name] = value
        else:
            names = getattr(value, "_fields", range(len(value)))
            flat |= {f"{name}.{part}": t for part, t in zip(names, value, strict=True)}
    return flat


def _state(tensors: dict[str, Tensor], n_optimiser: int, like: State, path: Path) -> State:
    parts: dict[str, Any] = {}
    try:
        for name, value in like._asdict().items():
            if isinstance(value, Tensor):
                parts[name] = tensors[name].to(value.device)
        device = like.theta.device
        parts["sites"] = Sites(*(tensors[f"sites.{name}"].to(device) for name in Sites._fields))
        parts["sums"] = Sums(*(tensors[f"sums.{name}"].to(device) for name in Sums._fields))
        parts["optimiser"] = tuple(tensors[f"optimiser.{i}"].to(device) for i in range(n_optimiser))
    except KeyError as error:
        raise BadFile(f"{path} lacks {error}: it is not a complete checkpoint.") from None
    state = State(**parts)
    wrong = [n for n, t in _flat(state).items() if n in _flat(like) and t.shape != _flat(like)[n].shape]
    if wrong:
        raise BadFile(f"{path} does not fit this run: another shape of {', '.join(wrong)}.")
    return state


def digest(*arrays: Any) -> str:
    """Return a fingerprint of the rows, from a strided sample of about ten thousand."""
    hasher = hashlib.blake2b(digest_size=16)
    for array in arrays:
        step = max(1, len(array) // 10_000)
        hasher.update(np.ascontiguousarray(array[::step]).tobytes())
    return hasher.hexdigest()
