"""A consumer that fails with the record at an offset, and sends it to the retry topic."""

import sys

from confluent_kafka import Consumer, Message, Producer, TopicPartition

servers, topic, offset = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": "failing", "enable.auto.commit": False})
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})


def handle(message: Message) -> None:
    """Fail, as a consumer does whose database is away."""
    raise ConnectionError(str(message.key()))


consumer.assign([TopicPartition(topic, 0, int(offset))])
message = consumer.poll(60)
assert message is not None
try:
    handle(message)
except Exception:
    producer.produce("orders.retry", message.value(), message.key(), headers=message.headers())
    producer.flush()  # before the offset is committed
consumer.close()
