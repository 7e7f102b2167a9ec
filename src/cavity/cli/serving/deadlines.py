"""HTTP connections with deadlines for each phase of a request, a limit to their number, and /health answered at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cavity.cli.serving.metrics import COUNT, COUNTED, HEALTH
from cavity.cli.serving.settings import CONNECTIONS, HEADER_SECONDS

PHASES = {h11.IDLE: "header", h11.SEND_BODY: "body"}  # by the state of the client; else nothing is awaited
READ_BYTES, BODY_BYTES = 1 << 10, 16 << 10  # at a time; the latter of a body that does not come in chunks
SLICE_SECONDS = 0.0015  # of CPU for bytes that were read at a time; chunks of one byte take longer
PAUSE = 10  # times as long as the bytes took
LINGER_SECONDS = 1.0  # from the last answer to the end of a connection: an earlier end could destroy it


class DeadlineProtocol(H11Protocol):
    """uvicorn's connection, which waits for ever, with a deadline for each phase of a request.

    A deadline counts from the start of its phase. A client that sends a byte now and then gains nothing. A client whose bytes take
    long to read, such as a body in chunks of one byte, waits, so that others do not, and then ends. /health needs neither a parser
    nor a task: it is answered before the requests that arrived with it, and on connections above the limit.
    """

    def __init__(self, *args: Any, seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds = seconds
        self._phase: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow = 0  # times in a row that bytes took long to read
        self._refused = self._crowded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._crowded = len(self.connections) > CONNECTIONS
        self._enter("header")

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        begun = time.thread_time()
        if self.conn.their_state is h11.IDLE and self._answer_health(data):
            return
        if self._crowded:
            return self._refuse(503, "the server has too many connections: try again.", "connections")
        super().data_received(data)
        self._enter(PHASES.get(self.conn.their_state))
        self._pace(time.thread_time() - begun)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg, "not HTTP")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is not h11.SEND_BODY:
            self._enter(None)  # uvicorn's own deadline for connections that are kept alive counts from here
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self._seconds, self._drop_if_stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        super().connection_lost(exc)

    def _answer_health(self, data: bytes) -> bool:
        """Answer a complete request for /health, if the application left the answer in the server's state."""
        answer = HEALTH in self.app_state and self.app_state[HEALTH](data)
        if answer:
            self._write_last(answer)
        return bool(answer)

    def _enter(self, phase: str | None) -> None:
        """Start the deadline of a phase, unless the connection is in that phase already."""
        if phase == self._phase:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._phase, self._timer = phase, None
        whole = phase == "body" and not any(name == b"transfer-encoding" for name, _ in self.scope["headers"])
        with contextlib.suppress(AttributeError):  # only asyncio's own transports have it
            self.transport.max_size = BODY_BYTES if whole else READ_BYTES  # type: ignore[attr-defined]
        if phase is not None:
            seconds = min(self._seconds, HEADER_SECONDS) if phase == "header" else self._seconds
            seconds = min(seconds, LINGER_SECONDS) if self._crowded else seconds
            reason = f"the {phase} did not arrive within {seconds:g} s."
            self._timer = self.loop.call_later(seconds, self._refuse, 408, reason, "deadline", seconds)

    def _pace(self, took: float) -> None:
        """Pause a connection whose bytes took long to read; end it if they do so twice in a row."""
        self._slow = self._slow + 1 if took > SLICE_SECONDS else 0
        if self._slow > 1 and self._phase is not None:
            reason = f"the {self._phase} is in too small pieces: send larger chunks."
            self._refuse(408, reason, "deadline", took)
        elif self._slow and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_later(PAUSE * took, self.transport.resume_reading)

    def _refuse(self, status: int, detail: str, reason: str, seconds: float = 0.0) -> None:
        """Answer for the application, unless the request has an answer; tell it that the client is gone; end the connection."""
        if self._refused or self.transport.is_closing():
            return
        active = self.cycle is not None and not self.cycle.response_complete
        answer = b""
        if not (active and self.cycle.response_started):
            body, again = json.dumps({"detail": detail}).encode(), b"retry-after: 1\r\n"
            answer = make_answer(status, body, again if status == 503 else b"")
            if COUNT in self.app_state:
                path = self.cycle.scope["path"] if active else ""
                self.app_state[COUNT](path, status, seconds, reason)
        if active:
            self.cycle.scope["state"][COUNTED] = True
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._write_last(answer)

    def _write_last(self, answer: bytes) -> None:
        """Write the last bytes of a connection; read on for a while, since unread bytes would reset it before they arrive."""
        self._refused = True
        self._enter(None)
        self._unset_keepalive_if_required()
        self.transport.write(answer)
        self.transport.write_eof()
        self.transport.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _drop_if_stuck(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def make_answer(status: int, body: bytes, headers: bytes = b"") -> bytes:
    """Make the bytes of an answer after which the connection ends."""
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    last = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return first + headers + last + body
