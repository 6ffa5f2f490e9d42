"""The rules of the router about names, with nothing else: state that is committed, and memory that a crash loses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tests.model.named.history import (
    ATTEMPTS,
    CONTROLS,
    NOBODY,
    PERIOD,
    SCHEDULES,
    Answered,
    Kind,
    Output,
    Released,
    World,
    Written,
    due_of,
)

WRONG: Final = (
    "forgets the mask at a crash",
    "ignores the mask at a take-over",
    "trims the mask at random",
    "spares what is late",
    "spares what is in transit",
    "writes a move that was taken",
    "evaluates adopted controls last",
    "merges before the receipt",
    "clears the mask of all merged",
    "stores no query",
    "forgets a query while buckets need it",
    "applies a query to what is behind it",
    "lets a query spare what is in transit",
    "continues a series that a query ended",
    "counts as missed from when it reads",
    "forgets when a move was asked for",
    "draws the jitter",
    "sends the exhausted to the target",
)
"""Mistakes that a router can make; each is a rule of the design that it does not follow."""

_CONTROL_DUE: Final = -1
"""Due time of a control in an adopted bucket: it sorts in front of all schedules."""


class Place(NamedTuple):
    """Due time and offset of a pending schedule, in the order of release."""

    due: int
    offset: int


_FIRST: Final = Place(-(10**9), NOBODY)


class Waiting(NamedTuple):
    """A control whose receipt is owed; ``source`` is the schedule that a move gives another due time."""

    offset: int
    cancelled: tuple[int, ...]
    source: int = NOBODY


class Prepared(NamedTuple):
    """A prepared merge: its two buckets, the places that it has read in them, and the mask that it has applied."""

    buckets: tuple[int, int]
    places: tuple[Place, ...]
    mask: frozenset[int]


@dataclass(frozen=True)
class Committed:
    """The state in Kafka. ``adopted`` has the watermark of each bucket that Spark has built."""

    cursor: int = 0
    sealed: int = 0
    watermark: Place = field(default=Place(0, NOBODY))
    buckets: dict[int, tuple[Place, ...]] = field(default_factory=dict)
    adopted: dict[int, Place] = field(default_factory=dict)
    mask: frozenset[int] = frozenset()
    transit: dict[int, Written] = field(default_factory=dict)
    queries: tuple[int, ...] = ()


class ModelRouter:
    """The router of one partition; ``wrong`` names the mistake that it makes."""

    def __init__(self, world: World, wrong: str = "") -> None:
        self.world = world
        self.wrong = wrong
        self.state = Committed()
        self._prepared: Prepared | None = None
        self._bucket = 0
        self.take_over()

    def take_over(self) -> None:
        """Begin anew from the committed state."""
        state, log = self.state, self.world.log
        self.cursor = state.cursor
        self.mask = set(state.mask)
        self.transit = dict(state.transit)
        self.queries = list(state.queries)
        self.late: list[Place] = []
        self.owed: list[Waiting] = []
        self._prepared = None
        masked = state.mask if self.wrong != "ignores the mask at a take-over" else frozenset()
        self.pending = [place for name in state.buckets for place in self._live(name) if place.offset not in masked]
        for offset in range(state.sealed, state.cursor):
            place = Place(self._due(offset), offset)
            if log[offset].kind in SCHEDULES and place > state.watermark and offset not in masked:
                self.pending.append(place)
        self.pending.sort()

    @property
    def is_done(self) -> bool:
        """True if nothing is pending and nothing is owed."""
        return not (self.pending or self.late or self.owed or self.transit or self.cursor < len(self.world.log))

    def read(self, most: int) -> None:
        """Read the log up to ``most`` records further. Queries, and controls of adopted buckets, hold reading up."""
        log = self.world.log
        if any(place.due == _CONTROL_DUE for place in self.pending):
            return
        for _ in range(most):
            if self.cursor == len(log) or self._holds_up(log[self.cursor]):
                return
            self._index(self.cursor)
            self.cursor += 1

    def release(self, most: int) -> None:
        """Release every late schedule, the first ``most`` due ones, and every receipt that is owed."""
        done = self._adopted_controls()
        due = [] if done else [place for place in self.pending if 0 <= place.due <= self.world.now][:most]
        leaving = [place for place in (*self.late, *due) if not self._is_queried(place)]
        outputs: list[Output] = [
            Released(offset, self.world.now, is_dead=self._is_exhausted(offset)) for _, offset in leaving
        ]
        outputs += [Answered(owed.offset, owed.cancelled, len(self.world.outputs)) for owed in self.owed]
        continued = leaving if self.wrong != "continues a series that a query ended" else [*self.late, *due]
        written = [*self._moves(), *filter(None, (self._following(offset) for _, offset in continued))]

        watermark = max([self.state.watermark, *due])
        state = replace(self.state, cursor=self.cursor, watermark=watermark, mask=frozenset(self.mask))
        state = replace(state, transit=dict(self.transit))
        state = replace(state, adopted=self._progress_of_adopted(state, [*due, *done]))
        if self.wrong == "forgets the mask at a crash":
            state = replace(state, mask=self.state.mask)
        if self.wrong == "trims the mask at random":
            state = replace(state, mask=frozenset(each for each in self.mask if self.world.chance.random() < 0.9))
        if self.wrong != "stores no query":
            state = replace(state, queries=tuple(self.queries))
        if self._commit(state, outputs, written):
            gone = {*due, *done}
            self.pending = [place for place in self.pending if place not in gone]
            self.late, self.owed = [], []
            self._drop_empty()

    def seal(self) -> None:
        """Write the schedules that no bucket holds into a new one, once a commit covers every record that was read."""
        if self.late or self.owed or self.cursor != self.state.cursor:
            return
        held = {place for places in self.state.buckets.values() for place in places}
        places = tuple(place for place in self.pending if place not in held)
        buckets = dict(self.state.buckets)
        if places:
            buckets[self._new_bucket()] = places
        self._commit(self._trimmed(replace(self.state, sealed=self.cursor, buckets=buckets)))

    def prepare_merge(self) -> None:
        """Read two buckets, without the cancelled schedules."""
        names = [name for name in self.state.buckets if name not in self.state.adopted][:2]
        if self._prepared is None and len(names) == 2:
            first, second = names
            both = sorted((*self.state.buckets[first], *self.state.buckets[second]))
            places = tuple(place for place in both if place.offset not in self.mask)
            self._prepared = Prepared((first, second), places, frozenset(self.mask))

    def install_merge(self) -> None:
        """Replace the two buckets, once the state holds every cancellation that the merge has applied."""
        prepared, state = self._prepared, self.state
        self._prepared = None
        if prepared is None or any(name not in state.buckets or name in state.adopted for name in prepared.buckets):
            return
        if not prepared.mask <= state.mask and self.wrong != "merges before the receipt":
            return
        merged = {place.offset for name in prepared.buckets for place in state.buckets[name]}
        buckets = {name: places for name, places in state.buckets.items() if name not in prepared.buckets}
        left = tuple(place for place in prepared.places if place > state.watermark)
        if left:
            buckets[self._new_bucket()] = left
        state = self._trimmed(replace(state, buckets=buckets))
        if self.wrong == "clears the mask of all merged":
            state = replace(state, mask=self.state.mask - merged)
        self._commit(state)

    def adopt(self) -> None:
        """Take over the bucket that Spark has built of the log behind the cursor, its controls not evaluated."""
        state, log = self.state, self.world.log
        if self.late or self.owed or state.transit or not self.cursor == state.cursor == state.sealed:
            return
        rest = range(state.cursor, len(log))
        if not rest or any(log[offset].follows != NOBODY and log[offset].kind is not Kind.ATTEMPT for offset in rest):
            return
        places = [Place(self._due(offset), offset) for offset in rest if log[offset].kind in SCHEDULES]
        places += [Place(_CONTROL_DUE, offset) for offset in rest if log[offset].kind in CONTROLS]
        state = replace(state, cursor=len(log), sealed=len(log))
        if places:
            name = self._new_bucket()
            state = replace(
                state,
                buckets={**state.buckets, name: tuple(sorted(places))},
                adopted={**state.adopted, name: _FIRST},
            )
        if self._commit(state):
            self.take_over()

    def _index(self, offset: int) -> None:
        record = self.world.log[offset]
        if record.kind in CONTROLS:
            self._evaluate(offset)
        self.transit.pop(offset, None)
        if record.kind in SCHEDULES and offset not in self.mask:
            place = Place(self._due(offset), offset)
            if place <= self.state.watermark:
                self.late.append(place)
            else:
                self.pending.append(place)
                self.pending.sort()

    def _evaluate(self, offset: int) -> None:
        """Cancel every schedule that the control at ``offset`` names, and owe its receipt."""
        control = self.world.log[offset]
        named, appended, moved = self._in_front(offset), self._in_transit(offset), self._moved(control)
        cancelled = tuple(sorted((*named, *appended, *moved)))
        if self.wrong != "writes a move that was taken":
            self.owed = [owed._replace(source=NOBODY) if owed.offset in moved else owed for owed in self.owed]
        self.mask.update(appended)
        if control.kind is Kind.QUERY:
            self.queries.append(offset)
        else:
            self.mask.update(named)
            self.pending = [place for place in self.pending if place.offset not in named]
            self.late = [place for place in self.late if place.offset not in named]
        source = NOBODY
        if control.kind is Kind.MOVE and cancelled:
            source = moved.get(cancelled[-1], cancelled[-1])
        self.owed.append(Waiting(offset, cancelled, source))

    def _in_front(self, control: int) -> list[int]:
        """Return the pending schedules in front of a control that it names."""
        waiting = self.pending if self.wrong == "spares what is late" else [*self.pending, *self.late]
        front = [place for place in waiting if place.due != _CONTROL_DUE and place.offset < control]
        return [place.offset for place in front if self._names(control, place.offset) and not self._is_queried(place)]

    def _in_transit(self, control: int) -> list[int]:
        """Return the schedules that a control names among the records that the router has written and not read."""
        is_query = self.world.log[control].kind is Kind.QUERY
        if self.wrong == ("lets a query spare what is in transit" if is_query else "spares what is in transit"):
            return []
        return [offset for offset in self.transit if offset not in self.mask and self._names(control, offset)]

    def _moved(self, control: Written) -> dict[int, int]:
        """Return the sources of the owed moves with the id of a control, by the offset of the move."""
        moves = [owed for owed in self.owed if owed.source != NOBODY]
        return {owed.offset: owed.source for owed in moves if self.world.log[owed.offset].id == control.id}

    def _names(self, control_offset: int, offset: int) -> bool:
        """Say whether a control is about the schedule at ``offset``."""
        control, record = self.world.log[control_offset], self.world.log[offset]
        if control.kind is Kind.QUERY:
            return control.due <= due_of(self.world.log, offset) < control.due_to
        return record.id == control.id

    def _is_queried(self, place: Place) -> bool:
        """Say whether a query has cancelled a schedule."""
        everywhere = self.wrong == "applies a query to what is behind it"
        return place.due != _CONTROL_DUE and any(
            (place.offset < query or everywhere) and self._names(query, place.offset) for query in self.queries
        )

    def _holds_up(self, record: Written) -> bool:
        """Say whether a record has to wait until a record before it is committed."""
        asked = any(self.world.log[owed.offset].kind is Kind.QUERY for owed in self.owed)
        return asked or (record.kind is Kind.QUERY and bool(self.owed))

    def _adopted_controls(self) -> list[Place]:
        """Evaluate the controls of adopted buckets, a query alone, and return them."""
        controls = [place for place in self.pending if place.due == _CONTROL_DUE]
        if self.wrong == "evaluates adopted controls last" and len(controls) < len(self.pending):
            return []
        done: list[Place] = []
        for place in controls:
            if self._holds_up(self.world.log[place.offset]):
                break
            self._evaluate(place.offset)
            done.append(place)
        return done

    def _moves(self) -> Iterator[Written]:
        """Yield the records that the owed moves write."""
        log, now = self.world.log, self.world.now
        for owed in self.owed:
            if owed.source != NOBODY:
                moved, control = log[owed.source], log[owed.offset]
                asked = control.sent if self.wrong != "forgets when a move was asked for" else now
                yield moved._replace(kind=Kind.SCHEDULE, sent=now, due=control.due, follows=owed.offset, asked=asked)

    def _following(self, offset: int) -> Written | None:
        """Return the occurrence that follows the one at ``offset``; None if that is the last."""
        record, now = self.world.log[offset], self.world.now
        if not record.more:
            return None
        asked = record.sent if record.follows == NOBODY else record.asked
        if self.wrong == "counts as missed from when it reads" and record.follows == NOBODY:
            asked = now
        since = max(record.due + 1, asked, *(() if record.takes_all else (now,)))
        due = record.due + -(-(since - record.due) // PERIOD) * PERIOD
        return record._replace(sent=now, due=due, more=record.more - 1, follows=offset, asked=NOBODY)

    def _is_exhausted(self, offset: int) -> bool:
        is_last = self.world.log[offset].attempt >= ATTEMPTS
        return is_last and self.wrong != "sends the exhausted to the target"

    def _progress_of_adopted(self, state: Committed, left: Sequence[Place]) -> dict[int, Place]:
        """Return the watermark of each adopted bucket that still has something at or below the common watermark."""
        progress = {}
        for name, watermark in self.state.adopted.items():
            places = self.state.buckets.get(name, ())
            reached = max([watermark, *(place for place in left if place in places)])
            live = [place for place in places if place > reached and place.offset not in state.mask]
            if any(place <= state.watermark for place in live):
                progress[name] = reached
        return progress

    def _live(self, name: int) -> list[Place]:
        """Return the places of a bucket above its watermark."""
        watermark = self.state.adopted.get(name, self.state.watermark)
        return [place for place in self.state.buckets[name] if place > watermark]

    def _drop_empty(self) -> None:
        """Delete the buckets with nothing pending."""
        state = self.state
        live = {name: any(place.offset not in state.mask for place in self._live(name)) for name in state.buckets}
        if not all(live.values()):
            buckets = {name: places for name, places in state.buckets.items() if live[name]}
            self._commit(self._trimmed(replace(state, buckets=buckets)))

    def _trimmed(self, state: Committed) -> Committed:
        """Return a state without the cancellations and queries that nothing can need."""
        held = {place.offset for places in state.buckets.values() for place in places}
        mask = frozenset(offset for offset in state.mask if offset in held or offset >= state.sealed)
        needed = min([state.sealed, *held]) if self.wrong != "forgets a query while buckets need it" else state.sealed
        return replace(state, mask=mask, queries=tuple(query for query in state.queries if query > needed))

    def _commit(self, state: Committed, outputs: Sequence[Output] = (), written: Sequence[Written] = ()) -> bool:
        """Commit a state with its outputs, or crash and begin anew. Return whether it was committed."""
        if self.world.aborts():
            self.take_over()
            return False
        offsets = self.world.append(written)
        if self.world.aborts():
            self.world.erase(offsets)
            self.take_over()
            return False
        fresh = self.mask - self.state.mask
        placed = dict(zip(offsets, written, strict=True))
        self.transit |= placed
        self.state = replace(state, transit=state.transit | placed)
        self.mask = set(state.mask) | (fresh - state.mask)
        self.queries = [query for query in self.queries if query in state.queries or query >= state.sealed]
        self.world.outputs += outputs
        return True

    def _new_bucket(self) -> int:
        self._bucket += 1
        return self._bucket

    def _due(self, offset: int) -> int:
        due = due_of(self.world.log, offset)
        if self.wrong == "draws the jitter" and self.world.log[offset].kind is Kind.ATTEMPT:
            return due + self.world.chance.randrange(3)
        return due
