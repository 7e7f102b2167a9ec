"""`cavity serve`: load a model and serve it over HTTP until interrupted."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import socket
import sys
from contextlib import suppress
from typing import Any

import torch
import typer
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cavity.cli.costs import read_costs
from cavity.cli.models import Model
from cavity.cli.serving.application import make_app
from cavity.cli.serving.server_settings import (
    CONNECTIONS,
    HEADER_BYTES,
    Access,
    Limits,
    make_access,
)
from cavity.cli.terminal import Interrupts, Terminal, Text
from cavity.errors import BadFile, CavityError

WORKER = "CAVITY_SERVE"  # environment variable of worker processes
SWITCH_SECONDS = 0.002  # Python's default is 0.005
# new objects before a collection of garbage: room for the objects of a whole body
YOUNG_OBJECTS = 1_000_000
# uvicorn ends workers that are silent for longer, by default 5 s; on a busy machine
# importing torch takes more
WORKER_SECONDS = 120
# per read: h11 takes 50 µs for a chunk of a body, and a chunk may be a single byte
READ_BYTES = 4 << 10
# per read, of a body that is dropped after a refusal
DROP_BYTES = 256 << 10


class Connection(H11Protocol):
    """uvicorn's connection; it reads few bytes at a time, so that none blocks others.

    After a refusal it reads many, so that clients that listen only after sending see
    the answer. A body in chunks is read as before: each chunk takes time.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._read(READ_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._is_refused():
            self._read(DROP_BYTES)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._read(READ_BYTES)
        super().on_response_complete()

    def _is_refused(self) -> bool:
        """Whether the answer is sent, and the rest of a body in one part arrives."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            return False

        names = {name for name, _ in cycle.scope["headers"]}
        return cycle.more_body and b"content-length" in names

    def _read(self, size: int) -> None:
        transport: Any = self.transport
        with suppress(AttributeError):  # only asyncio's own transports have it
            transport.max_size = size

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application must not answer as well
        super().send_400_response(msg)


def serve(
    model: str,
    port: int,
    host: str,
    allowed_host: list[str] | None,
    health_port: int | None,
    workers: int,
    most_rows: int,
    most_bytes: int,
    most_waiting: int,
    read_seconds: float,
    stop_seconds: int,
    costs: Text,
    device: Text,
    terminal: Terminal,
) -> None:
    """Serve until interrupted.

    Several workers are processes that share the port; each has its own copy of the
    model.
    """
    limits = Limits(most_rows, most_bytes, most_waiting, read_seconds)
    access = make_access(host, allowed_host or [])
    check_port(host, port)
    probe = None
    if health_port is not None:
        check_port(host, health_port)
        probe = (host, health_port)
    app: Any = make_served_app(model, device, limits, access, probe, costs=costs)
    if workers > 1:
        # workers learn from the environment what to serve; it has the token already
        threads = max(1, torch.get_num_threads() // workers)
        os.environ[WORKER] = json.dumps(
            [model, device, limits, access.hosts, probe, costs, threads]
        )
        app = f"{__name__}:make_worker_app"

    with Interrupts() as interrupts:
        interrupts.hold()  # uvicorn stops, then sends the signal again
        uvicorn.run(
            app,
            factory=workers > 1,
            host=host,
            port=port,
            workers=workers,
            log_level="info",
            server_header=False,
            ws="none",
            http=Connection,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=stop_seconds,
            timeout_worker_healthcheck=WORKER_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )

    if interrupts.stopped:
        raise typer.Exit(interrupts.stopped)


def make_served_app(
    path: str,
    device: Text,
    limits: Limits,
    access: Access,
    probe: tuple[str, int] | None = None,
    *,
    costs: Text = None,
) -> Any:
    digest = compute_digest(path)
    model = Model.open(path, device)
    if compute_digest(path) != digest:
        raise BadFile(f"{path} changed while it was read: start the server again.")

    given = None
    if costs is not None:
        given = read_costs(costs, model)
    app = make_app(model, limits, access, digest, probe, costs=given)
    # The event loop must not wait long for the interpreter: a collection of garbage
    # that visits all of torch takes a tenth of a second, and a thread that computes
    # gives way only after an interval, each time that the loop needs it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    sys.setswitchinterval(SWITCH_SECONDS)
    return app


def make_worker_app() -> Any:
    path, device, limits, hosts, probe, costs, threads = json.loads(os.environ[WORKER])
    torch.set_num_threads(threads)
    access = make_access("localhost", hosts)
    return make_served_app(path, device, Limits(*limits), access, probe, costs=costs)


def compute_digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror or error}.") from error


def check_port(host: str, port: int) -> None:
    """Check that the port is free, before the model is loaded."""
    try:
        first, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = first
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise CavityError(
            f"cannot listen on {host}, port {port} ({error.strerror or error}): try "
            f"another --port, --health-port or --host."
        ) from error
