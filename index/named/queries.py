"""Queries in force: predicates that have cancelled every schedule in front of their control that matches.

A control with an id names its schedules, and each of them is masked. A control with a predicate touches no record. The
state keeps the predicate and the offset of its control, and each reader of pending records asks::

    log     ── a ──── b ──── Q1 ──── c ──── Q2 ──►      a, b and c match both predicates
    Q1 has cancelled a and b, Q2 has cancelled c: the first query behind a schedule that it matches

A query is decided about the record, so only where the record is at hand: when it leaves, when it is shown, when it is
exported. A record that a bucket holds stays in its segments until the watermark reaches it. Then it is dropped, and the
next occurrence of its series with it.

The moment of a query is the transaction that contains its receipt. Two rules make that moment sharp: a query is read
only when nothing is owed, and nothing is read behind it until its transaction is committed. So nothing leaves between
the answer and the moment, and each record in front of the query is pending, or has left for good.

Two kinds of schedules are cancelled by their places, because no predicate can tell them from others later: records that
are held for their targets leave the state with the receipt; records that the router has appended behind the query and
not read yet (:mod:`index.named.transit`) are masked, and the receipt names them. One that the rules of the moment
reject is no schedule then, so it stays; other rules may hold when it is read, and accept it.

A query is forgotten once S has reached its control and no bucket has a lower offset. Then nothing in front of it is
pending, except held records, which it had no part in.

Rejected: masking each schedule that matches. A million of them would have to be found before the receipt, and would
take a container of the mask for each 2^16 offsets.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from index.protocol.record import Record
from index.protocol.schedule import Schedule
from index.protocol.where import CancelWhere

MOST_QUERIES: Final = 100
"""Most queries in force in a partition. Each record that leaves is compared with all of those behind it, at half a
microsecond each."""


class Query(NamedTuple):
    """A predicate in force.

    ``offset`` is the place of its control. ``left`` is about how many of the schedules that it has cancelled are still
    where they were.

    >>> from index.protocol.where import parse_where
    >>> query = Query(9, parse_where(b'{"target": "orders"}'), 2)
    >>> schedule = Schedule(5, ("orders",), -1, None, None, both_times=False)
    >>> query.cancels(8, schedule, None), query.cancels(10, schedule, None)
    (True, False)
    """

    offset: int
    where: CancelWhere
    left: int

    def cancels(self, offset: int, schedule: Schedule, record: Record | None) -> bool:
        """Return whether it has cancelled the schedule of the record at ``offset``.

        Without a record that it needs it has not, so ask again when the record is there.
        """
        # A record without a target is to be rejected, or gone: it is no schedule.
        if offset >= self.offset or not schedule.targets or (record is None and self.where.needs_record(schedule)):
            return False
        return self.where.matches(schedule, record)


def cancelling(queries: Sequence[Query], offset: int, schedule: Schedule, record: Record | None) -> Query | None:
    """Return the query that has cancelled the schedule of a record; None where none has. ``queries`` are by offset."""
    if not queries or offset > queries[-1].offset:
        return None
    return next((query for query in queries if query.cancels(offset, schedule, record)), None)


class Queries:
    """The queries of one owned partition, in the order of their offsets.

    >>> from index.protocol.where import parse_where
    >>> queries = Queries()
    >>> queries.owe(Query(9, parse_where(b'{"id_prefix": "a"}'), 5))
    >>> [query.offset for query in queries.in_force], queries.left
    ([9], 0)
    >>> queries.begin([], sealed_to=4)
    >>> queries.drop(9)
    >>> [(query.offset, query.left) for query in queries.changes()]
    [(9, 4)]
    >>> queries.confirm()
    >>> queries.left
    4
    >>> queries.begin([range(4, 9)], sealed_to=20)
    >>> list(queries.leaving)
    []
    >>> queries.begin([range(12, 30)], sealed_to=20)
    >>> list(queries.leaving)
    [9]
    """

    def __init__(self, stored: Iterable[Query] = ()) -> None:
        """Take the queries that the state holds."""
        self._stored = sorted(stored)
        self._owed: Query | None = None
        self._dropped: Counter[int] = Counter()
        self._needed_from = 0

    def __bool__(self) -> bool:
        return bool(self._stored) or self._owed is not None

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def in_force(self) -> list[Query]:
        """All queries, including the one whose receipt is owed."""
        return self._stored if self._owed is None else [*self._stored, self._owed]

    @property
    def is_owed(self) -> bool:
        """True while the receipt of a query has not left."""
        return self._owed is not None

    @property
    def left(self) -> int:
        """About how many cancelled schedules are still where they were."""
        return sum(query.left for query in self._stored)

    def owe(self, query: Query) -> None:
        """Put a query into force; the next transaction contains its receipt."""
        assert self._owed is None, "a query is owed already"
        assert not self._stored or self._stored[-1].offset < query.offset
        self._owed = query

    def begin(self, ranges: Iterable[range], sealed_to: int) -> None:
        """Begin a transaction; after it pending records lie in the ``ranges`` of buckets, or from ``sealed_to`` on."""
        self._dropped.clear()
        self._needed_from = min([sealed_to, *(each.start for each in ranges if each)])

    def drop(self, offset: int) -> None:
        """Note that the transaction drops a schedule that the query at ``offset`` has cancelled."""
        self._dropped[offset] += 1

    @property
    def leaving(self) -> Iterator[int]:
        """The offsets of stored queries that the transaction removes from the state."""
        return (query.offset for query in self._stored if not self._is_needed(query))

    def changes(self) -> Iterator[Query]:
        """Yield each query that the transaction writes."""
        for query in self.in_force:
            if self._is_needed(query) and (query is self._owed or self._dropped[query.offset]):
                yield self._after(query)

    def confirm(self) -> None:
        """Take over the changes of the transaction, which was committed."""
        if self:
            self._stored = [self._after(query) for query in self.in_force if self._is_needed(query)]
        self._owed = None
        self._dropped.clear()

    def check(self) -> None:
        """Assert every invariant."""
        offsets = [query.offset for query in self.in_force]
        assert offsets == sorted(set(offsets))
        assert len(offsets) <= MOST_QUERIES
        assert all(query.left >= 0 for query in self.in_force)

    def _after(self, query: Query) -> Query:
        # The count may have been estimated.
        return query._replace(left=max(0, query.left - self._dropped[query.offset]))

    def _is_needed(self, query: Query) -> bool:
        return query.offset > self._needed_from
