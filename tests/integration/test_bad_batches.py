"""Tests of batches that no client of this kind can read: the router skips and reports them, or stops if configured."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from sidecar.dev import local_kafka
from tests.integration.scenario import Stage, header, wait_until
from tests.wire import Broker, WireBatch, WireRecord, codecs
from tests.wire.batch import TRANSACTIONAL

SOON: Final = (b"deliver-after", b"200")
UNPACKED_BYTES: Final = 150_000_000
"""More than librdkafka unpacks of zstd: 100 MB by default (receive.message.max.bytes). In the log it takes 5 kB."""

ROOMY: Final = {"receive.message.max.bytes": 500_000_000}

STUB: Final = ("delay-error", "delay-error-message", "delay-source")


def good(value: bytes) -> bytes:
    return WireBatch([WireRecord(b"k", value, [SOON])]).encode()


@pytest.fixture(scope="module")
def bombs() -> dict[int, bytes]:
    """Return batches by their number of records; the last record of each is huge."""
    huge = WireRecord(b"k", bytes(UNPACKED_BYTES), [SOON])
    return {
        count: WireBatch([*[WireRecord(b"k", b"in it", [SOON])] * (count - 1), huge], codecs.ZSTD).encode()
        for count in (1, 40)
    }


@pytest.fixture
def broker(kafka: local_kafka.Cluster) -> Iterator[Broker]:
    with Broker(kafka.bootstrap) as broker:
        yield broker


def values(stage: Stage, target: str) -> Sequence[bytes | None]:
    return [record.value for record in stage.records(target)]


def test_what_cannot_be_read_is_stepped_over_and_told(stage: Stage, broker: Broker, bombs: dict[int, bytes]) -> None:
    """Batches lie alone, with others in the batch, next to another, at the log end; replay reads them again."""
    target = stage.target()
    delay = stage.delay(default_target=target)
    places: list[tuple[int, int]] = []

    def drop(count: int) -> None:
        offset = broker.produce(delay, 0, bombs[count])
        places.append((offset, offset + count))

    with stage.router() as router:
        router.start_and_wait()
        broker.produce(delay, 0, good(b"1"))
        drop(1)
        broker.produce(delay, 0, good(b"2"))
        drop(40)
        drop(1)
        drop(40)
        broker.produce(delay, 0, good(b"3"))
        drop(1)
        rejected = f"{delay}.rejected"
        wait_until(lambda: len(stage.records(rejected)) == len(places), "every bad batch in the rejected topic")
        router.kill()
        broker.produce(delay, 0, good(b"4"))
        router.start_and_wait()
        wait_until(lambda: len(values(stage, target)) == 4, "the good records")
        events = router.events("records_lost")
        assert router.metric(f'records_rejected_total{{reason="UNREADABLE",topic="{delay}"}}') == 0
    assert values(stage, target) == [b"1", b"2", b"3", b"4"]
    stubs = stage.records(rejected)
    assert [header(stub, "delay-source") for stub in stubs] == [f"{delay}/0/{at}".encode() for at, _ in places]
    for stub, (start, end) in zip(stubs, places, strict=True):
        assert (stub.key, stub.value, tuple(name for name, _ in stub.headers)) == (None, None, STUB)
        assert header(stub, "delay-error") == b"UNREADABLE"
        assert f"Offsets {start} to {end - 1} are a batch".encode() in (header(stub, "delay-error-message") or b"")
    told = [(event["first_offset"], event["last_offset"] + 1) for event in events]
    # The owner that replays them reports them again: it cannot know whether they could be read before.
    assert told[: len(places)] == places
    assert set(told) == set(places)


def test_in_transactions_too(stage: Stage, broker: Broker) -> None:
    """Aborted batches are reported as well: the client unpacks a batch before it checks whether it is wanted."""
    target = stage.target()
    delay = stage.delay(default_target=target)
    huge = [WireRecord(b"k", bytes(UNPACKED_BYTES), [SOON])]
    with stage.router() as router:
        router.start_and_wait()
        for commit in (False, True):
            producer = broker.init_producer_id(f"{delay}.{commit}")
            broker.add_partitions_to_txn(f"{delay}.{commit}", producer, [(delay, 0)])
            batch = WireBatch(huge, codecs.ZSTD, TRANSACTIONAL, None, None, *producer, 0)
            broker.produce(delay, 0, batch.encode(), transactional_id=f"{delay}.{commit}")
            broker.end_txn(f"{delay}.{commit}", producer, commit=commit)
        broker.produce(delay, 0, good(b"1"))
        wait_until(lambda: len(values(stage, target)) == 1, "the good record")
    told = [header(stub, "delay-source") for stub in stage.records(f"{delay}.rejected")]
    # The marker at offset 1 is reported together with the batch behind it if both came at once.
    assert told[0] == f"{delay}/0/0".encode()
    assert told[1:] in ([f"{delay}/0/1".encode()], [f"{delay}/0/2".encode()])


def test_it_stops_the_partition_where_that_is_asked_for(stage: Stage, broker: Broker, bombs: dict[int, bytes]) -> None:
    target = stage.target()
    delay = stage.delay(default_target=target, on_unreadable="stop")
    with stage.router() as router:
        router.start_and_wait()
        broker.produce(delay, 0, good(b"1"))
        broker.produce(delay, 0, bombs[40])
        broker.produce(delay, 0, good(b"2"))
        wait_until(lambda: bool(router.events("partition_refused")), "the partition stands still")
        [refused, *_] = router.events("partition_refused")
        assert "offsets 1 to 40 are a batch that the client cannot read" in refused["why"]
        assert 'on_unreadable = "reject"' in refused["why"]
    stage.delays[delay]["on_unreadable"] = "reject"
    with stage.router("second") as router:
        router.start_and_wait()
        wait_until(lambda: len(values(stage, target)) == 2, "the good records")
    assert len(stage.records(f"{delay}.rejected")) == 1


def test_what_was_said_to_be_unreadable_stays_undelivered_by_a_client_that_can_read_it(
    stage: Stage, broker: Broker
) -> None:
    """A record in front waits in memory, so the next owner and the one after it read the batch again."""
    target = stage.target()
    delay = stage.delay(default_target=target, seal_age="1h")

    def batch(value: bytes, after: bytes, *others: WireRecord) -> WireBatch:
        return WireBatch([WireRecord(b"k", value, [(b"deliver-after", after)]), *others], codecs.ZSTD)

    broker.produce(delay, 0, batch(b"waits", b"1h").encode())
    broker.produce(delay, 0, batch(b"in it", b"5s", WireRecord(b"k", bytes(UNPACKED_BYTES), [SOON])).encode())
    with stage.router() as router:
        router.start_and_wait()
        wait_until(lambda: len(stage.records(f"{delay}.rejected")) == 1, "the word that it cannot be read")
        router.kill()
    for name in ("next", "after"):
        with stage.router(name, kafka=ROOMY) as router:
            router.start_and_wait()
            if name == "after":
                broker.produce(delay, 0, batch(b"later", b"6s").encode())
                wait_until(lambda: len(values(stage, target)) > 0, "what is due later")
            assert router.events("records_lost") == []
            router.kill()
    assert values(stage, target) == [b"later"]
    assert len(stage.records(f"{delay}.rejected")) == 1


def test_records_around_it_are_read_again_when_they_are_due(
    stage: Stage, broker: Broker, bombs: dict[int, bytes]
) -> None:
    """Pointers make the router read due records by offset, on both sides of the unreadable batch."""
    target = stage.target()
    sealing: dict[str, Any] = {"placement": "pointer", "seal_records": 4, "seal_age": "100ms", "seal_beyond": "0s"}
    delay = stage.delay(default_target=target, max_delay="10s", **sealing)
    later = (b"deliver-after", b"4000")
    with stage.router() as router:
        router.start_and_wait()
        for value in (b"1", b"2"):
            broker.produce(delay, 0, WireBatch([WireRecord(b"k", value, [later, (b"due", b"together")])]).encode())
            broker.produce(delay, 0, bombs[1])
        wait_until(lambda: router.metric(f'buckets{{topic="{delay}"}}') > 0, "they are sealed")
        router.kill()
        router.start_and_wait()
        wait_until(lambda: len(values(stage, target)) == 2, "both")
        assert router.events("partition_interrupted") == []
