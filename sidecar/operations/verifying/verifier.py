"""Reads the state of each delay partition, and the segments and pages that it names, one record at a time.

Routers may go on meanwhile. So a damaged part of a bucket counts only if the state, read once more, still needs it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from index.buckets.bucket import Manifest
from index.errors import ClusterError, ConfigError, FormatError, RefusedError
from index.named.id_pages import IdPageRef
from sidecar.cluster.topics import reach
from sidecar.cluster.topics.findings import Finding, counted, error, ok, warn
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import Described, TopicFacts, log_range, parse_place, topic_facts, uncommitted_end
from sidecar.kafka.client.errors import cluster_errors
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.kafka.reading.scan import each_of_part
from sidecar.operations.verifying.damage import (
    BucketDamage,
    BucketJudge,
    Damage,
    PartitionPlace,
    damages_of_origin,
    damages_of_state,
    judged_state,
    lasting,
)
from snapshots.state.pending import StoredPending
from snapshots.state.state import StoredState

OnRead = Callable[[str, int, int], None]
"""Is called with the partition, and how many of its segments and pages were read, of how many."""

_READ: Final = ("Read",)


class StoredAmounts(NamedTuple):
    """The amount of stored data that a state names: segments with entries that are still to leave, and pages of ids."""

    buckets: int
    segments: int
    entries: int
    id_pages: int

    def __str__(self) -> str:
        told = counted(self.buckets, "bucket"), counted(self.segments, "segment"), counted(self.id_pages, "page")
        return f"{', '.join(told)} of ids, {self.entries:,} entries"

    def as_json(self) -> dict[str, int]:
        """Return the amounts as a JSON object, for scripts."""
        return dict(zip(self._fields, self, strict=True))


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The result for one partition.

    ``stored`` is None where the state does not tell. ``unread`` says why the partition could not be checked, and is
    empty where it was.
    """

    place: str
    stored: StoredAmounts | None = None
    damages: tuple[Damage, ...] = ()
    unread: str = ""

    def findings(self) -> list[Finding]:
        """Return the result as paragraphs for a person."""
        found = [error(self.place, f"{each.thing}: {each.why}", each.remedy) for each in self.damages]
        if self.unread:
            found.append(warn(self.place, f"could not be checked: {self.unread}", "try again"))
        return found or [ok(self.place, f"whole: {self.stored}" if self.stored else "nothing is stored yet")]

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, for scripts."""
        return {
            "partition": self.place,
            "stored": None if self.stored is None else self.stored.as_json(),
            "damages": [each.as_json() for each in self.damages],
            "unread": self.unread,
        }


def verify(config: Config, asked: str, on_read: OnRead) -> Iterator[PartitionReport]:
    """Check ``TOPIC``, or ``TOPIC/PARTITION``, and yield the result of each partition.

    Raise ConfigError when there is no such partition, and another DelayRouterError when rights are missing or no broker
    answers.
    """
    name, slash, _ = asked.partition("/")
    only = parse_place(asked, "verify", "orders.delay/0")[1] if slash else None
    topic = config.require_delay_topic(name, f"verify {asked}: ")
    admin = reach.connect(config)
    with cluster_errors():
        reach.require_rights(config, admin, {topic.name: ("Describe",), topic.state: _READ, topic.snapshots: _READ})
        facts = topic_facts(admin, _names(topic))
    delay = facts[topic.name]
    if not isinstance(delay, TopicFacts):
        raise ConfigError(f"delay topic {topic.name} does not exist; run: delay-router init")
    if only is not None and only >= delay.partitions:
        raise ConfigError(f"verify {asked}: the topic has partitions 0 to {delay.partitions - 1}")
    verifier = _Verifier(config, admin, topic, facts, delay.topic_id)
    try:
        for number in range(delay.partitions) if only is None else [only]:
            yield verifier.report(PartitionPlace(topic, number), on_read)
    finally:
        verifier.close()


def _names(topic: DelayTopicConfig) -> Sequence[str]:
    return topic.name, topic.state, topic.snapshots


class _StoredPart(NamedTuple):
    """A segment or a page of ids, and the function that judges its value."""

    bucket: Manifest
    number: int
    record_offset: int
    judge: Callable[[Manifest, int, bytes | None], BucketDamage | None]


class _Verifier:
    """Checks the partitions of one delay topic, one after the other; its consumers are made when first needed."""

    def __init__(
        self,
        config: Config,
        admin: AdminClient,
        topic: DelayTopicConfig,
        facts: Mapping[str, Described],
        topic_id: str,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._topic_id = topic_id
        self._partitions = {
            name: each.partitions if isinstance(each, TopicFacts) else 0 for name, each in facts.items()
        }
        self._records = OffsetReader(partial(clients.reader, config), partial(clients.bulk_reader, config))
        self._state = clients.state_reader(config)

    def report(self, place: PartitionPlace, on_read: OnRead) -> PartitionReport:
        """Check one partition; a failed request ends the check of this partition alone."""
        missing = [name for name in _names(self._topic) if place.number >= self._partitions[name]]
        if missing:
            why = f"there is no partition {place.number} of {', '.join(missing)}"
            remedy = f"where routers have served {place}, restore the topic; otherwise run: delay-router init"
            return PartitionReport(str(place), damages=(Damage("topics", why, remedy),))
        try:
            with cluster_errors():
                return self._checked(place, on_read)
        except RefusedError as refused:
            # The log of the state has a damaged batch.
            return PartitionReport(str(place), damages=(*damages_of_state(place, [FormatError(str(refused))]),))
        except ClusterError as failed:
            return PartitionReport(str(place), unread=f"Kafka: {failed}")

    def close(self) -> None:
        """Close the consumers."""
        self._records.close()
        self._state.close()

    def _checked(self, place: PartitionPlace, on_read: OnRead) -> PartitionReport:
        log_start, _ = log_range(self._admin, self._topic.name, place.number)
        state, faults = self._stored(place)
        _, log_end = log_range(self._admin, self._topic.name, place.number)
        damages = [*damages_of_state(place, faults)] or [*damages_of_origin(place, state, self._topic_id, log_end)]
        if state is None or damages:
            return PartitionReport(str(place), damages=tuple(damages))
        parts = [*_parts(BucketJudge(place, StoredPending.of(state), log_start))]
        found = [*self._damaged(place, parts, on_read)]
        if found:
            later, _ = self._stored(place)
            damages = [each.damage for each in found] if later is None else [*lasting(found, later)]
        return PartitionReport(str(place), _amounts(state), tuple(damages))

    def _stored(self, place: PartitionPlace) -> tuple[StoredState | None, list[FormatError]]:
        """Read the state up to the first open transaction, and keep only the last value of each key."""
        latest: dict[bytes | None, bytes] = {}
        span = log_range(self._admin, self._topic.state, place.number)
        for _, key, value in each_of_part(self._state, self._topic.state, place.number, *span):
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
        return judged_state(latest)

    def _damaged(self, place: PartitionPlace, parts: Sequence[_StoredPart], on_read: OnRead) -> Iterator[BucketDamage]:
        # A read beyond the end of a log, as of an incomplete copy, is an error of the client.
        end = uncommitted_end(self._admin, self._topic.snapshots, place.number) if parts else 0
        for done, part in enumerate(parts):
            on_read(str(place), done, len(parts))
            value = self._value(place, part.record_offset) if part.record_offset < end else None
            if damage := part.judge(part.bucket, part.number, value):
                yield damage

    def _value(self, place: PartitionPlace, record_offset: int) -> bytes | None:
        record = self._records.read_large(self._topic.snapshots, place.number, [record_offset])[record_offset]
        return None if record is None else record.value


def _parts(judge: BucketJudge) -> Iterator[_StoredPart]:
    """Yield the segments behind the watermark, and the pages beside them; all others may have been removed."""
    state = judge.pending.state
    for bucket in state.buckets:
        for number in _live(state, bucket):
            yield _StoredPart(bucket, number, bucket.segments[number].record_offset, judge.segment)
        for number, page in enumerate(_live_pages(state, bucket)):
            yield _StoredPart(bucket, number, page.record_offset, judge.id_page)


def _amounts(state: StoredState) -> StoredAmounts:
    live = [bucket.segments[number] for bucket in state.buckets for number in _live(state, bucket)]
    pages = sum(len(_live_pages(state, bucket)) for bucket in state.buckets)
    return StoredAmounts(len(state.buckets), len(live), sum(ref.entries for ref in live), pages)


def _live(state: StoredState, bucket: Manifest) -> Iterator[int]:
    watermark = state.progress.watermark_of(bucket.bucket_id)
    return (number for number, ref in enumerate(bucket.segments) if ref.last > watermark)


def _live_pages(state: StoredState, bucket: Manifest) -> Sequence[IdPageRef]:
    return (bucket.id_pages or ()) if bucket.last > state.progress.watermark_of(bucket.bucket_id) else ()
