"""Routers with one mistake each about schedules that are cancelled by query; see :mod:`.wrong`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from index.named.queries import Queries, Query, cancelling
from index.named.transit import Transit
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.recurring import may_recur
from index.protocol.schedule import Schedule
from sidecar.engine.buckets.queries import StoredQueries
from sidecar.engine.release.plan import Attempt, Plan
from sidecar.engine.release.querying import Querying
from sidecar.engine.release.screening import Screening, Stage
from tests.simulation.replacing import OWNED, Wrong


def _nothing(_: Queries) -> Iterator[tuple[bytes, bytes | None]]:
    return iter(())


class QueryInMemory(Wrong):
    """Keeps a query in memory only."""

    replaces: ClassVar = {"sidecar.engine.release.releaser.query_records": _nothing}


class QueryNotTakenOver(Wrong):
    """Ignores the queries of the last owner."""

    replaces: ClassVar = {OWNED + "Queries": lambda _: Queries()}


class _ForgetsBuckets(Queries):
    def begin(self, _ranges: Iterable[range], sealed_to: int) -> None:
        super().begin([], sealed_to)


class QueryForgottenInBuckets(Wrong):
    """Forgets a query while a bucket still holds a record in front of it."""

    replaces: ClassVar = {OWNED + "Queries": _ForgetsBuckets}


class _ForgetsUnsealed(Queries):
    def begin(self, ranges: Iterable[range], _sealed_to: int) -> None:
        super().begin(ranges, 1 << 40)


class QueryForgottenInLog(Wrong):
    """Forgets a query while a record in front of it is pending in memory alone."""

    replaces: ClassVar = {OWNED + "Queries": _ForgetsUnsealed}


class _StoredAlone(Querying):
    def drop(self, attempt: Attempt) -> None:
        owed, self.queries._owed = self.queries._owed, None
        super().drop(attempt)
        self.queries._owed = owed


class QueryOneLater(Wrong):
    """Releases schedules that match in the transaction with the receipt of the query."""

    replaces: ClassVar = {OWNED + "Querying": _StoredAlone}


def _of_all(queries: Sequence[Query], _offset: int, schedule: Schedule, record: Record | None) -> Query | None:
    return cancelling(queries, -1, schedule, record)


class QueryForAll(Wrong):
    """Drops schedules behind a query, too, while it is in force."""

    replaces: ClassVar = {"sidecar.engine.release.querying.cancelling": _of_all}


class _KeepsHeld(Querying):
    def _held(self, _in_force: Any) -> frozenset[int]:
        return frozenset()


class HeldSparedByQuery(Wrong):
    """Leaves a record that matches held for its target, and releases it later."""

    replaces: ClassVar = {OWNED + "Querying": _KeepsHeld}


class _SparesUnread(StoredQueries):
    def _behind(self, _query: Query) -> list[Position]:
        return []


class TransitSparedByQuery(Wrong):
    """Does not cancel the next occurrence of a series that has been written and has not been read yet."""

    replaces: ClassVar = {OWNED + "StoredQueries": _SparesUnread}


class _NotesIdsAlone(Transit):
    def behind(self, offset: int) -> list[Position]:
        return [
            note.place
            for notes in self._lots.values()
            for note in notes
            if note.place.offset > offset and any(note.id_hash)
        ]


class TransitWithoutIdSpared(Wrong):
    """Does not cancel an unread occurrence without an id."""

    replaces: ClassVar = {OWNED + "Transit": _NotesIdsAlone}


def _of_single(queries: Sequence[Query], offset: int, schedule: Schedule, record: Record | None) -> Query | None:
    recurs = record is not None and may_recur(record.headers)
    return None if recurs else cancelling(queries, offset, schedule, record)


class SeriesSparedByQuery(Wrong):
    """Does not cancel an occurrence of a series."""

    replaces: ClassVar = {"sidecar.engine.release.querying.cancelling": _of_single}


class _LooksOnce(Screening):
    def stages_for(self, plan: Plan) -> list[Stage]:
        return [stage for stage in super().stages_for(plan) if stage != self.querying.drop]


class HeadersNotRead(Wrong):
    """Decides a record that is not in memory by its schedule alone."""

    replaces: ClassVar = {OWNED + "Screening": _LooksOnce}


class _FindsAll(StoredQueries):
    def cancelled(self, _deliver_id: bytes, _held: Mapping[Position, int]) -> Collection[int]:
        return ()


class CancelledTwice(Wrong):
    """Finds a schedule by its id that a query has cancelled before."""

    replaces: ClassVar = {OWNED + "StoredQueries": _FindsAll}


class _ByIndexAlone(StoredQueries):
    def cancelled(self, deliver_id: bytes, held: Mapping[Position, int]) -> Collection[int]:
        read, self._read = self._read, lambda _: {}
        try:
            return super().cancelled(deliver_id, held)
        finally:
            self._read = read


class NotReadForAnId(Wrong):
    """Finds a schedule by its id if due time and id alone do not tell that a query has cancelled it."""

    replaces: ClassVar = {OWNED + "StoredQueries": _ByIndexAlone}


class _CountsAll(StoredQueries):
    def _live(self, places: Iterable[Position]) -> set[Position]:
        return set(places)


class CountsWhatLeft(Wrong):
    """Counts schedules that have left, or were cancelled before."""

    replaces: ClassVar = {OWNED + "StoredQueries": _CountsAll}


ALL: tuple[type[Wrong], ...] = (
    QueryInMemory,
    QueryNotTakenOver,
    QueryForgottenInBuckets,
    QueryForgottenInLog,
    QueryOneLater,
    QueryForAll,
    HeldSparedByQuery,
    TransitSparedByQuery,
    TransitWithoutIdSpared,
    SeriesSparedByQuery,
    HeadersNotRead,
    CancelledTwice,
    NotReadForAnId,
    CountsWhatLeft,
)
