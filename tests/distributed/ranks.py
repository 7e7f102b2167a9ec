"""Ranks forked from a process that has imported torch already: a start takes
milliseconds.
"""

import os
import socket

from cavity import distributed
from chaos.children import Child


def as_rank(rank, world, port, work, *arguments):
    """Join the others and call a function."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.join("gloo", timeout=60)
    found = work(*arguments)
    distributed.leave()
    return found


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(work, *arguments):
    """What a function returns on each of two ranks."""
    port = find_port()
    ranks = [Child(as_rank, rank, 2, port, work, *arguments) for rank in range(2)]
    try:
        ends = [rank.wait() for rank in ranks]
    finally:
        for rank in ranks:
            if rank.process.is_alive():
                rank.kill()
    assert [end.kind for end in ends] == ["value"] * 2, ends
    return [end.value for end in ends]
