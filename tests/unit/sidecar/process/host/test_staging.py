"""Buckets that wait in the backfill topics: read from the beginning, decoded, and forgotten when they are withdrawn."""

import queue
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError
from index.pending.progress import Position
from index.rules.rules import Rules
from sidecar.process.host.staging import AGAIN_AFTER_S, StagedAt, Staging
from snapshots.state.staged import StagedBucket, encode_staged, intent_key, staged_key
from tests.support.hand_clock import HandClock

PLACE = StagedAt("d.delay-backfill", "d.delay-snapshots", 3)
OTHER = StagedAt("e.delay-backfill", "e.delay-snapshots", 3)
RULES = Rules("d", default_target="out")


class Message:
    """A message as the client hands it out."""

    def __init__(
        self, offset: int, key: bytes | None, value: bytes | None, error: int | None = None, topic: str = PLACE.backfill
    ) -> None:
        self._told = topic, 3, offset, key, value
        self._error = None if error is None else KafkaError(error)

    def topic(self) -> str:
        return self._told[0]

    def partition(self) -> int:
        return self._told[1]

    def offset(self) -> int:
        return self._told[2]

    def key(self) -> bytes | None:
        return self._told[3]

    def value(self) -> bytes | None:
        return self._told[4]

    def error(self) -> KafkaError | None:
        return self._error


class Client:
    """A consumer of one log; hands out the records of the test, and all of them again when it is assigned anew."""

    def __init__(self, snapshots: tuple[int, int] = (0, 100)) -> None:
        self.coming: queue.Queue[Message] = queue.Queue()
        self.assigned: list[list[tuple[str, int, int]]] = []
        self._snapshots = snapshots
        self.closed = False

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned.append([(each.topic, each.partition, each.offset) for each in places])

    def poll(self, timeout_s: float) -> Message | None:
        try:
            return self.coming.get(timeout=min(timeout_s, 0.02))
        except queue.Empty:
            return None

    def consume(self, count: int, _: float) -> list[Message]:
        return [self.coming.get() for _ in range(min(count, self.coming.qsize()))]

    def list_topics(self, _topic: str, _timeout_s: float) -> None:
        """Do nothing: the client knows the leaders."""

    def get_watermark_offsets(self, _: TopicPartition, __: float) -> tuple[int, int]:
        return self._snapshots

    def close(self) -> None:
        self.closed = True


def staged(job: str, *record_offsets: int) -> tuple[bytes, bytes]:
    at = [Position(50 + number, 10 + number) for number in range(len(record_offsets))]
    refs = [SegmentRef(at[n], at[n], 1, 9, offset, Placement.INLINE) for n, offset in enumerate(record_offsets)]
    made = StagedBucket(job, "id", RULES, Manifest(0, 10, 20, None, tuple(refs)), restores=False)
    return staged_key(job, 10), encode_staged(made)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def staging(client: Client, clock: HandClock) -> Any:
    made = Staging(lambda: client, clock)  # type: ignore[arg-type,return-value]
    yield made
    made.stop()
    until(lambda: client.closed or not client.assigned)


def test_what_is_staged_is_decoded_and_what_is_withdrawn_is_forgotten(staging: Staging, client: Client) -> None:
    staging.watch(PLACE)
    until(lambda: bool(client.assigned))
    assert client.assigned[0] == [(PLACE.backfill, 3, -2)]
    assert staging.waiting(PLACE) == {}
    key, value = staged("j", 40, 41)
    for message in (
        Message(5, key, value),
        Message(6, intent_key("j"), b"not looked at"),
        Message(7, b"of a newer program", b""),
        Message(8, staged_key("k", 10), b"damaged"),
    ):
        client.coming.put(message)
    until(lambda: len(staging.waiting(PLACE)) == 2)
    found = staging.waiting(PLACE)
    assert found[key].offset == 5
    assert isinstance(found[key].staged, StagedBucket)
    assert isinstance(found[staged_key("k", 10)].staged, FormatError)
    assert staging.waiting(PLACE) is found
    client.coming.put(Message(9, key, None))
    until(lambda: key not in staging.waiting(PLACE))
    client.coming.put(Message(10, key, value))
    until(lambda: key in staging.waiting(PLACE))
    assert staging.waiting(PLACE)[key].offset == 10


def test_segments_that_are_not_there_are_noticed(staging: Staging, client: Client) -> None:
    staging.watch(PLACE)
    until(lambda: bool(client.assigned))
    for number, job in enumerate(("old", "new")):
        client.coming.put(Message(number, *staged(job, 99, 100 if job == "new" else 99 - 1)))
    until(lambda: len(staging.waiting(PLACE)) == 2)
    found = staging.waiting(PLACE)
    assert isinstance(found[staged_key("old", 10)].staged, StagedBucket)
    assert "offsets 99 to 100 of d.delay-snapshots/3, which holds [0, 100)" in str(found[staged_key("new", 10)].staged)


def test_the_end_of_a_topic_is_told_and_so_is_that_it_is_missing(
    staging: Staging, client: Client, clock: HandClock
) -> None:
    staging.watch(PLACE)
    staging.watch(OTHER)
    until(lambda: len(client.assigned[-1:]) == 1 and len(client.assigned[-1]) == 2)
    assert not staging.has_looked(PLACE)
    client.coming.put(Message(0, None, None, KafkaError._PARTITION_EOF))
    until(lambda: staging.has_looked(PLACE))
    assert not staging.has_looked(OTHER)
    client.coming.put(Message(0, None, None, KafkaError.UNKNOWN_TOPIC_OR_PART, OTHER.backfill))
    until(lambda: staging.has_looked(OTHER))
    asked = len(client.assigned)
    clock.go_on(AGAIN_AFTER_S)
    until(lambda: len(client.assigned) > asked)


def test_a_partition_that_is_watched_again_is_read_again(staging: Staging, client: Client) -> None:
    watch = staging.watch(PLACE)
    until(lambda: bool(client.assigned))
    client.coming.put(Message(5, *staged("j", 1)))
    until(lambda: bool(staging.waiting(PLACE)))
    staging.unwatch(watch)
    assert staging.waiting(PLACE) == {}
    staging.watch(PLACE)
    assert staging.waiting(PLACE) == {}
    until(lambda: client.assigned[-1] == [(PLACE.backfill, 3, -2)] and len(client.assigned) > 1)
    staging.watch(OTHER)
    until(lambda: len(client.assigned[-1]) == 2)


def test_the_end_of_a_former_watch_leaves_the_present_one(staging: Staging, client: Client) -> None:
    former = staging.watch(PLACE)
    until(lambda: bool(client.assigned))
    present = staging.watch(PLACE)
    staging.unwatch(former)
    until(lambda: len(client.assigned) > 1)
    client.coming.put(Message(5, *staged("j", 1)))
    client.coming.put(Message(6, None, None, KafkaError._PARTITION_EOF))
    until(lambda: staging.has_looked(PLACE))
    assert len(staging.waiting(PLACE)) == 1
    staging.unwatch(present)
    assert not staging.waiting(PLACE)


@pytest.mark.parametrize("step", ["record", "end", "decoding"])
def test_a_scan_that_began_before_a_watch_tells_it_nothing(
    step: str, staging: Staging, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = Message(5, None, None, KafkaError._PARTITION_EOF) if step == "end" else Message(5, *staged("j", 1))
    called: tuple[object, str] = (client, "get_watermark_offsets") if step == "decoding" else (message, "topic")
    answer, assign = getattr(*called), client.assign
    known: list[tuple[bool, int]] = []

    def watched_meanwhile(*args: object) -> object:
        monkeypatch.setattr(*called, answer)
        staging.watch(PLACE)
        return answer(*args)

    def assigned(places: list[TopicPartition]) -> None:
        known.append((staging.has_looked(PLACE), len(staging.waiting(PLACE))))
        assign(places)

    monkeypatch.setattr(*called, watched_meanwhile)
    monkeypatch.setattr(client, "assign", assigned)
    client.coming.put(message)
    staging.watch(PLACE)
    until(lambda: len(client.assigned) > 1)
    assert client.assigned[1] == [(PLACE.backfill, 3, -2)]
    assert known[1] == (False, 0)


def test_without_an_answer_nothing_is_held_up() -> None:
    class Broken(Client):
        def poll(self, timeout_s: float) -> Message | None:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    client = Broken()
    staging = Staging(lambda: client, HandClock())  # type: ignore[arg-type,return-value]
    staging.watch(PLACE)
    until(lambda: staging.has_looked(PLACE))
    assert client.closed
    staging.stop()


def test_holding_off_is_remembered_by_partition(staging: Staging, clock: HandClock) -> None:
    staging.hold_off(PLACE)
    assert staging.not_before_s(PLACE) == clock.running_s() + AGAIN_AFTER_S
    assert staging.not_before_s(OTHER) == 0.0
