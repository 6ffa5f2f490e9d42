"""Schedule a record with confluent-kafka: python delayed.py SERVERS DELAY_TOPIC."""

import sys
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

from sidecar.producing import deliver


def main(servers: str, delay_topic: str) -> None:
    """Send one record that is due in two seconds."""
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    headers = deliver(
        at=datetime.now(UTC) + timedelta(seconds=2),
        deliver_id="order-42",
        max_delay=timedelta(days=7),  # that of the delay topic: too long a delay is an error here, before it is sent
    )
    producer.produce(delay_topic, b'{"order": 42}', b"42", headers=[*headers])
    if producer.flush(30):
        sys.exit("the brokers did not take the record")


if __name__ == "__main__":
    main(*sys.argv[1:])
