"""Numbers for Prometheus, of one server process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# other paths are counted as one
PATHS = "/ /page.js /page.css /predict /schema /health /metrics".split()
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    def __init__(self, waiting: Callable[[], float], digest: str, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        count, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._requests = count("cavity_requests", "Answered requests.", ["path", "status"])
        self._seconds = Histogram(
            "cavity_request_seconds", "Time to answer.", ["path"], registry=registry, buckets=SECONDS
        )
        self.rows = count("cavity_rows", "Predicted rows.")
        gauge("cavity_waiting_rows", "Rows in the queue.").set_function(waiting)
        info = gauge("cavity_model", "The served model; always 1.", ["digest", "version"])
        info.labels(digest, version).set(1)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        path = path if path in PATHS else "other"
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def format(self) -> bytes:
        return generate_latest(self._registry)
