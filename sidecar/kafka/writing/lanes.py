"""The lanes of a process, and the lanes of other processes that it has fenced.

A process with few partitions gives each a producer of its own. With more partitions than lanes, each partition joins
the lane with the fewest partitions. A partition that holds up the others of its lane is set apart for a while: it has
a producer of its own from its next take-over on.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from confluent_kafka import ThrottleEvent

from sidecar.clock import Clock
from sidecar.engine.ports import Place
from sidecar.kafka.client.connections import OnThrottle, RenewableProducer
from sidecar.kafka.writing.lane import Lane
from snapshots.state.lane import LaneName

APART_S: Final = 60.0
"""The time for which a partition is set apart. A topic that refuses records seldom refuses just one."""

_ID_BYTES: Final = 8
_MARK: Final = ".lane."


@dataclass(eq=False)
class Member:
    """A partition in a lane, for one ownership; ``on_throttle`` is called in the thread of any partition of the lane.

    The owner leaves the lane at the end of its ownership.
    """

    place: Place
    name: LaneName
    lane: Lane
    on_throttle: OnThrottle


@dataclass(eq=False)
class _Slot:
    """One of the transactional ids of the process, its present producer, and how many producers it has had."""

    transactional_id: str
    number: int = 0
    lane: Lane | None = None
    members: list[Member] = field(default_factory=list)
    joining: int = 0
    """Partitions that will be members once the lane has a producer."""

    def throttled(self, event: ThrottleEvent) -> None:
        """Tell all partitions of the lane that a broker holds back its requests."""
        for each in [*self.members]:
            each.on_throttle(event)


class Lanes:
    """Lets partitions join and leave lanes; any thread may use it.

    To fence takes seconds while a coordinator is replaced. So it is done under a lock of the transactional id alone:
    partitions of other lanes join and leave meanwhile.

    ``make`` makes the producer of a transactional id, and ``fence`` makes it the only one of its id. ``most`` is the
    number of lanes; without lanes each partition has a producer of its own.
    """

    def __init__(
        self,
        group: str,
        most: int,
        make: Callable[[str, OnThrottle | None], RenewableProducer],
        clock: Clock,
    ) -> None:
        process = secrets.token_hex(_ID_BYTES)
        self._slots = [_Slot(f"{group}{_MARK}{process}.{number}") for number in range(most)]
        self._make = make
        self._clock = clock
        # Guards the choice of a lane, and the locks of the ids. A thread that holds it waits for no other lock.
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}
        self._ended: set[LaneName] = set()
        self._apart_until_s: dict[Place, float] = {}
        self.partitions = 0
        """How many partitions the process has."""

    def join(self, place: Place, on_throttle: OnThrottle, fence: Callable[[RenewableProducer], None]) -> Member | None:
        """Let a partition join a lane, which may need a producer first; None if it gets a producer of its own.

        Raise the error of ``fence``.
        """
        few = not self._slots or self.partitions <= len(self._slots)
        if few or self._clock.running_s() < self._apart_until_s.get(place, 0.0):
            return None
        with self._lock:
            slot = min(self._slots, key=lambda each: len(each.members) + each.joining)
            slot.joining += 1
        try:
            with self._lock_of(slot.transactional_id):
                if slot.lane is None or slot.lane.has_ended:
                    self._begin(slot, fence)
                assert slot.lane is not None
                member = Member(place, LaneName(slot.transactional_id, slot.number), slot.lane, on_throttle)
                slot.members.append(member)
                return member
        finally:
            with self._lock:
                slot.joining -= 1

    def leave(self, member: Member) -> None:
        """Let a partition leave its lane; the last one throws its producer away."""
        with self._lock_of(member.name.transactional_id):
            slot = self._slot_of(member.name)
            assert slot is not None
            slot.members = [each for each in slot.members if each is not member]
            if not any(each.lane is member.lane for each in slot.members):
                if slot.lane is member.lane:
                    slot.lane = None
                member.lane.close()

    def set_apart(self, place: Place) -> None:
        """Give a partition a producer of its own from its next take-over on."""
        # Not under a lock: a worker in a commit must not wait for a fence.
        self._apart_until_s[place] = self._clock.running_s() + APART_S

    def end(
        self, name: LaneName, place: Place, mine: Member | None, fence: Callable[[RenewableProducer], None]
    ) -> None:
        """Fence a lane that the state of a partition names, unless it has ended or serves other partitions here.

        ``mine`` is the new membership of the partition, whose lane need not be fenced. Raise the error of ``fence``.
        """
        with self._lock_of(name.transactional_id):
            slot = self._slot_of(name)
            # A later producer of the same id has fenced the earlier ones.
            if name in self._ended or (slot is not None and name.number < slot.number):
                return
            if slot is not None and slot.lane is not None:
                if not slot.lane.has_ended and not _has_another(slot, place, mine):
                    return
                slot.lane.end()
            producer = self._make(name.transactional_id, None)
            try:
                fence(producer)
            finally:
                producer.purge()
            self._ended.add(name)

    def _lock_of(self, transactional_id: str) -> Lock:
        with self._lock:
            return self._locks.setdefault(transactional_id, Lock())

    def _slot_of(self, name: LaneName) -> _Slot | None:
        return next((each for each in self._slots if each.transactional_id == name.transactional_id), None)

    def _begin(self, slot: _Slot, fence: Callable[[RenewableProducer], None]) -> None:
        producer = self._make(slot.transactional_id, slot.throttled)
        fence(producer)
        slot.number += 1
        slot.lane = Lane(producer)


def _has_another(slot: _Slot, place: Place, mine: Member | None) -> bool:
    """Say whether another ownership of the partition has not left the lane: its thread may hang in a client."""
    return any(each.place == place and each is not mine for each in slot.members)


def group_of(name: LaneName) -> str:
    """Return the group of the process that has made a lane.

    >>> group_of(LaneName("delay-router.lane.5f3e0c1a9b7d2468.0", 1))
    'delay-router'
    """
    return name.transactional_id.rpartition(_MARK)[0]
