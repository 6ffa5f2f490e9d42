"""Tests of a ladder of attempts while routers are killed, and partitions move: each attempt comes exactly once."""

import time
from collections import Counter
from random import Random
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.scenario import Stage, header

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ATTEMPTS = 5
PARTITIONS = 4
RECORDS = 300
FAULTS = 6
FAULT_EVERY_S = 2.0
SPENT_WITHIN_S = 150.0


def test_each_attempt_comes_once_while_routers_are_killed_and_partitions_move(stage: Stage, rng: Random) -> None:
    out, dead = stage.target("out"), stage.target("dead")
    retry = {"first": "600ms", "factor": 2, "max": "1h", "jitter": 0.25, "attempts": ATTEMPTS, "dead_letter": dead}
    delay = stage.delay(partitions=PARTITIONS, default_target=out, retry=retry)
    routers = [stage.router(name, instance_id=name) for name in ("a", "b")]
    with routers[0], routers[1], Failing(stage, delay, out) as failing:
        for router in routers:
            router.start()
        for number in range(RECORDS):
            stage.post(delay, value=b"%d" % number, partition=number % PARTITIONS)
        stage.flush()
        faults, next_s, until_s = 0, time.monotonic() + FAULT_EVERY_S, time.monotonic() + SPENT_WITHIN_S
        while failing.failed < RECORDS * ATTEMPTS and time.monotonic() < until_s:
            failing.step()
            if faults < FAULTS and time.monotonic() > next_s:
                router = rng.choice(routers)
                # A killed router keeps its partitions for its session; one that stops gives them to the other one.
                if faults % 2:
                    router.kill()
                else:
                    router.stop()
                router.start()
                faults, next_s = faults + 1, time.monotonic() + FAULT_EVERY_S
        spent = stage.wait_records(dead, RECORDS)
        assert faults == FAULTS, "the ladder was over too soon"
        report = stage.settle()
        for router in routers:
            router.stop()
    assert report.ok, report.samples
    came = Counter((each.value, int(header(each, "delay-attempt") or 0)) for each in stage.records(out))
    assert came == Counter((b"%d" % number, at + 1) for number in range(RECORDS) for at in range(ATTEMPTS))
    assert Counter(each.value for each in spent) == Counter(b"%d" % number for number in range(RECORDS))


class Failing:
    """A consumer that cannot handle any record, and sends each back with the headers that it has."""

    def __init__(self, stage: Stage, delay: str, target: str) -> None:
        self._stage = stage
        self._delay = delay
        self._consumer = Consumer({**stage.kafka, "group.id": "failing", "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(target, 0, 0)])
        self.failed = 0
        """The number of records that were sent back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def step(self) -> None:
        """Send the records back that have come."""
        for message in self._consumer.consume(RECORDS, 0.2):
            if message.error() is None:
                headers: Any = message.headers() or ()
                place = self.failed % PARTITIONS
                value = message.value() or b""
                self._stage.post(self._delay, *headers, value=value, key=message.key(), partition=place)
                self.failed += 1
        self._stage.flush()
