"""A member of the group that is fenced or asks for its partitions, with clients of the test."""

import threading
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from sidecar.kafka.client import membership as group
from sidecar.kafka.client.membership import MOST_FENCINGS, GroupMember, MembershipError
from tests.support.hand_clock import HandClock

DAY_S = 86_400.0


class FencedClients:
    """Consumers that are fenced in their first poll, until `times` of them were."""

    def __init__(self, times: int, stopping: threading.Event, apart_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = times
        self._stopping = stopping
        self._apart_s = apart_s
        self.clock = HandClock()
        monkeypatch.setattr(group, "AFTER_FENCING_S", 0.0)

    def connect(self, _on_commit: object, _on_error: object) -> Any:
        consumer = Mock()
        consumer.poll = self._poll
        return consumer

    def _poll(self, _timeout_s: float) -> Any:
        if self.left == 0:
            self._stopping.set()
            return None
        self.left -= 1
        self.clock.go_on(self._apart_s)
        message = Mock()
        message.error.return_value = KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", fatal=True)
        return message


def test_a_member_of_the_same_name_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    clients = FencedClients(1_000, stopping, apart_s=2.0, monkeypatch=monkeypatch)
    member = GroupMember(clients.connect, "g", Mock(topics=lambda: ["delay"]), clients.clock)
    with pytest.raises(MembershipError, match=r"fenced 10 times within 10 minutes; .* same router\.instance_id"):
        member.run(["delay"], stopping)
    assert clients.left == 1_000 - MOST_FENCINGS


def test_fencings_of_a_long_life_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    clients = FencedClients(5 * MOST_FENCINGS, stopping, apart_s=DAY_S, monkeypatch=monkeypatch)
    GroupMember(clients.connect, "g", Mock(topics=lambda: ["delay"]), clients.clock).run(["delay"], stopping)
    assert clients.left == 0


class JoinedClients:
    """Consumers that note their calls, and stop the member after some polls."""

    def __init__(self, polls: int, stopping: threading.Event) -> None:
        self.calls: list[str] = []
        self._left = polls
        self._stopping = stopping

    def connect(self, _on_commit: object, _on_error: object) -> Any:
        consumer = Mock()
        consumer.poll = self._poll
        consumer.memberid.return_value = "first"
        consumer.subscribe = lambda *_, **__: self.calls.append("subscribe")
        consumer.unsubscribe = lambda: self.calls.append("unsubscribe")
        return consumer

    def _poll(self, _timeout_s: float) -> Any:
        self._left -= 1
        if self._left <= 0:
            self._stopping.set()


@pytest.mark.parametrize(("named", "calls"), [("first", ["unsubscribe", "subscribe"]), ("second", [])])
def test_the_named_member_leaves_the_group_and_joins_it_again(named: str, calls: list[str]) -> None:
    stopping = threading.Event()
    clients = JoinedClients(5, stopping)
    member = GroupMember(clients.connect, "g", Mock(topics=lambda: ["delay"]), HandClock())
    member.join_anew(named)
    member.run(["delay"], stopping)
    assert clients.calls == ["subscribe", *calls]


class AskedClients:
    """Consumers that own every partition of a topic, and answer the commits that ask for it."""

    def __init__(self, offsets: dict[int, int], stopping: threading.Event, *, tells_at: int = 0) -> None:
        self.committed: dict[int, int] = {}
        self._offsets = offsets
        self._tells_at = tells_at
        self._stopping = stopping
        self.clock = HandClock()

    def connect(self, on_commit: Any, _on_error: object) -> Any:
        consumer = Mock()
        consumer.poll = lambda _timeout_s: self.clock.go_on(group.ASK_AGAIN_AFTER_S)
        consumer.subscribe = lambda _topics, *, on_assign, **_: on_assign(consumer, self._assigned())
        consumer.committed = self._tell
        consumer.commit = lambda offsets, **_: self._take(offsets, on_commit)
        return consumer

    def _assigned(self) -> list[TopicPartition]:
        return [TopicPartition("delay", number) for number in self._offsets]

    def _tell(self, partitions: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        self._tells_at -= 1
        if self._tells_at >= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition(each.topic, each.partition, self._offsets[each.partition]) for each in partitions]

    def _take(self, offsets: list[TopicPartition], on_commit: Any) -> None:
        self.committed |= {each.partition: each.offset for each in offsets}
        on_commit(None, offsets)


@pytest.mark.parametrize("tells_at", [0, 2])
def test_an_inquiry_changes_no_offset_of_a_partition_that_is_not_served(tells_at: int) -> None:
    """The offset may be the only sign that the state of the partition was lost."""
    stopping = threading.Event()
    clients = AskedClients({0: 700, 1: OFFSET_INVALID, 2: 5}, stopping, tells_at=tells_at)
    owner = Mock(topics=lambda: ["delay"], cursors=lambda: {("delay", 2): 9})
    member = GroupMember(clients.connect, "g", owner, clients.clock)
    running = threading.Thread(target=member.run, args=(["delay"], stopping))
    running.start()
    try:
        assert [member.still_ours("delay", number) for number in range(3)] == [True] * 3
    finally:
        stopping.set()
        running.join()
    assert (clients.committed[0], clients.committed[1]) == (700, 0)
    assert clients.committed[2] in {5, 9}


def test_nobody_asks_for_a_partition_that_was_given_back() -> None:
    """The member waits for the worker that asks: neither may wait for the other's answer."""
    stopping = threading.Event()
    clients = AskedClients({0: 5}, stopping)
    answers: list[bool] = []
    owner = Mock(topics=lambda: ["delay"], cursors=dict)
    member = GroupMember(clients.connect, "g", owner, clients.clock)
    owner.revoked = lambda _partitions: answers.append(member.still_ours("delay", 0))
    member._assigned = {("delay", 0)}
    member._give_back([TopicPartition("delay", 0)])
    assert answers == [False]
