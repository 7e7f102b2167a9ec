"""Two nodes on one machine: network namespaces with a host name each and a link between
them. Needs root and `ip` of iproute2.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

ADDRESSES = ("10.77.0.1", "10.77.0.2")


def run(*command, check=False):
    return subprocess.run(command, capture_output=True, text=True, check=check)


def find_obstacle():
    """Return why nodes cannot be made here, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"there is no command {missing[0]}"
    try:
        with Nodes():
            return None
    except subprocess.CalledProcessError as error:
        return f"the kernel or the container does not allow it: {error.stderr.strip()}"


class Nodes:
    """The nodes `node0` and `node1`."""

    def __init__(self):
        self.names = [f"cavity-{os.getpid()}-{i}" for i in (0, 1)]
        self.processes = []

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.__exit__)
            for name in self.names:
                run("ip", "netns", "add", name, check=True)
                hosts = Path("/etc/netns") / name / "hosts"
                hosts.parent.mkdir(parents=True, exist_ok=True)
                hosts.write_text(
                    "127.0.0.1 localhost\n"
                    + "".join(f"{a} node{j}\n" for j, a in enumerate(ADDRESSES))
                )
            a, b = self.names
            run(
                *f"ip link add veth0 netns {a} type veth peer name veth0 netns {b}".split(),
                check=True,
            )
            for name, own, peer in zip(
                self.names, ADDRESSES, ADDRESSES[::-1], strict=True
            ):
                run(
                    "ip",
                    "-n",
                    name,
                    "addr",
                    "add",
                    f"{own}/32",
                    "peer",
                    peer,
                    "dev",
                    "veth0",
                    check=True,
                )
                for device in ("lo", "veth0"):
                    run("ip", "-n", name, "link", "set", device, "up", check=True)
            undo.pop_all()
        return self

    def __exit__(self, *_):
        """End all processes, and remove the namespaces and with them the link."""
        for process in self.processes:
            self.kill(process)
        for name in self.names:
            run("ip", "netns", "del", name)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)

    def start(self, node, command, **more):
        """Start a command on a node, in a session of its own."""
        shell = f'hostname node{node}; exec ip netns exec {self.names[node]} "$@"'
        process = subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", shell, "sh", *command],
            start_new_session=True,
            text=True,
            **more,
        )
        process.node = node
        self.processes.append(process)
        return process

    def kill(self, process):
        """Kill a command and its children, as a node that loses power would; torchrun's
        ranks have sessions of their own.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        for pid in run("ip", "netns", "pids", self.names[process.node]).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        process.wait()
