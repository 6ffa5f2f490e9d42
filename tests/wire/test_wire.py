"""The hand-written protocol against a real broker and a real client, which must read the same."""

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from sidecar.dev import local_kafka
from tests.conftest import MakeTopic
from tests.wire import Broker, RefusedByBroker, WireBatch, WireRecord, codecs
from tests.wire.batch import TRANSACTIONAL
from tests.wire.broker import Fetched
from tests.wire.numbers import crc32c, padded, read_varint, varint

RECORDS = [
    WireRecord(b"k", b"v" * 300, [(b"name", b"content"), (b"name", None), (b"empty", b"")]),
    WireRecord(None, None, [], timestamp_delta=-5),
    WireRecord(b"", b"", [("größe".encode(), b"\0\xff")], timestamp_delta=1_000),
]


def test_the_checksum_is_the_known_one() -> None:
    """The values are those of RFC 3720 B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("number", [0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varints_come_back(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))
    assert read_varint(padded(number, 10), 0) == (number, 10)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_what_is_written_is_what_both_read(kafka: local_kafka.Cluster, make_topic: MakeTopic, codec: int) -> None:
    topic, base_ms = make_topic(), time.time_ns() // 1_000_000
    with Broker(kafka.bootstrap) as broker:
        assert broker.produce(topic, 0, WireBatch(RECORDS, codec=codec, base_ms=base_ms).encode()) == 0
        stored = broker.records(topic)
    assert [(each.key, each.value, list(each.headers)) for each in stored] == [
        (record.key, record.value, list(record.headers)) for record in RECORDS
    ]
    assert [each.timestamp_ms - base_ms for each in stored] == [0, -5, 1_000]
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "wire"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = consumer.consume(len(RECORDS), 20)
    consumer.close()
    assert [(each.key(), each.value(), each.timestamp()[1]) for each in read] == [
        (each.key, each.value, each.timestamp_ms) for each in stored
    ]
    assert read[2].headers() == [("größe", b"\0\xff")]


def test_transactions_end_as_they_are_told(kafka: local_kafka.Cluster, make_topic: MakeTopic) -> None:
    topic, name = make_topic(), make_topic()
    with Broker(kafka.bootstrap) as broker:
        for commit in (True, False):
            producer = broker.init_producer_id(name)
            broker.add_partitions_to_txn(name, producer, [(topic, 0)])
            batch = WireBatch([WireRecord(b"", b"%d" % commit)], 0, TRANSACTIONAL, None, None, *producer, 0)
            broker.produce(topic, 0, batch.encode(), transactional_id=name)
            assert broker.fetch(topic, 0, 0, committed=True).last_stable_offset < _end(kafka, topic)
            broker.end_txn(name, producer, commit=commit)
        fetched = _settled(broker, topic, 4)
    assert [batch.is_control for batch in fetched.batches] == [False, True, False, True]
    assert [first for _, first in fetched.aborted] == [2]


def test_a_marker_ends_a_transaction_that_no_coordinator_knows_any_more(
    kafka: local_kafka.Cluster, make_topic: MakeTopic
) -> None:
    topic, name = make_topic(), make_topic()
    with Broker(kafka.bootstrap) as broker:
        producer = broker.init_producer_id(name)
        broker.add_partitions_to_txn(name, producer, [(topic, 0)])
        batch = WireBatch([WireRecord(b"", b"")], 0, TRANSACTIONAL, None, None, *producer, 0)
        broker.produce(topic, 0, batch.encode(), transactional_id=name)
        broker.write_txn_markers(producer, [(topic, 0)], commit=True)
        assert _settled(broker, topic, 2).aborted == ()


def test_a_refusal_says_why(kafka: local_kafka.Cluster, make_topic: MakeTopic) -> None:
    with Broker(kafka.bootstrap) as broker, pytest.raises(RefusedByBroker) as refused:
        broker.produce(make_topic(), 0, WireBatch([WireRecord()], crc=1).encode())
    assert refused.value.code == 2  # CORRUPT_MESSAGE


def _end(kafka: local_kafka.Cluster, topic: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "wire", "isolation.level": "read_uncommitted"}
    )
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
    finally:
        consumer.close()


def _settled(broker: Broker, topic: str, end: int) -> Fetched:
    while broker.fetch(topic, 0, 0).last_stable_offset < end:
        time.sleep(0.01)
    return broker.fetch(topic, 0, 0, committed=True)
