"""Schedule a record with confluent-kafka, another one, and cancel that: python delayed.py SERVERS DELAY_TOPIC."""

import sys
from datetime import datetime, timedelta

from confluent_kafka import Producer
from delay_router_client import cancel, deliver


def main(servers: str, delay_topic: str) -> None:
    """Send one record that is due in two seconds, and one that is cancelled before it is due."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    headers = deliver(
        at=datetime.now().astimezone() + timedelta(seconds=2),
        deliver_id="order-42",
        max_delay=timedelta(days=7),  # that of the delay topic: too long a delay is an error here, before it is sent
    )
    producer.produce(delay_topic, b'{"order": 42}', b"42", headers=headers)
    reminder = deliver(after=timedelta(hours=1), deliver_id="reminder-42")
    producer.produce(delay_topic, b'{"reminder": 42}', b"42", headers=reminder)
    # The same key: a cancel holds in its own partition.
    producer.produce(delay_topic, None, b"42", headers=cancel("reminder-42"))
    if producer.flush(30):
        sys.exit("the brokers did not take the record")


if __name__ == "__main__":
    main(*sys.argv[1:])
