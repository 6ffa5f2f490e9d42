"""The scan against a naive model, on a consumer that hands over messages like librdkafka, in pieces and late."""

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

import sidecar
from sidecar.engine.ports import Place
from sidecar.kafka.reading.scan import NO_END, PartitionScan, ScanError, Why, place_of
from tests.support.hand_clock import HandClock

EOF = KafkaError._PARTITION_EOF
ONE = ("t", 0)
OTHER = ("t", 1)


@dataclass(frozen=True, slots=True)
class Message:
    at: Place
    position: int
    code: int | None = None

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.position

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


@dataclass
class Consumer:
    """Hands over scripts; None in a script is a wait in vain."""

    script: list[Message | None] = field(default_factory=list)
    clock: HandClock = field(default_factory=HandClock)
    assigned: dict[Place, int] = field(default_factory=dict)
    paused: list[Place] = field(default_factory=list)
    most: int = 0

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned = {(each.topic, each.partition): each.offset for each in places}

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused += [(each.topic, each.partition) for each in places]

    def poll(self, wait_s: float) -> Message | None:
        message = self.script.pop(0) if self.script else None
        if message is None:
            self.clock.sleep(wait_s)
        return message

    def consume(self, count: int, wait_s: float) -> list[Message]:
        assert wait_s == 0, "it would wait until it has so many"
        taken: list[Message] = []
        while len(taken) < count and self.script and (message := self.script[0]) is not None:
            taken.append(message)
            del self.script[0]
        self.most = max(self.most, len(taken) + 1)
        return taken


def scan_of(consumer: Consumer, ranges: dict[Place, range], at_once: int = 1_000) -> PartitionScan:
    return PartitionScan(cast("Any", consumer), ranges, at_once=at_once, running_s=consumer.clock.running_s)


def read(scan: PartitionScan, until_s: float = math.inf) -> list[tuple[Place, int]]:
    return [(place_of(message), message.offset() or 0) for message in scan.records(until_s)]


class Log:
    """A partition: its records, the gaps that compaction and markers left, and the messages of librdkafka about it."""

    def __init__(self, rng: random.Random, place: Place) -> None:
        self.place = place
        self.start = rng.randrange(50)
        self.stop = self.start + rng.randrange(60)
        # Records are appended during the scan.
        self.grown = self.stop + rng.choice((0, 0, rng.randrange(20)))
        share = rng.choice((0.0, 0.3, 0.9, 1.0))
        self.records = [offset for offset in range(self.start, self.grown) if rng.random() < share]
        self.breaks_at = rng.choice((None, None, None, rng.randrange(self.start, self.stop + 1)))

    def told(self, rng: random.Random, code: int) -> Iterator[Message]:
        """Yield records, ends (also momentary ones), and the error, which the client repeats."""
        for offset in self.records:
            if self.breaks_at is not None and offset >= self.breaks_at:
                break
            if rng.random() < 0.1:
                yield Message(self.place, offset, EOF)
            yield Message(self.place, offset)
        if self.breaks_at is None:
            yield Message(self.place, self.grown, EOF)
        else:
            yield from (Message(self.place, self.breaks_at, code) for _ in range(rng.randrange(1, 3)))

    def expected(self) -> list[int]:
        end = self.stop if self.breaks_at is None else min(self.breaks_at, self.stop)
        return [offset for offset in self.records if offset < end]

    def fails(self) -> bool:
        """Return whether the scan meets the failure before a record shows that the end is reached."""
        return self.breaks_at is not None and self.start < self.stop and self.stop - 1 not in self.expected()


def interleaved(rng: random.Random, each: list[list[Message]]) -> list[Message | None]:
    script: list[Message | None] = []
    while left := [messages for messages in each if messages]:
        script.append(rng.choice(left).pop(0))
        if rng.random() < 0.2:
            script.append(None)
    return script


WHYS = {
    KafkaError._BAD_MSG: Why.UNREADABLE,
    KafkaError._AUTO_OFFSET_RESET: Why.REMOVED,
    KafkaError._TRANSPORT: Why.FAILED,
}


def test_the_scan_reads_what_the_model_reads(rng: random.Random) -> None:
    for _ in range(500):
        code, at_once = rng.choice([*WHYS]), rng.choice((1, 2, 7, 1_000))
        logs = [Log(rng, ("t", number)) for number in range(rng.randrange(1, 5))]
        consumer = Consumer(interleaved(rng, [[*log.told(rng, code)] for log in logs]))
        scan = scan_of(consumer, {log.place: range(log.start, log.stop) for log in logs}, at_once)
        assert consumer.assigned == {log.place: log.start for log in logs if log.start < log.stop}
        found: dict[Place, list[int]] = {log.place: [] for log in logs}
        failed: dict[Place, Why] = {}
        while scan.left:
            try:
                for message in scan.records():
                    found[place_of(message)].append(message.offset() or 0)
            except ScanError as error:
                failed[error.place] = error.why
                scan.leave(error.place)
        assert failed == {log.place: WHYS[code] for log in logs if log.fails()}
        assert found == {log.place: log.expected() for log in logs}
        assert consumer.most <= at_once


def test_a_partition_that_ends_in_front_of_its_given_end_is_waited_for() -> None:
    consumer = Consumer([Message(ONE, 0), Message(ONE, 1, EOF), None, Message(ONE, 1), Message(ONE, 3, EOF)])
    assert read(scan_of(consumer, {ONE: range(3)})) == [(ONE, 0), (ONE, 1)]


def test_what_lies_behind_the_end_is_neither_read_nor_an_error() -> None:
    consumer = Consumer(
        [Message(ONE, 0), Message(ONE, 1), Message(ONE, 2, KafkaError._BAD_MSG), None, Message(OTHER, 0)]
    )
    assert read(scan_of(consumer, {ONE: range(1), OTHER: range(1)})) == [(ONE, 0), (OTHER, 0)]


def test_brokers_that_hand_over_nothing_end_the_scan() -> None:
    consumer = Consumer([Message(ONE, 0), *[None] * 10, Message(ONE, 1)])
    scan = scan_of(consumer, {ONE: range(9)})
    records = scan.records(silent_for_s=5.0)
    assert [next(records).offset(), next(records).offset()] == [0, 1]
    with pytest.raises(ScanError, match="t/0: offset 2 was not read in time") as stopped:
        next(records)
    assert (stopped.value.why, stopped.value.place) == (Why.SILENT, ONE)
    assert consumer.clock.running_s() > HandClock().running_s() + 5


def test_a_scan_that_is_out_of_time_goes_on_when_it_is_given_more() -> None:
    consumer = Consumer([Message(ONE, 0), *[None] * 12, Message(ONE, 1)])
    scan = scan_of(consumer, {ONE: range(2)})
    with pytest.raises(ScanError) as stopped:
        read(scan, until_s=consumer.clock.running_s() + 1)
    assert stopped.value.why is Why.OUT_OF_TIME
    assert read(scan) == [(ONE, 1)]


def test_an_error_of_no_partition_ends_the_scan() -> None:
    consumer = Consumer([Message(("", -1), 0, KafkaError._ALL_BROKERS_DOWN), Message(ONE, 0)])
    scan = scan_of(consumer, {ONE: range(1)})
    with pytest.raises(ScanError):
        read(scan)
    assert read(scan) == [(ONE, 0)]


def test_who_follows_is_told_of_an_end_and_of_each_position() -> None:
    consumer = Consumer([Message(ONE, 4), Message(ONE, 6, EOF), None, Message(ONE, 6)])
    scan = scan_of(consumer, {ONE: range(3, NO_END)})
    assert (scan.fetch(0), [each.offset() for each in scan.taken()]) == (2, [4])
    assert (scan.at_end, scan.next_offset) == ({ONE}, {ONE: 6})
    assert (scan.fetch(0), [*scan.taken()], scan.at_end) == (0, [], set())
    assert (scan.fetch(0), [each.offset() for each in scan.taken()]) == (1, [6])
    assert (scan.at_end, scan.next_offset) == (set(), {ONE: 7})


def test_a_partition_that_was_left_is_paused_and_its_records_are_dropped() -> None:
    consumer = Consumer([Message(ONE, 0), Message(ONE, 1), Message(OTHER, 0)])
    scan = scan_of(consumer, {ONE: range(9), OTHER: range(1)})
    found = []
    for message in scan.records():
        found.append((place_of(message), message.offset()))
        scan.leave(place_of(message))
    assert found == [(ONE, 0), (OTHER, 0)]
    assert consumer.paused == [ONE]


READS_BY_ITSELF = {
    "dev/audit/read.py": "judges the router, and shares no code with it",
    "dev/demo/dev.py": "shows the arrivals of a group of its own",
    "dev/demo/kafka_side.py": "shows the arrivals of a group of its own",
    "kafka/client/membership.py": "polls for the group alone: its partitions are paused",
    "kafka/reading/offset_reader.py": "seeks from record to record, within a release",
    "kafka/reading/tails.py": "the tail of a delay partition, whose fetches the kernel takes",
    "kafka/reading/tail_clients.py": "polls for errors alone: each partition has a queue of its own",
    "kafka/reading/scan.py": "the scan",
}


TAKES = re.compile(r"\.consume\(|consumer\.poll\(")
"""A call of a consumer for records. Producers, clients for administration and processes are polled, too."""


def test_nothing_else_takes_records_from_a_consumer() -> None:
    package = Path(sidecar.__file__).parent
    taking = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if TAKES.search(path.read_text())}
    assert taking == READS_BY_ITSELF.keys(), "read partitions by PartitionScan"


def test_nothing_is_waited_for_where_nothing_is_to_be_read() -> None:
    consumer = Consumer()
    assert read(scan_of(consumer, {ONE: range(5, 5), OTHER: range(7, 3)})) == []
    assert consumer.assigned == {}
