"""The lanes of a process, and the lanes of other processes that it has fenced.

A process with few partitions gives each a producer of its own. With more partitions than lanes, each partition joins
the lane with the fewest partitions. A partition that holds up the others of its lane is set apart for a while: it has
a producer of its own from its next take-over on.

A lane that has ended gets its next producer, which fences the former one. Kafka lets it do that only once the last
transaction of the lane has ended, and that takes until each partition has its marker. A partition with too few in-sync
replicas takes no marker until enough of them are back. So a process *gives up* a transactional id that does not let it
fence its own former producer in time, and the lane goes on with an id that is new::

    lane has ended ──► fence the former producer of the id ──► next producer of the same id
                                │ no answer in STUCK_AFTER_S, and no thread uses the former producer
                                ▼
                        producer of a new id; the former one is never used again

The partitions of this process then need no fence of the lane that their states name. Two things hold without it. No
part reaches the former lane any more: it has ended, and no thread is in a call of its producer. And a take-over reads a
state only when it is settled. A commit is sent only once the brokers have all records of its transaction, also the
state. So in a settled state the last transaction of the lane has committed or aborted, and a late copy of its commit
finds no other transaction of the lane. Another process knows nothing of this, and fences the lane.

The producer that could not fence the former one goes on trying: librdkafka does so in the background (measured with
2.16.0). Where a coordinator was away, it aborts the open transaction as soon as there is a coordinator again, so that
the states which wait for that are settled.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaException, ThrottleEvent

from sidecar.clock import Clock
from sidecar.engine.ports import Place
from sidecar.kafka.client.connections import OnThrottle, RenewableProducer
from sidecar.kafka.client.errors import Verdict, classify, error_of
from sidecar.kafka.writing.lane import Lane
from sidecar.kafka.writing.transactions import FENCE_WITHIN_S
from snapshots.state.lane import LaneName

APART_S: Final = 60.0
"""The time for which a partition is set apart. A topic that refuses records seldom refuses just one."""

STUCK_AFTER_S: Final = 5.0
"""The time without an answer after which a process gives up a transactional id. A coordinator that is being replaced
may take as long; then the lane has a new id without need, which harms nothing."""

_RESUME_S: Final = 0.05
"""The time that a call takes at most to see whether a fence has ended meanwhile."""

_ID_BYTES: Final = 8
_MARK: Final = ".lane."


class Fence(Protocol):
    """Makes a producer the only one of its id, as :func:`sidecar.kafka.writing.transactions.fence` does."""

    def __call__(self, producer: RenewableProducer, /, *, within_s: float = FENCE_WITHIN_S) -> None:
        """Fence the former producers; raise KafkaException when the cluster refuses or is silent."""


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
    """A lane of the process: its transactional id, and its present producer."""

    transactional_id: str
    number: int = 0
    """How many producers have had the id; 0 if no former one needs to be fenced."""
    lane: Lane | None = None
    members: list[Member] = field(default_factory=list)
    joining: int = 0
    """Partitions that will be members once the lane has a producer."""

    def throttled(self, event: ThrottleEvent) -> None:
        """Tell all partitions of the lane that a broker holds back its requests."""
        for each in [*self.members]:
            each.on_throttle(event)

    @property
    def may_give_up_id(self) -> bool:
        """Says that no thread of the process writes by the id."""
        return self.number > 0 and (self.lane is None or self.lane.is_over)


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
        self._ids = f"{group}{_MARK}{secrets.token_hex(_ID_BYTES)}."
        self._slots = [_Slot(f"{self._ids}{number}") for number in range(most)]
        self.given_up: dict[str, RenewableProducer | None] = {}
        """The transactional ids that the process uses no more, each with the producer that still tries to fence it."""
        self._make = make
        self._clock = clock
        # Guards the choice of a lane, new ids and their locks. A thread that holds it waits for no other lock.
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}
        self._ended: set[LaneName] = set()
        self._apart_until_s: dict[Place, float] = {}
        self.partitions = 0
        """How many partitions the process has."""

    def join(self, place: Place, on_throttle: OnThrottle, fence: Fence) -> Member | None:
        """Let a partition join a lane, which may need a producer first; None if it gets a producer of its own.

        Raise the error of ``fence``.
        """
        self._let_go_of_fenced()
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
            # Its id may be another one by now.
            slot = next(each for each in self._slots if member in each.members)
            slot.members = [each for each in slot.members if each is not member]
            if not any(each.lane is member.lane for each in slot.members):
                if slot.lane is member.lane:
                    slot.lane = None
                member.lane.close()

    def set_apart(self, place: Place) -> None:
        """Give a partition a producer of its own from its next take-over on."""
        # Not under a lock: a worker in a commit must not wait for a fence.
        self._apart_until_s[place] = self._clock.running_s() + APART_S

    def end(self, name: LaneName, place: Place, mine: Member | None, fence: Fence) -> None:
        """Fence a lane that the state of a partition names, unless it has ended or serves other partitions here.

        ``mine`` is the new membership of the partition, whose lane need not be fenced. Raise the error of ``fence``.
        """
        with self._lock_of(name.transactional_id):
            slot = self._slot_of(name)
            if name in self._ended or name.transactional_id in self.given_up:
                return
            # A later producer of the same id has fenced the earlier ones.
            if slot is not None and name.number < slot.number:
                return
            if slot is not None and slot.lane is not None:
                if not slot.lane.has_ended and not _has_another(slot, place, mine):
                    return
                slot.lane.end()
            producer = self._make(name.transactional_id, None)
            try:
                self._fence_or_give_up(slot, producer, fence)
            finally:
                producer.purge()
            self._ended.add(name)

    def serve_given_up(self) -> None:
        """Let the producers of given-up ids hand over their log lines; a fence that is stuck for days makes many.

        A producer that meets its fatal error is thrown away; its id stays given up.
        """
        for transactional_id, producer in [*self.given_up.items()]:
            if producer is not None:
                try:
                    producer.poll(0)
                except KafkaException:
                    self.given_up[transactional_id] = None

    def _lock_of(self, transactional_id: str) -> Lock:
        with self._lock:
            return self._locks.setdefault(transactional_id, Lock())

    def _slot_of(self, name: LaneName) -> _Slot | None:
        return next((each for each in self._slots if each.transactional_id == name.transactional_id), None)

    def _begin(self, slot: _Slot, fence: Fence) -> None:
        producer = self._make(slot.transactional_id, slot.throttled)
        if not self._fence_or_give_up(slot, producer, fence):
            producer = self._make(slot.transactional_id, slot.throttled)
            fence(producer)
        slot.number += 1
        slot.lane = Lane(producer)

    def _fence_or_give_up(self, slot: _Slot | None, producer: RenewableProducer, fence: Fence) -> bool:
        """Fence the former producers of an id, or give it up; say whether they are fenced.

        ``slot`` is the lane of this process with that id, if there is one. Raise the error of ``fence``.
        """
        if slot is None or not slot.may_give_up_id:
            fence(producer)
            return True
        try:
            fence(producer, within_s=STUCK_AFTER_S)
        except KafkaException as exception:
            error = error_of(exception)
            if classify(error) is not Verdict.RETRY:
                raise
            self._give_up_id(slot, producer, error.str())
            return False
        return True

    def _give_up_id(self, slot: _Slot, producer: RenewableProducer, why: str) -> None:
        former = slot.transactional_id
        with self._lock:
            # Two lanes that give up their ids at the same time get different ones.
            self.given_up[former] = producer
            following = f"{self._ids}{len(self._slots) + len(self.given_up) - 1}"
            # The lane keeps its lock.
            self._locks[following] = self._locks[former]
            slot.transactional_id, slot.number = following, 0
        structlog.get_logger().warning("lane_renamed", transactional_id=former, following=following, why=why)

    def _let_go_of_fenced(self) -> None:
        """Throw away the producers that have fenced an id after it was given up."""
        with self._lock:
            trying = {each: producer for each, producer in self.given_up.items() if producer is not None}
            self.given_up |= dict.fromkeys(trying)
        for transactional_id, producer in trying.items():
            try:
                producer.init_transactions(_RESUME_S)
            except KafkaException as exception:
                if classify(error_of(exception)) is Verdict.RETRY:
                    self.given_up[transactional_id] = producer


def _has_another(slot: _Slot, place: Place, mine: Member | None) -> bool:
    """Say whether another ownership of the partition has not left the lane: its thread may hang in a client."""
    return any(each.place == place and each is not mine for each in slot.members)


def group_of(name: LaneName) -> str:
    """Return the group of the process that has made a lane.

    >>> group_of(LaneName("delay-router.lane.5f3e0c1a9b7d2468.0", 1))
    'delay-router'
    """
    return name.transactional_id.rpartition(_MARK)[0]
