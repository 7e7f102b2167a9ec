"""Requests per second and latency of `cavity serve`, measured by clients on the same machine.

`cavity serve` runs in its own process, with a model of scikit-learn's digits (64 features, 10 classes). Clients are threads, each
with an open connection; they send rows for some seconds. Every answer must equal, byte for byte, the one that the server gave to
the same rows before the load, and that one must equal the prediction in Python. Resident memory comes from the operating system.

    python benchmarks/serving.py [--quick] [--seconds 5] [--inducing 100] [--csv FILE]

Rows go to benchmarks/results/serving.csv, except with --quick (half a second each).
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
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

RESULTS = Path(__file__).parent / "results" / "serving.csv"
ROWS, CLIENTS = (1, 100), (1, 4, 16)
DIFFERENT = 20  # number of different requests
FIELDS = "rows clients requests errors wrong per_s rows_per_s median_ms p95_ms p99_ms memory_mb".split()


def save_model(path: Path, inducing: int) -> tuple[Any, np.ndarray]:
    """Fit and save a classifier; return it with rows that it has not seen."""
    from sklearn.datasets import load_digits

    from cavity import GPClassifier

    X, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier(n_inducing=inducing, max_epochs=5, random_state=0).fit(X[:1000], y[:1000])
    clf.save(path)
    return clf, X[1000:]


@contextlib.contextmanager
def start_server(path: Path) -> Iterator[tuple[int, int]]:
    """Run the command; yield its process id and port once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cavity", "serve", str(path), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            yield process.pid, port
        finally:
            process.terminate()


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
    """Results of the clients: seconds per request, errors, wrong answers."""

    def __init__(self, port: int, bodies: list[bytes], expected: list[bytes]) -> None:
        self.port, self.bodies, self.expected = port, bodies, expected
        self.seconds: list[float] = []
        self.errors = self.wrong = 0

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
            self.errors += status != 200
            self.wrong += answer != self.expected[turn]
        connection.close()

    def run(self, clients: int, seconds: float) -> float:
        """Run all clients at once; return the seconds that they took."""
        begun = time.perf_counter()
        threads = [threading.Thread(target=self.client, args=(i, begun + seconds)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun


def make_requests(clf: Any, X: np.ndarray, rows: int, port: int) -> tuple[list[bytes], list[bytes]]:
    """Bodies of requests and their answers without load, which must equal the predictions of the model."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    bodies, answers = [], []
    for i in range(DIFFERENT):
        part = X[(i * rows + np.arange(rows)) % len(X)]
        bodies.append(json.dumps({"rows": part.tolist()}).encode())
        status, answer = send(connection, bodies[-1])
        assert status == 200, answer[:200]
        np.testing.assert_allclose(json.loads(answer)["probabilities"], clf.predict_proba(part), rtol=1e-9)
        answers.append(answer)
    connection.close()
    return bodies, answers


def measure(clf: Any, X: np.ndarray, path: Path, seconds: float) -> list[dict[str, Any]]:
    """One row per number of rows and of clients."""
    table = []
    with start_server(path) as (pid, port):
        for rows in ROWS:
            bodies, answers = make_requests(clf, X, rows, port)
            for clients in CLIENTS:
                load = Load(port, bodies, answers)
                load.run(clients, min(1.0, seconds))  # warm up: threads and workspaces
                load.seconds.clear()
                took = load.run(clients, seconds)
                median, p95, p99 = 1e3 * np.percentile(load.seconds, [50, 95, 99])
                count = len(load.seconds)
                found = (rows, clients, count, load.errors, load.wrong, count / took, rows * count / took)
                table.append(dict(zip(FIELDS, (*found, median, p95, p99, resident_mb(pid)), strict=True)))
                print(line(table[-1]), flush=True)
    return table


def line(row: dict[str, Any]) -> str:
    """One line of the printed table."""
    return (
        f"{row['rows']:4d} {row['clients']:8d} {row['requests']:9d} {row['errors']:7d} {row['wrong']:6d} {row['per_s']:9.0f} "
        f"{row['rows_per_s']:9.0f} {row['median_ms']:10.1f} {row['p95_ms']:8.1f} {row['p99_ms']:8.1f} {row['memory_mb']:10.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="half a second each")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.cavity"
        clf, X = save_model(path, args.inducing)
        print(
            "rows  clients  requests  errors  wrong  requests/s    rows/s  median ms   95% ms   99% ms  memory MB"
        )
        table = measure(clf, X, path, 0.5 if args.quick else args.seconds)
    csv_file = args.csv or (None if args.quick else RESULTS)
    if csv_file is not None:
        with csv_file.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(
                {k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()} for row in table
            )
        print(f"wrote {csv_file}")
    if any(row["errors"] or row["wrong"] for row in table):
        sys.exit("some requests failed or had wrong answers")


if __name__ == "__main__":
    main()
