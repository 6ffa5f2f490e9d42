"""Routers that are wrong in one thing each: other owners, what retention has removed, or what a record holds."""

from collections.abc import Iterable

from index.pending import Entry
from index.progress import Progress, start_of
from index.record import Record
from sidecar.payload.records import Leaving, Scheduled
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.state import PROGRESS_KEY, PartitionState, fold_state
from tests.simulation.router import Router
from tests.simulation.world import Left
from tests.simulation.wrong_buckets import Wrong


class ReadsBeforeFencing(Wrong):
    """Reads the state while the last owner may still write it, and fences that owner afterwards."""

    def take_over(self) -> None:
        self._read = fold_state(self.around.store.state)
        self.around.faults.point("state read", rare=True)
        super().take_over()

    def stored_state(self) -> PartitionState | None:
        return self._read


class BeginningNotMissed(Wrong):
    """Takes what is left of a state that has lost its beginning for all of it."""

    def stored_state(self) -> PartitionState | None:
        return fold_state([_saying_nothing(*record) for record in self.around.store.state])


def _saying_nothing(key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
    """The same, as it was written before progress said what else there is."""
    if key != PROGRESS_KEY or value is None:
        return key, value
    message = state_pb2.Progress.FromString(unwrap(Kind.PROGRESS, value))
    message.ClearField("inventory")
    return key, wrap(Kind.PROGRESS, message.SerializeToString())


class LostInSilence(Wrong):
    """Passes over what retention has removed as if it had never been."""

    def tell_lost(self, offsets: Iterable[int]) -> None:
        pass


class StartsOverAtLogStart(Wrong):
    """Takes a log that begins behind S for a new one."""

    def origin_of(self, stored: PartitionState | None) -> Progress:
        progress = super().origin_of(stored)
        removed = stored is not None and stored.progress.sealed_to < self.around.log.start
        return start_of(self.around.log.start) if removed else progress


class NullTakenForEmpty(Wrong):
    """Writes an empty value where a header has none."""

    def _released(self, entry: Entry[Scheduled]) -> list[Left]:
        return [left._replace(record=_emptied(left.record)) for left in super()._released(entry)]


def _emptied(record: Record | None) -> Record | None:
    return record and record._replace(headers=[(name, content or b"") for name, content in record.headers])


class TargetOfFirst(Wrong):
    """Writes a batch to the target of its first record."""

    def leaving(self, batch: Leaving) -> list[Left]:
        leaving = super().leaving(batch)
        released = [left for left in leaving if not left.topic.endswith(".rejected")]
        return [left._replace(topic=released[0].topic) if left in released else left for left in leaving]


class StaleTimer(Wrong):
    """Sleeps until what was due next when it last released, though something sooner may have come in."""

    wakes_ms: int | None = 0

    def release(self, max_entries: int, max_bytes: int) -> None:
        if self.wakes_ms is None or self.around.clock.now_ms < self.wakes_ms:
            return
        super().release(max_entries, max_bytes)
        self.wakes_ms = self.ledger.next_due_ms()


ALL: tuple[type[Router], ...] = (
    ReadsBeforeFencing,
    BeginningNotMissed,
    LostInSilence,
    StartsOverAtLogStart,
    NullTakenForEmpty,
    TargetOfFirst,
    StaleTimer,
)
