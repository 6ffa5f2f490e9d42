"""Does the work of a backfill job without Spark: reads the delay topic, writes segments, stages buckets."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from index.buckets.bucket import Manifest
from index.buckets.bucket_rules import SealRules, cut, placement_of
from index.named.id_pages import IdPageRef, row
from index.named.names import hash_of
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Schedule
from index.rules.rules import Rules
from sidecar.config.model import load
from sidecar.kafka.client.admin import connect, topic_id
from snapshots.segments.id_pages import IdPageWriter, encode_pages
from snapshots.segments.segment import StoredEntry
from snapshots.segments.writing import SegmentWriter, record_size
from snapshots.state.staged import (
    Intent,
    StagedBucket,
    encode_intent,
    encode_staged,
    intent_key,
    staged_key,
    staged_page_key,
    staged_segment_key,
)
from tests.integration.scenario import TIMEOUT_S, Header, Stage, now_ms

LIMITS = SealRules(segment_entries=500, time_step_ms=60_000)


def with_backfill_topic(stage: Stage, delay: str, partitions: int = 1) -> str:
    """Create the backfill topic of a delay topic. Return the delay topic."""
    stage.create([NewTopic(f"{delay}.delay-backfill", partitions, 1, config={"cleanup.policy": "compact"})])
    return delay


def some_records(rng: Random, count: int) -> Iterator[list[Header]]:
    """Yield headers of records that are past due, due soon or much later, or to be rejected."""
    now = now_ms()
    for _ in range(count):
        kind = rng.random()
        if kind < 0.1:
            yield [("deliver-at", b"soon")]
        elif kind < 0.5:
            yield [("deliver-at", b"%d" % (now - rng.randint(0, 60_000)))]
        elif kind < 0.6:
            yield []
        else:
            yield [("deliver-at", b"%d" % (now + rng.choice([rng.randint(500, 12_000), rng.randint(40_000, 45_000)])))]


class BackfillJob:
    """Builds buckets of partition 0 by the rules of a router's configuration; ``limits`` give placement and size."""

    def __init__(self, stage: Stage, config: Path, delay: str, *, limits: SealRules = LIMITS) -> None:
        loaded = load(config, {})
        topic = loaded.delay_topic(delay)
        assert topic is not None
        self.rules: Rules = loaded.rules_for(topic)
        self.topic_id = topic_id(connect(loaded), delay)
        self._stage = stage
        self._delay = delay
        self._limits = limits
        self._id_rows: dict[int, bytes] = {}
        self._producer = Producer({**stage.kafka, "message.max.bytes": 2_000_000})

    def run(
        self,
        name: str,
        ranges: Sequence[tuple[int, int]],
        *,
        released: frozenset[int] = frozenset(),
        restores: bool = False,
        topic_id: str = "",
    ) -> list[Manifest]:
        """Stage a bucket for each range in one transaction, without the ``released`` records. Return the staged
        manifests.
        """
        intent = Intent(name, 0, now_ms() + 600_000)
        self._write(f"{self._delay}.delay-backfill", intent_key(name), encode_intent(intent))
        entries = self._entries(released)
        manifests = [
            self._bucket(name, [entry for entry in entries if start <= entry[1] < end], start, end)
            for start, end in ranges
        ]
        staging = Producer({**self._stage.kafka, "transactional.id": f"{self._stage.word}.{name}"})
        staging.init_transactions(TIMEOUT_S)
        staging.begin_transaction()
        for manifest in manifests:
            value = encode_staged(StagedBucket(name, topic_id or self.topic_id, self.rules, manifest, restores))
            staging.produce(f"{self._delay}.delay-backfill", value, staged_key(name, manifest.from_offset), 0)
        staging.produce(f"{self._delay}.delay-backfill", None, intent_key(name), 0)
        staging.commit_transaction(TIMEOUT_S)
        return manifests

    def _entries(self, released: frozenset[int]) -> list[StoredEntry]:
        entries: list[StoredEntry] = []
        for found in self._stage.records(self._delay):
            record = Record(found.key, found.value, list(found.headers), found.timestamp_ms)
            decision = self.rules.decide(record.headers, record.timestamp_ms)
            if found.offset in released:
                continue
            if not isinstance(decision, Schedule):
                entries.append((AT_ONCE, found.offset, None))
            else:
                entries.append((decision.due_ms, found.offset, record))
                if decision.deliver_id is not None:
                    self._id_rows[found.offset] = row(hash_of(decision.deliver_id), decision.due_ms, found.offset)
        return sorted(entries, key=lambda entry: entry[:2])

    def _bucket(self, name: str, entries: Sequence[StoredEntry], start: int, end: int) -> Manifest:
        writer = SegmentWriter(0, start, end)
        for run in cut([entries], self._limits, record_size):
            for encoded in writer.encode(placement_of([offset for _, offset, _ in run], self._limits.placement), run):
                key = staged_segment_key(name, start, writer.count, secrets.token_hex(4))
                offset = self._write(f"{self._delay}.delay-snapshots", key, encoded.value)
                writer.written([encoded.ref], [offset])
        rows = sorted(self._id_rows[offset] for _, offset, _ in entries if offset in self._id_rows)
        return replace(writer.manifest(), id_pages=self._id_pages(name, rows, start))

    def _id_pages(self, name: str, rows: Sequence[bytes], start: int) -> tuple[IdPageRef, ...] | None:
        """Write the pages of ids of a bucket and return references to them."""
        pages, writer = list(encode_pages(rows, len(rows))), IdPageWriter(0)
        keys = [staged_page_key(name, start, number, secrets.token_hex(4)) for number in range(len(pages))]
        snapshots = f"{self._delay}.delay-snapshots"
        offsets = [self._write(snapshots, key, page.value) for key, page in zip(keys, pages, strict=True)]
        writer.written(pages, offsets)
        return writer.refs()

    def _write(self, topic: str, key: bytes, value: bytes) -> int:
        offsets: list[int] = []

        def delivered(error: KafkaError | None, sent: Message) -> None:
            assert error is None, error
            offsets.append(sent.offset() or 0)

        self._producer.produce(topic, value, key, 0, on_delivery=delivered)
        assert self._producer.flush(TIMEOUT_S) == 0
        return offsets[0]
