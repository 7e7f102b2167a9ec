"""`GET /health` on a separate port, answered by a thread.

A probe does not wait for the requests that the event loop serves.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# seconds without a turn of the server's event loop, after which it counts as hanging
SILENCE = 30.0
READ_SECONDS = 1.0  # for a client to send its request
PATHS = (b"GET /health ", b"HEAD /health ")


@contextmanager
def answer_probes(
    host: str, port: int, health: bytes, silence: float = SILENCE
) -> Iterator[None]:
    """Answer probes as long as the running event loop serves; 503 if it hangs."""
    served = asyncio.get_running_loop()
    turn = [time.monotonic()]
    stopped = threading.Event()
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    shared = hasattr(socket, "SO_REUSEPORT")  # workers share the port
    door = socket.create_server(address, family=family, reuse_port=shared)

    def note_turn() -> None:
        turn[0] = time.monotonic()

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status = "200 OK"
            body = health
            if not head.startswith(PATHS):
                status = "404 Not Found"
                body = b'{"detail":"this port has /health only"}'
            elif time.monotonic() - turn[0] > silence:
                status = "503 Service Unavailable"
                body = b'{"detail":"the server hangs"}'

            lines = (
                f"HTTP/1.1 {status}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                "connection: close\r\n\r\n",
            )
            said = "\r\n".join(lines).encode()
            if head.startswith(b"GET"):
                said += body
            writer.write(said)  # in one piece
            await writer.drain()

        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(answer, sock=door):
            while not stopped.is_set():
                with suppress(RuntimeError):  # the loop is closed
                    served.call_soon_threadsafe(note_turn)
                await asyncio.sleep(0.5)

    thread = threading.Thread(
        target=lambda: asyncio.run(run()), name="cavity-probe", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stopped.set()
