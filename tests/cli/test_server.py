"""cavity serve as a user starts it: a process, a port, many clients at once, some of whom leave."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

import cavity
from cavity.cli.app import app

MOST_BYTES = 20_000


@pytest.fixture
def server(toy_model):
    """The process, its port, and the file of its log."""
    log = toy_model.with_name("log.txt")
    command = [sys.executable, "-m", "cavity", "serve", str(toy_model), "--port", "0"]
    command += ["--most-bytes", str(MOST_BYTES), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            port = next(
                int(m.group(1)) for m in (re.search(r":(\d+) \(Press", line) for line in process.stderr) if m
            )
            with log.open("w") as file, ThreadPoolExecutor(1) as reader:
                reader.submit(lambda: file.writelines(process.stderr))
                yield process, port, log
                process.kill()
        finally:
            process.kill()


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def leave(port, body, promised):
    """A client that goes away: in the middle of its request, or before the answer."""
    with socket.create_connection(("127.0.0.1", port), 60) as line:
        line.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % promised + body)


def test_everyone_gets_the_answers_to_their_own_rows_whoever_leaves(toy_model, server):
    process, port, log = server
    clf = cavity.load(toy_model)
    X = np.random.default_rng(0).normal(size=(80, clf.n_features_in_))

    def client(number):
        rows = X[number : number + 1 + number % 7]
        body = json.dumps({"rows": rows.tolist()}).encode()
        if number % 10 == 3:
            leave(port, body, len(body) + 100)
        if number % 10 == 6:
            leave(port, body, len(body))
        return rows, *post(port, body)

    with ThreadPoolExecutor(16) as clients:
        for rows, status, found in clients.map(client, range(70)):
            P = clf.predict_proba(rows)
            assert status == 200, found
            np.testing.assert_array_equal(found["probabilities"], P)
            assert found["labels"] == [str(label) for label in clf.classes_[P.argmax(1)]]
    status, found = post(port, b'{"rows": [' + b" " * MOST_BYTES)
    assert status == 413 and f"{MOST_BYTES} bytes" in found["detail"]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    said = log.read_text()
    assert "Traceback" not in said and "ERROR" not in said


def test_a_port_that_is_taken_and_a_host_that_is_not_there_are_messages(toy_model):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", str(toy_model), "--port", port])
    assert done.exit_code == 1 and f"port {port} (Address already in use): try another" in done.output
    done = CliRunner().invoke(app, ["serve", str(toy_model), "--host", "no such host"])
    assert done.exit_code == 1 and "cannot listen on no such host" in done.output
