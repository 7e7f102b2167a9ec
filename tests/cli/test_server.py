"""cavity serve as a user starts it: a process, a port, many clients at once, some of
whom leave.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

import cavity
from cavity.cli.app import app

MOST_BYTES = 20_000


@contextlib.contextmanager
def serve(model, *arguments):
    """The process, its port, and the file of its log."""
    log = model.with_name(f"log-{time.monotonic_ns()}.txt")
    serve = f"-m cavity serve {model} --port 0 --device cpu"
    command = [sys.executable, *serve.split(), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with (
        log.open("w") as file,
        subprocess.Popen(command, stderr=file, env=environment) as process,
    ):
        try:
            until = time.monotonic() + 120
            while not (found := re.search(r":(\d+) \(Press", log.read_text())):
                assert process.poll() is None and time.monotonic() < until, (
                    log.read_text()
                )
                time.sleep(0.05)
            yield process, int(found.group(1)), log
        finally:
            process.kill()


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def check_that_an_idle_connection_is_closed(port):
    """After five seconds."""
    idle = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    idle.request("GET", "/health")
    idle.getresponse().read()
    begun = time.monotonic()
    assert idle.sock.recv(1) == b"" and 3 < time.monotonic() - begun < 20


def start_request(port, body, promised):
    """A connection on which part of a request is sent."""
    line = socket.create_connection(("127.0.0.1", port), 60)
    head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
    line.sendall(f"{head}{promised}\r\n\r\n".encode() + body)
    return line


def test_everyone_gets_the_answers_to_their_own_rows_whoever_leaves(toy_model):
    """Rows of different requests share a product of matrices, so probabilities may
    differ in the last bits.
    """
    clf = cavity.load(toy_model)
    X = np.random.default_rng(0).normal(size=(80, clf.n_features_in_))

    def client(number):
        rows = X[number : number + 1 + number % 7]
        body = json.dumps({"rows": rows.tolist()}).encode()
        if number % 10 == 3:  # leaves in the middle of its request
            start_request(port, body, len(body) + 100).close()
        if number % 10 == 6:  # leaves before the answer
            start_request(port, body, len(body)).close()
        return rows, *post(port, body)

    with serve(toy_model, "--most-bytes", str(MOST_BYTES)) as (process, port, log):
        with ThreadPoolExecutor(16) as clients:
            for rows, status, found in clients.map(client, range(30)):
                P = clf.predict_proba(rows)
                assert status == 200, found
                np.testing.assert_allclose(
                    found["probabilities"], P, rtol=1e-9, atol=1e-12
                )
                assert found["labels"] == [
                    str(label) for label in clf.classes_[P.argmax(1)]
                ]
        status, found = post(port, b'{"rows": [' + b" " * MOST_BYTES)
        assert status == 413 and f"{MOST_BYTES} bytes" in found["detail"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        said = log.read_text()
    assert "Traceback" not in said and "ERROR" not in said


@pytest.mark.slow
def test_several_workers_serve_one_model(toy_model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        probe = str(free.getsockname()[1])
    more = (
        "--workers",
        "2",
        "--allowed-host",
        "models.example.org",
        "--stop-seconds",
        "1",
    )
    more = (*more, "--health-port", probe)
    with serve(toy_model, *more) as (process, port, log):
        until = time.monotonic() + 120
        while (
            log.read_text().count("Application startup complete") < 2
            and time.monotonic() < until
        ):
            time.sleep(0.1)
        answers = set()
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/health", headers={"host": "models.example.org"})
            answer = connection.getresponse()
            answers.add((answer.status, answer.read()))
            connection.close()
        connection = http.client.HTTPConnection("127.0.0.1", int(probe), timeout=60)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answers.add((answer.status, answer.read()))
        assert len(answers) == 1 and next(iter(answers))[0] == 200
        check_that_an_idle_connection_is_closed(port)
        lines = [start_request(port, b"{", 100) for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        for line in lines:
            line.close()


def test_a_port_that_is_taken_and_a_host_that_is_not_there_are_messages(toy_model):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", str(toy_model), "--port", port])
    assert (
        done.exit_code == 1
        and f"port {port} (Address already in use): try another" in done.output
    )
    done = CliRunner().invoke(app, ["serve", str(toy_model), "--host", "no such host"])
    assert done.exit_code == 1 and "cannot listen on no such host" in done.output


FORK = """
import os, sys, numpy as np, torch, cavity
torch.set_num_threads(2)
clf = cavity.load(sys.argv[1])
X = np.random.default_rng(0).normal(size=(4_000, clf.n_features_in_))
P = clf.predict_proba(X)
child = os.fork()
if not child:
    os._exit(int(not np.allclose(clf.predict_proba(X), P, rtol=1e-9)))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(
    not hasattr(os, "register_at_fork"), reason="this system has no fork"
)
def test_a_process_forked_after_a_prediction_predicts(toy_model):
    """As workers of gunicorn with --preload do.

    OpenMP's threads do not survive the fork, and the child would wait for them.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    with subprocess.Popen(
        [sys.executable, "-c", FORK, str(toy_model)], env=environment, process_group=0
    ) as process:
        try:
            assert process.wait(60) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
