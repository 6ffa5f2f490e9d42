"""Membership of the consumer group: its only purpose is to tell which delay partitions are ours.

The member assigns partitions paused and never reads a record; the workers read by the consumers that the process
shares. The member commits offsets now and then so that lag tools have something to show. The router never relies on
these offsets; it uses them only as an alarm: a group with offsets but without state has lost its state
(:mod:`sidecar.engine.ownership.takeover`).
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Protocol

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from index.errors import DelayRouterError
from sidecar import failpoints
from sidecar.clock import Clock
from sidecar.kafka.client.clients import OnCommit, OnError
from sidecar.kafka.client.errors import Verdict, classify, error_of

POLL_S = 0.5
COMMIT_EVERY_S = 5.0
REQUEST_TIMEOUT_S = 10.0

ASK_AGAIN_AFTER_S = 1.0
INQUIRY = "still ours? "
"""Start of the metadata of a commit that only asks the coordinator; its offset is the one committed before."""

OFFSETS_WITHIN_S = 1.0
"""Longest wait of the member for offsets of the group; the next inquiry asks again."""

LEAVE_WITHIN_S = 5.0
LEAVE_S = 0.2

MOST_FENCINGS = 10
FENCED_WITHIN_S = 600.0
"""Time within which MOST_FENCINGS mean another router of the same name. A router that lives for months is fenced as
often, but each time alone, because brokers went down while it was joining."""

AFTER_FENCING_S = 2.0

DENIED_WITHIN_S = 60.0
"""A session lost so soon after brokers have denied the client access was lost for that reason. The client reports the
same error of the same broker every 30 s at most."""

Partition = tuple[str, int]

_NOT_A_MEMBER = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID})


class AssignmentListener(Protocol):
    """Receiver of the assigned and revoked partitions."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Take over these partitions, which the group has assigned to this member."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Finish with these partitions: they go to another member when this method returns."""

    def not_a_member(self, why: str) -> None:
        """Stop all work until the next assignment, even if that assigns no partition."""

    def cursors(self) -> Mapping[Partition, int]:
        """Return the committed cursor of every active partition."""

    def turned(self) -> None:
        """Note that the loop of the member is alive."""

    def topics(self) -> list[str]:
        """Return the delay topics to serve from now on."""


class MembershipError(DelayRouterError):
    """The member cannot join the group, and waiting will not help."""


class _FencedError(DelayRouterError):
    """The client is no longer usable; the only cause is the fencing of a static member."""


class _Question:
    """The question whether a partition is still ours; the thread of the member answers it."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.answered = threading.Event()
        self.ours = False


class GroupMember:
    """Member of the consumer group in the thread that calls ``run``.

    Any thread may call ``still_ours`` and ``join_anew``.
    """

    def __init__(
        self,
        connect: Callable[[OnCommit, OnError], Consumer],
        group_id: str,
        owner: AssignmentListener,
        clock: Clock,
        *,
        leaves: bool = False,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._leaves = leaves
        self._denied = ("", -DENIED_WITHIN_S)
        self._is_lost = False
        self._consumer = connect(self._on_commit, self._on_error)
        self._group_id = group_id
        self._owner = owner
        self._assigned: set[Partition] = set()
        self._committed: dict[Partition, int] = {}
        self._asked: SimpleQueue[_Question] = SimpleQueue()
        self._in_question: list[_Question] = []
        self._inquiry = 0
        self._ask_again_s = 0.0
        self._joins_anew = ""
        self._log = structlog.get_logger()

    def run(self, topics: list[str], stopping: threading.Event) -> None:
        """Stay a member until ``stopping`` is set, then give every partition back and leave.

        A static member may fence itself when brokers go down while it is joining (observed); it then joins anew. Raise
        MembershipError when that happens again and again, as it does when another router has the same name.
        """
        fenced_s: deque[float] = deque(maxlen=MOST_FENCINGS)
        while True:
            try:
                self._stay(topics, stopping)
            except _FencedError as error:
                self._log.warning("membership_fenced", error=str(error))
                self._begin_anew()
                fenced_s.append(self._clock.running_s())
                if len(fenced_s) == MOST_FENCINGS and fenced_s[-1] - fenced_s[0] <= FENCED_WITHIN_S:
                    break
                stopping.wait(AFTER_FENCING_S)
            else:
                self._leave()
                return
        raise MembershipError(
            f"consumer group {self._group_id}: this member was fenced {MOST_FENCINGS} times within"
            f" {FENCED_WITHIN_S / 60:.0f} minutes; does another router run with the same router.instance_id?"
        )

    def _leave(self) -> None:
        """End the membership; with ``leaves`` the group need not wait for a static member to return."""
        if self._leaves:
            self._leave_group()
        self._consumer.close()

    def _leave_group(self) -> None:
        """Leave the group, also with a static name: the group assigns the partitions to other members at once."""
        self._consumer.unsubscribe()
        until_s = self._clock.running_s() + LEAVE_WITHIN_S
        while self._assigned and self._clock.running_s() < until_s:
            self._consumer.poll(LEAVE_S)
        # The client sends the request once it has no assignment left, and does not report when.
        self._consumer.poll(LEAVE_S)

    def _stay(self, topics: list[str], stopping: threading.Event) -> None:
        self._subscribe(topics)
        commit_s = self._clock.running_s()
        while not stopping.is_set():
            message = self._consumer.poll(POLL_S)
            self._owner.turned()
            if message is not None and (error := message.error()) is not None:
                self._report(error)
            self._ask_group()
            now_s = self._clock.running_s()
            if now_s - commit_s >= COMMIT_EVERY_S:
                self._commit_cursors()
                commit_s = now_s
            joins_anew, self._joins_anew = self._joins_anew, ""
            again = self._owner.topics()
            if again != topics:
                topics[:] = again
                self._subscribe(topics)
            elif joins_anew and joins_anew == self._consumer.memberid():
                self._owner.not_a_member("joining the group again, so that it assigns partitions without an owner")
                self._leave_group()
                self._subscribe(topics)

    def _begin_anew(self) -> None:
        self._owner.not_a_member("fenced by another member of the same name: joining the group again")
        self._consumer.close()
        self._give_back([TopicPartition(topic, number) for topic, number in self._assigned])
        self._consumer = self._connect(self._on_commit, self._on_error)

    def _subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def join_anew(self, member_id: str) -> None:
        """Leave the group and join it again soon, if this is the id of this member."""
        self._joins_anew = member_id

    def still_ours(self, topic: str, partition: int) -> bool:
        """Ask the coordinator whether this member has the partition; raise KafkaException when it does not answer.

        A partition that was given back is not ours. The thread that would ask may be waiting for this caller to end.
        """
        if (topic, partition) not in self._assigned:
            return False
        question = _Question((topic, partition))
        self._asked.put(question)
        if not question.answered.wait(REQUEST_TIMEOUT_S):
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "the group does not name the owner of the partition")
            )
        return question.ours

    def _ask_group(self) -> None:
        """Commit for every partition in question: a coordinator accepts commits only of the current generation.

        Describing the group would be simpler, but librdkafka 2.16 aborts the process when such a request has timed out
        and the coordinator comes back (measured; an assertion in its admin client).
        """
        if self._in_question and self._clock.running_s() < self._ask_again_s:
            return
        self._in_question = [each for each in self._in_question if not each.answered.is_set()]
        while not self._asked.empty():
            self._in_question.append(self._asked.get_nowait())
        self._answer([each.partition for each in self._in_question if each.partition not in self._assigned], ours=False)
        if not self._in_question:
            return
        self._inquiry += 1
        offsets = self._offsets_kept({each.partition for each in self._in_question})
        self._ask_again_s = self._clock.running_s() + ASK_AGAIN_AFTER_S
        if offsets:
            asks = f"{INQUIRY}{self._inquiry}"
            self._commit([TopicPartition(*place, offset, metadata=asks) for place, offset in offsets.items()])

    def _offsets_kept(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offset that the group has of each partition, 0 for none, without those that it does not tell now.

        An inquiry must not change an offset: the offset of a partition that is not served yet may be the only sign that
        its state was lost.
        """
        unknown = [TopicPartition(*each) for each in partitions if each not in self._committed]
        try:
            found = self._consumer.committed(unknown, OFFSETS_WITHIN_S) if unknown else []
        except KafkaException as exception:
            self._log.debug("group_offsets_unknown", error=error_of(exception).str())
            found = []
        kept = {(each.topic, each.partition): max(each.offset, 0) for each in found if each.error is None}
        return kept | {each: self._committed[each] for each in partitions if each in self._committed}

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Take the coordinator's answer; any other error, such as a rebalance under way, leads to the next inquiry."""
        if not any(each.metadata == f"{INQUIRY}{self._inquiry}" for each in offsets):
            return
        if error is None:
            self._answer(_names(offsets), ours=True)
        elif error.code() in _NOT_A_MEMBER:
            self._answer(_names(offsets), ours=False)

    def _answer(self, partitions: Iterable[Partition], *, ours: bool) -> None:
        known = frozenset(partitions)
        for question in self._in_question:
            if question.partition in known:
                question.ours = ours
                question.answered.set()
        self._in_question = [each for each in self._in_question if not each.answered.is_set()]

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            # Any offset will do, since the member reads nothing; without one the client would ask for a committed one.
            each.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
        self._assigned.update(_names(partitions))
        self._is_lost = False
        self._owner.assigned(_names(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_back(partitions)
        failpoints.passing("group.given_up")
        consumer.incremental_unassign(partitions)

    def _on_error(self, error: KafkaError) -> None:
        """Note an error after which the client tries again by itself for ever, above all that it is denied access."""
        self._log.debug("group_client_error", error=error.str(), code=error.name())
        if classify(error) is Verdict.DENIED:
            self._denied = (error.str(), self._clock.running_s())
            if self._is_lost:
                self._tell_lost()

    def _tell_lost(self) -> None:
        why, denied_s = self._denied
        because = f" ({why})" if self._clock.running_s() - denied_s < DENIED_WITHIN_S else ""
        self._owner.not_a_member(f"the session with the group was lost: joining it again{because}")

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Other members may own these partitions already; their fencing has ended the open transactions, so there is
        # nothing to finish.
        self._is_lost = True
        self._tell_lost()
        self._give_back(partitions)
        consumer.incremental_unassign(partitions)

    def _give_back(self, partitions: list[TopicPartition]) -> None:
        names = _names(partitions)
        self._assigned.difference_update(names)
        for each in names:
            self._committed.pop(each, None)
        # A worker that still waits for an answer would hold up the revocation.
        while not self._asked.empty():
            self._in_question.append(self._asked.get_nowait())
        self._answer(names, ours=False)
        self._owner.revoked(names)

    def _commit_cursors(self) -> None:
        self._committed |= self._owner.cursors()
        offsets = [
            TopicPartition(topic, number, cursor)
            for (topic, number), cursor in self._committed.items()
            if (topic, number) in self._assigned
        ]
        if offsets:
            self._commit(offsets)

    def _commit(self, offsets: list[TopicPartition]) -> None:
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as exception:
            # The commit is for lag tools or is an inquiry; the next one will do.
            self._log.debug("group_commit_failed", error=error_of(exception).str())

    def _report(self, error: KafkaError) -> None:
        message = f"consumer group {self._group_id}: {error.str()} ({error.name()})"
        if classify(error) is Verdict.DENIED:
            raise MembershipError(message)
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise _FencedError(message)
        self._log.warning("group_error", error=error.str(), code=error.name())


def _names(partitions: Iterable[TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]
