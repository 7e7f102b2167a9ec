"""Heavy, slow and many requests: within limits, and never in the way of others."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.exceptions import HTTPException

from cavity.cli.models import Extras, Model
from cavity.cli.serving import probe, service
from cavity.cli.serving.application import make_app
from cavity.cli.serving.requests import RowReader, parse_rows
from cavity.cli.serving.server import Connection
from cavity.cli.serving.server_settings import Limits
from cavity.errors import BadInput
from support import toy

LOCAL = "http://localhost"
LATE = 4.0  # on a busy machine


@contextlib.contextmanager
def serve(app, **options):
    config = uvicorn.Config(
        app,
        port=0,
        log_level="error",
        timeout_graceful_shutdown=1,
        **{"http": Connection, **options},
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        thread.join()


def read_head(line):
    """The head of an answer and what came with it."""
    found = b""
    while b"\r\n\r\n" not in found:
        part = line.recv(1 << 16)
        assert part, found
        found += part
    return found


@pytest.fixture
def toy_service(toy_model, monkeypatch):
    """A service that doubles cells, in blocks of 32 to 40 rows, and remembers the first
    cell of each block.
    """
    limits = Limits(waiting=100_000)
    made = service.Service(Model.open(toy_model), "digest", limits, largest=40)
    made.blocks = []

    def predict(block, extras):
        made.blocks.append(block[0, 0])
        if (block < 0).any():
            raise ValueError("a bad row")
        return {"probabilities": 2 * block}

    monkeypatch.setattr(made.model, "predict", predict)
    yield made
    made.close()


def rows(first, count):
    return np.arange(first, first + count, dtype=float)[:, None]


def test_requests_take_turns_and_one_that_fails_fails_alone(toy_service):
    """A small request passes a large one, everyone gets their own rows, and nothing is
    left in the queue.
    """
    tables = [rows(0, 20_000), rows(-500, 100), rows(50_000, 1), rows(60_000, 200)]

    async def ask():
        asked = [toy_service.predict(X, Extras(False, False)) for X in tables]
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(ask())
    assert isinstance(found[1], ValueError)
    for i in (0, 2, 3):
        np.testing.assert_array_equal(found[i]["probabilities"], 2 * tables[i])
    assert toy_service.blocks.index(50_000) < 10 and toy_service.waiting == 0


def test_a_full_queue_refuses_and_a_client_that_leaves_makes_room(toy_service):
    async def ask():
        first = asyncio.ensure_future(
            toy_service.predict(rows(0, 90_000), Extras(False, False))
        )
        await asyncio.sleep(0)
        with pytest.raises(HTTPException, match="100000") as full:
            await toy_service.predict(rows(0, 50_000), Extras(False, False))
        assert (
            full.value.status_code == 503
            and int(full.value.headers["retry-after"]) >= 1
        )
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert toy_service.waiting == 0
        assert (
            len(
                (await toy_service.predict(rows(0, 150_000), Extras(False, False)))[
                    "probabilities"
                ]
            )
            == 150_000
        )

    asyncio.run(ask())


def test_rows_are_parsed_as_json_does():
    rows = [
        {"a": 'é [{,"\\', "b": None},
        [],
        {},
        [1.5e3, True, "]"],
        7,
        "x",
        [[{"a": []}]],
        {"a": "\u2028"},
    ]
    for ascii_only in (True, False):
        assert (
            parse_rows(
                json.dumps({"rows": rows}, ensure_ascii=ascii_only).encode(), len(rows)
            )
            == rows
        )
    for end in ("", "]", "]}}", "],}", "]} 1", '], "more": [1]}', ",]}", "[" * 5000):
        with pytest.raises(BadInput, match=r"JSON|'more'"):
            parse_rows(b'{"rows": [1' + end.encode(), 5)
    with pytest.raises(BadInput, match="rows"):
        parse_rows(b'{"rows": [1, 2, 3]}', 2)


def test_large_bodies_are_parsed_outside_the_event_loop(toy_model, monkeypatch):
    X, _ = toy(3, 3, seed=1)
    app = make_app(Model.open(toy_model))
    threads = []
    read = RowReader.read
    write = service.format_answer
    monkeypatch.setattr(
        RowReader,
        "read",
        lambda *given: (threads.append(threading.get_ident()), read(*given))[1],
    )
    monkeypatch.setattr(
        service,
        "format_answer",
        lambda *given: (threads.append(threading.get_ident()), write(*given))[1],
    )

    async def ask():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=LOCAL
        ) as client:
            got = await client.post(
                "/predict", json={"rows": np.repeat(X, 1000, axis=0).tolist()}
            )
        return got.status_code, threading.get_ident()

    status, loop = asyncio.run(ask())
    assert status == 200 and len(threads) == 2 and loop not in threads


def test_a_declared_length_over_the_limit_is_refused_before_the_body_arrives(toy_model):
    app = make_app(Model.open(toy_model), Limits(bytes=100))
    sent = []
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", b"101"),
    ]
    scope = dict(
        type="http",
        method="POST",
        path="/predict",
        raw_path=b"/predict",
        query_string=b"",
    )

    async def receive():
        assert len(sent) == 2, "the body was asked for before the answer"
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope | {"headers": headers, "state": {}}, receive, send))
    assert sent[0]["status"] == 413 and b"100 bytes" in sent[1]["body"]


@pytest.mark.parametrize(
    "length", [b"content-length: 16000000", b"transfer-encoding: chunked"]
)
@pytest.mark.parametrize(
    "line_after", [b"", b"\r\nconnection: close"]
)  # as urllib sends
def test_the_answer_to_a_body_above_the_limit_arrives_although_the_client_sends_on(
    toy_model, length, line_after
):
    head = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    length = length + line_after
    body = b" " * 16_000_000
    if b"chunked" in length:
        body = b"f4240\r\n%s\r\n" % body[:1_000_000] * 16 + b"0\r\n\r\n"
    with serve(make_app(Model.open(toy_model), Limits(bytes=250_000))) as address:
        with socket.create_connection(address, LATE) as line:
            line.sendall(head + length + b"\r\n\r\n" + body)
            assert read_head(line).startswith(b"HTTP/1.1 413")


def test_a_refused_body_is_dropped_in_large_pieces(toy_model):
    """Each read has a cost: at 4 KiB, many clients do not finish within the limit."""
    reads = []

    class Counted(Connection):
        def data_received(self, data):
            reads.append(len(data))
            super().data_received(data)

    head = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    body = b" " * 16_000_000
    ends = b"content-length: %d\r\n\r\n" % len(body)
    app = make_app(Model.open(toy_model), Limits(bytes=250_000))
    with serve(app, http=Counted) as address:
        with socket.create_connection(address, LATE) as line:
            line.sendall(head + ends + body)
            assert read_head(line).startswith(b"HTTP/1.1 413")
            while sum(reads) < len(body):
                time.sleep(0.01)
            dropped = len(reads)
            line.sendall(head + b"content-length: 10000\r\n\r\n" + body[:10_000])
            assert read_head(line).startswith(b"HTTP/1.1 422")
    assert dropped < len(body) / 16_384
    assert max(reads[dropped:]) <= 4096


def test_a_refusal_keeps_the_connection_of_a_client_that_has_sent_all(toy_model):
    with serve(make_app(Model.open(toy_model), Limits(bytes=250))) as address:
        line = http.client.HTTPConnection(*address, timeout=LATE)
        for body, status in (
            (iter([b" " * 300]), 413),
            (b" " * 300, 413),
            (b"{}", 422),
            (b"{}", 422),
        ):
            line.request("POST", "/predict", body, {"content-type": "application/json"})
            answer = line.getresponse()
            assert answer.status == status and b"detail" in answer.read()
        line.close()


def test_half_a_body_is_answered_with_503_when_the_server_stops(toy_model, capfd):
    post = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    with contextlib.ExitStack() as stack:
        with serve(make_app(Model.open(toy_model))) as address:
            line = stack.enter_context(socket.create_connection(address, LATE))
            line.sendall(post)
            time.sleep(0.2)
        assert read_head(line).startswith(b"HTTP/1.1 503")
    assert "Exception" not in capfd.readouterr().err


def test_half_a_body_is_answered_with_408_and_connections_above_the_limit_with_503(
    toy_model,
):
    post = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    app = make_app(Model.open(toy_model), Limits(read_seconds=0.3))
    with serve(app, limit_concurrency=3) as address:
        with socket.create_connection(address, LATE) as line:
            line.sendall(post)
            assert read_head(line).startswith(b"HTTP/1.1 408")
        with contextlib.ExitStack() as lines:
            *_, last = [
                lines.enter_context(socket.create_connection(address, LATE))
                for _ in range(3)
            ]
            last.sendall(health)
            assert read_head(last).startswith(b"HTTP/1.1 503")
        time.sleep(0.2)
        with socket.create_connection(address, LATE) as line:
            line.sendall(health)
            assert read_head(line).startswith(b"HTTP/1.1 200")


def test_a_large_header_is_refused(toy_model):
    with serve(
        make_app(Model.open(toy_model)), h11_max_incomplete_event_size=16 << 10
    ) as address:
        with socket.create_connection(address, LATE) as line:
            line.sendall(
                b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: "
                + b"y" * (40 << 10)
                + b"\r\n\r\n"
            )
            assert read_head(line).startswith(b"HTTP/1.1 400")


def ask(port, first=b"GET /health HTTP/1.1"):
    with socket.create_connection(("127.0.0.1", port), LATE) as line:
        line.sendall(first + b"\r\nhost: x\r\n\r\n")
        head, _, body = read_head(line).partition(b"\r\n\r\n")
    return int(head[9:12]), body


def find_free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_probe_on_its_own_port_does_not_wait_for_the_event_loop():
    """An event loop that is busy for two seconds."""
    port = find_free_port()

    async def run():
        with (
            probe.answer_probes("127.0.0.1", port, b"ok"),
            ThreadPoolExecutor(1) as clients,
        ):
            # keeps nobody waiting
            silent = socket.create_connection(("127.0.0.1", port))
            lines = [
                b"GET /health HTTP/1.1",
                b"HEAD /health HTTP/1.1",
                b"GET /predict HTTP/1.1",
            ]
            asked = clients.submit(
                lambda: (
                    [ask(port, line)[0] for line in lines],
                    ask(port),
                    time.monotonic(),
                )
            )
            time.sleep(2)
            assert time.monotonic() - asked.result()[2] > 1
            silent.close()
        return asked.result()[:2]

    assert asyncio.run(run()) == ([200, 200, 404], (200, b"ok"))


def test_a_probe_says_that_an_event_loop_hangs():
    port = find_free_port()

    async def run():
        with (
            probe.answer_probes("127.0.0.1", port, b"ok", silence=0.0),
            ThreadPoolExecutor(1) as clients,
        ):
            return clients.submit(ask, port).result()

    status, _ = asyncio.run(run())
    assert status == 503
