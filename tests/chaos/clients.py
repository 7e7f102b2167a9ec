"""Clients of `cavity serve` that are slow, leave, or send nonsense, between others that
expect right answers.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from .children import call
from .counting import SURVIVED, Outcome, Tally, broken, refused, silent
from .fits import fit_small, make_rows

MOST_BYTES = 20_000
CLIENTS = 8
SECONDS = 60.0  # within which an answer must come
START = 300  # seconds for the server to start, on a busy machine
HELD = 20  # connections that stay open with half a request
STOP_SECONDS = 60.0  # within which the server must end on SIGTERM, whoever is connected
HALF = b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
DEADLINES = ("--read-seconds", "5", "--stop-seconds", "2")


def save_model(path: Path) -> tuple[list, list]:
    """Write a model; return rows and their probabilities."""
    model = fit_small()
    model.save(path)
    X = make_rows(50, seed=6)[0]
    return X.tolist(), [
        model.predict_proba(X[i : i + 1])[0].tolist() for i in range(len(X))
    ]


@contextmanager
def serve(model: Path, log: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """Start the server on a free port, and write what it prints to a file."""
    command = [
        sys.executable,
        "-m",
        "cavity",
        "serve",
        str(model),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    command += ["--most-bytes", str(MOST_BYTES), "--most-rows", "20", *DEADLINES]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        yield process, _find_port(process, log)
    finally:
        process.kill()
        process.wait()


def _find_port(process: subprocess.Popen, log: Path) -> int:
    until = time.monotonic() + START
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r":(\d+) \(Press", log.read_text())
        if found:
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


class Client:
    """Makes request number i; each thread keeps a connection for sound requests."""

    def __init__(self, port: int, rows: list, answers: list, seed: int) -> None:
        self.port, self.rows, self.answers, self.seed = port, rows, answers, seed
        self.local = threading.local()

    def __call__(self, i: int) -> Outcome:
        rng = np.random.default_rng([self.seed, i])
        kinds = (
            self.ask,
            self.send_nonsense,
            self.leave,
            self.send_slowly,
            self.send_bytes,
        )
        kind = kinds[rng.choice(len(kinds), p=(0.4, 0.35, 0.1, 0.05, 0.1))]
        try:
            found = kind(rng)
        except Exception as error:
            return broken(f"request {i}, {kind.__name__}: {error!r}")
        return found._replace(detail=f"request {i}, {kind.__name__}: {found.detail}")

    def _connect(self) -> http.client.HTTPConnection:
        if getattr(self.local, "line", None) is None:
            self.local.line = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=SECONDS
            )
        return self.local.line

    def _post(self, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
        for attempt in range(
            2
        ):  # a connection that was kept open may have been closed meanwhile
            line = self._connect()
            try:
                line.request("POST", "/predict", body, {"content-type": kind})
                answer = line.getresponse()
                found = answer.status, answer.read()
                if answer.will_close:
                    self._close()
                return found
            except (http.client.RemoteDisconnected, ConnectionError):
                self._close()
                if attempt:
                    raise
            except BaseException:
                self._close()
                raise
        raise AssertionError

    def _close(self) -> None:
        self.local.line.close()
        self.local.line = None

    def ask(self, rng: np.random.Generator) -> Outcome:
        """A sound request, whose answer is known to the bit."""
        numbers = rng.integers(len(self.rows), size=int(rng.integers(1, 6)))
        status, found = self._post(
            json.dumps({"rows": [self.rows[j] for j in numbers]}).encode()
        )
        if status == 503:
            return refused("busy")
        if status != 200:
            return broken(f"status {status} {found!r:.200}")
        got = json.loads(found)["probabilities"]
        right = np.abs(np.array(got) - [self.answers[j] for j in numbers]).max() < 1e-12
        return SURVIVED if right else silent("other probabilities")

    def send_nonsense(self, rng: np.random.Generator) -> Outcome:
        """A body that is not a sound request: status 4xx with a reason, or an answer
        for every row of what it says.
        """
        body, kind = (
            make_body(rng, self.rows),
            ("application/json", "text/plain", "")[rng.choice(3, p=(0.8, 0.1, 0.1))],
        )
        status, found = self._post(body, kind)
        if 400 <= status < 500 or status == 503:
            return (
                refused(found)
                if json.loads(found).get("detail")
                else broken(f"{status} without a reason")
            )
        if status != 200:
            return broken(f"status {status} for {body!r:.200}: {found!r:.200}")
        rows, P = (
            json.loads(body)["rows"],
            np.array(json.loads(found)["probabilities"], dtype=float),
        )
        right = (
            P.shape == (len(rows), 3)
            and np.isfinite(P).all()
            and np.allclose(P.sum(1), 1)
        )
        return SURVIVED if right else silent(f"{body!r:.200} gave {found!r:.200}")

    def leave(self, rng: np.random.Generator) -> Outcome:
        """Half a request, or a whole one, and gone before the answer."""
        body = json.dumps({"rows": self.rows[:3]}).encode()
        head = b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        whole = head % len(body) + body
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as line:
            line.sendall(whole[: int(rng.integers(1, len(whole) + 1))])
        return SURVIVED

    def send_slowly(self, rng: np.random.Generator) -> Outcome:
        """A sound request in pieces with pauses: answered, or ended by a deadline."""
        body = json.dumps({"rows": self.rows[:1]}).encode()
        whole = b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
        whole += b"content-length: %d\r\n\r\n" % len(body) + body
        cuts = sorted(rng.integers(0, len(whole), size=4))
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as line:
            for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
                line.sendall(whole[start:stop])
                time.sleep(float(rng.uniform(0, 0.1)))
            found = _read_all(line)
        if b" 200 " in found[:20]:
            got = json.loads(found.split(b"\r\n\r\n", 1)[1])["probabilities"]
            return (
                SURVIVED
                if np.allclose(got, self.answers[:1], atol=1e-12)
                else silent("other probabilities")
            )
        return (
            refused(found)
            if found[:12] in (b"HTTP/1.1 408", b"HTTP/1.1 503")
            else broken(found)
        )

    def send_bytes(self, rng: np.random.Generator) -> Outcome:
        """Bytes that are not HTTP: an answer 4xx, or the line is closed."""
        lines = (b"POST /predict HTTP/1.1\r\ncontent-length: -5\r\n\r\n", b"POST /predict HTTP/1.1\r\ncontent-length: 3\r\n"
                 b"content-length: 4\r\n\r\nabcd", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
                 b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"\0" * 100, rng.bytes(200),
                 b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"DELETE /predict HTTP/1.1\r\nhost: x\r\n\r\n")  # fmt: skip
        with (
            socket.create_connection(("127.0.0.1", self.port), SECONDS) as line,
            suppress(OSError),
        ):
            line.sendall(lines[rng.integers(len(lines))])
            line.shutdown(socket.SHUT_WR)
            found = _read_all(line)
            if found and not re.match(rb"HTTP/1.1 4\d\d", found):
                return broken(found[:200])
        return refused("closed")


def _read_all(line: socket.socket) -> bytes:
    parts = []
    while part := line.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


CELLS = (
    None,
    True,
    "x",
    "1",
    1e308,
    -1e155,
    1e400,
    10**400,
    [],
    {},
    [[1]],
    float("nan"),
    "\ud800",
    0,
    -0.0,
)


def make_body(rng: np.random.Generator, rows: list) -> bytes:
    """A random body: bytes, text, other JSON, rows with odd cells or of odd lengths,
    too many rows, too many bytes.
    """
    how = int(rng.integers(8))
    sound = {"rows": [list(row) for row in rows[: int(rng.integers(1, 5))]]}
    text = json.dumps(sound).encode()
    if how == 0:
        return rng.bytes(int(rng.integers(0, 300)))
    if how == 1:
        cut = int(rng.integers(len(text)))
        return (
            text[:cut]
            + rng.bytes(int(rng.integers(0, 5)))
            + text[cut + int(rng.integers(0, 5)) :]
        )
    if how == 2:
        return json.dumps(CELLS[rng.integers(len(CELLS))]).encode()
    if how == 3:
        sound["rows"][0][int(rng.integers(2))] = CELLS[rng.integers(len(CELLS))]
    elif how == 4:
        sound["rows"][-1] = CELLS[rng.integers(len(CELLS))]
    elif how == 5:
        sound["rows"] = rows[:1] * int(rng.choice([0, 21, 1000]))
    elif how == 6:
        return b"[" * int(rng.choice([100, 5000, 19_000]))
    else:
        return b'{"rows": [' + b" " * int(rng.choice([MOST_BYTES, 10 * MOST_BYTES]))
    return json.dumps(sound).encode()


def count_requests(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """Requests of eight clients at once, while others hold half a request; at the end
    the server must be sound, and stop.
    """
    tally, model, log = Tally(), folder / "m.cavity", folder / "serve.log"
    rows, answers = call(save_model, model)
    with serve(model, log) as (process, port):
        held = hold(port)
        client = Client(port, rows, answers, int(rng.integers(1 << 31)))
        with ThreadPoolExecutor(CLIENTS) as pool:
            for outcome in pool.map(client, range(n)):
                tally.add(outcome)
        for line in held:
            tally.add(judge_held(line))
        held = hold(port)
        tally.add(client.ask(rng))
        tally.add(judge_end(process, held, log))
    return tally


def hold(port: int) -> list[socket.socket]:
    """Open connections with half a request."""
    lines = [
        socket.create_connection(("127.0.0.1", port), SECONDS) for _ in range(HELD)
    ]
    for line in lines:
        line.sendall(HALF)
    return lines


def judge_held(line: socket.socket) -> Outcome:
    """A half-sent request ends with status 408."""
    try:
        with line:
            found = _read_all(line)
    except OSError as error:
        return broken(f"half a request: {error!r}")
    return (
        refused(found)
        if found.startswith(b"HTTP/1.1 408")
        else broken(f"half a request: {found!r:.200}")
    )


def judge_end(
    process: subprocess.Popen, held: list[socket.socket], log: Path
) -> Outcome:
    """End the server while half-sent requests are open."""
    if process.poll() is not None:
        return broken(f"the server ended: {log.read_text()[-2000:]}")
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        return broken(f"the server did not end within {STOP_SECONDS:g} s of SIGTERM")
    for line in held:
        line.close()
    found = re.search(r".*Traceback.*(\n.*){60}", log.read_text())
    return broken(found[0]) if found else SURVIVED
