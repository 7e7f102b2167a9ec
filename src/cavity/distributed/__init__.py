"""Summing over processes: a single process is the same code with a sum that does nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist

T = TypeVar("T", bound=tuple[Any, ...])


class Local:
    """One process: the sum over ranks is what this rank has."""

    rank, world = 0, 1

    def sum(self, totals: T) -> T:
        """Sum every tensor of `totals` over the ranks."""
        return totals

    def agree(self, flag: bool) -> bool:
        """Whether any rank says so: clocks differ, and a rank that stops alone would leave the others waiting."""
        return flag

    def gather(self, value: Any) -> list[Any]:
        """A small Python value of every rank, in their order."""
        return [value]

    def in_turn(self, value: Any) -> Iterator[Any]:
        """A Python value of every rank, one after another: a large one need not be there with all the others."""
        yield value

    def first(self, make: Any) -> Any:
        """What `make()` gives on rank 0, on every rank."""
        return make()


class Group(Local):
    """torch.distributed's default process group: gloo on CPUs, NCCL on GPUs; one all-reduce a sum."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = own_gpu() if dist.get_backend() == "nccl" else torch.device("cpu")

    def sum(self, totals: T) -> T:
        buffer = torch.cat([t.reshape(-1).to(torch.float64) for t in totals])
        shared = buffer.to(self.device)
        dist.all_reduce(shared)
        parts = torch.split(shared.to(buffer.device), [t.numel() for t in totals])
        summed = (p.reshape(t.shape).to(t.dtype) for p, t in zip(parts, totals, strict=True))
        return type(totals)(*summed)

    def agree(self, flag: bool) -> bool:
        votes: Tensor = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes)

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def in_turn(self, value: Any) -> Iterator[Any]:
        for rank in range(self.world):
            box = [value if rank == self.rank else None]
            dist.broadcast_object_list(box, src=rank)
            yield box[0]

    def first(self, make: Any) -> Any:
        box = [make() if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def own_gpu() -> torch.device:
    """The GPU of this rank, from now on the current one, where NCCL and objects on their way go: torchrun says which."""
    if "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def current() -> Local:
    """The process group that this process belongs to, if it is one of several ranks."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Group()
    return Local()


def join(backend: str | None = None) -> Local:
    """Join the process group that torchrun's environment describes, unless there is none or one is joined already.

    Prefer it to `init_process_group` in runs that torchrun may restart: torchrun keeps its store over restarts, and the addresses
    of the dead ranks in it, to which the new ones would connect. `backend` is "nccl" where every rank has a GPU, otherwise "gloo".
    """
    if "RANK" not in os.environ or dist.is_initialized():
        return current()
    if backend is None:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        backend = "nccl" if dist.is_nccl_available() and torch.cuda.device_count() >= here else "gloo"
    if backend == "nccl":
        own_gpu()
    store, rank, world = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    fresh = dist.PrefixStore(_attempt(store, rank, world), store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=fresh, rank=rank, world_size=world)
    return current()


def leave() -> None:
    """Leave the process group, if this process is in one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _attempt(store: Any, rank: int, world: int) -> str:
    """A name that the ranks of this attempt share and none before it had.

    Rank 0 answers whoever is there, by a name of their own, until everyone has its answer; what dead ranks left is answered
    in vain.
    """
    me = uuid4().hex
    if rank > 0:
        store.set(f"cavity/here/{rank}", me)
        name = store.get(f"cavity/answer/{me}").decode()
        store.set(f"cavity/heard/{name}/{rank}", me)
        return str(name)
    missing = set(range(1, world))
    while missing:
        for other in sorted(missing):
            if store.check([f"cavity/here/{other}"]):
                store.set(f"cavity/answer/{store.get(f'cavity/here/{other}').decode()}", me)
            if store.check([f"cavity/heard/{me}/{other}"]):
                missing.discard(other)
        time.sleep(0.01)
    return me
