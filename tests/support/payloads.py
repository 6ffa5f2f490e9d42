"""Records of one topic, decided, whole or packed."""

from index.protocol.record import Record
from index.protocol.schedule import Schedule
from index.rules.rules import Rules
from sidecar.engine.payload.records import Packed, Payload, packed, scheduled, size_of
from snapshots.segments.rows import RowPacker

RULES = Rules(topic="d", default_target="t", allowed_targets=("other",))
NOW_MS = 1_800_000_000_000


def decide(_offset: int, record: Record) -> Schedule:
    """Decide a record by the rules of the topic."""
    decision = RULES.decide(record.headers, record.timestamp_ms)
    assert isinstance(decision, Schedule)
    return decision


def record_at(due_ms: int, value: bytes = b"v") -> Record:
    """Make a record that is due then."""
    headers = [("deliver-at", b"%d" % due_ms), ("deliver-to", b"other"), ("trace", b"x")]
    return Record(b"k%d" % due_ms, value, headers, NOW_MS)


def loose(record: Record) -> Payload:
    """Return the payload of a record that is due soon."""
    return scheduled(decide(0, record), size_of(record), record)


def tight(record: Record, packer: RowPacker) -> Packed:
    """Return the packed payload of a record that waits for long."""
    row = packer.pack(record.key, record.value, record.headers)
    assert row is not None
    return packed(record.timestamp_ms, row, packer)
