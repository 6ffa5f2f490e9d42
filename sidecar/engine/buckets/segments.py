"""Reads segments back from the snapshots topic, ready to be released.

The rules that decided a record when it was indexed decide it again, so a segment needs no schedules of its own; this
also checks the segment. A segment that is missing or damaged is restored from the delay topic while the topic still
holds the bucket's ledger range. Otherwise the partition must stop, since continuing would lose records in silence.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import repeat
from typing import TypeAlias, cast

import structlog

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError, RefusedError
from index.pending.pending import Entry
from index.protocol.record import Record
from index.protocol.schedule import (
    AT_ONCE,
    BY_KEY,
    KEEP_KEY,
    Control,
    Decision,
    Rejection,
    Schedule,
    due_ms_of,
    schedule_of,
)
from index.rules.rule_history import RuleHistory
from index.rules.rules_by_column import decide_alike
from index.rules.unreadable import UnreadableHeaders, decide
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.payload.packed_run import PackedRun, packed_rows
from sidecar.engine.payload.records import Scheduled, mean_size, scheduled, size_of
from sidecar.engine.ports import ReadEach, Records
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import Columns, StoredEntry

Keeps: TypeAlias = Callable[[int, int], bool]
"""Says, by its due time and its size, whether a record that was read again in the delay topic is kept in memory."""

_new_tuple = tuple.__new__


def keep_nothing(_due_ms: int, _size_bytes: int) -> bool:
    """Keep no record that was read again: its schedule is enough."""
    return False


class SegmentSource:
    """Reads segments of one partition; used by several threads, each with its own reader."""

    def __init__(
        self,
        topic: DelayTopicConfig,
        partition: int,
        history: RuleHistory,
        codec: SegmentCodec = PYTHON_CODEC,
        *,
        restored_to: int = 0,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._history = history
        self._restored_to = restored_to
        self._codec = codec
        self._log = structlog.get_logger().bind(topic=topic.name, partition=partition)

    def enter(self, history: RuleHistory) -> None:
        """Decide by this history, which knows all earlier epochs: a load under way may need the oldest one."""
        self._history = history

    def load(self, manifest: Manifest, number: int, reader: Records, keeps: Keeps) -> list[Entry[Scheduled]]:
        """Return the entries of a segment in release order.

        A record that the segment only points to is read again in the delay topic. Where ``keeps`` says no, the entry
        has the schedule and the size of the record alone.

        Raise ClusterError when the cluster does not answer; raise RefusedError when the segment is lost and cannot be
        restored.
        """
        return self.load_run(manifest, range(number, number + 1), reader, keeps)[0]

    def load_run(
        self, manifest: Manifest, numbers: range, reader: Records, keeps: Keeps
    ) -> list[list[Entry[Scheduled]]]:
        """Return the entries of each of some consecutive segments, as ``load`` does."""
        read = self.read(manifest, numbers, reader)
        return [self._loaded(manifest, *each, reader, keeps) for each in zip(numbers, read, strict=True)]

    def read(self, manifest: Manifest, numbers: Sequence[int], reader: Records) -> list[Record | None]:
        """Read some segments, ascending, as the snapshots topic stores them; None for a segment that is missing.

        Raise ClusterError when the cluster does not answer.
        """
        offsets = [manifest.segments[number].record_offset for number in numbers]
        read = reader.read_large(self._topic.snapshots, self._partition, sorted(offsets))
        return list(map(read.__getitem__, offsets))

    def records(self, offsets: Sequence[int], reader: Records) -> ReadEach:
        """Read the records at these ascending offsets of the delay topic, to be closed; None for one that is gone.

        Raise ClusterError when the cluster does not answer.
        """
        return reader.read_each(self._topic.name, self._partition, offsets)

    def stored(self, manifest: Manifest, number: int, record: Record | None, reader: Records) -> list[StoredEntry]:
        """Return the entries of a segment that was ``read``, in release order.

        ``reader`` restores a damaged segment; the entries then include records that were released before it was
        written. Raises the errors of ``load``.
        """
        try:
            stored = self._columns(manifest.segments[number], record).entries()
        except FormatError as error:
            stored = self._from_delay_topic(manifest, number, reader, error)
        return _unmasked(manifest, stored)

    def rows(self, manifest: Manifest, number: int, record: Record | None, packer: RowPacker) -> PackedRun | None:
        """Return the entries as rows of this packer; None where the segment has to be ``stored``, or is not sound."""
        ref = manifest.segments[number]
        if ref.placement is Placement.POINTER or record is None or record.value is None:
            return None
        try:
            rows = self._codec.decode_rows(record.value, packer)
        except FormatError:
            return None
        if rows is None or not _is_of(ref, rows.dues_ms, rows.offsets) or min(rows.offsets) < manifest.from_offset:
            return None
        return packed_rows(rows, packer, self._codec)

    def _loaded(
        self, manifest: Manifest, number: int, record: Record | None, reader: Records, keeps: Keeps
    ) -> list[Entry[Scheduled]]:
        try:
            columns = self._columns(manifest.segments[number], record)
        except FormatError as error:
            made_good = self._from_delay_topic(manifest, number, reader, error)
            return self._scheduled(_unmasked(manifest, made_good), reader, keeps)
        if manifest.built_from is not None and min(columns.offsets) < manifest.from_offset:
            return self._scheduled(_unmasked(manifest, columns.entries()), reader, keeps)
        alike = self._alike(columns, manifest.segments[number].size_bytes)
        return alike or self._scheduled(columns.entries(), reader, keeps)

    def _columns(self, ref: SegmentRef, record: Record | None) -> Columns:
        """Decode the segment in a record; raise FormatError when it is not the segment that the manifest means."""
        if record is None or record.value is None:
            place = f"{self._topic.snapshots}/{self._partition}"
            raise FormatError(f"{place} has nothing that can be read at offset {ref.record_offset}")
        columns = self._codec.decode_columns(record.value)
        if not _is_of(ref, columns.dues_ms, columns.offsets):
            raise FormatError("it is not the segment that the manifest names")
        return columns

    def _alike(self, columns: Columns, size_bytes: int) -> list[Entry[Scheduled]] | None:
        """Decide all entries at once; return None unless all are of one rule epoch and have the same header names."""
        names, records = columns.names, cast("Sequence[Record]", columns.records)
        lowest, highest = min(columns.offsets), max(columns.offsets)
        rules = self._history.over(lowest, highest)
        if names is None or rules is None:
            return None
        by_name = [columns.header_values[place :: len(names)] for place in range(len(names))]
        timestamps_ms = [record[3] for record in records]
        schedules = decide_alike(rules, names, by_name, timestamps_ms, columns.dues_ms)
        if schedules is None:
            return None
        size = mean_size(len(records), len(columns.header_values), size_bytes)
        payloads = map(_new_tuple, repeat(Scheduled), zip(schedules, repeat(size), records, strict=False))
        return list(zip(columns.dues_ms, columns.offsets, payloads, strict=True))

    def _scheduled(self, stored: Sequence[StoredEntry], reader: Records, keeps: Keeps) -> list[Entry[Scheduled]]:
        read = self._read_again({offset: due_ms for due_ms, offset, record in stored if record is None}, reader, keeps)
        return [
            (due_ms, offset, read[offset] if inline is None else self._payload(due_ms, offset, inline))
            for due_ms, offset, inline in stored
        ]

    def _read_again(self, dues_ms: dict[int, int], reader: Records, keeps: Keeps) -> dict[int, Scheduled]:
        """Read the records at these offsets in the delay topic, each with its due time, and keep the ones that may be
        kept.
        """
        read: dict[int, Scheduled] = {}
        if not dues_ms:
            return read
        with closing(self.records(sorted(dues_ms), reader)) as records:
            for offset, record in records:
                due_ms = dues_ms[offset]
                payload = self._payload(due_ms, offset, record)
                # A record without a target is kept even if it is large: it is to be rejected, or gone.
                if keeps(due_ms, payload.size_bytes) or not payload.schedule.targets:
                    read[offset] = payload
                else:
                    read[offset] = payload._replace(record=None)
        return read

    def _payload(self, due_ms: int, offset: int, record: Record | None) -> Scheduled:
        if record is None:
            # The record is gone from the delay topic. It is counted as lost when it is due, and not before.
            return scheduled(Schedule(due_ms, (), BY_KEY, KEEP_KEY, None, both_times=False), 0, None)
        decision, record = decide(self._history.at(offset), record, offset)
        if isinstance(decision, Rejection) and due_ms == AT_ONCE:
            # A backfill leaves such a record to the owner to reject; see sidecar.engine.release.screening.
            return scheduled(Schedule(due_ms, (), BY_KEY, KEEP_KEY, None, both_times=False), size_of(record), record)
        schedule = schedule_of(decision)
        if schedule is None or schedule.due_ms != due_ms:
            raise RefusedError(
                f"{self._topic.name}/{self._partition}: the record at offset {offset} is not the one that was indexed"
                f" as due at {due_ms}; was the topic created again? To index it from its start:"
                f" delay-router start-over {self._topic.name}/{self._partition}"
            )
        return scheduled(schedule, size_of(record), record)

    def decide(self, offset: int, record: Record) -> Decision:
        """Decide a record again, by the rules that held when it was indexed."""
        return decide(self._history.at(offset), record, offset)[0]

    def names_id(self, offset: int, record: Record) -> bool:
        """Say whether a record has an id, unless it is rejected, by a glance at its header names."""
        return self._history.at(offset).controls.names_id(record.headers)

    def _from_delay_topic(
        self, manifest: Manifest, number: int, reader: Records, cause: FormatError
    ) -> list[StoredEntry]:
        ref = manifest.segments[number]
        what = f"segment {number} of bucket {manifest.bucket_id} of {self._topic.name}/{self._partition}"
        self._log.error("segment_damaged", segment=number, bucket=manifest.bucket_id, why=str(cause))
        found: list[StoredEntry] = []
        rejected: list[StoredEntry] = []
        span = manifest.segments_from, manifest.to_offset
        # The scan yields nothing when a part of the range is gone, so a scan that yields records yields all that there
        # ever were.
        for offset, record in reader.scan(self._topic.name, self._partition, *span):
            # An adopted bucket was decided as a whole by the rules in force where it was adopted.
            decision, _ = decide(self._history.at(max(offset, manifest.from_offset)), record, offset)
            if isinstance(decision, Control) and decision.schedule is None:
                # It cancelled or moved others, and was never pending itself.
                continue
            due_ms = due_ms_of(decision)
            if ref.first <= (due_ms, offset) <= ref.last:
                kept = rejected if isinstance(decision, Rejection) else found
                # A record with unreadable headers cannot be written to a segment.
                is_inline = ref.placement is Placement.INLINE and not isinstance(record.headers, UnreadableHeaders)
                kept.append((due_ms, offset, record if is_inline else None))
        is_restored = manifest.segments_from < self._restored_to
        if is_restored or len(found) < ref.entries:
            # Only a backfill leaves records that are to be rejected in a bucket.
            found += rejected
        if len(found) < ref.entries:
            held = f"the delay topic holds {len(found)} of its {ref.entries} records"
            raise self._lost(f"{what} is lost ({cause}), and {held}")
        # Finding more records than entries is usual: a record that was released before its neighbours in due time were
        # written is not in the segment. It is at or before the watermark, and loading drops it. But a job has left out
        # records on both sides of the watermark.
        if len(found) > ref.entries and is_restored:
            raise self._lost(
                f"{what} is lost ({cause}); it held {ref.entries} of {len(found)} records in the delay topic, because a"
                " job made its bucket without the records that had left or were cancelled, and nothing else names these"
            )
        self._log.warning("segment_made_good", segment=number, bucket=manifest.bucket_id, records=len(found))
        return sorted(found, key=lambda entry: entry[:2])

    def _lost(self, why: str) -> RefusedError:
        return RefusedError(
            f"{why}. Restore {self._topic.snapshots}, or go on without it, and release all records in the delay topic"
            f" again: delay-router start-over {self._topic.name}/{self._partition}"
        )


def _is_of(ref: SegmentRef, dues_ms: Sequence[int], offsets: Sequence[int]) -> bool:
    """Say whether there are as many entries as a manifest says, between the same first and last entry."""
    ends = (dues_ms[0], offsets[0]), (dues_ms[-1], offsets[-1])
    return len(offsets) == ref.entries and ends == (ref.first, ref.last)


def _unmasked(manifest: Manifest, stored: list[StoredEntry]) -> list[StoredEntry]:
    """Leave out the entries of other buckets, which a backfill that began below C holds."""
    if manifest.built_from is None:
        return stored
    return [entry for entry in stored if entry[1] >= manifest.from_offset]
