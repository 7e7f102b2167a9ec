"""Process groups of torch.distributed: joining, leaving, and sums over ranks."""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist

from cavity.common.ranks import Local
from cavity.errors import BadOption, LostRank

__all__ = ["join", "leave"]

T = TypeVar("T", bound=tuple[Any, ...])
TIMEOUT = 300.0  # seconds to wait for other ranks


class ProcessGroup(Local):
    """Default process group of torch.distributed, with one all-reduce per sum."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        if dist.get_backend() == "nccl":
            self.device = select_gpu()
        else:
            self.device = torch.device("cpu")

    def sum(self, totals: T) -> T:
        buffer = torch.cat([t.reshape(-1).to(torch.float64) for t in totals])
        shared = buffer.to(self.device)
        self._call(dist.all_reduce, shared)
        parts = torch.split(shared.to(buffer.device), [t.numel() for t in totals])
        both = zip(parts, totals, strict=True)
        return type(totals)(*(p.reshape(t.shape).to(t.dtype) for p, t in both))

    def agree(self, flag: bool) -> bool:
        votes: Tensor = torch.tensor(float(flag), device=self.device)
        self._call(dist.all_reduce, votes, dist.ReduceOp.MAX)
        return bool(votes)

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world
        self._call(dist.all_gather_object, values, value)
        return values

    def in_turn(self, value: Any) -> Iterator[Any]:
        for rank in range(self.world):
            yield self._send(value, rank)

    def first(self, make: Any) -> Any:
        return self._send(make() if self.rank == 0 else None, 0)

    def _send(self, value: Any, rank: int) -> Any:
        """Send the value of one rank to every rank."""
        box = [value if rank == self.rank else None]
        self._call(dist.broadcast_object_list, box, rank)
        return box[0]

    def _call(self, communicate: Callable[..., Any], *given: Any) -> None:
        """Communicate.

        Raises LostRank if that fails or takes longer than the group's timeout; NCCL
        ends the process instead. Before it raises, this rank leaves the group, so that
        ranks that wait for it notice.
        """
        try:
            communicate(*given)
        except RuntimeError as error:
            with suppress(RuntimeError):
                leave()
            raise LostRank(
                f"rank {self.rank} of {self.world} lost another rank, which was "
                f"stopped, has died or is busy ({_first_line(error):.120}). "
                "Start the ranks again, with checkpoint= and resume=True to go on; "
                "distributed.join(timeout=) sets how long ranks wait."
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def select_gpu() -> torch.device:
    """Make the GPU that torchrun assigns to this rank the current one, and return it.

    NCCL uses the current one.
    """
    if "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def current() -> Local:
    """Return the group of this process: a `ProcessGroup` if there are several ranks."""
    if _has_joined() and dist.get_world_size() > 1:
        return ProcessGroup()

    return Local()


def _has_joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def join(backend: str | None = None, timeout: float = TIMEOUT) -> Local:
    """Join the process group that torchrun describes in the environment.

    Without torchrun, or after a group was joined, this only returns the current group.
    Prefer it to `torch.distributed.init_process_group` if torchrun may restart the run:
    torchrun keeps the addresses of dead ranks in its store, and new ranks would connect
    to them.

    Parameters
    ----------
    backend : {"nccl", "gloo"}, optional
        Backend, by default "nccl" if every rank has a GPU, else "gloo".
    timeout : float
        Seconds that a rank waits for the others in one communication. Then it raises
        `cavity.errors.LostRank`; NCCL ends the process instead. A rank that dies closes
        its connections, so the others notice it at once.

    Returns
    -------
    Local
        The group, as from `current`.

    Examples
    --------
    >>> from cavity import distributed
    >>> distributed.join().rank
    0
    >>> distributed.leave()
    """
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < 1e8:
        raise BadOption(f"timeout={timeout!r} must be a positive number of seconds.")
    if "RANK" not in os.environ or dist.is_initialized():
        return current()

    if backend is None:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        backend = "gloo"
        if dist.is_nccl_available() and torch.cuda.device_count() >= here:
            backend = "nccl"

    if backend == "nccl":
        select_gpu()
    patience = timedelta(seconds=timeout)
    try:
        meet: Any = dist.rendezvous  # type: ignore[attr-defined]
        store, rank, world = next(meet("env://", timeout=patience))
        prefix = _agree_on_prefix(store, rank, world, timeout)
        fresh = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        dist.init_process_group(
            backend, store=fresh, rank=rank, world_size=world, timeout=patience
        )
    except dist.DistError as error:
        raise LostRank(
            f"the ranks did not find each other within {timeout:g} s: "
            f"{_first_line(error):.200}"
        ) from error

    return current()


@functools.cache
def warn_unjoined() -> None:
    """Warn once per process if torchrun started several that have not joined."""
    world = os.environ.get("WORLD_SIZE", "")
    several = "RANK" in os.environ and world.isdecimal() and int(world) > 1
    if several and not _has_joined():
        warnings.warn(
            f"torchrun started {world} processes, but this one has not joined the "
            f"others: each of the {world} processes fits a model of its own, on the "
            "rows that it is given. Call cavity.distributed.join() before fit to fit "
            "one model together.",
            UserWarning,
            stacklevel=2,
        )


def leave() -> None:
    """Leave the process group, if this process has joined one.

    Examples
    --------
    >>> from cavity import distributed
    >>> distributed.leave()
    """
    if _has_joined():
        dist.destroy_process_group()


def _agree_on_prefix(
    store: Any, rank: int, world: int, timeout: float = TIMEOUT
) -> str:
    """Agree on a key prefix that is unique to this start of the ranks.

    Every rank announces itself with a unique name, and rank 0 answers to that name
    until all ranks have confirmed. Answers to dead ranks are never read.
    """
    me = uuid4().hex
    if rank > 0:
        store.set(f"cavity/here/{rank}", me)
        name = store.get(f"cavity/answer/{me}").decode()
        store.set(f"cavity/heard/{name}/{rank}", me)
        return str(name)

    missing = set(range(1, world))
    until = time.monotonic() + timeout
    while missing:
        if time.monotonic() > until:
            who = ", ".join(map(str, sorted(missing)))
            raise LostRank(
                f"rank {who} of {world} did not start within {timeout:g} s: see what "
                "it printed."
            )

        for other in sorted(missing):
            here = f"cavity/here/{other}"
            if store.check([here]):
                store.set(f"cavity/answer/{store.get(here).decode()}", me)
            if store.check([f"cavity/heard/{me}/{other}"]):
                missing.discard(other)

        time.sleep(0.01)

    return me
