"""Asks a running router over HTTP for ``delay-router status`` and combines its answers.

The requests are those of a probe and of Prometheus (``/readyz`` and ``/metrics``).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from index.errors import DelayRouterError
from sidecar.durations import rough_duration
from sidecar.lateness import quantile_s
from sidecar.operations.asking.http_client import exchange, parts_of

# Few commands read metrics, so the parser is loaded only when one does.
if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

TIMEOUT_S: Final = 5.0
RETENTION_WARNING_MS: Final = 86_400_000
"""Time before retention removes a needed record from which on ``status`` warns."""

_PREFIX: Final = "delay_router_"


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """Sums of one delay topic since the router started; lateness in ms, None before the first release.

    ``by_due`` counts the pending records by due time, as pairs of a label, which is the upper bound of the time to go
    in seconds, and the number of records.
    """

    topic: str
    indexed: int
    released: int
    rejected: int
    lateness_p50_ms: float | None
    lateness_p99_ms: float | None
    buckets: int = 0
    snapshot_bytes: int = 0
    by_due: tuple[tuple[str, int], ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return the sums for scripts."""
        return {
            "indexed": self.indexed,
            "released": self.released,
            "rejected": self.rejected,
            "lateness_p50_ms": self.lateness_p50_ms,
            "lateness_p99_ms": self.lateness_p99_ms,
            "buckets": self.buckets,
            "snapshot_bytes": self.snapshot_bytes,
            "pending_by_due": dict(self.by_due),
        }


@dataclass(frozen=True, slots=True)
class RouterStatus:
    """A router's account of itself: the body of ``/readyz``, sums by topic, and its build (versions and kernel)."""

    ready: bool
    body: dict[str, Any]
    topics: list[TopicStatus]
    build: dict[str, str]

    def as_json(self) -> dict[str, object]:
        """Return the status for scripts."""
        topics = {topic.topic: topic.as_json() for topic in self.topics}
        return {**self.body, "ready": self.ready, "topics": topics, "build": self.build}


def retention_warnings(body: dict[str, Any], now_ms: int) -> list[str]:
    """Return a warning for each partition whose needed records retention will soon remove, or may have removed."""
    warnings = []
    for name, each in sorted(body.get("partitions", {}).items()):
        since_ms, retention_ms = each.get("needed_since_ms"), each.get("retention_ms")
        if since_ms is None or retention_ms is None or retention_ms < 0:
            continue
        left_ms = since_ms + retention_ms - now_ms
        if left_ms < min(RETENTION_WARNING_MS, retention_ms // 2):
            offset, kept = each.get("needed_from"), rough_duration(retention_ms)
            when = f"removes it in {rough_duration(left_ms)}" if left_ms > 0 else "may have removed it"
            warnings.append(f"{name} still needs offset {offset}; retention ({kept}) {when}: raise retention.ms now")
    return warnings


def ask(url: str) -> RouterStatus:
    """Ask the router at `url`; raise DelayRouterError when the answer is not that of a router."""
    code, body = _get(url, "/readyz")
    try:
        readiness = json.loads(body)
    except ValueError:
        readiness = None
    if code not in {200, 503} or not isinstance(readiness, dict):
        raise DelayRouterError(f"{url}/readyz: answers {code}, but not as a delay router does; see --url")
    _, metrics = _get(url, "/metrics")
    text = metrics.decode("utf-8")
    return RouterStatus(code == HTTPStatus.OK, readiness, topics_of(text), build_of(text))


def build_of(metrics: str) -> dict[str, str]:
    """Return versions and kernel of a router from its metrics; empty for a router that does not report them."""
    return next((each.samples[0].labels for each in _families(metrics) if each.name == f"{_PREFIX}build_info"), {})


def topics_of(metrics: str) -> list[TopicStatus]:
    """Return the sums of each delay topic from the metrics of a router."""
    samples = [sample for family in _families(metrics) for sample in family.samples]
    names = sorted({sample.labels["topic"] for sample in samples if sample.labels.get("topic")})
    return [_topic(name, [sample for sample in samples if sample.labels.get("topic") == name]) for name in names]


def _families(metrics: str) -> "Iterable[Metric]":
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - see above

    return text_string_to_metric_families(metrics)


def _topic(name: str, samples: "list[Sample]") -> TopicStatus:
    buckets = sorted(
        (float(sample.labels["le"]), sample.value)
        for sample in samples
        if sample.name == f"{_PREFIX}release_lateness_seconds_bucket"
    )
    return TopicStatus(
        topic=name,
        indexed=_sum(samples, "records_indexed_total"),
        released=_sum(samples, "records_released_total"),
        rejected=_sum(samples, "records_rejected_total"),
        lateness_p50_ms=_milliseconds(quantile_s(buckets, 0.5)),
        lateness_p99_ms=_milliseconds(quantile_s(buckets, 0.99)),
        buckets=_sum(samples, "buckets"),
        snapshot_bytes=_sum(samples, "snapshot_bytes"),
        by_due=_by_due(samples),
    )


def _by_due(samples: "Iterable[Sample]") -> tuple[tuple[str, int], ...]:
    """Return the number of records in each range, from the cumulative gauge."""
    cumulated = sorted(
        (float(sample.labels["within"]), sample.labels["within"], int(sample.value))
        for sample in samples
        if sample.name == f"{_PREFIX}pending_by_due"
    )
    below = [0, *(count for _, _, count in cumulated)]
    return tuple((bound, count - before) for (_, bound, count), before in zip(cumulated, below, strict=False))


def _sum(samples: "Iterable[Sample]", name: str) -> int:
    return int(sum(sample.value for sample in samples if sample.name == _PREFIX + name))


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 1)


def _get(url: str, path: str) -> tuple[int, bytes]:
    parts_of(url, f"--url {url}: write http://HOST:PORT")
    hint = "is a router running there? Its address is [http] listen, or --url"
    return exchange(url, "GET", path, timeout_s=TIMEOUT_S, hint=hint)
