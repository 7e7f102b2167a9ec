"""How long /health takes while four clients send heavy requests, and how much memory the server needs.

For each kind of body four clients send one request after another, of the largest size that the server accepts, while another client
asks for /health on new connections. Resident memory comes from the operating system, every 20 ms.

    python benchmarks/heavy_requests.py [--seconds 5] [--bytes N]

Goal: the 99 % quantile of /health at most 200 ms, memory at most twice that of the idle server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from serving import resident_mb, save_model, start_server

CLIENTS = 4
GOAL_MS, GOAL_RATIO = 200.0, 2.0


def make_bodies(size: int, X: np.ndarray) -> dict[str, bytes]:
    """Return requests by name, each of about `size` bytes."""

    def fill(start: str, piece: str, end: str) -> bytes:
        return (start + piece * ((size - len(start + end)) // len(piece)) + end).encode()

    keys = ",".join(f'"{i:07}":1' for i in range(size // 12 - 10))
    rows = X[np.arange(min(10_000, size // max(len(json.dumps(x.tolist())) + 2 for x in X) - 1)) % len(X)]
    return {
        "sound rows": json.dumps({"rows": rows.tolist()}).encode(),
        "empty rows": fill('{"rows":[', "[],", "[]]}"),
        "nested row": fill('{"rows":[[', "[],", "[]]]}"),
        "long row": fill('{"rows":[[', "1,", "1]]}"),
        "keys": f'{{"rows":[{{{keys}}}]}}'.encode(),
        "brackets": b"[" * size,
        "spaces": fill('{"rows":[', " ", "1]}"),
        "text": fill('{"rows":["', "\\n", '"]}'),
        "small chunks": fill("", "1\r\n[\r\n", "0\r\n\r\n"),
        "too large": b" " * (2 * size),
    }


def send(port: int, body: bytes, chunked: bool, seconds: float) -> str:
    """Send a request; return the status of the answer, or what went wrong."""
    length = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(body)
    head = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n%s\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), seconds) as line:
            line.sendall(head % length + body)
            return line.recv(1 << 16)[9:12].decode() or "closed"
    except TimeoutError:
        return "slow"
    except OSError:
        return "closed"


def ask_health(port: int) -> float:
    """Return the seconds that /health takes on a new connection."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/health")
    assert connection.getresponse().read()
    connection.close()
    return time.perf_counter() - begun


def measure(
    pid: int, port: int, body: bytes, chunked: bool, seconds: float
) -> tuple[list[float], Counter[str], float]:
    """Return the seconds of /health, the statuses of heavy requests, and the largest resident memory."""
    until, statuses, memory = time.perf_counter() + seconds, Counter[str](), [0.0]

    def load() -> None:
        while time.perf_counter() < until:
            statuses[send(port, body, chunked, 2 * seconds)] += 1

    def watch() -> None:
        while time.perf_counter() < until:
            memory.append(resident_mb(pid))
            time.sleep(0.02)

    threads = [threading.Thread(target=work) for work in (*[load] * CLIENTS, watch)]
    for thread in threads:
        thread.start()
    took = []
    while time.perf_counter() < until:
        took.append(ask_health(port))
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    return took, statuses, max(memory)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--bytes", type=int, default=2 << 20)
    args = parser.parse_args()
    worst, most = 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        _, X = save_model(Path(folder) / "m.cavity", 100)
        with start_server(Path(folder) / "m.cavity") as (pid, port):
            ask_health(port)
            idle = resident_mb(pid)
            print(f"{'body':>14}  requests  median ms  99% ms  max ms  memory MB (idle {idle:.0f})  statuses")
            for name, body in make_bodies(args.bytes, X).items():
                took, statuses, memory = measure(pid, port, body, name == "small chunks", args.seconds)
                median, p99, top = 1e3 * np.percentile(took, [50, 99, 100])
                worst, most = max(worst, p99), max(most, memory)
                print(
                    f"{name:>14} {statuses.total():>9} {median:>10.1f} {p99:>7.1f} {top:>7.1f} {memory:>10.0f}   {dict(statuses)}",
                    flush=True,
                )
    print(f"99 % of /health within {worst:.0f} ms, memory {most / idle:.2f} × idle")
    if worst > GOAL_MS or most > GOAL_RATIO * idle:
        sys.exit("the goal is missed")


if __name__ == "__main__":
    main()
