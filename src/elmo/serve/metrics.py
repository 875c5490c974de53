"""METRICS for Prometheus, one registry per app."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from elmo.serve.worker import Job

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
SIZES = tuple(float(1 << power) for power in range(0, 15, 2))


class Metrics:
    """Counts requests, batches and tokens."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        to = self.registry
        self.requests = Counter("elmo_requests", "Answered requests.", ["path", "status"], registry=to)
        self.seconds = Histogram(
            "elmo_request_seconds", "From a request's arrival to its answer.", ["path"], buckets=SECONDS, registry=to
        )
        self.batch_requests = Histogram("elmo_batch_requests", "Requests per batch.", buckets=SIZES, registry=to)
        self.batch_tokens = Histogram("elmo_batch_tokens", "Tokens per batch.", buckets=SIZES, registry=to)
        gauge = Gauge("elmo_waiting_requests", "Requests that wait to be computed.", registry=to)
        gauge.set_function(lambda: float(waiting()))

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def computed(self, batch: Sequence[Job]) -> None:
        """Count a batch."""
        self.batch_requests.observe(len(batch))
        self.batch_tokens.observe(sum(job.tokens for job in batch))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
