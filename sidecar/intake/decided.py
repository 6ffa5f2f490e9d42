"""What reading ahead has come to, for the worker to index; what comes of indexing it."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from index.pending import Entry
from index.record import Record
from index.schedule import Control, Reason, Rejection
from sidecar.intake.bad_batches import BadBatch
from sidecar.payload.records import Payload, Refused

_NO_TIMESTAMP = -1


class Rejected(NamedTuple):
    """A record on its way to the rejected topic."""

    offset: int
    refused: Refused


class Controlling(NamedTuple):
    """A record that cancels, moves or replaces others; ``entry`` is the schedule that a replacement becomes."""

    offset: int
    control: Control
    record: Record
    entry: Entry[Payload] | None


Step: TypeAlias = list[Entry[Payload]] | Rejected | Controlling | BadBatch | int
"""What to do to the ledger: add a run, reject a record, evaluate a control, reject a batch that cannot be read and step
over it, or step over what yields no record, up to an offset."""


@dataclass(slots=True)
class Decided:
    """What was read at once; ``failed`` ends it, and ``at`` is the first step that has not been indexed yet.

    ``names`` has the hash of the id of each record in a run that has one, by offset; ``shifts_ms`` how long after they
    were asked for those of them leave that are spread.
    """

    steps: list[Step] = field(default_factory=list)
    names: dict[int, bytes] = field(default_factory=dict)
    shifts_ms: dict[int, int] = field(default_factory=dict)
    at: int = 0
    records: int = 0
    both_times: int = 0
    without_time: int = 0
    resident_bytes: int = 0
    failed: Exception | None = None


@dataclass(slots=True)
class Indexed:
    """What one round of intake did; ``size_bytes`` is what it would cost to release or reject all of it at once."""

    accepted: int = 0
    both_times: int = 0
    without_time: int = 0
    resident_bytes: int = 0
    size_bytes: int = 0
    bad: list[BadBatch] = field(default_factory=list)


def stub_of(bad: BadBatch) -> Refused:
    """What stands in the rejected topic for a batch that cannot be read: where it lies, and why, and nothing of it."""
    message = (
        f"Offsets {bad.from_offset} to {bad.to_offset - 1} are a batch that the client cannot read, and nothing of its"
        f" records is here: {bad.why}"
    )
    return Refused(Rejection(Reason.UNREADABLE, message), Record(None, None, (), _NO_TIMESTAMP))
