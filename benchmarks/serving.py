"""Requests per second and latency of `cavity serve`, measured by clients on the same
machine.

`cavity serve` runs in its own process, with a model of scikit-learn's digits (64
features, 10 classes). Clients are threads, each with an open connection; they send rows
for some seconds. Every answer must equal the prediction in Python to 1e-9, whatever
requests shared a block with it. Resident memory comes from the operating system.

Two cases have other clients among those that are timed: `slow`, 100 connections that
send a byte now and then and never finish their requests, and `large`, two clients that
send one request of 10,000 rows after another.

    python benchmarks/serving.py [--quick] [--seconds 5] [--inducing 100] [--others
    slow] [--csv FILE]

Rows go to benchmarks/results/serving.csv, except with --quick (half a second each) or
--others.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

RESULTS = Path(__file__).parent / "results" / "serving.csv"
ROWS = (1, 100)
CLIENTS = (1, 4, 16)
DIFFERENT = 20  # number of different requests
CASES = [
    *product(["none"], ROWS, CLIENTS),
    ("slow", 1, 16),
    ("large", 1, 16),
]
SLOW = 100  # connections that never finish
LARGE = 10_000  # rows of a large request
FIELDS = (
    "others",
    "rows",
    "clients",
    "requests",
    "errors",
    "wrong",
    "per_s",
    "rows_per_s",
    "median_ms",
    "p95_ms",
    "p99_ms",
    "memory_mb",
)


def save_model(path: Path, inducing: int) -> tuple[Any, np.ndarray]:
    """Fit and save a classifier; return it with rows that it has not seen."""
    from sklearn.datasets import load_digits

    from cavity import GPClassifier

    X, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier(n_inducing=inducing, max_epochs=5, random_state=0).fit(
            X[:1000], y[:1000]
        )
    clf.save(path)
    return clf, X[1000:]


@contextlib.contextmanager
def start_server(path: Path, *more: str) -> Iterator[tuple[int, int]]:
    """Run the command; yield its process id and port once it answers."""
    port = find_port()
    command = [
        sys.executable,
        "-m",
        "cavity",
        "serve",
        str(path),
        "--port",
        str(port),
        *more,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(port, process)
            yield process.pid, port
        finally:
            process.terminate()


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int, process: Any, seconds: float = 120) -> None:
    """Wait until the port accepts connections."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 1).close()
        time.sleep(0.1)
    raise SystemExit("the server did not start")


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def send(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
    """Send one request; return status and answer."""
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


class Load:
    """Results of the clients: seconds per request, errors, different answers to each
    request.
    """

    def __init__(self, port: int, bodies: list[bytes]) -> None:
        self.port = port
        self.bodies = bodies
        self.seconds: list[float] = []
        self.answers: list[set[bytes]] = [set() for _ in bodies]
        self.errors = 0

    def client(self, number: int, until: float) -> None:
        """Send requests one after another until a point in time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        turn = number
        while time.perf_counter() < until:
            turn = (turn + 1) % len(self.bodies)
            begun = time.perf_counter()
            try:
                status, answer = send(connection, self.bodies[turn])
            except (OSError, http.client.HTTPException):
                self.errors += 1
                connection.close()
                continue
            self.seconds.append(time.perf_counter() - begun)
            if status == 200:
                self.answers[turn].add(answer)
            self.errors += status != 200
        connection.close()

    def count_wrong(self, expected: list[np.ndarray]) -> int:
        """Count answers that differ from the predictions in Python."""
        pairs = []
        for answers, P in zip(self.answers, expected, strict=True):
            pairs += [(json.loads(answer), P) for answer in answers]
        return sum(
            not np.allclose(found["probabilities"], P, rtol=1e-9, atol=1e-12)
            for found, P in pairs
        )

    def run(self, clients: int, seconds: float) -> float:
        """Run all clients at once; return the seconds that they took."""
        begun = time.perf_counter()
        threads = [
            threading.Thread(target=self.client, args=(i, begun + seconds))
            for i in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun


def send_slowly(port: int, stop: threading.Event) -> None:
    """Hold connections that send a byte now and then; reopen them if the server closes
    them.
    """
    head = (
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    )
    lines: list[socket.socket] = []
    while not stop.wait(0.2):
        while len(lines) < SLOW:
            lines.append(socket.create_connection(("127.0.0.1", port), 10))
            lines[-1].sendall(head)
        for each in list(lines):
            try:
                each.sendall(b" ")
            except OSError:
                lines.remove(each)
                each.close()
    for each in lines:
        each.close()


def send_large(port: int, body: bytes, stop: threading.Event) -> None:
    """Send one large request after another."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    while not stop.is_set():
        status, answer = send(connection, body)
        assert status == 200, answer[:200]


@contextlib.contextmanager
def other_clients(kind: str, port: int, X: np.ndarray) -> Iterator[None]:
    """Run the clients that are not timed."""
    stop = threading.Event()
    work: dict[str, Any] = {
        "none": lambda: None,
        "slow": lambda: send_slowly(port, stop),
        "large": lambda: send_large(
            port, make_body(X[np.arange(LARGE) % len(X)]), stop
        ),
    }
    threads = [
        threading.Thread(target=work[kind]) for _ in range(2 if kind == "large" else 1)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def make_body(rows: np.ndarray) -> bytes:
    return json.dumps({"rows": rows.tolist()}).encode()


def measure(
    clf: Any, X: np.ndarray, path: Path, seconds: float, cases: list[Any]
) -> list[dict[str, Any]]:
    """One row per case."""
    table = []
    with start_server(path) as (pid, port):
        for kind, rows, clients in cases:
            parts = [X[(i * rows + np.arange(rows)) % len(X)] for i in range(DIFFERENT)]
            load = Load(port, [make_body(part) for part in parts])
            with other_clients(kind, port, X):
                load.run(clients, min(1.0, seconds))  # warm up: threads and workspaces
                load.seconds.clear()
                took = load.run(clients, seconds)
            wrong = load.count_wrong([clf.predict_proba(part) for part in parts])
            median, p95, p99 = 1e3 * np.percentile(load.seconds, [50, 95, 99])
            count = len(load.seconds)
            found = (
                kind,
                rows,
                clients,
                count,
                load.errors,
                wrong,
                count / took,
                rows * count / took,
            )
            table.append(
                dict(
                    zip(
                        FIELDS,
                        (*found, median, p95, p99, resident_mb(pid)),
                        strict=True,
                    )
                )
            )
            print(line(table[-1]), flush=True)
    return table


def line(row: dict[str, Any]) -> str:
    """One line of the printed table."""
    widths = dict(zip(FIELDS, (6, 4, 8, 9, 7, 6, 11, 9, 10, 8, 8, 10), strict=True))
    cells = {}
    for name, value in row.items():
        digits = int(name.endswith("_ms"))
        is_real = digits or isinstance(value, float)
        cells[name] = f"{value:.{digits}f}" if is_real else str(value)
    return " ".join(f"{cells[name]:>{width}}" for name, width in widths.items())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="half a second each")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument(
        "--others",
        choices=["none", "slow", "large"],
        help="only cases with these clients",
    )
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    cases = [case for case in CASES if args.others in (None, case[0])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.cavity"
        clf, X = save_model(path, args.inducing)
        print(
            "others rows  clients  requests  errors  wrong  requests/s    rows/s  "
            "median ms   95% ms   99% ms  memory MB"
        )
        table = measure(clf, X, path, 0.5 if args.quick else args.seconds, cases)
    csv_file = args.csv or (None if args.quick or args.others else RESULTS)
    if csv_file is not None:
        with csv_file.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(
                {k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}
                for row in table
            )
        print(f"wrote {csv_file}")
    if any(row["errors"] or row["wrong"] for row in table):
        sys.exit("some requests failed or had wrong answers")


if __name__ == "__main__":
    main()
