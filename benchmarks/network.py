"""Two nodes on one machine: network namespaces with a host name each and a link of a given delay and rate between them.

The link is a pair of virtual devices with `tc netem` where the kernel has it. Elsewhere it is a stand-in in user space: a thread
that carries packets between two TUN devices, and delays each of them as netem would (time on the wire at the given rate, then
the delay). Both need root, and `ip` of iproute2.

    from network import Nodes

    with Nodes(delay_ms=1, mbit=1000) as nodes:
        processes = [nodes.start(i, ["torchrun", "--nnodes=2", ...]) for i in (0, 1)]
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import select
import shutil
import struct
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TUN, TUNSETIFF, IFF_TUN, IFF_NO_PI = "/dev/net/tun", 0x400454CA, 0x0001, 0x1000
MTU = 65_000  # few packets: the stand-in handles about 20,000 in a second
URGENT = -15  # priority of the thread that carries packets, which stands for hardware


def find_obstacle() -> str | None:
    """Return why nodes cannot be made here, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"there is no command {tool}"
    if run("ip", "netns", "add", "cavity-probe").returncode:
        return "the kernel or the container does not allow network namespaces"
    try:
        if not has_netem("cavity-probe") and not os.access(TUN, os.R_OK | os.W_OK):
            return f"the kernel has neither netem nor {TUN}"
    finally:
        run("ip", "netns", "del", "cavity-probe")
    return None


def run(*command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command and keep its output."""
    return subprocess.run(command, capture_output=True, text=True, check=check)


def has_netem(space: str) -> bool:
    """Return whether the kernel has `tc netem`."""
    if shutil.which("tc") is None:
        return False
    inside = ("ip", "netns", "exec", space, "tc", "qdisc")
    works = run(*inside, "add", "dev", "lo", "root", "netem", "delay", "1ms").returncode == 0
    if works:
        run(*inside, "del", "dev", "lo", "root")
    return works


class Nodes:
    """Two network namespaces, `node0` and `node1`, and the link between them. Use as a context manager."""

    def __init__(self, delay_ms: float, mbit: float) -> None:
        self.delay_ms, self.mbit = delay_ms, mbit
        self.names = [f"cavity-{os.getpid()}-{i}" for i in (0, 1)]
        self.addresses = ["10.77.0.1", "10.77.0.2"]
        self.processes: list[subprocess.Popen[str]] = []
        self.wire: Wire | None = None

    def __enter__(self) -> Self:
        try:
            for name in self.names:
                run("ip", "netns", "add", name, check=True)
                run("ip", "-n", name, "link", "set", "lo", "up", check=True)
                hosts = Path("/etc/netns") / name / "hosts"
                hosts.parent.mkdir(parents=True, exist_ok=True)
                lines = [f"{a} node{j}" for j, a in enumerate(self.addresses)]
                hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and remove the link and the namespaces."""
        for process in self.processes:
            self.kill(process)
        if self.wire is not None:
            self.wire.close()
        for name in self.names:
            run("ip", "netns", "del", name)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)

    def start(
        self, node: int, command: list[str], core: int | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """Start a command on a node, in a session of its own; `core` pins it and its children to one core."""
        name = f"hostname node{node}; exec ip netns exec {self.names[node]} "
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        shell = ["unshare", "--uts", "sh", "-c", name + '"$@"', "sh", *pinned, *command]
        process = subprocess.Popen(shell, start_new_session=True, text=True, **more)
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a command and its children, as a node that loses power would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        # torchrun gives every rank a session of its own
        node = next((i for i, name in enumerate(self.names) if name in " ".join(process.args)), None)  # type: ignore[arg-type]
        if node is not None:
            for pid in run("ip", "netns", "pids", self.names[node]).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        process.wait()

    @property
    def kind(self) -> str:
        """How the link is made: "netem" or "user space"."""
        return "netem" if self.wire is None else "user space"

    def _connect(self) -> None:
        a, b = self.names
        devices = [f"cv{os.getpid() % 10**6}{end}" for end in "ab"]
        if has_netem(a):
            ends = ["ip", "link", "add", devices[0], "netns", a, "type", "veth", "peer", "name", devices[1]]
            run(*ends, "netns", b, check=True)
        else:
            self.wire = Wire(devices, self.names, self.delay_ms / 1e3, self.mbit * 1e6)
        for i, (name, device) in enumerate(zip(self.names, devices, strict=True)):
            inside = ("ip", "-n", name)
            peer = self.addresses[1 - i]
            run(*inside, "addr", "add", f"{self.addresses[i]}/32", "peer", peer, "dev", device, check=True)
            if self.wire is not None:
                run(*inside, "link", "set", device, "mtu", str(MTU), check=True)
            run(*inside, "link", "set", device, "up", check=True)
            if self.wire is None:
                shape = ["delay", f"{self.delay_ms}ms", "rate", f"{self.mbit}mbit", "limit", "100000"]
                tc = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, "root", "netem"]
                run(*tc, *shape, check=True)


class Wire:
    """Carries packets between two TUN devices with a delay and a rate, in a thread."""

    def __init__(self, devices: list[str], spaces: list[str], delay: float, bits_per_second: float) -> None:
        self.delay, self.rate = delay, bits_per_second
        self.ends: list[int] = []
        for device, space in zip(devices, spaces, strict=True):
            end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
            self.ends.append(end)
            run("ip", "link", "set", device, "netns", space, check=True)
        self.stop, self.stopped = os.pipe()
        self.thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop the thread and remove the devices."""
        os.write(self.stopped, b"x")
        self.thread.join()
        for end in (*self.ends, self.stop, self.stopped):
            os.close(end)

    def _carry(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), URGENT)
        waiting: list[tuple[float, int, int, bytes]] = []  # time of arrival, order, destination, packet
        free, count = {end: 0.0 for end in self.ends}, 0  # when the last packet has left
        other = dict(zip(self.ends, self.ends[::-1], strict=True))
        while True:
            until = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready = select.select([*self.ends, self.stop], [], [], until)[0]
            if self.stop in ready:
                return
            for end in ready:
                with contextlib.suppress(BlockingIOError, OSError):
                    while packet := os.read(end, 1 << 17):
                        free[end] = max(time.monotonic(), free[end]) + 8 * len(packet) / self.rate
                        heapq.heappush(waiting, (free[end] + self.delay, count, other[end], packet))
                        count += 1
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):
                    os.write(end, packet)
