"""Numbers for Prometheus, of one server process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# other paths are counted as one
PATHS = "/ /page.js /page.css /page.json /predict /schema /health /metrics /docs /openapi.json".split()
# why a status refuses a request
REASONS = {
    400: "host",
    401: "token",
    413: "size",
    415: "content type",
    422: "rows",
    431: "size",
    503: "queue",
}
COUNT = "count"  # key of the server's state: the counter
HEALTH = "health"  # key of the server's state: the function that answers bytes that ask for /health
COUNTED = "counted"  # key of a request's state: it has been counted
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    def __init__(self, waiting: Callable[[], float], digest: str, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        count, seconds = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self._requests = count("cavity_requests", "Answered requests.", ["path", "status"])
        self._seconds = seconds("cavity_request_seconds", "Time to answer.", ["path"], buckets=SECONDS)
        self._refused = count("cavity_refused", "Refused requests, by reason.", ["reason"])
        self.rows = count("cavity_rows", "Predicted rows.")
        gauge("cavity_waiting_rows", "Rows in the queue.").set_function(waiting)
        info = gauge("cavity_model", "The served model; always 1.", ["digest", "version"])
        info.labels(digest, version).set(1)

    def count(self, path: str, status: int, seconds: float, reason: str | None = None) -> None:
        """Count an answered request; `reason` says why it was refused, if its status does not."""
        path = path if path in PATHS else "other"
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        reason = reason or REASONS.get(status)
        if reason is not None:
            self._refused.labels(reason).inc()

    def format(self) -> bytes:
        return generate_latest(self._registry)
