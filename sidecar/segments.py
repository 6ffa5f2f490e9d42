"""Segments read back from the snapshots topic, ready to be released.

What a segment holds is decided again by the rules that decided it when it was indexed, so it needs no schedule of its
own; that also checks it. A segment that is missing or damaged is made good from the delay topic while that still holds
the bucket's ledger range. Otherwise the partition must stop: going on would lose records in silence.
"""

from bisect import bisect_right
from collections.abc import Sequence

import structlog

from index.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError, RefusedError
from index.pending import Entry
from index.record import Record
from index.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Rejection, Schedule
from sidecar.config_topic import DelayTopicConfig
from sidecar.reader import OffsetReader
from sidecar.records import Scheduled, scheduled, size_of
from snapshots.segment import StoredEntry, decode_segment
from snapshots.state import RuleEpoch


class SegmentSource:
    """Reads segments of one partition; used by one thread at a time, with that thread's reader."""

    def __init__(self, topic: DelayTopicConfig, partition: int, epochs: Sequence[RuleEpoch]) -> None:
        self._topic = topic
        self._partition = partition
        self._epochs = epochs
        self._epoch_starts = [epoch.from_offset for epoch in epochs]
        self._log = structlog.get_logger().bind(topic=topic.name, partition=partition)

    def _value(self, ref: SegmentRef, reader: OffsetReader) -> bytes:
        record = reader.read(self._topic.snapshots, self._partition, [ref.record_offset])[ref.record_offset]
        if record is None or record.value is None:
            raise FormatError(f"{self._topic.snapshots}/{self._partition} has nothing at offset {ref.record_offset}")
        return record.value

    def load(self, manifest: Manifest, number: int, reader: OffsetReader) -> list[Entry[Scheduled]]:
        """Entries of a segment in release order, their records read again where the segment only points to them.

        KafkaException when the cluster does not answer; RefusedError when the segment is lost and cannot be made good.
        """
        return self._scheduled(self.stored(manifest, number, reader), reader)

    def stored(self, manifest: Manifest, number: int, reader: OffsetReader) -> list[StoredEntry]:
        """What a segment holds, in release order; when made good, also what was released before it was written.

        Errors as of ``load``.
        """
        ref = manifest.segments[number]
        try:
            stored = decode_segment(self._value(ref, reader))
            if len(stored) != ref.entries or stored[0][:2] != ref.first or stored[-1][:2] != ref.last:
                raise FormatError("it is not the segment that the manifest names")  # noqa: TRY301 -- as the others
        except FormatError as error:
            stored = self._from_delay_topic(manifest, number, reader, error)
        if manifest.built_from is not None:
            # Of a backfill that began below C: those are in other buckets.
            stored = [entry for entry in stored if entry[1] >= manifest.from_offset]
        return stored

    def _scheduled(self, stored: Sequence[StoredEntry], reader: OffsetReader) -> list[Entry[Scheduled]]:
        absent = sorted(offset for _, offset, record in stored if record is None)
        read = reader.read(self._topic.name, self._partition, absent) if absent else {}
        entries: list[Entry[Scheduled]] = []
        for due_ms, offset, inline in stored:
            record = inline or read.get(offset)
            entries.append((due_ms, offset, self._payload(due_ms, offset, record)))
        return entries

    def _payload(self, due_ms: int, offset: int, record: Record | None) -> Scheduled:
        if record is None:
            # Gone from the delay topic. It is counted as lost when it is due, and not before.
            return scheduled(Schedule(due_ms, (), BY_KEY, KEEP_KEY, None, both_times=False), 0, None)
        decision = self.decide(offset, record)
        if isinstance(decision, Rejection) and due_ms == AT_ONCE:
            # A backfill leaves it to the owner to reject; see sidecar.screening.
            return scheduled(Schedule(due_ms, (), BY_KEY, KEEP_KEY, None, both_times=False), size_of(record), record)
        if isinstance(decision, Rejection) or decision.due_ms != due_ms:
            raise RefusedError(
                f"{self._topic.name}/{self._partition}: the record at offset {offset} is not the one that was indexed"
                f" as due at {due_ms}; was the topic created again? To index it from its start:"
                f" delay-router init --start-over {self._topic.name}/{self._partition}"
            )
        return scheduled(decision, size_of(record), record)

    def decide(self, offset: int, record: Record) -> Schedule | Rejection:
        """Decide a record again, by the rules that held when it was indexed."""
        epoch = self._epochs[bisect_right(self._epoch_starts, offset) - 1]
        return epoch.rules.decide(record.headers, record.timestamp_ms)

    def _from_delay_topic(
        self, manifest: Manifest, number: int, reader: OffsetReader, cause: FormatError
    ) -> list[StoredEntry]:
        ref = manifest.segments[number]
        what = f"segment {number} of bucket {manifest.bucket_id} of {self._topic.name}/{self._partition}"
        self._log.error("segment_damaged", segment=number, bucket=manifest.bucket_id, why=str(cause))
        found: list[StoredEntry] = []
        rejected: list[StoredEntry] = []
        span = manifest.segments_from, manifest.to_offset
        # Nothing when the range is not wholly there any more, so that what is found is all there ever was.
        for offset, record in reader.scan(self._topic.name, self._partition, *span):
            # An adopted bucket was decided as a whole by the rules in force where it was adopted.
            decision = self.decide(max(offset, manifest.from_offset), record)
            due_ms = AT_ONCE if isinstance(decision, Rejection) else decision.due_ms
            if ref.first <= (due_ms, offset) <= ref.last:
                kept = rejected if isinstance(decision, Rejection) else found
                kept.append((due_ms, offset, record if ref.placement is Placement.INLINE else None))
        if len(found) < ref.entries:
            # Only a backfill leaves records that are to be rejected in a bucket.
            found += rejected
        # More is usual: what had been released when its neighbours in due time were written is not in the segment.
        # It is at or before the watermark, and dropped.
        if len(found) < ref.entries:
            raise RefusedError(
                f"{what} is lost ({cause}), and the delay topic holds {len(found)} of its {ref.entries} records."
                f" Restore {self._topic.snapshots}, or go on without them, releasing again what is still in the delay"
                f" topic: delay-router init --start-over {self._topic.name}/{self._partition}"
            )
        self._log.warning("segment_made_good", segment=number, bucket=manifest.bucket_id, records=len(found))
        return sorted(found, key=lambda entry: entry[:2])
