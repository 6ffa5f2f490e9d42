"""The lanes of a process: who joins which, and which lanes are fenced at a take-over."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka.client.connections import RenewableProducer
from sidecar.kafka.writing.lane import _Turn
from sidecar.kafka.writing.lanes import APART_S, Lanes, Member
from snapshots.state.lane import LaneName
from tests.support.transaction_errors import NOT_YET


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def running_s(self) -> float:
        return self.now_s


class Made:
    """A producer that was made for a transactional id."""

    def __init__(self, transactional_id: str, on_throttle: Any, stuck: set[str]) -> None:
        self.transactional_id = transactional_id
        self.on_throttle = on_throttle
        self.is_purged = False
        self.polls = 0
        self.fatal: KafkaError | None = None
        self._stuck = stuck

    def init_transactions(self, _: float) -> None:
        if self.transactional_id in self._stuck:
            raise KafkaException(NOT_YET)

    def poll(self, _: float) -> None:
        self.polls += 1
        if self.fatal is not None:
            raise KafkaException(self.fatal)

    def purge(self) -> None:
        self.is_purged = True


class Process:
    """The lanes of a process, with the ids that it has fenced, in order."""

    def __init__(self, lanes: int = 2, partitions: int = 10) -> None:
        self.clock = Clock()
        self.fenced: list[str] = []
        self.throttled: list[object] = []
        self.lanes = Lanes("g", lanes, self._make, cast("Any", self.clock))
        self.lanes.partitions = partitions
        self.made: list[Made] = []
        self.stuck: set[str] = set()
        """Ids whose last transaction does not end."""

    def _make(self, transactional_id: str, on_throttle: Any) -> RenewableProducer:
        self.made.append(Made(transactional_id, on_throttle, self.stuck))
        return cast("RenewableProducer", self.made[-1])

    def fence(self, producer: RenewableProducer, *, within_s: float = 60.0) -> None:
        producer.init_transactions(within_s)
        self.fenced.append(cast("Made", producer).transactional_id)

    def join(self, partition: int) -> Member:
        member = self.lanes.join(("d", partition), self.throttled.append, self.fence)
        assert member is not None
        return member

    @property
    def trying(self) -> dict[str, Any]:
        """The ids that were given up, each with the producer that still tries to fence it."""
        return {**self.lanes.given_up}

    def end(self, name: LaneName, partition: int = 0, mine: Member | None = None) -> bool:
        """End a lane, and say whether that fenced it."""
        fenced = len(self.fenced)
        self.lanes.end(name, ("d", partition), mine, self.fence)
        return len(self.fenced) > fenced


def test_partitions_are_spread_over_the_lanes() -> None:
    process = Process()
    members = [process.join(number) for number in range(5)]
    assert [each.lane for each in members[::2]] == [members[0].lane] * 3
    assert [each.lane for each in members[1::2]] == [members[1].lane] * 2
    assert len(process.fenced) == len(set(process.fenced)) == 2
    assert all(each.name.number == 1 for each in members)


@pytest.mark.parametrize(("lanes", "partitions"), [(0, 10), (8, 8), (8, 1)])
def test_a_process_with_few_partitions_or_without_lanes_gives_each_a_producer_of_its_own(
    lanes: int, partitions: int
) -> None:
    process = Process(lanes, partitions)
    assert process.lanes.join(("d", 0), process.throttled.append, process.fence) is None
    assert not process.made


def test_the_ids_of_two_processes_differ() -> None:
    assert Process().join(0).name.transactional_id != Process().join(0).name.transactional_id


def test_the_last_one_throws_the_producer_away_and_the_next_one_of_the_id_has_a_higher_number() -> None:
    process = Process(lanes=1)
    one, two = process.join(0), process.join(1)
    process.lanes.leave(one)
    assert [each.is_purged for each in process.made] == [False]
    process.lanes.leave(two)
    assert [each.is_purged for each in process.made] == [True]
    again = process.join(0)
    assert again.name == one.name._replace(number=2)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_fence_that_takes_long_holds_up_no_other_lane(*, is_own: bool) -> None:
    process = Process()
    members = [process.join(partition) for partition in range(2)]
    begun, goes_on = Event(), Event()

    def fence(producer: RenewableProducer, *, within_s: float = 60.0) -> None:
        del within_s
        begun.set()
        assert goes_on.wait(20)
        process.fence(producer)

    def take_over() -> None:
        if is_own:
            members[0].lane.end()
            process.lanes.join(("d", 2), process.throttled.append, fence)
        else:
            process.lanes.end(LaneName("g.lane.of another", 1), ("d", 2), None, fence)

    with ThreadPoolExecutor() as threads:
        taken = threads.submit(take_over)
        assert begun.wait(20)
        try:
            # Each lane has one member. A partition that waits for the first lane counts there.
            assert process.join(3).lane is members[1 if is_own else 0].lane
            process.lanes.leave(members[1])
        finally:
            goes_on.set()
        taken.result()


def test_an_ended_lane_is_followed_by_another_while_partitions_are_still_in_it() -> None:
    process = Process(lanes=1)
    one, two = process.join(0), process.join(1)
    one.lane.end()
    process.lanes.leave(one)
    again = process.join(0)
    assert (again.name.number, again.lane.has_ended) == (2, False)
    process.lanes.leave(two)
    assert [each.is_purged for each in process.made] == [True, False]


def test_a_lane_of_another_process_is_fenced_once() -> None:
    process, other = Process(), LaneName("g.lane.other.0", 4)
    assert process.end(other)
    assert process.fenced == ["g.lane.other.0"]
    assert process.made[0].is_purged
    assert not process.end(other, partition=3)
    assert process.end(other._replace(number=5))


def test_the_living_lane_of_the_process_itself_is_left_alone() -> None:
    process = Process(lanes=1)
    name = process.join(0).name
    assert not process.end(name, partition=1)
    assert not process.end(name, 1, process.join(1))


def test_a_lane_is_fenced_if_an_earlier_ownership_of_the_partition_has_not_left_it() -> None:
    """The thread of that ownership may hang in a client, and its part may still be committed."""
    process = Process(lanes=1)
    hung = process.join(0)
    mine = process.join(0)
    assert process.end(hung.name, 0, mine)
    assert hung.lane.has_ended


def test_an_earlier_producer_of_an_id_of_the_process_was_fenced_by_the_later_one() -> None:
    process = Process(lanes=1)
    one = process.join(0)
    one.lane.end()
    process.lanes.leave(one)
    process.join(0)
    assert not process.end(one.name)


def test_an_ended_lane_without_a_later_producer_is_fenced() -> None:
    """Its last commit may be on its way."""
    process = Process(lanes=1)
    one = process.join(0)
    one.lane.end()
    assert process.end(one.name)
    process.lanes.leave(one)
    assert not process.end(one.name)


def test_a_lane_whose_last_transaction_does_not_end_goes_on_with_another_id() -> None:
    process = Process(lanes=1)
    one, two = process.join(0), process.join(1)
    former = one.name
    process.stuck.add(former.transactional_id)
    one.lane.end()
    process.lanes.leave(one)
    again = process.join(0)
    assert (again.name.number, again.lane.has_ended) == (1, False)
    assert again.name.transactional_id not in process.stuck
    assert not process.end(former, 0, again)
    # The other partition has not left the former lane yet.
    process.lanes.leave(two)
    assert process.join(1).lane is again.lane
    assert [each.is_purged for each in process.made] == [True, False, False]


def test_a_producer_goes_on_fencing_an_id_that_was_given_up() -> None:
    """Abort the open transaction, so that the states are settled for which take-overs wait."""
    process = Process(lanes=1)
    one = process.join(0)
    former = one.name.transactional_id
    process.stuck.add(former)
    one.lane.end()
    process.join(0)
    assert process.trying == {former: process.made[1]}
    process.join(1)
    assert process.trying == {former: process.made[1]}
    process.stuck.clear()
    process.join(2)
    assert process.trying == {former: None}
    assert not process.end(one.name)


def test_the_log_lines_of_a_producer_that_cannot_fence_its_id_are_taken() -> None:
    process = Process(lanes=1)
    member = process.join(0)
    process.stuck.add(member.name.transactional_id)
    member.lane.end()
    process.join(0)
    process.lanes.serve_given_up()
    assert [each.polls for each in process.made] == [0, 1, 0]
    process.stuck.clear()
    process.join(1)
    process.lanes.serve_given_up()
    assert [each.polls for each in process.made] == [0, 1, 0]


def test_a_producer_that_may_not_fence_its_id_is_thrown_away_and_the_others_are_served() -> None:
    process = Process(lanes=1)
    for _ in range(2):
        member = process.join(0)
        process.stuck.add(member.name.transactional_id)
        member.lane.end()
    process.join(0)
    refused, other = process.trying.values()
    refused.fatal = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    process.lanes.serve_given_up()
    process.lanes.serve_given_up()
    assert (refused.polls, other.polls) == (1, 2)
    assert [*process.trying.values()] == [None, other]


def test_a_partition_without_a_lane_gives_up_an_id_that_its_process_cannot_fence() -> None:
    process = Process(lanes=1)
    one = process.join(0)
    process.stuck.add(one.name.transactional_id)
    one.lane.end()
    process.lanes.set_apart(("d", 0))
    assert not process.end(one.name)
    assert process.join(1).name.transactional_id not in process.stuck


def test_ids_that_are_given_up_are_never_used_again() -> None:
    process = Process(lanes=2)
    names = set()
    for _ in range(5):
        member = process.join(0)
        names.add(member.name)
        process.stuck.add(member.name.transactional_id)
        member.lane.end()
        process.lanes.leave(member)
    assert len(names) == 5


def test_an_id_is_not_given_up_while_a_thread_writes_by_it() -> None:
    """A thread that hangs in a commit may still commit the part of a partition that is taken over."""
    process = Process(lanes=1)
    member = process.join(0)
    process.stuck.add(member.name.transactional_id)
    with member.lane._leading(_Turn()) as leads:
        assert leads
        member.lane.end()
        with pytest.raises(KafkaException):
            process.join(1)
        with pytest.raises(KafkaException):
            process.end(member.name)
    assert process.join(1).name.transactional_id not in process.stuck


def test_the_lane_of_another_process_is_not_given_up() -> None:
    process = Process()
    process.stuck.add("g.lane.other.0")
    with pytest.raises(KafkaException):
        process.end(LaneName("g.lane.other.0", 4))


def test_a_partition_that_holds_up_others_has_a_producer_of_its_own_for_a_while() -> None:
    process = Process()
    process.lanes.set_apart(("d", 0))
    assert process.lanes.join(("d", 0), process.throttled.append, process.fence) is None
    process.join(1)
    process.clock.now_s = APART_S
    process.join(0)


def test_a_quota_is_told_to_each_partition_of_the_lane() -> None:
    process = Process(lanes=1)
    process.join(0)
    process.lanes.leave(process.join(1))
    process.join(2)
    process.made[0].on_throttle("event")
    assert process.throttled == ["event", "event"]
