"""What a server allows: limits, host names and the token."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from cavity.errors import BadOption

TOKEN = "CAVITY_TOKEN"  # environment variable
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")
ANY_ADDRESS = ("0.0.0.0", "::")  # addresses to listen on, which no client sends as Host
CONNECTIONS = 500  # open at a time; uvicorn answers more requests with 503
HEADER_BYTES = 16 << 10
HOST_NAME = re.compile(
    r"\*|(\*\.)?[\w-]+(\.[\w-]+)*\.?|\[?[0-9A-Fa-f]*(:[0-9A-Fa-f]*){2,7}\]?", re.ASCII
)


class Limits(NamedTuple):
    """Limits of a request, and of all requests that wait."""

    rows: int = 10_000
    bytes: int = 2 << 20
    waiting: int = 50_000  # rows of all requests in the queue
    read_seconds: float = 30.0  # for a client to send a body

    @property
    def held_bytes(self) -> int:
        """Bytes of all requests that are received but not yet parsed."""
        return 4 * self.bytes


class Access(NamedTuple):
    """Who may ask: names of this host that a request may use, and the token that it
    must carry.
    """

    hosts: tuple[str, ...] = LOCAL_HOSTS
    token: str | None = None

    def allows(self, host: str) -> bool:
        """Whether a request may use this host, with or without a port; "*.name" allows
        all names of a domain, "*" any.
        """
        name = re.sub(r":\d+\Z", "", host.lower())
        allowed = [p.lower() for p in self.hosts]
        return any(
            name == p or (p.startswith("*") and name.endswith(p[1:])) for p in allowed
        )

    def opens(self, authorization: bytes) -> bool:
        """Whether a request carries the token, if there is one."""
        kind, _, token = authorization.partition(b" ")
        right = self.token is None or hmac.compare_digest(
            token.strip(), self.token.encode()
        )
        return self.token is None or (kind.lower() == b"bearer" and right)


def make_access(host: str, allowed: Sequence[str]) -> Access:
    """Allow the names of this machine, the address that the server listens on, and
    `allowed`; read the token.
    """
    for name in allowed:
        if not HOST_NAME.fullmatch(name):
            raise BadOption(
                f"--allowed-host {name!r} is not a host name: give one without port, "
                f"'*.example.org' for a domain, or '*' for any."
            )
    bound: tuple[str, ...] = ()
    if host not in ANY_ADDRESS:
        bound = (host,)
    return Access(tuple(dict.fromkeys((*LOCAL_HOSTS, *bound, *allowed))), read_token())


def read_token() -> str | None:
    token = os.environ.get(TOKEN)
    if token is not None and (
        not token.strip() or not token.isascii() or token != token.strip()
    ):
        raise BadOption(
            f"{TOKEN} is empty, or has spaces around it or is not ASCII: set random "
            f"text (`openssl rand -hex 32`), or unset it."
        )
    return token
