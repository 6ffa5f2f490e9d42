"""Routers with one mistake each about recurring schedules; see :mod:`.wrong`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from index.protocol.occurrences import NOBODY_ASKED, Following, following, record_of
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, Recurrence
from sidecar.engine.buckets.trimming import KeyCopy
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.ownership.takeover import read_origin
from sidecar.engine.payload.records import Appended
from sidecar.engine.release.occurring import Recurring, Series
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.transaction import Transaction
from tests.simulation.replacing import OWNED, Wrong

_SERIES = "sidecar.engine.release.occurring."


class _WritesNextLater(Releaser):
    _owed: Sequence[Appended] = ()

    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        owed, _WritesNextLater._owed = self._owed, transaction.appended
        return replace(transaction, appended=owed)


class NextOneLater(Wrong):
    """Writes the next occurrence one transaction after the previous one, and that transaction may never come."""

    replaces: ClassVar = {OWNED + "Releaser": _WritesNextLater}


class _FollowsWhatIsHeld(Recurring):
    def appended(self, leaving: Iterable[int]) -> list[Appended]:
        return super().appended([*self.next])


class NextOfHeld(Wrong):
    """Writes the next occurrence while the previous one is held for its target, and again when that one leaves."""

    replaces: ClassVar = {_SERIES + "Recurring": _FollowsWhatIsHeld}


class _GoesOnWithReleased(Series):
    def look(self, released: Any, rejected: Any, *given: Any) -> Recurring:
        return super().look(released, [], *given)


class RefusedEndsSeries(Wrong):
    """Ends a series when the target refuses an occurrence."""

    replaces: ClassVar = {OWNED + "Series": _GoesOnWithReleased}


def _from_now(recurrence: Recurrence, zone: Any, last: Occurrence, written_ms: int, now_ms: int) -> Following | None:
    found = following(recurrence, zone, last, written_ms, now_ms)
    return found and found._replace(due_ms=now_ms + recurrence.period_ms)


class PeriodFromRelease(Wrong):
    """Counts the period from the release of an occurrence, where its due time counts."""

    replaces: ClassVar = {_SERIES + "following": _from_now}


def _each(recurrence: Recurrence, *given: Any) -> Following | None:
    return following(recurrence._replace(takes_all=True), *given)


class MissedAllReleased(Wrong):
    """Releases every missed occurrence, though the series asks for one."""

    replaces: ClassVar = {_SERIES + "following": _each}


def _by_own_record(record: Record, recurrence: Recurrence) -> int:
    is_first = recurrence.occurrence is None or recurrence.occurrence.number == 1
    return record.timestamp_ms if is_first else NOBODY_ASKED


class MissedFromOwnRecord(Wrong):
    """Counts only occurrences after the first write by a router as missed, however late that write was."""

    replaces: ClassVar = {_SERIES + "missed_from_ms": _by_own_record}


def _not_counted(record: Record, occurrence: Occurrence, *given: Any) -> Record:
    return record_of(record, occurrence._replace(number=max(1, occurrence.number - 1)), *given)


class OccurrenceNotCounted(Wrong):
    """Writes the next occurrence under the number of the previous one."""

    replaces: ClassVar = {_SERIES + "record_of": _not_counted}


class ForgeryTrusted(Wrong):
    """Accepts every record that claims to be an occurrence as its own."""

    replaces: ClassVar = {_SERIES + "is_ours": lambda *_: True}


class _NeverAgain(KeyCopy):
    def keep_behind(self, offset: int) -> None:
        pass

    def limit(self, offset: int) -> int:
        return offset


class KeyCopyTrimmed(Wrong):
    """Trims the snapshots topic past the copy of the key that signs occurrences, and writes no new copy."""

    replaces: ClassVar = {"sidecar.engine.buckets.trimming.KeyCopy": _NeverAgain}


def _without_key(*given: Any, **more: Any) -> Origin:
    origin = read_origin(*given, **more)
    return replace(origin, progress=origin.progress._replace(series_key=b""))


class KeyOfEachOwner(Wrong):
    """Signs with a key of its own, and rejects occurrences of the last owner as forged."""

    replaces: ClassVar = {OWNED + "read_origin": _without_key}


class BeginningReleased(Wrong):
    """Releases the record that begins a series in addition to its first occurrence."""

    replaces: ClassVar = {"sidecar.engine.release.plan.Screened.beginning": lambda screened, _: screened}


ALL: tuple[type[Wrong], ...] = (
    NextOneLater,
    NextOfHeld,
    RefusedEndsSeries,
    PeriodFromRelease,
    MissedAllReleased,
    MissedFromOwnRecord,
    OccurrenceNotCounted,
    ForgeryTrusted,
    KeyCopyTrimmed,
    KeyOfEachOwner,
    BeginningReleased,
)
