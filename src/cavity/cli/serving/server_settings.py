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
    """Who may ask: allowed names of this host, and the token of a request."""

    hosts: tuple[str, ...] = LOCAL_HOSTS
    token: str | None = None

    def allows(self, host: str) -> bool:
        """Whether a request may use this host, with or without a port.

        "*.name" allows all names of a domain, "*" allows any.
        """
        name = re.sub(r":\d+\Z", "", host.lower())
        allowed = [p.lower() for p in self.hosts]
        return any(
            name == p or (p.startswith("*") and name.endswith(p[1:])) for p in allowed
        )

    def opens(self, authorization: bytes) -> bool:
        """Whether a request carries the token, if there is one."""
        if self.token is None:
            return True

        kind, _, token = authorization.partition(b" ")
        right = hmac.compare_digest(token.strip(), self.token.encode())
        return kind.lower() == b"bearer" and right


def make_access(host: str, allowed: Sequence[str]) -> Access:
    """Allow `allowed`, the names of this machine and the server's address.

    The token comes from the environment.
    """
    for name in allowed:
        if not HOST_NAME.fullmatch(name):
            raise BadOption(
                f"--allowed-host {name!r} is not a host name: give one without port, "
                f"'*.example.org' for a domain, or '*' for any."
            )

    hosts = list(LOCAL_HOSTS)
    if host not in ANY_ADDRESS:
        hosts.append(host)
    hosts += allowed
    return Access(tuple(dict.fromkeys(hosts)), read_token())


def read_token() -> str | None:
    token = os.environ.get(TOKEN)
    if token is None:
        return None
    if not token or not token.isascii() or token != token.strip():
        raise BadOption(
            f"{TOKEN} is empty, begins or ends with a space, or is not ASCII: set "
            f"random text (`openssl rand -hex 32`), or unset it."
        )

    return token
