"""Routers with one mistake each about take-overs, other owners, retention or the content of a record."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from index.errors import ClusterError
from index.pending.pending import Entry
from index.pending.progress import start_of
from index.protocol.record import Record
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.ownership.rounds import Rounds
from sidecar.engine.ownership.serving import ServingLoop, Steps
from sidecar.engine.ownership.takeover import read_origin
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.plan import Plan
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.screening import Screening, Stage
from sidecar.engine.release.transaction import Transaction
from snapshots.envelope import kind_of, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.state.state import PROGRESS_KEY, StoredState, fold_state
from tests.simulation.host import Host, SimulatedStanding
from tests.simulation.replacing import OWNED, SERVING, Wrong
from tests.simulation.settings import Surroundings


class _ReadBefore(SimulatedStanding):
    def __init__(self, around: Surroundings, read: StoredState | None) -> None:
        super().__init__(around)
        self._read = read

    def stored(self) -> StoredState | None:
        return self._read


class _ReadsFirst(Host):
    def fence(self, stopping: Callable[[], bool] = lambda: False) -> None:
        self._read = fold_state(self._around.store.state)
        self._around.faults.point("state read", rare=True)
        super().fence(stopping)

    def standing(self) -> SimulatedStanding:
        return _ReadBefore(self._around, self._read)


class ReadsBeforeFencing(Wrong):
    """Reads the state while the last owner can still write it, and fences that owner afterwards."""

    replaces: ClassVar = {"tests.simulation.serving.Host": _ReadsFirst}


class _MissesNothing(SimulatedStanding):
    def stored(self) -> StoredState | None:
        return fold_state([_saying_nothing(*record) for record in self._around.store.state])


def _saying_nothing(key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the record without the inventory of the state, as routers wrote it before progress had one."""
    if key != PROGRESS_KEY or value is None:
        return key, value
    message = state_pb2.Progress.FromString(unwrap(kind_of(value), value))
    message.ClearField("inventory")
    return key, wrap(kind_of(value), message.SerializeToString())


class BeginningNotMissed(Wrong):
    """Treats the remainder of a state that has lost its beginning as the whole state."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedStanding": _MissesNothing}


class _Silent(Screening):
    def _alarm_about_lost(self, offsets: Sequence[int]) -> None:
        pass


class LostInSilence(Wrong):
    """Passes over records that retention has removed, and raises no alarm."""

    replaces: ClassVar = {OWNED + "Screening": _Silent, OWNED + "tell_of_origin": lambda *_: None}


class _ListsOnce(Screening):
    _listed: Sequence[Stage] = ()

    def stages_for(self, plan: Plan) -> list[Stage]:
        self._listed = self._listed or super().stages_for(plan)
        return [*self._listed]


class StageLeftOut(Wrong):
    """Lists the stages once for an ownership, though policies, doubts and controls come later."""

    replaces: ClassVar = {OWNED + "Screening": _ListsOnce}


def _as_new(*given: Any, **more: Any) -> Origin:
    origin = read_origin(*given, **more)
    return replace(origin, progress=start_of(origin.progress.sealed_to)) if origin.lost else origin


class StartsOverAtLogStart(Wrong):
    """Treats a log that begins behind S as a new log."""

    replaces: ClassVar = {OWNED + "read_origin": _as_new}


class _Empties(Releaser):
    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        return replace(transaction, released=list(map(_emptied, transaction.released)))


def _emptied(entry: Entry[Scheduled]) -> Entry[Scheduled]:
    due_ms, offset, payload = entry
    record: Record | None = payload.record
    assert record is not None
    headers = [(name, content or b"") for name, content in record.headers]
    return due_ms, offset, payload._replace(record=record._replace(headers=headers))


class NullTakenForEmpty(Wrong):
    """Writes an empty value where a header has a null value."""

    replaces: ClassVar = {OWNED + "Releaser": _Empties}


class _ByFirst(Releaser):
    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        targets = [payload.schedule.targets for _, _, payload in transaction.released]
        released = [
            (due_ms, offset, payload._replace(schedule=payload.schedule._replace(targets=targets[0])))
            for due_ms, offset, payload in transaction.released
        ]
        return replace(transaction, released=released)


class TargetOfFirst(Wrong):
    """Writes a whole batch to the target of its first record."""

    replaces: ClassVar = {OWNED + "Releaser": _ByFirst}


class _Oversleeps(Rounds):
    wakes_ms: int | None = 0

    def once(self) -> None:
        if self.wakes_ms is None or self._clock.now_ms() < self.wakes_ms:
            self._index(0)
            return
        super().once()
        self.wakes_ms = self._owned.ledger.next_due_ms()


class StaleTimer(Wrong):
    """Sleeps until the due time known at its last release, though a sooner one may have been indexed since."""

    replaces: ClassVar = {SERVING + "Rounds": _Oversleeps}


class _TrustsItself(ServingLoop):
    def _may_take_over(self) -> bool:
        return True


class FencedFencesAgain(Wrong):
    """Takes over again after it was fenced, and does not ask the group which router has the partition."""

    replaces: ClassVar = {SERVING + "ServingLoop": _TrustsItself}


class _Endures(ServingLoop):
    def _go_round(self, host: Any, owned: Any, rounds: Any) -> Steps[None]:
        while not self._is_over(host, owned):
            with suppress(ClusterError):
                yield from super()._go_round(host, owned, rounds)
            yield LIMITS.first_pause_s


class IndexKeptAfterError(Wrong):
    """Goes on with its index and its producer after an error of the cluster."""

    replaces: ClassVar = {SERVING + "ServingLoop": _Endures}


class _NeverDrains(ServingLoop):
    def _is_over(self, host: Any, owned: Any) -> bool:
        return self._process.is_stopping() or self._again or host.is_apart


class DrainedIsServed(Wrong):
    """Serves a partition until the group takes it away, though a policy has drained the delay topic since."""

    replaces: ClassVar = {SERVING + "ServingLoop": _NeverDrains}


ALL: tuple[type[Wrong], ...] = (
    ReadsBeforeFencing,
    BeginningNotMissed,
    LostInSilence,
    StageLeftOut,
    StartsOverAtLogStart,
    NullTakenForEmpty,
    TargetOfFirst,
    StaleTimer,
    FencedFencesAgain,
    IndexKeptAfterError,
    DrainedIsServed,
)
