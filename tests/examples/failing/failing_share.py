"""A consumer of a share group that fails with the record at an offset, and sends it to the retry topic."""

import sys

from confluent_kafka import Message, Producer, ShareConsumer

servers, topic, offset = sys.argv[1:]
settings = {"group.id": "failing-share", "share.acknowledgement.mode": "explicit"}
consumer = ShareConsumer({"bootstrap.servers": servers, **settings})
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
failed: list[int] = []


def handle(message: Message) -> None:
    """Fail with one record, as a consumer does whose database is away."""
    if message.offset() == int(offset):
        failed.append(int(offset))
        raise ConnectionError(str(message.key()))


consumer.subscribe([topic])
while not failed:
    for message in consumer.poll(1):
        try:
            handle(message)
        except Exception:
            producer.produce("orders.retry", message.value(), message.key(), headers=message.headers())
            producer.flush()  # before the record is accepted
        consumer.acknowledge(message)
consumer.close()
