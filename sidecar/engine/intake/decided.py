"""The steps that reading ahead has decided, for the worker to index; and the result of indexing them."""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from index.pending.pending import Entry
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.schedule import Control, Reason, Rejection
from sidecar.engine.payload.records import Payload, Refused

_NO_TIMESTAMP = -1


class Message(Protocol):
    """A record as the client hands it over, or an event that says why there is none."""

    def offset(self) -> int | None:
        """Return the offset of the record, or of the event."""

    def error(self) -> object | None:
        """Return the error of an event; None for a record."""

    def key(self) -> Any:
        """Return the key of the record."""

    def value(self) -> Any:
        """Return the value of the record."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of its timestamp, and the timestamp in milliseconds."""


class BadBatch(NamedTuple):
    """Offsets [from_offset, to_offset) of a batch that cannot be read, and the words of the client."""

    from_offset: int
    to_offset: int
    why: str


class Fetched(Protocol):
    """The result of one read: messages and the headers of each, or a batch that cannot be read."""

    @property
    def messages(self) -> Sized:
        """The messages, for the native decider."""

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each message, where Python has read them."""

    @property
    def bad(self) -> BadBatch | None:
        """The batch that cannot be read; then there are no messages."""

    def some(self, start: int, stop: int) -> Iterable[tuple[Message, Headers]]:
        """Yield messages with their headers, from one place up to another."""

    def require_end(self, error: Any) -> None:
        """Raise a ClusterError unless the error of a message says that the partition ends there."""


class NativeDecider(Protocol):
    """Decides records of the common form in native code."""

    def decide(
        self,
        messages: Any,
        headers: Sequence[Headers],
        start: int,
        below: int,
        far_ms: int,
        room_bytes: int,
        run: list[Any],
        names: dict[int, bytes],
        /,
    ) -> tuple[int, int, int]:
        """Continue a run from a place on.

        Return the place of the first message that is left to Python, the bytes of payload taken, and how many records
        have no time header.
        """


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
"""One change to the ledger: add a run, reject a record, evaluate a control, reject an unreadable batch and step over
it, or step over offsets that yield no record, up to an offset."""


@dataclass(slots=True)
class Decided:
    """The steps of one read; ``failed`` ends reading, and ``at`` is the first step that has not been indexed yet.

    ``names`` has the hash of the id of each record in a run that has one, by offset. ``shifts_ms`` has the spread of
    the records with an id that are spread: the time from the requested due time to the due time.
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
    """The result of one round of intake; ``size_bytes`` is the cost of releasing or rejecting all of it at once."""

    accepted: int = 0
    both_times: int = 0
    without_time: int = 0
    resident_bytes: int = 0
    size_bytes: int = 0
    bad: list[BadBatch] = field(default_factory=list)


def stub_of(bad: BadBatch) -> Refused:
    """Make the record that stands in the rejected topic for an unreadable batch: its offsets and the reason, no
    content.
    """
    message = (
        f"Offsets {bad.from_offset} to {bad.to_offset - 1} are a batch that the client cannot read, and nothing of its"
        f" records is here: {bad.why}"
    )
    return Refused(Rejection(Reason.UNREADABLE, message), Record(None, None, (), _NO_TIMESTAMP))
