"""HTTP connections with deadlines: for the header and body of a request, and for a client to take its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cavity.cli.serving.metrics import COUNT, COUNTED
from cavity.cli.serving.settings import HEADER_SECONDS

PHASES = {h11.IDLE: "header", h11.SEND_BODY: "body"}  # by the state of the client; else nothing is awaited
READ_BYTES, BODY_BYTES = 1 << 10, 16 << 10  # at a time; the latter of a body that does not come in chunks
SLICE_SECONDS = 0.0015  # of CPU for bytes that were read at a time; chunks of one byte take longer
PAUSE = 10  # times as long as the bytes took
FLUSH_SECONDS = 1.0  # for the last words to a client that is too slow


class DeadlineProtocol(H11Protocol):
    """uvicorn's connection, which waits for ever, with a deadline for each phase of a request.

    A deadline counts from the start of its phase. A client that sends a byte now and then gains nothing. A client whose bytes take
    long to read, such as a body in chunks of one byte, waits, so that others do not, and then ends.
    """

    def __init__(self, *args: Any, seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds = seconds
        self._phase: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow = 0  # times in a row that bytes took long to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter("header")

    def data_received(self, data: bytes) -> None:
        begun = time.thread_time()
        super().data_received(data)
        self._enter(PHASES.get(self.conn.their_state))
        self._pace(time.thread_time() - begun)

    def send_400_response(self, msg: str) -> None:
        """Answer 400, and tell a request that is being answered that its client is gone."""
        super().send_400_response(msg)
        self._count("", 400, 0.0, "not HTTP")
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is not h11.SEND_BODY:
            self._enter(None)  # uvicorn's own deadline for connections that are kept alive counts from here
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self._seconds, self._drop_if_stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        super().connection_lost(exc)

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
            self._timer = self.loop.call_later(
                seconds, self._end, phase, seconds, f"the {phase} did not arrive within {seconds:g} s."
            )

    def _pace(self, took: float) -> None:
        """Pause a connection whose bytes took long to read; end it if they do so twice in a row."""
        self._slow = self._slow + 1 if took > SLICE_SECONDS else 0
        if self._slow > 1 and self._phase is not None:
            self._end(self._phase, took, f"the {self._phase} is in too small pieces: send larger chunks.")
        elif self._slow and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_later(PAUSE * took, self.transport.resume_reading)

    def _end(self, phase: str, seconds: float, reason: str) -> None:
        """Answer 408, unless the request has an answer, and close the connection."""
        if self.transport.is_closing():
            return
        if phase == "header" or not self.cycle.response_started:
            self.transport.write(make_timeout_answer(reason))
            self._count("" if phase == "header" else self.cycle.scope["path"], 408, seconds, "deadline")
            if phase == "body":
                self.cycle.scope["state"][COUNTED] = True
        self.transport.close()
        self.loop.call_later(FLUSH_SECONDS, self.transport.abort)

    def _count(self, path: str, status: int, seconds: float, reason: str) -> None:
        """Count an answer that the application does not see, if the application left a counter in the server's state."""
        count = self.app_state.get(COUNT)
        if count is not None:
            count(path, status, seconds, reason)

    def _drop_if_stuck(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def make_timeout_answer(reason: str) -> bytes:
    body = json.dumps({"detail": reason}).encode()
    return (
        b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"content-length: %d\r\n\r\n" % len(body) + body
    )
