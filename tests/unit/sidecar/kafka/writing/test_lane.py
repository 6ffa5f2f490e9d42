"""Transactions that several partitions share: who leads, who hears what, and when a lane ends."""

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from types import FrameType
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import ClusterError, ConnectionLostError
from sidecar.engine.release.transaction import MAX_BATCH_BYTES, SETTLE_S, Outcome, Result
from sidecar.kafka.client.connections import RenewableProducer
from sidecar.kafka.writing.lane import SERVE_EVERY_S, Finish, Lane
from tests.support.transaction_errors import AGAIN, FENCED, REFUSED

WITHIN_S = 5.0


class Broker:
    """A transactional producer that keeps the parts of each transaction, and fails as the test says."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.committed: list[list[str]] = []
        self.aborted: list[list[str]] = []
        self.refuses: dict[str, KafkaError] = {}
        self.may_commit = Event()
        self.may_commit.set()
        self.is_committing = Event()
        self.lost: ConnectionLostError | None = None
        self.is_purged = False

    def begin_transaction(self) -> None:
        self.require_connections()
        assert not self.parts, "a transaction is open"

    def commit_transaction(self) -> None:
        self.is_committing.set()
        assert self.may_commit.wait(WITHIN_S)
        for part in self.parts:
            if part in self.refuses:
                raise KafkaException(self.refuses[part])
        self.committed.append(self.parts)
        self.parts = []

    def abort_transaction(self) -> None:
        self.aborted.append(self.parts)
        self.parts = []

    def require_connections(self) -> None:
        if self.lost is not None:
            raise self.lost

    def purge(self) -> None:
        self.is_purged = True


def lane_with(broker: Broker) -> Lane:
    return Lane(cast("RenewableProducer", broker))


def part_of(broker: Broker, name: str) -> Callable[[], Finish]:
    def write() -> Finish:
        broker.parts.append(name)
        return lambda: Result(Outcome.COMMITTED, why=name)

    return write


def commit(lane: Lane, broker: Broker, name: str, size_bytes: int = 1) -> Result:
    return lane.commit(part_of(broker, name), lambda: size_bytes)


class Partitions:
    """The threads of several partitions, each with one part; the first one is committing when the others come."""

    def __init__(
        self, lane: Lane, broker: Broker, names: str, size_bytes: int = 1, runs_out: tuple[str, int] = ("", 0)
    ) -> None:
        self.results: dict[str, Result | Exception] = {}
        self.has_run_out = False
        self._runs_out = runs_out
        broker.may_commit.clear()
        self._threads = [Thread(target=partial(self._run, lane, broker, name, size_bytes)) for name in names]
        self._threads[0].start()
        assert broker.is_committing.wait(WITHIN_S)
        for count, thread in enumerate(self._threads[1:], 1):
            thread.start()
            wait_for(partial(self._has_waiting, lane, count))
        broker.may_commit.set()
        for thread in self._threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive(), runs_out

    def _run(self, lane: Lane, broker: Broker, name: str, size_bytes: int) -> None:
        try:
            if name == self._runs_out[0]:
                sys.settrace(self._at_call)
            self.results[name] = commit(lane, broker, name, size_bytes)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            # As in a worker, which keeps no frame of an error, and with it no part of the lane.
            self.results[name] = error.with_traceback(None)
        finally:
            sys.settrace(None)

    def _has_waiting(self, lane: Lane, count: int) -> bool:
        return len(lane._waiting) + self.has_run_out == count

    def _at_call(self, frame: FrameType, _: str, __: object) -> None:
        """Raise MemoryError at one call of a function, but not within the events of the broker of the test."""
        if frame.f_code.co_filename == threading.__file__:
            return
        name, left = self._runs_out
        self._runs_out = name, left - 1
        if left == 0:
            self.has_run_out = True
            raise MemoryError

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome that each partition heard."""
        return {name: result.outcome for name, result in self.results.items() if isinstance(result, Result)}


def wait_for(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.001)


def test_a_partition_alone_commits_at_once() -> None:
    broker = Broker()
    lane = lane_with(broker)
    assert commit(lane, broker, "a").outcome is Outcome.COMMITTED
    assert broker.committed == [["a"]]


def test_parts_that_come_in_during_a_commit_share_the_next_transaction() -> None:
    broker = Broker()
    found = Partitions(lane_with(broker), broker, "abcd")
    assert broker.committed == [["a"], ["b", "c", "d"]]
    assert {name: result.why for name, result in found.results.items() if isinstance(result, Result)} == {
        name: name for name in "abcd"
    }


def test_the_next_transaction_waits_until_the_last_one_is_settled() -> None:
    broker = Broker()
    lane = lane_with(broker)
    commit(lane, broker, "a")
    began_s = time.monotonic()
    commit(lane, broker, "b")
    assert time.monotonic() - began_s >= SETTLE_S * 0.9


def test_large_parts_do_not_share_a_transaction() -> None:
    broker = Broker()
    Partitions(lane_with(broker), broker, "abc", size_bytes=MAX_BATCH_BYTES)
    assert broker.committed == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(("error", "outcome"), [(REFUSED, Outcome.REFUSED), (AGAIN, Outcome.ABORTED)])
def test_one_refused_part_is_told_to_its_partition_alone(error: KafkaError, outcome: Outcome) -> None:
    broker = Broker()
    broker.refuses = {"c": error}
    found = Partitions(lane_with(broker), broker, "abcd")
    assert found.outcomes == dict.fromkeys("abd", Outcome.COMMITTED) | {"c": outcome}
    assert (broker.committed, broker.aborted) == ([["a"], ["b"], ["d"]], [["b", "c", "d"], ["c"]])


def test_a_fenced_lane_ends_for_all_its_partitions() -> None:
    broker = Broker()
    lane = lane_with(broker)
    broker.refuses = {"c": FENCED}
    found = Partitions(lane, broker, "abcd")
    assert found.outcomes == {"a": Outcome.COMMITTED} | dict.fromkeys("bcd", Outcome.FENCED)
    assert lane.has_ended
    assert commit(lane, broker, "e").outcome is Outcome.FENCED
    assert broker.committed == [["a"]]


def test_the_producer_is_served_once_for_many_partitions() -> None:
    broker = Broker()
    lane = lane_with(broker)
    lane.serve()
    # It is asked again only after a while.
    broker.lost = ConnectionLostError("cut", 0.0)
    lane.serve()
    time.sleep(SERVE_EVERY_S)
    with pytest.raises(ConnectionLostError, match="cut"):
        lane.serve()


def test_a_lost_connection_ends_the_lane_before_the_next_transaction() -> None:
    broker = Broker()
    lane = lane_with(broker)
    commit(lane, broker, "a")
    broker.lost = ConnectionLostError("cut", 0.0)
    with pytest.raises(ConnectionLostError, match="cut"):
        lane.serve()
    broker.lost = None
    with pytest.raises(ConnectionLostError, match="cut"):
        lane.serve()
    result = commit(lane, broker, "b")
    assert (result.outcome, str(result.error)) == (Outcome.UNKNOWN, "cut")
    with pytest.raises(ConnectionLostError, match="cut"), lane.alone():
        pytest.fail("the lane has ended")


def test_a_part_that_fails_by_itself_is_raised_in_its_partition_alone() -> None:
    broker = Broker()
    lane = lane_with(broker)

    def fail() -> Finish:
        raise ValueError("not encodable")

    with pytest.raises(ValueError, match="not encodable"):
        lane.commit(fail, lambda: 1)
    assert not lane.has_ended
    assert commit(lane, broker, "a").outcome is Outcome.COMMITTED


def test_an_error_that_is_no_exception_leaves_no_partition_waiting() -> None:
    """confluent-kafka was seen to raise a bare KafkaError, which no ``except Exception`` catches."""
    broker = Broker()
    lane = lane_with(broker)

    def fail() -> Finish:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lane.commit(fail, lambda: 1)
    assert lane.has_ended
    assert commit(lane, broker, "a").outcome is Outcome.UNKNOWN


def test_a_partition_that_runs_out_of_memory_at_any_call_leaves_no_other_waiting() -> None:
    """Its thread leads, while two others wait; a call needs memory for its frame."""
    calls = 0
    while True:
        broker = Broker()
        lane = lane_with(broker)
        found = Partitions(lane, broker, "abcd", runs_out=("b", calls))
        assert set(found.results) == set("abcd"), f"call {calls} of b leaves others waiting"
        assert commit(lane, broker, "e").outcome in (Outcome.COMMITTED, Outcome.UNKNOWN)
        if not found.has_run_out:
            break
        calls += 1
    assert calls > 20


def test_a_search_for_refused_records_has_the_producer_alone_and_ends_the_lane_if_it_fails() -> None:
    broker = Broker()
    lane = lane_with(broker)
    results: list[Result] = []
    with lane.alone():
        thread = Thread(target=lambda: results.append(commit(lane, broker, "a")))
        thread.start()
        wait_for(lambda: len(lane._waiting) == 1)
        assert broker.committed == []
    thread.join(WITHIN_S)
    assert [each.outcome for each in results] == [Outcome.COMMITTED]
    with pytest.raises(ValueError, match="no verdict"), lane.alone():
        raise ValueError("no verdict")
    assert commit(lane, broker, "b").outcome is Outcome.UNKNOWN


def test_a_lane_that_another_owner_has_fenced_is_not_tried_again() -> None:
    broker = Broker()
    lane = lane_with(broker)
    lane.end()
    result = commit(lane, broker, "a")
    assert result.outcome is Outcome.FENCED
    assert isinstance(result.error, ClusterError)
    assert not broker.committed


def test_many_threads_lose_and_double_nothing() -> None:
    broker = Broker()
    lane = lane_with(broker)
    told: list[Any] = []

    def run(number: int) -> None:
        told.extend(commit(lane, broker, f"{number}/{turn}").why for turn in range(30))

    threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WITHIN_S * 4)
        assert not each.is_alive()
    wanted = sorted(f"{number}/{turn}" for number in range(8) for turn in range(30))
    assert sorted(told) == wanted
    assert sorted(name for parts in broker.committed for name in parts) == wanted
    assert len(broker.committed) < len(wanted)
