"""Slow clients: every phase of a request has a deadline, which a byte now and then does not move."""

import contextlib
import socket
import threading
import time
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
import uvicorn

from cavity.cli.models import Model
from cavity.cli.serving.application import make_app
from cavity.cli.serving.deadlines import DeadlineProtocol
from cavity.cli.serving.settings import Limits

SECONDS = 0.4
LATE = 4.0  # on a busy machine; without a deadline a connection stays open for ever
LARGE = 64 << 20  # bytes; more than the buffers of a connection hold
HALF_HEADER = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
HALF_BODY = HALF_HEADER + b"content-length: 100\r\n\r\n{"
WHOLE = HALF_HEADER + b"content-length: 1\r\n\r\n{"


async def app(scope, receive, send):
    """Read the body and answer; /early answers at once, /large with more than a connection holds."""
    more = scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
    body = b"x" * (LARGE if scope["path"] == "/large" else 1)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def serve(app, seconds=SECONDS, **options):
    config = uvicorn.Config(
        app,
        port=0,
        http=partial(DeadlineProtocol, seconds=seconds),
        log_level="error",
        timeout_graceful_shutdown=1,
        **options,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def server():
    with serve(app, lifespan="off") as server:
        yield server


@contextlib.contextmanager
def connect(server):
    address = server.servers[0].sockets[0].getsockname()
    with socket.create_connection(address, LATE) as line:
        yield line


def read_all(line):
    """What the server sends until it closes the connection; it must do so in time."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(1 << 16):
            found += part
    return found


def read_answer(line):
    """One complete answer of `app`."""
    found = b""
    while not found.endswith(b"\r\n\r\nx"):
        found += line.recv(1 << 16)
    return found


@pytest.mark.parametrize("sent, phase", [(b"", "header"), (HALF_HEADER, "header"), (HALF_BODY, "body")])
def test_half_a_request_is_answered_with_408(server, sent, phase):
    with connect(server) as line:
        line.sendall(sent)
        found = read_all(line)
    assert found.startswith(b"HTTP/1.1 408") and f"the {phase} did not arrive within".encode() in found
    until = time.monotonic() + LATE
    while server.server_state.connections and time.monotonic() < until:
        time.sleep(0.01)
    assert not server.server_state.connections


@pytest.mark.parametrize("sent", [HALF_HEADER + b"a: ", HALF_BODY, HALF_BODY.replace(b"/ ", b"/early ")])
def test_a_byte_now_and_then_does_not_move_the_deadline(server, sent):
    """The last one has its answer already."""
    begun = time.monotonic()
    with connect(server) as line:
        line.sendall(sent)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < begun + LATE:
                line.sendall(b"x")
                time.sleep(SECONDS / 10)
    assert time.monotonic() < begun + LATE


def test_a_client_in_time_is_not_disturbed(server):
    """A connection that is kept alive for longer than the deadline, and two requests at once."""
    with connect(server) as line:
        for _ in range(3):
            line.sendall(WHOLE)
            assert read_answer(line).startswith(b"HTTP/1.1 200")
            time.sleep(SECONDS)
        line.sendall(WHOLE + WHOLE)
        found = read_answer(line)
        if found.count(b"HTTP/1.1 200") < 2:
            found += read_answer(line)
    assert found.count(b"HTTP/1.1 200") == 2


def test_a_client_that_does_not_take_its_answer_is_dropped(server):
    with connect(server) as line:
        line.sendall(WHOLE.replace(b"/ ", b"/large "))
        until = time.monotonic() + LATE + 6  # and uvicorn keeps an idle connection for 5 s
        while not server.server_state.connections:
            time.sleep(0.01)
        while server.server_state.connections and time.monotonic() < until:
            time.sleep(0.05)
        assert not server.server_state.connections
        assert len(read_all(line)) < LARGE


def test_metrics_count_what_is_refused_before_it_is_a_request(toy_model):
    """Half a body, half a header and a header that is not HTTP: the application sees none of the last two."""
    post = HALF_BODY.replace(b"/ ", b"/predict ").replace(
        b"content-", b"content-type: application/json\r\ncontent-"
    )
    with serve(make_app(Model.open(toy_model))) as server:
        for sent, status in ((post, b"408"), (HALF_HEADER, b"408"), (b"nonsense\r\n\r\n", b"400")):
            with connect(server) as line:
                line.sendall(sent)
                assert read_all(line).startswith(b"HTTP/1.1 " + status)
        with connect(server) as line:
            line.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            found = read_all(line).decode()
    for counted in (
        'cavity_requests_total{path="/predict",status="408"} 1.0',
        'cavity_requests_total{path="other",status="408"} 1.0',
        'cavity_requests_total{path="other",status="400"} 1.0',
        'cavity_refused_total{reason="deadline"} 2.0',
        'cavity_refused_total{reason="not HTTP"} 1.0',
    ):
        assert counted in found, found
    assert 'status="499"' not in found  # the request that has its 408 is not counted again


@pytest.mark.parametrize("seconds, words", [(1.0, "did not arrive"), (0.01, "too small pieces")])
def test_a_client_whose_bytes_take_long_to_read_waits_and_then_ends(server, monkeypatch, seconds, words):
    """The server pauses for ten times as long as the first bytes took: here beyond the deadline, or shorter."""
    clock = SimpleNamespace(thread_time=count(step=seconds).__next__)
    monkeypatch.setattr("cavity.cli.serving.deadlines.time", clock)
    with connect(server) as line:
        line.sendall(HALF_BODY)
        time.sleep(SECONDS / 4)
        line.sendall(b"x" * 90)
        found = read_all(line)
    assert b"408" in found and words.encode() in found


def test_health_answers_on_connections_above_the_limit_and_others_get_503(toy_model, monkeypatch):
    monkeypatch.setattr("cavity.cli.serving.deadlines.CONNECTIONS", 3)
    health = b"GET /health HTTP/1.1\r\nhost: localhost:8000\r\n\r\n"
    schema = health.replace(b"health", b"schema")
    with serve(make_app(Model.open(toy_model)), seconds=60) as server, contextlib.ExitStack() as lines:
        first = [lines.enter_context(connect(server)) for _ in range(3)]
        while len(server.server_state.connections) < 3:
            time.sleep(0.01)
        for sent, status in ((schema, b"503"), (health, b"200"), (b"", b"408")):
            with connect(server) as line:
                line.sendall(sent)
                found = read_all(line)
            assert found.startswith(b"HTTP/1.1 " + status), found
        for line in first[:2]:
            line.sendall(schema)
            assert line.recv(100).startswith(b"HTTP/1.1 200")
        first[2].sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        found = read_all(first[2]).decode()
    assert 'cavity_refused_total{reason="connections"} 1.0' in found
    assert 'cavity_requests_total{path="/health",status="200"} 1.0' in found


def test_health_is_the_same_whoever_answers_it(toy_model):
    """The connection answers a simple request, the application any other, such as one whose header comes in two pieces."""
    wanted = {
        b"GET /health HTTP/1.1\r\na: b\r\nHost: LOCALHOST\r\n": b"200",
        b"HEAD /health HTTP/1.1\r\nhost: [::1]:8000\r\nc: d\r\n": b"200",
        b"GET /health HTTP/1.1\r\nhost: elsewhere\r\n": b"400",
        b"GET /health HTTP/1.0\r\na: b\r\n": b"400",
    }
    with serve(make_app(Model.open(toy_model), digest="abc")) as server:
        for sent, status in wanted.items():
            found = []
            for cut in (0, 20):
                with connect(server) as line:
                    line.sendall(sent[:cut])
                    time.sleep(cut / 200)
                    line.sendall(sent[cut:] + b"connection: close\r\n\r\n")
                    head, _, body = read_all(line).lower().partition(b"\r\n\r\n")
                names = {field.partition(b":")[0] for field in head.split(b"\r\n")[1:]} - {b"date", b"server"}
                found.append((head[:12], names, body))
            assert found[0] == found[1] and found[0][0].endswith(status), found


@pytest.mark.parametrize("length", [b"content-length: 4000000", b"transfer-encoding: chunked"])
def test_the_answer_to_a_body_above_the_limit_arrives_although_the_client_sends_on(toy_model, length):
    head = (
        HALF_HEADER.replace(b"/ ", b"/predict ") + b"content-type: application/json\r\nconnection: close\r\n"
    )
    body = b" " * 4_000_000
    if b"chunked" in length:
        body = b"f4240\r\n%s\r\n" % body[:1_000_000] * 4 + b"0\r\n\r\n"
    with serve(make_app(Model.open(toy_model), Limits(bytes=250_000)), seconds=60) as server:
        with connect(server) as line:
            line.sendall(head + length + b"\r\n\r\n" + body)
            assert read_all(line).startswith(b"HTTP/1.1 413")
