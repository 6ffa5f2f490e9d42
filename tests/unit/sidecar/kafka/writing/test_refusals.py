"""Tests the search for records that a broker refuses, against a modelled client and broker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from random import Random
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from index.protocol.record import Record
from sidecar.kafka.writing.refusals import Findings, Suspect, find_refused
from sidecar.kafka.writing.transactions import OnDelivery

TRIAL_S = 0.01


@dataclass
class Sent:
    """A produced record."""

    topic: str
    number: int
    size: int
    on_delivery: Callable[[KafkaError | None, Any], None]


class Told:
    """A delivered message."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic


@dataclass
class Broker:
    """Refuses ``bad`` records, and batches of a topic that are too large; a batch has at most ``batch_records``."""

    bad: frozenset[tuple[str, int]] = frozenset()
    code: int = KafkaError.INVALID_RECORD
    tells_which: bool = False
    max_batch_bytes: int = 1 << 40
    batch_records: int = 100
    missing_sequences: bool = True
    trials: int = 0
    now_s: float = 0.0
    _queued: list[Sent] = field(default_factory=list)
    _gaps: set[str] = field(default_factory=set)

    def begin_transaction(self) -> None:
        self.trials += 1
        self.now_s += TRIAL_S

    def abort_transaction(self) -> None:
        self._tell(self._queued, KafkaError._PURGE_QUEUE)
        self._queued = []

    def send(self, topic: str, number: int, size: int, on_delivery: OnDelivery | None) -> None:
        assert on_delivery is not None
        self._queued.append(Sent(topic, number, size, on_delivery))

    def flush(self, _timeout_s: float) -> int:
        """Send up to the first batch that is refused; the abort purges the records behind it."""
        for topic in dict.fromkeys(each.topic for each in self._queued):
            own = [each for each in self._queued if each.topic == topic]
            for start in range(0, len(own), self.batch_records):
                batch = own[start : start + self.batch_records]
                taken = {id(each) for each in batch}
                self._queued = [each for each in self._queued if id(each) not in taken]
                if not self._take(topic, batch):
                    return len(self._queued)
        return 0

    def _take(self, topic: str, batch: list[Sent]) -> bool:
        bad = [each for each in batch if (topic, each.number) in self.bad]
        if sum(each.size for each in batch) > self.max_batch_bytes:
            self._tell(batch, KafkaError.MSG_SIZE_TOO_LARGE)
        elif bad and self.tells_which:
            self._tell(bad, self.code)
            innocent = [each for each in batch if (topic, each.number) not in self.bad]
            self._tell(innocent, KafkaError._INVALID_DIFFERENT_RECORD)
        elif bad:
            self._tell(batch, self.code)
        elif topic in self._gaps:
            self._gaps.discard(topic)
            self._tell(batch, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
            return False
        else:
            self._tell(batch, None)
            return True
        if self.missing_sequences:
            self._gaps.add(topic)
        return False

    def _tell(self, some: list[Sent], code: int | None) -> None:
        for each in some:
            each.on_delivery(None if code is None else KafkaError(code), Told(each.topic))


def suspects(broker: Broker, routes: Sequence[tuple[str, ...]], sizes: list[int] | None = None) -> list[Suspect]:
    def suspect(number: int, route: tuple[str, ...]) -> Suspect:
        size = 100 if sizes is None else sizes[number]

        def send(on_delivery: OnDelivery | None) -> None:
            for topic in route:
                broker.send(topic, number, size, on_delivery)

        return Suspect(number, route, Record(b"", b"x" * size, (), 0), send)

    return [suspect(number, route) for number, route in enumerate(routes)]


def found(broker: Broker, those: list[Suspect], **options: Any) -> Findings:
    options.setdefault("by_size", False)
    return find_refused(cast("Producer", broker), those, now_s=lambda: broker.now_s, **options)


@pytest.mark.parametrize("tells_which", [True, False])
def test_it_finds_what_trying_one_by_one_finds_in_fewer_trials(rng: Random, *, tells_which: bool) -> None:
    for _ in range(30):
        topics = ["a", "b", "c"][: rng.randint(1, 3)]
        count = rng.randint(1, 300)
        routes = [tuple(rng.sample(topics, rng.randint(1, len(topics)))) for _ in range(count)]
        share = rng.choice([0.0, 0.005, 0.05, 0.5, 1.0])
        # A model that needs no search: the records that a broker refuses by themselves.
        bad = frozenset((rng.choice(routes[number]), number) for number in range(count) if rng.random() < share)
        broker = Broker(bad, tells_which=tells_which, batch_records=rng.choice([1, 10, 100]))
        findings = found(broker, suspects(broker, routes))
        assert set(findings.refused) == {number for _, number in bad}
        assert not findings.undecided
        assert not findings.doubted
        depth = ceil(log2(count)) + 1
        # Every second trial may be a repetition, since sequence numbers are missing.
        assert broker.trials <= 2 * (len(bad) * (depth + 1) * 2 + 2)


def test_one_trial_is_enough_where_the_broker_tells_which(rng: Random) -> None:
    bad = frozenset(("a", number) for number in rng.sample(range(5_000), 4_000))
    broker = Broker(bad, tells_which=True, batch_records=10_000)
    findings = found(broker, suspects(broker, [("a",)] * 5_000))
    assert len(findings.refused) == 4_000
    assert findings.tells_which
    # The trials: the first, one more that is out of order, and one that is clean.
    assert broker.trials == 3


def test_once_it_is_known_that_it_tells_which_a_batch_of_nothing_else_is_clear_too() -> None:
    bad = frozenset(("a", number) for number in range(1_000))
    broker = Broker(bad, tells_which=True, batch_records=10_000)
    assert len(found(broker, suspects(broker, [("a",)] * 1_000), tells_which=True).refused) == 1_000
    assert broker.trials == 1


def test_of_brokers_that_do_not_tell_nobody_is_believed_to_be_refused_for_another() -> None:
    """All records of a batch get the error of one of them: only a separate trial shows which one."""
    broker = Broker(frozenset({("a", 7)}), batch_records=10_000)
    assert set(found(broker, suspects(broker, [("a",)] * 1_000)).refused) == {7}
    assert broker.trials < 50


def test_others_are_cleared_first_and_what_there_is_no_time_for_is_left() -> None:
    bad = frozenset(("bad", number) for number in range(0, 10_000, 2))
    broker = Broker(bad, batch_records=1_000)
    routes = [("bad",) if number % 2 == 0 else ("good",) for number in range(10_000)]
    findings = found(broker, suspects(broker, routes), within_s=20 * TRIAL_S)
    assert broker.trials <= 22
    assert findings.doubted == {"bad"}
    assert {each.route for each in findings.undecided} <= {("bad",), ("good",)}
    assert len(findings.undecided) + len(findings.refused) >= 5_000


def test_a_topic_that_takes_each_record_but_not_a_batch_of_them_is_crowded() -> None:
    broker = Broker(max_batch_bytes=2_000)
    findings = found(broker, suspects(broker, [("a",)] * 300), by_size=True)
    assert not findings.refused
    # 20 records of 100 bytes fit.
    assert 10 <= findings.crowded["a"] <= 20


def test_a_record_refused_for_its_size_speaks_for_all_larger_ones(rng: Random) -> None:
    sizes = [rng.choice([100, 5_000 + rng.randrange(100_000)]) for _ in range(2_000)]
    broker = Broker(max_batch_bytes=4_000)
    findings = found(broker, suspects(broker, [("a",)] * 2_000, sizes), by_size=True)
    assert set(findings.refused) == {number for number, size in enumerate(sizes) if size > 4_000}
    assert broker.trials < 600


def test_nothing_is_concluded_from_errors_that_are_not_about_a_record() -> None:
    broker = Broker(frozenset({("a", 0)}), code=KafkaError._TIMED_OUT)
    with pytest.raises(KafkaException):
        found(broker, suspects(broker, [("a",)]))


def test_nothing_to_try() -> None:
    assert not found(Broker(), []).refused
